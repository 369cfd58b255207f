// platforms.js - the work of platforms.c with JSON.parse and JSON.stringify: bytes in, frame bytes out.
//
//      node platforms.js FILE SECONDS [--show]
"use strict";
const fs = require("fs");

const BOT = "9000000000000000009";
const channels = new Map([["1100000000000000100", { type: 0, name: "general", topic: "all things", parent: null }]]);
const members = new Map();
const SPEECH = new Set([0, 19, 20, 23]);

function normalize(m) {
  if (!SPEECH.has(m.type) || m.author.id === BOT) return null;
  const channel = channels.get(m.channel_id);
  if (m.member) members.set(m.guild_id + " " + m.author.id, m.member);
  const name = (m.member && m.member.nick) || m.author.global_name || m.author.username;
  const thread = channel.type >= 10 && channel.type <= 12;
  let text = m.content.trim();
  while (text.startsWith(`<@${BOT}>`)) text = text.slice(BOT.length + 3).trim();
  const event = {
    text,
    message_type: "text",
    message_id: m.id,
    reply_to_message_id: m.type === 19 ? m.message_reference.message_id : null,
    media_urls: m.attachments.map((a) => a.url).filter((u) => !u.includes("/relay/media/")),
    bot_id: "app1",
    source: {
      platform: "discord",
      chat_id: m.channel_id,
      chat_type: thread ? "thread" : "group",
      chat_name: channel.name,
      user_id: m.author.id,
      user_name: name,
      thread_id: thread ? m.channel_id : null,
      chat_topic: channel.topic,
      guild_id: m.guild_id,
      scope_id: m.guild_id,
      message_id: m.id,
      user_display_name: name,
      user_handle: m.author.username,
    },
  };
  if (m.type === 19 && m.referenced_message) {
    const quoted = m.referenced_message;
    event.reply_to = {
      is_own: quoted.author.id === BOT,
      text: quoted.content,
      author: quoted.author.global_name || quoted.author.username,
    };
  }
  event.source.message_id = m.id;
  return { event, addressed: m.mentions.some((u) => u.id === BOT) };
}

const bytes = fs.readFileSync(process.argv[2]);
const seconds = Number(process.argv[3]);
let events = 0, frame = null;
function one() {
  const made = normalize(JSON.parse(bytes.toString("utf8")).d);
  frame = Buffer.from(JSON.stringify({ type: "inbound", bufferId: "b" + (++events).toString(32), event: made.event }) + "\n");
}
for (const end = process.hrtime.bigint() + 500000000n; process.hrtime.bigint() < end;) one(); // warm
events = 0;
const begin = process.cpuUsage(); // of the process, as platforms.c counts: other programs do not matter
let passed = 0;
while (passed < seconds) {
  for (let i = 0; i < 1000; i++) one();
  const used = process.cpuUsage(begin);
  passed = (used.user + used.system) / 1e6;
}
if (process.argv[4]) process.stdout.write(frame);
else console.log(JSON.stringify({ events, seconds: passed, rate: events / passed, bytes_in: bytes.length,
  bytes_out: frame.length, node: process.version }));

#!/usr/bin/env node
// count.js - an agent in JavaScript: it counts aloud until it is done or you write /stop.
//
//     bellhop agent --per-chat --until-done -- examples/agents/count.js
//
// With --per-chat every conversation has its own process, so `counting` needs no key.
const readline = require("readline");

const say = (order) => console.log(JSON.stringify(order));
let counting = null;

function stop(why) {
  if (counting === null) return;
  clearInterval(counting);
  counting = null;
  say({ op: "send", content: why, done: true });
}

function count(to) {
  let n = 1;
  say({ op: "send", content: "1" });
  counting = setInterval(() => {
    if (n >= to) return stop(`That was ${to}.`);
    n += 1;
    say({ op: "edit", content: Array.from({ length: n }, (_, i) => i + 1).join(" ") });
  }, 100);
}

process.on("SIGINT", () => {}); // the line says the same, and says whom it means
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.type === "interrupt") return stop("As you wish.");
  if (message.type !== "message") return;
  const asked = /^\/count (\d{1,2})$/.exec(message.text);
  if (asked) count(Number(asked[1]));
  else say({ op: "send", content: "/count N, and /stop when you have heard enough.", done: true });
}).on("close", () => process.exit(0));

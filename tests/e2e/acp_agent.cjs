// An ACP agent that does what the prompt says, and checks both sides against the published schema
// (npm @agentclientprotocol/sdk).  A message that breaks the schema ends it with status 9.
//   ACP_CAN      JSON, agentCapabilities; its member "sessions" (modes, options) goes into session/new
//   ACP_FORGETS  continues sessions that it does not have, and refuses their prompts, as Hermes does
//   ACP_OPENS    milliseconds that session/new takes
//   ACP_LOGIN    wants a login: authenticate with the method "x"
//   ACP_FILES    a directory: log (one JSON line per message of the client), sessions that survive
const fs = require("fs"), path = require("path"), readline = require("readline");
const npm = process.env.ACP_NPM;
const Ajv = require(require.resolve("ajv/dist/2020", { paths: [npm] })).default;
const schema = JSON.parse(fs.readFileSync(path.join(npm, "node_modules/@agentclientprotocol/sdk/schema/schema.json")));
const ajv = new Ajv({ strict: false, validateFormats: false });
ajv.addSchema({ ...schema, $id: "acp" });

const dir = process.env.ACP_FILES, can = JSON.parse(process.env.ACP_CAN || "{}"), extra = can.sessions || {};
delete can.sessions;
const log = (o) => fs.appendFileSync(path.join(dir, "log"), JSON.stringify({ pid: process.pid, ...o }) + "\n");
const INCOMING = { initialize: "InitializeRequest", authenticate: "AuthenticateRequest", "session/new": "NewSessionRequest", "session/load": "LoadSessionRequest",
  "session/resume": "ResumeSessionRequest", "session/prompt": "PromptRequest", "session/cancel": "CancelNotification",
  "session/close": "CloseSessionRequest", "session/set_mode": "SetSessionModeRequest",
  "session/set_config_option": "SetSessionConfigOptionRequest" };
const ANSWERS = { initialize: "InitializeResponse", authenticate: "AuthenticateResponse", "session/new": "NewSessionResponse", "session/load": "LoadSessionResponse",
  "session/resume": "ResumeSessionResponse", "session/prompt": "PromptResponse", "session/close": "CloseSessionResponse",
  "session/set_mode": "SetSessionModeResponse", "session/set_config_option": "SetSessionConfigOptionResponse" };

function check(def, value, what) {
  const ok = ajv.validate(`acp#/$defs/${def}`, value);
  if (ok) return;
  log({ invalid: what, errors: ajv.errors });
  process.stderr.write(`invalid ${what}: ${JSON.stringify(ajv.errors)}\n`);
  process.exit(9);
}

const send = (o) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...o }) + "\n");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let next = 0, logged = false;
const open = new Map();  // our requests
const live = new Map();  // sessions: id -> {said: [...], cancel}
const update = (sessionId, update) => {
  check("SessionNotification", { sessionId, update }, "our session/update");
  send({ method: "session/update", params: { sessionId, update } });
};
const chunk = (id, text, more) => update(id, { sessionUpdate: "agent_message_chunk", content: { type: "text", text }, ...more });
const ask = (method, params) => new Promise((done) => { send({ id: `a-${++next}`, method, params }); open.set(`a-${next}`, done); });
const file = (id) => path.join(dir, "session-" + id);
const keep = (id) => fs.writeFileSync(file(id), JSON.stringify(live.get(id).said));
class Refuse extends Error { constructor(code, message) { super(message); this.code = code; } }

async function prompt({ sessionId: id, prompt }) {
  const session = live.get(id);
  if (!session && process.env.ACP_FORGETS) return { stopReason: "refusal" };
  if (!session) throw new Refuse(-32002, "no such session");
  const text = prompt.filter((b) => b.type === "text").map((b) => b.text).join("|");
  const word = text.split(" ")[0], rest = text.slice(word.length + 1);
  session.cancelled = false;
  const stopped = new Promise((done) => { session.cancel = () => { session.cancelled = true; done(); }; });
  const once = path.join(dir, "died");
  if (word === "die" || (word === "die-once" && !fs.existsSync(once))) {
    fs.writeFileSync(once, "");
    process.exit(3);
  }
  if (word === "say-then-die") { chunk(id, "half an"); await sleep(700); process.exit(4); }
  if (word === "forget") { live.delete(id); fs.unlinkSync(file(id)); chunk(id, "forgotten"); return { stopReason: "end_turn" }; }
  if (word === "late-and-wait") chunk(id, rest);
  if (word.endsWith("wait")) { await stopped; return { stopReason: "cancelled" }; }
  if (word === "hang") { chunk(id, "busy"); await new Promise(() => setInterval(() => {}, 1000)); }
  if (word === "stream") {
    for (let i = 0; i < Number(rest) && !session.cancelled; i++) { chunk(id, `${i} `); await sleep(50); }
    return { stopReason: session.cancelled ? "cancelled" : "end_turn" };
  }
  if (word === "late") { chunk(id, rest); await sleep(1500); return { stopReason: "end_turn" }; }
  if (word === "code") {
    chunk(id, "start\n```python\n"); await sleep(700);
    for (let i = 0; i < Number(rest); i++) chunk(id, `x = ${i}\n`);
    chunk(id, "```\nend");
    return { stopReason: "end_turn" };
  }
  if (word === "permit") {
    const options = rest === "hard" ? [{ optionId: "a", name: "Always", kind: "allow_always" }]
      : rest === "many" ? [..."abcdefghij"].map((o) => ({ optionId: o, name: "Allow " + o, kind: "allow_once" }))
        .concat([{ optionId: "n", name: "No", kind: "reject_once" }])
      : [{ optionId: "y", name: "Yes", kind: "allow_once" }, { optionId: "n", name: "No", kind: "reject_once" }];
    const hidden = "a".repeat(400) + "; rm -rf /";
    const toolCall = rest === "hidden" ? { toolCallId: "t1", title: "List\ncommand: ls " + hidden, rawInput: { command: hidden } }
      : rest === "markdown" ? { toolCallId: "t1", title: "[List](http://x/)", rawInput: { command: 'echo "[a](b$(rm -rf ~))"' } }
      : rest === "words" ? { toolCallId: "t1", title: "Shell", rawInput: { command: ["bash", "-lc", "rm -rf *"] } }
      : { toolCallId: "t1", title: "Delete everything", rawInput: { command: "rm -rf /" } };
    const r = await ask("session/request_permission", { sessionId: id, options, toolCall });
    check("RequestPermissionResponse", r.result, "the answer to request_permission");
    chunk(id, `outcome ${r.result.outcome.outcome} ${r.result.outcome.optionId || "-"}`);
    return { stopReason: session.cancelled ? "cancelled" : "end_turn" };
  }
  if (word === "fs") {
    const r = await ask("fs/read_text_file", { sessionId: id, path: "/etc/passwd" });
    chunk(id, `refused ${r.error.code}`);
  } else if (word === "blocks") {
    chunk(id, prompt.map((b) => b.type + (b.data ? ":" + b.mimeType : b.resource ? ":" + (b.resource.text || "blob") : "")).join(" "));
  } else if (word === "long") {
    for (let i = 0; i < Number(rest); i++) chunk(id, `line ${i} of a long answer\n`);
  } else if (word === "tools") {
    update(id, { sessionUpdate: "tool_call", toolCallId: "c", title: "Reading main.c", kind: "read", status: "in_progress" });
    update(id, { sessionUpdate: "plan", entries: [{ content: "Look", priority: "high", status: "completed" }, { content: "Think", priority: "low", status: "pending" }] });
    await sleep(1600);
    update(id, { sessionUpdate: "tool_call_update", toolCallId: "c", status: "completed" });
    chunk(id, "read it");
  } else if (word === "messages") {
    chunk(id, "first", { messageId: "m1" }); chunk(id, " part", { messageId: "m1" }); chunk(id, "second", { messageId: "m2" });
  } else if (word === "noise") {
    process.stdout.write("plain text on stdout\n{\"half\": \n"); process.stderr.write("a word on stderr\n"); chunk(id, "still here");
  } else if (word === "refuse") {
    throw new Refuse(-32603, "the model is out of order");
  } else if (word === "tokens") {
    chunk(id, "so far"); session.said.push(text); keep(id); return { stopReason: "max_tokens" };
  } else if (word === "said") {
    chunk(id, `${session.said.length} before: ${session.said.join(", ")}`);
  } else {
    await sleep(Number(process.env.ACP_SLOW || 0));
    chunk(id, `heard ${text}`);
  }
  session.said.push(text);
  keep(id);
  return { stopReason: "end_turn" };
}

const methods = {
  initialize: () => ({ protocolVersion: Number(process.env.ACP_VERSION || 1), agentCapabilities: can,
    authMethods: process.env.ACP_LOGIN ? [{ id: "x", name: "Log in", description: "run `agent login`" }] : [] }),
  authenticate: ({ methodId }) => {
    if (methodId !== "x") throw new Refuse(-32602, "no such method to log in");
    logged = true;
    return {};
  },
  "session/new": async () => {
    await sleep(Number(process.env.ACP_OPENS || 0));
    if (process.env.ACP_LOGIN && !logged) throw new Refuse(-32000, "Authentication required");
    const sessionId = `s-${process.pid}-${live.size}`;
    live.set(sessionId, { said: [] });
    return { sessionId, ...extra };
  },
  "session/load": ({ sessionId }) => {
    if (process.env.ACP_LOGIN && !logged) throw new Refuse(-32000, "Authentication required");
    if (!fs.existsSync(file(sessionId))) throw new Refuse(-32002, "no such session");
    live.set(sessionId, { said: JSON.parse(fs.readFileSync(file(sessionId))) });
    for (const said of live.get(sessionId).said) {
      update(sessionId, { sessionUpdate: "user_message_chunk", content: { type: "text", text: said } });
      chunk(sessionId, `REPLAYED ${said}`);
    }
    return { ...extra };
  },
  "session/resume": ({ sessionId }) => {
    if (!fs.existsSync(file(sessionId)) && process.env.ACP_FORGETS) return { ...extra };
    if (!fs.existsSync(file(sessionId))) throw new Refuse(-32002, "no such session");
    live.set(sessionId, { said: JSON.parse(fs.readFileSync(file(sessionId))) });
    return { ...extra };
  },
  "session/close": ({ sessionId }) => { live.delete(sessionId); return {}; },
  "session/set_mode": (p) => (p.modeId === "die" ? process.exit(3) : {}),
  "session/set_config_option": ({ configId, value }) => {
    for (const o of extra.configOptions) if (o.id === configId) o.currentValue = value;
    return { configOptions: extra.configOptions };
  },
  "session/prompt": prompt,
};

readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const m = JSON.parse(line);
  log(m);
  if (m.method === undefined) { open.get(m.id)(m); open.delete(m.id); return; }
  if (INCOMING[m.method]) check(INCOMING[m.method], m.params, m.method);
  if (m.method === "session/cancel") { const s = live.get(m.params.sessionId); if (s && s.cancel) s.cancel(); return; }
  try {
    if (!methods[m.method]) throw new Refuse(-32601, "no such method");
    const result = await methods[m.method](m.params);
    check(ANSWERS[m.method], result, `our answer to ${m.method}`);
    send({ id: m.id, result });
  } catch (e) {
    send({ id: m.id, error: { code: e.code || -32603, message: e.message } });
  }
}).on("close", () => process.exit(0));

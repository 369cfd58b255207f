// BellhopAgentConnector against a real server, in the categories of the runtime's own suite.
//
//     node connector.mjs URL KEY     prints [{category, name, error?}]
//
// The server has the agents filer (file), nobody (none), ann@work (none) and runner (exec: answers with its input).
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { BellhopAgentConnector, DeliveryFailedError, NotImplementedError } from "../../adapters/skillscript/index.js";
import { errors } from "../../adapters/skillscript/errors.js";

const [url, key] = process.argv.slice(2);
const connector = (more = {}) => new BellhopAgentConnector({ url, key, ...more });
const meta = (more = {}) => ({
  dispatch_id: randomUUID(),
  sent_at: Date.now(),
  origin: { skill_name: "probe", trigger_kind: "inline" },
  ...more,
});
const augment = (content, more) => ({ kind: "augment", content, meta: meta(more) });
const tests = [];
const test = (category, name, run) => tests.push({ category, name, run });

function failed(cause_kind, fields = {}) {
  return (e) => {
    assert.ok(e instanceof DeliveryFailedError && e instanceof errors.ConnectorError, `${e.name}: ${e.message}`);
    assert.equal(e.name, "DeliveryFailedError");
    assert.equal(e.connector_type, "agent_connector");
    assert.equal(e.cause_kind, cause_kind);
    for (const [k, v] of Object.entries(fields)) assert.deepEqual(e[k], v);
    return true;
  };
}

test("static-capabilities", "it says what it is without an instance", async () => {
  const caps = BellhopAgentConnector.staticCapabilities();
  assert.equal(caps.connector_type, "agent_connector");
  assert.equal(caps.implementation, "BellhopAgentConnector");
  assert.match(caps.contract_version, /^\d+\.\d+\.\d+$/);
  assert.deepEqual(Object.keys(caps.features).sort(),
    ["agent_status", "deliver", "health_check", "list_agents", "request_response", "wake"]);
});

test("method-existence", "the contract's methods and nothing else", async () => {
  assert.deepEqual(Object.getOwnPropertyNames(BellhopAgentConnector.prototype).filter((m) => m !== "constructor").sort(),
    ["agent_status", "deliver", "health_check", "list_agents", "request_response", "wake"]);
  assert.equal(connector().manifest, undefined);
});

test("return-type", "agents are listed with what they can", async () => {
  const agents = await connector().list_agents();
  assert.deepEqual(agents.map((a) => a.agent_id), ["filer", "nobody", "ann@work", "runner"]);
  assert.deepEqual(agents[1].capabilities, ["deliver", "augment", "template"]);
});

test("return-type", "the list is kept for a while and never throws", async () => {
  const c = connector({ agents_ttl_ms: 60000 });
  const [a, b] = await Promise.all([c.list_agents(), c.list_agents()]);
  assert.deepEqual(a, b);
  a.pop();
  assert.equal((await c.list_agents()).length, 4);
  assert.deepEqual(await new BellhopAgentConnector({ url: "http://127.0.0.1:1", key }).list_agents(), []);
  assert.deepEqual(await connector({ key: "wrong" }).list_agents(), []);
});

test("return-type", "a delivery has a receipt for either kind", async () => {
  for (const payload of [augment("hello"), { kind: "template", prompt: "do it", meta: meta() }]) {
    const receipt = await connector().deliver("nobody", payload);
    assert.equal(typeof receipt.delivered_at, "number");
    assert.equal(receipt.delivery_id, payload.meta.dispatch_id);
  }
});

test("return-type", "a wake is honest", async () => {
  const receipt = await connector().wake("nobody", { context: "look" });
  assert.equal(typeof receipt.woken_at, "number");
  assert.equal(receipt.woken, false);
  assert.equal((await connector().wake("nobody@s1")).session_id, "s1");
  assert.equal((await connector().wake("nobody@s1", { session_id: "s2" })).session_id, "s2");
});

test("return-type", "health is whether the server answers and the key is good", async () => {
  assert.equal(await connector().health_check(), true);
  assert.equal(await connector({ key: "wrong" }).health_check(), false);
  assert.equal(await new BellhopAgentConnector({ url: "http://127.0.0.1:1", key }).health_check(), false);
});

test("return-type", "a status is one of the contract's words", async () => {
  assert.ok(["active", "idle", "asleep", "unknown"].includes(await connector().agent_status("nobody")));
});

test("error-contract", "an agent that does not exist", async () => {
  const c = connector();
  await assert.rejects(c.deliver("who?", augment("x")), failed("client_validation", { agent_id: "who?", http_status: null }));
  await assert.rejects(c.wake("who?"), failed("client_validation"));
  await assert.rejects(c.deliver("", augment("x")), failed("client_validation"));
});

test("error-contract", "a kind that nobody knows, and content that is too long", async () => {
  await assert.rejects(connector().deliver("nobody", { kind: "poem", content: "x", meta: meta() }),
    (e) => failed("client_validation", { http_status: null })(e) && /kind/.test(e.message));
  await assert.rejects(connector().deliver("nobody", augment("x".repeat(600000))), failed("http_status", { http_status: 413 }));
});

test("error-contract", "a server that is away, and one that is not bellhop", async () => {
  const away = new BellhopAgentConnector({ url: "http://127.0.0.1:1", key });
  await assert.rejects(away.deliver("nobody", augment("x")), failed("network", { http_status: null }));
  await assert.rejects(connector({ key: "wrong" }).deliver("nobody", augment("x")), failed("http_status", { http_status: 401 }));
});

test("error-contract", "no answers where nobody can give any", async () => {
  await assert.rejects(connector().request_response("nobody", augment("x", { correlation_id: "c" }), { timeout_ms: 1000 }),
    (e) => e instanceof NotImplementedError && e.name === "NotImplementedError" && /not implemented/i.test(e.message));
});

test("feature-behavior", "the same dispatch twice is one effect and two successes", async () => {
  const payload = augment("once");
  const first = await connector().deliver("filer", payload);
  const again = await connector().deliver("filer", payload);
  assert.equal(again.delivered_at, first.delivered_at);
  assert.equal(again.warnings.length, 1);
});

test("feature-behavior", "an id with an @ of its own is that agent", async () => {
  assert.equal((await connector().wake("ann@work")).session_id, undefined);
  await assert.rejects(connector().wake("ann@work@s"), failed("client_validation")); // split at the first @: "ann"
});

test("feature-behavior", "a request is answered, and its answer is the right one", async () => {
  const answer = await connector().request_response("runner", augment("ping", { correlation_id: "c-7" }), { timeout_ms: 20000 });
  assert.equal(answer.correlation_id, "c-7");
  assert.equal(answer.agent_id, "runner");
  assert.equal(typeof answer.sent_at, "number");
  assert.equal(JSON.parse(answer.content).content, "ping");
});

test("feature-behavior", "a request that takes too long is the contract's TimeoutError", async () => {
  await assert.rejects(connector().request_response("runner", augment("slow", { correlation_id: "c-8" }), { timeout_ms: 300 }),
    (e) => e instanceof errors.TimeoutError && e.timeout_ms === 300);
});

test("feature-behavior", "a request that names no time is awaited as long as the server waits", async () => {
  const answer = await connector().request_response("runner", augment("very slow", { correlation_id: "c-9" }));
  assert.equal(answer.correlation_id, "c-9");
});

const told = [];
for (const t of tests) {
  try {
    await t.run();
    told.push({ category: t.category, name: t.name });
  } catch (e) {
    told.push({ category: t.category, name: t.name, error: e.stack });
  }
}
console.log(JSON.stringify(told));

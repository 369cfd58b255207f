// The classes of adapters/skillscript against a real server, in the categories of the runtime's own
// suites: method existence, return types, errors, static capabilities, behaviour of declared features.
//
//     node adapter.mjs URL KEY ATTESTING_KEY     prints [{category, name, error?}]
import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { BellhopDataStore, BellhopSkillStore } from "../../adapters/skillscript/index.js";
import { errors } from "../../adapters/skillscript/errors.js";

const [url, key, attesting] = process.argv.slice(2);
const fresh = () => "n" + randomUUID();
const skills = (k = key) => new BellhopSkillStore({ url, key: k, namespace: fresh() });
const data = () => new BellhopDataStore({ url, key, namespace: fresh() });
const FILTERS = ["domain_tags", "recipients", "agent_id", "vault", "thread_status", "payload_type", "knowledge_type", "pinned"];
const body = (name, status = "Draft") => `# Skill: ${name}\n# Status: ${status}\n\nt:\n    ! hi\n\ndefault: t\n`;
const tests = [];
const test = (category, name, run) => tests.push({ category, name, run });

function thrown(cls, fields = {}) {
  return (e) => {
    assert.ok(e instanceof errors[cls], `${e.name}: ${e.message}`);
    assert.equal(e.name, cls);
    for (const [k, v] of Object.entries(fields)) assert.deepEqual(e[k], v);
    return true;
  };
}

// ---- static capabilities ----

for (const [cls, type, flags] of [
  [BellhopSkillStore, "skill_store", ["supports_writes", "supports_versioning", "supports_tag_filter", "supports_audit_trail",
    "supports_atomic_status_transitions"]],
  [BellhopDataStore, "data_store", ["supports_writes", "supports_tag_filter", "supports_semantic", "supports_rerank",
    "supports_thread_status_filter", "supports_pinning", "supports_decay_model"]],
])
  test("static-capabilities", `${cls.name} says what it is without an instance`, async () => {
    const caps = cls.staticCapabilities();
    assert.equal(caps.connector_type, type);
    assert.equal(caps.implementation, cls.name);
    assert.match(caps.contract_version, /^\d+\.\d+\.\d+$/);
    assert.deepEqual(Object.keys(caps.features), flags);
    for (const v of Object.values(caps.features)) assert.equal(typeof v, "boolean");
  });

// ---- method existence ----

test("method-existence", "a store has the contract's methods and nothing else", async () => {
  const methods = (c) => Object.getOwnPropertyNames(c.prototype).filter((m) => m !== "constructor").sort();
  assert.deepEqual(methods(BellhopSkillStore),
    ["delete", "load", "manifest", "metadata", "query", "store", "update_status", "version", "versions"]);
  assert.deepEqual(methods(BellhopDataStore), ["get", "manifest", "query", "write"]);
});

test("method-existence", "a constructor is synchronous and says what it misses", async () => {
  for (const cls of [BellhopSkillStore, BellhopDataStore]) {
    assert.ok(new cls({ url: "http://127.0.0.1:9", key: "k" }) instanceof cls);
    assert.throws(() => new cls({ url }), /key/);
    assert.throws(() => new cls({ key }), /url/);
  }
});

// ---- return types ----

test("return-type", "an empty store lists nothing and says so", async () => {
  const s = skills();
  assert.deepEqual(await s.query(), []);
  assert.equal(await s.version(), "empty");
  assert.equal(typeof (await s.manifest()).capabilities_version, "string");
  assert.equal(typeof (await s.manifest()).manifest.kind, "string");
});

test("return-type", "a skill makes the round trip byte for byte", async () => {
  const s = skills();
  const source = "\ufeff# Skill: x\r\n# Status: Draft\r\n\r\nhé\u2028\u{1f600}\t\u0001 end";
  const v = await s.store("x", source);
  assert.equal(v.content_hash, createHash("sha256").update(source).digest("hex"));
  assert.equal(v.version, v.content_hash.slice(0, 12));
  assert.equal(typeof v.changed_at, "number");
  const got = await s.load("x");
  assert.equal(got.source, source);
  assert.deepEqual(await s.metadata("x"), got.metadata);
  assert.deepEqual(await s.query({}), [got.metadata]);
  await s.store("needs-x", 'execute_skill(skill_name="x")\n');
  assert.equal(await s.delete("x"), undefined);
});

test("return-type", "an entry comes back in the portable shape", async () => {
  const d = data();
  const w = await d.write({ content: "first line\nand more", tags: ["a"], recipients: ["bob"], metadata: { color: "red" } });
  assert.deepEqual(Object.keys(w).sort(), ["created_at", "id"]);
  const got = await d.get(w.id);
  assert.equal(got.summary, "first line");
  assert.equal(got.detail, "first line\nand more");
  assert.deepEqual(got.domain_tags, ["a"]);
  assert.deepEqual(got.recipients, ["bob"]);
  assert.deepEqual(got.metadata, { color: "red" });
  assert.ok(Math.abs(got.created_at - Date.now() / 1000) < 100);
  const [found] = await d.query({ query: "more", limit: 5, mode: "fts" });
  assert.equal(found.id, w.id);
  assert.ok(found.score < 0);
  assert.equal(await d.get(randomUUID()), null);
  assert.equal(await d.get("../skills"), null);
  const m = (await d.manifest()).manifest;
  assert.deepEqual(m.supported_modes, ["fts"]);
  assert.deepEqual(m.supported_filters, FILTERS);
});

// ---- errors ----

test("error-contract", "misses are SkillNotFoundError", async () => {
  const s = skills();
  for (const call of [() => s.load("nope"), () => s.metadata("nope"), () => s.versions("nope"), () => s.delete("nope"),
    () => s.update_status("nope", "Draft")])
    await assert.rejects(call, thrown("SkillNotFoundError", { skill_name: "nope", connector_type: "skill_store",
      implementation: "BellhopSkillStore", message: "Skill not found: 'nope'" }));
  for (const name of ["", ".", "..", "../x", "a b"]) await assert.rejects(() => s.load(name), thrown("SkillNotFoundError"));
});

test("error-contract", "the other errors have their classes and fields", async () => {
  const s = skills();
  await s.store("x", body("x"));
  await assert.rejects(() => s.load("x", "0123456789ab"), thrown("VersionNotFoundError", { skill_name: "x", version: "0123456789ab" }));
  for (const name of ["", "..", "a/b", "-x", "é"])
    await assert.rejects(() => s.store(name, body("x")), thrown("StorageConflictError", { skill_name: name }));
  await assert.rejects(() => s.query({ name_pattern: "(" }), thrown("QueryError"));
  await assert.rejects(() => s.update_status("x", "Great"), (e) => e.constructor === Error);
  assert.equal((await s.metadata("x")).status, "Draft");
});

test("error-contract", "a data store refuses what it cannot honour", async () => {
  const d = data();
  await d.write({ content: "something else" });
  await assert.rejects(() => d.query({ query: "x", limit: 1, mode: "semantic" }), thrown("QueryError"));
  await assert.rejects(() => d.query({ query: 'raw:"', limit: 1, mode: "fts" }), thrown("QueryError"));
  await assert.rejects(() => d.query({ query: "x", limit: 1, mode: "fts", color: "v" }),
    thrown("UnsupportedFilterError", { unsupportedKeys: ["color"], supportedKeys: FILTERS }));
  await assert.rejects(() => d.query({ query: "x", limit: 1, mode: "fts", color: "v", permissive_filters: "true" }),
    thrown("UnsupportedFilterError"));
  assert.deepEqual(await d.query({ query: "x", limit: 1, mode: "fts", color: "v", permissive_filters: true }), []);
});

test("error-contract", "a server that is not there, or refuses, is a ConnectorError", async () => {
  for (const options of [{ url: "http://127.0.0.1:9", key }, { url, key: "nonsense" }]) {
    await assert.rejects(() => new BellhopSkillStore(options).query(), thrown("ConnectorError", { connector_type: "skill_store" }));
    await assert.rejects(() => new BellhopDataStore(options).get(randomUUID()), thrown("ConnectorError", { connector_type: "data_store" }));
  }
});

// ---- features ----

test("feature-behavior", "writes, versions, audit trail, atomic status", async () => {
  const s = skills();
  const first = await s.store("x", body("x"));
  const second = await s.update_status("x", "Approved");
  assert.equal(second.previous_status, "Draft");
  assert.equal((await s.load("x")).metadata.status, "Approved");
  assert.match((await s.load("x")).source, /^# Status: Approved$/m);
  assert.equal((await s.load("x", first.version)).source, body("x"));
  assert.deepEqual((await s.versions("x")).map((v) => v.status), ["Draft", "Approved"]);
  await s.store("x", "# Skill: x\nnew\n");
  assert.equal((await s.metadata("x")).status, "Approved");
  await s.store("x", "# Skill: x\n# Status: Draft\n\nnew\n");
  assert.equal((await s.load("x")).source, "# Skill: x\n# Status: Draft\n\nnew\n");
  assert.equal((await s.metadata("x")).status, "Draft");
});

test("feature-behavior", "filters narrow, all of them", async () => {
  const s = skills();
  await s.store("a", body("a"), { metadata_bag: { tags: ["red", "big"] } });
  await s.store("b", body("b", "Approved"), { metadata_bag: { tags: ["red"] } });
  await s.store("c", body("c", "Disabled"));
  const names = async (f) => (await s.query(f)).map((m) => m.name);
  assert.deepEqual(await names({ status: "Approved" }), ["b"]);
  assert.deepEqual(await names({ status: ["Draft", "Disabled"] }), ["a", "c"]);
  assert.deepEqual(await names({ status: [] }), []);
  assert.deepEqual(await names({ tag: ["red", "big"] }), ["a"]);
  assert.deepEqual(await names({ tag: "red", limit: 1, offset: 1 }), ["b"]);
  assert.deepEqual(await names({ name_pattern: "[ac]", something_else: 1 }), ["a", "c"]);
  assert.deepEqual(await names({ since: Math.floor(Date.now() / 1000) + 100 }), []);
});

test("feature-behavior", "the author is the key's, or the caller's where the key may say", async () => {
  const s = skills(), r = skills(attesting);
  await s.store("x", body("x"), { author: "somebody" });
  assert.equal((await s.metadata("x")).author, "plain");
  await r.store("x", body("x"), { author: "carol" });
  assert.equal((await r.metadata("x")).author, "carol");
  await r.store("x", body("x") + "more\n");
  assert.equal((await r.metadata("x")).author, "carol");
  await assert.rejects(() => r.store("x", body("x"), { author: "dave" }), thrown("StorageConflictError"));
});

test("feature-behavior", "the change token moves with every change and only then", async () => {
  const s = skills();
  const seen = new Set([await s.version()]);
  const moves = async (change) => {
    await change();
    const token = await s.version();
    assert.ok(!seen.has(token));
    seen.add(token);
    assert.equal(await s.version(), token);
  };
  await moves(() => s.store("x", body("x")));
  await moves(() => s.store("x", body("x") + "edited\n"));
  await moves(() => s.update_status("x", "Approved"));
  await moves(() => s.store("y", body("y")));
  await s.delete("y");
  await s.load("x");
  assert.ok(seen.has(await s.version()));
});

test("feature-behavior", "tags are exact and any-of; time ends an entry; null never does", async () => {
  const d = data();
  const ids = [];
  for (const tags of [["a"], ["a", "b"], ["A"], undefined]) ids.push((await d.write({ content: "apple", tags })).id);
  const found = async (domain_tags) => (await d.query({ query: "apple", limit: 10, mode: "fts", domain_tags })).map((e) => e.id).sort();
  assert.deepEqual(await found("a"), [ids[0], ids[1]].sort());
  assert.deepEqual(await found(["b", "A"]), [ids[1], ids[2]].sort());
  assert.deepEqual((await d.query({ query: " ", limit: 10, mode: "fts", domain_tags: "A" })).map((e) => e.id), [ids[2]]);
  for (const bad of ["", [], ["a", ""], 5]) await assert.rejects(() => found(bad), thrown("QueryError"));
  const over = await d.write({ content: "pear", expires_at: Math.floor(Date.now() / 1000) - 5 });
  const ever = await d.write({ content: "pear", expires_at: null });
  assert.equal(await d.get(over.id), null);
  assert.deepEqual((await d.query({ query: "pear", limit: 5, mode: "fts" })).map((e) => e.id), [ever.id]);
});

const told = [];
for (const { category, name, run } of tests) {
  try {
    await run();
    told.push({ category, name });
  } catch (e) {
    told.push({ category, name, error: e.stack });
  }
}
console.log(JSON.stringify(told));

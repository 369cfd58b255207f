// stores.js - the peer of `./dev bench stores`: skill and data stores the way the Skillscript runtime builds them, SQLite
// from Node behind JSON-RPC tools at POST /rpc, without the runtime's lint and compile steps, which would only slow it.
//
//      node stores.js DIR          prints "port N" when it listens
//
// One table of skills with their bodies, one of versions, one transaction per write; one of entries with an FTS5 index
// kept by a trigger. Statements are prepared per call and a change token hashes every row, as there. Commits are synced
// to disk, as bellhop's are.
"use strict";
const http = require("http");
const path = require("path");
const crypto = require("crypto");
const { DatabaseSync } = require("node:sqlite");

const dir = process.argv[2];
const skills = new DatabaseSync(path.join(dir, "skills.db"));
skills.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS skills(name TEXT PRIMARY KEY, current_version TEXT, content_hash TEXT, status TEXT, source TEXT,
    description TEXT, metadata_json TEXT, created_at INTEGER, updated_at INTEGER, status_changed_at INTEGER);
  CREATE TABLE IF NOT EXISTS versions(name TEXT, version TEXT, content_hash TEXT, source TEXT, status TEXT,
    previous_status TEXT, changed_at INTEGER, changed_by TEXT, PRIMARY KEY(name, version));
  CREATE INDEX IF NOT EXISTS by_status ON skills(status);`);
const data = new DatabaseSync(path.join(dir, "data.db"));
data.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS entries(id TEXT PRIMARY KEY, summary TEXT, detail TEXT, tags TEXT, created_at INTEGER, metadata TEXT);
  CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(summary, detail, content='entries', content_rowid='rowid');
  CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON entries BEGIN
    INSERT INTO words(rowid, summary, detail) VALUES (new.rowid, new.summary, new.detail); END;`);

const now = () => Math.floor(Date.now() / 1000);
const header = (body, key) => (new RegExp(`^#\\s*${key}\\s*:\\s*(.+?)\\s*$`, "m").exec(body) || [])[1];

function write({ name, source }) {
  const hash = crypto.createHash("sha256").update(source, "utf8").digest("hex");
  const status = header(source, "Status") || "Draft", at = now();
  skills.exec("BEGIN");
  try {
    const old = skills.prepare("SELECT created_at FROM skills WHERE name = ?").get(name);
    skills.prepare(`INSERT INTO skills VALUES(?, ?, ?, ?, ?, ?, NULL, ?, ?, ?) ON CONFLICT(name) DO UPDATE SET
      current_version = excluded.current_version, content_hash = excluded.content_hash, status = excluded.status,
      source = excluded.source, description = excluded.description, updated_at = excluded.updated_at`)
      .run(name, hash.slice(0, 12), hash, status, source, header(source, "Description") || null, old ? old.created_at : at, at, at);
    skills.prepare(`INSERT INTO versions VALUES(?, ?, ?, ?, ?, NULL, ?, NULL) ON CONFLICT(name, version) DO UPDATE SET
      changed_at = excluded.changed_at`).run(name, hash.slice(0, 12), hash, source, status, at);
    skills.exec("COMMIT");
  } catch (e) {
    skills.exec("ROLLBACK");
    throw e;
  }
  return { name, version: hash.slice(0, 12), content_hash: hash, status, changed_at: at };
}

function read({ name }) {
  const row = skills.prepare("SELECT * FROM skills WHERE name = ?").get(name);
  if (!row) throw new Error(`Skill not found: '${name}'`);
  return { name, version: row.current_version, status: row.status, source: row.source };
}

function token() {
  const rows = skills.prepare("SELECT name, status, current_version FROM skills ORDER BY name").all();
  const text = rows.map((r) => `${r.name}:${r.status}:${r.current_version}`).join("\n");
  return crypto.createHash("sha256").update(text, "utf8").digest("hex").slice(0, 16);
}

function list({ if_none_match }) {
  const catalog_version = token();
  if (if_none_match === catalog_version) return { not_modified: true, catalog_version };
  const metas = skills.prepare("SELECT name, status, description FROM skills ORDER BY name LIMIT 50").all();
  return { skills: metas, catalog_version };
}

function query({ name_pattern, status, limit }) {
  const pattern = new RegExp(name_pattern);
  const rows = skills.prepare(`SELECT name, current_version, content_hash, status, source, description, metadata_json,
    created_at, updated_at, status_changed_at FROM skills WHERE status = ? ORDER BY name`).all(status);
  return rows.filter((r) => pattern.test(r.name)).slice(0, limit).map(({ source, ...meta }) => meta);
}

function dataWrite({ content }) {
  const id = crypto.randomUUID(), first = content.split("\n")[0], at = now();
  const summary = first.length > 200 ? first.slice(0, 197) + "..." : first;
  data.prepare("INSERT INTO entries VALUES(?, ?, ?, NULL, ?, NULL)").run(id, summary, content, at);
  return { id, created_at: at };
}

function dataQuery({ query: text, limit }) {
  const match = text.split(/\s+/).filter((t) => t).map((t) => `"${t.replace(/"/g, '""')}"`).join(" ");
  return data.prepare(`SELECT e.id, e.summary, e.detail, e.created_at, bm25(words) AS score FROM words
    JOIN entries e ON words.rowid = e.rowid WHERE words MATCH ? ORDER BY score LIMIT ?`).all(match, limit);
}

const tools = { skill_write: write, skill_read: read, skill_list: list, skill_query: query, data_write: dataWrite,
  data_query: dataQuery };

/* Entries by the thousand per transaction: the time it takes to fill the store is not what is measured. */
function seed({ n }) {
  let state = 7;
  const random = (below) => (state = (state * 1103515245 + 12345) % 2147483648) % below;
  const word = () => "w" + Math.max(1, Math.floor(Math.exp(random(100000) / 100000 * 9.9)));
  data.exec("BEGIN");
  for (let i = 0; i < n; i++) dataWrite({ content: Array.from({ length: 30 }, word).join(" ") });
  data.exec("COMMIT");
  return { n };
}
tools.seed = seed;

const server = http.createServer((req, res) => {
  const parts = [];
  req.on("data", (d) => parts.push(d));
  req.on("end", () => {
    const ask = JSON.parse(Buffer.concat(parts).toString("utf8"));
    let answer;
    try {
      const got = tools[ask.params.name](ask.params.arguments || {});
      answer = { jsonrpc: "2.0", id: ask.id, result: { content: [{ type: "text", text: JSON.stringify(got) }] } };
    } catch (e) {
      answer = { jsonrpc: "2.0", id: ask.id, error: { code: -32603, message: e.message } };
    }
    const body = Buffer.from(JSON.stringify(answer));
    res.writeHead(200, { "Content-Type": "application/json", "Content-Length": body.length });
    res.end(body);
  });
});
server.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
process.on("SIGTERM", () => process.exit(0));

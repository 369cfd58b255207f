// The official MCP clients, doing what a test says and telling what they saw.
//
//     node mcp_client.cjs PACKAGES '{"era": "older" | "newer", "url": ..., "key": ...} |
//                                   {"era": ..., "command": ..., "args": [...], "env": {...}}' '[[method, params]...]'
//
// "older" is @modelcontextprotocol/sdk (up to 2025-11-25), "newer" is @modelcontextprotocol/client at 2026-07-28.
// Steps run in order, those of a nested array at once. The last line it prints is one JSON object.
const { createRequire } = require("node:module");
const [packages, where, what] = process.argv.slice(2);
const to = JSON.parse(where);
const load = createRequire(packages + "/x.js");
const newer = to.era === "newer";
const older_path = "@modelcontextprotocol/sdk/";
const { Client } = load(newer ? "@modelcontextprotocol/client" : older_path + "client/index.js");
const { StreamableHTTPClientTransport } = load(newer ? "@modelcontextprotocol/client" : older_path + "client/streamableHttp.js");
const { StdioClientTransport } = load(newer ? "@modelcontextprotocol/client/stdio" : older_path + "client/stdio.js");

const notified = []; // {method, uri}
const waiting = []; // functions to call when another one came
let subscription = null;

function make_transport() {
  if (to.url === undefined) return new StdioClientTransport({ command: to.command, args: to.args, env: to.env, stderr: "inherit" });
  return new StreamableHTTPClientTransport(new URL(to.url), { requestInit: { headers: { Authorization: `Bearer ${to.key}`, ...to.headers } } });
}

function hear(client) {
  const came = (method) => (n) => {
    notified.push({ method, uri: n.params?.uri });
    waiting.splice(0).forEach((f) => f());
  };
  const names = ["notifications/resources/updated", "notifications/resources/list_changed"];
  if (newer) return names.forEach((name) => client.setNotificationHandler(name, came(name)));
  const { ResourceUpdatedNotificationSchema: updated, ResourceListChangedNotificationSchema: listed } = load(older_path + "types.js");
  [updated, listed].forEach((schema, i) => client.setNotificationHandler(schema, came(names[i])));
}

// Waits until a notification of @uri (or, without one, of the list) has come, and forgets it.
async function wait_for({ uri }) {
  for (;;) {
    const at = notified.findIndex((n) => n.uri === uri);
    if (at >= 0) return { notified: notified.splice(at, 1)[0] };
    await new Promise((resolve) => waiting.push(resolve));
  }
}

const steps = {
  "tools/list": async (c) => ({ tools: (await c.listTools()).tools }),
  ping: async (c) => ({ pong: await c.ping() }),
  "resources/list": async (c) => ({ resources: (await c.listResources()).resources }),
  "resources/templates/list": async (c) => ({ templates: (await c.listResourceTemplates()).resourceTemplates }),
  "resources/read": async (c, p) => ({ result: JSON.parse((await c.readResource(p)).contents[0].text) }),
  subscribe: async (c, { uris }) => {
    if (newer) {
      subscription = await c.listen({ resourcesListChanged: true, resourceSubscriptions: uris });
      return { honored: subscription.honoredFilter };
    }
    for (const uri of uris) await c.subscribeResource({ uri });
    return {};
  },
  unsubscribe: async (c, { uris }) => {
    if (newer) await subscription.close();
    else for (const uri of uris) await c.unsubscribeResource({ uri });
    return newer ? { closed: await subscription.closed } : {};
  },
  closed: async () => ({ closed: await subscription.closed }), // until the server ended it
  wait: async (c, p) => wait_for(p),
  // Whenever a notification of @uri comes, reads the resource; until @text is in it.
  until: async (c, { uri, text }) => {
    for (;;) {
      await wait_for({ uri });
      const read = await c.readResource({ uri }).catch(() => ({ contents: [] }));
      if (JSON.stringify(read.contents).includes(text)) return { found: true };
    }
  },
  say: async (c, text) => console.log(text) ?? {},
  fetch: async (c, { url, ...how }) => ({ status: (await fetch(url, how)).status }),
};

async function step(client, [method, params]) {
  try {
    if (steps[method]) return await steps[method](client, params);
    const result = await client.callTool({ name: method, arguments: params });
    const value = JSON.parse(result.content[0].text);
    return result.isError ? { failed: value } : { result: value };
  } catch (e) {
    return { error: { code: e.code, message: e.message, data: e.data } };
  }
}

async function main() {
  const client = new Client({ name: "bellhop-test", version: "0" }, newer ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {});
  const transport = make_transport();
  hear(client);
  await client.connect(transport);
  const version = newer ? client.getNegotiatedProtocolVersion() : transport.protocolVersion;
  const seen = { server: client.getServerVersion(), instructions: client.getInstructions(), version, session: transport.sessionId, steps: [] };
  for (const s of JSON.parse(what))
    seen.steps.push(Array.isArray(s[0]) ? await Promise.all(s.map((one) => step(client, one))) : await step(client, s));
  if (transport.terminateSession && !newer) await transport.terminateSession().catch(() => {});
  await client.close();
  console.log(JSON.stringify(seen));
  process.exit(0);
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});

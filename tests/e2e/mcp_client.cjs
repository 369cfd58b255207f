// The official MCP client, doing what a test says and telling what it saw.
//
//     node mcp_client.cjs PACKAGES '{"url": ..., "key": ...} | {"command": ..., "args": [...], "env": {...}}' '[[method, params]...]'
//
// Steps run in order, those of a nested array at once. Prints one JSON object.
const { createRequire } = require("node:module");
const [packages, where, what] = process.argv.slice(2);
const load = createRequire(packages + "/x.js");
const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");

function transport_to(to) {
  if (to.url === undefined) return new StdioClientTransport({ command: to.command, args: to.args, env: to.env, stderr: "inherit" });
  return new StreamableHTTPClientTransport(new URL(to.url), { requestInit: { headers: { Authorization: `Bearer ${to.key}`, ...to.headers } } });
}

async function step(client, [method, params]) {
  try {
    if (method === "tools/list") return { tools: (await client.listTools()).tools };
    if (method === "ping") return { pong: await client.ping() };
    const result = await client.callTool({ name: method, arguments: params });
    return { result: JSON.parse(result.content[0].text) };
  } catch (e) {
    return { error: { code: e.code, message: e.message, data: e.data } };
  }
}

async function main() {
  const client = new Client({ name: "bellhop-test", version: "0" });
  const transport = transport_to(JSON.parse(where));
  await client.connect(transport);
  const seen = { server: client.getServerVersion(), instructions: client.getInstructions(), version: transport.protocolVersion,
                 session: transport.sessionId, steps: [] };
  for (const s of JSON.parse(what))
    seen.steps.push(Array.isArray(s[0]) ? await Promise.all(s.map((one) => step(client, one))) : await step(client, s));
  if (transport.terminateSession) await transport.terminateSession();
  await client.close();
  console.log(JSON.stringify(seen));
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});

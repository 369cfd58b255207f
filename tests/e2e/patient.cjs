// Preloaded into the official MCP tester. It gives a stream 800 or 1,500 ms in all, which a busy machine does not keep.
const begin = globalThis.setTimeout
globalThis.setTimeout = (what, ms, ...more) => begin(what, ms === 800 || ms === 1500 ? 6000 : ms, ...more)

// Mints tokens with the npm package jose: one JSON request per line in, one JSON answer per line out.
//   {"op":"key","name":"a","bits":2048}         -> {"jwk":{...public...},"pem":"..."}
//   {"op":"sign","key":"a","claims":{...},"header":{...}} -> {"token":"..."}
//   {"op":"hmac","secret":"...","claims":{...},"header":{...}} -> {"token":"..."}
//   {"op":"unsecured","claims":{...}}           -> {"token":"..."}
const jose = require(require.resolve("jose", { paths: [process.argv[2]] }));
const keys = {};

async function answer(q) {
  const head = { alg: "RS256", ...(q.header || {}) };
  switch (q.op) {
    case "key": {
      const pair = await jose.generateKeyPair("RS256", { modulusLength: q.bits || 2048, extractable: true });
      keys[q.name] = pair;
      const jwk = { ...(await jose.exportJWK(pair.publicKey)), kid: q.name, alg: "RS256", use: "sig" };
      return { jwk, pem: await jose.exportSPKI(pair.publicKey) };
    }
    case "sign":
      return { token: await new jose.SignJWT(q.claims).setProtectedHeader(head).sign(keys[q.key].privateKey) };
    case "hmac": {
      const secret = new TextEncoder().encode(q.secret);
      return { token: await new jose.SignJWT(q.claims).setProtectedHeader({ ...head, alg: "HS256" }).sign(secret) };
    }
    case "unsecured":
      return { token: new jose.UnsecuredJWT(q.claims).encode() };
  }
}

require("readline").createInterface({ input: process.stdin }).on("line", async (line) => {
  let said;
  try {
    said = await answer(JSON.parse(line));
  } catch (e) {
    said = { error: String(e) };
  }
  process.stdout.write(JSON.stringify(said) + "\n");
});

// What the platforms' own libraries sign and encrypt: one JSON object per line in, one out.
const readline = require('readline');
const path = require('path');
const from = (name) => require(path.join(process.argv[2], 'node_modules', name));

const b64 = (bytes) => Buffer.from(bytes).toString('base64');
const unb64 = (text) => Buffer.from(text, 'base64');

const ops = {
  discord({ seed, timestamp, body }) {
    const nacl = from('tweetnacl');
    const pair = nacl.sign.keyPair.fromSeed(Buffer.from(seed, 'hex'));
    const message = Buffer.concat([Buffer.from(timestamp), unb64(body)]);
    return {
      key: Buffer.from(pair.publicKey).toString('hex'),
      signature: Buffer.from(nacl.sign.detached(message, pair.secretKey)).toString('hex'),
    };
  },
  twilio({ token, url, params }) {
    return { signature: from('twilio').getExpectedTwilioSignature
      ? from('twilio').getExpectedTwilioSignature(token, url, params)
      : from('twilio/lib/webhooks/webhooks').getExpectedTwilioSignature(token, url, params) };
  },
  twilio_body_hash({ body }) {
    return { hash: from('twilio/lib/webhooks/webhooks').getExpectedBodyHash(unb64(body).toString()) };
  },
  wecom({ token, key, id, timestamp, nonce, message }) {
    const wecom = from('@wecom/crypto');
    const encrypted = wecom.encrypt(key, message, id);
    return { encrypted, signature: wecom.getSignature(token, timestamp, nonce, encrypted) };
  },
  wecom_sign({ token, timestamp, nonce, encrypted }) {
    return { signature: from('@wecom/crypto').getSignature(token, timestamp, nonce, encrypted) };
  },
};

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  let answer;
  try {
    const q = JSON.parse(line);
    answer = ops[q.op](q);
  } catch (e) {
    answer = { error: String(e && e.stack) };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
});

// What Node's own parser sees in a connection: one JSON line per connection, when it ends.
'use strict';
const http = require('http');

const server = http.createServer({keepAliveTimeout: 0}, (req, res) => {
  const seen = {method: req.method, url: req.url, headers: req.rawHeaders, body: ''};
  req.socket.seen.push(seen);
  req.on('data', (piece) => { seen.body += piece.toString('latin1'); });
  req.on('end', () => { seen.whole = true; res.end('ok'); });
});
server.on('upgrade', (req, socket) => {
  socket.seen.push({method: req.method, url: req.url, headers: req.rawHeaders, body: '', whole: true, upgrade: true});
  socket.end();
});
server.on('connection', (socket) => {
  socket.seen = [];
  socket.on('close', () => console.log(JSON.stringify({seen: socket.seen, error: socket.fault || null})));
});
server.on('clientError', (error, socket) => {
  socket.fault = error.code || String(error);
  socket.destroy();
});
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({port: server.address().port})));
process.stdin.resume().on('end', () => process.exit(0));

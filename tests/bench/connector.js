// A connector as one would write it in Node with the `ws` package: the relay's wire, everything in memory.
//
//      POST /chat/<bot>/api/message    a frame for the bot's gateway; 200 when the gateway has acknowledged it
//      gateway away                    kept in an array, 200 at once; sent when the gateway says hello
//      GET /relay                      hello -> descriptor; inbound_ack -> the 200 of its message
//
// It checks no token, deduplicates nothing and writes nothing to a disk. Prints "port N".
'use strict';
const http = require('http');
const {WebSocketServer} = require('ws');

const descriptor = JSON.stringify({type: 'descriptor', descriptor: {
    contract_version: 1, platform: 'web', label: 'Web', max_message_length: 16000, supports_draft_streaming: false,
    supports_edit: true, supports_threads: false, markdown_dialect: 'markdown', len_unit: 'chars'}}) + '\n';
const gateways = new Map(); // bot -> WebSocket
const kept = new Map();     // bot -> frames of a gateway that is away
const waiting = new Map();  // bufferId -> the answer that waits for the ack
let next = 1;

function frameOf(bot, visitor, message) {
    const id = String(next++).padStart(16, '0');
    return [id, JSON.stringify({type: 'inbound', bufferId: id, event: {
        text: message.text, message_type: 'text', message_id: message.client_id, bot_id: bot,
        source: {platform: 'web', chat_id: visitor, chat_type: 'dm', chat_name: 'visitor', user_id: visitor,
            user_name: 'visitor', thread_id: null, chat_topic: null, message_id: message.client_id}}}) + '\n'];
}

function answer(response, id) {
    const body = JSON.stringify({id});
    response.writeHead(200, {'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body)});
    response.end(body);
}

function take(bot, visitor, body, response) {
    const message = JSON.parse(body);
    if (typeof message.text !== 'string' || message.text === '') {
        response.writeHead(400, {'Content-Length': 0});
        response.end();
        return;
    }
    const [id, frame] = frameOf(bot, visitor, message);
    const gateway = gateways.get(bot);
    if (gateway !== undefined) {
        waiting.set(id, response);
        gateway.send(frame);
        return;
    }
    if (!kept.has(bot))
        kept.set(bot, []);
    kept.get(bot).push(frame);
    answer(response, id);
}

const server = http.createServer((request, response) => {
    const where = /^\/chat\/([^/]+)\/api\/message$/.exec(request.url);
    const pieces = [];
    if (request.method !== 'POST' || where === null) {
        response.writeHead(404, {'Content-Length': 0});
        response.end();
        return;
    }
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => take(where[1], request.headers['x-bellhop-visitor'], Buffer.concat(pieces).toString(), response));
});

function onFrame(socket, frame) {
    if (frame.type === 'hello') {
        socket.bot = frame.botId;
        gateways.set(frame.botId, socket);
        socket.send(descriptor);
        for (const one of kept.get(frame.botId) || [])
            socket.send(one);
        kept.delete(frame.botId);
    } else if (frame.type === 'inbound_ack') {
        const response = waiting.get(frame.bufferId);
        waiting.delete(frame.bufferId);
        if (response !== undefined)
            answer(response, frame.bufferId);
    }
}

const sockets = new WebSocketServer({server, path: '/relay', perMessageDeflate: false});
sockets.on('connection', (socket) => {
    socket.on('message', (bytes) => {
        for (const line of bytes.toString().split('\n'))
            if (line !== '')
                onFrame(socket, JSON.parse(line));
    });
    socket.on('close', () => {
        if (gateways.get(socket.bot) === socket)
            gateways.delete(socket.bot);
    });
});
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => console.log(`port ${server.address().port}`));

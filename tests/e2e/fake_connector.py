"""A connector that says what a test tells it to, for what the real one never does.

It runs in a thread of its own; every frame of every connection is recorded, and `react` is asked
what to answer.  Nothing here knows bellhop.
"""
import asyncio
import http
import json
import queue
import threading

import websockets

DESCRIPTOR = {
    "contract_version": 1, "platform": "web", "label": "Web", "max_message_length": 4000,
    "supports_draft_streaming": False, "supports_edit": True, "supports_threads": False,
    "markdown_dialect": "plain", "len_unit": "chars",
}


def inbound(text, buffer_id=None, **source):
    frame = {"type": "inbound", "event": {"text": text, "message_id": f"m-{text}", "source": {
        "platform": "web", "chat_id": "c1", "chat_type": "dm", "user_id": "u1",
        "user_name": "Ann", **source}}}
    if buffer_id is not None:
        frame["bufferId"] = buffer_id
    return frame


class FakeConnector:
    def __init__(self, react=None, ssl=None):
        self.frames = queue.Queue()  # (connection number, frame)
        self.messages = []  # raw WebSocket messages from the gateway
        self.headers = []  # of every upgrade
        self.react = react or (lambda conn, frame: self.answer(frame))
        self.on_connect = None  # called with the number; may return a close code
        self.refuse = None  # HTTP status to answer upgrades with
        self.deaf = False  # accept, but never read or answer
        self.sockets = {}
        self.n = 0
        self.ssl = ssl
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        self._ready.wait()

    # -- what a test calls --

    @property
    def url(self):
        return f"{'https' if self.ssl else 'http'}://localhost:{self.port}"

    def send(self, *frames, conn=None, raw=None):
        """Send frames as one WebSocket message down the newest (or given) connection."""
        text = raw if raw is not None else "".join(json.dumps(f) + "\n" for f in frames)
        ws = self.sockets[conn or self.n]
        asyncio.run_coroutine_threadsafe(ws.send(text), self._loop).result(10)

    def close(self, code, conn=None):
        ws = self.sockets[conn or self.n]
        asyncio.run_coroutine_threadsafe(ws.close(code, "bye"), self._loop).result(10)

    def cut(self, conn=None):
        """Drop the TCP connection without a word."""
        ws = self.sockets[conn or self.n]
        self._loop.call_soon_threadsafe(ws.transport.abort)

    def expect(self, type_, timeout=10):
        """The next frame of this type, skipping others."""
        while True:
            _, frame = self.frames.get(timeout=timeout)
            if frame["type"] == type_:
                return frame

    def acks(self, n, timeout=20):
        return [self.expect("inbound_ack", timeout)["bufferId"] for _ in range(n)]

    def stop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # -- what it answers by itself --

    def answer(self, frame):
        if frame["type"] == "hello":
            platform = frame["platform"] if frame["platform"] != "relay" else "web"
            return [{"type": "descriptor", "descriptor": {**DESCRIPTOR, "platform": platform}}]
        if frame["type"] == "outbound":
            result = {"success": True, "message_id": "sent-1"}
            if frame["action"]["op"] == "get_chat_info":
                result = {"success": True, "chat_info": {"name": "Lobby", "type": "group"}}
            return [{"type": "outbound_result", "requestId": frame["requestId"], "result": result}]
        if frame["type"] == "going_idle":
            return [{"type": "going_idle_ack"}]
        return []

    # -- the server --

    def _main(self):
        asyncio.set_event_loop(self._loop)
        serve = websockets.serve(self._handle, "127.0.0.1", 0, ssl=self.ssl, max_size=None,
                                 process_request=self._process, ping_interval=None)
        server = self._loop.run_until_complete(serve)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    async def _process(self, path, headers):
        self.headers.append((path, dict(headers)))
        if self.refuse:
            return http.HTTPStatus(self.refuse), [], b"{}"
        return None

    async def _handle(self, ws, path):
        self.n += 1
        number = self.n
        self.sockets[number] = ws
        if self.on_connect:
            code = self.on_connect(number)
            if code:
                await ws.close(code, "no")
                return
        if self.deaf:
            await asyncio.sleep(3600)
        pending = ""
        try:
            async for message in ws:
                self.messages.append(message)
                pending += message
                *lines, pending = pending.split("\n")
                for frame in (json.loads(line) for line in lines if line):
                    for reply in self.react(number, frame) or []:
                        await ws.send(json.dumps(reply) + "\n")
                    self.frames.put((number, frame))
        except websockets.ConnectionClosed:
            pass
        self.frames.put((number, {"type": "closed", "code": ws.close_code}))

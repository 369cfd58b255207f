#!/usr/bin/python3
"""A connector in one file, with a switch for each fault: the first part of the path is the fault, "none" is a good one.

    broken_connector.py           prints {"url": ...}; dial URL/FAULT
    POST URL/FAULT/say            the body is what a person writes

`bellhop conformance` must find each fault of FAULTS, under the name beside it, and nothing wrong with "none". Its WebSocket is its own, so that it
can be wrong too. The gateway is GATEWAY with SECRET.
"""
import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import struct
import time

GATEWAY, SECRET = "gw:1", "a secret"
WINDOW = 8
FAULTS = {  # what is wrong -> the obligation that says so
    "accept-key": "upgrade", "no-token-open": "no-token", "signature-open": "wrong-signature", "expiry-unsigned": "changed-expiry",
    "unknown-open": "unknown-id", "garbage-open": "garbage-token", "expired-4401": "expired-token", "expired-open": "expired-token",
    "any-path": "other-path", "no-pong": "ping", "pong-empty": "ping", "close-silent": "close-answered", "message-is-frame": "split-frames",
    "no-fragments": "fragmented-message", "first-line-only": "merged-frames", "blank-closes": "blank-lines", "no-escapes": "escapes",
    "unknown-type-closes": "unknown-type", "unknown-fields-close": "unknown-fields", "bad-json-closes": "not-json",
    "one-descriptor": "descriptor-per-hello", "two-descriptors": "descriptor-per-hello", "known-platforms": "unknown-platform",
    "hello-once": "hello-again", "op-dropped": "unknown-op", "op-succeeds": "unknown-op", "null-action-dropped": "bad-action",
    "sends-anywhere": "foreign-chat", "says-network": "refusal-words", "says-timed-out": "refusal-words", "other-words": "refused-again",
    "follow-up-tells": "follow-up-unknown", "drops-parallel": "parallel-requests", "two-results": "one-result", "short-ids": "request-id",
    "early-dropped": "early-request", "ack-closes": "unknown-ack", "interrupt-closes": "unknown-interrupt", "no-idle-ack": "going-idle",
    "idle-once": "going-idle-twice", "idle-deaf": "result-while-idle", "sleeps-forever": "hello-wakes", "policy-204": "policy",
    "policy-open": "policy-anonymous", "enroll-plain": "enroll-anonymous", "provision-open": "provision-anonymous",
    "redirect": "redirects", "media-other": "media", "media-open": "media-anonymous",
    "line-array": "lines", "line-text": "lines", "no-type": "lines", "no-newline": "complete-lines", "latin1": "utf8",
    "huge-message": "message-size", "no-label": "descriptor-fields", "edit-text": "descriptor-types", "length-text": "max-message-length",
    "length-zero": "max-message-length", "len-unit": "len-unit", "version": "contract-version", "ops-text": "supported-ops",
    "result-null": "result-form", "failure-silent": "result-error", "success-error": "result-error", "stray-result": "result-asked",
    "event-null": "event-object", "text-null": "event-text", "type-image": "message-type", "media-text": "media-urls",
    "reply-text": "reply-to", "source-null": "source-object", "chat-type-null": "source-nulls", "number-ids": "source-ids",
    "chat-type-private": "chat-type", "guild-only": "scope-names", "buffer-number": "buffer-id", "interrupt-chatless": "interrupt-form",
    "never-delivers": "delivered", "strips-text": "text-unchanged", "swaps": "order", "repeats": "once-per-socket",
    "new-buffer-ids": "redelivered", "forgets": "redelivered", "ack-ignored": "acked-stays-away", "reversed": "redelivered-in-order",
    "ack-settles-all": "ack-settles-one", "no-window": "window", "all-sockets": "newest-socket", "oldest-socket": "newest-socket",
    "live-asleep": "quiet-after-ack", "loses-asleep": "backlog", "backlog-bare": "backlog-buffer-id", "backlog-first": "descriptor-first",
    "answer-refused": "answer", "answer-nameless": "answer", "edit-fails": "edit", "typing-fails": "typing", "chat-info-empty": "chat-info",
    "any-identity": "foreign-identity", "interrupt-lost": "interrupt", "interrupt-other": "interrupt",
}
NAMES = ("type", "platform", "botId", "command_manifest")


class World:
    """The state behind one fault."""

    def __init__(self, fault):
        self.fault, self.mail, self.sockets, self.asleep, self.held = fault, [], [], False, None
        self.chats, self.files, self.numbers, self.refusals = {}, {}, itertools.count(1), itertools.count(1)

    def entry(self, text):
        n = next(self.numbers)
        source = {"platform": "discord", "chat_id": "c1", "chat_type": "dm", "chat_name": None, "user_id": "u1", "user_name": "Ann",
                  "thread_id": None, "chat_topic": None, "guild_id": "g1", "scope_id": "g1", "message_id": f"m{n}"}
        event = {"text": text, "message_type": "text", "message_id": f"m{n}", "reply_to_message_id": None, "media_urls": [],
                 "source": source}
        wrong = {"event-null": lambda: None, "text-null": lambda: event.update(text=None),
                 "type-image": lambda: event.update(message_type="image"), "media-text": lambda: event.update(media_urls="x"),
                 "reply-text": lambda: event.update(reply_to="x"), "source-null": lambda: event.update(source=None),
                 "chat-type-null": lambda: source.update(chat_type=None), "number-ids": lambda: source.update(user_id=7),
                 "chat-type-private": lambda: source.update(chat_type="private"), "guild-only": lambda: source.pop("scope_id"),
                 "strips-text": lambda: event.update(text=text.replace("\\", ""))}
        wrong.get(self.fault, lambda: None)()
        self.chats["c1"] = True
        entry = {"id": n if self.fault == "buffer-number" else f"b{n}", "event": None if self.fault == "event-null" else event, "sent": 0}
        if self.fault == "swaps":
            held, self.held = self.held, None if self.held else entry
            self.mail += [entry, held] if held else []
        elif self.fault != "never-delivers" and not (self.asleep and self.fault == "loses-asleep"):
            self.mail.append(entry)

    def receivers(self):
        live = [s for s in self.sockets if s.hello]
        if self.asleep and self.fault != "live-asleep":
            return []
        return live if self.fault == "all-sockets" else live[:1] if self.fault == "oldest-socket" else live[-1:]

    def pump(self):
        for s in self.receivers():
            for entry in list(self.mail):
                if entry["id"] in s.sent or (len(s.unacked) >= WINDOW and self.fault != "no-window"):
                    continue
                s.deliver(entry)


class Socket:
    def __init__(self, world, reader, writer):
        self.world, self.fault, self.reader, self.writer = world, world.fault, reader, writer
        self.hello, self.sent, self.unacked, self.pending, self.idles = False, set(), set(), "", 0
        self.descriptors = 0
        self.backlog = bool(world.mail)

    # ---- frames out ----

    def raw(self, op, payload):
        n = len(payload)
        head = bytes([0x80 | op]) + (bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n))
        self.writer.write(head + payload)

    def line(self, frame):
        text = json.dumps(frame)
        if self.fault == "no-type":
            text = json.dumps({**frame, "type": ""}) + "\n" + text
        if self.fault == "latin1":
            self.raw(2, b'{"type":"x","y":"\xe9"}\n')
        if self.fault == "huge-message":
            self.raw(1, ('{"type":"x","y":"' + "x" * (1 << 20) + '"}\n').encode())
        if self.fault in ("line-array", "line-text"):
            self.raw(1, b"[]\n" if self.fault == "line-array" else b"hello\n")
        self.raw(1, (text + "\n").encode())
        if self.fault == "no-newline":
            self.raw(1, b'{"type":"x"}')

    def deliver(self, entry):
        self.sent.add(entry["id"])
        self.unacked.add(entry["id"])
        if entry["sent"] and self.fault == "new-buffer-ids":
            entry["id"] = f"b{next(self.world.numbers)}"
            self.sent.add(entry["id"])
        entry["sent"] += 1
        frame = {"type": "inbound", "bufferId": entry["id"], "event": entry["event"]}
        if self.fault == "backlog-bare" and self.backlog:
            del frame["bufferId"]
        self.line(frame)
        if self.fault == "repeats":
            self.line(frame)

    def close(self, code):
        self.raw(8, struct.pack(">H", code))

    def result(self, request, **result):
        if self.fault == "failure-silent":
            result.pop("error", None)
        if self.fault == "success-error" and result["success"]:
            result["error"] = "none"
        if self.fault == "result-null":
            result = None
        request = request[:64] if self.fault == "short-ids" else request
        for _ in range(2 if self.fault == "two-results" else 1):
            self.line({"type": "outbound_result", "requestId": request, "result": result})
        if self.fault == "stray-result":
            self.line({"type": "outbound_result", "requestId": "stray", "result": {"success": True}})

    # ---- frames in ----

    def on_hello(self, frame):
        w, fault = self.world, self.fault
        if fault == "backlog-first":
            self.hello = True
            w.asleep = False
            w.sockets.append(self)
            w.pump()
        descriptor = {"contract_version": 1, "platform": "discord", "label": "Discord", "max_message_length": 2000,
                      "supports_draft_streaming": False, "supports_edit": True, "supports_threads": False, "markdown_dialect": "discord",
                      "len_unit": "chars", "supported_ops": ["send", "edit", "typing", "get_chat_info", "follow_up"]}
        descriptor.update({"edit-text": {"supports_edit": "yes"}, "length-text": {"max_message_length": "2000"},
                           "length-zero": {"max_message_length": 0}, "len-unit": {"len_unit": "bytes"}, "version": {"contract_version": 2},
                           "ops-text": {"supported_ops": "send"}}.get(fault, {}))
        if fault == "no-label":
            del descriptor["label"]
        known = frame.get("platform") in ("discord", "telegram", "slack", "relay")
        silent = (fault == "one-descriptor" and self.descriptors and frame.get("platform") != "relay") or \
            (fault == "hello-once" and self.descriptors) or (fault == "known-platforms" and not known)
        for _ in range(0 if silent else 2 if fault == "two-descriptors" else 1):
            self.line({"type": "descriptor", "descriptor": descriptor})
        self.descriptors += 1
        self.hello = True
        w.asleep = False
        if fault == "reversed" and any(e["sent"] for e in w.mail):
            w.mail.reverse()
        if fault == "forgets":
            w.mail = [e for e in w.mail if not e["sent"]]
        if self in w.sockets:
            w.sockets.remove(self)
        w.sockets.append(self)
        w.pump()

    def on_outbound(self, frame, early):
        w, fault, request = self.world, self.fault, frame.get("requestId")
        action = frame.get("action")
        if fault == "idle-deaf" and self.idles or fault == "early-dropped" and early:
            return
        if not isinstance(action, dict):
            if fault != "null-action-dropped":
                self.result(request, success=False, error="malformed action")
            return
        op, chat = action.get("op"), action.get("chat_id")
        if op not in ("send", "edit", "typing", "get_chat_info", "follow_up"):
            if fault == "op-succeeds":
                self.result(request, success=True)
            elif fault != "op-dropped":
                self.result(request, success=False, error=f"unsupported op: {op}")
        elif op == "follow_up":
            self.result(request, success=False, error=f"no capability{action['session_key'] if fault == 'follow-up-tells' else ''}")
        elif frame.get("platform") not in (None, "discord", "relay") and fault != "any-identity":
            self.result(request, success=False, error="identity not announced")
        elif chat not in w.chats and fault != "sends-anywhere":
            if fault == "drops-parallel" and next(w.refusals) % 10 > 5:
                return
            words = {"says-network": "network error: not routed", "says-timed-out": "timed out: not routed",
                     "other-words": f"not routed, try {next(w.refusals)}"}
            self.result(request, success=False, error=words.get(fault, "target not routed to an onboarded tenant"))
        elif fault == "answer-refused" or (fault, op) in (("edit-fails", "edit"), ("typing-fails", "typing")):
            self.result(request, success=False, error="not today")
        elif op == "get_chat_info":
            self.result(request, success=True, **({} if fault == "chat-info-empty" else {"chat_info": {"name": "c1", "type": "dm"}}))
        elif fault == "answer-nameless":
            self.result(request, success=True)
        else:
            self.result(request, success=True, message_id=f"s{next(w.numbers)}")

    def on_ack(self, frame):
        w, known = self.world, [e for e in self.world.mail if e["id"] == frame.get("bufferId")]
        if not known and self.fault == "ack-closes":
            self.close(1008)
        self.unacked.discard(frame.get("bufferId"))
        if self.fault == "ack-settles-all":
            w.mail = []
        elif known and self.fault != "ack-ignored":
            w.mail.remove(known[0])
        w.pump()

    def on_interrupt(self, frame):
        key = frame.get("session_key")
        if not self.world.chats or not key.startswith("agent:main:discord:"):
            if self.fault == "interrupt-closes":
                self.close(1008)
            return
        back = {"type": "interrupt_inbound", "session_key": key + (":x" if self.fault == "interrupt-other" else ""), "chat_id": "c1"}
        if self.fault == "interrupt-chatless":
            del back["chat_id"]
        if self.fault != "interrupt-lost":
            self.line(back)

    def on_idle(self):
        self.idles += 1
        self.world.asleep = True
        if self.fault != "no-idle-ack" and not (self.fault == "idle-once" and self.idles > 1):
            self.line({"type": "going_idle_ack"})

    def on_line(self, line, first):
        fault = self.fault
        if not line.strip():
            if fault == "blank-closes":
                self.close(1008)
            return
        try:
            frame = json.loads(line)
        except ValueError:
            if fault == "bad-json-closes":
                self.close(1007)
            return
        if not isinstance(frame, dict):
            return
        kind = frame.get("type")
        if fault == "no-escapes" and '"hello"' not in line and kind == "hello":
            return
        if kind == "hello":
            if fault == "unknown-fields-close" and set(frame) - set(NAMES):
                self.close(1008)
            else:
                self.on_hello(frame)
        elif kind == "outbound":
            self.on_outbound(frame, not first)
        elif kind == "inbound_ack":
            self.on_ack(frame)
        elif kind == "interrupt":
            self.on_interrupt(frame)
        elif kind == "going_idle":
            self.on_idle()
        elif fault == "unknown-type-closes":
            self.close(1008)

    def on_message(self, text):
        if self.fault == "message-is-frame":
            lines, self.pending = [text], ""
        else:
            *lines, self.pending = (self.pending + text).split("\n")
        for i, line in enumerate(lines):
            if i == 0 or self.fault != "first-line-only":
                self.on_line(line, i == 0)

    async def run(self):
        message = b""
        while True:
            head = await self.reader.readexactly(2)
            n = head[1] & 127
            if n >= 126:
                n = struct.unpack(">H" if n == 126 else ">Q", await self.reader.readexactly(2 if n == 126 else 8))[0]
            mask = await self.reader.readexactly(4)
            payload = bytes(b ^ mask[i % 4] for i, b in enumerate(await self.reader.readexactly(n)))
            op, fin = head[0] & 15, head[0] & 128
            if op == 9 and self.fault != "no-pong":
                self.raw(10, b"" if self.fault == "pong-empty" else payload)
            elif op == 8:
                if self.fault != "close-silent":
                    self.raw(8, payload[:2])
                return
            elif op in (0, 1, 2):
                if self.fault == "no-fragments" and (op == 0 or not fin):
                    continue
                message += payload
                if fin:
                    self.on_message(message.decode())
                    message = b""
            await self.writer.drain()


def judge(world, authorization):
    """How a dial is answered: 0 for a socket that stays, else an HTTP status or 4401."""
    fault = world.fault
    if not authorization:
        return 0 if fault == "no-token-open" else 4401
    try:
        text = authorization.split(" ", 1)[1]
        *payload, exp, mac = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(":")
        payload, exp = ":".join(payload), int(exp)
        assert payload
    except (ValueError, AssertionError, IndexError):
        return 0 if fault == "garbage-open" else 4401
    if payload != GATEWAY:
        return 0 if fault == "unknown-open" else 401
    signed = [exp] + ([exp - 1000] if fault == "expiry-unsigned" else [])
    if mac not in [hmac.new(SECRET.encode(), f"{payload}:{e}".encode(), hashlib.sha256).hexdigest() for e in signed]:
        return 0 if fault == "signature-open" else 4401
    if exp and exp < time.time() - 60:
        return 4401 if fault == "expired-4401" else 0 if fault == "expired-open" else 401
    return 503 if fault == "sleeps-forever" and world.asleep else 0


def answer(world, method, path, headers, body):
    fault, good = world.fault, judge(world, headers.get("authorization")) == 0
    refused = (401, b'{"error":"who are you?","code":"unauthorized"}')
    if fault == "redirect":
        return 307, b""
    if path == "/say":
        world.entry(body.decode())
        world.pump()
        return 200, b"{}"
    if path == "/relay/policy":
        return (204, b"") if fault == "policy-204" else (200, b"{}") if good or fault == "policy-open" else refused
    if path == "/relay/enroll":
        return (401, b"no") if fault == "enroll-plain" else refused
    if path == "/relay/provision":
        return (200, b'{"secret":"x"}') if fault == "provision-open" else refused
    if path.startswith("/relay/media") and not (good or fault == "media-open"):
        return refused
    if path == "/relay/media" and method == "POST":
        name = f"f{len(world.files)}"
        world.files[name] = b"something else" if fault == "media-other" else body
        return 200, json.dumps({"id": name, "size": len(body)}).encode()
    return (200, world.files[path[13:]]) if path[13:] in world.files else (404, b'{"error":"not here","code":"not_found"}')


async def connected(worlds, reader, writer):
    try:
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = request.split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines if line)}
        _, fault, path = target.split("/", 2)
        world, path = worlds.setdefault(fault, World(fault)), "/" + path
        if headers.get("upgrade") != "websocket":
            status, body = answer(world, method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n".encode()
                         + (b"Location: /\r\n" if status == 307 else b"") + b"\r\n" + body)
            return
        verdict = judge(world, headers.get("authorization")) if path == "/relay" else 0 if fault == "any-path" else 400
        if verdict in (400, 401, 503):
            writer.write(f"HTTP/1.1 {verdict} No\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
            return
        key = headers["sec-websocket-key"] + ("x" if fault == "accept-key" else "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        writer.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        socket = Socket(world, reader, writer)
        if verdict == 4401:
            socket.close(4401)
        try:
            await socket.run()
        finally:
            if socket in world.sockets:
                world.sockets.remove(socket)
            world.pump()
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        pass
    finally:
        writer.close()


async def serve():
    worlds = {}
    server = await asyncio.start_server(lambda r, w: connected(worlds, r, w), "127.0.0.1", 0, limit=1 << 22)
    print(json.dumps({"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())

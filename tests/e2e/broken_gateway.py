#!/usr/bin/python3
"""A gateway with a switch for each fault: broken_gateway.py FAULT. `bellhop conformance --listen` must find each of FAULTS under the name beside
it, and nothing wrong with "none". It dials again after 50 ms."""
import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import sys
import time
import uuid

import websockets

FAULTS = {
    "no-token": "bearer-token", "expired-token": "bearer-token", "other-id": "bearer-token", "query": "relay-path",
    "never-acks": "acks", "acks-first": "acks-all", "acks-nothing": "no-buffer-id", "acks-once": "acks-again", "message-is-frame": "split-frames",
    "blank-dies": "blank-lines", "unknown-dies": "unknown-type", "bad-json-dies": "not-json", "small-messages": "large-delivery",
    "descriptor-once": "descriptor-again", "late-result-dies": "late-result", "interrupt-dies": "unknown-interrupt",
    "forward-dies": "unknown-forward", "idle-ack-dies": "stray-idle-ack", "other-reply": "reply-to", "threadless": "answer-in-thread",
    "refusal-dies": "refused-answer", "stays-away-1012": "redials-restart", "stays-away-503": "redials-busy", "stays-away-401": "redials-401",
    "stays-away-lost": "redials-vanished", "leaves-early": "goodbye", "ignores-4401": "revoked", "array": "lines", "no-newline": "complete-lines",
    "ack-before-hello": "hello-first", "hello-number": "hello-form", "ack-number": "ack-form", "request-number": "request-id",
    "no-chat": "action-form", "metadata-text": "metadata-form",
}
FAULT = sys.argv[1] if len(sys.argv) > 1 else "none"
ACKED = set()


def token():
    gateway = os.environ["GATEWAY_RELAY_ID"] + ("x" if FAULT == "other-id" else "")
    signed = f"{gateway}:{int(time.time()) + (-4000 if FAULT == 'expired-token' else 300)}"
    mac = hmac.new(os.environ["GATEWAY_RELAY_SECRET"].encode(), signed.encode(), hashlib.sha256).hexdigest()
    return base64.urlsafe_b64encode(f"{signed}:{mac}".encode()).rstrip(b"=").decode()


class Dies(Exception):
    pass


def dies_of(fault):
    if FAULT == fault:
        raise Dies


class Gateway:
    def __init__(self, ws):
        self.ws, self.descriptors, self.idle, self.asked = ws, 0, asyncio.Event(), set()

    async def write(self, frame):
        await self.ws.send(json.dumps(frame) + ("" if FAULT == "no-newline" and frame["type"] == "inbound_ack" else "\n"))

    async def answer(self, event):
        source = event["source"]
        metadata = {} if FAULT == "threadless" else {"thread_id": source.get("thread_id")}
        action = {"op": "send", "chat_id": source["chat_id"], "content": "echo", "metadata": metadata,
                  "reply_to": "another" if FAULT == "other-reply" else event["message_id"]}
        if FAULT == "no-chat":
            del action["chat_id"]
        if FAULT == "metadata-text":
            action["metadata"] = "none"
        request = uuid.uuid4().hex
        self.asked.add(request)
        await self.write({"type": "outbound", "requestId": 7 if FAULT == "request-number" else request, "action": action})

    async def inbound(self, frame, first):
        buffer = frame.get("bufferId")
        await self.answer(frame["event"])
        silent = FAULT == "never-acks" or (FAULT == "acks-first" and not first) or (FAULT == "acks-once" and buffer in ACKED)
        ACKED.add(buffer)
        if FAULT == "ack-number" and buffer:
            await self.write({"type": "inbound_ack", "bufferId": 7})
        if (buffer or FAULT == "acks-nothing") and not silent:
            await self.write({"type": "inbound_ack", "bufferId": buffer or "none"})

    async def line(self, line, first):
        if not line.strip():
            dies_of("blank-dies")
            return
        try:
            frame = json.loads(line)
        except ValueError:
            dies_of("bad-json-dies")
            return
        kind = frame["type"]
        if kind == "descriptor":
            self.descriptors += 1
            if self.descriptors > 1:
                dies_of("descriptor-once")
        elif kind == "inbound":
            await self.inbound(frame, first)
        elif kind == "outbound_result":
            if frame["requestId"] not in self.asked:
                dies_of("late-result-dies")
            if not frame["result"]["success"]:
                dies_of("refusal-dies")
        elif kind == "going_idle_ack":
            dies_of("idle-ack-dies")
            self.idle.set()
        else:
            dies_of({"interrupt_inbound": "interrupt-dies", "passthrough_forward": "forward-dies"}.get(kind, "unknown-dies"))

    async def read(self):
        pending = ""
        async for message in self.ws:
            if FAULT == "message-is-frame":
                lines, pending = message.split("\n"), ""
            else:
                *lines, pending = (pending + message).split("\n")
            for i, line in enumerate(lines):
                await self.line(line, i == 0)

    async def hello(self):
        if FAULT == "ack-before-hello":
            await self.write({"type": "inbound_ack", "bufferId": "x"})
        if FAULT == "array":
            await self.ws.send("[]\n")
        await self.write({"type": "hello", "platform": 7 if FAULT == "hello-number" else "relay", "botId": ""})

    async def goodbye(self):
        await self.write({"type": "going_idle"})
        if FAULT != "leaves-early":
            await asyncio.wait_for(self.idle.wait(), 10)
        await self.ws.close()


async def once(ended):
    """True: dial again."""
    url = os.environ["GATEWAY_RELAY_URL"].replace("http", "ws", 1) + "/relay" + ("?x=1" if FAULT == "query" else "")
    headers = {} if FAULT == "no-token" else {"Authorization": "Bearer " + token()}
    try:
        async with websockets.connect(url, extra_headers=headers, max_size=1 << (16 if FAULT == "small-messages" else 20)) as ws:
            gateway = Gateway(ws)
            await gateway.hello()
            reader = asyncio.ensure_future(gateway.read())
            await asyncio.wait([reader, ended], return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and not reader.done():
                await gateway.goodbye()
            await reader
            code = ws.close_code
    except websockets.InvalidStatusCode as e:
        return FAULT != f"stays-away-{e.status_code}"
    except websockets.ConnectionClosedError as e:
        code = e.code
    except Dies:
        return False
    except OSError:
        return True
    if code == 1006 and FAULT == "stays-away-lost" or code == 1012 and FAULT == "stays-away-1012":
        return False
    return code != 4401 or FAULT == "ignores-4401"


async def main():
    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: ended.done() or ended.set_result(None))
    while not ended.done():
        if not await once(ended):
            await ended  # it stays away, and is not gone
        await asyncio.wait([ended], timeout=0.05)


asyncio.run(main())

#!/usr/bin/python3
"""A whole gateway in Python: it says back what people write. It reads GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET.

Needs the package websockets (Debian: python3-websockets).
"""
import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import time
import uuid

import websockets


def token(gateway_id, secret):
    signed = f"{gateway_id}:{int(time.time()) + 300}"
    mac = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
    return base64.urlsafe_b64encode(f"{signed}:{mac}".encode()).rstrip(b"=").decode()


def read_frame(line):
    """None for what is no frame: a gateway goes on."""
    try:
        frame = json.loads(line)
    except ValueError:
        return None
    return frame if isinstance(frame, dict) else None


class Gateway:
    def __init__(self):
        base = os.environ["GATEWAY_RELAY_URL"].rstrip("/").replace("http", "ws", 1)
        self.url = base if base.endswith("/relay") else base + "/relay"
        self.slept = asyncio.Event()

    async def write(self, frame):
        await self.ws.send(json.dumps(frame) + "\n")

    async def answer(self, event):
        source = event["source"]
        metadata = {"notify": True, "user_id": source["user_id"]}
        for name in ("thread_id", "scope_id"):
            if source.get(name):
                metadata[name] = source[name]
        await self.write({"type": "outbound", "requestId": uuid.uuid4().hex, "action": {
            "op": "send", "chat_id": source["chat_id"], "content": "echo: " + event["text"], "reply_to": event["message_id"],
            "metadata": metadata}})

    async def read(self):
        pending = ""
        async for message in self.ws:
            *lines, pending = (pending + message).split("\n")
            for frame in filter(None, map(read_frame, lines)):
                if frame.get("type") == "inbound":
                    await self.answer(frame["event"])
                    if frame.get("bufferId"):  # only now: what was not acked comes again
                        await self.write({"type": "inbound_ack", "bufferId": frame["bufferId"]})
                elif frame.get("type") == "going_idle_ack":
                    self.slept.set()

    async def leave(self, reader):
        """Says goodbye, so that the connector keeps what people write from now on."""
        self.slept.clear()
        await self.write({"type": "going_idle"})
        await asyncio.wait_for(self.slept.wait(), 10)
        await self.ws.close()
        await reader

    async def once(self, ended):
        headers = {"Authorization": "Bearer " + token(os.environ["GATEWAY_RELAY_ID"], os.environ["GATEWAY_RELAY_SECRET"])}
        async with websockets.connect(self.url, extra_headers=headers) as self.ws:
            await self.write({"type": "hello", "platform": "relay", "botId": ""})
            reader = asyncio.ensure_future(self.read())
            await asyncio.wait([reader, ended], return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and not reader.done():
                await self.leave(reader)
            return self.ws.close_code

    async def run(self):
        loop = asyncio.get_running_loop()
        end = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, lambda: end.done() or end.set_result(None))
        pause = 1
        while not end.done():
            try:
                if await self.once(end) == 4401:
                    raise SystemExit("the credential was revoked")  # every other end is worth another dial
                pause = 1
            except (OSError, websockets.WebSocketException):
                pause = min(2 * pause, 30)
            if not end.done():
                await asyncio.wait([end], timeout=pause)


if __name__ == "__main__":
    asyncio.run(Gateway().run())

"""Answers that stream in many chats at once: the platforms with their real limits, a gateway that sends many frames a second, and
the load. For test_streaming.py and tests/bench/streaming.py."""
import asyncio
import json
import pathlib
import statistics
import sys
import threading
import time

import websockets

from relay import mint

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from discord import DiscordSim  # noqa: E402
from telegram import TelegramSim  # noqa: E402

UPDATES_S = 50
OTHERS = 12  # chats that get a message now and then meanwhile
TOKEN = "777000:AAsecret-token_of-the-bot"
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: warn}}}}
platforms:
  - {{{{platform: {platform}, bot: my_bot, token: "{token}", api_base: "{api}"}}}}
"""


def wait_for(what, timeout=40, pause=0.05):
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "never came true"
        time.sleep(pause)
    return what()


class Telegram:
    name = "telegram"

    def __init__(self, chats):
        self.sim = TelegramSim()
        self.sim.bot(TOKEN, "my_bot")
        self.sim.real_limits()
        self.chats = [1000 + i for i in range(chats)]
        self.others = [5000 + i for i in range(OTHERS)]
        for chat in self.chats + self.others:
            self.sim.person(chat, f"P{chat}")

    def say(self, chat):
        self.sim.say(chat, "go", user={"id": chat, "is_bot": False, "first_name": "P"})

    def shown(self, chat):
        return self.sim.texts(chat)[-1]

    def edits(self):
        return len(self.sim.called("editMessageText"))


class Discord:
    name = "discord"

    def __init__(self, chats):
        self.sim = DiscordSim(TOKEN)
        self.sim.real_limits()
        self.chats = [str(700000000000000000 + i) for i in range(chats)]
        self.others = [str(710000000000000000 + i) for i in range(OTHERS)]
        for chat in self.chats + self.others:
            self.sim.channels[chat] = {"id": chat, "type": 1, "recipients": [{"id": "8" + chat[1:], "username": "p"}]}

    def say(self, chat):
        self.sim.say(chat, "go", user="8" + chat[1:])

    def shown(self, chat):
        return self.sim.texts(chat)[-1]

    def edits(self):
        return len(self.sim.called("PATCH", "/messages/"))


class Streamer:
    """A gateway that sends many frames in one message, and reads results without a parser."""

    def __init__(self, url, gateway_id, secret, hello):
        self.url = url.replace("http", "ws", 1) + "/relay"
        self.token, self.hello = mint(gateway_id, secret), hello
        self.results, self.failed, self.heard, self.answered = {}, [], 0, 0
        self.loop, self.ready = asyncio.new_event_loop(), threading.Event()
        threading.Thread(target=lambda: self.loop.run_until_complete(self._run()), daemon=True).start()
        assert self.ready.wait(20)

    async def _run(self):
        async with websockets.connect(self.url, extra_headers={"Authorization": f"Bearer {self.token}"}, max_size=2**22,
                                      ping_interval=None) as self.ws:
            await self.ws.send(json.dumps({"type": "hello", "platform": self.hello[0], "botId": self.hello[1],
                                           "command_manifest": []}) + "\n")
            self.ready.set()
            try:
                async for message in self.ws:
                    for line in message.splitlines():
                        await self._line(line)
            except websockets.ConnectionClosed:
                pass

    async def _line(self, line):
        if line.startswith('{"type":"outbound_result"'):
            self.answered += 1
            if '"success":true' not in line:
                self.failed.append(line)
            if '"requestId":"e' not in line:
                frame = json.loads(line)
                self.results[frame["requestId"]] = frame["result"]
        elif line.startswith('{"type":"inbound"'):
            self.heard += 1
            await self.ws.send(json.dumps({"type": "inbound_ack", "bufferId": json.loads(line)["bufferId"]}) + "\n")

    def write(self, lines):
        asyncio.run_coroutine_threadsafe(self.ws.send(lines), self.loop).result(30)

    def ask(self, request, **action):
        self.write(json.dumps({"type": "outbound", "requestId": request, "action": action}) + "\n")

    def act(self, request, **action):
        self.ask(request, **action)
        return wait_for(lambda: self.results.get(request), 40, 0.002)


def deliveries(w, gateway, tag, n, pause):
    """Sends @n messages to other chats, @pause seconds apart; returns how long each took to its result, in ms."""
    took = []
    for i in range(n):
        start = time.monotonic()
        result = gateway.act(f"{tag}{i}", op="send", chat_id=str(w.others[i % OTHERS]), content=f"beside {tag} {i}", metadata={})
        took.append((time.monotonic() - start) * 1000)
        assert result["success"] and not result.get("queued"), result
        time.sleep(max(0, pause - (time.monotonic() - start)))
    return took


def meet(w, gateway):
    """Everybody writes once, so that the agent may answer there."""
    for chat in w.chats + w.others:
        w.say(chat)
    wait_for(lambda: gateway.heard == len(w.chats) + OTHERS, 60)


def begin(w, gateway):
    """Sends the first message of each answer; returns their ids."""
    n = len(w.chats)
    for i, chat in enumerate(w.chats):
        gateway.ask(f"s{i}", op="send", chat_id=str(chat), content="...", metadata={})
        time.sleep(0.04)
    wait_for(lambda: all(f"s{i}" in gateway.results for i in range(n)), 60)
    ids = [gateway.results[f"s{i}"]["message_id"] for i in range(n)]
    assert not gateway.failed and not any(m.startswith("queued:") for m in ids)
    return ids


def stream(w, gateway, ids, seconds):
    """Changes the text of every chat UPDATES_S times a second, then once for good, while messages go to other chats."""
    time.sleep(1.5)
    calm, busy = deliveries(w, gateway, "calm", 8, 0.1), []
    start, tick, edits = time.monotonic(), 0, w.edits()
    beside = threading.Thread(target=lambda: busy.extend(deliveries(w, gateway, "busy", int(seconds / 0.5), 0.45)))
    beside.start()
    while time.monotonic() - start < seconds:
        text = " ".join(f"word{k}" for k in range(tick % 150))
        gateway.write("".join(
            f'{{"type":"outbound","requestId":"e{tick}.{i}","action":{{"op":"edit","chat_id":"{chat}","message_id":"{ids[i]}",'
            f'"content":"{chat} {tick} {text}","metadata":{{}}}}}}\n' for i, chat in enumerate(w.chats)))
        tick += 1
        time.sleep(max(0, start + tick / UPDATES_S - time.monotonic()))
    took = time.monotonic() - start
    gateway.write("".join(json.dumps({"type": "outbound", "requestId": f"e.last{i}", "action": {
        "op": "edit", "chat_id": str(chat), "message_id": ids[i], "content": f"{chat} is the end", "metadata": {}}}) + "\n"
        for i, chat in enumerate(w.chats)))
    ended = time.monotonic()
    wait_for(lambda: all(w.shown(chat) == f"{chat} is the end" for chat in w.chats), 90)
    last = time.monotonic() - ended
    beside.join()
    assert not gateway.failed, gateway.failed[:3]
    return {"updates": tick * len(w.chats), "updates_s": tick * len(w.chats) / took, "shown": w.edits() - edits,
            "shown_s": (w.edits() - edits) / (took + last), "refused": len(w.sim.refused),
            "refused_late": sum(at > start + 60 for at, *_ in w.sim.refused), "last_s": last, "calm_ms": statistics.median(calm),
            "busy_ms": statistics.median(busy), "slowest_ms": max(busy)}

"""A Discord guild talks to an agent of the newer generation: messages per second of bellhop's CPU.

The simulator of tests/sim plays Discord, one gateway that reads context acknowledges everything it is sent. People write in
CHANNELS channels; each message is delivered with what was said before it. Told: messages per second of the server's CPU, the
rate, and what a message cost: requests to Discord, rows and keys written, routings and judgements.
"""
import json
import os
import sys
import time

import peers
import report

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "sim"), os.path.join(HERE, "..", "e2e")]

import asyncio  # noqa: E402
import threading  # noqa: E402

import websockets  # noqa: E402
from discord import ANN, BOT, GENERAL, GUILD_MESSAGES, STAFF, DiscordSim  # noqa: E402

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: warn}}}}
platforms:
  - {{{{platform: discord, bot: app1, token: "{token}", api_base: "{url}"}}}}
"""
TOKEN = "bench.token.of.no.account"
MESSAGES, BURST, CHANNELS = 4000, 50, (GENERAL, STAFF)
BOB = {"id": "430000000000000043", "username": "bob", "global_name": "Bob"}


class Gateway:
    """Acknowledges what it is sent; typing shows that it is of the newer generation."""

    def __init__(self, port, token):
        self.n, self.with_context, self.seen = 0, 0, threading.Condition()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_until_complete, args=(self._run(port, token),), daemon=True).start()

    async def _run(self, port, token):
        try:
            await self._serve(port, token)
        except websockets.exceptions.ConnectionClosed:
            pass  # the server was stopped

    async def _serve(self, port, token):
        async with websockets.connect(f"ws://127.0.0.1:{port}/relay", extra_headers={"Authorization": f"Bearer {token}"},
                                      max_size=None) as ws:
            await ws.send(json.dumps({"type": "hello", "platform": "discord", "botId": "app1"}) + "\n")
            await ws.send(json.dumps({"type": "outbound", "requestId": "r1",
                                      "action": {"op": "typing", "chat_id": GENERAL, "metadata": {}}}) + "\n")
            async for message in ws:
                acks, n = [], 0
                for line in message.splitlines():
                    if '"type":"inbound"' in line:
                        frame = json.loads(line)
                        acks.append(json.dumps({"type": "inbound_ack", "bufferId": frame["bufferId"]}))
                        self.with_context += "context" in frame["event"]
                        n += 1
                if acks:
                    await ws.send("\n".join(acks) + "\n")
                with self.seen:
                    self.n += n
                    self.seen.notify_all()

    def wait(self, n):
        with self.seen:
            if not self.seen.wait_for(lambda: self.n >= n, 60):
                raise RuntimeError(f"{self.n} of {n} messages arrived")


class Guild:
    def __init__(self, options, tools, work):
        self.o, self.results = options, {"guild": {}}
        self.sim = DiscordSim(TOKEN)
        self.peer = peers.Served(tools, work, os.path.join(options.build, "bellhop"), CONFIG.format(token=TOKEN, url=self.sim.url))

    def say(self, n):
        """@n messages to the agent, with somebody's chatter before each."""
        async def burst():
            for i in range(n):
                channel = CHANNELS[i % len(CHANNELS)]
                chatter = self.sim._message(channel, BOB, f"I had number {i} for lunch")
                asked = self.sim._message(channel, self.sim.people[ANN], f"<@{BOT}> what about number {i}?",
                                          mentions=[{"id": BOT, "username": "bellhop"}])
                for message in (chatter, asked):
                    await self.sim._tell("MESSAGE_CREATE", message, GUILD_MESSAGES)
        self.sim._now(burst())

    def run(self):
        self.peer.start()
        told = self.peer.command("gateway", "add", "--tenant", "bench", "--platform", "discord", "--bot", "app1", "--open")
        made = dict(line.removeprefix("export ").split("=", 1) for line in told.splitlines() if "=" in line)
        gateway = Gateway(self.peer.port, peers.mint(made["GATEWAY_RELAY_ID"], made["GATEWAY_RELAY_SECRET"]))
        limit = time.monotonic() + 20
        while not self.sim.live() and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(1)
        self.say(BURST)  # each channel is read once
        gateway.wait(BURST)
        self.peer.wait_quiet()
        asked, cpu, begin = len(self.sim.calls), self.peer.cpu_s(), time.monotonic()
        for sent in range(BURST, MESSAGES + BURST, BURST):
            self.say(BURST)
            gateway.wait(sent + BURST)
        seconds = time.monotonic() - begin
        self.peer.wait_quiet()
        used = self.peer.cpu_s() - cpu
        self.results["guild"]["bellhop"] = {"rate": MESSAGES / seconds, "per_cpu_s": MESSAGES / used, "seconds": seconds,
                                            "requests": (len(self.sim.calls) - asked) / MESSAGES,
                                            "with_context": gateway.with_context}
        self.peer.stop()
        self.sim.close()

    def show(self):
        r = self.results["guild"]["bellhop"]
        print("\nA Discord guild to a gateway that reads context")
        report.table(["", "bellhop"], [["messages per CPU second", report.number(r["per_cpu_s"])],
                                       ["messages per second", report.number(r["rate"])],
                                       ["requests to Discord per message", f"{r['requests']:.3f}"]])

    def panels(self):
        return [("a Discord guild: messages per CPU second", "", [("bellhop", self.results["guild"]["bellhop"]["per_cpu_s"])])]

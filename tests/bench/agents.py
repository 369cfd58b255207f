"""Delivering to agents: payloads taken durably over HTTP keep-alive, beside the relay's own durable accepts (bench relay, b);
a request to a live agent and back, beside a bare WebSocket echo with the same client; and a million payloads that wait for
ten thousand agents: what they cost in memory, and how long a start with them takes."""
import asyncio
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import websockets

import peers
import report
import stores

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from relay import mint  # noqa: E402 - it lies beside the end-to-end tests

AGENTS, RECEIVERS, ROUND_TRIPS = 10000, 100, 400


class Bellhop(stores.Bellhop):
    def __init__(self, tools, work, program):
        super().__init__(tools, work, program)
        with open(self.config, "a") as f:
            f.write("agents:\n  - {id: bot, substrate: relay}\n")
            f.writelines(f"  - {{id: a{i}, substrate: none}}\n" for i in range(AGENTS))

    def gateway(self):
        text = self.command("gateway", "add", "--tenant", "bench", "--instance", "bot")
        return dict(line.split("=", 1) for line in text.splitlines())


async def echo_agent(url, headers, ready):
    """A gateway that acks and answers every message with its own text, until the server goes."""
    with contextlib.suppress(websockets.ConnectionClosed):
        await echo(url, headers, ready)


async def echo(url, headers, ready):
    async with websockets.connect(url, extra_headers=headers, ping_interval=None) as ws:
        await ws.send('{"type":"hello","platform":"relay","botId":""}\n')
        ready.set()
        async for message in ws:
            for line in message.splitlines():
                frame = json.loads(line)
                if frame["type"] != "inbound":
                    continue
                event = frame["event"]
                await ws.send(json.dumps({"type": "inbound_ack", "bufferId": frame["bufferId"]}) + "\n" + json.dumps(
                    {"type": "outbound", "requestId": event["message_id"],
                     "action": {"op": "send", "chat_id": event["source"]["chat_id"], "content": event["text"],
                                "reply_to": event["message_id"], "metadata": {"notify": True}}}) + "\n")


async def bare_echo(n):
    """Seconds of each round trip: client -> WebSocket -> client, nothing behind it."""
    async def serve(ws):
        async for message in ws:
            await ws.send(message)
    took = []
    async with websockets.serve(serve, "127.0.0.1", 0, ping_interval=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with websockets.connect(f"ws://127.0.0.1:{port}", ping_interval=None) as ws:
            for _ in range(n):
                began = time.perf_counter()
                await ws.send("x" * 200)
                await ws.recv()
                took.append(time.perf_counter() - began)
    return took


class Agents:
    def __init__(self, options, tools, work):
        self.o, self.tools, self.work = options, tools, work
        self.program = os.path.join(options.build, "bellhop")
        self.bellhop = Bellhop(tools, work, self.program)
        self.relay = peers.Bellhop("relay", tools, work, self.program, RECEIVERS, RECEIVERS)
        self.results = {"deliver": {}, "request": {}, "pending": {}}

    def ask(self, what, seconds, connections, n):
        done = subprocess.run([os.path.join(self.tools, "stores"), what, "v1", str(self.bellhop.port), self.bellhop.key,
                               str(seconds), str(connections), str(n)], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def keep_best(self, load, name, result):
        kept = self.results[load].get(name)
        if kept is None or result["rate"] > kept["rate"]:
            self.results[load][name] = result
        print(f".. {load:10} {name:20} {result['rate']:12,.0f}/s", file=sys.stderr, flush=True)

    def deliver(self):
        self.keep_best("deliver", "/v1/agents, deliver", self.ask("deliver", self.o.seconds, 128, AGENTS))
        accepted = self.relay.load("accept", seconds=self.o.seconds, receivers=RECEIVERS)
        self.relay.load("drain", events=accepted["events"], receivers=RECEIVERS)
        self.keep_best("deliver", "relay, accept (b)", accepted)

    def request(self):
        cred, ready = self.bellhop.gateway(), threading.Event()
        headers = {"Authorization": "Bearer " + mint(cred["GATEWAY_RELAY_ID"], cred["GATEWAY_RELAY_SECRET"])}
        url = f"ws://127.0.0.1:{self.bellhop.port}/relay"
        threading.Thread(target=lambda: asyncio.run(echo_agent(url, headers, ready)), daemon=True).start()
        ready.wait(10)
        time.sleep(0.5)
        took, asked = [], {"Authorization": f"Bearer {self.bellhop.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.bellhop.port)  # kept open, as the echo's is
        for i in range(ROUND_TRIPS):
            body = json.dumps({"kind": "template", "prompt": "x" * 100, "timeout_ms": 5000,
                               "meta": {"dispatch_id": f"r{i}", "correlation_id": f"c{i}"}}).encode()
            began = time.perf_counter()
            connection.request("POST", "/v1/agents/bot/request", body, asked)
            answer = connection.getresponse()
            answer.read()
            took.append(time.perf_counter() - began)
            if answer.status != 200:
                raise RuntimeError(f"a request was answered with {answer.status}")
        connection.close()
        bare = asyncio.run(bare_echo(ROUND_TRIPS))
        for name, all_s in (("request to an agent and back", took), ("bare WebSocket echo", bare)):
            self.results["request"][name] = {"p50_us": statistics.median(all_s) * 1e6, "p99_us": sorted(all_s)[-4] * 1e6}

    def pending(self):
        before = self.bellhop.rss_kb()
        self.ask("seed-agents", 0, 128, self.o.pending)
        time.sleep(1)
        after = self.bellhop.rss_kb()
        self.bellhop.stop()
        began = time.monotonic()
        self.bellhop.start()
        ready_s = time.monotonic() - began
        self.results["pending"]["bellhop"] = {"payloads": self.o.pending, "agents": AGENTS, "rss_kb_before": before,
                                              "rss_kb": after, "rss_kb_after_start": self.bellhop.rss_kb(),
                                              "bytes_each": (after - before) * 1024 / self.o.pending, "ready_s": ready_s}

    def run(self):
        self.bellhop.start()
        self.relay.start()
        self.relay.prepare()
        try:
            for _ in range(self.o.rounds):
                self.deliver()
            self.request()
            self.relay.stop()
            self.pending()
        finally:
            self.bellhop.stop()
            self.relay.stop()
        return self.results

    def targets(self):
        d, q, p = self.results["deliver"], self.results["request"], self.results["pending"]["bellhop"]
        share = d["/v1/agents, deliver"]["rate"] / d["relay, accept (b)"]["rate"]
        times = q["request to an agent and back"]["p50_us"] / q["bare WebSocket echo"]["p50_us"]
        rows = [("deliveries, share of relay (b)", ">= 0.5", f"{share:.2f}", share >= 0.5),
                ("request and answer, times a bare echo", "< 3", f"{times:.1f}", times < 3),
                ("memory of one that waits", "< 64 bytes", f"{p['bytes_each']:.0f}", p["bytes_each"] < 64),
                ("start with all that wait", "< 2 s", f"{p['ready_s']:.2f} s", p["ready_s"] < 2)]
        return [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]

    def show(self):
        print("\ndurable deliveries (128 connections)")
        report.table(["", "per second"], [[n, report.number(x["rate"])] for n, x in self.results["deliver"].items()])
        print("\nthere and back, one at a time")
        report.table(["", "p50 ms", "p99 ms"], [[n, f"{x['p50_us'] / 1000:.2f}", f"{x['p99_us'] / 1000:.2f}"]
                                                for n, x in self.results["request"].items()])
        p = self.results["pending"]["bellhop"]
        print(f"\n{p['payloads']:,} payloads wait for {p['agents']:,} agents: {p['bytes_each']:.0f} bytes each, "
              f"{p['rss_kb'] / 1024:.0f} MiB in all, ready after {p['ready_s']:.2f} s")
        self.results["targets"] = self.targets()
        report.print_targets(self.results["targets"])

    def panels(self):
        return [("durable deliveries", "/s", [(n, x["rate"]) for n, x in self.results["deliver"].items()])]

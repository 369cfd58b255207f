"""Gateways that dial once and must not be cut.  As a program it is a crowd of them: a process has only so many descriptors.

The crowd reads a line of JSON ({"agents": [[n, id, secret, url], ...], "bots": N}), dials, says "ready", waits for the next line, and says
which of its sockets were closed and what each gateway heard.

With `watch N URL...` it says at which time.monotonic() one of the nodes has opened N sessions: a process that is busy itself would see it late.
"""
import asyncio
import json
import os
import sys
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import aiohttp  # noqa: E402

from relay import mint  # noqa: E402

AT_ONCE = 100  # an address may have 1,024 connections that have not said who they are


class Agent:
    """Dials once.  Every third one acks late, so that something is unacked whenever the node ends."""

    def __init__(self, n, id, secret, url, bots, heartbeat=4):
        self.n, self.id, self.secret, self.url, self.bots, self.heartbeat = n, id, secret, url, bots, heartbeat
        self.texts, self.ids, self.closed, self.ready = [], [], None, asyncio.Event()

    async def live(self, http, gate):
        headers = {"Authorization": f"Bearer {mint(self.id, self.secret, ttl=3000)}"}
        async with gate:
            ws = await http.ws_connect(f"{self.url}/relay", headers=headers, heartbeat=self.heartbeat)
            await ws.send_str(json.dumps({"type": "hello", "platform": "web", "botId": f"b{self.n % self.bots}"}) + "\n")
            await self.take(ws, (await ws.receive()).data)
        async for message in ws:
            await self.take(ws, message.data)
        self.closed = ws.close_code or 1006

    async def take(self, ws, data):
        for frame in map(json.loads, data.splitlines()):
            if frame["type"] == "descriptor":
                self.ready.set()
            if frame["type"] == "inbound":
                self.texts.append(frame["event"]["text"])
                self.ids.append(frame["bufferId"])
                if self.n % 3 == 0:
                    await asyncio.sleep(0.3)
                await ws.send_str(json.dumps({"type": "inbound_ack", "bufferId": frame["bufferId"]}) + "\n")


async def dial_all(agents, http):
    """Their lives, once each of them is served."""
    gate = asyncio.Semaphore(AT_ONCE)
    lives = [asyncio.create_task(a.live(http, gate)) for a in agents]
    ready = asyncio.gather(*[a.ready.wait() for a in agents])
    await asyncio.wait_for(ready, 60 + len(agents) / 20)
    return lives


async def crowd(lines):
    said = json.loads(await lines.readline())
    agents = [Agent(*row, said["bots"], heartbeat=60) for row in said["agents"]]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        lives = await dial_all(agents, http)
        print("ready", flush=True)
        await lines.readline()
        print(json.dumps({"closed": [[a.n, a.closed] for a in agents if a.closed is not None],
                          "heard": [[a.n, a.texts] for a in agents if a.texts],
                          "failed": [repr(t.exception()) for t in lives if t.done() and t.exception()]}), flush=True)
        for task in lives:
            task.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


def watch(n, urls):
    wanted = f"\nbellhop_sessions_opened_total {n}\n".encode()  # gauges may be two seconds old
    while True:
        for url in urls:
            try:
                if wanted in urllib.request.urlopen(f"{url}/metrics", timeout=10).read():
                    return time.monotonic()
            except OSError:
                pass  # the node is busy with its start
        time.sleep(0.01)


async def main():
    lines = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await crowd(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["watch"]:
        print(watch(sys.argv[2], sys.argv[3:]), flush=True)
    else:
        asyncio.run(main())

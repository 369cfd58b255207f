"""A gateway process for the crash test: it may be killed at any moment, so all it knows is written down at once.

Every fact is one line of JSON appended to its diary with a single write(), which outlives a SIGKILL:

    {"what": "dial", "socket": S, "at": T}               before connecting
    {"what": "read", "socket": S, "at": T, "frame": {}}  every frame that arrived
    {"what": "ack",  "socket": S, "at": T, "id": B}      after the ack was handed to the kernel
    {"what": "over", "socket": S, "at": T, "code": N}    the socket has ended

Times are CLOCK_MONOTONIC, which all processes of a machine share.

It acts once on every message: what it acted on is a line of its instance's ledger, which is all the effect there is, and
the memory of ids that the next process of the instance starts with:

    {"at": T, "id": B, "text": "..."}
"""
import asyncio
import json
import os
import pathlib
import random
import signal
import time

import websockets

from relay import mint

FATES = ("is_killed", "dies_reading", "dies_acking", "sleeps", "leaves", "doubles")


def write_line(fd, line):
    """In a line of its own even behind one that a kill cut short."""
    os.write(fd, b"\n" + json.dumps(line).encode() + b"\n")


def whole_lines(path):
    """What was written to its end: a kill cuts a write at the end of a page, and who reads meanwhile sees half of one."""
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            pass


class Diary:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what, socket, **more):
        write_line(self.fd, {"what": what, "socket": socket, "at": time.monotonic(), **more})


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Ledger:
    """Effects, each written in the very write() that remembers its id: no crash is between the two."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.seen = {line["id"] for line in whole_lines(pathlib.Path(path))}

    def act_once(self, buffer_id, text):
        if buffer_id not in self.seen:
            self.seen.add(buffer_id)
            write_line(self.fd, {"at": time.monotonic(), "id": buffer_id, "text": text})


class Process:
    def __init__(self, plan):
        self.__dict__.update(plan)  # url, id, secret, platform, bot, diary, ledger, name, fate, after, ack_within, seed
        self.rng = random.Random(self.seed)
        self.diary = Diary(self.diary)
        self.ledger = Ledger(self.ledger)
        self.n_sockets = self.n_read = self.n_acked = 0
        self.leaving = asyncio.Event()

    async def socket(self):
        """One socket from dial to end."""
        self.n_sockets += 1
        name = f"{self.name}.{self.n_sockets}"
        self.diary.note("dial", name)
        code = None
        try:
            headers = {"Authorization": "Bearer " + mint(self.id, self.secret)}
            async with websockets.connect(self.url, extra_headers=headers, ping_interval=None, open_timeout=10,
                                          close_timeout=2, compression=None) as ws:
                await ws.send(json.dumps({"type": "hello", "platform": self.platform, "botId": self.bot}) + "\n")
                acks = asyncio.Queue()
                acker = asyncio.create_task(self.ack(name, ws, acks))
                leaver = asyncio.create_task(self.leave(ws))
                try:
                    await self.read(name, ws, acks)
                finally:
                    acker.cancel()
                    leaver.cancel()
                    code = ws.close_code
        except (OSError, asyncio.TimeoutError, websockets.WebSocketException) as e:
            code = code or getattr(e, "status_code", None)
        self.diary.note("over", name, code=code)

    async def read(self, name, ws, acks):
        async for message in ws:
            assert len(message.encode()) <= 2**20
            for line in message.splitlines():
                frame = json.loads(line)
                self.diary.note("read", name, frame=frame)
                if frame["type"] == "inbound":
                    self.n_read += 1
                    if self.fate == "dies_reading" and self.n_read >= self.after:
                        die()
                    self.ledger.act_once(frame["bufferId"], frame["event"]["text"])
                    if self.fate in ("sleeps", "leaves") and self.n_read >= self.after:
                        self.leaving.set()
                    acks.put_nowait(frame["bufferId"])
                elif frame["type"] == "going_idle_ack":
                    await ws.close()

    async def ack(self, name, ws, acks):
        """In order, some time later."""
        while True:
            buffer_id = await acks.get()
            if acks.empty() or self.rng.random() < 0.2:
                await asyncio.sleep(self.rng.uniform(0, self.ack_within))
            try:
                await ws.send(json.dumps({"type": "inbound_ack", "bufferId": buffer_id}) + "\n")
            except websockets.ConnectionClosed:
                return
            self.diary.note("ack", name, id=buffer_id)
            self.n_acked += 1
            if self.fate == "dies_acking" and self.n_acked >= self.after:
                die()

    async def leave(self, ws):
        await self.leaving.wait()
        if self.fate == "leaves":
            await ws.close()
        else:
            await ws.send('{"type": "going_idle"}\n')

    async def dial_on(self):
        while not self.leaving.is_set():
            await self.socket()
            await asyncio.sleep(self.rng.uniform(0.005, 0.04))

    async def run(self):
        tasks = [self.dial_on()]
        if self.fate == "doubles":
            tasks.append(self.dial_on())  # two sockets of one instance: the newest receives
        await asyncio.gather(*tasks)


def main(plan):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(Process(plan).run())

#!/usr/bin/python3
"""walk.py BUILD [--older]: which code one Discord message runs through, in and out.

Starts the bellhop of BUILD (a build with -Dwalk=true) on its defaults with the Discord simulator on one side and one
gateway on the other. One message goes each way to warm up; ROUNDS more go each way while enter.c notes the functions:

    in    a person writes in a guild's channel, until the gateway's ack has been handled
    out   the gateway's `send`, until its result

A window stays open for SETTLE_S longer, so that the writes are committed and the idle ticks have run. A function counts
if it ran in every round: a tick with a long period, which falls into a round by chance, does not. Only `.c` files of
src/ outside src/base/ count. The older generation of gateways is asked for with --older; bellhop takes a gateway for a
newer one once it types. The exit status is 1 if a figure is above its line in the file `limits`.
"""
import argparse
import mmap
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROUNDS, SETTLE_S = 4, 2.2
SLOTS, HEAD, SLOT = 16384, struct.Struct("<QQQQ"), struct.Struct("<QQQ")  # as in enter.c
TOKEN = "MTIz.secret-token.of-the-bot"
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
why: {{{{keep: 0}}}}  # its thread writes a second later, beside every message
platforms:
  - {{{{platform: discord, bot: app1, token: "{token}", api_base: "{api}"}}}}
"""


class Notes:
    """The file that enter.c writes its notes to."""

    def __init__(self, program):
        self.program, self.names = program, {}
        size = HEAD.size + SLOTS * SLOT.size
        self.file = tempfile.NamedTemporaryFile(prefix="walk-")
        self.file.truncate(size)
        self.map = mmap.mmap(self.file.fileno(), size)

    def begin(self):
        self.map[8:16] = bytes(8)
        self.map[HEAD.size:] = bytes(SLOTS * SLOT.size)
        self.map[0:8] = struct.pack("<Q", 1)

    def end(self):
        """{(file, function): calls}, in the order in which the functions were entered first."""
        self.map[0:8] = bytes(8)
        base = HEAD.unpack_from(self.map, 0)[2]
        slots = sorted((order, address - base, calls) for address, order, calls in
                       SLOT.iter_unpack(self.map[HEAD.size:]) if address)
        self.look_up([address for _, address, _ in slots if address not in self.names])
        walked = {}
        for _, address, calls in slots:
            path, function = self.names[address]
            if path.startswith("src/") and path.endswith(".c") and not path.startswith("src/base/"):
                walked[path, function] = walked.get((path, function), 0) + calls
        return walked

    def look_up(self, addresses):
        lines = subprocess.run(["addr2line", "-f", "-e", self.program], input="\n".join(map(hex, addresses)), text=True,
                               capture_output=True, check=True).stdout.splitlines()
        for address, function, place in zip(addresses, lines[::2], lines[1::2]):
            path = os.path.normpath(place.rsplit(":", 1)[0])
            path = path[path.rfind("/src/") + 1:]  # a compiler cache may name another tree before that
            self.names[address] = (path if (ROOT / path).is_file() else "", function)


def measure(notes, once):
    """What ran in every round of once()."""
    rounds = []
    for n in range(ROUNDS):
        notes.begin()
        once(n)
        time.sleep(SETTLE_S)
        rounds.append(notes.end())
    return {key: calls for key, calls in rounds[-1].items() if all(key in r for r in rounds)}


def walk(build, older):
    """{"in": ..., "out": ...}, each as measure() gives it."""
    os.environ["BELLHOP_BUILD"] = str(build)
    sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "sim")]
    from conftest import Bellhop, wait_for
    from discord import BOT, GENERAL, DiscordSim
    from relay import Gateway

    notes, sim = Notes(build / "bellhop"), DiscordSim(TOKEN)
    sim.answer_after_s = 0.05  # so that every request waits for its answer, on a quiet machine too
    server = Bellhop(CONFIG.format(token=TOKEN, api=sim.url))
    plain = server.env
    server.env = {**plain, "LD_PRELOAD": str(build / "tests" / "walk" / "enter.so"), "BELLHOP_WALK": notes.file.name}
    server.start()
    server.env = plain  # for the command line
    credential = server.add(platform="discord", bot="app1")
    gateway = Gateway(server.url, credential.id, credential.secret, hello=("discord", "app1"))
    wait_for(sim.live)
    if not older:
        gateway.act(op="typing", chat_id=GENERAL, metadata={})
    heard = {}

    def come_in(n):
        text = f"hello {n}"
        sim.say(GENERAL, f"<@{BOT}> {text}", mentions=[{"id": BOT, "username": "bellhop"}])
        heard[n] = gateway.hear(text)["event"]["message_id"]

    def go_out(n):
        result = gateway.act(op="send", chat_id=GENERAL, content=f"hello yourself {n}", reply_to=heard[n], metadata={})
        assert result["success"], result

    come_in("warm-up")
    go_out("warm-up")
    time.sleep(SETTLE_S)
    walked = {"in": measure(notes, come_in), "out": measure(notes, go_out)}
    gateway.close()
    server.clean()
    assert sim.violations == []
    return walked


def show(walked):
    """A line per stay in a file: the functions that were entered first while there, with their calls."""
    lines, seen, before = [], {}, None
    for (path, function), calls in walked.items():
        seen.setdefault(path, len(seen) + 1)
        if path != before:
            lines.append([f"{seen[path]:4}  {path.removeprefix('src/')}"])
        lines[-1].append(function if calls == 1 else f"{function} ×{calls}")
        before = path
    for place, *functions in lines:
        print(f"{place:44}  {', '.join(functions)}")


def limits():
    """{(generation, direction): (files, functions)}"""
    rows = [line.split() for line in (HERE / "limits").read_text().splitlines() if line and line[0] != "#"]
    return {(row[0], row[1]): (int(row[2]), int(row[3])) for row in rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--older", action="store_true", help="a gateway of the older generation")
    options = parser.parse_args()
    generation, status, last = "older" if options.older else "newer", 0, []
    for direction, walked in walk(options.build.resolve(), options.older).items():
        print({"in": "in: a Discord message to the gateway's ack", "out": "\nout: the gateway's send to its result"}[direction])
        show(walked)
        files, functions = len({path for path, _ in walked}), len(walked)
        most_files, most_functions = limits()[generation, direction]
        above = files > most_files or functions > most_functions
        status |= above
        last.append(f"{generation} {direction:3}  {files} files, {functions} functions"
                    f" ({'ABOVE' if above else 'within'} the limits {most_files} and {most_functions})")
    print("\n" + "\n".join(last))
    return status


if __name__ == "__main__":
    sys.exit(main())

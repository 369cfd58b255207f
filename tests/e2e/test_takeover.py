"""A gateway's socket outlives the node that serves, when another node holds it.

Gateways come to the nodes that do not serve.  The one that serves ends, killed or drained, while people write.
No gateway is cut: each goes on with the next node on the socket that it has, hears everything once and in order,
and its acks count although the node that heard them is gone.

BELLHOP_TAKEOVER_GATEWAYS=20000 has so many.
"""
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM

import aiohttp
import pytest

from conftest import wait_for
from servers import Postgres
from takeover_rig import Agent, dial_all
from test_carry import Nodes, takes_over

GATEWAYS = int(os.environ.get("BELLHOP_TAKEOVER_GATEWAYS", "200"))
BOTS = min(GATEWAYS, 100)  # as many people write; the other gateways have nothing to do
CROWD = 5000  # gateways of one process
RIG = str(Path(__file__).with_name("takeover_rig.py"))


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


@pytest.fixture
def nodes(postgres):
    made = Nodes(postgres)
    yield made
    for server in reversed(made.all):
        server.clean()


@contextlib.contextmanager
def crowds(rows):
    """Processes that hold the silent gateways @rows; each answers once what became of its own."""
    processes = []
    try:
        for at in range(0, len(rows), CROWD):
            p = subprocess.Popen([sys.executable, RIG], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            processes.append(p)
            p.stdin.write(json.dumps({"agents": rows[at:at + CROWD], "bots": BOTS}) + "\n")
            p.stdin.flush()
            assert p.stdout.readline() == "ready\n"  # one after the other: each takes a whole core to dial
        yield processes
    finally:
        for p in processes:
            p.kill()
            p.wait()
            p.stdin.close()
            p.stdout.close()


def became(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


async def write(http, node, n, text):
    async with http.post(f"{node.url}/chat/b{n}/api/message", json={"text": text, "client_id": f"{n}-{text}"},
                         headers={"X-Bellhop-Visitor": f"visitor-{n:08}-0000"}) as answer:
        return answer.status


async def write_all(http, carriers, text):
    """A person whose request was cut off, or refused for now, says it again."""
    async def person(n):
        for k in range(400):
            try:
                if await write(http, carriers[(n + k) % len(carriers)], n, text) == 200:
                    return
            except (OSError, aiohttp.ClientError):
                pass
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody takes {text} of {n}")
    await asyncio.gather(*[person(n) for n in range(BOTS)])


async def converse(agents, carriers, end):
    """The seconds from the end of the node until people are heard again, all of them."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        lives = await dial_all(agents, http)
        try:
            await write_all(http, carriers, "one")
            writing = asyncio.create_task(write_all(http, carriers, "two"))
            await asyncio.sleep(0.05)  # some of them are on their way
            began = time.monotonic()
            await asyncio.to_thread(end)
            await writing
            await write_all(http, carriers, "three")

            def heard():
                return all(a.texts[-1:] == ["three"] for a in agents)
            for _ in range(600 + GATEWAYS // 10):
                if heard():
                    break
                await asyncio.sleep(0.1)
            took_s = time.monotonic() - began
            await asyncio.sleep(0.5)  # acks, and what must not come
        finally:
            for task in lives:
                task.cancel()
            await asyncio.gather(*lives, return_exceptions=True)
    return took_s


@pytest.mark.parametrize("how", ["killed", "drained"])
def test_gateways_at_other_nodes_do_not_notice_that_the_one_that_serves_ends(nodes, how):
    more = {"lease": "3s", "tail": "".join(f"  - {{{{platform: web, bot: b{n}}}}}\n" for n in range(BOTS))}
    one, two, three = nodes.serve(**more), nodes.carry("two", **more), nodes.carry("three", **more)
    carriers, rows = [two, three], []
    for n in range(GATEWAYS):
        words = {"tenant": f"t{n}"} | ({"platform": "web", "bot": f"b{n}"} if n < BOTS else {})
        made = one.admin("POST", "/admin/gateways/add", words)
        assert made.status == 200, made
        rows.append([n, made.json["id"], made.json["secret"], carriers[n % 2].url])
    agents = [Agent(*row, BOTS) for row in rows[:BOTS]]
    serves_s = continued_s = 0

    def end():
        nonlocal serves_s, continued_s
        wait_for(lambda: one.metric("sessions") == GATEWAYS)
        watch = subprocess.Popen([sys.executable, RIG, "watch", str(GATEWAYS), two.url, three.url], text=True, stdout=subprocess.PIPE)
        began = time.monotonic()
        one.signal(SIGKILL if how == "killed" else SIGTERM)
        takes_over(two, three)
        serves_s = time.monotonic() - began
        continued_s = float(watch.communicate(timeout=60)[0]) - began

    with crowds(rows[BOTS:]) as processes:
        took_s = asyncio.run(converse(agents, carriers, end))
        rest = [became(p) for p in processes]
    assert [(a.n, a.closed) for a in agents if a.closed is not None] == []
    assert [r for r in rest if r["closed"] or r["heard"] or r["failed"]] == []
    wrong = {a.n: a.texts for a in agents if a.texts != ["one", "two", "three"]}
    assert not wrong, wrong
    assert all(len(set(a.ids)) == len(a.ids) for a in agents)
    serving = takes_over(two, three)
    wait_for(lambda: not any(i["entries"] for i in json.loads(serving.cli("status", "--json").stdout)["instances"]))
    one.process and one.wait()
    print(f"\n{GATEWAYS} gateways, {how}: another node serves after {serves_s:.1f} s, all sockets go on after {continued_s:.1f} s, "
          f"everybody is heard after {took_s:.1f} s; reconnects: 0, lost or repeated: 0")

"""Nodes that cannot dial each other forward connections over a Redis server (cluster.trunk: redis).

BELLHOP_LONG=1 writes for minutes while everything happens to the Redis in turn (./dev cluster).
"""
import asyncio
import json
import os
import random
import subprocess
import time
from signal import SIGCONT, SIGSTOP

import aiohttp
import pytest

from conftest import wait_for
from servers import Postgres, Redis
from takeover_rig import Agent, dial_all
from test_carry import Nodes, history, takes_over
from test_takeover import write

LONG = os.environ.get("BELLHOP_LONG")
PEOPLE = 20


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


@pytest.fixture
def redis():
    server = Redis().start()
    yield server
    server.clean()


class Apart(Nodes):
    """Nodes whose addresses nobody could dial: each announces only that it is reached over Redis."""

    def __init__(self, postgres, redis):
        super().__init__(postgres)
        self.redis = redis

    def make(self, node, more="", tail="", **others):
        return super().make(node, more=more + ", trunk: redis", tail=f'{tail}redis: {{{{url: "{self.redis.url}"}}}}\n', **others)


@pytest.fixture
def nodes(postgres, redis):
    made = Apart(postgres, redis)
    yield made
    for server in reversed(made.all):
        server.clean()


def ask(redis, *words):
    done = subprocess.run(["redis-cli", "-p", str(redis.port), *words], capture_output=True, check=True)
    return done.stdout.decode(errors="replace").strip()


def test_a_conversation_goes_over_redis_which_learns_nothing_of_it(nodes, redis, dial):
    watched = subprocess.Popen(["redis-cli", "-p", str(redis.port), "MONITOR"], stdout=subprocess.PIPE)
    one, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    gateway = dial(three, two.add())
    assert two.write("a word that nobody else may read") == 200
    chat = gateway.hear("a word that nobody else may read")["event"]["source"]["chat_id"]
    assert gateway.act(op="send", chat_id=chat, content="good day")["success"]
    assert [m["text"] for m in history(two)][-1] == "good day" and history(one) == history(two) == history(three)
    status = three.cli("status").stdout
    assert f"trunks  run over Redis at 127.0.0.1:{redis.port}" in status and "three forwards" in status
    assert f"trunks run over Redis at 127.0.0.1:{redis.port}, which answers" in three.cli("doctor", check=False).stdout
    redis.flush()
    wait_for(lambda: "lost its data" in one.log() + two.log())
    assert two.write("after it forgot everything") == 200  # held until there is a trunk again
    gateway.hear("after it forgot everything")  # on the socket that it had
    wait_for(lambda: not any(i["entries"] for i in json.loads(one.cli("status", "--json").stdout)["instances"]))
    assert gateway.closed is None
    keys = ask(redis, "KEYS", "*").split()
    assert len(keys) == 3 and all(0 < int(ask(redis, "TTL", k)) <= 60 for k in keys)
    watched.kill()
    seen = watched.stdout.read()
    watched.wait()
    assert b"XADD" in seen
    assert not any(word in seen for word in (b"nobody else", b"good day", b"lobby", b"two/", b"inbound"))


def insist(server, text):
    """What was on its way to a node that died is cut, and said again."""
    def taken():
        try:
            return server.write(text) == 200
        except OSError:
            return False
    wait_for(taken, 30)


def test_gateways_sockets_survive_the_end_of_the_node_that_serves(nodes, dial):
    one, two = nodes.serve(lease="3s"), nodes.carry("two", lease="3s")
    three = nodes.carry("three", lease="3s")
    gateways = [dial(two, one.add()), dial(three, one.add(tenant="u"))]
    assert two.write("one") == 200
    one.kill()
    takes_over(two, three)
    insist(three, "two")
    insist(two, "three")
    for gateway in gateways:
        for text in ("one", "two", "three"):
            gateway.hear(text)
        assert gateway.closed is None


@pytest.mark.parametrize("url, words", [
    (None, "cluster.trunk: redis needs redis.url"),
    ("http://localhost", "redis.url: the Redis address: it is none"),
    ("redis://user@localhost", "user and password are written user:password@"),
])
def test_a_wrong_configuration_is_refused_with_a_sentence(postgres, url, words):
    nodes = Nodes(postgres)
    tail = "" if url is None else f'redis: {{{{url: "{url}"}}}}\n'
    server = nodes.make("one", more=", trunk: redis", tail=tail)
    try:
        done = server.cli("serve", check=False)
        assert done.returncode != 0 and words in done.stderr, done.stderr
        assert "user@localhost" not in done.stderr
    finally:
        server.clean()


def test_a_redis_that_refuses_is_named_with_what_to_do(nodes, redis):
    ask(redis, "CONFIG", "SET", "requirepass", "right-one")
    redis.url = f"redis://:wrong-one@127.0.0.1:{redis.port}"
    one = nodes.serve()
    two = nodes.make("two")
    two.begin()
    wait_for(lambda: "password in redis.url is wrong" in two.log())
    status = one.cli("status").stdout
    assert f"cannot run over Redis at 127.0.0.1:{redis.port}: the server says WRONGPASS" in status, status
    found = two.cli("doctor", check=False).stdout
    assert "FIX" in found and "password in redis.url is wrong" in found, found
    assert "wrong-one" not in one.log() + two.log() + status + found


# ---- everything happens to the Redis ----

class Writer:
    """Says 0, 1, 2, ... and goes on when it was taken."""

    def __init__(self, n, nodes):
        self.n, self.nodes, self.taken = n, nodes, 0

    async def live(self, http, over):
        while not over.is_set():
            for k in range(600):
                try:
                    node = self.nodes[(self.n + k) % len(self.nodes)]
                    if await asyncio.wait_for(write(http, node, self.n, str(self.taken)), 10) == 200:
                        break
                except (OSError, aiohttp.ClientError, asyncio.TimeoutError):
                    pass
                await asyncio.sleep(0.1)
            else:
                raise AssertionError(f"nobody takes {self.taken} of {self.n}")
            self.taken += 1
            await asyncio.sleep(0.05)


def restart(redis):
    redis.kill()
    time.sleep(random.random())
    redis.start()


def freeze(redis, seconds):
    redis.process.send_signal(SIGSTOP)
    time.sleep(seconds)
    redis.process.send_signal(SIGCONT)


def forge(redis):
    for key in ask(redis, "KEYS", "bellhop:*").split():
        ask(redis, "XADD", key, "*", "e", "d" + "0" * 60)
        ask(redis, "XADD", key, "*", *("f v " * 50).split())


FAULTS = {
    "killed": restart,
    "flushed": lambda redis: redis.flush(),
    "cut off": lambda redis: ask(redis, "CLIENT", "KILL", "TYPE", "normal"),
    "paused": lambda redis: ask(redis, "CLIENT", "PAUSE", "3000"),
    "frozen": lambda redis: freeze(redis, 10),
    "full": lambda redis: (ask(redis, "CONFIG", "SET", "maxmemory", "1"), time.sleep(2),
                           ask(redis, "CONFIG", "SET", "maxmemory", "0")),
    "forged": forge,
    "trimmed": lambda redis: [ask(redis, "XTRIM", k, "MAXLEN", "0") for k in ask(redis, "KEYS", "bellhop:*").split() * 20],
}


async def live_through(faults, redis, nodes, agents):
    over = asyncio.Event()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        lives = await dial_all(agents, http)
        writers = [Writer(n, nodes) for n in range(len(agents))]
        try:
            writing = [asyncio.create_task(w.live(http, over)) for w in writers]
            for name, fault in faults:
                before = [w.taken for w in writers]
                await asyncio.to_thread(fault, redis)
                for _ in range(1200):  # everybody goes on after it
                    if all(w.taken > b + 5 for w, b in zip(writers, before)):
                        break
                    await asyncio.sleep(0.1)
                else:
                    raise AssertionError(f"after it was {name}: {before}, {[w.taken for w in writers]}")
            over.set()
            await asyncio.gather(*writing)
            for _ in range(600):
                if all(len(a.texts) >= w.taken for a, w in zip(agents, writers)):
                    break
                await asyncio.sleep(0.1)
        finally:
            for task in lives:
                task.cancel()
            await asyncio.gather(*lives, return_exceptions=True)
    return writers


@pytest.mark.skipif(not LONG, reason="takes minutes: BELLHOP_LONG=1")
def test_whatever_happens_to_the_redis_everything_comes_once_and_in_order(nodes, redis):
    more = {"lease": "20s", "tail": "".join(f"  - {{{{platform: web, bot: b{n}}}}}\n" for n in range(PEOPLE))}
    one, two, three = nodes.serve(**more), nodes.carry("two", **more), nodes.carry("three", **more)
    agents = []
    for n in range(PEOPLE):
        made = one.admin("POST", "/admin/gateways/add", {"tenant": f"t{n}", "platform": "web", "bot": f"b{n}"})
        assert made.status == 200, made
        agents.append(Agent(n, made.json["id"], made.json["secret"], (two, three)[n % 2].url, PEOPLE))
    faults = list(FAULTS.items()) * int(LONG)
    random.shuffle(faults)
    print([name for name, _ in faults])
    writers = asyncio.run(live_through(faults, redis, [two, three], agents))
    wrong = {a.n: (a.texts, w.taken) for a, w in zip(agents, writers) if a.texts != [str(k) for k in range(w.taken)]}
    assert not wrong, wrong
    assert all(len(set(a.ids)) == len(a.ids) for a in agents)
    assert [(a.n, a.closed) for a in agents if a.closed is not None] == []
    print(f"{sum(w.taken for w in writers)} messages, each once and in order")

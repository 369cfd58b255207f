"""Three processes on one PostgreSQL, with a Redis beside it, while things die.

Twelve gateways that remember ids, each with a person who writes to it, and a Telegram bot that is polled; once with all
nodes taking connections (cluster.serve: all), gateways and people spread over them, and once with one. One after the
other: kill -9 of the one that serves, SIGSTOP for longer than its lease, PostgreSQL ended as by a crash, Redis killed,
SIGTERM. Nothing accepted is lost, every effect happens once, in order, at the right tenant; and whoever lost its lease
asks the platform nothing any more. Each process is started again when it ends, as an operator's supervisor would.
"""
import asyncio
import json
import time
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import aiohttp
import pytest
from aiohttp import web

from conftest import Bellhop, Credential
from relay import mint
from servers import Postgres, Redis, free_port

LEASE_S = 3
BOTS = 12
PAUSE_S = 0.1  # between two messages of one person
KEY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

CONFIG = """\
listen: 127.0.0.1:{port}
state_dir: {{state}}
master_key: "{key}"
store: {{{{kind: postgres, url: "{url}"}}}}
bus: {{{{kind: redis, url: "{redis}"}}}}
cluster: {{{{node: node-{n}, lease: {lease}s, serve: {serve}}}}}
platforms:
{bots}  - {{{{platform: telegram, bot: tg, token: "1:x", mode: polling, api_base: "http://127.0.0.1:{telegram}/node-{n}"}}}}
"""


class Node(Bellhop):
    """A process that is started again when it ends, unless it is told to stay down."""

    def __init__(self, n, **values):
        super().__init__(CONFIG.format(n=n, key=KEY, lease=LEASE_S, **values))
        self.port, self.name, self.wanted, self.codes = values["port"], f"node-{n}", True, []
        self.url = f"http://127.0.0.1:{self.port}"
        self.history = []  # of its log, over all starts

    def tend(self):
        if self.process is not None and self.process.poll() is not None:
            self.codes.append(self.process.returncode)
            self.wait()
            self.history += self.lines
        if self.process is None and self.wanted:
            self.begin()

    def finish(self):
        self.wanted = False
        if self.process is not None:
            self.signal(SIGCONT)
            self.stop()
            self.history += self.lines
        log = "".join(self.history)
        assert "Sanitizer" not in log and "runtime error" not in log, log
        self.clean()


class Person:
    """Writes 1, 2, 3... and goes on only when a node has taken it; asks the nodes in turn."""

    def __init__(self, n, nodes):
        self.n, self.nodes, self.taken, self.at = n, nodes, [], []
        self.tries = {}  # text -> what became of each try: when, by which node, how it was answered

    async def write(self, http, text, node):
        body = {"text": text, "client_id": f"p{self.n}-{text}"}
        async with http.post(f"{node.url}/chat/b{self.n}/api/message", json=body,
                             headers={"X-Bellhop-Visitor": f"visitor-{self.n:08}-0000"}) as answer:
            return answer.status

    async def live(self, http, over):
        k = self.n
        while not over.is_set():
            text = f"{self.n}:{len(self.taken)}"
            try:
                status = await asyncio.wait_for(self.write(http, text, self.nodes[k % len(self.nodes)]), 3)
            except (OSError, aiohttp.ClientError, asyncio.TimeoutError):
                status = 0
            self.tries.setdefault(text, []).append((time.strftime("%X"), self.nodes[k % len(self.nodes)].name, status))
            if status == 200:
                self.taken.append(text)
                self.at.append(time.monotonic())
                await asyncio.sleep(PAUSE_S)
            else:
                assert status in (0, 503), status
                k += 1
                await asyncio.sleep(0.05)


class Agent:
    """A gateway that remembers the ids it has seen and comes back wherever it is let in."""

    def __init__(self, credential, nodes, first):
        self.first = first
        self.id, self.secret, self.nodes = credential.id, credential.secret, nodes
        self.texts, self.ids, self.repeats, self.codes = [], set(), 0, []

    async def _frame(self, ws, frame):
        if frame["type"] != "inbound":
            return
        if frame["bufferId"] in self.ids:
            self.repeats += 1
        else:
            self.ids.add(frame["bufferId"])
            self.texts.append(frame["event"]["text"])
        await ws.send_str(json.dumps({"type": "inbound_ack", "bufferId": frame["bufferId"]}) + "\n")

    async def _talk(self, http, node):
        headers = {"Authorization": f"Bearer {mint(self.id, self.secret)}"}
        async with http.ws_connect(f"{node.url}/relay", headers=headers, heartbeat=3) as ws:
            await ws.send_str(json.dumps({"type": "hello", "platform": "web", "botId": "b0"}) + "\n")
            async for message in ws:
                for line in message.data.splitlines():
                    await self._frame(ws, json.loads(line))
            self.codes.append(ws.close_code)

    async def live(self, http):
        for k in range(1 << 30):
            try:
                await self._talk(http, self.nodes[(k + self.first) % len(self.nodes)])
            except (OSError, aiohttp.ClientError, asyncio.TimeoutError):
                pass
            await asyncio.sleep(0.1)


class Telegram:
    """Only what polling needs; writes down who asked when."""

    def __init__(self):
        self.polls = []

    async def answer(self, request):
        node, method = request.match_info["node"], request.match_info["method"]
        if method == "getUpdates":
            self.polls.append((time.monotonic(), node))
            await asyncio.sleep(0.4)
            return web.json_response({"ok": True, "result": []})
        result = {"id": 1, "is_bot": True, "first_name": "b", "username": "tg"} if method == "getMe" else True
        return web.json_response({"ok": True, "result": result})

    async def start(self, port):
        app = web.Application()
        app.router.add_route("*", "/{node}/bot{token}/{method}", self.answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()


class Cluster:
    def __init__(self, serve):
        self.serve, self.carried = serve, []
        self.postgres, self.redis = Postgres().start(), Redis().start()
        self.telegram, telegram_port = Telegram(), free_port()
        self.telegram_port = telegram_port
        bots = "".join(f"  - {{{{platform: web, bot: b{n}}}}}\n" for n in range(BOTS))
        self.nodes = [Node(n, port=free_port(), url=self.postgres.url, redis=self.redis.url, bots=bots,
                           serve=serve, telegram=telegram_port) for n in range(3)]
        self.gaps = {}

    def add_agents(self):
        """While only the first one runs."""
        first = self.nodes[0].start()
        return [Agent(Credential(first.cli("gateway", "add", "--tenant", f"t{n}", "--platform", "web", "--bot",
                                           f"b{n}").stdout), self.nodes, n) for n in range(BOTS)]

    async def serving(self, http):
        """The node that has the lease; None: none does, or it is not ready."""
        for node in self.nodes:
            try:
                if await self.value(http, node, "node_epoch") > 0 and await self.is_ready(http, node):
                    return node
            except (OSError, aiohttp.ClientError, asyncio.TimeoutError):
                pass
        return None

    async def is_ready(self, http, node):
        try:
            async with http.get(f"{node.url}/readyz", timeout=aiohttp.ClientTimeout(total=1)) as answer:
                return answer.status == 200
        except (OSError, aiohttp.ClientError, asyncio.TimeoutError):
            return False

    async def value(self, http, node, name):
        """Of one of a node's own metrics; 0: it does not tell."""
        async with http.get(f"{node.url}/metrics", timeout=aiohttp.ClientTimeout(total=1)) as answer:
            for line in (await answer.text()).splitlines():
                if line.startswith(f"bellhop_{name} "):
                    return int(line.split()[1])
        return 0

    async def wait_all_ready(self, http):
        for node in self.nodes:
            end = time.monotonic() + 40
            while not await self.is_ready(http, node):
                assert time.monotonic() < end, node.name + "\n" + "".join(n.log() for n in self.nodes)
                await asyncio.sleep(0.05)

    async def look_who_carries(self, http):
        self.carried = [await self.value(http, node, "node_carried_connections") for node in self.nodes]

    async def wait_serving(self, http, other_than=None, seconds=40):
        """The node that serves; other_than is a process, and its node may serve again with the next one."""
        end = time.monotonic() + seconds
        while True:
            node = await self.serving(http)
            if node is not None and node.process is not None and node.process is not other_than:
                return node
            assert time.monotonic() < end, "nobody serves\n" + "".join(n.log() for n in self.nodes)
            await asyncio.sleep(0.05)

    async def supervise(self):
        while True:
            for node in self.nodes:
                node.tend()
            await asyncio.sleep(0.1)

    def clean(self):
        for node in self.nodes:
            node.finish()
        self.redis.clean()
        self.postgres.clean()


def worst_gap(people, since):
    """For how long nobody's message was taken, from then on."""
    moments = sorted(t for p in people for t in p.at if t >= since)
    return max((b - a for a, b in zip([since, *moments], moments)), default=None)


async def faults(cluster, http, people):
    async def measured(name, what, settle=1.5):
        began = time.monotonic()
        await what()
        await cluster.wait_serving(http)
        await asyncio.sleep(settle)
        cluster.gaps[name] = worst_gap(people, began)

    async def kill():
        node = await cluster.wait_serving(http)
        process = node.process
        node.signal(SIGKILL)
        await cluster.wait_serving(http, other_than=process)

    async def pause():
        node = await cluster.wait_serving(http)
        process = node.process
        node.signal(SIGSTOP)
        await cluster.wait_serving(http, other_than=process)
        await asyncio.sleep(1)
        node.signal(SIGCONT)
        starts, end = len(node.codes), time.monotonic() + 40
        while len(node.codes) == starts:
            assert time.monotonic() < end, f"{node.name} goes on\n" + node.log()
            await asyncio.sleep(0.05)
        assert node.codes[-1] == 75, node.codes

    async def crash_database():
        cluster.postgres.crash()
        cluster.postgres.start()

    async def lose_redis():
        cluster.redis.kill()
        await asyncio.sleep(1)
        cluster.redis.start()

    async def drain():
        node = await cluster.wait_serving(http)
        process = node.process
        node.signal(SIGTERM)
        await cluster.wait_serving(http, other_than=process)

    await measured("kill -9", kill)
    await measured("stopped for longer than its lease", pause)
    await measured("PostgreSQL crashed", crash_database)
    await measured("Redis killed", lose_redis)
    await measured("SIGTERM", drain)


async def run(cluster):
    over = asyncio.Event()
    people = [Person(n, cluster.nodes) for n in range(BOTS)]
    await cluster.telegram.start(cluster.telegram_port)
    agents = await asyncio.to_thread(cluster.add_agents)
    # A connection that is carried stays so: who wants to know of a node itself asks on a new one.
    asking = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
    async with aiohttp.ClientSession() as http, asking:
        keeping = asyncio.create_task(cluster.supervise())
        if cluster.serve == "all":
            await cluster.wait_all_ready(asking)
        lives = [asyncio.create_task(a.live(http)) for a in agents]
        writing = [asyncio.create_task(p.live(http, over)) for p in people]
        try:
            end = time.monotonic() + 60
            while not cluster.telegram.polls or min(len(a.texts) for a in agents) < 3:
                assert time.monotonic() < end, "not everybody is spoken to\n" + "".join(n.log() for n in cluster.nodes)
                await asyncio.sleep(0.1)
            await cluster.look_who_carries(asking)
            await asyncio.wait_for(faults(cluster, asking, people), 200)
            over.set()
            await asyncio.gather(*writing)
            end = time.monotonic() + 30
            while any(len(a.texts) < len(p.taken) for a, p in zip(agents, people)) and time.monotonic() < end:
                await asyncio.sleep(0.1)
        finally:
            for task in [keeping, *lives, *writing]:
                task.cancel()
            await cluster.telegram.runner.cleanup()
    return agents, people


@pytest.mark.parametrize("serve", ["all", "one"])
def test_nothing_is_lost_doubled_or_out_of_order_while_nodes_and_servers_die(serve):
    cluster = Cluster(serve)
    try:
        try:
            agents, people = asyncio.run(run(cluster))
        except (AssertionError, asyncio.TimeoutError):
            print(cluster.gaps, *("".join([*n.history, *n.lines][-60:]) for n in cluster.nodes), sep="\n---\n")
            raise
        print(serve, {k: round(v, 2) for k, v in cluster.gaps.items()}, "repeats", sum(a.repeats for a in agents),
              "taken", sum(len(p.taken) for p in people))
        if serve == "all":  # each of the others has a third of the gateways; the first has them all
            assert cluster.carried[0] >= 2 * BOTS // 3 and min(cluster.carried[1:]) >= BOTS // 3, cluster.carried
        for agent, person in zip(agents, people):
            assert len(person.taken) > 20
            extra = [t for t in agent.texts if t not in set(person.taken)]
            assert len(extra) <= 1  # the last one may have been taken without the answer having come
            lost = {t: person.tries[t] for t in person.taken if t not in agent.texts}
            assert not lost, (lost, cluster.postgres.sql("SELECT id, at_ms, attempts, flags FROM bellhop.mail"),
                              "".join(line for n in cluster.nodes for line in [*n.history, *n.lines][-40:]))
            assert [t for t in agent.texts if t not in extra] == person.taken
        asked_by = [node for _, node in cluster.telegram.polls]
        stints = [n for k, n in enumerate(asked_by) if k == 0 or asked_by[k - 1] != n]
        assert len(stints) <= 4, stints  # three changes of who serves, and nobody came back in between
        for name, gap in cluster.gaps.items():
            assert gap is not None and gap < 20, cluster.gaps
    finally:
        cluster.clean()

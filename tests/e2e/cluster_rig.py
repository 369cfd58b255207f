"""Three nodes on one PostgreSQL, and who lives on them: people, platforms, gateways.

Everything between the nodes and between a node and its database goes through a Line, which can be cut or made deaf;
without lines it is as fast as it is.
Each process is started again when it ends, as an operator's supervisor would.
"""
import asyncio
import base64
import hashlib
import hmac
import json
import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from signal import SIGCONT

import aiohttp
from aiohttp import web

from conftest import Bellhop, Credential
from relay import mint
from servers import Postgres, free_port

KEY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
PUBLIC = "https://relay.example.org"
AUTH = "auth-token-of-the-account"

CONFIG = """\
listen: 127.0.0.1:{port}
public_url: {public}
state_dir: {{state}}
master_key: "{key}"
store: {{{{kind: postgres, url: "{url}"}}}}
cluster: {{{{node: node-{n}, lease: {lease}s, serve: {serve}, drain: 300ms, address: "127.0.0.1:{trunk}"}}}}
platforms:
{bots}"""

LOST = (OSError, aiohttp.ClientError, asyncio.TimeoutError)


class Line:
    """What lies between two programs: it can be cut, and it can be deaf, its bytes arriving late."""

    def __init__(self):
        self.loop, self.open, self.writers = asyncio.new_event_loop(), threading.Event(), set()
        self.open.set()
        self.began = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.began.wait(10)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(self.listen())
        self.began.set()
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    async def _pass(self, reader, writer):
        try:
            while data := await reader.read(65536):
                while not self.open.is_set():
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _serve(self, reader, writer):
        try:
            there = await self.dial()
        except OSError:
            writer.close()
            return
        ends = {writer, there[1]}
        self.writers |= ends
        await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))
        self.writers -= ends

    def deaf(self):
        self.open.clear()

    def hear(self):
        self.open.set()

    def cut(self):
        self.loop.call_soon_threadsafe(lambda: [w.transport.abort() for w in list(self.writers)])

    def close(self):
        self.open.set()
        self.loop.call_soon_threadsafe(self.server.close)
        self.cut()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


class DatabaseLine(Line):
    def __init__(self, database):
        self.dir = tempfile.mkdtemp(prefix="bh-line-")
        self.target = f"{database.dir}/.s.PGSQL.5432"
        self.url = database.url.replace(database.dir, self.dir)
        super().__init__()

    async def listen(self):
        server = await asyncio.start_unix_server(self._serve, f"{self.dir}/.s.PGSQL.5432")
        os.chmod(f"{self.dir}/.s.PGSQL.5432", 0o777)
        return server

    async def dial(self):
        return await asyncio.open_unix_connection(self.target)

    def close(self):
        super().close()
        shutil.rmtree(self.dir, ignore_errors=True)


class PortLine(Line):
    """The address under which the others reach a node."""

    def __init__(self, target):
        self.target = target
        super().__init__()

    async def listen(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def dial(self):
        return await asyncio.open_connection("127.0.0.1", self.target)


class Node(Bellhop):
    """A process that is started again when it ends, unless it is told to stay down."""

    def __init__(self, n, database, lines, **values):
        self.port, self.name, self.wanted, self.codes = free_port(), f"node-{n}", True, []
        self.database, self.trunk = (DatabaseLine(database), PortLine(self.port)) if lines else (None, None)
        super().__init__(CONFIG.format(n=n, key=KEY, public=PUBLIC, port=self.port,
                                       url=self.database.url if lines else database.url,
                                       trunk=self.trunk.port if lines else self.port, **values))
        self.url = f"http://127.0.0.1:{self.port}"
        self.history = []  # of its log, over all starts

    def tend(self):
        if self.process is not None and self.process.poll() is not None:
            self.codes.append(self.process.returncode)
            self.wait()
            self.history += self.lines
        if self.process is None and self.wanted:
            self.begin()

    def words(self, lines=60):
        return "".join([line for line in [*self.history, *self.lines] if " session=" not in line][-lines:])

    def finish(self):
        self.wanted = False
        if self.database is not None:
            self.database.hear()
        if self.process is not None:
            self.signal(SIGCONT)
            self.stop()
            self.history += self.lines
        for line in (self.database, self.trunk):
            if line is not None:
                line.close()
        log = "".join(self.history)
        assert "Sanitizer" not in log and "runtime error" not in log, log
        self.clean()


class Person:
    """Writes 1, 2, 3... and goes on only when it has been taken; asks the nodes in turn."""

    platform = "web"

    def __init__(self, n, cluster):
        self.n, self.cluster, self.bot, self.k = n, cluster, f"b{n}", n
        self.taken, self.at, self.since = [], [], {}
        self.tries = {}  # text -> what became of each try: when, by which node, how it was answered

    def settings(self):
        return f"{{{{platform: web, bot: {self.bot}}}}}"

    def next_node(self):
        self.k += 1
        return self.cluster.nodes[self.k % len(self.cluster.nodes)]

    async def say(self, http, text, node):
        body = {"text": text, "client_id": f"p{self.n}-{text}"}
        async with http.post(f"{node.url}/chat/{self.bot}/api/message", json=body,
                             headers={"X-Bellhop-Visitor": f"visitor-{self.n:08}-0000"}) as answer:
            return answer.status

    async def attempt(self, http, text):
        node = self.cluster.nodes[self.k % len(self.cluster.nodes)]
        try:
            status = await asyncio.wait_for(self.say(http, text, node), 4)
        except LOST as e:
            status = type(e).__name__
        self.tries.setdefault(text, []).append((time.strftime("%X"), node.name, status))
        assert isinstance(status, str) or status in (200, 503), (self.bot, status)
        return status == 200

    async def live(self, http, over):
        while not over.is_set():
            text = f"{self.n}:{len(self.taken)}"
            self.since[text] = time.monotonic()
            while not await self.attempt(http, text):
                if over.is_set():
                    return
                self.next_node()
                await asyncio.sleep(0.05)
            self.taken.append(text)
            self.at.append(time.monotonic())
            await asyncio.sleep(self.cluster.pause_s)


class Texter(Person):
    """Writes to a Twilio number; its webhook hits two nodes at once."""

    platform = "twilio"

    def __init__(self, n, cluster):
        super().__init__(n, cluster)
        self.bot = f"+1555{n:07}"

    def settings(self):
        return (f'{{{{platform: twilio, bot: "{self.bot}", account_sid: AC01, auth_token: "{AUTH}", '
                f'api_base: "http://127.0.0.1:1"}}}}')

    def form(self, text):
        sid = f"SM{self.n:016x}{int(text.split(':')[1]):016x}"
        return {"AccountSid": "AC01", "Body": text, "From": f"+1666{self.n:07}", "MessageSid": sid, "NumMedia": "0",
                "SmsMessageSid": sid, "To": self.bot}

    async def hook(self, http, form, node):
        path = f"/webhooks/twilio/{self.bot}"
        signed = PUBLIC + path + "".join(k + v for k, v in sorted(form.items()))
        mac = hmac.new(AUTH.encode(), signed.encode(), hashlib.sha1).digest()
        async with http.post(node.url + path, data=form,
                             headers={"X-Twilio-Signature": base64.b64encode(mac).decode()}) as answer:
            return answer.status

    async def say(self, http, text, node):
        form = self.form(text)
        both = await asyncio.gather(self.hook(http, form, node), self.hook(http, form, self.next_node()),
                                    return_exceptions=True)
        for status in both:
            assert isinstance(status, LOST) or status in (200, 503), both
        if 200 in both:
            return 200
        raise next((s for s in both if isinstance(s, Exception)), OSError("refused"))


class Chatter(Person):
    """Writes to a Telegram bot; it has been taken when the bot has confirmed it to Telegram."""

    platform = "telegram"

    def __init__(self, n, cluster):
        super().__init__(n, cluster)
        self.bot = f"tg{n}"

    def settings(self):
        return (f'{{{{platform: telegram, bot: {self.bot}, token: "{self.n}:x", mode: polling, '
                f'api_base: "http://127.0.0.1:{self.cluster.telegram.port}/node-{{n}}"}}}}')

    async def attempt(self, http, text):
        if text not in self.tries:
            self.tries[text] = [self.cluster.telegram.say(f"{self.n}:x", self.bot, text)]
        await asyncio.sleep(0.05)
        return self.cluster.telegram.confirmed(f"{self.n}:x") >= self.tries[text][0]


class Telegram:
    """What polling needs. Of one bot only one may ask at a time: whoever asked before is told 409, and it is noted."""

    def __init__(self):
        self.port, self.updates, self.done = free_port(), {}, {}
        self.asking, self.overlaps, self.polls = {}, [], 0

    def say(self, token, bot, text):
        queue = self.updates.setdefault(token, [])
        queue.append({"update_id": len(queue) + 1,
                      "message": {"message_id": len(queue) + 1, "date": int(time.time()), "text": text,
                                  "chat": {"id": 5, "type": "private", "first_name": "A"},
                                  "from": {"id": 5, "is_bot": False, "first_name": "A"}}})
        return len(queue)

    def confirmed(self, token):
        return self.done.get(token, 0)

    async def poll(self, request, node, token):
        body = await request.json()
        before = self.asking.get(token)
        if before is not None and before[0] != node:
            self.overlaps.append((token, before[0], node, time.monotonic() - before[1]))
        mine = self.asking[token] = (node, time.monotonic())
        self.polls += 1
        self.done[token] = max(self.done.get(token, 0), body.get("offset", 1) - 1)
        end = time.monotonic() + body.get("timeout", 0)
        try:
            while True:
                if self.asking.get(token) is not mine:
                    return web.json_response({"ok": False, "error_code": 409, "description":
                                              "Conflict: terminated by other getUpdates request"}, status=409)
                news = self.updates.get(token, [])[self.done[token]:][:20]
                if news or time.monotonic() >= end or request.transport is None or request.transport.is_closing():
                    return web.json_response({"ok": True, "result": news})
                await asyncio.sleep(0.03)
        finally:
            if self.asking.get(token) is mine:
                del self.asking[token]

    async def answer(self, request):
        node, token, method = (request.match_info[k] for k in ("node", "token", "method"))
        if method == "getUpdates":
            return await self.poll(request, node, token)
        who = {"id": 1, "is_bot": True, "first_name": "b", "username": "tg" + token.split(":")[0]}
        return web.json_response({"ok": True, "result": who if method == "getMe" else True})

    async def start(self):
        app = web.Application()
        app.router.add_route("*", "/{node}/bot{token}/{method}", self.answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()


class Agent:
    """A gateway that remembers the ids it has seen and comes back wherever it is let in."""

    def __init__(self, credential, person, cluster):
        self.person, self.cluster = person, cluster
        self.id, self.secret = credential.id, credential.secret
        self.texts, self.got, self.ids, self.repeats, self.codes = [], {}, set(), 0, []

    async def _frame(self, ws, frame):
        if frame["type"] != "inbound":
            return
        if frame["bufferId"] in self.ids:
            self.repeats += 1
        else:
            self.ids.add(frame["bufferId"])
            self.texts.append(frame["event"]["text"])
            self.got[frame["event"]["text"]] = time.monotonic()
        await ws.send_str(json.dumps({"type": "inbound_ack", "bufferId": frame["bufferId"]}) + "\n")

    async def _talk(self, http, node):
        headers = {"Authorization": f"Bearer {mint(self.id, self.secret)}"}
        async with http.ws_connect(f"{node.url}/relay", headers=headers, heartbeat=3) as ws:
            await ws.send_str(json.dumps({"type": "hello", "platform": self.person.platform,
                                          "botId": self.person.bot}) + "\n")
            async for message in ws:
                for line in message.data.splitlines():
                    await self._frame(ws, json.loads(line))
            self.codes.append(ws.close_code)

    async def live(self, http):
        for k in range(self.person.n, 1 << 30):
            try:
                await self._talk(http, self.cluster.nodes[k % len(self.cluster.nodes)])
            except LOST:
                pass
            await asyncio.sleep(0.1)


class Cluster:
    def __init__(self, people=60, lease_s=2, serve="all", pause_s=0.5, lines=True):
        self.serve, self.lease_s, self.pause_s = serve, lease_s, pause_s
        self.postgres, self.telegram = Postgres().start(), Telegram()
        kinds = {3: Texter, 7: Chatter}  # one in ten of each
        self.nodes = []
        self.people = [kinds.get(n % 10, Person)(n, self) for n in range(people)]
        for n in range(3):
            bots = "".join(f"  - {p.settings()}\n" for p in self.people).replace("{n}", str(n))
            self.nodes.append(Node(n, self.postgres, lines, bots=bots, serve=serve, lease=lease_s))

    def add_agents(self):
        """While only the first one runs."""
        began = time.monotonic()
        first = self.nodes[0].start()
        self.start_s = time.monotonic() - began

        one_at_a_time = threading.Lock()

        def add(p):
            more = [] if p.platform == "web" else ["--open"]
            for _ in range(100):  # on a machine that is busy it may have lost its lease, and is started again
                done = first.cli("gateway", "add", "--tenant", f"t{p.n}", "--platform", p.platform, "--bot", p.bot, *more,
                                 check=False)
                if done.returncode == 0:
                    return Agent(Credential(done.stdout), p, self)
                with one_at_a_time:
                    first.tend()
                time.sleep(0.5)
            raise AssertionError(done.stderr)

        with ThreadPoolExecutor(3) as several:
            self.agents = list(several.map(add, self.people))

    async def value(self, http, node, name):
        """Of one of a node's own metrics; 0: it does not tell."""
        async with http.get(f"{node.url}/metrics", timeout=aiohttp.ClientTimeout(total=1)) as answer:
            for line in (await answer.text()).splitlines():
                if line.startswith(f"bellhop_{name} "):
                    return int(line.split()[1])
        return 0

    async def is_ready(self, http, node):
        try:
            async with http.get(f"{node.url}/readyz", timeout=aiohttp.ClientTimeout(total=1)) as answer:
                return answer.status == 200
        except LOST:
            return False

    async def serving(self, http):
        """The node that has the lease; None: none does, or it is not ready."""
        for node in self.nodes:
            try:
                if await self.value(http, node, "node_epoch") > 0 and await self.is_ready(http, node):
                    return node
            except LOST:
                pass
        return None

    async def until(self, what, seconds=120, why="never came true", every=0.05):
        end = time.monotonic() + seconds
        while not (got := await what()):
            assert time.monotonic() < end, why + "\n" + "\n---\n".join(n.words() for n in self.nodes)
            await asyncio.sleep(every)
        return got

    async def wait_all_ready(self, http):
        async def all_are():
            return all([n.process is not None and await self.is_ready(http, n) for n in self.nodes])
        await self.until(all_are, why="not all are ready")

    async def wait_serving(self, http, other_than=None):
        """The node that serves; other_than is a process, and its node may serve again with the next one."""
        async def one():
            node = await self.serving(http)
            return node if node is not None and node.process is not None and node.process is not other_than else None
        return await self.until(one, why="nobody serves")

    async def another(self, http):
        """A node that does not serve."""
        serving = await self.wait_serving(http)
        return next(n for n in self.nodes if n is not serving)

    async def supervise(self):
        while True:
            for node in self.nodes:
                node.tend()
            await asyncio.sleep(0.1)

    def worst_gap(self, since):
        """For how long nobody's message was taken, from then on."""
        moments = sorted(t for p in self.people for t in p.at if t >= since)
        return max((b - a for a, b in zip([since, *moments], moments)), default=None)

    def worst_wait(self, since, heard=False):
        """Of those whose messages were taken from then on, the longest wait: until it was, or until it was heard."""
        waits = [(heard and a.got.get(text, at) or at) - a.person.since[text]
                 for a in self.agents for text, at in zip(a.person.taken, a.person.at) if at >= since]
        return max(waits, default=None)

    def who_waited(self, since):
        """Longest: how long, and what became of each try."""
        return max(((at - p.since[text], p.bot, text, p.tries[text]) for p in self.people
                    for text, at in zip(p.taken, p.at) if at >= since), key=lambda w: w[0])

    def check_promises(self):
        for agent in self.agents:
            person = agent.person
            assert len(person.taken) >= 5, (person.bot, person.tries)
            extra = [t for t in agent.texts if t not in set(person.taken)]
            assert len(extra) <= 1, extra  # the last one may have been taken without the answer having come
            lost = {t: person.tries[t] for t in person.taken if t not in agent.got}
            assert not lost, (lost, self.postgres.sql("SELECT id, at_ms, attempts, flags FROM bellhop.mail"))
            assert [t for t in agent.texts if t not in extra] == person.taken  # in order, its own, each once
        assert self.telegram.overlaps == [] and self.telegram.polls > 0

    async def run(self, during):
        """People and gateways live while during(cluster, http) happens; afterwards everything taken must have come."""
        over = asyncio.Event()
        await self.telegram.start()
        await asyncio.to_thread(self.add_agents)
        # A connection that is carried stays so: who wants to know of a node itself asks on a new one.
        asking = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asking:
            keeping = asyncio.create_task(self.supervise())
            if self.serve == "all":
                await self.wait_all_ready(asking)
            lives = [asyncio.create_task(a.live(http)) for a in self.agents]
            writing = [asyncio.create_task(p.live(http, over)) for p in self.people]

            async def spoken():
                return min(len(a.texts) for a in self.agents) >= 2

            async def heard():
                return all(len(a.texts) >= len(a.person.taken) for a in self.agents)
            try:
                await self.until(spoken, why="not everybody is spoken to")
                await during(self, asking)
                over.set()
                await asyncio.gather(*writing)
                try:
                    await self.until(heard, 30)
                except AssertionError:
                    pass  # check_promises() says what is missing
            finally:
                for task in [keeping, *lives, *writing]:
                    task.cancel()
                await asyncio.gather(keeping, *lives, *writing, return_exceptions=True)
                await self.telegram.runner.cleanup()

    def clean(self):
        for node in self.nodes:
            node.finish()
        self.postgres.clean()

"""kill -9 of bellhop and of its gateways at random moments under load.

People write on four chat pages through a client that, like any platform, repeats what was not answered under
the same id, and sometimes what was; and in two Telegram chats, whose server hands out what was not confirmed again.
Gateways are processes of their own (crash_gateway.py) that remember ids and act once on each. Everything either side saw
is judged when the dust has settled:

  - every event that was answered 200 reached every instance it was routed to, and nobody else;
  - it had one bufferId, whatever died in between, and exactly one effect at each of them;
  - a delivery whose ack was sent is not sent again; only when bellhop itself was killed before the ack was on disk:
    ack_linger_ms, then the transaction under way and its own (docs/contract.md). How long those took on this machine is
    what people waited for their answers in that second, for these wait for the same transactions; a message that the
    kill cut off waited too;
  - nothing comes twice on one socket, nothing comes after going_idle_ack;
  - of one chat, effects are in the order in which the platform sent the messages;
  - of one instance, all sockets, all publishers and all answers agree on one order: that of acceptance.

CRASH_SEED replays the choices of a run (not the scheduling of the machine), CRASH_KILLS asks for more or fewer.
"""
import asyncio
import bisect
import collections
import graphlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import sys
import time

import aiohttp
import pytest

import crash_gateway
from crash_gateway import whole_lines
from conftest import PROGRAM, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from telegram import TelegramSim  # noqa: E402

SEED = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(10**6)))
KILLS = int(os.environ.get("CRASH_KILLS", 60))
TOO_LONG_S = max(240, KILLS)  # a second for each is plenty on a busy machine
ALLOWANCE_S = 0.05  # ack_linger_ms, the way through two processes, and two transactions of an idle disk

CONFIG = """\
listen: 127.0.0.1:{port}
state_dir: {{state}}
delivery: {{{{max_attempts: 63}}}}
log: {{{{level: info}}}}
platforms:
  - {{{{platform: web, bot: one}}}}
  - {{{{platform: web, bot: two, history: 0}}}}
  - {{{{platform: web, bot: three, history: 0}}}}
  - {{{{platform: web, bot: all, history: 0}}}}
  - {{{{platform: telegram, bot: four, token: "{token}", api_base: "{api}", mode: polling}}}}
"""
TOKEN = "777000:AAsecret-token_of-the-bot"
ROUTES = {"one": ["one"], "two": ["two"], "three": ["three"], "all": ["one", "two", "three"], "four": ["four"]}
PAGES = [bot for bot in ROUTES if bot != "four"]


def free_port(rng):
    """Below the range of outgoing connections: nobody takes it while bellhop is dead."""
    while True:
        port = rng.randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Event:
    def __init__(self, bot, publisher, number, place=None):
        self.bot, self.publisher = bot, publisher
        self.place = number if place is None else place  # in its chat; what is posted side by side shares one
        self.text = f"{bot}/{publisher}/{number}"
        self.posted = self.answered = None
        self.again = False  # posted once more after it was answered


class Boot:
    """One life of bellhop."""

    def __init__(self, number):
        self.number, self.began, self.ended = number, time.monotonic(), None
        self.planned = False  # SIGTERM instead of SIGKILL


class Run:
    def __init__(self, server, sim, port, credentials):
        self.server, self.sim, self.port, self.credentials = server, sim, port, credentials
        self.url = f"http://127.0.0.1:{port}"
        self.rng = random.Random(SEED)
        self.boots, self.events, self.latencies = [], [], []
        self.kills = collections.Counter()
        self.pause = asyncio.Event()  # the last act: no more kills, no more events
        self.stderr = open(server.dir / "stderr", "w+b")
        self.diaries = server.dir / "diaries"
        self.diaries.mkdir()
        self.n_gateways = 0

    # ---- bellhop ----

    async def boot(self):
        self.boots.append(Boot(len(self.boots)))
        self.process = await asyncio.create_subprocess_exec(
            PROGRAM, "serve", "-c", self.server.config, stdout=asyncio.subprocess.PIPE, stderr=self.stderr)

    async def end(self, planned):
        boot = self.boots[-1]
        boot.planned = planned
        boot.ended = time.monotonic()
        self.process.send_signal(signal.SIGTERM if planned else signal.SIGKILL)
        code = await asyncio.wait_for(self.process.wait(), 30)
        assert code == (0 if planned else -signal.SIGKILL), f"exit status {code}\n{self.log()}"
        self.kills["bellhop"] += not planned

    async def is_ready(self):
        line = await asyncio.wait_for(self.process.stdout.readline(), 30)
        assert b"ready" in line, self.log()

    async def kill_bellhop(self, n):
        while self.kills["bellhop"] < n or not self.gateways_died():
            await self.boot()
            if self.rng.random() < 0.15:  # while it starts
                await asyncio.sleep(self.rng.uniform(0, 0.06))
                await self.end(False)
                continue
            await self.is_ready()
            await asyncio.sleep(self.rng.choice((0.05, 0.2, 0.6)) * self.rng.random())
            await self.end(self.rng.random() < 0.1)
        await self.boot()
        await self.is_ready()

    def log(self):
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    # ---- gateways ----

    def ledger(self, instance):
        return self.server.dir / f"ledger.{instance}"

    def effects(self, instance):
        """(bufferId, text) of everything its gateways acted on, in that order."""
        if not self.ledger(instance).exists():
            return []
        return [(line["id"], line["text"]) for line in whole_lines(self.ledger(instance))]

    def gateways_died(self):
        return sum(self.kills.values()) - self.kills["bellhop"] >= self.wanted_gateways

    async def gateway(self, instance, fate, forever=False):
        """One process, from its start to its end."""
        self.n_gateways += 1
        name = f"{instance}-{self.n_gateways}"
        credential = self.rng.choice(self.credentials[instance])
        plan = {"url": self.url.replace("http", "ws") + "/relay", "name": name, "fate": fate, "bot": instance,
                "platform": "telegram" if instance == "four" else "web", "id": credential.id, "secret": credential.secret,
                "diary": str(self.diaries / f"{name}.{instance}"), "ledger": str(self.ledger(instance)), "after": self.rng.randrange(1, 40),
                "ack_within": self.rng.choice((0, 0.002, 0.02)), "seed": self.rng.random()}
        process = multiprocessing.get_context("forkserver").Process(target=crash_gateway.main, args=(plan,),
                                                                    daemon=True)
        process.start()
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process.sentinel, over.set)
        try:
            limit = None if forever else self.rng.uniform(0.02, 1.0 if fate in ("is_killed", "doubles") else 4)
            await asyncio.wait_for(over.wait(), limit)
        except asyncio.TimeoutError:
            process.kill()
            await over.wait()
        finally:
            loop.remove_reader(process.sentinel)
            process.kill()
            process.join()
        assert process.exitcode in (0, -signal.SIGKILL), f"the gateway itself failed: {process.exitcode}"
        if not forever:
            self.kills[fate] += process.exitcode == -signal.SIGKILL

    async def kill_gateways(self, instance):
        while not self.pause.is_set():
            await self.gateway(instance, self.rng.choice(crash_gateway.FATES))
            await asyncio.sleep(self.rng.choice((0, 0, 0.05, 0.3)) * self.rng.random())
        await self.gateway(instance, "survives", forever=True)

    # ---- people ----

    async def post(self, http, event):
        """Until it is answered, as a platform does it."""
        body = {"text": event.text, "client_id": event.text}
        headers = {"X-Bellhop-Visitor": f"visitor-{event.bot}-{event.publisher:08}"}
        event.posted = event.posted or time.monotonic()
        while True:
            began = time.monotonic()
            try:
                async with http.post(f"{self.url}/chat/{event.bot}/api/message", json=body,
                                     headers=headers) as answer:
                    await answer.read()
                    status = answer.status
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
                status = None
            now = time.monotonic()
            self.latencies.append((now, now - began))
            if status == 200:
                event.answered = event.answered or now
                return
            assert status in (None, 503), f"answered {status}"
            await asyncio.sleep(self.rng.uniform(0.01, 0.05))

    async def publish(self, http, bot, publisher):
        number = 0
        while not self.pause.is_set():
            burst = [Event(bot, publisher, number + i, number) for i in range(self.rng.choice((1, 1, 1, 1, 1, 12)))]
            number += len(burst)
            self.events += burst
            await asyncio.gather(*(self.post(http, e) for e in burst))
            await asyncio.sleep(self.rng.uniform(0, 0.08))
            if self.rng.random() < 0.1:  # the answer was lost on its way
                burst[0].again = True
                await self.post(http, burst[0])

    async def say(self, person):
        """Telegram keeps what was said until it is confirmed: it counts as answered at once."""
        number = 0
        while not self.pause.is_set():
            for _ in range(self.rng.choice((1, 1, 1, 12))):
                event = Event("four", person, number)
                event.posted = event.answered = time.monotonic()
                self.events.append(event)
                self.sim.say(person, event.text, user={"id": person, "is_bot": False, "first_name": "P"})
                number += 1
            await asyncio.sleep(self.rng.uniform(0, 0.2))

    # ---- the play ----

    async def play(self):
        n_bellhop = max(1, KILLS // 2)
        self.wanted_gateways = KILLS - n_bellhop
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
            keepers = [asyncio.create_task(self.kill_gateways(i)) for i in self.credentials]
            people = [asyncio.create_task(self.publish(http, bot, p)) for bot in PAGES for p in range(3)]
            people += [asyncio.create_task(self.say(person)) for person in self.sim.chats]
            killer = asyncio.create_task(self.kill_bellhop(n_bellhop))
            try:
                done, _ = await asyncio.wait([killer, *keepers, *people], timeout=TOO_LONG_S,
                                             return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                assert killer in done, "still killing"
                self.pause.set()
                await asyncio.wait_for(asyncio.gather(*people), 60)
                await self.settle(keepers)
            finally:
                for task in [*keepers, *people, killer]:
                    task.cancel()
                await asyncio.gather(*keepers, *people, killer, return_exceptions=True)
                if self.process.returncode is None:
                    await self.end(False)

    async def settle(self, keepers):
        """Everything is delivered and acked; then a last kill brings nothing back."""
        def entries():
            status = json.loads(self.server.cli("status", "--json").stdout)
            for task in keepers:
                assert not task.done(), task.result()
            return sum(i["entries"] for i in status["instances"])

        def all_heard():
            said = {e.text for e in self.events if e.bot == "four"}
            return said == {text for _, text in self.effects("four")}

        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: wait_for(all_heard, 300, 1))
        await loop.run_in_executor(None, lambda: wait_for(lambda: entries() == 0, 300, 1))
        await asyncio.sleep(0.5)  # acks of a healthy bellhop are on disk long since
        self.settled = time.monotonic()
        await self.end(False)
        await self.boot()
        await self.is_ready()
        assert await loop.run_in_executor(None, entries) == 0
        await loop.run_in_executor(None, lambda: wait_for(self.all_are_back, 30, 0.1))

    def all_are_back(self):
        """Every instance has a socket that was greeted since the last kill."""
        return all(any(s.greeted is not None and s.greeted > self.settled for s in read_diaries(self, i))
                   for i in self.credentials)


class Socket:
    def __init__(self, name, dialled):
        self.name, self.dialled = name, dialled
        self.greeted = self.idle_acked = None
        self.reads = []  # (at, bufferId, text)
        self.acks = []   # (at, bufferId)


def read_diaries(run, instance):
    sockets = {}
    for path in run.diaries.glob(f"*.{instance}"):
        for note in whole_lines(path):
            if note["what"] == "dial":
                sockets[note["socket"]] = Socket(note["socket"], note["at"])
                continue
            s = sockets[note["socket"]]
            if note["what"] == "ack":
                s.acks.append((note["at"], note["id"]))
            elif note["what"] == "read":
                frame = note["frame"]
                assert s.idle_acked is None, f"{s.name}: {frame} after going_idle_ack"
                if frame["type"] == "inbound":
                    assert s.greeted is not None, f"{s.name}: inbound before the descriptor"
                    s.reads.append((note["at"], frame["bufferId"], frame["event"]["text"]))
                elif frame["type"] == "descriptor":
                    s.greeted = s.greeted or note["at"]
                elif frame["type"] == "going_idle_ack":
                    s.idle_acked = note["at"]
                else:
                    raise AssertionError(f"{s.name}: unexpected {frame}")
    return list(sockets.values())


class Judge:
    """What one instance saw, against what was promised."""

    def __init__(self, run, instance):
        self.run, self.instance = run, instance
        self.sockets = read_diaries(run, instance)
        self.mine = {e.text: e for e in run.events if instance in ROUTES[e.bot]}
        self.ids = collections.defaultdict(list)  # text -> bufferIds in order of appearance
        self.n_reads, self.repeats = 0, []
        self.boots_began, self.posts_ended = [b.began for b in run.boots], [at for at, _ in run.latencies]

    def boot_of(self, s):
        return self.run.boots[bisect.bisect_right(self.boots_began, s.greeted) - 1]

    def delivered(self):
        texts = {}  # bufferId -> text
        for s in sorted(self.sockets, key=lambda s: s.dialled):
            on_socket = set()
            for _, buffer_id, text in s.reads:
                assert text in self.mine, f"{self.instance} was sent {text}"
                assert texts.setdefault(buffer_id, text) == text, f"{buffer_id} is two events"
                assert buffer_id not in on_socket, f"{text} came twice on {s.name}"
                on_socket.add(buffer_id)
                if buffer_id not in self.ids[text]:
                    self.ids[text].append(buffer_id)
                self.n_reads += 1
        lost = [t for t, e in self.mine.items() if e.answered and t not in self.ids]
        assert not lost, f"{self.instance} never got {len(lost)} accepted events: {lost[:5]}"

    def same_id(self):
        for text, ids in self.ids.items():
            assert len(ids) == 1, f"{text} came under {len(ids)} names: {ids}"

    def one_effect(self):
        """Exactly one for each message that was accepted, and for nothing else."""
        effects = collections.Counter(text for _, text in self.run.effects(self.instance))
        assert set(effects) <= set(self.mine)
        wrong = {t: effects[t] for t, e in self.mine.items() if effects[t] != 1 and (e.answered or effects[t] > 1)}
        assert not wrong, f"{self.instance}: not one effect each: {list(wrong.items())[:5]}"
        return len(effects)

    def chats_in_order(self):
        places = collections.defaultdict(list)
        for _, text in self.run.effects(self.instance):
            event = self.mine[text]
            places[event.bot, event.publisher].append((event.place, text))
        for seen in places.values():
            for (one, earlier), (two, later) in zip(seen, seen[1:]):
                assert one <= two, f"{self.instance}: {earlier} came before {later}"

    def allowance(self, ended):
        first, last = (bisect.bisect(self.posts_ended, at) for at in (ended - 1, ended + 1))
        return ALLOWANCE_S + max((took for _, took in self.run.latencies[first:last]), default=0)

    def acked_stays_acked(self):
        acked = collections.defaultdict(list)  # bufferId -> [(at, socket)]
        for s in self.sockets:
            for at, buffer_id in s.acks:
                acked[buffer_id].append((at, s))
        for s in self.sockets:
            for _, buffer_id, text in s.reads:
                before = [(at, by) for at, by in acked[buffer_id] if at < s.dialled]
                if not before:
                    continue
                at, by = max(before, key=lambda a: a[0])
                boot = self.boot_of(by)
                assert boot is not self.boot_of(s), \
                    f"{text} ({buffer_id}) was acked on {by.name} at {at} and sent again on {s.name} ({s.dialled})"
                age = boot.ended - at
                assert age < self.allowance(boot.ended), \
                    f"{text} ({buffer_id}) was acked {age * 1000:.1f} ms before the kill and sent again"
                self.repeats.append(age)

    def one_order(self):
        """Sockets, publishers and answers agree on one order: their union has no cycle."""
        graph = graphlib.TopologicalSorter()
        # What was posted again after a crash that took it along has a new place, under its old name.
        nodes = collections.defaultdict(set)  # text -> its places

        def place(s, read):
            _, buffer_id, text = read
            boot, event = self.boot_of(s), self.mine[text]
            died_with_it = boot.ended is not None and event.answered > boot.ended
            at = (buffer_id, boot.number) if event.again or died_with_it else buffer_id
            nodes[text].add(at)
            return at

        for s in self.sockets:
            places = [place(s, read) for read in s.reads]
            for one, two in zip(places, places[1:]):
                graph.add(two, one)
        # Whatever was answered before another was posted comes before it; moments are nodes too.
        moments = sorted(e.answered for e in self.mine.values())
        for one, two in zip(moments, moments[1:]):
            if one != two:
                graph.add(two, one)
        for text, ids in self.ids.items():
            event = self.mine[text]
            before = last_below(moments, event.posted)
            for at in nodes[text]:
                if not event.again:  # else its last place may be behind the answer
                    graph.add(event.answered, at)
                if before is not None:
                    graph.add(at, before)
        try:
            graph.prepare()
        except graphlib.CycleError as e:
            texts = {i: t for t, ids in self.ids.items() for i in ids}
            raise AssertionError(f"out of order: {[texts.get(i, i) for i in e.args[1]]}") from None


def last_below(sorted_list, value):
    i = bisect.bisect_left(sorted_list, value)
    return sorted_list[i - 1] if i > 0 else None


@pytest.fixture
def sim():
    s = TelegramSim()
    s.bot(TOKEN, "four")
    s.person(5, "Ann")
    s.person(6, "Ben")
    yield s
    s.close()


def test_every_message_has_one_id_and_one_effect_in_order_whoever_is_killed(make_bellhop, sim):
    print(f"CRASH_SEED={SEED}")
    port = free_port(random.Random())
    server = make_bellhop(CONFIG.format(port=port, token=TOKEN, api=sim.url))
    credentials = {"four": [server.add(id="four", platform="telegram", bot="four")]}
    for name in ROUTES["all"]:
        credentials[name] = [server.add(id=name, bot=name)]
    credentials["three"].append(server.add(id="third", instance="three", bot="three"))  # two gateways, one instance
    for name in ROUTES["all"]:
        server.cli("route", "add", "--platform", "web", "--key", "all", "--tenant", "t", "--instance", name)
    assert server.stop() == 0, server.log()
    multiprocessing.get_context("forkserver").set_forkserver_preload(["crash_gateway"])
    began = time.monotonic()
    run = asyncio.run(play(server, sim, port, credentials))
    log = run.log()
    assert "Sanitizer" not in log and "runtime error" not in log and "Assertion" not in log, log
    judges = [Judge(run, i) for i in credentials]
    effects = 0
    for judge in judges:
        judge.delivered()
        judge.same_id()
        effects += judge.one_effect()
        judge.acked_stays_acked()
        judge.chats_in_order()
        if judge.instance != "four":  # nobody but Telegram knows when it was confirmed
            judge.one_order()
    repeats = [age for j in judges for age in j.repeats]
    kills = sum(run.kills.values())
    print(f"crash: seed {SEED}, {kills} kills ({run.kills['bellhop']} of bellhop, {kills - run.kills['bellhop']} of "
          f"gateways), {len(run.events)} events, {sum(j.n_reads for j in judges)} deliveries on "
          f"{sum(len(j.sockets) for j in judges)} sockets, {len(repeats)} acked ones repeated after a crash (oldest ack "
          f"{max(repeats, default=0) * 1000:.1f} ms before it), {effects} effects, "
          f"{time.monotonic() - began:.0f} s")
    assert kills >= KILLS and run.kills["bellhop"] >= KILLS // 2


async def play(server, sim, port, credentials):
    run = Run(server, sim, port, credentials)
    await run.play()
    return run

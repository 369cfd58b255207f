"""bellhop sleeper: a gateway process that costs nothing while nobody writes."""
import json
import os
import random
import subprocess
import threading
import time
from signal import SIGKILL, SIGSTOP, SIGTERM, SIGUSR1, SIGUSR2

import pytest

from conftest import CONFIG, PROGRAM, wait_for
from relay import http
from test_agent import history, script  # noqa: F401 - a fixture
from test_sdk import free_port

ECHO = """
for line in sys.stdin:
    m = json.loads(line)
    if m["type"] == "message":
        print("echo " + m["text"], flush=True)
"""


class Sleeper:
    """`bellhop sleeper` around `bellhop agent` around a program."""

    def __init__(self, server, credential, port, process, *options, idle="400ms"):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [PROGRAM, "sleeper", "--idle", idle, "--wake-listen", f"127.0.0.1:{port}", *options, "--", *process],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "GATEWAY_RELAY_URL": server.url, "GATEWAY_RELAY_ID": credential.id,
                 "GATEWAY_RELAY_SECRET": credential.secret})
        self.lines, self.errors = [], []
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in
                        ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()
        self.said("listening")

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def count(self, text):
        return sum(line.startswith("sleeper: " + text) for line in self.lines)

    def said(self, text, times=1, timeout=30):
        wait_for(lambda: self.count(text) >= times, timeout)

    def warned(self, text, timeout=30):
        wait_for(lambda: any(text in line for line in self.errors), timeout)

    def health(self):
        return http("GET", self.url + "/healthz").json

    def asleep(self, timeout=30):
        wait_for(lambda: self.process.poll() is None and self.health()["state"] == "asleep", timeout)

    def poke(self):
        return http("GET", self.url + "/wake").status

    def end(self, number=SIGTERM):
        if self.process.poll() is None and number:
            self.process.send_signal(number)
        code = self.process.wait(60)
        for reader in self.readers:
            reader.join(10)
        assert not [e for e in self.errors if "Sanitizer" in e or "runtime error" in e], self.errors
        return code


def agent(program, *options):
    return [PROGRAM, "agent", "--platform", "web=lobby", *options, "--", *program]


@pytest.fixture
def start_sleeper():
    made = []

    def start(server, credential, port, process, *options, **more):
        made.append(Sleeper(server, credential, port, process, *options, **more))
        return made[-1]

    yield start
    for sleeper in made:
        if sleeper.process.returncode is None:
            assert sleeper.end() == 0, (sleeper.lines[-6:], sleeper.errors)


@pytest.fixture
def rig(bellhop, start_sleeper, script):  # noqa: F811
    """rig() -> (server, credential, sleeper) with an echo agent that may sleep."""
    def make(*options, program=None, register=True, **more):
        port = free_port()
        more_words = {"wake_url": f"http://127.0.0.1:{port}/wake"} if register else {}
        c = bellhop.add(**more_words)
        return bellhop, c, start_sleeper(bellhop, c, port, agent(program or script(ECHO)), *options, **more)
    return make


def children(pid):
    return subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True).stdout.split()


def test_it_sleeps_is_poked_answers_and_sleeps_again(rig):
    server, c, s = rig()
    s.said("awake")
    s.asleep()
    assert not children(s.process.pid), "nothing runs while it sleeps"
    assert server.instance(c.id)["state"] == "asleep"
    server.write("wake up")
    wait_for(lambda: history(server) == ["wake up", "echo wake up"])
    s.said("starting: poked")
    s.said("asleep", 2)
    server.write("and again")
    wait_for(lambda: history(server)[-1] == "echo and again")
    assert len(history(server)) == 4


def test_health_tells_asleep_from_down_without_waking(rig):
    server, c, s = rig()
    s.asleep()
    for _ in range(3):
        h = s.health()
        assert h["healthy"] and h["state"] == "asleep" and h["pid"] == 0 and h["sleeps"] == 1
    assert http("GET", s.url + "/favicon.ico").status == 404
    assert s.count("starting") == 1
    assert s.end() == 0, "asleep is a good way to be: no failure to end there"


def test_a_signal_wakes_it_and_a_signal_sends_it_to_sleep(rig):
    server, c, s = rig(idle="1h")
    s.said("awake")
    s.process.send_signal(SIGUSR2)
    s.asleep()
    s.process.send_signal(SIGUSR1)
    s.said("starting: signalled")
    s.said("awake", 2)


def test_a_schedule_wakes_it(rig):
    server, c, s = rig("--schedule", "every 1s")
    s.asleep()
    s.said("starting: scheduled")
    s.said("asleep", 2)


def test_a_restarted_sleeper_lets_a_sleeping_agent_sleep(rig, start_sleeper, script):  # noqa: F811
    server, c, s = rig()
    s.asleep()
    s.end(SIGKILL)
    again = start_sleeper(server, c, s.port, agent(script(ECHO)))
    again.asleep()
    assert again.count("starting") == 0, "never awake without need"
    server.write("hello")
    wait_for(lambda: history(server) == ["hello", "echo hello"])


def test_a_restarted_sleeper_wakes_for_what_waits(rig, start_sleeper, script):  # noqa: F811
    server, c, s = rig()
    s.asleep()
    s.end(SIGKILL)
    server.write("nobody hears")
    again = start_sleeper(server, c, s.port, agent(script(ECHO)))
    wait_for(lambda: history(server) == ["nobody hears", "echo nobody hears"])
    again.asleep()


def test_a_process_that_crashes_is_started_again(rig, script):  # noqa: F811
    server, c, s = rig(idle="1h")
    s.said("awake")
    os.kill(int(children(s.process.pid)[0]), SIGKILL)
    s.warned("signal 9")
    s.said("starting: again")
    server.write("still there?")
    wait_for(lambda: history(server) == ["still there?", "echo still there?"])


def test_a_process_that_ignores_sigterm_is_killed_and_what_it_held_is_kept(bellhop, start_sleeper, script):  # noqa: F811
    port = free_port()
    c = bellhop.add(wake_url=f"http://127.0.0.1:{port}/")
    s = start_sleeper(bellhop, c, port, agent(script(ECHO)), "--drain-timeout", "1s", idle="300ms")
    s.said("awake")
    pid = int(children(s.process.pid)[0])
    os.kill(pid, SIGSTOP)
    s.warned("did not exit in time", 60)
    s.warned("stays awake", 60)
    bellhop.write("hello")
    wait_for(lambda: history(bellhop) == ["hello", "echo hello"], 30)


def test_freeze_keeps_the_process_and_wakes_it_with_its_memory(rig, script):  # noqa: F811
    server, c, s = rig("--mode", "freeze", program=script("""
        n = 0
        for line in sys.stdin:
            if json.loads(line)["type"] == "message":
                n += 1
                print(f"number {n}", flush=True)
        """))
    s.said("awake")
    for i in range(1, 4):
        s.said("asleep", i)
        pid, = children(s.process.pid)
        state = subprocess.run(["ps", "-o", "state=", "-p", pid], capture_output=True, text=True).stdout.strip()
        assert state == "T", "stopped, not ended"
        assert server.instance(c.id)["state"] == "asleep"
        server.write(f"hello {i}")
        wait_for(lambda: history(server)[-1] == f"number {i}")


def tree(pid):
    """@pid and everything below it, as (pid, command, state)."""
    rows = [line.split(None, 3) for line in subprocess.run(["ps", "-eo", "pid=,ppid=,state=,args="], capture_output=True,
                                                           text=True).stdout.splitlines()]
    found, wanted = [], {str(pid)}
    for _ in rows:
        new = [(p, args, state) for p, parent, state, args in rows if (p in wanted or parent in wanted)
               and p not in {f[0] for f in found}]
        if not new:
            break
        found += new
        wanted |= {f[0] for f in new}
    return found


def test_freeze_stops_the_whole_process_group_and_thaws_it(rig, script, tmp_path):  # noqa: F811
    """The agent, the program in a group of its own, its child, and a grandchild in a session of its own."""
    ticks = tmp_path / "ticks"
    tick = f"for i in $(seq 3000); do echo >> {ticks}; sleep 0.02; done"
    server, c, s = rig("--mode", "freeze", program=script(f"""
        import subprocess
        child = subprocess.Popen(["/bin/sh", "-c", {f"setsid sh -c '{tick}' & wait"!r}], stdin=subprocess.DEVNULL)
        for line in sys.stdin:
            if json.loads(line)["type"] == "message":
                print("here", flush=True)
        child.kill()
        """))
    s.said("awake")
    for i in range(1, 3):
        s.said("asleep", i)
        below = tree(children(s.process.pid)[0])
        assert len([b for b in below if "ticks" in b[1]]) >= 2 and len(below) >= 4, below
        assert {state[0] for _, _, state in below} == {"T"}, below
        size = ticks.stat().st_size
        time.sleep(0.2)
        assert ticks.stat().st_size == size
        server.write(f"hello {i}")
        wait_for(lambda: history(server).count("here") == i)
        wait_for(lambda: ticks.stat().st_size > size)
    pids = [b[0] for b in tree(children(s.process.pid)[0]) if "ticks" in b[1]]
    assert s.end() == 0
    for pid in pids:
        try:
            os.kill(int(pid), SIGKILL)
        except ProcessLookupError:
            pass


def test_sleeper_says_how_it_is_used(bellhop):
    run = lambda *words, **env: subprocess.run([PROGRAM, "sleeper", *words], capture_output=True, text=True,
                                               env={"PATH": os.environ["PATH"], **env})
    assert "--wake-listen" in run("--help").stdout
    assert run().returncode == 2
    assert run("--idle", "soon", "--wake-listen", "127.0.0.1:0", "--", "cat").returncode == 2
    assert "GATEWAY_RELAY_URL" in run("--idle", "5m", "--wake-listen", "127.0.0.1:0", "--", "cat").stderr
    where = {"GATEWAY_RELAY_URL": bellhop.url, "GATEWAY_RELAY_ID": "x", "GATEWAY_RELAY_SECRET": "y"}
    for wrong in (["--mode", "nap"], ["--schedule", "sometimes"], ["--schedule", "25:00"]):
        assert run("--idle", "5m", "--wake-listen", "127.0.0.1:0", *wrong, "--", "cat", **where).returncode == 2
    assert "cannot listen" in run("--idle", "5m", "--wake-listen", f"127.0.0.1:{bellhop.port}", "--", "cat",
                                  **where).stderr


def test_manage_instance_tells_a_gateway_about_itself_only(bellhop):
    c = bellhop.add(wake_url="http://127.0.0.1:9/wake")
    got = bellhop.get("/manage/instance", headers={"Authorization": f"Bearer {c.token()}"})
    assert got.status == 200
    assert got.json["gatewayId"] == c.id and got.json["state"] == "never"
    assert got.json["wakeUrlRegistered"] is True and got.json["mailbox"]["entries"] == 0
    assert got.json["wakeUrl"] == "http://127.0.0.1:9/wake" and got.json["now"] > 0
    assert bellhop.get("/manage/instance").status == 401
    assert bellhop.get("/manage/instance", headers={"Authorization": "Bearer x"}).status == 401


# ---- many rounds ----


class Rounds:
    """One agent, one sleeper, and a person who writes at bad moments. Everything is drawn from one seed."""

    def __init__(self, server, make, seed):
        self.server, self.make, self.random = server, make, random.Random(seed)
        self.port = free_port()
        self.credential = server.add(wake_url=f"http://127.0.0.1:{self.port}/wake")
        self.sleeper = self.make(self.port, self.credential)
        self.written = []  # (visitor, text): a page of history is short, so people take turns

    def write(self):
        visitor, text = f"e2e-visitor-{len(self.written) // 10:06}", f"m{len(self.written)}"
        status = self.server.write(text, visitor=visitor)
        assert status in (200, 202), status
        self.written.append((visitor, text))

    def kill_sleeper(self):
        self.sleeper.end(SIGKILL)
        if self.random.random() < 0.5:
            self.write()
        self.sleeper = self.make(self.port, self.credential)

    def lose_a_poke(self):
        """The listener is deaf for a moment: the connector's poke runs into nothing, and is repeated."""
        self.sleeper.process.send_signal(SIGSTOP)
        self.write()
        time.sleep(self.random.random() * 0.3)
        os.kill(self.sleeper.process.pid, 18)

    def wait_for_state(self, state):
        wait_for(lambda: self.sleeper.health()["state"] in (state, "asleep"), 30)

    def round(self):
        how = self.random.choice(["asleep", "asleep", "draining", "settling", "starting", "two", "kill", "lost", "any"])
        if how == "asleep" or how == "two":
            self.sleeper.asleep()
        elif how in ("draining", "settling"):
            end = time.monotonic() + 2
            while self.sleeper.health()["state"] != how and time.monotonic() < end:
                time.sleep(0.002)
        elif how == "kill":
            self.kill_sleeper()
        elif how == "lost":
            self.sleeper.asleep()
            self.lose_a_poke()
        else:
            time.sleep(self.random.random() * 0.6)
        self.write()
        if how in ("two", "starting"):
            time.sleep(self.random.random() * 0.05)
            self.write()

    def seen(self):
        return [t for v in sorted({v for v, _ in self.written}) for t in history(self.server, v)]

    def settled(self):
        texts = [t for _, t in self.written]
        return sorted(self.seen()) == sorted(texts + ["echo " + t for t in texts])


def run_rounds(server, start_sleeper, program, seed, rounds, budget_s):
    r = Rounds(server, lambda port, c: start_sleeper(server, c, port, agent(program), idle="200ms"), seed)
    began, done = time.monotonic(), 0
    while done < rounds and time.monotonic() - began < budget_s:
        r.round()
        done += 1
    try:
        wait_for(r.settled, 60, every=0.3)
    except AssertionError:
        got = r.seen()
        raise AssertionError(f"seed {seed}: lost {[t for _, t in r.written if 'echo ' + t not in got]}, twice "
                             f"{[t for t in set(got) if got.count(t) > 1]}") from None
    r.sleeper.asleep()
    time.sleep(0.5)
    assert r.settled(), f"seed {seed}: answered twice"
    assert r.sleeper.health()["state"] == "asleep", "never awake without need"
    assert not children(r.sleeper.process.pid)
    return done


def test_many_rounds_of_sleep_and_wake(make_bellhop, start_sleeper, script):  # noqa: F811
    seed = int(os.environ.get("SLEEPER_SEED", "20261115"))
    server = make_bellhop(CONFIG.replace("cooldown: 300ms", "cooldown: 150ms"))
    done = run_rounds(server, start_sleeper, script(ECHO), seed, int(os.environ.get("SLEEPER_ROUNDS", "30")), 150)
    assert done >= 25, "the machine is too slow to say anything"
    print(json.dumps({"seed": seed, "rounds": done}))


def test_a_command_is_run_at_each_poke_and_needs_no_credential(tmp_path):
    port, ran = free_port(), tmp_path / "ran"
    process = subprocess.Popen([PROGRAM, "sleeper", "--mode", "start", "--wake-listen", f"127.0.0.1:{port}", "--",
                                "sh", "-c", f"echo x >> {ran}; exit 3"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={"PATH": os.environ["PATH"]})
    url = f"http://127.0.0.1:{port}"

    def health():
        try:
            return http("GET", url + "/healthz").json
        except OSError:
            return {}

    wait_for(lambda: health().get("state") == "asleep")
    assert not ran.exists(), "nothing runs before a poke"
    for n in (1, 2):
        assert http("GET", url + "/wake").status in (200, 202, 204)
        wait_for(lambda n=n: (now := health())["state"] == "asleep" and now["wakes"] == n)
        assert ran.read_text() == "x\n" * n
    process.send_signal(SIGTERM)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "the command failed: exit status 3" in err, err

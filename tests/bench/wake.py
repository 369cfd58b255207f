"""What waking an agent costs, and what a thousand sleeping ones weigh.

Latency: a message is posted to the chat page of an agent that sleeps; the time is taken just before the POST and,
by the agent program itself, when it has read the line. What the program's own start takes (measured alone, by the
same clock, with the line already waiting) is not bellhop's; the rest is: the connector's accept, its poke, the sleeper,
the start of `bellhop agent`, its connection, the handshake, the delivery, the pipe.

The first wake of a connector loads libcurl for its poke; it is told apart and not among the others.

Memory: a thousand gateways, each asleep with its own `bellhop sleeper`: the sum of their PSS, and with it what the kernel
keeps for them (stacks, page tables, slabs that cannot be reclaimed), as the growth of the whole machine's.
"""
import base64
import hashlib
import hmac
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import report

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {state}
wake: {{cooldown: 100ms, timeout: 2s, allow_private: true}}
log: {{level: warn}}
platforms:
  - {{platform: web, bot: lobby}}
"""
VISITOR = "bench-visitor-0000"


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("bellhop")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Server:
    def __init__(self, program, work):
        self.program, self.dir = program, os.path.join(work, "wake")
        os.makedirs(self.dir, exist_ok=True)
        self.state = os.path.join(self.dir, "state")
        config = os.path.join(self.dir, "bellhop.yaml")
        with open(config, "w") as f:
            f.write(CONFIG.format(state=self.state))
        self.process = subprocess.Popen([program, "serve", "-c", config], stdout=subprocess.PIPE, text=True,
                                        stderr=open(os.path.join(self.dir, "log"), "a"))
        if "ready" not in self.process.stdout.readline():
            raise RuntimeError(f"bellhop did not start, see {self.dir}/log")
        with open(os.path.join(self.state, "port")) as f:
            self.port = int(f.read())
        self.url = f"http://127.0.0.1:{self.port}"

    def add(self, gateway, wake_url, tenant="bench", **more):
        c = UnixConnection(os.path.join(self.state, "admin.sock"))
        c.request("POST", "/admin/gateways/add", json.dumps({"id": gateway, "tenant": tenant, "wakeUrl": wake_url, **more}),
                  {"Content-Type": "application/json"})
        answer = json.loads(c.getresponse().read())
        c.close()
        return {"GATEWAY_RELAY_URL": self.url, "GATEWAY_RELAY_ID": gateway, "GATEWAY_RELAY_SECRET": answer["secret"]}

    def write(self, text):
        """The moment before the message was sent, in microseconds."""
        c = http.client.HTTPConnection("127.0.0.1", self.port)
        c.connect()
        t0 = time.monotonic_ns() // 1000
        c.request("POST", "/chat/lobby/api/message", json.dumps({"text": text}),
                  {"Content-Type": "application/json", "X-Bellhop-Visitor": VISITOR})
        status = c.getresponse().status
        c.close()
        if status not in (200, 202):
            raise RuntimeError(f"HTTP {status}")
        return t0

    def state_of(self, env):
        c = http.client.HTTPConnection("127.0.0.1", self.port)
        c.request("GET", "/manage/instance", headers={"Authorization": "Bearer " + token(env)})
        answer = json.loads(c.getresponse().read())
        c.close()
        return answer["state"]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def token(env):
    signed = f"{env['GATEWAY_RELAY_ID']}:{int(time.time()) + 300}"
    mac = hmac.new(env["GATEWAY_RELAY_SECRET"].encode(), signed.encode(), hashlib.sha256).hexdigest()
    return base64.urlsafe_b64encode(f"{signed}:{mac}".encode()).rstrip(b"=").decode()


def frame(payload):
    """One masked WebSocket text frame (the mask is zero: this is a loopback)."""
    n = len(payload)
    head = bytes([0x81, 0x80 | n]) if n < 126 else bytes([0x81, 0xFE]) + n.to_bytes(2, "big")
    return head + b"\0\0\0\0" + payload


def send_to_sleep(server, env):
    """Connect once, say hello, say goodbye: from now on the connector knows it as asleep."""
    s = socket.create_connection(("127.0.0.1", server.port))
    s.settimeout(20)
    s.sendall((f"GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
               f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {token(env)}\r\n\r\n").encode())
    s.sendall(frame(b'{"type":"hello","platform":"web","botId":"lobby"}\n') + frame(b'{"type":"going_idle"}\n'))
    got = b""
    while b"going_idle_ack" not in got:
        more = s.recv(65536)
        if not more:
            raise RuntimeError("the connector closed: " + got.decode(errors="replace")[:200])
        got += more
    s.close()


class Sleeper:
    def __init__(self, program, env, where, process, idle, mode="exit", log=None):
        self.where = where
        self.process = subprocess.Popen([program, "sleeper", "--idle", idle, "--mode", mode, "--wake-listen", where, "--",
                                         *process], env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=log)

    def state(self):
        host, port = self.where.rsplit(":", 1)
        try:
            c = http.client.HTTPConnection(host, int(port), timeout=5)
            c.request("GET", "/healthz")
            answer = json.loads(c.getresponse().read())
            c.close()
            return answer["state"]
        except OSError:
            return "down"

    def wait(self, state, patience=60):
        end = time.monotonic() + patience
        while self.state() != state:
            if time.monotonic() > end:
                raise RuntimeError(f"{self.where} is {self.state()}, not {state}")
            time.sleep(0.01)


def read_stamps(path):
    try:
        with open(path) as f:
            return [tuple(map(int, line.split())) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


class Wake:
    def __init__(self, options, tools, work):
        self.o, self.tools, self.work = options, tools, work
        self.program = os.path.join(options.build, "bellhop")
        self.stamp = os.path.join(tools, "stamp")
        self.rounds, self.sleepers = options.wakes, options.sleepers
        self.results = {"wake": {}}

    def say(self, *words):
        print("..", *words, file=sys.stderr, flush=True)

    def bare_start(self, name, command):
        """From spawning the program to the line in its hand, with the line already in the pipe."""
        took = []
        for i in range(20):
            path = os.path.join(self.work, f"bare-{name}-{i}")
            t0 = time.monotonic_ns() // 1000
            subprocess.run([*command, path], input=b'{"type":"message"}\n', stdout=subprocess.DEVNULL, check=True)
            took.append((read_stamps(path)[0][1] - t0) / 1000)
        return statistics.median(took)

    def latency(self, server, name, env, mode):
        path, port = os.path.join(self.work, f"stamps-{name}"), 17800 + len(self.results["wake"])
        where = f"127.0.0.1:{port}"
        log = open(os.path.join(self.work, f"log-{name}"), "w")
        s = Sleeper(self.program, env, where, [self.program, "agent", "--quiet", "--platform", "web=lobby", "--", self.stamp,
                                               path], "150ms", mode, log)
        took = []
        try:
            for i in range(self.rounds + 1):
                s.wait("asleep")
                time.sleep(0.02)
                t0 = server.write(f"wake {i}")
                end = time.monotonic() + 20
                while len(read_stamps(path)) <= i:
                    if time.monotonic() > end:
                        raise RuntimeError(f"{name}: message {i} was never handed over")
                    time.sleep(0.001)
                took.append((read_stamps(path)[i][1] - t0) / 1000)
        finally:
            s.process.terminate()
            s.process.wait(60)
        first, took = took[0], took[1:]
        bare = self.bare_start(name, [self.stamp])
        r = {"wakes": len(took), "first_ms": first, "p50_ms": percentile(took, 50), "p99_ms": percentile(took, 99), "max_ms": max(took),
             "program_start_ms": bare, "bellhop_p50_ms": percentile(took, 50) - (bare if mode == "exit" else 0),
             "bellhop_p99_ms": percentile(took, 99) - (bare if mode == "exit" else 0)}
        self.results["wake"][name] = r
        self.say(f"wake     {name:10} p50 {r['p50_ms']:.1f} ms, p99 {r['p99_ms']:.1f} ms")

    def crowd(self, server):
        n = self.sleepers
        self.say(f"{n} gateways go to sleep")
        envs = []
        for i in range(n):
            where = f"127.1.{i // 250}.{i % 250 + 1}:17799"
            envs.append((where, server.add(f"crowd-{i}", f"http://{where}/wake", "crowd")))
            send_to_sleep(server, envs[-1][1])
        before = kernel_kb()
        made = []
        try:
            for i, (where, env) in enumerate(envs):
                made.append(Sleeper(self.program, env, where, [self.program, "agent", "--", self.stamp, "/dev/null"], "1h",
                                    log=subprocess.DEVNULL))
                if i % 8 == 7:  # a few at a time: each asks the connector three questions
                    made[-8].wait("asleep", 120)
            for s in made:
                s.wait("asleep", 120)
            time.sleep(1)
            pss = [pss_kb(s.process.pid) for s in made]
            self.results["asleep"] = {"sleepers": n, "pss_kb": sum(p[0] for p in pss) / n,
                                      "private_kb": sum(p[1] for p in pss) / n,
                                      "kernel_kb": (kernel_kb() - before) / n}
            self.results["asleep"]["whole_kb"] = self.results["asleep"]["pss_kb"] + self.results["asleep"]["kernel_kb"]
        finally:
            for s in made:
                s.process.terminate()
            for s in made:
                s.process.wait(30)

    def run(self):
        server = Server(self.program, self.work)
        try:
            env = server.add("exits", "http://127.0.0.1:17800/wake", platform="web", bot="lobby")
            self.latency(server, "exit", env, "exit")
            c = UnixConnection(os.path.join(server.state, "admin.sock"))
            c.request("POST", "/admin/gateways/set", json.dumps({"id": "exits", "wakeUrl": "http://127.0.0.1:17801/wake"}),
                      {"Content-Type": "application/json"})
            c.getresponse().read()
            self.latency(server, "freeze", env, "freeze")
            self.crowd(server)
        finally:
            server.stop()
        return self.results

    def show(self):
        r = self.results
        print("\nfrom a message posted to an agent that sleeps to the line read by its program, in milliseconds")
        report.table(["", "wakes", "first", "p50", "p99", "max", "program's own start", "bellhop p50", "bellhop p99"],
                     [[n, w["wakes"]] + [f"{w[k]:.1f}" for k in ("first_ms", "p50_ms", "p99_ms", "max_ms", "program_start_ms",
                                                                 "bellhop_p50_ms", "bellhop_p99_ms")]
                      for n, w in r["wake"].items()])
        a = r["asleep"]
        print(f"\n{a['sleepers']:,} sleeping agents, sleepers included, in KiB each")
        report.table(["", "PSS", "of it private", "kernel", "together"],
                     [["asleep"] + [f"{a[k]:.0f}" for k in ("pss_kb", "private_kb", "kernel_kb", "whole_kb")]])
        rows = [("wake, share of bellhop, p99", "< 5 ms", f"{r['wake']['exit']['bellhop_p99_ms']:.1f} ms (exit), "
                 f"{r['wake']['freeze']['bellhop_p99_ms']:.1f} ms (freeze)",
                 r["wake"]["exit"]["bellhop_p99_ms"] < 5),
                ("memory of a sleeping agent", "< 200 KB", f"{a['whole_kb'] * 1.024:.0f} KB, "
                 f"{a['pss_kb'] * 1.024:.0f} KB without the kernel's part", a["whole_kb"] * 1.024 < 200)]
        r["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]
        report.print_targets(r["targets"])

    def panels(self):
        return [("wake: post to line, p50", " ms", [(n, w["p50_ms"]) for n, w in self.results["wake"].items()]),
                ("wake: post to line, p99", " ms", [(n, w["p99_ms"]) for n, w in self.results["wake"].items()]),
                ("KiB per sleeping agent", " KiB", [("PSS", self.results["asleep"]["pss_kb"]),
                                                    ("with the kernel's", self.results["asleep"]["whole_kb"])])]


def kernel_kb():
    with open("/proc/meminfo") as f:
        return sum(int(line.split()[1]) for line in f if line.split(":")[0] in ("KernelStack", "PageTables", "SUnreclaim"))


def pss_kb(pid):
    pss = private = 0
    with open(f"/proc/{pid}/smaps_rollup") as f:
        for line in f:
            if line.startswith("Pss:"):
                pss = int(line.split()[1])
            if line.startswith("Private_"):
                private += int(line.split()[1])
    return pss, private

"""Three nodes of which one serves and all take connections (cluster.serve: all): webhooks come to the second, gateways hang on
the third, and what that costs beside both on the node that serves.

The hop is from the commit to a gateway on another node: by the time the publisher, on the node that serves, has its answer the
message is committed, so it is what the frame comes later than the answer, and the answer's own way.
"""
import os
import socket
import statistics
import subprocess
import time

import peers

QUIET_RATE, FACTS = 200, 20
LEASE = "15s"


class Node(peers.Bellhop):
    """One of several that carry to each other."""

    def __init__(self, name, tools, work, program, bots, database, key):
        super().__init__(name, tools, work, program, bots, bots)
        self.database, self.key = database, key

    def more(self):
        return [f'master_key: "{self.key}"', f'store: {{kind: postgres, url: "{self.database.url}"}}',
                f"cluster: {{node: {self.name}, lease: {LEASE}, serve: all, drain: 0s}}"]

    def healthz_us(self):
        took = []
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(500):
                begun = time.perf_counter()
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                s.recv(4096)
                took.append((time.perf_counter() - begun) * 1e6)
        return statistics.median(took)


def read(s, n):
    got = b""
    while len(got) < n:
        chunk = s.recv(n - len(got))
        if not chunk:
            raise RuntimeError("a connection was cut")
        got += chunk
    return got


def first_byte(s):
    """Of the next frame, which is read to its end."""
    head = read(s, 2)
    n = head[1] & 127
    read(s, int.from_bytes(read(s, 2), "big") if n == 126 else n)
    return head[0]


def dial(port, token, bot):
    """A gateway's socket that was let in, or None: closed after the upgrade."""
    hello = f'{{"type":"hello","platform":"web","botId":"{bot}"}}\n'.encode()
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(20)
    s.sendall((f"GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
               f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {token}\r\n\r\n").encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += read(s, 1)
    if b" 101 " in head:
        s.sendall(bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello)
        if first_byte(s) == 0x81:
            return s
    s.close()
    return None


class Carried:
    """@places: where publishers and where receivers connect."""

    def __init__(self, tools, work, program, bots, database, cpu_of_database, say):
        key = os.urandom(32).hex()
        self.nodes = [Node(n, tools, work, program, bots, database, key) for n in ("serves", "second", "third")]
        self.bots, self.cpu_of_database, self.say = bots, cpu_of_database, say
        self.results = {}

    def start(self):
        for n in self.nodes:
            n.start()
        self.nodes[0].prepare()

    def stop(self):
        for n in reversed(self.nodes):
            n.stop()

    def cpu(self):
        return [n.cpu_s() for n in self.nodes] + [self.cpu_of_database()]

    def load(self, mode, there, gateways, **options):
        first = self.nodes[0]
        args = first.load_args(mode, **options) + ["--receivers-port", str(gateways.port)]
        args[args.index("--port") + 1] = str(there.port)
        before = self.cpu()
        done = subprocess.run(args, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{mode} over {there.name} and {gateways.name} failed, see above and {first.dir}/log")
        first.wait_quiet()
        result = peers.json.loads(done.stdout)
        spent = [after - b for after, b in zip(self.cpu(), before)]
        result["server_cpu_s"], result["heart_cpu_s"] = sum(spent), spent[0]
        return result

    def loads(self, seconds):
        serves, second, third = self.nodes
        for place, at in (("all on the node that serves", (serves, serves)), ("over two others", (second, third))):
            for mode in ("live", "accept"):
                r = self.load(mode, *at, seconds=seconds, receivers=self.bots)
                if mode == "accept":
                    self.load("drain", *at, events=r["events"], receivers=self.bots)
                row = {"rate": r["rate"], "per_cpu_s": r["events"] / r["server_cpu_s"],
                       "heart_us": r["heart_cpu_s"] / r["events"] * 1e6}
                self.results.setdefault(mode, {})[place] = row
                self.say(f"carried  {mode:8} {place:28} {r['rate']:10,.0f}/s, the node that serves {row['heart_us']:.1f} us of CPU each")

    def hop(self):
        serves, second, third = self.nodes
        own = serves.healthz_us()
        far = self.load("latency", serves, third, seconds=3, rate=QUIET_RATE, receivers=self.bots)
        near = self.load("latency", serves, serves, seconds=3, rate=QUIET_RATE, receivers=self.bots)
        both = self.load("latency", second, third, seconds=3, rate=QUIET_RATE, receivers=self.bots)
        self.results["hop_us"] = far["receiver_after_receipt"]["p50_us"] + own / 2
        self.results["latency"] = {"all on the node that serves": near["to_receiver"], "the gateway elsewhere": far["to_receiver"],
                                   "both elsewhere": both["to_receiver"]}
        self.say(f"carried  a hop after its commit: {self.results['hop_us']:.0f} us")

    def added(self, n):
        """Added on the second node: until the third lets it in."""
        begun = time.monotonic()
        made = self.nodes[1].admin("POST", "/admin/gateways/add", {"id": f"f{n}", "tenant": "bench", "instance": f"f{n}",
                                                                   "platform": "web", "bot": "b00000"})
        token = peers.mint(f"f{n}", made["secret"])
        s = None
        while s is None:
            s = dial(self.nodes[2].port, token, "b00000")
        return s, token, (time.monotonic() - begun) * 1e3

    def revoked(self, n, s, token):
        """Revoked on the second node: until its socket on the third is closed, and no other is opened."""
        begun = time.monotonic()
        self.nodes[1].admin("POST", "/admin/gateways/revoke", {"id": f"f{n}"})
        while first_byte(s) != 0x88:
            pass
        took = (time.monotonic() - begun) * 1e3
        if dial(self.nodes[2].port, token, "b00000") is not None:
            raise RuntimeError("a revoked gateway was let in")
        return took

    def facts(self):
        added, revoked = [], []
        for n in range(FACTS):
            s, token, took = self.added(n)
            added.append(took)
            revoked.append(self.revoked(n, s, token))
            s.close()
        self.results["facts"] = {name: {"p50_ms": statistics.median(took), "max_ms": max(took)}
                                 for name, took in (("added", added), ("revoked", revoked))}
        self.say("carried  facts: " + ", ".join(f"{k} p50 {v['p50_ms']:.1f} ms, most {v['max_ms']:.1f} ms"
                                                for k, v in self.results["facts"].items()))

    def run(self, seconds):
        try:
            self.start()
            self.loads(seconds)
            self.hop()
            self.facts()
        finally:
            self.stop()
        return self.results

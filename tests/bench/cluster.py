"""bellhop on PostgreSQL beside bellhop on SQLite, the ceilings of PostgreSQL and Redis in the same run, three nodes that carry
connections to each other (carried.py), and how long nobody serves when the node that did is killed or stopped.

CPU is that of all processes of a side: bellhop's, and the database server's with all its children. PostgreSQL is in memory and
tells no disk of its commits, so that two cores are what is measured; "on this disk" is the same with every commit on it.
"""
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import carried
import peers
import report

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import servers  # noqa: E402  PostgreSQL and Redis of our own

RECEIVERS, RATE, FAILOVERS = 100, 2000, 5
ROWS_AT_ONCE = 128


def cpu_of(pid):
    try:
        total = 0
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                total += int(f.read().split()[0])
        return total / 1e9
    except OSError:
        return 0


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


def cpu_of_database(database):
    server = database.process.pid
    return sum(cpu_of(p) for p in [server] + children(server))


class OnPostgres(peers.Bellhop):
    """The same as on SQLite but for two lines of configuration."""

    def __init__(self, name, tools, work, program, bots, gateways, database):
        super().__init__(name, tools, work, program, bots, gateways)
        self.database = database

    def more(self):
        return [f'store: {{kind: postgres, url: "{self.database.url}"}}', "cluster: {node: bench}"]

    def cpu_s(self):
        return super().cpu_s() + cpu_of_database(self.database)


class Cluster:
    def __init__(self, options, tools, work):
        self.o, self.tools, self.work = options, tools, work
        tempfile.tempdir = work  # not in /tmp, which may be memory
        self.program = os.path.join(options.build, "bellhop")
        self.database = servers.Postgres()
        self.sqlite = peers.Bellhop("sqlite", tools, work, self.program, RECEIVERS, RECEIVERS)
        self.postgres = OnPostgres("postgres", tools, work, self.program, RECEIVERS, RECEIVERS, self.database)
        self.results = {load: {} for load in ("live", "accept", "drain", "latency", "ceiling", "carried", "failover")}

    def say(self, *words):
        print("..", *words, file=sys.stderr, flush=True)

    def note(self, load, name, result):
        total = self.results[load].setdefault(name, {"events": 0, "seconds": 0, "server_cpu_s": 0})
        for key in ("events", "seconds", "server_cpu_s"):
            total[key] += result[key]
        total["rate"] = total["events"] / total["seconds"]
        total["per_cpu_s"] = total["events"] / max(total["server_cpu_s"], 1e-9)
        self.say(f"{load:8} {name:10} {result['rate']:12,.0f}/s")

    # ---- what the engines do alone ----

    def pgbench(self, name, script):
        path = os.path.join(self.work, "script.sql")
        with open(path, "w") as f:
            f.write(script)
        done = subprocess.run([self.database.bin / "pgbench", "-n", "-c", "4", "-T", str(int(self.o.seconds + 1)), "-f", path,
                               "-h", self.database.dir, "-U", "bellhop", "postgres"], text=True, capture_output=True, check=True)
        rate = float(re.search(r"tps = ([0-9.]+)", done.stdout).group(1)) * ROWS_AT_ONCE
        self.results["ceiling"][name] = rate
        self.say(f"ceiling  {name:32} {rate:12,.0f} rows/s")

    def ceilings(self):
        self.database.sql("CREATE TABLE ceiling (id bigserial PRIMARY KEY, at bigint, frame bytea)")
        self.pgbench("multi-row insert, committed",
                     f"INSERT INTO ceiling (at, frame) SELECT 1, decode(repeat('ab', 510), 'hex') FROM generate_series(1, {ROWS_AT_ONCE});\n")
        rows = 50000
        path = os.path.join(self.work, "rows.txt")
        with open(path, "w") as f:
            f.write(f"1\t\\\\x{'ab' * 510}\n" * rows)
        begun = time.monotonic()
        with open(path) as f:
            subprocess.run([self.database.bin / "psql", "-h", self.database.dir, "-U", "bellhop", "-d", "postgres", "-qc",
                            "COPY ceiling (at, frame) FROM STDIN"], stdin=f, check=True)
        self.results["ceiling"]["COPY"] = rows / (time.monotonic() - begun)
        self.say(f"ceiling  {'COPY':32} {self.results['ceiling']['COPY']:12,.0f} rows/s")
        self.database.sql("DROP TABLE ceiling")
        self.redis_hop()

    def redis_hop(self):
        """From PUBLISH to the subscriber, one at a time."""
        redis = servers.Redis().start()
        took = []
        try:
            with socket.create_connection(("127.0.0.1", redis.port)) as sub, socket.create_connection(("127.0.0.1", redis.port)) as pub:
                for s in (sub, pub):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sub.sendall(b"SUBSCRIBE hop\r\n")
                sub.recv(4096)
                for _ in range(3000):
                    begun = time.perf_counter()
                    pub.sendall(b"PUBLISH hop " + b"x" * 500 + b"\r\n")
                    sub.recv(4096)
                    took.append((time.perf_counter() - begun) * 1e6)
                    pub.recv(4096)
        finally:
            redis.clean()
        self.results["ceiling"]["redis_hop_us"] = statistics.median(took)
        self.say(f"ceiling  one Redis publish: {statistics.median(took):.0f} us")

    # ---- bellhop on each ----

    def loads(self):
        for peer in (self.sqlite, self.postgres):
            self.note("live", peer.name, peer.load("live", seconds=self.o.seconds, receivers=RECEIVERS))
            kept = peer.load("accept", seconds=self.o.seconds, receivers=RECEIVERS)
            self.note("accept", peer.name, kept)
            self.note("drain", peer.name, peer.load("drain", events=kept["events"], receivers=RECEIVERS))

    def latency(self):
        for peer in (self.sqlite, self.postgres):
            r = peer.load("latency", seconds=3, rate=RATE, receivers=RECEIVERS)
            self.results["latency"][peer.name] = r["to_receiver"]
            self.say(f"latency  {peer.name:10} p50 {r['to_receiver']['p50_us']} us, p99 {r['to_receiver']['p99_us']} us")

    def on_disk(self):
        """Accepts with every commit on the disk, with as many publishers as elsewhere and with four times as many."""
        database = servers.Postgres(on_disk=True).start()
        peer = OnPostgres("on this disk", self.tools, self.work, self.program, RECEIVERS, RECEIVERS, database)
        try:
            peer.start()
            peer.prepare()
            for publishers in (128, 512):
                self.note("accept", f"postgres on this disk, {publishers} at once",
                          peer.load("accept", seconds=self.o.seconds, receivers=RECEIVERS, publishers=publishers))
        finally:
            peer.stop()
            database.clean()

    def carry(self):
        three = carried.Carried(self.tools, self.work, self.program, RECEIVERS, self.database,
                                lambda: cpu_of_database(self.database), self.say)
        self.results["carried"] = three.run(self.o.seconds)

    # ---- a node dies ----

    def ready(self, port):
        try:
            peers.wait_until(lambda: self.ask_ready(port), 0)
            return True
        except (OSError, RuntimeError):
            return False

    def ask_ready(self, port):
        with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
            s.settimeout(1)
            peers.exchange(s, "GET", "/readyz")

    def somebody_serves(self, nodes):
        if not any(self.ready(n.port) for n in nodes):
            raise RuntimeError("nobody serves")

    def failovers(self, nodes, how):
        took = []
        for _ in range(FAILOVERS):
            peers.wait_until(lambda: self.somebody_serves(nodes), 60)
            serving = next(n for n in nodes if self.ready(n.port))
            begun = time.monotonic()
            serving.process.send_signal(how)
            others = [n for n in nodes if n is not serving]
            while not any(self.ready(n.port) for n in others):
                time.sleep(0.02)
                if time.monotonic() - begun > 60:
                    raise RuntimeError("nobody took over within a minute")
            took.append(time.monotonic() - begun)
            serving.process.kill()
            serving.process.wait()
            serving.start()
        return sorted(took)

    def failover(self):
        key = os.urandom(32).hex()
        nodes = [Node(f"node{n}", self.work, self.program, self.database, key) for n in (1, 2, 3)]
        for n in nodes:
            n.start()
        peers.wait_until(lambda: self.somebody_serves(nodes), 60)
        try:
            for name, how in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP), ("told to end", signal.SIGTERM)):
                took = self.failovers(nodes, how)
                self.results["failover"][name] = {"p50_s": statistics.median(took), "max_s": took[-1]}
                self.say(f"failover {name:12} p50 {statistics.median(took):.2f} s, most {took[-1]:.2f} s")
        finally:
            for n in nodes:
                n.process.kill()
                n.process.wait()

    def run(self):
        self.database.start()
        try:
            self.ceilings()
            for peer in (self.sqlite, self.postgres):
                peer.start()
                peer.prepare()
            for _ in range(self.o.rounds):
                self.loads()
            self.latency()
            for peer in (self.sqlite, self.postgres):
                peer.stop()
            self.on_disk()
            self.database.sql("DROP SCHEMA bellhop CASCADE")
            self.carry()
            self.database.sql("DROP SCHEMA bellhop CASCADE")
            self.failover()
        finally:
            for peer in (self.sqlite, self.postgres):
                peer.stop()
            self.database.clean()
        return self.results

    def targets(self):
        rate = self.results["accept"]["postgres"]["rate"]
        worst = self.results["failover"]["killed"]["max_s"]
        three = self.results["carried"]
        hop, fact = three["hop_us"] / self.results["ceiling"]["redis_hop_us"], max(f["max_ms"] for f in three["facts"].values())
        rows = [("durable accepts on PostgreSQL", ">= 15k/s", report.number(rate) + "/s", rate >= 15000),
                ("the same, the goal", ">= 25k/s", report.number(rate) + "/s", rate >= 25000),
                ("a hop to another node after its commit, times a Redis publish", "< 2.5", f"{hop:.2f}", hop < 2.5),
                ("a fact holds on another node", "<= 100 ms", f"{fact:.0f} ms", fact <= 100),
                ("a killed node is replaced (lease 5 s + 2 s)", "<= 7 s", f"{worst:.1f} s", worst <= 7)]
        return [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]

    def show(self):
        r = self.results
        for load, title in (("live", "live: accept -> socket -> ack"), ("accept", "accepted for sleeping gateways, on disk"),
                            ("drain", "drained")):
            print(f"\n{title}")
            report.table(["", "events/s", "per CPU-s of all processes"],
                         [[n, report.number(x["rate"]), report.number(x["per_cpu_s"])] for n, x in r[load].items()])
        print(f"\nlatency to the gateway at {RATE:,}/s, us")
        report.table(["", "p50", "p99"], [[n, f"{x['p50_us']:.0f}", f"{x['p99_us']:.0f}"] for n, x in r["latency"].items()])
        print("\nwhat the engines do alone")
        report.table(["", ""], [[n, f"{v:.0f} us" if n.endswith("_us") else report.number(v) + " rows/s"] for n, v in r["ceiling"].items()])
        self.show_carried(r["carried"])
        print(f"\nnobody serves, s ({FAILOVERS} times each, lease 5 s)")
        report.table(["the node that serves is", "p50", "most"], [[n, f"{x['p50_s']:.2f}", f"{x['max_s']:.2f}"] for n, x in r["failover"].items()])
        r["targets"] = self.targets()
        report.print_targets(r["targets"])

    def show_carried(self, three):
        for mode in ("live", "accept"):
            print(f"\n{mode}, three nodes; publishers and gateways are")
            report.table(["", "events/s", "per CPU-s of all processes", "CPU of the node that serves, us each"],
                         [[n, report.number(x["rate"]), report.number(x["per_cpu_s"]), f"{x['heart_us']:.1f}"] for n, x in three[mode].items()])
        print(f"\nlatency to the gateway at {carried.QUIET_RATE}/s, us; a hop after its commit: {three['hop_us']:.0f}")
        report.table(["", "p50", "p99"], [[n, f"{x['p50_us']:.0f}", f"{x['p99_us']:.0f}"] for n, x in three["latency"].items()])
        print("\na gateway on another node, ms")
        report.table(["", "p50", "most"], [[n, f"{x['p50_ms']:.1f}", f"{x['max_ms']:.1f}"] for n, x in three["facts"].items()])

    def panels(self):
        return [(title, "/s", [(n, x["rate"]) for n, x in self.results[load].items()])
                for load, title in (("live", "live"), ("accept", "accepted, on disk"), ("drain", "drained"))]


class Node(peers.Peer):
    """One of several on one database."""

    def __init__(self, name, work, program, database, key):
        super().__init__(name, None, work)
        self.program, self.database, self.key = program, database, key
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    def start(self):
        path = os.path.join(self.dir, "bellhop.yaml")
        with open(path, "w") as f:
            f.write(f'listen: 127.0.0.1:{self.port}\nstate_dir: {self.dir}/state\nmaster_key: "{self.key}"\n'
                    f'store: {{kind: postgres, url: "{self.database.url}"}}\ncluster: {{node: {self.name}, lease: 5s, serve: one}}\n')
        self.spawn([self.program, "serve", "-c", path], stdout=subprocess.DEVNULL)

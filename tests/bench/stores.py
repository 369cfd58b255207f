"""The skill and data stores over the wire, beside the Skillscript runtime's design: SQLite from Node behind /rpc.

Both write durably (a synced commit per write there, group commits here) and are asked by the same client over keep-alive
connections. Full text is also held against FTS5 from C on the very same database file, without a server around it.
"""
import json
import os
import shutil
import subprocess
import sys

import peers
import report

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = """\
listen: 127.0.0.1:0
public_url: http://127.0.0.1
state_dir: {state}
log: {{level: warn}}
limits: {{key_requests: 0, tenant_requests: 0, skill_bytes_per_tenant: 0, skill_bytes: 0, data_bytes_per_tenant: 0, data_bytes: 0,
  receipt_bytes_per_tenant: 0, receipt_bytes: 0}}
"""


class Bellhop(peers.Served):
    api = "v1"

    def __init__(self, tools, work, program):
        super().__init__(tools, work, program, CONFIG)

    def start(self):
        super().start()
        self.key = self.command("token", "agent", "--tenant", "bench", "--identity", "bench").strip()

    def data_file(self):
        return os.path.join(self.state, "data", "bench", "data.db")


class Node(peers.Peer):
    """Node with its own SQLite, which came with version 22: fetched from npm where the machine's is older."""
    api, key = "rpc", "none"

    def __init__(self, tools, work):
        super().__init__("node", tools, work)
        self.program = self.find(work)

    def find(self, work):
        test = ["-e", "require('node:sqlite')"]
        if shutil.which("node") and subprocess.run(["node"] + test, capture_output=True).returncode == 0:
            return "node"
        print("fetching Node 22 from npm for the comparison", flush=True)
        where = os.path.join(work, "npm")
        os.makedirs(where)
        with open(os.path.join(where, "package.json"), "w") as f:
            f.write('{"private": true}')
        done = subprocess.run(["npm", "install", "--silent", "node@22"], cwd=where, stdout=subprocess.DEVNULL)
        node = os.path.join(where, "node_modules", ".bin", "node")
        ok = done.returncode == 0 and subprocess.run([node] + test, capture_output=True).returncode == 0
        return node if ok else None

    def start(self):
        self.spawn_and_read_port([self.program, "--no-warnings", os.path.join(HERE, "stores.js"), self.dir])


class Stores:
    def __init__(self, options, tools, work):
        self.o, self.tools = options, tools
        self.bellhop = Bellhop(tools, work, os.path.join(options.build, "bellhop"))
        self.all = [self.bellhop]
        node = Node(tools, work)
        if node.program:
            self.all.append(node)
        else:
            print("Node with SQLite could not be had: measured without it", file=sys.stderr)
        self.results = {load: {} for load in ("write", "load", "query", "poll", "fts", "memory")}

    def say(self, what, peer, result):
        print(f".. {what:12} {peer:10} {result['rate']:12,.1f}/s  p50 {result['p50_us'] / 1000:.2f} ms", file=sys.stderr, flush=True)

    def ask(self, peer, what, seconds, connections, n):
        done = subprocess.run([os.path.join(self.tools, "stores"), what, peer.api, str(peer.port), peer.key, str(seconds),
                               str(connections), str(n)], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def measure(self, load, connections):
        for peer in self.all:
            before = peer.cpu_s()
            result = self.ask(peer, load, self.o.seconds, connections, self.o.skills)
            result["per_cpu_s"] = result["events"] / max(peer.cpu_s() - before, 0.001)
            kept = self.results[load].get(peer.name)
            if kept is None or result["rate"] > kept["rate"]:
                self.results[load][peer.name] = result
            self.say(load, peer.name, result)

    def memory(self, when):
        for peer in self.all:
            self.results["memory"].setdefault(peer.name, {})[when] = peer.rss_kb()

    def seed_skills(self, n):
        for peer in self.all:
            result = self.ask(peer, "seed-skills", 0, 64, n)
            self.say("seeding", peer.name, result)

    def seed_data(self, n):
        """Node fills its own store in large transactions; over the wire it would take an hour."""
        result = self.ask(self.bellhop, "seed-data", 0, 128, n)
        self.say("seeding", "bellhop", result)
        self.results["data_write"] = {"bellhop": result}
        for peer in self.all[1:]:
            for _ in range(0, n, 100000):
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                                   "params": {"name": "seed", "arguments": {"n": min(n, 100000)}}})
                subprocess.run(["curl", "-sf", "-d", body, f"http://127.0.0.1:{peer.port}/rpc"], check=True, stdout=subprocess.DEVNULL)

    def bare(self):
        done = subprocess.run([os.path.join(self.tools, "stores"), "fts-bare", self.bellhop.data_file(), str(self.o.seconds)],
                              check=True, stdout=subprocess.PIPE, text=True)
        result = json.loads(done.stdout)
        kept = self.results["fts"].get("FTS5 from C")
        if kept is None or result["rate"] > kept["rate"]:
            self.results["fts"]["FTS5 from C"] = result
        self.say("fts", "FTS5 from C", result)

    def run(self):
        for peer in self.all:
            peer.start()
        try:
            self.seed_skills(min(1000, self.o.skills))
            self.ask(self.bellhop, "seed-data", 0, 16, 1000)
            self.memory("few")
            self.seed_skills(self.o.skills)
            for _ in range(self.o.rounds):
                self.measure("write", 64)
                self.measure("load", 64)
                self.measure("poll", 16)
                self.measure("query", 4)
            self.seed_data(self.o.entries)
            for _ in range(self.o.rounds):
                self.bare()
                self.measure("fts", 1)
            self.memory("many")
        finally:
            for peer in self.all:
                peer.stop()
        return self.results

    def targets(self):
        r, rows = self.results, []

        def times(load, least, what):
            if "node" in r[load]:
                ahead = r[load]["bellhop"]["rate"] / r[load]["node"]["rate"]
                rows.append((what, f">= {least}", f"{ahead:.1f}", ahead >= least))
        times("write", 10, "durable writes, times Node")
        times("load", 2, "loads, times Node")
        times("poll", 20, "unchanged polls, times Node")
        share = r["fts"]["bellhop"]["rate"] / r["fts"]["FTS5 from C"]["rate"]
        rows.append(("full text, share of FTS5 from C", ">= 0.9", f"{share:.2f}", share >= 0.9))
        grown = (r["memory"]["bellhop"]["many"] - r["memory"]["bellhop"]["few"]) / 1024
        rows.append(("memory grown with all entries", "<= 64 MiB", f"{grown:.0f} MiB", grown <= 64))
        return [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]

    def show(self):
        names = {"write": "skills written, on disk (64 connections)", "load": "skills read (64)", "poll": "unchanged catalog asked for (16)",
                 "query": "50 of the skills by pattern and status (4)", "fts": "full text, two words, ten best (1)"}
        print(f"\n{self.o.skills:,} skills, {self.o.entries:,} entries")
        for load, title in names.items():
            print(f"\n{title}")
            report.table(["", "requests/s", "per server CPU-s", "p50 ms", "p99 ms"],
                         [[n, report.number(x["rate"]), report.number(x.get("per_cpu_s")), f"{x['p50_us'] / 1000:.2f}",
                           f"{x['p99_us'] / 1000:.2f}"] for n, x in self.results[load].items()])
        print("\nresident memory, MiB")
        report.table(["", "few entries", "all of them"], [[n, f"{m['few'] / 1024:.0f}", f"{m['many'] / 1024:.0f}"]
                                                          for n, m in self.results["memory"].items()])
        self.results["targets"] = self.targets()
        report.print_targets(self.results["targets"])

    def panels(self):
        return [(title, "/s", [(n, x["rate"]) for n, x in self.results[load].items()])
                for load, title in (("write", "skills written, on disk"), ("load", "skills read"), ("poll", "unchanged catalog"),
                                    ("query", "skills by pattern"), ("fts", "full text"))]

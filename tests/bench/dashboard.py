"""What an open dashboard costs: throughput at full load with and without it, memory with 10,000 instances, and how soon the page is there.

The live load of load.c runs on 100 of 10,000 gateways, in turns without a page and with one whose list of instances is open. The
share is told by events per second, and by events per CPU second of the server, which other work on the machine disturbs less. Then
Chromium opens the page on that server: the first paint, and how long after a jump to the middle of the list its rows are there.

What `bellhop why` costs: the durable accept of load.c, in turns on a server with the default `why.keep` and on one with 0.
"""
import http.client
import json
import os
import statistics
import sys
import threading
import time

import peers
import report

HERE = os.path.dirname(os.path.abspath(__file__))
RECEIVERS, INSTANCES, LOADS = 100, 10000, 5


class Viewer:
    """An open page: reads its stream and counts the bytes."""

    def __init__(self, peer):
        self.peer, self.bytes, self.rows, self.over = peer, 0, 0, False
        link = peer.admin("POST", "/admin/dashboard", {})["url"].split("#link=")[1]
        answer, said = self.ask("POST", "signin", {"link": link})
        self.headers = {"Cookie": answer.getheader("Set-Cookie").split(";")[0], "X-Bellhop-Csrf": json.loads(said)["csrf"]}
        self.stream = http.client.HTTPConnection("127.0.0.1", peer.port)
        self.stream.request("GET", "/dashboard/api/events", headers=self.headers)
        self.lines = self.stream.getresponse()
        while not (line := self.lines.readline()).startswith(b"data: "):
            pass
        look = {"stream": json.loads(line[6:])["stream"], "sort": "heard", "count": 60}
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        self.ask("POST", "look", look)

    def ask(self, method, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.peer.port, timeout=30)
        c.request(method, "/dashboard/api/" + path, json.dumps(body), {"Content-Type": "application/json", **getattr(self, "headers", {})})
        answer = c.getresponse()
        return answer, answer.read()

    def read(self):
        try:
            while line := self.lines.readline():
                self.bytes += len(line)
                self.rows += line.count(b'"n":')
        except (OSError, ValueError, AttributeError):
            pass

    def close(self):
        self.stream.sock.close()


class Forgetful(peers.Bellhop):
    """Writes nothing for `bellhop why` to disk."""

    def more(self):
        return ["why: {keep: 0}"]


def anonymous(peer):
    with open(f"/proc/{peer.process.pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss_Anon"))


class Dashboard:
    def __init__(self, options, tools, work):
        self.o = options
        self.peer = peers.Bellhop("bellhop", tools, work, os.path.join(options.build, "bellhop"), RECEIVERS, INSTANCES)
        self.plain = [kind(name, tools, work, self.peer.program, RECEIVERS, RECEIVERS)
                      for name, kind in (("with", peers.Bellhop), ("without", Forgetful))]
        self.results = {"load": {"without": {}, "with": {}}, "why": {"with": [], "without": []}}

    def say(self, *words):
        print("..", *words, file=sys.stderr, flush=True)

    def load(self, name):
        r = self.peer.load("live", seconds=self.o.seconds, receivers=RECEIVERS)
        total = self.results["load"][name]
        for key in ("events", "seconds", "server_cpu_s"):
            total[key] = total.get(key, 0) + r[key]
        total["best"] = max(total.get("best", 0), r["events"] / r["server_cpu_s"])
        self.say(f"{name:8} {r['rate']:12,.0f}/s {r['events'] / r['server_cpu_s']:12,.0f} per CPU-s")

    def memory(self):
        before = anonymous(self.peer)
        page = Viewer(self.peer)
        time.sleep(4)
        cpu, seen, at = self.peer.cpu_s(), page.bytes, time.monotonic()
        time.sleep(5)
        took = time.monotonic() - at
        self.results["page"] = {"bytes": anonymous(self.peer) - before, "per_instance": (anonymous(self.peer) - before) / INSTANCES,
                                "cpu_ms_per_s": (self.peer.cpu_s() - cpu) * 1e3 / took, "sent_per_s": (page.bytes - seen) / took}
        page.close()

    def browser(self):
        sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
        try:
            from web_rig import Page, wait_for
        except ImportError as e:
            self.say(f"without a browser: {e}")
            return
        url = f"http://127.0.0.1:{self.peer.port}/dashboard"
        page, paints, jumps = Page("about:blank"), [], []
        try:
            page.driver.get(self.peer.admin("POST", "/admin/dashboard", {})["url"])
            wait_for(lambda: page.find(".rows-body .row"))
            for _ in range(LOADS):
                page.driver.get("about:blank")
                page.driver.get(url)
                wait_for(lambda: page.find(".rows-body .row"))
                paints.append(page.js("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            for k in range(LOADS):
                jumps.append(page.driver.execute_async_script("""
                    const done = arguments[1], box = document.querySelector('.rows'), at = performance.now();
                    box.scrollTop = arguments[0] * 34;
                    const look = () => (document.querySelector(`.rows-body [aria-rowindex="${arguments[0] + 4}"]`)
                      ? done(performance.now() - at) : requestAnimationFrame(look));
                    look();""", 1000 + 1500 * k))
        finally:
            page.close()
        self.results["browser"] = {"first_paint_ms": sorted(paints)[LOADS // 2], "jump_ms": sorted(jumps)[LOADS // 2],
                                   "paints": paints, "jumps": jumps}

    def why(self):
        for peer in self.plain:
            peer.start()
        try:
            for peer in self.plain:
                peer.prepare()
            for k in range(4 * self.o.rounds + 1):
                for peer in self.plain if k % 2 == 0 else self.plain[::-1]:
                    r = peer.load("accept", seconds=self.o.seconds, receivers=RECEIVERS)
                    peer.load("drain", events=r["events"], receivers=RECEIVERS)
                    if k > 0:  # the first is warm-up
                        self.results["why"][peer.name].append(r["events"] / r["server_cpu_s"])
                    self.say(f"accept {peer.name:8} why {r['rate']:12,.0f}/s {r['events'] / r['server_cpu_s']:12,.0f} per CPU-s")
        finally:
            for peer in self.plain:
                peer.stop()

    def run(self):
        self.why()
        self.peer.start()
        try:
            self.say(f"adding {INSTANCES:,} gateways")
            self.peer.prepare()
            self.load("without")  # warm
            self.results["load"]["without"] = {}
            self.peer.wait_quiet()
            self.memory()
            for _ in range(2 * self.o.rounds):
                self.load("without")
                page = Viewer(self.peer)
                self.load("with")
                page.close()
            self.browser()
        finally:
            self.peer.stop()
        return self.results

    def show(self):
        rate, per_cpu = {}, {}
        for name, r in self.results["load"].items():
            rate[name], per_cpu[name] = r["events"] / r["seconds"], r["events"] / r["server_cpu_s"]
        print(f"\nlive: accept -> socket -> ack, {RECEIVERS} gateways of {INSTANCES:,}")
        report.table(["", "events/s", "per server CPU-s"], [[n + " a page", report.number(rate[n]), report.number(per_cpu[n])] for n in rate])
        best, p = {n: r["best"] for n, r in self.results["load"].items()}, self.results["page"]
        cost = 1 - best["with"] / best["without"]  # of the best round of each: noise only ever adds
        print(f"\nat rest an open page costs {p['cpu_ms_per_s']:.1f} ms of CPU and {p['sent_per_s'] / 1e3:.1f} kB a second")
        rows = [("an open page at full load, CPU per event", "< 3%", f"{cost:.1%}", cost < 0.03),
                (f"memory of a page with {INSTANCES:,} instances", "< 10 MB", f"{p['bytes'] / 1e6:.1f} MB", p["bytes"] < 10e6)]
        why = {n: statistics.median(r) for n, r in self.results["why"].items()}
        cost = 1 - why["with"] / why["without"]
        rows.append(("`why` on disk, CPU per accept", "< 2%", f"{cost:.1%}", cost < 0.02))
        if "browser" in self.results:
            b = self.results["browser"]
            rows += [("first paint", "< 200 ms", f"{b['first_paint_ms']:.0f} ms", b["first_paint_ms"] < 200),
                     (f"a jump in the list of {INSTANCES:,}", "< 200 ms", f"{b['jump_ms']:.0f} ms", b["jump_ms"] < 200)]
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]
        report.print_targets(self.results["targets"])

    def panels(self):
        return [("live with and without an open dashboard, per CPU-second", "/s",
                 [(n, r["events"] / r["server_cpu_s"]) for n, r in self.results["load"].items()])]

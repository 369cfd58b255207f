"""Edges (`edges: N`): what an event costs the thread that decides when other threads own the connections, beside one thread for all;
what one webhook's Ed25519 costs an edge, beside OpenSSL alone; and what the hop adds to a message's way.

The load generator takes a core of its own.  Where the machine has too few, events per second say how the kernel divides the cores; CPU per
event, of each thread and of all, and how often threads slept for an event, do not depend on that.
"""
import os
import sys

import edge
import peers
import report

BOTS, RATE = 100, 2000
EDGES = (0, 1, 2)


def tasks(pid):
    """Thread id -> CPU seconds, and how often it went to sleep."""
    top, found = f"/proc/{pid}/task", {}
    for t in os.listdir(top):
        with open(f"{top}/{t}/schedstat") as f, open(f"{top}/{t}/status") as more:
            slept = next(int(line.split()[1]) for line in more if line.startswith("voluntary_ctxt_switches"))
            found[int(t)] = (int(f.read().split()[0]) / 1e9, slept)
    return found


def spent(before, after, events):
    """Thread id -> microseconds an event, and sleeps of a thousand events."""
    return {t: ((cpu - before.get(t, (0, 0))[0]) / events * 1e6, (slept - before.get(t, (0, 0))[1]) / events * 1e3)
            for t, (cpu, slept) in after.items()}


class Bellhop(peers.Bellhop):
    def __init__(self, edges, *args):
        super().__init__(f"edges-{edges}", *args)
        self.edges = edges

    def more(self):
        return [f"edges: {self.edges}"]

    def measure(self, mode, **options):
        """One load, with what each thread spent on an event."""
        before = tasks(self.process.pid)
        r = self.load(mode, receivers=BOTS, **options)
        threads = spent(before, tasks(self.process.pid), r["events"])
        heart, others = threads.pop(self.process.pid), list(threads.values())
        return {**r, "heart_us": heart[0], "heart_sleeps": heart[1], "server_us": heart[0] + sum(o[0] for o in others),
                "sleeps": heart[1] + sum(o[1] for o in others), "client_us": r["client_cpu_s"] / r["events"] * 1e6}


class Signed(edge.Edge):
    """Discord's webhooks of edge.py, with an edge or without."""

    def __init__(self, edges, options, tools, work):
        super().__init__(options, tools, os.path.join(work, f"signed-{edges}"))
        self.edges = edges

    def start(self):
        os.environ["BELLHOP_EDGES"] = str(self.edges)
        try:
            super().start()
        finally:
            del os.environ["BELLHOP_EDGES"]

    def measure(self):
        before = tasks(self.process.pid)
        result = self.ask("discord", self.port, self.o.seconds, 256)
        threads = spent(before, tasks(self.process.pid), result["events"])
        heart = threads.pop(self.process.pid)[0]
        others = sorted((us for us, _ in threads.values()), reverse=True)
        return {**result, "heart_us": heart, "edge_us": sum(others[:self.edges]) if self.edges else 0.0}


class Threads:
    def __init__(self, options, tools, work):
        self.o, self.tools, self.work = options, tools, work
        self.program, self.results = os.path.join(options.build, "bellhop"), {"loads": {}, "signed": {}}

    def note(self, name, mode, result):
        row = self.results["loads"].setdefault(name, {})
        if mode not in row or result["heart_us"] < row[mode]["heart_us"]:
            row[mode] = result
        print(f".. threads  {name:8} {mode:7} {result['rate']:10,.0f}/s  heart {result['heart_us']:.1f} us", file=sys.stderr, flush=True)

    def loads(self, b):
        for mode, options in (("live", {}), ("accept", {}), ("latency", {"rate": RATE})):
            r = b.measure(mode, seconds=self.o.seconds, **options)
            if mode == "accept":
                b.load("drain", events=r["events"], receivers=BOTS)
            self.note(b.name, mode, r)

    def run(self):
        all_of_them = [Bellhop(n, self.tools, self.work, self.program, BOTS, BOTS) for n in EDGES]
        try:
            for b in all_of_them:
                b.start()
                b.prepare()
            for _ in range(self.o.rounds):
                for b in all_of_them:
                    self.loads(b)
        finally:
            for b in all_of_them:
                b.stop()
        for n in EDGES:
            s = Signed(n, self.o, self.tools, self.work)
            s.start()
            try:
                raw, best = s.raw(), self.results["signed"].get("OpenSSL")
                self.results["signed"]["OpenSSL"] = raw if best is None or raw["per_cpu_s"] > best["per_cpu_s"] else best
                self.results["signed"][f"edges-{n}"] = s.measure()
            finally:
                s.process.terminate()
                s.process.wait()
        return self.results

    def show(self):
        cores = os.cpu_count()
        for mode in ("live", "accept"):
            rows = {n: r[mode] for n, r in self.results["loads"].items()}
            print(f"\n{mode}: CPU, µs an event; sleeps of threads for a thousand events")
            report.table(["", "the thread that decides", "all threads", "load generator", f"of {cores} cores", "sleeps", "events/s"],
                         [[n, f"{r['heart_us']:.1f}", f"{r['server_us']:.1f}", f"{r['client_us']:.1f}",
                           f"{(r['server_us'] + r['client_us']) * r['rate'] / 1e6 / cores:.0%}", f"{r['sleeps']:.0f}",
                           report.number(r["rate"])] for n, r in rows.items()])
        print(f"\nA message's way at {RATE}/s, ms")
        report.table(["", "p50", "p99"], [[n, *(f"{r['latency']['to_receiver'][p] / 1000:.2f}" for p in ("p50_us", "p99_us"))]
                                          for n, r in self.results["loads"].items()])
        s = self.results["signed"]
        print("\nDiscord's webhooks, signed with Ed25519, on disk and answered; CPU, µs an event")
        report.table(["", "requests/s", "the thread that decides", "edges"],
                     [[n, report.number(x["rate"]), f"{x['heart_us']:.1f}", f"{x['edge_us']:.1f}"] for n, x in s.items() if n != "OpenSSL"])
        with_edge, alone = self.results["loads"]["edges-1"], self.results["loads"]["edges-0"]
        verify_us = 1e6 / s["OpenSSL"]["per_cpu_s"]
        rows = [(f"{mode}, CPU of the thread that decides", "<= 10 µs", f"{with_edge[mode]['heart_us']:.1f} µs",
                 with_edge[mode]["heart_us"] <= 10) for mode in ("live", "accept")]
        share = verify_us / s["edges-1"]["edge_us"]
        rows.append(("Ed25519 per CPU-second of an edge, share of OpenSSL's", ">= 90%", f"{share:.0%}", share >= 0.9))
        late, was = with_edge["latency"]["to_receiver"]["p99_us"] / 1000, alone["latency"]["to_receiver"]["p99_us"] / 1000
        rows.append(("p99 with an edge, beside without", "no worse", f"{late:.2f} ms beside {was:.2f} ms", late <= was * 1.1))
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]
        report.print_targets(self.results["targets"])

    def panels(self):
        return [("CPU of the thread that decides, live", " µs", [(n, r["live"]["heart_us"]) for n, r in self.results["loads"].items()])]

"""What large numbers cost: starting, adding, changing, looking, memory; at N, 2N and 4N.

The database is filled by scale_seed with the server down: per size 1,000s of gateways, four more routes and five links to each,
ten chats and ten waiting messages. Every gateway is on one bot, ten to a tenant. Then:

    start   spawn until "ready", and its CPU time
    add     POST /admin/gateways/add on the admin socket, one after the other, on disk before the answer
    change  set, rotate and revoke, the same
    status  all pages of /admin/status, and of the lists of gateways, routes and links
    page    an open dashboard: until all instances are in its table, and until a window of them is there, in every order
    stall   the longest turn of the loop in all of this, as the histogram tells (its CPU time)
    memory  anonymous memory with one kind of thing more, divided by how many there are

A time per item that stays flat from N to 4N is what linear means. Nothing here depends on the speed of the machine's disk but
"add" and "change": each waits for its commit.
"""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse

import report

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {state}
log: {{level: warn}}
platforms:
  - {{platform: web, bot: lobby}}
"""
CHANGES = 100
KINDS = ("gateway", "route", "link", "chat", "message")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("bellhop", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Server:
    """One run on a database that is there already."""

    def __init__(self, program, state, text=None):
        config = state + ".yaml"
        with open(config, "w") as f:
            f.write(text or CONFIG.format(state=state))
        begin = time.monotonic()
        self.process = subprocess.Popen([program, "serve", "-c", config], stdout=subprocess.PIPE, text=True,
                                        stderr=open(state + ".log", "a"))
        line = self.process.stdout.readline()
        self.ready_s = time.monotonic() - begin
        if "ready" not in line:
            raise RuntimeError(f"bellhop did not start, see {state}.log")
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        self.cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.port = int(re.search(r":(\d+)/", line).group(1))
        self.admin = UnixConnection(os.path.join(state, "admin.sock"))

    def call(self, method, path, body=None):
        """The answer, and how long it took."""
        begin = time.monotonic()
        self.admin.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
        answer = self.admin.getresponse()
        text = answer.read()
        took = time.monotonic() - begin
        if answer.status >= 300:
            raise RuntimeError(f"{path}: HTTP {answer.status} {text[:200]}")
        return json.loads(text) if text else {}, took

    def pages(self, path, name):
        """How many rows, and how long each page took."""
        rows, times, after = 0, [], ""
        while True:
            doc, took = self.call("GET", path + (("?after=" + urllib.parse.quote(after)) if after else ""))
            rows, times, after = rows + len(doc[name]), times + [took], doc.get("next")
            if not after:
                return rows, times

    def stalls(self):
        """Turns of the loop by their longest, in seconds."""
        c = http.client.HTTPConnection("127.0.0.1", self.port)
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
        c.close()
        found = re.findall(r'bellhop_loop_stall_seconds_bucket\{le="([^"]+)"\} (\d+)', text)
        return [(float(le), int(n)) for le, n in found]

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))

    def anonymous(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss_Anon"))

    def stop(self):
        self.admin.close()
        self.process.kill()
        self.process.wait()


def longest_stall(before, after):
    """The upper bound of the slowest bucket that got something."""
    slowest, so_far = 0.0, 0
    for (le, was), (_, now) in zip(before, after):
        if now - was > so_far:
            slowest, so_far = le, now - was
    return slowest


def median(values):
    return sorted(values)[len(values) // 2]


class Scale:
    def __init__(self, options, tools, work):
        self.program, self.work = os.path.join(options.build, "bellhop"), work
        self.seed = os.path.join(tools, "scale_seed")
        self.sizes = [options.gateways // 4, options.gateways // 2, options.gateways]
        self.results = {"sizes": {}, "bytes": {}}

    def say(self, *words):
        print("..", *words, file=sys.stderr, flush=True)

    def fill(self, name, *counts):
        state = os.path.join(self.work, name)
        subprocess.run([self.seed, state] + [str(n) for n in counts], check=True, stderr=subprocess.DEVNULL)
        return state

    def changes(self, server, r):
        ids, times = [f"new{i}" for i in range(CHANGES)], {}
        for what, path, body in (("add", "add", {"tenant": "new", "platform": "web", "bot": "lobby", "open": True}),
                                 ("set", "set", {"wakeUrl": "http://127.0.0.1:9/wake"}),
                                 ("rotate", "rotate", {}), ("revoke", "revoke", {})):
            times[what] = [server.call("POST", "/admin/gateways/" + path, {"id": i, **body})[1] for i in ids]
        r["add_ms"], r["add_max_ms"] = median(times["add"]) * 1e3, max(times["add"]) * 1e3
        rest = times["set"] + times["rotate"] + times["revoke"]
        r["change_ms"], r["change_max_ms"] = median(rest) * 1e3, max(rest) * 1e3

    def looks(self, server, r):
        for name, path in (("instances", "/admin/status"), ("gateways", "/admin/gateways"), ("routes", "/admin/routes"),
                           ("bindings", "/admin/grants")):
            rows, times = server.pages(path, name)
            r[name] = {"rows": rows, "pages": len(times), "us_per_row": sum(times) * 1e6 / max(rows, 1), "page_max_ms": max(times) * 1e3}

    def page(self, server, n, r):
        """A window of the instances in every order, at both ends of the list and in the middle."""
        def ask(method, path, body=None):
            c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            c.request(method, "/dashboard/api/" + path, json.dumps(body) if body else None, headers)
            return c.getresponse()

        def rows(fits):
            """The next list of rows that fits."""
            while line := lines.readline():
                if line == b"event: rows\n" and fits(d := json.loads(lines.readline()[6:])):
                    return d

        headers = {"Content-Type": "application/json"}
        link = server.call("POST", "/admin/dashboard", {"readOnly": True})[0]["url"].split("#link=")[1]
        answer = ask("POST", "signin", {"link": link})
        headers |= {"Cookie": answer.getheader("Set-Cookie").split(";")[0], "X-Bellhop-Csrf": json.loads(answer.read())["csrf"]}
        begin, lines = time.monotonic(), ask("GET", "events")
        while not (line := lines.readline()).startswith(b"data: "):
            pass
        look, times = {"stream": json.loads(line[6:])["stream"], "count": 60}, []
        ask("POST", "look", look)
        rows(lambda d: d["found"] >= n)
        r["page_s"] = time.monotonic() - begin
        for sort in ("attention", "waiting", "oldest", "heard", "name"):
            for offset in (0, n // 2, n - 60):
                at = time.monotonic()
                ask("POST", "look", {**look, "sort": sort, "offset": offset})
                got = rows(lambda d: d["offset"] == offset and len(d["rows"]) == 60)
                times.append(time.monotonic() - at)
        name = {row["n"]: (row["tenant"], row["instance"]) for row in got["rows"]}
        names = [name[i] for i in got["order"]]
        assert names == sorted(names), names
        r["window_max_ms"] = max(times) * 1e3
        lines.close()

    def one_size(self, n):
        state = self.fill(f"n{n}", n, 4 * n, 5 * n, 10 * n, 10 * n)
        server = Server(self.program, state)
        try:
            r = {"ready_s": server.ready_s, "cpu_s": server.cpu_s, "us_per_gateway": server.cpu_s * 1e6 / n, "bytes": server.anonymous()}
            before = server.stalls()
            self.changes(server, r)
            self.looks(server, r)
            self.page(server, n, r)
            r["stall_s"] = longest_stall(before, server.stalls())
        finally:
            server.stop()
        shutil.rmtree(state)
        self.results["sizes"][n] = r
        self.say(f"{n:,} gateways: ready in {r['ready_s']:.2f} s ({r['cpu_s']:.2f} s CPU), add {r['add_ms']:.2f} ms")

    def weigh(self, name, *counts):
        server = Server(self.program, self.fill(name, *counts))
        try:
            time.sleep(0.3)
            return server.anonymous()
        finally:
            server.stop()

    def memory(self):
        n, many = self.sizes[1], 10 * self.sizes[1]
        none, base = self.weigh("none", 1, 0, 0, 0, 0), self.weigh("gateways", n, 0, 0, 0, 0)
        here = self.weigh("here", n, 0, 0, 1, 0)  # a thousand of them have been connected
        grown = {"gateway": (base - none) / n, "route": (self.weigh("routes", n, n, 0, 0, 0) - base) / n,
                 "link": (self.weigh("links", n, 0, n, 0, 0) - base) / n, "instance": (here - base) / 1000,
                 "chat": (self.weigh("chats", n, 0, 0, many, 0) - here) / many,
                 "message": (self.weigh("messages", n, 0, 0, 0, many) - here) / many}
        self.results["bytes"] = grown
        self.say("bytes:", ", ".join(f"{k} {v:.0f}" for k, v in grown.items()))

    def run(self):
        for n in self.sizes:
            self.one_size(n)
        self.memory()
        return self.results

    def show(self):
        sizes, b = self.results["sizes"], self.results["bytes"]
        print("\nN gateways on one bot, 5 N routes, 5 N links, 10 N chats, 10 N waiting messages")
        report.table(["N", "ready s", "CPU s", "CPU us/N", "add ms", "add max", "change ms", "change max", "status us/row", "page max ms",
                      "dashboard s", "window ms", "longest turn", "MB"],
                     [[f"{n:,}", f"{r['ready_s']:.2f}", f"{r['cpu_s']:.2f}", f"{r['us_per_gateway']:.0f}", f"{r['add_ms']:.2f}",
                       f"{r['add_max_ms']:.1f}", f"{r['change_ms']:.2f}", f"{r['change_max_ms']:.1f}",
                       f"{r['instances']['us_per_row']:.1f}",
                       f"{max(r[k]['page_max_ms'] for k in ('instances', 'gateways', 'routes', 'bindings')):.1f}",
                       f"{r['page_s']:.2f}", f"{r['window_max_ms']:.0f}", f"<= {r['stall_s'] * 1e3:g} ms", f"{r['bytes'] / 1e6:.0f}"] for n, r in sizes.items()])
        print("\nbytes of memory each")
        report.table(list(b), [[f"{v:.0f}" for v in b.values()]])
        small, large = sizes[self.sizes[0]], sizes[self.sizes[-1]]
        growth = large["us_per_gateway"] / small["us_per_gateway"]
        rows = [("start, time per gateway at 4 N and at N", "<= 1.5", f"{growth:.2f}", growth <= 1.5),
                (f"ready with {self.sizes[-1]:,} gateways", "< 5 s", f"{large['ready_s']:.2f} s", large["ready_s"] < 5),
                ("gateway add", "< 5 ms", f"{large['add_ms']:.2f} ms", large["add_ms"] < 5),
                ("longest turn of the loop", "<= 10 ms", f"{large['stall_s'] * 1e3:g} ms", large["stall_s"] <= 0.01)]
        rows += [(f"memory of a {k}", f"<= {most} B", f"{b[k]:.0f} B", b[k] <= most)
                 for k, most in (("gateway", 1200), ("chat", 100), ("message", 40))]
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]
        report.print_targets(self.results["targets"])

    def panels(self):
        sizes = self.results["sizes"]
        return [("CPU time to start, per gateway", " us", [(f"{n:,}", r["us_per_gateway"]) for n, r in sizes.items()]),
                ("gateway add", " ms", [(f"{n:,}", r["add_ms"]) for n, r in sizes.items()]),
                ("memory each", " B", [(k, v) for k, v in self.results["bytes"].items()])]

"""Signed webhooks at the edge: how many are proven, stored and answered per second, with the gateway asleep.

Discord's are held against what OpenSSL alone verifies on one core of the same machine in the same run; every request is
another event, on disk before it is answered.
"""
import json
import os
import subprocess
import sys

import report

# The public key of the all-zero seed; tests/bench/edge.c signs with it.
KEY = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
CONFIG = """\
listen: 127.0.0.1:0
public_url: https://bench.example
state_dir: {state}
log: {{level: warn}}
delivery: {{max_mailbox_bytes: 8GiB}}
platforms:
  - {{platform: discord, bot: "900", token: bench, public_key: {key}, api_base: "http://127.0.0.1:9/api", gateway_url: "ws://127.0.0.1:9"}}
  - {{platform: twilio, bot: "+15550100", account_sid: ACbench, auth_token: bench-auth-token, api_base: "http://127.0.0.1:9"}}
  - {{platform: wecom, bot: "1", corp_id: bench, secret: bench, token: bench-token, encoding_aes_key: {aes}, api_base: "http://127.0.0.1:9"}}
"""
BOTS = {"discord": "900", "twilio": "+15550100", "wecom": "1"}


class Edge:
    def __init__(self, options, tools, work):
        self.o, self.tool, self.dir = options, os.path.join(tools, "edge"), os.path.join(work, "edge")
        self.program, self.results = os.path.join(options.build, "bellhop"), {"rate": {}, "latency": {}}

    def start(self):
        os.makedirs(self.dir, exist_ok=True)
        self.state, self.config = os.path.join(self.dir, "state"), os.path.join(self.dir, "bellhop.yaml")
        with open(self.config, "w") as f:
            f.write(CONFIG.format(state=self.state, key=KEY, aes="A" * 43))
        self.process = subprocess.Popen([self.program, "serve", "-c", self.config], stdout=subprocess.PIPE, text=True,
                                        stderr=open(os.path.join(self.dir, "log"), "a"))
        if "ready" not in self.process.stdout.readline():
            raise RuntimeError(f"bellhop did not start, see {self.dir}/log")
        with open(os.path.join(self.state, "port")) as f:
            self.port = f.read().strip()
        for platform, bot in BOTS.items():
            subprocess.run([self.program, "gateway", "add", "--tenant", platform, "--platform", platform, "--bot", bot, "-c",
                            self.config], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, *args):
        done = subprocess.run([self.tool, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)

    def cpu_s(self):
        """What the loop's thread has used; the store's own thread works beside it."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def raw(self):
        before = os.times().children_user
        result = self.ask("raw", self.o.seconds / 2)
        return {**result, "per_cpu_s": result["events"] / (os.times().children_user - before)}

    def load(self, platform):
        before = self.cpu_s()
        result = self.ask(platform, self.port, self.o.seconds / 2, 256)
        return {**result, "per_cpu_s": result["events"] / max(self.cpu_s() - before, 0.01)}

    def note(self, name, result):
        old = self.results["rate"].get(name)
        if old is None or result["rate"] > old["rate"]:
            self.results["rate"][name] = result
        print(f".. edge  {name:10} {result['rate']:12,.0f}/s", file=sys.stderr, flush=True)

    def run(self):
        self.start()
        try:
            for _ in range(self.o.rounds):
                self.note("OpenSSL", self.raw())
                for platform in BOTS:
                    self.note(platform, self.load(platform))
            for platform in BOTS:
                self.results["latency"][platform] = self.ask(platform, self.port, self.o.seconds / 2, 4)
        finally:
            self.process.terminate()
            self.process.wait()
        return self.results

    def show(self):
        r, late = self.results["rate"], self.results["latency"]
        print("\nsigned webhooks, proven, on disk and answered; the gateway sleeps (256 connections)")
        report.table(["", "requests/s", "per CPU-s", "p50 ms", "p99 ms"],
                     [[n, report.number(x["rate"]), report.number(x["per_cpu_s"])] +
                      [f"{x[p] / 1000:.1f}" if p in x else "-" for p in ("p50_us", "p99_us")] for n, x in r.items()])
        print("\nthe same with four connections: what one platform waits for its answer")
        report.table(["", "requests/s", "p50 ms", "p99 ms"],
                     [[n, report.number(x["rate"]), f"{x['p50_us'] / 1000:.2f}", f"{x['p99_us'] / 1000:.2f}"]
                      for n, x in late.items()])
        share = r["discord"]["rate"] / r["OpenSSL"]["rate"]
        rows = [("Discord, share of OpenSSL's Ed25519", ">= 70%", f"{share:.0%}", share >= 0.7)]
        share = r["discord"]["per_cpu_s"] / r["OpenSSL"]["per_cpu_s"]
        rows.append(("the same per CPU-second", ">= 70%", f"{share:.0%}", share >= 0.7))
        rows += [(f"{p}", ">= 20k/s", report.number(r[p]["rate"]) + "/s", r[p]["rate"] >= 20000) for p in ("twilio", "wecom")]
        p99 = late["discord"]["p99_us"] / 1000
        rows.append(("Discord's answer, p99", "<= 20 ms", f"{p99:.1f} ms", p99 <= 20))
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]
        report.print_targets(self.results["targets"])

    def panels(self):
        return [("signed webhooks, proven and on disk", "/s", [(n, x["rate"]) for n, x in self.results["rate"].items()])]

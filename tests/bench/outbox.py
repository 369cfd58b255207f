"""What agents say, durably: the outbox alone, and over HTTP to a local platform beside the same without a record on disk.
Rounds take turns, so that a noisy moment hits both."""
import json
import os
import subprocess

import report


class Outbox:
    def __init__(self, options, tools, work):
        self.o, self.tool, self.work = options, os.path.join(tools, "outbox"), work
        self.results = {}

    def once(self, mode, n):
        where = os.path.join(self.work, f"{mode}-{n}")
        os.makedirs(where)
        done = subprocess.run([self.tool, mode, where, str(self.o.seconds)], check=True, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL)
        result = json.loads(done.stdout)
        if result["failed"]:
            raise RuntimeError(f"outbox {mode}: {result}")
        return result

    def run(self):
        for n in range(self.o.rounds):
            for mode in ("alone", "durable", "bare"):
                r, total = self.once(mode, n), self.results.setdefault(mode, {"events": 0, "seconds": 0, "server_cpu_s": 0, "rounds": []})
                for key in ("events", "seconds", "server_cpu_s"):
                    total[key] += r[key]
                total["rounds"].append(round(r["rate"]))
                total["rate"] = total["events"] / total["seconds"]
                print(f"  round {n + 1}: {mode} {report.number(r['rate'])}/s", flush=True)

    def show(self):
        rows = [[mode, report.number(r["rate"]), f"{report.number(min(r['rounds']))} - {report.number(max(r['rounds']))}",
                 f"{r['server_cpu_s'] / max(r['events'], 1) * 1e6:.1f}"] for mode, r in self.results.items()]
        print("\nsends of 8 bots with 48 chats each")
        report.table(["", "sends/s", "rounds, least - most", "CPU us each"], rows)
        alone, durable, bare = (self.results[m]["rate"] for m in ("alone", "durable", "bare"))
        targets = [("durable sends, the outbox alone", ">= 25k/s", report.number(alone) + "/s", alone >= 25000),
                   ("over HTTP, of the same without durability", ">= 0.70", f"{durable / bare:.2f}", durable / bare >= 0.7)]
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in targets]
        report.print_targets(self.results["targets"])

    def panels(self):
        return [("durable sends", "/s", [(mode, self.results[mode]["rate"]) for mode in ("alone", "durable", "bare")])]

"""Answers that stream: CHATS chats get 50 updates a second each, on the simulators of Telegram and Discord with their real limits.

Told: updates and shown edits per second, what an update and a shown edit cost the server's CPU, requests that the platform refused,
how long the last texts took, and how much later a message to another chat is beside the same without load.
"""
import json
import os
import sys
import time

import peers
import report

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "sim"), os.path.join(HERE, "..", "e2e")]

import stream_rig  # noqa: E402

CHATS = 200


class Streaming:
    def __init__(self, options, tools, work):
        self.o, self.tools, self.work, self.results = options, tools, work, {"streaming": {}}

    def once(self, kind, seconds):
        w = kind(CHATS)
        where = os.path.join(self.work, w.name)
        os.makedirs(where, exist_ok=True)
        peer = peers.Served(self.tools, where, os.path.join(self.o.build, "bellhop"),
                            stream_rig.CONFIG.format(platform=w.name, token=stream_rig.TOKEN, api=w.sim.url))
        peer.start()
        told = peer.command("gateway", "add", "--tenant", "bench", "--platform", w.name, "--bot", "my_bot", "--open")
        made = dict(line.removeprefix("export ").split("=", 1) for line in told.splitlines() if "=" in line)
        gateway = stream_rig.Streamer(f"http://127.0.0.1:{peer.port}", made["GATEWAY_RELAY_ID"], made["GATEWAY_RELAY_SECRET"],
                                      (w.name, "my_bot"))
        time.sleep(3 if w.name == "discord" else 0)
        stream_rig.meet(w, gateway)
        ids = stream_rig.begin(w, gateway)
        peer.wait_quiet()
        cpu = peer.cpu_s()
        r = stream_rig.stream(w, gateway, ids, seconds)
        r["cpu_s"] = peer.cpu_s() - cpu
        r["us_per_update"] = r["cpu_s"] / r["updates"] * 1e6
        r["ms_per_shown"] = r["cpu_s"] / max(r["shown"], 1) * 1e3
        peer.stop()
        w.sim.close()
        return r

    def run(self):
        for kind in (stream_rig.Telegram, stream_rig.Discord):
            r = self.results["streaming"][kind.name] = self.once(kind, max(20, self.o.seconds * 8))
            print(f"  {kind.name}: {json.dumps(r)}", flush=True)

    def show(self):
        all_ = self.results["streaming"]
        print(f"\n{CHATS} chats, 50 updates a second each")
        report.table(["", "updates/s", "shown/s", "CPU us an update", "CPU ms a shown edit", "refused", "last texts s",
                      "other sends ms, calm - busy"],
                     [[name, report.number(r["updates_s"]), f"{r['shown_s']:.1f}", f"{r['us_per_update']:.1f}",
                       f"{r['ms_per_shown']:.2f}", r["refused"], f"{r['last_s']:.1f}", f"{r['calm_ms']:.0f} - {r['busy_ms']:.0f}"]
                      for name, r in all_.items()])
        targets = [(f"{name}: refused by the platform", "0", str(r["refused"]), r["refused"] == 0) for name, r in all_.items()]
        targets += [(f"{name}: a message to another chat later by", "< 100 ms", f"{r['busy_ms'] - r['calm_ms']:.0f} ms",
                     r["busy_ms"] - r["calm_ms"] < 100) for name, r in all_.items()]
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in targets]
        report.print_targets(self.results["targets"])

    def panels(self):
        return [("CPU of an update", "us", [(name, r["us_per_update"]) for name, r in self.results["streaming"].items()])]

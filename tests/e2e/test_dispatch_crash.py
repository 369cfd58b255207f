"""kill -9 while payloads are delivered: what was accepted arrives, in order, and not again once it is settled.

BELLHOP_DISPATCH_CRASH=10000 delivers so many over file, webhook and relay (and 300 over each of the others), as
the nightly run does; the default keeps it short.
"""
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from conftest import wait_for
from dispatch_rig import Sender, augment, config
from test_dispatch_substrates import Receiver, program

MANY = int(os.environ.get("BELLHOP_DISPATCH_CRASH", "240"))
FEW = 300 if MANY >= 1000 else 24


class Line:
    """One keep-alive connection that delivers until it is told yes."""

    def __init__(self, server, sender):
        self.server, self.sender, self.conn = server, sender, None

    def deliver(self, agent, number, text="x"):
        body = json.dumps(augment(text, f"{agent}-{number:06d}"))
        end = time.monotonic() + 60
        while True:
            try:
                if self.conn is None:
                    self.conn = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
                self.conn.request("POST", f"/v1/agents/{agent}/deliver", body,
                                  {"Content-Type": "application/json", **self.sender.headers})
                answer = self.conn.getresponse()
                answer.read()
                if answer.status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            if self.conn is not None:
                self.conn.close()
            self.conn = None
            assert time.monotonic() < end, "the server did not come back"
            time.sleep(0.02)


class Killer(threading.Thread):
    """Kills and starts the server, beside whoever delivers, whenever it is told to or a second has passed."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.kills, self.over, self.now = server, 0, False, threading.Event()

    def run(self):
        while True:
            self.now.wait(1)
            self.now.clear()
            if self.over:
                return
            self.server.kill()
            self.kills += 1
            self.server.start()

    def stop(self):
        self.over = True
        self.now.set()
        self.join()


def deliver_all(server, agent, count, text="x"):
    """Eight kills at least, each while deliveries go on; returns when all are accepted."""
    line, killer, asked = Line(server, Sender(server)), Killer(server), 0
    killer.start()
    for number in range(count):
        if number % max(count // 8, 1) == 1:
            wait_for(lambda: killer.kills >= asked)  # a server that is being started is not killed twice
            killer.now.set()
            asked += 1
        line.deliver(agent, number, text.format(number=number))
    wait_for(lambda: killer.kills >= asked)
    killer.stop()
    assert killer.kills >= 8


def first_arrivals(ids):
    seen, order = set(), []
    for name in ids:
        if name not in seen:
            seen.add(name)
            order.append(name)
    return order


def crash_run(server, agent, count, arrived, instance=None):
    """Deliver @count while the server is killed; then everything must have arrived, in order, and no more comes."""
    deliver_all(server, agent, count)
    want = [f"{agent}-{n:06d}" for n in range(count)]
    wait_for(lambda: len(set(arrived())) == count, timeout=120)
    wait_for(lambda: server.instance(instance or f"agent:{agent}")["entries"] == 0, timeout=60)
    assert first_arrivals(arrived()) == want
    server.restart()  # the acks are on disk now
    settled = len(arrived())
    server.kill()
    server.start()
    time.sleep(0.5)
    assert len(arrived()) == settled, "it came again after its end was recorded"


def test_files(make_bellhop, tmp_path):
    drop, log = tmp_path / "drop", []
    drop.mkdir()
    server = make_bellhop(config(f"id: f, substrate: file, dir: {drop}"))

    def arrived():  # a reader that takes files away, oldest first
        found = sorted((p.stat().st_mtime_ns, p.name) for p in drop.iterdir() if p.name.endswith(".json"))
        for _, name in found:
            log.append(json.loads((drop / name).read_text())["meta"]["dispatch_id"])
            (drop / name).unlink()
        return log

    crash_run(server, "f", MANY, arrived)


def test_webhooks(make_bellhop):
    receiver = Receiver()
    server = make_bellhop(config(f"id: w, substrate: webhook, url: '{receiver.url}/in'"))
    crash_run(server, "w", MANY, lambda: [b["meta"]["dispatch_id"] for b in receiver.bodies()])
    receiver.server.shutdown()
    receiver.server.server_close()


def test_the_relay(make_bellhop, dial):
    server = make_bellhop(config("id: bot, substrate: relay, tenant: t"))
    cred = server.add("--instance", "bot")
    arrived, over = [], threading.Event()

    def listen():  # a gateway that dials again whenever its socket is gone
        while not over.is_set():
            try:
                gateway = dial(server, cred)
            except Exception:  # noqa: BLE001 - the server is down just now
                time.sleep(0.05)
                continue
            while not over.is_set() and gateway.closed is None and not gateway.over.is_set():
                try:
                    arrived.append(gateway.next("inbound", timeout=0.1)["event"]["message_id"])
                except AssertionError:
                    pass
            gateway.close()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    crash_run(server, "bot", MANY, lambda: list(arrived), instance="bot")
    over.set()
    listener.join()


def test_programs(make_bellhop, tmp_path):
    out = tmp_path / "out"
    out.touch()
    prog = program(tmp_path / "take", "d = json.load(sys.stdin)\n"
                                      f"fd = os.open({str(out)!r}, os.O_WRONLY | os.O_APPEND)\n"
                                      "os.write(fd, (d['meta']['dispatch_id'] + '\\n').encode())")
    server = make_bellhop(config(f"id: p, substrate: exec, command: [{prog}]"))
    crash_run(server, "p", FEW, lambda: out.read_text().split())


def test_pipes(make_bellhop, tmp_path):
    fifo, out = tmp_path / "fifo", tmp_path / "out"
    os.mkfifo(fifo)
    out.touch()
    reader = subprocess.Popen([sys.executable, "-c", f"""
import json
while True:
    with open({str(fifo)!r}) as f, open({str(out)!r}, "a", buffering=1) as out:
        for line in f:
            try:
                out.write(json.loads(line)["meta"]["dispatch_id"] + "\\n")
            except ValueError:
                pass  # half a line, of a server that was killed
"""])
    server = make_bellhop(config(f"id: l, substrate: pipe, path: {fifo}"))
    try:
        crash_run(server, "l", FEW, lambda: out.read_text().split())
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_panes(make_bellhop, tmp_path):
    socket, typed = tmp_path / "tmux.sock", tmp_path / "typed"
    subprocess.run(["tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-s", "w",
                    f"stty -icanon -echo; exec cat > {typed}"], check=True)
    wait_for(typed.exists)
    time.sleep(0.3)
    server = make_bellhop(config(f"id: m, substrate: tmux, target: w, socket: {socket}"))
    try:
        deliver_all(server, "m", FEW, text="m-{number:06d}")
        got = lambda: [w for w in typed.read_text(errors="replace").split() if w.startswith("m-") and len(w) == 8]
        wait_for(lambda: len(set(got())) == FEW, timeout=120)
        assert first_arrivals(got()) == [f"m-{n:06d}" for n in range(FEW)]
    finally:
        subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True)


def test_scheduled_wakes_are_neither_lost_nor_early(make_bellhop):
    receiver = Receiver()
    server = make_bellhop(config(f"id: s, substrate: webhook, url: '{receiver.url}/in', "
                                 f"wake_url: '{receiver.url}/wake'"))
    sender, due, early = Sender(server), {}, []
    start = int(time.time() * 1000) + 1500
    for number in range(FEW):
        due[f"n{number}"] = start + number * 50
        assert sender.wake("s", {"context": f"n{number}", "when": due[f"n{number}"]}).json["woken"] is False
    killer = Killer(server)
    killer.start()

    def look():
        now = time.time() * 1000
        woken = {b["context"] for b in receiver.bodies("/wake")}
        early.extend(n for n in woken if due[n] > now)
        return len(woken) == FEW

    wait_for(look, timeout=60 + FEW * 0.1)
    killer.stop()
    assert early == []
    receiver.server.shutdown()
    receiver.server.server_close()

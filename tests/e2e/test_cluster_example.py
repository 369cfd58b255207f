"""examples/cluster: what it says can be started can be, and it goes on when a node dies."""
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
import yaml

from conftest import PROGRAM, ROOT

HERE = ROOT / "examples" / "cluster"


def names_in(text):
    return set(re.findall(r"\$\{(BELLHOP_\w+)\}", text))


def is_free(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


def four_ports():
    while True:
        front = random.randrange(20000, 32000, 4)
        if all(is_free(front + n) for n in range(4)):
            return front


def ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def wait_ready(port, seconds):
    begun = time.monotonic()
    while not ready(port):
        assert time.monotonic() - begun < seconds, "nobody is ready"
        time.sleep(0.1)
    return time.monotonic() - begun


def test_every_container_gets_what_the_configuration_asks_for():
    wanted = names_in((HERE / "bellhop.yaml").read_text())
    assert len(wanted) >= 5
    compose = yaml.safe_load((HERE / "compose.yaml").read_text())
    for node in ("node1", "node2", "node3"):
        assert wanted <= set(compose["services"][node]["environment"]), node
    assert {"postgres", "proxy"} <= set(compose["services"])
    pods = [d for d in yaml.safe_load_all((HERE / "kubernetes.yaml").read_text()) if d["kind"] == "StatefulSet"]
    container = pods[0]["spec"]["template"]["spec"]["containers"][0]
    assert wanted <= {e["name"] for e in container["env"]}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_proxy_takes_its_configuration():
    done = subprocess.run(["haproxy", "-c", "-f", HERE / "haproxy.cfg"], capture_output=True, text=True,
                          env={**os.environ, "FRONT": "127.0.0.1:1", "NODE1": "127.0.0.1:2", "NODE2": "127.0.0.1:3",
                               "NODE3": "127.0.0.1:4"})
    assert done.returncode == 0, done.stderr


@pytest.fixture
def cluster():
    front = four_ports()
    run = subprocess.Popen([HERE / "run", PROGRAM], env={**os.environ, "FRONT_PORT": str(front)}, text=True,
                           stdout=subprocess.PIPE, start_new_session=True)
    folder = re.search(r"logs and pids in (\S+)", run.stdout.readline()).group(1)
    yield front, folder
    run.send_signal(signal.SIGTERM)
    assert run.wait(30) == 0
    assert not os.path.exists(folder)


def test_when_the_node_that_serves_dies_another_one_does(cluster):
    front, folder = cluster
    for port in range(front, front + 4):
        wait_ready(port, 60)  # each of them, by itself or by who serves
    nodes = json.loads(subprocess.run([PROGRAM, "node", "list", "--json", "--state-dir", f"{folder}/node2"], text=True,
                                      capture_output=True, check=True).stdout)
    serving = [int(n["node"][-1]) for n in nodes if n["state"] == "serving"]
    assert len(nodes) == 3 and len(serving) == 1
    with open(f"{folder}/node{serving[0]}.pid") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    time.sleep(1)
    wait_ready(front, 30)
    assert ready(front)


class People:
    """Write through the proxy, one after the other each; some keep their connection, some make a new one each time."""

    def __init__(self, front, n):
        self.front, self.taken, self.failed, self.over = front, 0, [], threading.Event()
        self.threads = [threading.Thread(target=self.live, args=(k,)) for k in range(n)]
        for thread in self.threads:
            thread.start()

    def ask(self, line, k, n):
        line.request("POST", "/chat/lobby/api/message", json.dumps({"text": f"{k}:{n}", "client_id": f"c-{k}-{n}"}),
                     {"Content-Type": "application/json", "X-Bellhop-Visitor": f"visitor-{k:08}-0000"})
        answer = line.getresponse()
        return answer.status, answer.read()

    def live(self, k):
        line, n = None, 0
        while not self.over.is_set():
            line = line or http.client.HTTPConnection("127.0.0.1", self.front, timeout=30)
            began = time.monotonic()
            try:
                status, text = self.ask(line, k, n)
            except (OSError, http.client.HTTPException) as e:
                status, text = None, repr(e)
            self.taken += status == 200
            if status != 200:
                self.failed.append((time.strftime("%X"), k, n, status, text, f"{time.monotonic() - began:.2f} s"))
            if k % 2 == 0 or status is None:
                line.close()
                line = None
            n += 1
            time.sleep(0.1)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def pid_of(folder, n):
    with open(f"{folder}/node{n}.pid") as f:
        return int(f.read() or 0)


def restart(front, folder, n):
    before = pid_of(folder, n)
    os.kill(before, signal.SIGTERM)
    begun = time.monotonic()
    while pid_of(folder, n) in (0, before):
        assert time.monotonic() - begun < 30, "it does not end"
        time.sleep(0.1)
    wait_ready(front + n, 30)
    time.sleep(1.5)  # the proxy sees it


def test_nobody_behind_the_proxy_notices_that_the_nodes_are_restarted_one_after_the_other(cluster):
    """Twelve restarts under more than 5,000 requests with BELLHOP_LONG (./dev cluster), else three."""
    front, folder = cluster
    for port in range(front, front + 4):
        wait_ready(port, 60)
    subprocess.run([PROGRAM, "gateway", "add", "--id", "bot", "--tenant", "demo", "--platform", "web", "--bot", "lobby",
                    "--state-dir", f"{folder}/node1"], check=True, capture_output=True)
    rounds, people = (4, 12) if "BELLHOP_LONG" in os.environ else (1, 6)
    people = People(front, people)
    try:
        for _ in range(rounds):
            for n in (1, 2, 3):
                restart(front, folder, n)
    finally:
        people.end()
    print(f"{people.taken} requests over {3 * rounds} restarts, failed: {people.failed}")
    if people.failed:
        for n in (1, 2, 3):
            with open(f"{folder}/node{n}.log") as f:
                print(*[f"node{n} {line}" for line in f if "info" in line or "warn" in line][-30:], sep="")
    assert people.failed == [] and people.taken > (5000 if rounds == 4 else 200)


def test_a_node_that_was_drained_stays_down(cluster):
    front, folder = cluster
    for port in range(front, front + 4):
        wait_ready(port, 60)
    subprocess.run([PROGRAM, "node", "drain", "node3", "--state-dir", f"{folder}/node1"], check=True, capture_output=True)
    begun = time.monotonic()
    while not is_free(front + 3):
        assert time.monotonic() - begun < 20, "it does not end"
        time.sleep(0.1)
    time.sleep(3)
    assert is_free(front + 3) and ready(front)

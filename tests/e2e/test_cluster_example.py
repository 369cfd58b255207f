"""examples/cluster: what it says can be started can be, and it goes on when a node dies."""
import json
import os
import random
import re
import signal
import socket
import subprocess
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

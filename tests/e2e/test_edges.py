"""Threads that own the connections (edges: N): what a client sees is the same, and so are the promises."""
import contextlib
import json
import pathlib
import select
import socket
import subprocess
import threading
import time
from signal import SIGHUP, SIGTERM

import pytest

from conftest import wait_for
from servers import Postgres
from test_carry import Nodes
from test_hostile import RawRelay, frame
from test_limits import no_long_turn
from test_tls import Papers

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {state}
edges: 2
log: {{level: debug}}
platforms:
"""
LOBBY = "  - {{platform: web, bot: lobby}}\n"


def test_conversations_over_edges_are_in_order_and_complete(make_bellhop, dial):
    server = make_bellhop(CONFIG + "".join(f"  - {{{{platform: web, bot: b{n}}}}}\n" for n in range(8)))
    wait_for(lambda: "edges: 2 threads have the connections" in server.log())
    gateways = [dial(server, server.add(tenant=f"t{n}", bot=f"b{n}"), hello=("web", f"b{n}")) for n in range(8)]

    def person(n):
        for k in range(25):
            assert server.write(f"{k}", bot=f"b{n}", visitor=f"e2e-visitor-{n:06}") == 200

    people = [threading.Thread(target=person, args=(n,)) for n in range(8)]
    for p in people:
        p.start()
    for p in people:
        p.join()
    wait_for(lambda: all(len(g.seen) >= 25 for g in gateways))
    assert all(g.seen == [str(k) for k in range(25)] for g in gateways)
    chat = gateways[0].next("inbound")["event"]["source"]["chat_id"]
    assert gateways[0].act(op="send", chat_id=chat, content="good day")["success"]
    wait_for(lambda: not any(i["entries"] for i in json.loads(server.cli("status", "--json").stdout)["instances"]))
    server.signal(SIGTERM)
    assert [g.wait_closed()[0] for g in gateways] == [1012] * 8
    assert server.wait() == 0


def test_names_and_certificates_change_at_every_edge(make_bellhop, tmp_path):
    papers = Papers(tmp_path)
    cert, key = papers.sign("one")
    server = make_bellhop(CONFIG + LOBBY + f"tls: {{{{cert: {cert}, key: {key}}}}}\nhosts: [one.example]\n")

    def ask(name):
        return subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", papers.pem, "-H", f"Host: {name}",
                               f"https://127.0.0.1:{server.port}/chat/lobby"], text=True, capture_output=True, timeout=20).stdout
    assert {ask("one.example") for _ in range(6)} == {"200"} and {ask("two.example") for _ in range(6)} == {"421"}
    server.config.write_text(server.config.read_text().replace("one.example", "two.example"))
    server.signal(SIGHUP)
    wait_for(lambda: "reload:" in server.log())
    assert {ask("one.example") for _ in range(6)} == {"421"} and {ask("two.example") for _ in range(6)} == {"200"}


def test_strangers_at_an_edge_are_refused_there(make_bellhop):
    server = make_bellhop(CONFIG + LOBBY)
    for text, status in ((b"GET / HTTP/1.1\r\nHost: nobody.example\r\n\r\n", b"200"), (b"GET /\r\n\r\n", b"400"),
                         (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n", b"431")):
        with socket.create_connection(("127.0.0.1", server.port), 10) as s:
            s.sendall(text)
            answer = s.recv(4096)
        assert answer.split(b" ")[1] in (status, b"302", b"421"), answer


def test_a_flood_of_small_frames_over_edges_leaves_others_their_turns(make_bellhop, dial):
    """Edges read faster than the heart works: what one tenant has in the rings must not be a long turn of the heart."""
    server = make_bellhop(CONFIG + LOBBY + "limits: {{instance_actions: 0, tenant_actions: 0, sockets_per_credential: 100}}\n")
    bad = server.add(id="bad", tenant="bad")
    g = dial(server, server.add(id="good", tenant="good"))
    line = b'{"type":"outbound","requestId":"x","action":{"op":"send","chat_id":"z","content":"y"}}\n'
    body = frame(line * 700) * 4
    crowd = {RawRelay(server, bad).s: 0 for _ in range(100)}
    stop = threading.Event()

    def flood():
        for s in crowd:
            s.setblocking(False)
        while not stop.is_set():
            readable, writable, _ = select.select(crowd, crowd, [], 0.5)
            for s in readable:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    s.recv(1 << 20)
            for s in writable:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    crowd[s] = (crowd[s] + s.send(body[crowd[s]:])) % len(body)

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    for k in range(20):
        assert server.write(f"{k}") == 200
        assert g.next("inbound")["event"]["text"] == f"{k}"
    stop.set()
    thread.join()
    no_long_turn(server, sanitized="0.1")
    for s in crowd:
        s.close()


def cpu_ms(server):
    threads = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/stat")
    return sum(10 * sum(map(int, t.read_text().rpartition(")")[2].split()[11:13])) for t in threads)


def test_strangers_who_ask_for_a_trunk_cost_no_walk_over_all_connections(make_bellhop):
    """Such a request moves to the heart with its socket, which the edge's loop must forget at once."""
    server = make_bellhop(CONFIG + LOBBY + "limits: {{connections_per_address: 0}}\n")

    def ask():
        s = socket.create_connection(("127.0.0.1", server.port), 10)
        for _ in range(2):
            s.sendall(b"GET /cluster/trunk HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert s.recv(4096).startswith(b"HTTP/1.1 404 ")
        return s

    idle = []
    with contextlib.suppress(OSError):  # as many as there are descriptors for
        for _ in range(4000):
            idle.append(socket.create_connection(("127.0.0.1", server.port), 10))
    before = cpu_ms(server)
    for _ in range(300):
        with ask():
            time.sleep(0.002)  # the edge's loop has a turn
    assert cpu_ms(server) - before < 400  # else a second
    for s in idle:
        s.close()


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


def test_a_node_that_serves_over_edges_takes_trunks(postgres, dial):
    nodes = Nodes(postgres)
    try:
        one, two = nodes.serve(tail="edges: 2\n"), nodes.carry("two", tail="edges: 2\n")
        credential = one.add()
        here, there = dial(two, credential), dial(one, one.add(tenant="u"))
        assert two.write("through the other") == 200
        here.hear("through the other")
        there.hear("through the other")
        one.cli("node", "drain")
        assert there.wait_closed()[0] == 1012 and one.wait() == 76
        assert two.write("for the next") == 200  # which starts its edges now
        here.hear("for the next")
        assert here.closed is None
        wait_for(lambda: "edges: 2 threads" in two.log())
    finally:
        for server in reversed(nodes.all):
            server.clean()

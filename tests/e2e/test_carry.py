"""Nodes that do not serve carry what connects to them to the one that does (cluster.serve: all)."""
import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from signal import SIGHUP, SIGKILL, SIGSTOP, SIGTERM

import pytest

from conftest import Bellhop, wait_for
from relay import Refused
from servers import Postgres, free_port
from test_agent import Agent
from test_media import PNG, download, kept
from test_tls import Papers

KEY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
CONFIG = """\
listen: 127.0.0.1:{port}
state_dir: {{state}}
master_key: "{key}"
store: {{{{kind: postgres, url: "{url}"}}}}
cluster: {{{{node: {node}, lease: {lease}, serve: all, drain: {drain}{more}}}}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: web, bot: lobby}}}}
"""


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


class Nodes:
    """The first one serves; the others carry to it."""

    def __init__(self, postgres):
        postgres.sql("DROP SCHEMA IF EXISTS bellhop CASCADE")
        self.url, self.all = postgres.url, []

    def make(self, node, more="", tail="", drain="0s", lease="20s"):
        port = free_port()
        server = Bellhop(CONFIG.format(port=port, key=KEY, url=self.url, node=node, more=more, drain=drain,
                                        lease=lease) + tail)
        server.port, server.url = port, f"http://127.0.0.1:{port}"
        self.all.append(server)
        return server

    def serve(self, node="one", **more):
        return self.make(node, **more).start()

    def carry(self, node, **more):
        server = self.make(node, **more)
        server.begin()
        assert "stands by" in server.process.stdout.readline(), server.log()
        wait_for(lambda: "forwarding connections to" in server.log(), 20)
        return server


@pytest.fixture
def nodes(postgres):
    made = Nodes(postgres)
    yield made
    for server in reversed(made.all):
        server.clean()


def history(server):
    return server.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": "e2e-visitor-000000"}).json["messages"]


def test_a_conversation_goes_through_three_nodes(nodes, dial):
    one, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    credential = two.add()  # the command line works on every node
    gateway = dial(three, credential)
    assert two.write("hello") == 200
    chat = gateway.hear("hello")["event"]["source"]["chat_id"]
    assert gateway.act(op="send", chat_id=chat, content="good day")["success"]
    assert [m["text"] for m in history(two)] == ["hello", "good day"]
    assert history(one) == history(two) == history(three)
    assert one.metric("node_carried_connections") >= 1 and three.metric("node_carried_connections") >= 1
    assert two.get("/readyz").status == 200 and two.get("/healthz").json == {"status": "standby"}
    assert json.loads(three.cli("status", "--json").stdout)["node"]["name"] == "one"
    states = wait_for(lambda: {n["node"]: n["state"] for n in json.loads(two.cli("node", "list", "--json").stdout)
                               if n["state"] != "standby"})
    assert states["one"] == "serving"


def test_news_of_an_answer_stream_through_another_node(nodes, dial):
    one, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    gateway, heard = dial(two, one.add()), []

    def listen():
        request = urllib.request.Request(three.url + "/chat/lobby/api/events",
                                         headers={"X-Bellhop-Visitor": "e2e-visitor-000000"})
        try:
            for line in urllib.request.urlopen(request, timeout=30):
                heard.append(line.decode())
        except OSError:
            pass

    threading.Thread(target=listen, daemon=True).start()
    wait_for(lambda: heard)
    assert one.write("are you there?") == 200
    chat = gateway.hear("are you there?")["event"]["source"]["chat_id"]
    assert gateway.act(op="send", chat_id=chat, content="always")["success"]
    wait_for(lambda: any("always" in line for line in heard))


def test_who_is_revoked_on_one_node_is_out_on_all(nodes, dial):
    _, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    credential = two.add()
    gateway = dial(three, credential)
    two.cli("gateway", "revoke", credential.id)
    assert gateway.wait_closed()[0] == 4401
    again = dial(three, credential, wait=False, hello=None)
    assert again.wait_closed()[0] == 4401


def test_a_node_that_goes_sends_its_gateways_elsewhere(nodes, dial):
    one, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    credential = one.add()
    gateway = dial(two, credential)
    two.signal(SIGTERM)
    assert gateway.wait_closed()[0] == 1012
    assert two.wait() == 0
    assert one.write("while nobody was there") == 200
    dial(three, credential).hear("while nobody was there")
    wait_for(lambda: not any(i["entries"] for i in json.loads(one.cli("status", "--json").stdout)["instances"]))  # acked
    three.signal(SIGKILL)
    three.wait()
    assert one.write("and once more") == 200
    dial(one, credential).hear("and once more")


def test_the_next_to_serve_is_found_by_the_others(nodes, dial):
    one, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    credential = one.add()
    gateway = dial(two, credential)
    assert "stays down until" in one.cli("node", "drain").stderr
    assert one.wait() == 76
    assert two.write("for the next") == 200
    wait_for(lambda: two.get("/readyz").status == 200 and three.get("/readyz").status == 200, 20)
    gateway.hear("for the next")  # on the socket that it had
    assert three.write("and again") == 200
    gateway.hear("and again")
    assert gateway.closed is None
    assert sorted(json.loads(n.cli("status", "--json").stdout)["node"]["name"] for n in (two, three)) in (
        ["two", "two"], ["three", "three"])


def test_any_node_is_drained_by_its_name_on_any_other(nodes):
    one, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    assert {c["node"] for c in json.loads(three.cli("status", "--json").stdout)["node"]["carriers"]} == {"two", "three"}
    assert "two forwards" in one.cli("status").stdout
    nobody = two.cli("node", "drain", "four", check=False)
    assert nobody.returncode == 1 and "No node of that name" in nobody.stderr
    two.cli("node", "drain", "three")
    assert three.wait() == 76
    two.cli("node", "drain", "one")
    assert one.wait() == 76
    wait_for(lambda: two.get("/readyz").status == 200)
    assert json.loads(two.cli("status", "--json").stdout)["node"]["name"] == "two"


def takes_over(*others):
    """Which of the others serves, once it does."""
    return wait_for(lambda: next((o for o in others if "serves: epoch" in o.log()), None), every=0.005)


def test_a_gateway_that_is_frozen_does_not_hold_up_who_takes_over(nodes, dial):
    one, two = nodes.serve(), nodes.carry("two")
    credential = one.add()
    agent = Agent(one, credential, ["cat"])
    agent.process.send_signal(SIGSTOP)
    try:
        assert one.write("it does not take this") == 200
        time.sleep(1)
        one.signal(SIGTERM)
        began = time.monotonic()
        takes_over(two)
        took = time.monotonic() - began
        print(f"took over after {took:.2f} s")
        assert took < 1.5
        assert one.wait() == 0
    finally:
        agent.end(SIGKILL)
    dial(two, credential).hear("it does not take this")


def test_a_node_that_goes_says_so_first_and_serves_on_until_its_proxy_knows(nodes, dial):
    one, two = nodes.serve(drain="2s"), nodes.carry("two", drain="2s")
    gateway = dial(one, one.add())
    one.signal(SIGTERM)
    began = time.monotonic()
    wait_for(lambda: one.get("/readyz").status == 503)
    assert one.get("/readyz").json["code"] == "draining"
    assert two.get("/readyz").status == 200  # it goes on
    answer = one.get("/chat/lobby")
    assert answer.status == 200 and answer.headers["Connection"] == "close"
    assert one.write("to who goes") == 200 and two.write("through who stays") == 200
    gateway.hear("to who goes")
    gateway.hear("through who stays")
    assert time.monotonic() - began < 2
    assert gateway.wait_closed()[0] == 1012 and time.monotonic() - began > 1.9
    assert one.wait() == 0
    wait_for(lambda: two.get("/readyz").status == 200)


def test_a_node_that_carries_says_so_first_when_it_goes(nodes):
    one, two = nodes.serve(), nodes.carry("two", drain="2s")
    one.add()
    two.signal(SIGTERM)
    wait_for(lambda: two.get("/readyz").status == 503)
    assert one.get("/readyz").status == 200
    assert two.write("through who goes") == 200
    assert two.wait() == 0


def test_a_node_stays_ready_while_nobody_serves_and_holds_what_comes(nodes):
    one, two, three = nodes.serve(lease="3s"), nodes.carry("two", lease="3s"), nodes.carry("three", lease="3s")
    one.add()
    statuses, over = [], threading.Event()

    def probe():
        while not over.is_set():
            statuses.append([n.get("/readyz").status for n in (two, three)])
            time.sleep(0.05)

    probing = threading.Thread(target=probe)
    one.kill()
    wait_for(lambda: all("cannot forward connections to one" in n.log() for n in (two, three)))
    probing.start()
    answers = [two.write("held"), three.write("held too")]
    takes_over(two, three)
    over.set()
    probing.join()
    assert answers == [200, 200] and len(statuses) > 5
    assert all(s == [200, 200] for s in statuses), statuses


def test_who_asks_while_nobody_serves_waits_for_the_next(nodes):
    one, two, three = nodes.serve(), nodes.carry("two"), nodes.carry("three")
    one.add()
    answers, over = [], threading.Event()

    def person(n):
        k = 0
        while not over.is_set():
            try:
                answers.append((two, three)[(n + k) % 2].write(f"{n}:{k}", visitor=f"e2e-visitor-00000{n}"))
            except OSError as e:
                answers.append(e)
            k += 1

    people = [threading.Thread(target=person, args=(n,)) for n in range(4)]
    for p in people:
        p.start()
    wait_for(lambda: len(answers) > 40)
    one.cli("node", "drain")
    assert one.wait() == 76
    before = len(answers)
    wait_for(lambda: len(answers) > before + 40, 30)
    over.set()
    for p in people:
        p.join()
    assert len(answers) > 80 and set(answers) == {200}, answers


def test_files_are_carried_whole(nodes, tmp_path):
    tail = f"media: {{{{dir: {tmp_path}}}}}\n"
    one, two = nodes.serve(tail=tail), nodes.carry("two", tail=tail)
    credential = one.add()
    data = PNG + bytes(range(256)) * (12 << 10)
    assert download(two, kept(two, credential, data), credential.token()).content == data


def test_trunks_are_tls_where_the_nodes_are(nodes, tmp_path):
    papers = Papers(tmp_path)
    cert, key = papers.sign("nodes")
    tail, more = f"tls: {{{{cert: {cert}, key: {key}}}}}\n", f', ca: "{papers.pem}"'
    nodes.serve(tail=tail, more=more)
    two = nodes.carry("two", tail=tail, more=more)
    done = subprocess.run(["curl", "-s", "--cacert", papers.pem, f"https://127.0.0.1:{two.port}/readyz"], text=True,
                          capture_output=True, timeout=20)
    assert json.loads(done.stdout) == {"status": "ready"}
    stranger = nodes.make("stranger", tail=tail)  # it does not know who vouches for the others
    stranger.begin()
    assert "stands by" in stranger.process.stdout.readline()
    wait_for(lambda: "cannot forward connections to" in stranger.log(), 20)


def test_a_node_that_carries_reads_its_configuration_again_and_cuts_nobody(nodes, tmp_path):
    papers = Papers(tmp_path)
    cert, key = papers.sign("first")
    tail, more = f"tls: {{{{cert: {cert}, key: {key}}}}}\n", f', ca: "{papers.pem}"'
    nodes.serve(tail=tail, more=more)
    two = nodes.carry("two", tail=tail, more=more)
    context = ssl.create_default_context(cafile=papers.pem)

    def name():
        with context.wrap_socket(socket.create_connection(("127.0.0.1", two.port)), server_hostname="localhost") as s:
            return s.getpeercert()["subject"][0][0][1]

    def reload():
        before = len(two.lines)
        two.signal(SIGHUP)
        return wait_for(lambda: next((line for line in two.lines[before:] if "reload:" in line), None))

    def ask(s, host):
        s.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return int(s.recv(4000).split()[1])

    with context.wrap_socket(socket.create_connection(("127.0.0.1", two.port)), server_hostname="localhost") as old:
        assert ask(old, "localhost") == 200
        for where, made in zip((cert, key), papers.sign("second")):
            where.write_bytes(made.read_bytes())
        two.config.write_text(two.config.read_text() + "hosts: [another.example.org]\n")
        assert name() == "first"
        assert "hosts" in reload()
        assert name() == "second"
        assert ask(old, "another.example.org") == 200  # on the connection that it had
        key.write_text("nothing")
        assert "kept the old configuration" in reload()
    assert name() == "second" and two.process.poll() is None


def test_a_node_that_cannot_be_found_is_not_carried_to(nodes, dial):
    one = nodes.make("one")
    one.config.write_text(one.config.read_text().replace("127.0.0.1:", "0.0.0.0:"))
    one.start()
    wait_for(lambda: "set cluster.address" in one.log())  # written after the line that says it is ready
    two = nodes.make("two")
    two.begin()
    assert "stands by" in two.process.stdout.readline()
    assert two.get("/readyz").status == 503
    with pytest.raises(Refused):
        dial(two, one.add())

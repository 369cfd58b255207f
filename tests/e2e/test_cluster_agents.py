"""Agents on the machine of one node (agents: node), while another node serves: brought there, or kept until it is back."""
import time

import pytest

from conftest import wait_for
from dispatch_rig import Sender, augment
from servers import Postgres
from test_carry import Nodes
from test_dispatch_substrates import program


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


class Machines(Nodes):
    """Each node has the same agents, and finds them in a directory of its own, as on a machine of its own."""

    def __init__(self, postgres, path):
        super().__init__(postgres)
        self.path = path

    def make(self, node, **more):
        here = self.path / node
        here.mkdir(exist_ok=True)
        (here / "drop").mkdir(exist_ok=True)
        prog = program(here / "prog", f"d = json.load(sys.stdin); open('{here}/ran', 'a').write(d['content'] + '\\n'); "
                                      f"print(d['content'] + ' at {node}', end='')")
        tail = (f"dispatch: {{{{retry: 100ms}}}}\nagents:\n"
                f"  - {{{{id: drop, tenant: t, substrate: file, dir: '{here}/drop', node: two}}}}\n"
                f"  - {{{{id: prog, tenant: t, substrate: exec, command: [{prog}], node: two}}}}\n"
                f"  - {{{{id: bell, tenant: t, substrate: exec, command: [{prog}], wake_on_deliver: true}}}}\n")
        return super().make(node, tail=tail, **more)

    def files(self, node):
        return sorted(p.name for p in (self.path / node / "drop").glob("*.json"))

    def ran(self, node):
        file = self.path / node / "ran"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def machines(postgres, tmp_path):
    made = Machines(postgres, tmp_path)
    yield made
    for server in reversed(made.all):
        server.clean()


def test_an_agent_gets_its_mail_on_its_own_node_while_another_serves(machines):
    one = machines.serve()
    machines.carry("two")
    sender = Sender(one)
    big = "x" * 300000
    for n, text in enumerate(["a", big, "c"]):
        assert sender.deliver("drop", augment(text, f"d{n}")).status == 200
    wait_for(lambda: len(machines.files("two")) == 3)
    assert big in (machines.path / "two" / "drop" / "d1.json").read_text()
    answer = sender.request("prog", augment("hi", correlation_id="c")).json
    assert answer["content"] == "hi at two"
    assert sender.status("prog").json == {"status": "idle"}
    assert machines.files("one") == [] and machines.ran("one") == []


def test_its_mail_waits_while_its_node_is_not_there(machines):
    one = machines.serve()
    sender = Sender(one)
    receipt = sender.deliver("drop", augment("early", "e0"))
    assert receipt.status == 200
    wait_for(lambda: "its node two is not there" in one.log())
    assert "its node two is not there" in sender.deliver("drop", augment("next", "e1")).text
    assert "node two" in sender.status("drop").json["detail"]
    machines.carry("two")
    wait_for(lambda: machines.files("two") == ["e0.json", "e1.json"])
    assert machines.files("one") == []
    assert one.instance("agent:drop")["parked"] == 0


def test_when_its_node_serves_it_is_brought_there_without_a_detour(machines):
    one, two = machines.serve(), machines.carry("two")
    sender = Sender(one)
    assert sender.deliver("prog", augment("before", "b0")).status == 200
    wait_for(lambda: machines.ran("two") == ["before"])
    one.cli("node", "drain")
    assert one.wait() == 76
    wait_for(lambda: two.get("/readyz").status == 200)
    assert Sender(two).deliver("prog", augment("after", "b1")).status == 200
    wait_for(lambda: machines.ran("two") == ["before", "after"])
    assert machines.ran("one") == []


def test_a_wake_for_later_is_rung_once_by_whoever_serves_then(machines):
    one, two = machines.serve(), machines.carry("two")
    sender = Sender(one)
    due = int(time.time() * 1000) + 3000
    assert sender.wake("bell", {"context": "tea", "when": due}).json["woken"] is False
    one.cli("node", "drain")
    assert one.wait() == 76
    wait_for(lambda: two.get("/readyz").status == 200)
    wait_for(lambda: machines.ran("two"))
    assert time.time() * 1000 >= due
    two.signal(15)
    assert two.wait() == 0
    two.start()
    time.sleep(1)
    assert len(machines.ran("two")) == 1 and machines.ran("one") == []

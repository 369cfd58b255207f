"""GET /v1/deliveries/{id}: where a delivery is, for its sender."""
import json
import os
import shutil
import threading
import time
import urllib.parse

import pytest

from conftest import wait_for
from dispatch_rig import Sender, augment, config, template
from test_mcp import Chats
from v1 import Program, make_key


@pytest.fixture
def house(make_bellhop, tmp_path):
    (tmp_path / "drop").mkdir()
    os.mkfifo(tmp_path / "fifo")
    return make_bellhop(config(f"id: filer, substrate: file, dir: {tmp_path}/drop",
                               f"id: gone, substrate: file, dir: {tmp_path}/nowhere",
                               f"id: pipe, substrate: pipe, path: {tmp_path}/fifo",
                               "id: fails, substrate: exec, command: [/bin/false]",
                               "id: bot, substrate: relay, instance: bot", "id: none, substrate: none", attempts=2))


def where(who, name, **query):
    return who.get(f"/v1/deliveries/{urllib.parse.quote(name, safe='')}?{urllib.parse.urlencode(query)}")


def state(who, name, **query):
    answer = where(who, name, **query)
    assert answer.status == 200, answer.text
    return answer.json["state"]


def test_a_taken_delivery_is_acknowledged_with_its_times(house):
    sender = Sender(house)
    before = int(time.time() * 1000)
    assert sender.deliver("filer", augment("x", "d/1 ä")).status == 200
    shown = where(sender, "d/1 ä").json
    times = [shown.pop(k) for k in ("queued_at", "delivered_at", "acknowledged_at")]
    assert before - 20 <= times[0] <= times[1] <= times[2] <= int(time.time() * 1000)
    assert shown == {"delivery_id": "d/1 ä", "agent_id": "filer", "dispatch_id": "d/1 ä", "kind": "augment",
                     "state": "acknowledged"}


def test_a_delivery_is_followed_from_the_mailbox_to_the_answer_across_restarts(house, dial):
    sender = Sender(house)
    gateway = house.add("--instance", "bot", tenant="t")
    assert sender.deliver("bot", augment("x", "d1")).json["delivery_skipped"] is True
    assert state(sender, "d1") == "queued"
    house.kill()
    house.start()
    assert state(sender, "d1") == "queued"
    live = dial(house, gateway, ack=False)
    frame = live.next("inbound")
    shown = wait_for(lambda: (j := where(sender, "d1").json)["state"] == "delivered" and j)
    assert shown["queued_at"] <= shown["delivered_at"] and "acknowledged_at" not in shown
    live.acknowledge(frame)
    shown = wait_for(lambda: (j := where(sender, "d1").json)["state"] == "acknowledged" and j)
    assert shown["delivered_at"] <= shown["acknowledged_at"]
    live.act("relay", op="send", chat_id=frame["event"]["source"]["chat_id"], content="done", reply_to="d1")
    first = wait_for(lambda: (j := where(sender, "d1").json)["state"] == "answered" and j)
    live.act("relay", op="send", chat_id=frame["event"]["source"]["chat_id"], content="more", reply_to="d1")
    wait_for(lambda: len(sender.replies("bot").json["replies"]) == 2)
    house.kill()
    house.start()
    assert where(sender, "d1").json == first


def test_what_is_given_up_is_refused_with_its_reason_and_a_redrive_takes_it_back(house, tmp_path):
    sender = Sender(house)
    assert sender.deliver("fails", augment("x", "d1")).status == 200
    shown = wait_for(lambda: (j := where(sender, "d1").json)["state"] == "refused" and j)
    assert "exit status 1" in shown["reason"] and "acknowledged_at" not in shown
    assert sender.deliver("none", augment("x", "d2")).status == 200
    assert state(sender, "d2") == "queued"
    house.cli("mailbox", "purge", "agent:none", "--tenant", "t", "--yes")
    assert wait_for(lambda: "removed" in where(sender, "d2").json.get("reason", ""))
    assert sender.deliver("gone", augment("x", "d3")).json["delivery_skipped"] is True
    assert state(sender, "d3") in ("queued", "refused")
    wait_for(lambda: state(sender, "d3") == "refused")
    (tmp_path / "nowhere").mkdir()
    house.cli("mailbox", "redrive", "agent:gone", "--tenant", "t")
    wait_for(lambda: state(sender, "d3") == "acknowledged")


def test_only_the_sender_and_the_operator_see_it(house):
    sender, other, stranger = Sender(house), Sender(house), Sender(house, tenant="u")
    bound = Program(house, make_key(house, "t", agent="filer"))
    sender.deliver("filer", augment("x", "d1"))
    for who in (other, stranger, bound):
        answer = where(who, "d1")
        assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert answer.json["error"] == where(who, "d2").json["error"].replace("d2", "d1")
    assert where(sender, "d1", agent_id="bot").status == 404 and where(sender, "d1", kind="template").status == 404
    assert house.cli("dispatch", "delivery", "d1", "--tenant", "t", "--json").stdout
    assert where(Program(house, "nonsense"), "d1").status == 401


def test_one_id_for_several_agents_and_kinds_is_told_apart(house):
    sender = Sender(house)
    sender.deliver("filer", augment("x", "d1"))
    sender.deliver("none", template("x", "d1"))
    sender.deliver("none", augment("x", "d1"))
    assert where(sender, "d1", agent_id="filer").json["state"] == "acknowledged"
    assert where(sender, "d1", agent_id="none", kind="template").json["kind"] == "template"
    assert where(sender, "d1").json["agent_id"] == "none"


def test_answered_deliveries_are_known_after_a_kill(house, tmp_path):
    sender = Sender(house)
    for i in range(40):
        assert sender.deliver("filer" if i % 2 else "none", augment("x", f"d{i}")).status == 200
    house.kill()
    house.start()
    for i in range(40):
        assert state(sender, f"d{i}") == ("acknowledged" if i % 2 else "queued")
    shutil.rmtree(tmp_path / "drop")


def test_the_tools_ask_read_replies_and_follow_a_delivery(house, tmp_path):
    me = Chats(house, make_key(house, "t"))
    receipt = me.ask("agent_deliver", agent_id="filer", kind="augment", content="x")
    assert me.ask("delivery_status", delivery_id=receipt["delivery_id"])["state"] == "acknowledged"
    got = []
    asking = threading.Thread(target=lambda: got.append(me.ask("agent_request", agent_id="filer", kind="template",
                                                                prompt="how?", timeout_ms=15000)))
    asking.start()
    asked = wait_for(lambda: [d for p in (tmp_path / "drop").iterdir() if (d := json.loads(p.read_text())).get("prompt")])
    other = Chats(house, make_key(house, "t", agent="filer"))
    assert other.ask("agent_reply", correlation_id=asked[0]["meta"]["correlation_id"], content="so", final=True)["taken"]
    asking.join(20)
    assert got[0]["content"] == "so"
    assert [r["content"] for r in me.ask("agent_replies", agent_id="filer")["replies"]] == ["so"]

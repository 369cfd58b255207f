"""Who may reach whom: a person linked to nobody reaches nobody, unless an operator said otherwise."""
import json
import re
import sqlite3

import pytest

from conftest import Credential
from test_enroll import provision, token
from test_telegram import ANN, GROUP, config, sim  # noqa: F401 - a fixture

BOB, CAT = 6, 7


def person(id):
    return {"id": id, "is_bot": False, "first_name": f"person {id}"}


@pytest.fixture
def house(sim, make_bellhop):  # noqa: F811
    sim.person(BOB, "Bob")
    server = make_bellhop(config(sim))
    server.sim = sim
    return server


def why(server):
    newest = json.loads(server.cli("why", "--platform", "telegram", "--json").stdout)[0]
    return {v["instance"]: v["reason"] for v in newest["verdicts"]}


def routes(server):
    return json.loads(server.cli("route", "list", "--json").stdout)


def open_route(server, key, *more, check=True):
    return server.cli("route", "add", "--platform", "telegram", "--key", str(key), "--tenant", "t", *more, check=check)


@pytest.mark.parametrize("platform, bot", [("telegram", "my_bot"), ("discord", "1"), ("twilio", "+1"), ("wecom", "1")])
def test_gateway_add_prints_a_link_code_beside_the_three_lines(house, platform, bot):
    done = house.cli("gateway", "add", "--tenant", "t", "--platform", platform, "--bot", bot)
    assert len(done.stdout.splitlines()) == 3
    assert re.search(r"send the bot this message within ten minutes: /link [0-9A-Z]{8}\n", done.stderr), done.stderr
    assert routes(house) == []


def test_the_first_run_is_one_copy_and_one_message(house, dial):
    done = house.cli("gateway", "add", "--tenant", "t", "--platform", "telegram", "--bot", "my_bot")
    gateway = dial(house, Credential(done.stdout), hello=("telegram", "my_bot"))
    house.sim.say(ANN, "anybody?")
    house.sim.say(ANN, re.search(r"/link \w+", done.stderr).group())
    house.sim.say(ANN, "now?")
    gateway.hear("now?")
    house.sim.say(BOB, "me too?", user=person(BOB))
    house.sim.say(ANN, "last")
    gateway.hear("last")  # and nothing of Bob's before it


def test_an_open_bot_is_reached_by_everybody_and_why_says_so(house, dial):
    gateway = dial(house, house.add(id="g", platform="telegram", bot="my_bot"), hello=("telegram", "my_bot"))
    house.sim.say(ANN, "hello")
    gateway.hear("hello")
    assert why(house) == {"g": "open"}
    assert [(r["key"], r["instance"], r["open"], r["origin"]) for r in routes(house)] == [
        ("my_bot", "g", True, "operator")]
    assert "everybody (open)" in house.cli("route", "list").stdout


def test_a_route_that_is_not_open_delivers_to_nobody_and_why_says_so(house, dial):
    gateway = dial(house, house.add(id="g", platform=None), hello=("telegram", "my_bot"))
    open_route(house, GROUP)
    house.sim.say(GROUP, "hello")
    assert gateway.quiet(seconds=1)
    assert why(house) == {"g": "closed"}
    assert gateway.act(op="send", chat_id=str(GROUP), content="I may speak", reply_to=None, metadata={})["success"]
    open_route(house, GROUP, "--open")
    house.sim.say(GROUP, "again")
    gateway.hear("again")
    assert len(routes(house)) == 1


def test_all_chats_of_a_bot_and_everything_can_only_be_opened(house):
    for key in ("my_bot", "*"):
        done = open_route(house, key, check=False)
        assert done.returncode == 1 and "--open" in done.stderr
        assert open_route(house, key, "--open").returncode == 0


def test_an_open_route_names_an_instance_when_there_are_several(house):
    house.add(id="a", platform=None)
    house.add(id="b", platform=None)
    done = open_route(house, GROUP, "--open", check=False)
    assert done.returncode == 1 and "--instance" in done.stderr
    open_route(house, GROUP, "--open", "--instance", "a")
    assert "needs --platform" in house.cli("gateway", "add", "--tenant", "t", "--open", check=False).stderr


def test_nothing_but_the_operator_opens_a_place(house, dial):
    """Neither provisioning, nor enrollment, nor the management plane: a made-up `open` is not read."""
    me = token(house, "provision", tenant="t")
    got = provision(house, me, platform="telegram", botId="my_bot", open=True, routeKeys=[str(GROUP), "my_bot", "*"])
    assert got.json["routeKeys"] == [str(GROUP)]
    assert [(r["open"], r["origin"]) for r in routes(house)] == [(False, "provision")]
    c = Credential(f"GATEWAY_RELAY_URL=\nGATEWAY_RELAY_ID={got.json['gatewayId']}\nGATEWAY_RELAY_SECRET={got.json['secret']}\n")
    gateway = dial(house, c, hello=("telegram", "my_bot"))
    bearer = {"Authorization": f"Bearer {c.token()}"}
    assert house.post("/manage/scope", {"platform": "telegram", "guildId": str(GROUP), "channelId": "*", "open": True},
                      headers=bearer).status == 200
    assert house.post("/manage/principal", {"mode": "any", "open": True}, headers=bearer).status == 200
    house.sim.say(GROUP, "hello")
    assert gateway.quiet(seconds=1)
    refused = gateway.act(op="send", chat_id=str(GROUP), content="spam", reply_to=None, metadata={})
    assert "not routed" in refused["error"]
    assert not house.sim.sent(GROUP)


def test_a_damaged_route_stops_the_start_and_is_named(house):
    house.cli("route", "add", "--platform", "telegram", "--key", "1", "--tenant", "t", "--instance", "i")
    assert house.stop() == 0
    with sqlite3.connect(house.state / "bellhop.db") as db:
        (kept,) = db.execute("SELECT v FROM kv WHERE ns = 'route'").fetchone()
        db.execute("UPDATE kv SET v = ? WHERE ns = 'route'", (b'{"origin":"somebody"}',))
    house.begin()
    assert house.process.wait(30) == 1
    house.reader.join()
    house.process = None
    assert 'the route record "telegram\\x1f1\\x1ft\\x1fi" is damaged' in house.log()
    with sqlite3.connect(house.state / "bellhop.db") as db:
        db.execute("UPDATE kv SET v = ? WHERE ns = 'route'", (kept,))
    house.start()
    assert [r["key"] for r in routes(house)] == ["1"]


# ---- between tenants ----


def send(gateway, chat, text, **more):
    return gateway.act(op="send", chat_id=str(chat), content=text, reply_to=None, metadata={}, **more)


@pytest.fixture
def shared(house, dial):
    """Two tenants on one bot, in one group: Ann's agent a and Bob's agent b."""
    house.a, house.b = (house.add(id=i, tenant=t, platform=None) for i, t in (("a", "acme"), ("b", "zorg")))
    for who, user in (("a", ANN), ("b", BOB)):
        house.cli("link", "add", "--instance", who, "--platform", "telegram", "--user", str(user))
    house.ga = dial(house, house.a, hello=("telegram", "my_bot"))
    house.gb = dial(house, house.b, hello=("telegram", "my_bot"))
    house.sim.say(GROUP, "from ann")
    house.ga.hear("from ann")
    house.sim.say(GROUP, "from bob", user=person(BOB))
    house.gb.hear("from bob")
    return house


def test_an_agent_edits_what_it_sent_itself_and_nothing_else(shared, dial):
    sent = send(shared.gb, GROUP, "bob's")["message_id"]

    def edit(gateway):
        return gateway.act(op="edit", chat_id=str(GROUP), message_id=sent, content="rewritten", metadata={})

    assert "not sent by this agent" in edit(shared.ga)["error"]
    assert [m["text"] for m in shared.sim.sent(GROUP)] == ["bob's"]
    shared.restart()
    assert "not sent by this agent" in edit(dial(shared, shared.a, hello=("telegram", "my_bot")))["error"]
    assert edit(dial(shared, shared.b, hello=("telegram", "my_bot")))["success"]
    assert [m["text"] for m in shared.sim.sent(GROUP)] == ["rewritten"]


def react(gateway, message):
    return gateway.act(op="react", chat_id=str(GROUP), message_id=str(message), emoji="\U0001F440", metadata={})


def test_an_agent_reacts_to_what_it_was_delivered_or_sent_and_to_nothing_else(shared, dial):
    anns = shared.sim.say(GROUP, "ann's word")
    shared.ga.hear("ann's word")
    bobs = send(shared.gb, GROUP, "bob's answer")["message_id"]
    assert "not delivered to this agent" in react(shared.gb, anns)["error"]
    assert "not delivered to this agent" in react(shared.ga, bobs)["error"]
    assert not any(m.get("reactions") for m in shared.sim.chats[GROUP]["messages"].values())
    assert react(shared.ga, anns)["success"] and react(shared.gb, bobs)["success"]
    shared.restart()
    ga, gb = (dial(shared, c, hello=("telegram", "my_bot")) for c in (shared.a, shared.b))
    assert react(ga, anns)["success"] and react(gb, bobs)["success"]
    assert "not delivered to this agent" in react(gb, anns)["error"]


def call(server, gateway, tenant, name):
    assert provision(server, token(server, "provision", tenant=tenant), gateway, displayName=name).status == 200


def test_where_agents_share_a_chat_each_says_its_name(shared, dial):
    call(shared, "a", "acme", "Ann's *helper*")
    sent = send(shared.ga, GROUP, "hi")["message_id"]
    assert send(shared.gb, GROUP, "no name")["success"]
    call(shared, "b", "zorg", "Bob's")
    assert send(shared.gb, GROUP, "hello")["success"]
    assert shared.ga.act(op="edit", chat_id=str(GROUP), message_id=sent, content="hi again", metadata={})["success"]
    said = shared.sim.sent(GROUP)
    assert [m["text"] for m in said] == ["Ann's *helper*: hi again", "no name", "Bob's: hello"]
    assert said[0]["entities"] == [{"type": "bold", "offset": 0, "length": len("Ann's *helper*:")}]
    shared.sim.say(ANN, "in private")
    shared.ga.hear("in private")
    assert send(shared.ga, ANN, "between us")["success"]
    assert shared.sim.sent(ANN)[-1]["text"] == "between us"
    shared.restart()
    assert send(dial(shared, shared.a, hello=("telegram", "my_bot")), GROUP, "after")["success"]
    assert shared.sim.sent(GROUP)[-1]["text"] == "Ann's *helper*: after"


def test_the_right_to_speak_ends_with_the_link_also_after_a_restart(shared, dial):
    assert send(shared.ga, GROUP, "hello")["success"]
    shared.cli("link", "remove", "--instance", "a", "--platform", "telegram", "--user", str(ANN))
    assert "not routed" in send(shared.ga, GROUP, "still here")["error"]
    assert send(shared.gb, GROUP, "bob's goes on")["success"]
    shared.restart()
    assert "not routed" in send(dial(shared, shared.a, hello=("telegram", "my_bot")), GROUP, "still here")["error"]


def test_more_than_sixteen_messages_are_refused_whole(shared):
    error = send(shared.ga, GROUP, "word " * 20000)["error"]
    assert "too long" in error or "longer than sixteen" in error
    assert shared.sim.sent(GROUP) == []
    assert send(shared.ga, GROUP, "short")["success"]


def claim(server, credential, channel):
    return server.post("/manage/scope", {"platform": "telegram", "guildId": str(GROUP), "channelId": channel},
                       headers={"Authorization": f"Bearer {credential.token()}"}).status


def test_claims_are_bounded_and_the_operator_displaces_a_squatter(shared):
    assert [claim(shared, shared.b, str(n)) for n in range(256)] == [200] * 256
    assert claim(shared, shared.b, "one more") == 429
    assert claim(shared, shared.a, "0") == 409
    shared.cli("scope", "claim", "--instance", "a", "--platform", "telegram", "--guild", str(GROUP), "--channel", "0")
    held = {s["channelId"]: s["instance"] for s in json.loads(shared.cli("scope", "list", "--json").stdout)}
    assert held["0"] == "a" and held["1"] == "b"
    assert claim(shared, shared.b, "0") == 409


def test_a_claim_is_worth_nothing_in_a_place_routed_to_another_tenant(shared):
    assert claim(shared, shared.b, "*") == 200
    assert shared.post("/manage/principal", {"mode": "any"},
                       headers={"Authorization": f"Bearer {shared.b.token()}"}).status == 200
    shared.sim.person(CAT, "Cat")
    shared.sim.say(GROUP, "before", user=person(CAT))
    shared.gb.hear("before")
    shared.cli("route", "add", "--platform", "telegram", "--key", str(GROUP), "--tenant", "acme")
    shared.sim.say(GROUP, "after", user=person(CAT))
    assert shared.gb.quiet(seconds=1)
    assert why(shared)["b"] == "other_tenant"
    shared.sim.say(GROUP, "mine", user=person(BOB))  # people who are linked reach their own
    shared.gb.hear("mine")
    assert send(shared.gb, GROUP, "and get an answer")["success"]

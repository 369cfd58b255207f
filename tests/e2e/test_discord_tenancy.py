"""The visibility floor and the gate on Discord: scopes, people, threads, against the simulator."""
import json
import pathlib
import sys
import time

import pytest

from conftest import wait_for
from test_discord import config, status
from test_enroll import provision, token
from test_manage import bearer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from discord import ANN, DM, GENERAL, GUILD, STAFF, THREAD, DiscordSim  # noqa: E402
from test_discord import TOKEN  # noqa: E402

BOB, CAT = "7002", "7003"
VIEW = "1024"


@pytest.fixture
def sim():
    s = DiscordSim(TOKEN)
    for id, name in ((BOB, "bob"), (CAT, "cat")):
        s.people[id] = {"id": id, "username": name, "global_name": name.title()}
        s.guilds[GUILD]["members"].append({"user": {"id": id, "username": name}, "roles": []})
    yield s
    s.close()


class House:
    def __init__(self, sim, make_bellhop, dial, more=""):
        self.sim, self.server = sim, make_bellhop(config(sim) + more)
        self.a = self.server.add(id="a", tenant="acme", platform=None)
        self.b = self.server.add(id="b", tenant="zorg", platform=None)
        self.ga = dial(self.server, self.a, hello=("discord", "app1"))
        self.gb = dial(self.server, self.b, hello=("discord", "app1"))
        wait_for(lambda: status(self.server)["state"] == "live")
        wait_for(lambda: status(self.server)["guilds"] == 1)

    def post(self, who, path, body):
        a = self.server.post(path, body, headers=bearer(who))
        assert a.status == 200, a.text
        return a.json

    def link(self, who, user):
        code = self.post(who, "/manage/link", {"platform": "discord"})["code"]
        n = len(self.sim.texts(GENERAL))
        self.sim.say(GENERAL, f"/link {code}", user=user)
        wait_for(lambda: len(self.sim.texts(GENERAL)) > n)
        assert "Linked" in self.sim.texts(GENERAL)[-1]

    def claim(self, who, channel, mode="any"):
        self.post(who, "/manage/scope", {"platform": "discord", "guildId": GUILD, "channelId": channel})
        self.post(who, "/manage/principal", {"platform": "discord", "mode": mode})

    def why(self):
        decisions = json.loads(self.server.cli("why", "--platform", "discord", "--json").stdout)
        return {v["instance"]: v["reason"] for d in decisions[:1] for v in d["verdicts"]}


@pytest.fixture
def house(sim, make_bellhop, dial):
    return House(sim, make_bellhop, dial)


def forbid(sim, channel, *users):
    overwrites = [{"id": u, "type": 1, "allow": "0", "deny": VIEW} for u in users]
    now = {**sim.channels[channel], "permission_overwrites": overwrites}
    sim.channels[channel] = now
    sim.tell("CHANNEL_UPDATE", now)


def test_two_tenants_share_a_guild_and_each_member_reaches_their_own_agent(house):
    house.link(house.a, ANN)
    house.link(house.b, BOB)
    house.sim.say(GENERAL, "from ann", user=ANN)
    house.sim.say(STAFF, "from bob", user=BOB)
    house.sim.say(GENERAL, "from cat", user=CAT)
    house.ga.hear("from ann")
    house.gb.hear("from bob")
    assert house.ga.quiet() and house.gb.quiet()


def test_reactions_and_threads_are_for_messages_that_were_delivered_or_sent(house):
    house.link(house.a, ANN)
    house.link(house.b, BOB)
    house.sim.say(GENERAL, "from ann", user=ANN)
    house.ga.hear("from ann")
    said = house.sim.messages[GENERAL][-1]
    house.sim.say(GENERAL, "from bob", user=BOB)
    house.gb.hear("from bob")
    about = dict(chat_id=GENERAL, message_id=said["id"], metadata={})
    for wish in (dict(op="react", emoji="\U0001F440"), dict(op="thread_create", thread_name="mine now")):
        assert "not delivered to this agent" in house.gb.act(**wish, **about)["error"]
    assert not said.get("mine") and said["id"] not in house.sim.channels
    assert house.ga.act(op="react", emoji="\U0001F440", **about)["success"]
    assert house.ga.act(op="thread_create", thread_name="a plan", **about)["thread_id"] == said["id"]
    answer = house.ga.act(op="send", chat_id=GENERAL, content="done", reply_to=None, metadata={})["message_id"]
    about["message_id"] = answer
    assert "not delivered to this agent" in house.gb.act(op="react", emoji="\U0001F440", **about)["error"]
    assert house.ga.act(op="react", emoji="\U0001F440", **about)["success"]


def test_where_agents_share_a_channel_each_says_its_name(house):
    house.link(house.a, ANN)
    house.link(house.b, BOB)
    for who, tenant, name in ((house.a, "acme", "Ann_1"), (house.b, "zorg", "Bob")):
        me = token(house.server, "provision", tenant=tenant)
        assert provision(house.server, me, who.id, displayName=name).status == 200
    say = dict(op="send", chat_id=GENERAL, content="hi", reply_to=None, metadata={})
    house.sim.say(GENERAL, "from ann", user=ANN)
    house.ga.hear("from ann")
    assert house.ga.act(**say)["success"]
    assert house.sim.texts(GENERAL)[-1] == "hi"  # alone so far
    house.sim.say(GENERAL, "from bob", user=BOB)
    house.gb.hear("from bob")
    assert house.ga.act(**say)["success"] and house.gb.act(**say)["success"]
    assert house.sim.texts(GENERAL)[-2:] == ["**Ann\\_1:** hi", "**Bob:** hi"]


def test_a_scope_hears_others_only_where_its_person_can_see(house):
    house.link(house.a, ANN)
    house.claim(house.a, GENERAL)
    wait_for(lambda: house.sim.say(GENERAL, "anybody there", user=CAT) and house.ga.seen)
    house.ga.hear("anybody there")
    assert house.why() == {"a": "scope"}
    forbid(house.sim, GENERAL, ANN)
    wait_for(lambda: house.sim.say(GENERAL, "behind her back", user=CAT) and house.why() == {"a": "unseen"})
    while not house.ga.quiet():
        pass
    house.sim.say(GENERAL, "still behind her back", user=CAT)
    assert house.ga.quiet()
    said = house.ga.act(op="send", chat_id=STAFF, content="never heard from", reply_to=None,
                        metadata={"scope_id": GUILD})
    assert not said["success"]


def test_the_first_message_after_a_start_waits_for_what_discord_says_and_is_not_lost(house, dial):
    """Cat is nobody's person, and bellhop has forgotten what Ann may see."""
    house.link(house.a, ANN)
    house.claim(house.a, GENERAL)
    house.server.restart()
    ga = dial(house.server, house.a, hello=("discord", "app1"))
    wait_for(lambda: status(house.server)["state"] == "live")
    house.sim.trouble("GET", "/members/", None, delay=1.5)
    house.sim.say(GENERAL, "first", user=CAT)
    house.sim.say(GENERAL, "second", user=ANN)
    ga.hear("first")
    ga.hear("second")


def test_without_discords_answer_nothing_is_delivered_and_why_says_so(house, dial):
    house.link(house.a, ANN)
    house.claim(house.a, GENERAL)
    house.server.restart()
    ga = dial(house.server, house.a, hello=("discord", "app1"))
    wait_for(lambda: status(house.server)["state"] == "live")
    house.sim.trouble("GET", "/members/", None, delay=12)
    house.sim.say(GENERAL, "first", user=CAT)
    wait_for(lambda: house.why() == {"a": "sight_asked"}, 20)
    assert ga.quiet()


def test_a_thread_is_seen_through_its_channel(house):
    house.link(house.a, ANN)
    house.claim(house.a, GENERAL)
    wait_for(lambda: house.sim.say(THREAD, "in the thread", user=CAT) and house.ga.seen)
    assert house.ga.next("inbound")["event"]["source"]["parent_chat_id"] == GENERAL
    forbid(house.sim, GENERAL, ANN)
    wait_for(lambda: house.sim.say(THREAD, "hidden", user=CAT) and house.why() == {"a": "unseen"})


def test_a_scope_nobody_is_linked_to_delivers_nothing(house):
    house.claim(house.a, GENERAL)
    house.sim.say(GENERAL, "hello", user=CAT)
    wait_for(lambda: house.why() == {"a": "sight_unknown"})
    assert house.ga.quiet()


def test_bots_are_not_heard_unless_asked_for(house):
    house.link(house.a, ANN)
    house.claim(house.a, GENERAL)
    wait_for(lambda: house.sim.say(GENERAL, "person", user=CAT) and house.ga.seen)
    house.sim.people["7009"] = {"id": "7009", "username": "robot", "bot": True}
    house.sim.say(GENERAL, "beep", user="7009")
    wait_for(lambda: house.why() == {"a": "other_bot"})
    assert "beep" not in house.ga.seen


def test_a_guild_wide_scope_gives_way_to_a_channel(house):
    house.link(house.a, ANN)
    house.link(house.b, BOB)
    house.claim(house.a, "*")
    house.claim(house.b, STAFF)
    wait_for(lambda: house.sim.say(GENERAL, "general", user=CAT) and house.ga.seen)
    wait_for(lambda: house.sim.say(STAFF, "staff", user=CAT) and house.gb.seen)
    assert "staff" not in house.ga.seen and "general" not in house.gb.seen
    assert house.why() == {"b": "scope", "a": "channel_owner"}


def test_direct_messages_of_a_linked_person(house):
    house.link(house.a, ANN)
    house.sim.say(DM, "in private", user=ANN)
    event = house.ga.hear("in private")["event"]
    said = house.ga.act(op="send", chat_id=event["source"]["chat_id"], content="and back", reply_to=None, metadata={})
    assert said["success"], said


# ---- tenants against each other ----


def send(gateway, channel, text="hi"):
    return gateway.act(op="send", chat_id=channel, content=text, reply_to=None, metadata={})


@pytest.fixture
def shared(house):
    """Ann's agent a and Bob's agent b, of two tenants, both heard in both channels."""
    house.link(house.a, ANN)
    house.link(house.b, BOB)
    for channel in (GENERAL, STAFF):
        for gateway, user in ((house.ga, ANN), (house.gb, BOB)):
            house.sim.say(channel, f"from {user}", user=user)
            gateway.hear(f"from {user}")
    house.sim.window = 10000  # Discord's own limits are not the matter here
    return house


def test_who_may_manage_a_channel_displaces_a_squatter(sim, make_bellhop, dial):
    sim.guilds[GUILD]["roles"].append({"id": "600", "name": "manager", "permissions": str(1024 | 16)})
    next(m for m in sim.guilds[GUILD]["members"] if m["user"]["id"] == ANN)["roles"] = ["600"]
    house = House(sim, make_bellhop, dial)
    place = {"platform": "discord", "guildId": GUILD, "channelId": GENERAL}

    def claim(who):
        return house.server.post("/manage/scope", place, headers=bearer(who)).status

    assert claim(house.b) == 200
    assert claim(house.a) == 409  # nobody who may manage it speaks for a yet
    house.link(house.a, ANN)
    wait_for(lambda: claim(house.a) == 200)  # what she may do is asked of Discord by the first one
    assert claim(house.b) == 409
    house.link(house.b, BOB)  # who may not
    assert claim(house.b) == 409
    held = json.loads(house.server.cli("scope", "list", "--json").stdout)
    assert [(s["channelId"], s["instance"]) for s in held] == [(GENERAL, "a")]


def test_one_tenants_refusals_hold_back_nobody_else(shared):
    shared.sim.forbidden[STAFF] = (50013, "Missing Permissions")
    errors = [send(shared.ga, STAFF, f"again {n}")["error"] for n in range(100)]
    assert not any("too much of this tenant" in e for e in errors)
    asked = len(shared.sim.calls)
    assert "too much of this tenant" in send(shared.ga, GENERAL)["error"]
    assert len(shared.sim.calls) == asked  # Discord was not asked
    assert send(shared.gb, GENERAL, "bob's goes on")["success"]
    assert shared.sim.texts(GENERAL)[-1] == "bob's goes on"


def test_refusals_of_what_was_asked_for_all_at_once_hold_back_nobody_else(sim, make_bellhop, dial):
    """A thousand at once are all in their lanes before the first is refused, and so many refusals pause a bot."""
    rooms = [str(9100 + n) for n in range(20)]
    for room in rooms:
        channel = {"id": room, "type": 0, "name": f"room {room}", "permission_overwrites": []}
        sim.guilds[GUILD]["channels"].append(channel)
        sim.channels[room] = {**channel, "guild_id": GUILD}
    house = House(sim, make_bellhop, dial)
    sim.window = 10000
    house.link(house.a, ANN)
    house.link(house.b, BOB)
    sim.say(GENERAL, "from bob", user=BOB)
    house.gb.hear("from bob")
    for room in rooms:
        sim.say(room, f"in {room}", user=ANN)
        house.ga.hear(f"in {room}")
        sim.forbidden[room] = (50013, "Missing Permissions")
    before = len(sim.calls)
    house.ga.send_raw("".join(json.dumps({"type": "outbound", "requestId": f"r{n}", "action": {
        "op": "send", "chat_id": rooms[n % 20], "content": f"{n}", "reply_to": None, "metadata": {}}}) + "\n"
        for n in range(1000)))
    answers = [house.ga.next("outbound_result", 60)["result"] for _ in range(1000)]
    assert not any(a["success"] for a in answers)
    assert len(sim.calls) - before < 200  # a hundred, and what was under way by then
    assert send(house.gb, GENERAL, "bob's goes on")["success"]
    assert sim.texts(GENERAL)[-1] == "bob's goes on"


def test_a_lane_that_is_told_to_slow_down_leaves_the_others_their_share(shared):
    shared.sim.limit(GENERAL, 15)
    for n in range(200):
        shared.ga.send({"type": "outbound", "requestId": f"r{n}", "action": {
            "op": "send", "chat_id": GENERAL, "content": f"{n}", "reply_to": None, "metadata": {}}})
    told = shared.ga.next("outbound_result")["result"]
    assert "network" in told["error"]  # its share of what may wait is used up
    began = time.monotonic()
    assert send(shared.gb, STAFF, "bob's goes on")["success"]
    assert time.monotonic() - began < 10
    assert "0" not in shared.sim.texts(GENERAL)  # what is ahead still waits


def test_each_part_of_a_long_text_counts_against_the_rate(sim, make_bellhop, dial):
    house = House(sim, make_bellhop, dial, more="limits: {{instance_actions: 1}}\n")
    house.link(house.a, ANN)
    house.sim.say(GENERAL, "from ann", user=ANN)
    house.ga.hear("from ann")
    before = len(house.sim.texts(GENERAL))
    # Five at once, one more every second: ten parts are too many, whatever is left of the five.
    assert "too many messages per second" in send(house.ga, GENERAL, "word " * 3900)["error"]
    assert len(house.sim.texts(GENERAL)) == before
    time.sleep(5.5)
    assert send(house.ga, GENERAL, "word " * 1500)["success"]  # four of them
    assert len(house.sim.texts(GENERAL)) == before + 4
    answers = [send(house.ga, GENERAL, f"{n}") for n in range(4)]
    assert any("too many" in a.get("error", "") for a in answers)


@pytest.fixture
def threading_house(sim, make_bellhop, dial, monkeypatch):
    """Two tenants on a bot that opens a thread for every answer: a's person is Ann, b's is Bob."""
    plain = config
    monkeypatch.setattr(sys.modules[__name__], "config", lambda s: plain(s, more=", auto_thread: true"))
    house = House(sim, make_bellhop, dial)
    for instance, user in (("a", ANN), ("b", BOB)):
        house.server.cli("link", "add", "--instance", instance, "--platform", "discord", "--user", user, "--bot", "app1")
    return house


def test_no_reply_to_leads_into_another_channel(sim, threading_house):
    forbid(sim, STAFF, BOB)
    sim.say(GENERAL, "bob asks", user=BOB)
    threading_house.gb.hear("bob asks")
    threading_house.gb.act(op="send", chat_id=GENERAL, content="for staff", reply_to=STAFF, metadata={})
    assert sim.texts(STAFF) == []


def test_nobody_moves_the_answers_of_another_tenant(sim, threading_house):
    for user, gateway in ((BOB, threading_house.gb), (ANN, threading_house.ga)):
        sim.say(STAFF, f"{user} asks", user=user)
        gateway.hear(f"{user} asks")
    threading_house.gb.act(op="typing", chat_id=STAFF, message_id=GENERAL, metadata={})
    assert threading_house.ga.act(op="send", chat_id=STAFF, content="the secret", reply_to=None, metadata={})["success"]
    assert sim.texts(STAFF) == ["the secret"] and sim.texts(GENERAL) == []


def test_what_one_tenant_must_ask_discord_holds_back_no_other(house, dial):
    """Cat is heard by a, whose people Discord is asked about; Bob's own agent b, of another tenant, answers in the same channel."""
    house.link(house.a, ANN)
    house.link(house.b, BOB)
    house.claim(house.a, GENERAL)
    house.server.restart()
    ga, gb = dial(house.server, house.a, hello=("discord", "app1")), dial(house.server, house.b, hello=("discord", "app1"))
    wait_for(lambda: status(house.server)["state"] == "live")
    house.sim.trouble("GET", "/members/", None, delay=3)
    house.sim.say(GENERAL, "cat first", user=CAT)
    began = time.monotonic()
    house.sim.say(GENERAL, "bob second", user=BOB)
    gb.hear("bob second")
    assert time.monotonic() - began < 2
    assert ga.quiet()
    house.sim.say(GENERAL, "ann third", user=ANN)
    ga.hear("cat first")  # what is for a keeps its order
    ga.hear("ann third")
    assert gb.quiet()

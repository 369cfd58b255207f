"""The visibility floor and the gate on Discord: scopes, people, threads, against the simulator."""
import json
import pathlib
import sys

import pytest

from conftest import wait_for
from test_discord import config, status
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
    def __init__(self, sim, make_bellhop, dial):
        self.sim, self.server = sim, make_bellhop(config(sim))
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
        newest = json.loads(self.server.cli("why", "--platform", "discord", "--json").stdout)[0]
        return {v["instance"]: v["reason"] for v in newest["verdicts"]}


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

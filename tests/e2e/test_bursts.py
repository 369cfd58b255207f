"""Bursts: `debounce` on a bot, the real program against the simulator of Telegram's Bot API."""
import pytest

from conftest import wait_for
from test_telegram import ANN, GROUP, TOKEN, config, sim  # noqa: F401

BOB = {"id": 6, "is_bot": False, "first_name": "Bob", "username": "bobby"}


@pytest.fixture
def rig(sim, make_bellhop, dial):  # noqa: F811
    """A server whose bursts end by what people write, never by time, and a gateway of the newer generation."""
    class Rig:
        pass

    r = Rig()
    r.sim, r.server = sim, make_bellhop(config(sim, more=", debounce: 30s"))
    r.credential = r.server.add(platform="telegram", bot="my_bot")
    r.dial = lambda **more: dial(r.server, r.credential, hello=("telegram", "my_bot"), **more)
    r.gateway = r.dial()
    return r


def received(rig, joined):
    """So many messages joined a burst, and Telegram was told of all that they are received."""
    wait_for(lambda: rig.server.metric("messages_joined_total") == joined)
    wait_for(lambda: not rig.sim.bots[TOKEN]["updates"])


def test_a_burst_is_one_delivery_and_a_command_ends_it(rig):
    ids = [rig.sim.say(ANN, text) for text in ("look", "at", "this")]
    received(rig, joined=2)
    assert rig.gateway.quiet()
    rig.sim.say(ANN, "/new")
    event = rig.gateway.hear("look\nat\nthis")["event"]
    assert event["message_ids"] == [str(i) for i in ids]
    assert (event["message_id"], event["source"]["message_id"]) == (str(ids[0]), str(ids[0]))
    assert event["message_parts"] == [{"bytes": 4, "files": 0}, {"bytes": 2, "files": 0}, {"bytes": 4, "files": 0}]
    assert "message_ids" not in rig.gateway.hear("/new")["event"]


def test_people_of_a_group_are_not_joined(rig):
    rig.sim.say(GROUP, "one")
    rig.sim.say(GROUP, "two")
    rig.sim.say(GROUP, "me too", user=BOB)
    assert rig.gateway.hear("one\ntwo")["event"]["source"]["user_id"] == str(ANN)
    rig.sim.say(GROUP, "/new")
    assert rig.gateway.hear("me too")["event"]["source"]["user_id"] == "6"


def test_killed_in_the_middle_nothing_is_lost_or_doubled(rig):
    ids = [rig.sim.say(ANN, text) for text in ("one", "two", "three")]
    received(rig, joined=2)
    rig.server.kill()
    rig.server.start()
    gateway = rig.dial()
    event = gateway.hear("one\ntwo\nthree")["event"]
    assert event["message_ids"] == [str(i) for i in ids]
    rig.sim.say(ANN, "four")
    rig.sim.say(ANN, "/new")
    gateway.hear("four")
    gateway.hear("/new")
    assert gateway.quiet()

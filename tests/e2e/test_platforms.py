"""Discord and Telegram at once: one connector, one gateway, one socket with two hellos."""
import os
import pathlib
import subprocess
import sys
import time

import pytest

from conftest import BUILD, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from discord import GENERAL, DiscordSim  # noqa: E402
from telegram import TelegramSim  # noqa: E402

ANN = 5
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: discord, bot: app1, token: dtoken, api_base: "{discord}"}}}}
  - {{{{platform: telegram, bot: my_bot, token: "777:token", api_base: "{telegram}"}}}}
"""


@pytest.fixture
def sims():
    d, t = DiscordSim("dtoken"), TelegramSim()
    t.bot("777:token", "my_bot")
    t.person(ANN, "Ann")
    yield d, t
    d.close()
    t.close()


@pytest.fixture
def server(sims, make_bellhop):
    d, t = sims
    s = make_bellhop(CONFIG.format(discord=d.url, telegram=t.url))
    s.credential = s.add(platform="discord", bot="app1")
    s.cli("route", "add", "--platform", "telegram", "--key", "my_bot", "--tenant", "t", "--open")
    # Gateways that announce two bots are of the generation that must be addressed in groups, unless told otherwise.
    s.cli("policy", "set", "--tenant", "t", "--instance", s.credential.id, "--platform", "discord")
    wait_for(d.live)
    return s


def both(server, dial):
    g = dial(server, server.credential, hello=("discord", "app1"))
    g.send({"type": "hello", "platform": "telegram", "botId": "my_bot"})
    assert g.next("descriptor")["descriptor"]["platform"] == "telegram"
    return g


def answer(gateway, event):
    source = event["source"]
    result = gateway.act(platform=source["platform"], bot=event["bot_id"], op="send", chat_id=source["chat_id"],
                         content="re: " + event["text"], metadata={})
    assert result["success"], result


def test_people_on_both_write_and_see_their_answers(sims, server, dial):
    d, t = sims
    g = both(server, dial)
    for i in range(10):
        d.say(GENERAL, f"d{i}"), t.say(ANN, f"t{i}")
    for _ in range(20):
        answer(g, g.next("inbound")["event"])
    assert d.texts(GENERAL) == [f"re: d{i}" for i in range(10)]
    assert t.texts(ANN) == [f"re: t{i}" for i in range(10)]
    assert not d.violations


def test_asleep_and_across_a_restart_in_the_middle(sims, server, dial):
    d, t = sims
    g = both(server, dial)
    g.sleep()
    said = []
    for i in range(30):
        if i == 10:
            server.stop()
        if i == 20:
            server.start()
            wait_for(d.live)
        d.say(GENERAL, f"d{i}"), t.say(ANN, f"t{i}")
        said += [f"d{i}", f"t{i}"]
    g = both(server, dial)
    wait_for(lambda: len(g.seen) >= len(said), 20)
    for letter in "dt":  # nothing lost, nothing twice, each chat in order
        assert [x for x in g.seen if x[0] == letter] == [f"{letter}{i}" for i in range(30)]
    time.sleep(0.5)
    assert len(g.seen) == len(said)


def test_the_example_agent_answers_on_both(sims, server):
    d, t = sims
    c = server.credential
    env = {**os.environ, "GATEWAY_RELAY_URL": server.url, "GATEWAY_RELAY_ID": c.id, "GATEWAY_RELAY_SECRET": c.secret}
    agent = subprocess.Popen([BUILD / "echo", "--platform", "discord=app1", "--platform", "telegram=my_bot", "--idle", "0"],
                             env=env)
    try:
        d.say(GENERAL, "good morning"), t.say(ANN, "good evening")
        wait_for(lambda: any("good morning" in x for x in d.texts(GENERAL)), 20)
        wait_for(lambda: any("good evening" in x for x in t.texts(ANN)), 20)
    finally:
        agent.terminate()
        assert agent.wait(20) == 0

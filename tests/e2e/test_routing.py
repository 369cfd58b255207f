"""Which of several routes a message takes, on every platform alike: its own key, then the bot, then "*"."""
import pathlib
import sys

import pytest

import test_twilio
import test_wecom
from conftest import wait_for
from oracle import oracle  # noqa: F401 - a fixture

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from discord import ANN as DISCORD_ANN, DM, GENERAL, GUILD, DiscordSim  # noqa: E402
from telegram import TelegramSim  # noqa: E402
from webapi import TwilioSim, WecomSim  # noqa: E402

HEAD = "listen: 127.0.0.1:0\nstate_dir: {{state}}\nlog: {{{{level: debug}}}}\nplatforms:\n  - {{{{{entry}}}}}\n"


class Place:
    """One platform: its bot, the key of a chat there, and a way to write in that chat."""

    def __init__(self, platform, bot, key, sim, entry, say, ready=None):
        self.platform, self.bot, self.key, self.sim, self.say = platform, bot, key, sim, say
        self.config, self.ready = HEAD.format(entry=f'platform: {platform}, bot: "{bot}"' + entry), ready


def discord(_, key=GUILD, channel=GENERAL):
    sim = DiscordSim("dtoken")
    return Place("discord", "app1", key, sim, f', token: dtoken, api_base: "{sim.url}"',
                 lambda server, text: sim.say(channel, text), sim.live)


def discord_dm(_):
    return discord(_, f"dm:{DISCORD_ANN}", DM)


def telegram(_):
    sim = TelegramSim()
    sim.bot("777:token", "my_bot")
    sim.person(5, "Ann")
    return Place("telegram", "my_bot", "5", sim, f', token: "777:token", api_base: "{sim.url}"',
                 lambda server, text: sim.say(5, text))


def twilio(oracle):  # noqa: F811
    t, sim = test_twilio, TwilioSim(test_twilio.SID, test_twilio.AUTH)

    def say(server, text):
        rig = t.Rig.__new__(t.Rig)
        rig.oracle, rig.server, rig.public, rig.bot, rig.n = oracle, server, server.url, t.BOT, abs(hash(text))
        assert rig.say(text).status == 200

    return Place("twilio", t.BOT, t.ANN, sim,
                 f', account_sid: {t.SID}, auth_token: "{t.AUTH}", api_base: "{sim.url}"', say)


def wecom(oracle):  # noqa: F811
    t, sim = test_wecom, WecomSim(test_wecom.CORP, test_wecom.SECRET)

    def say(server, text):
        rig = t.Rig.__new__(t.Rig)
        rig.oracle, rig.server = oracle, server
        assert rig.say(text, str(abs(hash(text)))).status == 200

    return Place("wecom", t.AGENT, "ann", sim, f', corp_id: {t.CORP}, secret: "{t.SECRET}", token: "{t.TOKEN}", '
                 f'encoding_aes_key: {t.KEY}, api_base: "{sim.url}"', say)


def web(_):
    def say(server, text):
        assert server.post("/chat/lobby/api/message", {"text": text},
                           headers={"X-Bellhop-Visitor": "ann-0123456789abcdef"}).status < 300

    return Place("web", "lobby", None, None, "", say)  # its own key is the bot's


@pytest.mark.parametrize("make", [discord, discord_dm, telegram, twilio, wecom, web], ids=lambda f: f.__name__)
def test_the_more_specific_route_wins(make, oracle, make_bellhop, dial):  # noqa: F811
    place = make(oracle)
    server = make_bellhop(place.config)
    if place.ready:
        wait_for(place.ready)

    def gateway(key):
        credential = server.add(platform=None)
        added = server.cli("route", "add", "--platform", place.platform, "--key", key, "--tenant", "t", "--instance",
                           credential.id, "--open")
        assert added.returncode == 0, added.stderr
        return dial(server, credential, hello=(place.platform, place.bot))

    heard = []
    for i, key in enumerate(k for k in ("*", place.bot, place.key) if k):
        heard.append(gateway(key))
        place.say(server, f"to {i}")
        heard[i].hear(f"to {i}")
    for g in heard[:-1]:
        assert g.quiet()
    if place.sim:
        place.sim.close()

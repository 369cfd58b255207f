"""The commands that gateways announce: registered with Discord and Telegram, put together, changed by their difference."""
import test_discord
import test_telegram
from conftest import wait_for
from test_discord import TOKEN
from test_discord import DiscordSim
from test_telegram import ANN
from test_telegram import sim as telegram_sim  # noqa: F401 - a fixture

MANIFEST = [{"name": "help", "description": "What I can do"},
            {"name": "new-chat", "description": "Start over", "options": [{"type": 3, "name": "title", "description": "Its name"}]},
            {"name": "Bad Name", "description": "x"}, {"name": "empty", "description": ""}, {"description": "nameless"}, 7,
            {"name": "long", "description": "x" * 101}, {"name": "odd", "description": "x", "options": "none"}]


def announce(gateway, platform, bot, manifest):
    gateway.send({"type": "hello", "platform": platform, "botId": bot, "command_manifest": manifest})
    gateway.next("descriptor")


def commands(sim):
    return {c["name"]: c["description"] for c in sim.commands.values()}


def test_discord_has_the_commands_of_all_gateways(make_bellhop, dial):
    sim = DiscordSim(TOKEN)
    sim.commands = {"5": {"id": "5", "type": 1, "name": "by-hand", "description": "somebody's own"}}
    server = make_bellhop(test_discord.config(sim))
    first = server.add("--id", "first", platform="discord", bot="app1", tenant="one")
    second = server.add("--id", "second", platform="discord", bot="app1", tenant="two", open=False)
    stranger = server.add("--id", "stranger", platform=None, tenant="three")
    gateways = {c: dial(server, c, hello=("discord", "app1")) for c in (first, second, stranger)}
    announce(gateways[first], "discord", "app1", MANIFEST)
    wait_for(lambda: set(commands(sim)) == {"by-hand", "help", "new-chat"})
    announce(gateways[second], "discord", "app1", [{"name": "help", "description": "mine"}, {"name": "more", "description": "More"}])
    announce(gateways[stranger], "discord", "app1", [{"name": "spam", "description": "not for this bot"}])
    wait_for(lambda: "more" in commands(sim))
    assert commands(sim) == {"by-hand": "somebody's own", "help": "What I can do", "new-chat": "Start over", "more": "More"}
    writes = len(sim.called("POST", "/commands")) + len(sim.called("DELETE", "/commands"))
    for _ in range(3):
        announce(gateways[first], "discord", "app1", MANIFEST)
    server.restart()
    wait_for(lambda: len(sim.called("GET", "/commands")) >= 3, 20)
    gateway = dial(server, first, hello=("discord", "app1"))
    announce(gateway, "discord", "app1", MANIFEST)
    gateway.quiet("passthrough_forward", 2.5)
    assert len(sim.called("POST", "/commands")) + len(sim.called("DELETE", "/commands")) == writes  # nothing changed
    announce(gateway, "discord", "app1", [MANIFEST[0]])
    wait_for(lambda: "new-chat" not in commands(sim))
    server.cli("gateway", "revoke", "first")
    wait_for(lambda: commands(sim) == {"by-hand": "somebody's own", "help": "mine", "more": "More"}, 20)
    assert sim.violations == []
    sim.close()


def test_a_command_discord_refuses_does_not_keep_the_others_out(make_bellhop, dial):
    sim = DiscordSim(TOKEN)
    sim.commands = {}
    server = make_bellhop(test_discord.config(sim))
    gateway = dial(server, server.add(platform="discord", bot="app1"), hello=("discord", "app1"))
    announce(gateway, "discord", "app1", [{"name": "odd", "description": "refused", "options": [{"nonsense": True}]}, MANIFEST[0]])
    wait_for(lambda: commands(sim) == {"help": "What I can do"})
    wait_for(lambda: "refused the command /odd" in server.log())
    sim.close()


def test_telegram_has_them_too_and_dashes_come_back(telegram_sim, make_bellhop, dial):  # noqa: F811
    server = make_bellhop(test_telegram.config(telegram_sim))
    credential = server.add(platform="telegram", bot="my_bot")
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    announce(gateway, "telegram", "my_bot", MANIFEST + [{"name": "new_chat", "description": "the same to Telegram"}])
    wait_for(lambda: telegram_sim.commands)
    assert telegram_sim.commands == [{"command": "help", "description": "What I can do"},
                                     {"command": "new_chat", "description": "Start over"}]
    telegram_sim.say(ANN, "/new_chat of bees")
    gateway.hear("/new-chat of bees")
    telegram_sim.say(ANN, "/help_me")
    gateway.hear("/help_me")
    server.restart()
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    announce(gateway, "telegram", "my_bot", MANIFEST)
    gateway.quiet(seconds=3)
    assert len(telegram_sim.called("setMyCommands")) == 1

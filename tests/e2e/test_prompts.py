"""Questions with buttons on every platform: asked, pressed, answered once, gone when their time is up."""
import json
import time

import pytest

import test_discord
import test_telegram
from conftest import wait_for
from oracle import oracle  # noqa: F401 - a fixture
from test_discord import ANN as DISCORD_ANN
from test_discord import BOT, GENERAL, GUILD
from test_interactions import TOKEN as INTERACTION
from test_interactions import Edge
from test_interactions import sim as discord_sim  # noqa: F401 - a fixture
from test_outbox import records
from test_rich import telegram  # noqa: F401 - a fixture
from test_telegram import ANN, GROUP
from test_telegram import sim as telegram_sim  # noqa: F401 - a fixture
from test_twilio import Rig as TwilioRig
from test_wecom import Rig as WecomRig

OPTIONS = [{"id": "once", "label": "Allow once", "style": "primary"}, {"id": "always", "label": "Always"},
           {"id": "deny", "label": "Deny", "style": "danger"}]


def ask(gateway, chat, id="0a1b2c3d", content="Run **rm -rf**?", options=OPTIONS, **more):
    return gateway.act(op="prompt", chat_id=str(chat), content=content, prompt_kind="approval", prompt_id=id,
                       options=options, reply_to=None, metadata={}, **more)


def answered(gateway, option, label, message=None, id="0a1b2c3d"):
    event = gateway.next("inbound")["event"]
    assert (event["text"], event["message_type"]) == (f"/{option}", "command")
    response = event["prompt_response"]
    assert (response["prompt_id"], response["option_id"], response["label"]) == (id, option, label)
    assert message is None or response["prompt_message_id"] == message
    return event


def buttons(message):
    return [b for row in message["reply_markup"]["inline_keyboard"] for b in row]


# ---- Telegram ----


def test_an_approval_is_pressed_on_telegram(telegram):  # noqa: F811
    assert "prompt" in telegram.gateway.descriptor["supported_ops"]
    result = ask(telegram.gateway, ANN)
    message = telegram.sim.sent(ANN)[-1]
    assert result["success"] and result["message_id"] == str(message["message_id"])
    assert message["text"] == "Run rm -rf?"
    assert [(b["text"], b["callback_data"]) for b in buttons(message)] == [
        ("Allow once", "hp1:0a1b2c3d:once"), ("Always", "hp1:0a1b2c3d:always"), ("Deny", "hp1:0a1b2c3d:deny")]
    press = telegram.sim.press(ANN, message["message_id"], "hp1:0a1b2c3d:once")
    event = answered(telegram.gateway, "once", "Allow once", result["message_id"])
    assert (event["source"]["user_id"], event["source"]["user_name"]) == (str(ANN), "Ann Lee")
    wait_for(lambda: telegram.sim.answered == [press])
    wait_for(lambda: [b["text"] for b in buttons(message)] == ["\u2714 Allow once"])
    telegram.sim.press(ANN, message["message_id"], "hp1:0a1b2c3d:deny")
    wait_for(lambda: len(telegram.sim.answered) == 2)
    assert "answered already" in telegram.sim.called("answerCallbackQuery")[-1]["text"]
    assert telegram.gateway.quiet()


def test_a_question_that_is_edited_keeps_its_buttons(telegram):  # noqa: F811
    """Telegram takes the buttons away with every edit that does not name them."""
    result = ask(telegram.gateway, ANN)
    message = telegram.sim.sent(ANN)[-1]
    edit = {"op": "edit", "chat_id": str(ANN), "message_id": result["message_id"], "metadata": {}}
    assert telegram.gateway.act(**edit, content="Run rm -r?")["success"]
    assert message["text"] == "Run rm -r?" and len(buttons(message)) == 3
    telegram.sim.press(ANN, message["message_id"], "hp1:0a1b2c3d:deny")
    answered(telegram.gateway, "deny", "Deny", result["message_id"])
    wait_for(lambda: [b["text"] for b in buttons(message)] == ["\u2714 Deny"])
    assert telegram.gateway.act(**edit, content="It was not run.")["success"]
    assert not message.get("reply_markup") or len(buttons(message)) < 3  # what is over does not open again


def test_foreign_payloads_are_dropped(telegram):  # noqa: F811
    ask(telegram.gateway, ANN)
    message = telegram.sim.sent(ANN)[-1]["message_id"]
    for n, data in enumerate(["", "hp1:", "hp1:a", "hp1:other:once", "hp1:0a1b2c3d:nope", "hp2:0a1b2c3d:once", "buy", "x" * 64,
                              "hp1:0a1b2c3d:once:more"]):
        telegram.sim.press(ANN, message, data)
        wait_for(lambda n=n: len(telegram.sim.answered) == n + 1)
    assert telegram.gateway.quiet()


def test_a_question_is_open_after_a_restart(telegram, dial):  # noqa: F811
    result = ask(telegram.gateway, ANN)
    telegram.server.kill()
    telegram.server.start()
    gateway = dial(telegram.server, telegram.credential, hello=("telegram", "my_bot"))
    telegram.sim.press(ANN, int(result["message_id"]), "hp1:0a1b2c3d:deny")
    answered(gateway, "deny", "Deny", result["message_id"])
    telegram.server.restart()
    gateway = dial(telegram.server, telegram.credential, hello=("telegram", "my_bot"))
    telegram.sim.press(ANN, int(result["message_id"]), "hp1:0a1b2c3d:once")
    assert gateway.quiet(seconds=1.5)


def open_questions(server):
    return json.loads(server.cli("status", "--json").stdout)["platforms"][0]["openQuestions"]


def test_its_time_is_up(telegram):  # noqa: F811
    ask(telegram.gateway, ANN, id="short", timeout_s=1)  # ten seconds is the least
    message = telegram.sim.sent(ANN)[-1]
    assert open_questions(telegram.server) == 1 and len(buttons(message)) == 3
    wait_for(lambda: open_questions(telegram.server) == 0, 30)
    wait_for(lambda: buttons(message) == [], 30)
    telegram.sim.press(ANN, message["message_id"], "hp1:short:once")
    wait_for(lambda: telegram.sim.called("answerCallbackQuery"))
    assert "time is up" in telegram.sim.called("answerCallbackQuery")[-1]["text"] and telegram.gateway.quiet()


def test_its_time_is_up_while_bellhop_is_stopped(telegram):  # noqa: F811
    ask(telegram.gateway, ANN, id="short", timeout_s=10)
    message = telegram.sim.sent(ANN)[-1]
    wait_for(lambda: [r.get("message") for r in records(telegram.server, "prompt")] == [str(message["message_id"])])
    telegram.server.kill()
    time.sleep(10)
    assert len(buttons(message)) == 3
    telegram.server.start()
    wait_for(lambda: buttons(message) == [], 30)


def test_a_question_that_waits_to_be_shown_outlives_a_kill(telegram, dial):  # noqa: F811
    telegram.sim.limit(ANN, 4)
    telegram.gateway.send({"type": "outbound", "requestId": "r1", "action": {
        "op": "prompt", "chat_id": str(ANN), "content": "Well?", "prompt_kind": "approval", "prompt_id": "later",
        "options": OPTIONS, "reply_to": None, "metadata": {}}})
    wait_for(lambda: [r["state"] for r in records(telegram.server, "outgoing")] == ["waiting"] and
             len(telegram.sim.called("sendMessage")) == 1)  # asked to wait, and that is on disk
    telegram.server.kill()
    telegram.server.start()
    gateway = dial(telegram.server, telegram.credential, hello=("telegram", "my_bot"))
    message = wait_for(lambda: telegram.sim.sent(ANN))[-1]
    assert [b["callback_data"] for b in buttons(message)] == [f"hp1:later:{o['id']}" for o in OPTIONS]
    telegram.sim.press(ANN, message["message_id"], "hp1:later:always")
    answered(gateway, "always", "Always", str(message["message_id"]), id="later")
    wait_for(lambda: [b["text"] for b in buttons(message)] == ["\u2714 Always"])


def test_a_kill_before_the_choice_was_shown(telegram, dial):  # noqa: F811
    """The buttons of an answered question do not stay because bellhop died before it could change them."""
    result = ask(telegram.gateway, ANN)
    message = telegram.sim.sent(ANN)[-1]
    telegram.sim.trouble("editMessageReplyMarkup", 502, times=1000)
    telegram.sim.press(ANN, message["message_id"], "hp1:0a1b2c3d:once")
    answered(telegram.gateway, "once", "Allow once", result["message_id"])
    wait_for(lambda: telegram.sim.called("editMessageReplyMarkup") and
             [r.get("chosen") for r in records(telegram.server, "prompt")] == ["once"])
    telegram.server.kill()
    telegram.sim.troubles.clear()
    assert len(buttons(message)) == 3
    telegram.server.start()
    wait_for(lambda: [b["text"] for b in buttons(message)] == ["\u2714 Allow once"], 30)


@pytest.mark.parametrize("wrong", [dict(options=[]), dict(options=OPTIONS * 2), dict(id="no spaces"), dict(content=" "),
                                   dict(options=[{"id": "x", "label": " "}]), dict(options=[{"id": "a:b", "label": "x"}]),
                                   dict(options=[{"id": f"o{n}", "label": "x"} for n in range(26)]), dict(options="x"),
                                   dict(id="p" * 32, options=[{"id": "o" * 32, "label": "x"}]), dict(id="")])
def test_what_cannot_be_asked_is_refused(telegram, wrong):  # noqa: F811
    result = ask(telegram.gateway, ANN, **wrong)
    assert not result["success"] and result["error"] and telegram.sim.called("sendMessage") == []


def test_only_whom_the_gate_lets_in_can_answer_in_a_group(telegram_sim, make_bellhop, dial):  # noqa: F811
    server = make_bellhop(test_telegram.config(telegram_sim))
    credential = server.add("--id", "mine", tenant="acme", platform="telegram", bot="my_bot", open=False)
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    code = server.cli("link", "--instance", "mine").stdout.split()[0]
    telegram_sim.say(ANN, f"/link {code}")
    wait_for(lambda: telegram_sim.texts(ANN))
    telegram_sim.say(GROUP, "@my_bot hello")
    gateway.next("inbound")
    result = ask(gateway, GROUP)
    assert result["success"], result
    bob = {"id": 6, "is_bot": False, "first_name": "Bob"}
    telegram_sim.press(GROUP, int(result["message_id"]), "hp1:0a1b2c3d:once", user=bob)
    wait_for(lambda: telegram_sim.called("answerCallbackQuery"))
    assert telegram_sim.called("answerCallbackQuery")[-1]["text"] == "This question is not for you."
    assert gateway.quiet()
    telegram_sim.press(GROUP, int(result["message_id"]), "hp1:0a1b2c3d:once")
    answered(gateway, "once", "Allow once")


def test_only_owners_decide_where_everybody_may_speak(telegram_sim, make_bellhop, dial):  # noqa: F811
    server = make_bellhop(test_telegram.config(telegram_sim))
    credential = server.add("--id", "mine", tenant="acme", platform="telegram", bot="my_bot")  # an open route
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    code = server.cli("link", "--instance", "mine").stdout.split()[0]
    telegram_sim.say(ANN, f"/link {code}")
    wait_for(lambda: telegram_sim.texts(ANN))
    telegram_sim.say(GROUP, "@my_bot hello", user={"id": 6, "is_bot": False, "first_name": "Bob"})
    gateway.next("inbound")
    assert not ask(gateway, GROUP, deciders="everybody")["success"]
    result = ask(gateway, GROUP, deciders="owners")
    assert result["success"], result
    telegram_sim.press(GROUP, int(result["message_id"]), "hp1:0a1b2c3d:once", user={"id": 6, "is_bot": False, "first_name": "Bob"})
    wait_for(lambda: telegram_sim.called("answerCallbackQuery"))
    assert telegram_sim.called("answerCallbackQuery")[-1]["text"] == "This question is not for you."
    assert gateway.quiet()
    server.kill()
    server.start()
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    telegram_sim.press(GROUP, int(result["message_id"]), "hp1:0a1b2c3d:once", user={"id": 6, "is_bot": False, "first_name": "Bob"})
    wait_for(lambda: len(telegram_sim.called("answerCallbackQuery")) == 2)
    assert gateway.quiet()
    telegram_sim.press(GROUP, int(result["message_id"]), "hp1:0a1b2c3d:once")
    answered(gateway, "once", "Allow once")


def test_a_long_question_has_its_buttons_at_the_end(telegram):  # noqa: F811
    result = ask(telegram.gateway, ANN, content="word " * 1500, options=[{"id": "a", "label": "l" * 200}])
    first, last = telegram.sim.sent(ANN)[-2:]
    assert result["success"] and "reply_markup" not in first
    assert len(buttons(last)[0]["text"]) == 80
    telegram.sim.press(ANN, last["message_id"], "hp1:0a1b2c3d:a")
    answered(telegram.gateway, "a", buttons(last)[0]["text"], str(last["message_id"]))


# ---- Discord ----


def test_an_approval_is_pressed_on_discord(oracle, discord_sim, make_bellhop, dial):  # noqa: F811
    edge = Edge(oracle, discord_sim, make_bellhop, dial)
    edge.interact()
    edge.gateway.next("passthrough_forward")
    assert edge.gateway.act(op="send", chat_id=GENERAL, content="thinking", reply_to=None, metadata={})["success"]
    result = ask(edge.gateway, GENERAL, options=OPTIONS * 1 + [{"id": f"o{n}", "label": f"Option {n}"} for n in range(4)])
    message = discord_sim.sent(GENERAL)[-1]
    assert result["message_id"] == message["id"]
    rows = message["components"]
    assert [len(r["components"]) for r in rows] == [5, 2]
    assert [b["style"] for b in rows[0]["components"]] == [1, 2, 4, 2, 2]
    press = dict(data={"custom_id": "hp1:0a1b2c3d:always", "component_type": 2}, message={"id": message["id"], "content": "x"})
    answer = edge.interact(3, token=INTERACTION + "p", **press).json
    assert answer["type"] == 7
    after = [b for r in answer["data"]["components"] for b in r["components"]]
    assert all(b["disabled"] for b in after) and [b["style"] for b in after] == [2, 3, 2, 2, 2, 2, 2]
    discord_sim._check_components(answer["data"]["components"])
    event = answered(edge.gateway, "always", "Always", message["id"])
    assert (event["source"]["user_id"], event["source"]["chat_id"], event["source"]["guild_id"]) == (DISCORD_ANN, GENERAL, GUILD)
    late = edge.interact(3, token=INTERACTION + "q", **press).json
    assert late["type"] == 4 and late["data"]["flags"] == 64
    assert edge.gateway.quiet() and edge.gateway.quiet("passthrough_forward")
    wait_for(lambda: message["components"] == answer["data"]["components"])  # that answer may have been lost
    assert edge.interact(3, token=INTERACTION + "r", data={"custom_id": "theirs", "component_type": 2}).json == {"type": 6}
    edge.gateway.next("passthrough_forward")


def test_without_a_public_address_presses_and_commands_come_through_the_gateway(make_bellhop, dial):
    sim = test_discord.DiscordSim(test_discord.TOKEN)
    r = test_discord.Rig(sim, make_bellhop, dial)
    sim.say(GENERAL, f"hello <@{BOT}>", mentions=[{"id": BOT}])
    r.gateway.next("inbound")
    result = ask(r.gateway, GENERAL)
    base = {"application_id": BOT, "version": 1, "channel_id": GENERAL, "guild_id": GUILD, "channel": {"id": GENERAL, "type": 0},
            "member": {"user": {"id": DISCORD_ANN, "username": "ann"}, "nick": "Annie"}}
    sim.tell("INTERACTION_CREATE", {**base, "id": "990000000000000001", "type": 3, "token": "gateway-token",
                                    "data": {"custom_id": "hp1:0a1b2c3d:deny", "component_type": 2},
                                    "message": {"id": result["message_id"]}})
    answered(r.gateway, "deny", "Deny", result["message_id"])
    wait_for(lambda: sim.callbacks.get("gateway-token"))
    assert sim.callbacks["gateway-token"]["type"] == 7
    sim.interaction("command-token")
    sim.tell("INTERACTION_CREATE", {**base, "id": "990000000000000002", "type": 2, "token": "command-token",
                                    "data": {"name": "ask"}})
    r.gateway.next("passthrough_forward")
    wait_for(lambda: sim.callbacks.get("command-token") == {"type": 5})
    assert r.gateway.act(op="send", chat_id=GENERAL, content="here", reply_to=None, metadata={})["success"]
    assert sim.hooks["command-token"]["original"] == "here"
    assert "gateway-token" not in r.server.log() and "command-token" not in r.server.log()
    r.check()
    sim.close()


def test_the_buttons_go_on_discord_when_its_time_is_up(make_bellhop, dial):
    sim = test_discord.DiscordSim(test_discord.TOKEN)
    r = test_discord.Rig(sim, make_bellhop, dial)
    sim.say(GENERAL, f"hello <@{BOT}>", mentions=[{"id": BOT}])
    r.gateway.next("inbound")
    for id in ("one", "two"):
        assert ask(r.gateway, GENERAL, id=id, timeout_s=10)["success"]
    messages = sim.sent(GENERAL)[-2:]
    assert all(len(m["components"][0]["components"]) == 3 for m in messages)
    wait_for(lambda: all(m["components"] == [] for m in messages), 40)
    assert [m["content"] for m in messages] == ["Run **rm -rf**?"] * 2
    r.check()
    sim.close()


# ---- numbers ----


def test_a_bare_number_answers_the_newest_question_on_twilio(oracle, make_bellhop, dial):  # noqa: F811
    r = TwilioRig(oracle, make_bellhop, dial)
    r.say("hi")
    r.gateway.hear("hi")
    me = "+15551234567"
    assert ask(r.gateway, me, id="old", content="Which?", options=OPTIONS[:2])["success"]
    assert r.sim.sent[-1]["Body"] == "Which?\n\n1. Allow once\n2. Always\n\nAnswer with a number (1 to 2)."
    result = ask(r.gateway, me)
    for text in ("4", "0", "1.", "one", "-1", "2 please"):
        r.say(text)
        r.gateway.hear(text)
    r.say(" 3 ")
    answered(r.gateway, "deny", "Deny", result["message_id"])
    r.say("2")
    answered(r.gateway, "always", "Always", id="old")
    r.say("1")
    r.gateway.hear("1")
    r.sim.close()
    assert r.sim.violations == []


def test_the_same_number_brought_twice_is_one_answer(oracle, make_bellhop, dial):  # noqa: F811
    r = WecomRig(oracle, make_bellhop, dial)
    r.say("hi")
    r.gateway.hear("hi")
    assert ask(r.gateway, "ann")["success"]
    assert r.sim.sent[-1][1].endswith("1. Allow once\n2. Always\n3. Deny\n\nAnswer with a number (1 to 3).")
    for _ in range(2):
        assert r.say("2", "77").status == 200
    answered(r.gateway, "always", "Always")
    assert r.gateway.quiet()
    r.sim.close()
    assert r.sim.violations == []

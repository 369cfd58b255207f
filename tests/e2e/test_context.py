"""What was said before a message is told with it: to those who can use it, and may hear it."""
import json
import time

import pytest

import test_discord
import test_telegram
from conftest import wait_for
from test_discord import ANN, BOT, DM, GENERAL, GUILD, THREAD, DiscordSim, send, status
from test_telegram import sim as telegram_sim  # noqa: F401 - a fixture

BOB = "430000000000000043"
MENTION = {"mentions": [{"id": BOT, "username": "bellhop"}]}
NO_HISTORY = [{"id": GUILD, "type": 0, "allow": "0", "deny": str(1 << 16)}]


@pytest.fixture
def sim():
    made = DiscordSim(test_discord.TOKEN)
    made.people[BOB] = {"id": BOB, "username": "bob", "global_name": "Bob"}
    yield made
    made.close()


@pytest.fixture
def rig(sim, make_bellhop, dial):
    r = test_discord.Rig(sim, make_bellhop, dial)
    newer(r)
    yield r
    r.check()


def newer(r, gateway=None):
    """Only the newer gateways type, and only they read what was said before."""
    (gateway or r.gateway).act(op="typing", chat_id=GENERAL, metadata={})


def ask(r, channel=GENERAL, text="so?", **more):
    r.sim.say(channel, f"<@{BOT}> {text}", **MENTION, **more)
    return r.gateway.hear(text)["event"]


def told(event):
    return [(c["source"]["user_name"], c["text"]) for c in event.get("context", [])]


def test_a_question_in_a_channel_comes_with_what_was_said_before(rig):
    assert rig.gateway.descriptor["supports_context"] is True
    first = rig.sim.say(GENERAL, "the lift is stuck", user=BOB)
    rig.sim.say(GENERAL, "again?")
    event = ask(rig)
    assert told(event) == [("Bob", "the lift is stuck"), ("Annie", "again?")]
    assert "context_error" not in event
    said = event["context"][0]
    assert (said["message_id"], said["source"]["user_id"], said["source"]["chat_id"]) == (first["id"], BOB, GENERAL)
    assert send(rig.gateway, GENERAL, "I ring the engineer", reply_to=event["message_id"])["success"]
    # What the agent has heard or said itself is not told again.
    assert told(ask(rig, text="when?")) == [("Bob", "the lift is stuck"), ("Annie", "again?")]
    assert told(ask(rig, THREAD)) == []  # it has a history of its own
    rig.sim.say(DM, "psst")
    assert "context" not in rig.gateway.hear("psst")["event"]


def test_erasing_a_person_counts_what_others_said_that_quotes_them(rig):
    """It waits as it was accepted: what somebody else wrote is not changed, and the operator knows of it."""
    rig.sim.say(GENERAL, "the lift is stuck", user=BOB)
    rig.gateway.close()
    wait_for(lambda: rig.server.instance(rig.credential.id)["state"] != "live")
    for n in range(2):
        rig.sim.say(GENERAL, f"<@{BOT}> well {n}?", **MENTION)
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 2)
    done = json.loads(rig.server.cli("erase", "--person", f"discord:{BOB}", "--yes", "--json").stdout)
    assert (done["waiting"], done["quoted"]) == (0, 2)
    assert rig.server.instance(rig.credential.id)["entries"] == 2
    assert "quote this person" in rig.server.cli("erase", "--person", f"discord:{BOB}", "--dry-run").stdout
    done = json.loads(rig.server.cli("erase", "--person", f"discord:{ANN}", "--yes", "--json").stdout)
    assert (done["waiting"], done["quoted"]) == (2, 0)


def test_no_more_is_told_than_the_operator_says(sim, make_bellhop, dial):
    r = test_discord.Rig(sim, make_bellhop, dial, ", context: 3")
    newer(r)
    for n in range(6):
        sim.say(GENERAL, str(n), unseen=True)
    assert told(ask(r)) == [("Annie", "3"), ("Annie", "4"), ("Annie", "5")]
    sim.say(GENERAL, "x" * 2000, unseen=True, user=BOB)
    r.server.stop()
    r.server.config.write_text(r.server.config.read_text().replace("context: 3", "context: 0"))
    r.server.start()
    r.gateway = r.dial()
    r.live()
    assert r.gateway.descriptor["supports_context"] is False
    assert "context" not in ask(r, text="and now?")
    r.check()


def test_long_histories_are_cut_at_the_far_end(rig):
    for n in range(12):
        rig.sim.say(GENERAL, f"{n} " + "x" * 1900, unseen=True, user=BOB)
    texts = [t.split()[0] for _, t in told(ask(rig))]
    assert texts == [str(n) for n in range(4, 12)]


def test_older_gateways_cost_no_request(sim, make_bellhop, dial):
    r = test_discord.Rig(sim, make_bellhop, dial)
    sim.say(GENERAL, "chatter", unseen=True)
    assert "context" not in ask(r)
    assert not sim.called("GET", "/messages")
    r.check()


def test_where_nobody_can_tell_it_says_so(rig):
    rig.sim.say(GENERAL, "chatter", unseen=True, user=BOB)
    rig.sim.trouble("GET", "/messages", 403)
    event = ask(rig)
    assert (event["context"], event["context_error"]) == ([], True)
    rig.sim.trouble("GET", "/messages", 500, times=20)  # it is not waited for
    event = rig_hears(rig, "and now?")
    assert event["context_error"] is True
    rig.sim.troubles.clear()
    assert told(ask(rig, text="at last?")) == [("Bob", "chatter")]
    rig.sim.guilds[GUILD]["members"].append({"user": {"id": BOT, "username": "bellhop"}, "roles": []})
    rig.sim.channels[GENERAL]["permission_overwrites"] = NO_HISTORY
    rig.sim.tell("CHANNEL_UPDATE", rig.sim.channels[GENERAL])
    rig.sim.tell("GUILD_MEMBER_UPDATE", {"guild_id": GUILD, **rig.sim.guilds[GUILD]["members"][-1]})
    assert ask(rig, text="may you look?")["context_error"] is True  # Discord gives an empty list


def reads(rig, channel=GENERAL):
    return len(rig.sim.called("GET", f"/channels/{channel}/messages"))


def test_discord_is_asked_once_per_channel(rig):
    """While the bot is connected, what was said is in memory."""
    rig.sim.say(GENERAL, "before the bot came", unseen=True, user=BOB)
    assert told(ask(rig)) == [("Bob", "before the bot came")]
    rig.sim.say(GENERAL, "heard", user=BOB)
    for n in range(5):
        assert told(ask(rig, text=f"number {n}?")) == [("Bob", "before the bot came"), ("Bob", "heard")]
    assert reads(rig) == 1
    ask(rig, THREAD)
    assert (reads(rig), reads(rig, THREAD)) == (1, 1)


def metrics(server):
    rows = (line.split() for line in server.get("/metrics").text.splitlines() if line and line[0] != "#")
    return {row[0].removeprefix("bellhop_"): float(row[1]) for row in rows if len(row) == 2}


def test_a_guild_message_for_a_newer_gateway_is_routed_judged_and_written_once(rig):
    """No request to Discord, one durable write or none (acknowledged first), one routing, one judgement."""
    ask(rig)  # the channel is read, and the chat known
    time.sleep(0.5)  # and what waited for that has gone to the disk
    n, calls, before = 10, len(rig.sim.calls), metrics(rig.server)
    for k in range(n):
        ask(rig, text=f"number {k}?")
    wait_for(lambda: metrics(rig.server)["deliveries_acked_total"] - before["deliveries_acked_total"] == n)
    after = metrics(rig.server)
    assert len(rig.sim.calls) == calls
    assert {name: after[name] - before[name] for name in ("events_routed_total", "events_judged_total", "events_accepted_total")} == \
        {"events_routed_total": n, "events_judged_total": n, "events_accepted_total": n}
    wait_for(lambda: metrics(rig.server)["store_keys_written_total"] - before["store_keys_written_total"] == n)
    assert metrics(rig.server)["store_rows_written_total"] - before["store_rows_written_total"] <= n


def test_a_session_that_is_lost_is_read_again_and_one_that_is_resumed_is_not(rig):
    ask(rig)
    rig.sim.reconnect()
    wait_for(lambda: rig.sim.resumes)
    rig.live()
    ask(rig, text="resumed?")
    assert reads(rig) == 1
    rig.sim.say(GENERAL, "while nobody listened", unseen=True, user=BOB)
    before = len(rig.sim.identifies)
    rig.sim.invalidate(False)
    wait_for(lambda: len(rig.sim.identifies) > before, 20)
    rig.live()
    event = ask(rig, text="and now?")
    assert ("Bob", "while nobody listened") in told(event)
    assert reads(rig) in (2, 3)  # what was missed, which may bring the bot up to date by itself, and what was said before
    lost = reads(rig)
    assert ("Bob", "while nobody listened") in told(ask(rig, text="once?")) and reads(rig) == lost


def test_edits_and_deletions_reach_what_waits_for_its_agent(rig):
    rig.gateway.close()
    wait_for(lambda: rig.server.instance(rig.credential.id)["state"] != "live")
    first = rig.sim.say(GENERAL, f"<@{BOT}> wrogn", **MENTION)
    second = rig.sim.say(GENERAL, f"<@{BOT}> never mind", **MENTION)
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 2)
    edited = {**first, "content": f"<@{BOT}> right", "edited_timestamp": "2026-01-01T00:00:01Z"}
    rig.sim.tell("MESSAGE_UPDATE", {**first, "content": f"<@{BOT}> a preview"})  # Discord's own doing
    rig.sim.tell("MESSAGE_UPDATE", edited)
    rig.sim.tell("MESSAGE_DELETE", {"id": second["id"], "channel_id": GENERAL, "guild_id": GUILD})
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 1)
    wait_for(lambda: metrics(rig.server)["deliveries_edited_total"] == 1)
    rig.server.kill()
    rig.server.start()
    rig.gateway = rig.dial()
    assert rig.gateway.next("inbound")["event"]["text"] == "right"
    rig.live()
    third = rig.sim.say(GENERAL, f"<@{BOT}> delivered", **MENTION)
    rig.gateway.hear("delivered")
    rig.sim.tell("MESSAGE_UPDATE", {**third, "content": "changed", "edited_timestamp": "2026-01-01T00:00:02Z"})
    assert rig.gateway.quiet()


def test_edits_and_deletions_reach_what_is_remembered(rig):
    ask(rig)
    first = rig.sim.say(GENERAL, "the lift is stcuk", user=BOB)
    second = rig.sim.say(GENERAL, "never mind", user=BOB)
    third = rig.sim.say(GENERAL, "really", user=BOB)
    rig.sim.tell("MESSAGE_UPDATE", {**first, "content": "the lift is stuck", "edited_timestamp": "2026-01-01T00:00:01Z"})
    rig.sim.tell("MESSAGE_DELETE", {"id": second["id"], "channel_id": GENERAL, "guild_id": GUILD})
    rig.sim.tell("MESSAGE_DELETE_BULK", {"ids": [third["id"]], "channel_id": GENERAL, "guild_id": GUILD})
    assert told(ask(rig, text="well?")) == [("Bob", "the lift is stuck")]
    rig.server.cli("erase", "--person", f"discord:{BOB}", "--yes")
    assert told(ask(rig, text="still?")) == [] and reads(rig) == 1


def test_edits_and_deletions_reach_what_is_being_read(rig):
    first = rig.sim.say(GENERAL, "the lift is stcuk", unseen=True, user=BOB)
    second = rig.sim.say(GENERAL, "never mind", unseen=True, user=BOB)
    rig.sim.trouble("GET", f"/channels/{GENERAL}/messages", 200, delay=1.5)
    rig.sim.say(GENERAL, f"<@{BOT}> well?", **MENTION)
    wait_for(lambda: rig.sim.called("GET", "/messages"))
    rig.sim.tell("MESSAGE_UPDATE", {**first, "content": "the lift is stuck", "edited_timestamp": "2026-01-01T00:00:01Z"})
    rig.sim.tell("MESSAGE_DELETE", {"id": second["id"], "channel_id": GENERAL, "guild_id": GUILD})
    assert told(rig.gateway.hear("well?", 20)["event"]) == [("Bob", "the lift is stuck")]


def rig_hears(rig, text):
    rig.sim.say(GENERAL, f"<@{BOT}> {text}", **MENTION)
    return rig.gateway.hear(text, 20)["event"]


def test_only_its_own_channel_waits(rig):
    rig.sim.trouble("GET", f"/channels/{GENERAL}/messages", 200, delay=1.5)
    rig.sim.say(GENERAL, f"<@{BOT}> slow", **MENTION)
    rig.sim.say(GENERAL, f"<@{BOT}> behind it", **MENTION)
    rig.sim.say(DM, "elsewhere")
    heard = [rig.gateway.next("inbound")["event"]["text"] for _ in range(3)]
    assert heard == ["elsewhere", "slow", "behind it"]


def test_a_crash_while_discord_is_asked_loses_nothing(rig):
    rig.sim.trouble("GET", f"/channels/{GENERAL}/messages", 200, delay=2)
    rig.sim.say(GENERAL, "chatter", unseen=True, user=BOB)
    rig.sim.say(GENERAL, f"<@{BOT}> precious", **MENTION)
    wait_for(lambda: rig.sim.called("GET", "/messages"))
    rig.server.kill()
    rig.server.start()
    rig.gateway = rig.dial()
    event = rig.gateway.hear("precious", 30)["event"]
    assert told(event) == [("Bob", "chatter")]


def test_a_channel_that_the_owner_cannot_read_back_stays_unread(sim, make_bellhop, dial):
    """Ann's own agent: she may write here, but not look at what was said before."""
    server = make_bellhop(test_discord.config(sim))
    mine = server.add(tenant="ann", platform=None)
    code = server.cli("link", "--instance", mine.id, "--platform", "discord").stdout.split()[0]
    g = dial(server, mine, hello=("discord", "app1"))
    wait_for(lambda: status(server)["state"] == "live" and status(server)["guilds"] == 1)
    sim.say(DM, f"/link {code}")
    wait_for(lambda: "linked" in str(sim.texts(DM)).lower())
    g.act(op="typing", chat_id=DM, metadata={})
    sim.say(GENERAL, "not for Ann's agent", user=BOB)
    sim.say(GENERAL, "what do they say?")
    event = g.hear("what do they say?")["event"]
    assert told(event) == [("Bob", "not for Ann's agent")]  # she can read it herself
    sim.channels[GENERAL]["permission_overwrites"] = [{"id": ANN, "type": 1, "allow": "0", "deny": str(1 << 16)}]
    sim.tell("CHANNEL_UPDATE", sim.channels[GENERAL])
    sim.say(GENERAL, "and now?")
    assert "context" not in g.hear("and now?")["event"]
    assert sim.violations == []


# ---- Telegram: what bellhop itself saw, where it may remember ----


@pytest.fixture
def telegram(telegram_sim, make_bellhop, dial):  # noqa: F811
    class Rig:
        pass

    r = Rig()
    r.sim = telegram_sim
    r.server = make_bellhop(test_telegram.config(telegram_sim, more=", context: 3, reactions: true"))
    r.credential = r.server.add(platform="telegram", bot="my_bot")
    r.dial = lambda: dial(r.server, r.credential, hello=("telegram", "my_bot"))
    r.gateway = r.dial()
    r.gateway.act(op="typing", chat_id=str(test_telegram.ANN), metadata={})
    yield r
    assert test_telegram.TOKEN not in r.server.log()


TG_BOB = {"id": 6, "is_bot": False, "first_name": "Bob"}


def test_telegram_tells_what_bellhop_saw_if_it_may_remember(telegram):
    s, g = telegram.sim, telegram.gateway
    assert g.descriptor["supports_context"] is True
    group, forum = test_telegram.GROUP, test_telegram.FORUM
    for text in ("zero", "one", "two", "three"):
        s.say(group, text, user=TG_BOB)
    s.say(forum, "elsewhere", user=TG_BOB)
    s.say(group, "@my_bot so?")
    event = g.next("inbound")["event"]
    assert told(event) == [("Bob", "one"), ("Bob", "two"), ("Bob", "three")] and "context_error" not in event
    s.say(group, "@my_bot and?")
    assert told(g.next("inbound")["event"]) == [("Bob", "two"), ("Bob", "three")]  # of three, one was said to it
    s.say(test_telegram.ANN, "psst")
    assert "context" not in g.hear("psst")["event"]
    telegram.server.cli("erase", "--person", "telegram:6", "--yes")
    s.say(group, "@my_bot still?")
    assert "context" not in g.next("inbound")["event"]


def test_telegram_remembers_nothing_unless_an_operator_says_so(telegram_sim, make_bellhop, dial):  # noqa: F811
    server = make_bellhop(test_telegram.config(telegram_sim))
    g = dial(server, server.add(platform="telegram", bot="my_bot"), hello=("telegram", "my_bot"))
    g.act(op="typing", chat_id="5", metadata={})
    assert g.descriptor["supports_context"] is False
    telegram_sim.say(test_telegram.GROUP, "chatter", user=TG_BOB)
    telegram_sim.say(test_telegram.GROUP, "@my_bot so?")
    assert "context" not in g.next("inbound")["event"]


def test_telegram_reactions_to_what_the_agent_said_reach_it(telegram):
    s, g = telegram.sim, telegram.gateway
    said = s.say(test_telegram.FORUM, "@my_bot shall we?", message_thread_id=4, is_topic_message=True)
    g.next("inbound")
    sent = g.act(op="send", chat_id=str(test_telegram.FORUM), content="yes", reply_to=None, metadata={"thread_id": "4"})
    s.react(test_telegram.FORUM, int(sent["message_id"]), ["\U0001F44D"])
    event = g.hear("reaction:added:\U0001F44D")["event"]
    assert (event["message_id"], event["reply_to"]["is_own"]) == (sent["message_id"], True)
    source = event["source"]
    assert (source["user_id"], source["user_name"], source["thread_id"]) == ("5", "Ann Lee", "4")
    s.react(test_telegram.FORUM, int(sent["message_id"]), ["\u2764"], ["\U0001F44D"])
    g.hear("reaction:added:\u2764\nreaction:removed:\U0001F44D")
    s.react(test_telegram.FORUM, int(sent["message_id"]), [], ["\u2764"])
    g.hear("reaction:removed:\u2764")
    s.react(test_telegram.FORUM, said, ["\U0001F44D"])  # to what Ann said
    assert g.quiet()

"""Discord: the real program against a strict simulator of gateway and REST API."""
import json
import pathlib
import sys
import time

import pytest

from conftest import rows_naming, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from discord import (ANN, BOT, DM, FORUM, GENERAL, GUILD, POST, STAFF, THREAD, DiscordSim)  # noqa: E402

TOKEN = "MTIz.secret-token.of-the-bot"

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: discord, bot: app1, token: "{token}", api_base: "{api}"{more}}}}}
"""


@pytest.fixture
def make_sim():
    made = []

    def make(**more):
        made.append(DiscordSim(TOKEN, **more))
        return made[-1]

    yield make
    for s in made:
        s.close()


@pytest.fixture
def sim(make_sim):
    return make_sim()


def config(sim, more="", token=TOKEN):
    return CONFIG.format(api=sim.url, token=token, more=more)


class Rig:
    def __init__(self, sim, make_bellhop, dial, more=""):
        self.sim, self.server = sim, make_bellhop(config(sim, more))
        self.credential = self.server.add(platform="discord", bot="app1")
        self.dial = lambda **m: dial(self.server, self.credential, hello=("discord", "app1"), **m)
        self.gateway = self.dial()
        self.live()

    def live(self):
        wait_for(lambda: status(self.server)["state"] == "live")
        wait_for(lambda: status(self.server)["guilds"] == len(self.sim.guilds) or self.sim.resumes)

    def check(self):
        assert self.sim.violations == []
        assert TOKEN not in self.server.log()


@pytest.fixture
def rig(sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial)
    yield r
    r.check()


def status(server):
    return next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "discord")


def send(gateway, chat, content, reply_to=None, **metadata):
    return gateway.act(op="send", chat_id=chat, content=content, reply_to=reply_to, metadata=metadata)


# ---- in ----


def test_a_person_writes_and_sees_the_answer(rig):
    said = rig.sim.say(GENERAL, f"<@{BOT}> hello", mentions=[{"id": BOT, "username": "bellhop"}])
    event = rig.gateway.hear("hello")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"]) == ("discord", GENERAL, "group")
    assert (source["guild_id"], source["scope_id"]) == (GUILD, GUILD)
    assert (source["user_id"], source["user_name"], source["user_handle"]) == (ANN, "Annie", "ann")
    assert (source["chat_name"], source["chat_topic"]) == ("general", "all things")
    assert event["message_id"] == said["id"]
    result = send(rig.gateway, GENERAL, "hi Ann", reply_to=said["id"])
    answer, = rig.sim.sent(GENERAL)
    assert result == {"success": True, "message_id": answer["id"]}
    assert answer["message_reference"]["message_id"] == said["id"]
    assert rig.gateway.quiet()  # our own message comes back from the gateway, and goes no further
    d = rig.gateway.descriptor
    assert (d["max_message_length"], d["len_unit"], d["markdown_dialect"]) == (2000, "chars", "discord")


def test_threads_forum_posts_and_direct_messages(rig):
    s, g = rig.sim, rig.gateway
    s.say(THREAD, "in a thread")
    source = g.hear("in a thread")["event"]["source"]
    assert (source["chat_id"], source["thread_id"], source["parent_chat_id"], source["chat_type"]) == \
        (THREAD, THREAD, GENERAL, "thread")
    s.say(POST, "in a post")
    source = g.hear("in a post")["event"]["source"]
    assert (source["chat_id"], source["parent_chat_id"], source["chat_type"]) == (POST, FORUM, "thread")
    s.say(DM, "psst")
    source = g.hear("psst")["event"]["source"]
    assert (source["chat_id"], source["chat_type"], source.get("guild_id")) == (DM, "dm", None)
    assert send(g, DM, "yes?")["success"] and s.texts(DM) == ["yes?"]
    s.say(GENERAL, "", type=7)  # somebody joined
    s.say(GENERAL, "", attachments=[{"id": "1", "url": "https://cdn.discordapp.com/x.png", "content_type": "image/png"}])
    event = g.hear("")["event"]
    assert event["message_type"] == "photo" and event["media_urls"] == ["https://cdn.discordapp.com/x.png"]


def test_a_guild_and_a_person_can_be_routed_on_their_own(rig, dial):
    server = rig.server
    other = server.add(tenant="other", platform=None)
    server.cli("route", "add", "--platform", "discord", "--key", GUILD, "--tenant", "other", "--open")
    g = dial(server, other, hello=("discord", "app1"))
    rig.sim.say(GENERAL, "for the guild's tenant")
    g.hear("for the guild's tenant")
    assert rig.gateway.quiet()
    rig.sim.say(DM, "for the bot's tenant")
    rig.gateway.hear("for the bot's tenant")
    server.cli("route", "add", "--platform", "discord", "--key", f"dm:{ANN}", "--tenant", "other", "--open")
    rig.sim.say(DM, "for Ann's tenant")
    g.hear("for Ann's tenant")
    # And neither writes into the other's chats.
    assert "not routed" in send(rig.gateway, GENERAL, "x")["error"]


def test_reconnects_resumes_and_dead_connections_lose_nothing(make_sim, make_bellhop, dial):
    sim = make_sim(heartbeat_ms=700)
    r = Rig(sim, make_bellhop, dial)
    sim.ask_beat()
    n = 0

    def chatter():
        nonlocal n
        for _ in range(3):
            sim.say(GENERAL, f"m{n}")
            n += 1

    for trouble in (sim.reconnect, sim.cut, lambda: sim.close_with(4000), lambda: sim.invalidate(True), sim.freeze,
                    lambda: sim.close_with(1001), lambda: sim.close_with(4008)):
        chatter()
        before = len(sim.resumes)
        trouble()
        chatter()  # while nobody listens
        wait_for(lambda: len(sim.resumes) > before, 20)
        wait_for(lambda: len(sim.live()) == 1)
        chatter()
        wait_for(lambda: len(r.gateway.seen) >= n, 20)
    assert r.gateway.seen == [f"m{i}" for i in range(n)]
    assert all(x["ok"] and x["path"] == "/resume/" for x in sim.resumes)
    assert len(sim.identifies) == 1
    r.check()


def test_a_lost_session_is_replaced_and_what_was_missed_is_read(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "before"), s.say(THREAD, "thread before"), s.say(STAFF, "quiet place"), s.say(DM, "dm before")
    for text in ("before", "thread before", "quiet place", "dm before"):
        g.hear(text)
    s.forget_sessions()
    for i in range(130):  # more than one page
        s.say(GENERAL, f"missed {i}", unseen=True)
    s.say(THREAD, "missed in the thread", unseen=True)
    s.say(DM, "missed dm", unseen=True)
    s.cut()
    wait_for(lambda: len(s.live()) == 1, 30)
    s.say(GENERAL, "after")
    wait_for(lambda: len(g.seen) >= 4 + 130 + 3, 30)
    assert [t for t in g.seen if t.startswith("missed ") and t[7:].isdigit()] == [f"missed {i}" for i in range(130)]
    assert g.seen.index("after") > g.seen.index("missed 129")  # the channel's order is kept
    assert {"missed in the thread", "missed dm"} <= set(g.seen)
    time.sleep(1)
    assert len(g.seen) == len(set(g.seen))
    assert not s.called("GET", f"/channels/{STAFF}/messages")  # Discord said that nothing happened there


def test_a_restart_resumes_where_it_was(rig):
    s = rig.sim
    s.say(GENERAL, "one")
    rig.gateway.hear("one")
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 0)
    assert rig.server.stop() == 0
    s.say(GENERAL, "while down"), s.say(THREAD, "in the thread")
    rig.server.start()
    g = rig.dial()
    g.hear("while down")
    source = g.hear("in the thread")["event"]["source"]  # although the guild is not told again
    assert (source["chat_type"], source["parent_chat_id"], source["chat_name"]) == ("thread", GENERAL, "dinner")
    assert len(s.identifies) == 1 and s.resumes[-1]["ok"]
    assert g.quiet()


def test_a_crash_loses_and_repeats_nothing(rig):
    s, g = rig.sim, rig.gateway
    n = 0
    for round in range(3):
        for _ in range(20):
            s.say(GENERAL, f"m{n}")
            n += 1
        if round == 0:
            wait_for(lambda: len(g.seen) >= 5)
        rig.server.kill()
        for _ in range(5):
            s.say(GENERAL, f"m{n}")
            n += 1
        before = list(g.seen)
        rig.server.start()
        g = rig.dial()
        g.seen[:0] = before
    wait_for(lambda: f"m{n - 1}" in g.seen, 20)
    first = list(dict.fromkeys(g.seen))
    assert first == [f"m{i}" for i in range(n)]  # an unacked tail may come again, in order


def test_the_agent_sleeps_and_finds_its_letters(rig):
    rig.gateway.sleep()
    for i in range(3):
        rig.sim.say(GENERAL, f"letter {i}")
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 3)
    g = rig.dial()
    for i in range(3):
        g.hear(f"letter {i}")


def test_a_deleted_direct_message_is_withdrawn_while_it_waits(rig):
    """Discord does not tell whose it was: the channel's place on disk has who the chat is with."""
    s, server = rig.sim, rig.server
    entries = lambda: server.instance(rig.credential.id)["entries"]  # noqa: E731
    rig.gateway.sleep()
    first, _, third = (s.say(DM, text) for text in ("a mistake", "kept", "a secret"))
    wait_for(lambda: entries() == 3)
    s.tell("MESSAGE_DELETE", {"id": first["id"], "channel_id": DM})
    wait_for(lambda: entries() == 2)
    wait_for(lambda: "discord_cursor" in rows_naming(server, ANN))
    server.kill()
    server.start()
    rig.live()
    s.tell("MESSAGE_DELETE", {"id": third["id"], "channel_id": DM})
    wait_for(lambda: entries() == 1)
    rig.gateway = rig.dial()
    rig.gateway.hear("kept")
    assert rig.gateway.quiet()


def test_what_cannot_be_stored_waits_at_discord(sim, make_bellhop, dial):
    r = Rig(sim, lambda c: make_bellhop(c + "delivery: {{max_mailbox_bytes: 64KiB}}\n"), dial)
    r.gateway.close()
    for i in range(60):  # twice as much as fits
        sim.say(GENERAL, f"m{i} " + "x" * 1500)
    assert "cannot be stored" in wait_for(lambda: status(r.server)["problem"])
    g = r.dial()
    wait_for(lambda: len(g.seen) >= 60, 40)
    assert [t.split()[0] for t in dict.fromkeys(g.seen)] == [f"m{i}" for i in range(60)]
    sim.say(GENERAL, "and on")
    wait_for(lambda: g.seen[-1] == "and on")
    wait_for(lambda: status(r.server)["problem"] is None, 40)
    r.check()


def test_two_shards_start_one_after_the_other(make_sim, make_bellhop, dial):
    sim = make_sim(shards=2)
    second = str(int(GUILD) + (1 << 22))
    sim.guilds[second] = {**sim.guilds[GUILD], "id": second, "name": "Annex", "channels": [
        {"id": "888", "type": 0, "name": "annex", "permission_overwrites": []}], "threads": []}
    sim.channels["888"] = {**sim.guilds[second]["channels"][0], "guild_id": second}
    r = Rig(sim, make_bellhop, dial)
    wait_for(lambda: len(sim.live()) == 2, 15)
    assert {x["state"] for x in status(r.server)["shards"]} == {"live"}
    sim.say(GENERAL, "one house"), sim.say("888", "the other")
    wait_for(lambda: set(r.gateway.seen) == {"one house", "the other"})
    r.check()


@pytest.mark.parametrize("code,words", [
    (4004, "refuses the bot's token"), (4013, "intents"), (4014, "Message Content Intent"), (4012, "update bellhop")])
def test_close_codes_that_must_not_be_retried_are_named(sim, make_bellhop, code, words):
    sim.refuse_close = code
    server = make_bellhop(config(sim))
    server.add(platform="discord", bot="app1")
    assert words in wait_for(lambda: status(server)["problem"])
    assert status(server)["state"] == "stopped"
    time.sleep(1.5)
    assert len(sim.called("GET", "/gateway/bot")) == 1 and not sim.sessions
    assert server.cli("doctor", check=False).returncode == 1


def test_privileged_intents_that_are_off_are_named(sim, make_bellhop):
    sim.allowed_privileged = 0
    server = make_bellhop(config(sim))
    assert "Privileged" in (problem := wait_for(lambda: status(server)["problem"])) or "privileged" in problem


def test_a_wrong_token_is_named_and_not_tried_again(sim, make_bellhop):
    server = make_bellhop(config(sim, token="wrong"))
    assert "refuses the bot's token" in wait_for(lambda: status(server)["problem"])
    time.sleep(1)
    assert len(sim.calls) == 1


def test_intents_can_be_named(sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial, more=', intents: "guilds, guild_messages"')
    assert next(iter(sim.sessions.values())).intents == 513
    sim.say(GENERAL, "not for us to read")
    wait_for(lambda: status(r.server)["emptyMessages"] == 1)
    server = make_bellhop(config(sim, more=', intents: "everything"'), start=False)
    assert server.cli("serve", check=False).returncode != 0


def test_no_session_is_started_beyond_the_daily_limit(sim, make_bellhop):
    sim.remaining = 0
    server = make_bellhop(config(sim))
    assert "no more session starts" in wait_for(lambda: status(server)["problem"])
    assert not sim.sessions
    sim.remaining = 5
    wait_for(lambda: sim.sessions, 10)
    wait_for(lambda: status(server)["problem"] is None)


def test_discord_goes_away_and_comes_back(rig):
    rig.sim.say(GENERAL, "before")
    rig.gateway.hear("before")
    rig.sim.down()
    rig.sim.say(GENERAL, "meanwhile")
    time.sleep(1)
    rig.sim.up()
    rig.gateway.hear("meanwhile", 20)


# ---- out ----


@pytest.fixture
def talk(rig):
    """Everybody has said something, so that the gateway may answer everywhere."""
    for channel in (GENERAL, STAFF, THREAD, DM):
        rig.sim.say(channel, f"hi from {channel}")
    wait_for(lambda: len(rig.gateway.seen) == 4)
    return rig


def test_nobody_can_ping_everyone(talk):
    assert send(talk.gateway, GENERAL, f"@everyone @here <@&500> <@{ANN}>")["success"]
    body = talk.sim.called("POST", "/messages")[-1][2]
    assert body["allowed_mentions"]["parse"] == ["users"]
    assert "roles" not in body["allowed_mentions"]


def test_long_texts_are_split_and_fences_stay_whole(talk):
    code = "\n".join(f"print('line {i}')" for i in range(300))
    result = send(talk.gateway, GENERAL, f"Look \U0001F600:\n```python\n{code}\n```\nThat was it.")
    assert result["success"], result
    parts = talk.sim.texts(GENERAL)
    assert len(parts) >= 3 and all(len(p) <= 2000 and p.count("```") % 2 == 0 for p in parts)
    lines = [line for p in parts for line in p.splitlines() if line.startswith("print")]
    assert lines == code.splitlines()
    assert result["message_id"] == talk.sim.sent(GENERAL)[0]["id"]


def test_limits_are_kept_and_other_channels_are_not_held_up(talk):
    s, g = talk.sim, talk.gateway
    s.window, s.window_s = 2, 1.0
    began = time.monotonic()
    for i in range(5):
        g.send({"type": "outbound", "requestId": f"r{i}",
                "action": {"op": "send", "chat_id": GENERAL, "content": f"n{i}", "metadata": {}}})
    assert send(g, STAFF, "at once")["success"]
    assert time.monotonic() - began < 0.9
    wait_for(lambda: s.texts(GENERAL) == [f"n{i}" for i in range(5)])
    assert time.monotonic() - began >= 1.9  # and not one request hit an exhausted bucket: see check()


def test_a_429_is_waited_out_once(talk):
    s, g = talk.sim, talk.gateway
    s.limit(GENERAL, 1.2)
    began = time.monotonic()
    assert send(g, GENERAL, "later")["success"]
    assert 1.2 <= time.monotonic() - began < 4
    assert len(s.called("POST", f"/channels/{GENERAL}/messages")) == 2
    s.limit(GENERAL, 60)
    g.send({"type": "outbound", "requestId": "r", "action": {"op": "send", "chat_id": GENERAL, "content": "much later",
                                                             "metadata": {}}})
    outbox = lambda: json.loads(talk.server.cli("outbox", "list", "--json").stdout)  # noqa: E731
    wait_for(lambda: outbox() and outbox()[0]["next_try"])
    assert "rate limit" in outbox()[0]["last_error"] and outbox()[0]["state"] == "waiting"


def test_a_global_limit_holds_everything(talk):
    s, g = talk.sim, talk.gateway
    s.limit(GENERAL, 1.0, scope="global")
    g.send({"type": "outbound", "requestId": "r", "action": {"op": "send", "chat_id": GENERAL, "content": "a", "metadata": {}}})
    wait_for(lambda: s.called("POST", f"/channels/{GENERAL}/messages"))
    began = time.monotonic()
    assert send(g, STAFF, "b")["success"]
    assert time.monotonic() - began >= 0.8


def test_a_lost_answer_does_not_post_twice(talk):
    s, g = talk.sim, talk.gateway
    s.trouble("POST", "/messages", None)
    result = send(g, GENERAL, "once")
    assert result["success"], result
    assert s.texts(GENERAL) == ["once"]
    assert len(s.called("POST", "/messages")) == 2
    s.trouble("POST", "/messages", 502)
    assert send(g, GENERAL, "after a hiccup")["success"]
    assert s.texts(GENERAL) == ["once", "after a hiccup"]


def test_a_page_in_place_of_an_answer_is_no_success(talk):
    """A proxy on the way may answer 200 with a page of its own: nothing was said by that."""
    s, g = talk.sim, talk.gateway
    s.trouble("POST", "/messages", 200)
    result = send(g, GENERAL, "said in the end")
    assert result["success"] and result["message_id"], result
    assert s.texts(GENERAL) == ["said in the end"]
    s.trouble("PATCH", "/messages", 200)
    assert g.act(op="edit", chat_id=GENERAL, message_id=result["message_id"], content="edited", metadata={})["success"]
    assert s.texts(GENERAL) == ["edited"]
    s.trouble("POST", "/threads", 200)
    made = g.act(op="thread_create", chat_id=GENERAL, thread_name="a place", metadata={})
    assert not made["success"] and made["error"].startswith("timed out: "), made


def test_failures_say_what_to_do(talk):
    s, g = talk.sim, talk.gateway
    for code, message, words in [(50013, "Missing Permissions", "Send Messages"), (50001, "Missing Access", "View Channel"),
                                 (50007, "Cannot send messages to this user", "direct messages"),
                                 (99999, "A network of lies", "code 99999")]:
        s.forbidden[GENERAL] = (code, message)
        error = send(g, GENERAL, "x")["error"]
        assert words in error and "network" not in error.lower() and "timed out" not in error, error
    s.forbidden.clear()
    del s.channels[STAFF]
    assert "does not know this channel" in send(g, STAFF, "x")["error"]
    assert "empty" in send(g, GENERAL, "  \n ")["error"]
    assert "not routed" in send(g, "424242", "x")["error"]
    s.token = "changed"
    assert "token" in send(g, GENERAL, "x")["error"]
    assert "refuses the bot's token" in wait_for(lambda: status(talk.server)["problem"])
    before = len(s.calls)
    assert not send(g, GENERAL, "y")["success"]
    assert len(s.calls) == before  # nothing is sent with a token that is refused


def test_edit_typing_and_info(talk):
    s, g = talk.sim, talk.gateway
    sent = send(g, GENERAL, "draft")
    edit = g.act(op="edit", chat_id=GENERAL, message_id=sent["message_id"], content="final", metadata={})
    assert edit["success"] and s.texts(GENERAL) == ["final"]
    gone = send(g, GENERAL, "to be deleted")["message_id"]
    s.messages[GENERAL] = [m for m in s.messages[GENERAL] if m["id"] != gone]
    assert "does not exist" in g.act(op="edit", chat_id=GENERAL, message_id=gone, content="x", metadata={})["error"]
    assert "not sent by" in g.act(op="edit", chat_id=GENERAL, message_id="1", content="x", metadata={})["error"]
    for _ in range(4):
        assert g.act(op="typing", chat_id=GENERAL, metadata={})["success"]
    assert s.typed == [GENERAL]
    assert g.act(op="typing", chat_id=STAFF, content="", metadata={})["success"] and s.typed == [GENERAL]
    assert g.act(op="get_chat_info", chat_id=GENERAL)["chat_info"] == {"name": "general", "type": "group"}
    assert g.act(op="get_chat_info", chat_id=THREAD)["chat_info"] == {"name": "dinner", "type": "thread"}
    assert g.act(op="get_chat_info", chat_id=DM)["chat_info"] == {"name": "Ann", "type": "dm"}


def test_a_thread_in_the_metadata_must_lie_in_the_chat(talk):
    s, g = talk.sim, talk.gateway
    assert send(g, GENERAL, "into the thread", thread_id=THREAD)["success"]
    assert s.texts(THREAD) == ["into the thread"]
    assert "no thread of this chat" in send(g, GENERAL, "not into a stranger's", thread_id=POST)["error"]
    assert s.texts(POST) == [] and s.texts(GENERAL) == []


def test_a_reply_to_something_deleted_is_sent_all_the_same(talk):
    assert send(talk.gateway, GENERAL, "late", reply_to="12345")["success"]
    assert talk.sim.texts(GENERAL) == ["late"]


@pytest.mark.parametrize("acted", [False, True])
def test_what_was_being_sent_at_a_crash_goes_on_under_its_nonce(talk, acted):
    """Discord enforces it: the second request returns the message that is there already, or makes it."""
    s = talk.sim
    if acted:
        s.hold_answers = True
    else:
        s.trouble("POST", "/messages", 500, delay=30)
    talk.gateway.send({"type": "outbound", "requestId": "r",
                       "action": {"op": "send", "chat_id": GENERAL, "content": "maybe", "metadata": {}}})
    wait_for(lambda: s.called("POST", "/messages") and s.texts(GENERAL) == (["maybe"] if acted else []))
    talk.server.kill()
    s.hold_answers = False
    talk.server.start()
    g = talk.dial()
    report = g.next("outbound_result")  # whoever still waits is told, on the next socket
    assert report["requestId"] == "r" and report["result"]["success"], report
    assert s.texts(GENERAL) == ["maybe"] and len(s.called("POST", "/messages")) == 2
    assert status(talk.server)["cutOffAtStart"] == 0


def test_a_person_who_is_erased_leaves_nothing_in_their_direct_chat(rig):
    """The id of the chat is not the person's: the chat's record has whose it is."""
    s, g, server = rig.sim, rig.gateway, rig.server
    s.say(DM, "hello"), s.say(GENERAL, "hello all")
    assert {g.next("inbound")["event"]["source"]["chat_id"] for _ in range(2)} == {DM, GENERAL}
    asked = g.act(op="prompt", chat_id=DM, content="Well?", prompt_id="q1", options=[{"id": "yes", "label": "Yes"}])
    assert asked["success"], asked
    waiting = lambda: sorted(o["chat_id"] for o in json.loads(server.cli("outbox", "list", "--json").stdout))  # noqa: E731
    for channel in (DM, GENERAL):
        s.limit(channel, 120)
        g.send({"type": "outbound", "requestId": channel, "action": {"op": "send", "chat_id": channel, "content": "a secret of Ann"}})
    wait_for(lambda: waiting() == sorted([DM, GENERAL]))
    g.close()
    s.limit(DM, 120), s.limit(GENERAL, 120)
    server.restart()  # what it knows is on disk
    counted = json.loads(server.cli("erase", "--person", f"discord:{ANN}", "--dry-run", "--json").stdout)
    assert (counted["chats"], counted["outgoing"], counted["questions"]) == (1, 1, 1), counted
    done = json.loads(server.cli("erase", "--person", f"discord:{ANN}", "--yes", "--json").stdout)
    assert {**done, "dryRun": True} == counted
    assert "discord_cursor" not in rows_naming(server, ANN)
    assert waiting() == [GENERAL]

"""Slack: the real program against a strict simulator of the Web API, by webhook and by socket."""
import base64
import http.client
import json
import os
import pathlib
import random
import sys
import threading
import time
import urllib.parse

import pytest

import test_media
from conftest import wait_for
from many_rig import Many

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from slack import SlackSim  # noqa: E402

BOT, TOKEN, SECRET = SlackSim.APP, "xoxb-planted-bot-token", "planted-signing-secret"
APP_TOKEN = "xapp-1-planted-app-token"
GENERAL, OTHER, DM, MPIM, ANN, BEN = "C0GENERAL", "C0OTHER", "D0ANN1", "G0MPIM1", "U0ANN1", "U0BEN1"

CONFIG = """\
listen: 127.0.0.1:0
public_url: https://relay.example.org
state_dir: {{state}}
log: {{{{level: debug}}}}
{head}
platforms:
  - {{{{platform: slack, bot: {bot}, bot_token: "{token}", signing_secret: "{secret}", api_base: "{api}"{more}}}}}
"""


@pytest.fixture
def sim():
    s = SlackSim(TOKEN, APP_TOKEN, SECRET)
    yield s
    s.close()
    assert s.violations == []
    assert s.pings == []


def config(sim, more="", head=""):
    return CONFIG.format(bot=BOT, token=TOKEN, secret=SECRET, api=sim.url, more=more, head=head)


class Rig:
    def __init__(self, sim, make_bellhop, dial, more="", head=""):
        self.sim = sim
        self.server = make_bellhop(config(sim, more, head))
        self.hook()
        self.credential = self.server.add(platform="slack", bot=BOT)
        self.dial = lambda **more: dial(self.server, self.credential, hello=("slack", BOT), **more)
        self.gateway = self.dial()
        wait_for(lambda: sim.called("auth.test"))

    def hook(self):
        self.sim.request_url = f"{self.server.url}/webhooks/slack/{BOT}"


@pytest.fixture
def rig(sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial)
    yield r
    log = r.server.log()
    assert TOKEN not in log and SECRET not in log and "planted" not in log


def status(server):
    return next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "slack")


def send(gateway, chat, content, **metadata):
    return gateway.act(op="send", chat_id=chat, content=content, reply_to=metadata.pop("reply_to", None), metadata=metadata)


# ---- in ----


def test_a_person_writes_and_sees_the_answer(rig):
    ts = rig.sim.say(DM, "hello &amp; <https://example.org|more>")
    event = rig.gateway.hear("hello & more (https://example.org)")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["scope_id"]) == ("slack", DM, "dm", sim_team(rig))
    assert (source["user_id"], event["message_id"], source.get("thread_id")) == (ANN, ts, None)
    result = send(rig.gateway, DM, "**hi** there")
    assert result["success"], result
    answer, = rig.sim.sent(DM)
    assert result["message_id"] == answer["ts"] and "thread_ts" not in answer
    assert answer["blocks"] == [{"type": "markdown", "text": "**hi** there"}] and answer["text"] == "**hi** there"
    d = rig.gateway.descriptor
    assert (d["platform"], d["max_message_length"], d["len_unit"], d["supports_edit"]) == ("slack", 12000, "utf16", True)
    assert {"send", "edit", "typing", "get_chat_info", "prompt", "react"} <= set(d["supported_ops"])
    assert "thread_create" not in d["supported_ops"]
    wait_for(lambda: len(rig.sim.called("users.info")) == 1)
    wait_for(lambda: rig.sim.say(DM, "again") and rig.gateway.next("inbound")["event"]["source"]["user_name"] == "Annie")


def sim_team(rig):
    return rig.sim.TEAM


def test_channels_threads_mentions_and_groups(rig):
    s, g = rig.sim, rig.gateway
    root = s.say(GENERAL, f"<@{s.BOT_USER}> do this for <@{BEN}> in <#C0OTHER|other>")
    event = g.hear(f"do this for <@{BEN}> in #other")["event"]
    assert event["source"]["chat_type"] == "group" and event["source"]["guild_id"] == s.TEAM
    s.say(GENERAL, "in the thread", thread_ts=root, parent_user_id=ANN)
    source = g.hear("in the thread")["event"]["source"]
    assert (source["thread_id"], source["chat_id"]) == (root, GENERAL)
    s.say(MPIM, "all of us")
    assert g.hear("all of us")["event"]["source"]["chat_type"] == "group"
    # app_mention and message tell of the same message
    event = s.message(GENERAL, f"<@{s.BOT_USER}> once")
    s.tell(s.envelope(event))
    s.tell(s.envelope({**event, "type": "app_mention"}))
    g.hear("once")
    s.say(GENERAL, "shared", thread_ts=root, subtype="thread_broadcast")
    g.hear("shared")
    assert g.quiet()


def test_a_thread_that_the_bot_takes_part_in_is_meant_for_it(rig):
    s, g = rig.sim, rig.gateway
    policy = {"platform": "slack", "requireAddress": True}
    assert rig.server.post("/relay/policy", policy, headers={"Authorization": f"Bearer {rig.credential.token()}"}).status == 200
    root = s.say(GENERAL, "not for you")
    asked = s.say(GENERAL, f"<@{s.BOT_USER}> a question")
    g.hear("a question")
    s.say(GENERAL, "more of it", thread_ts=asked, parent_user_id=ANN)
    g.hear("more of it")
    s.say(GENERAL, "still not", thread_ts=root, parent_user_id=ANN)
    assert send(g, GENERAL, "an opinion", thread_id=root)["success"]
    s.say(GENERAL, "thanks", thread_ts=root, parent_user_id=ANN)
    g.hear("thanks")
    other = s.say(GENERAL, "nor this")
    draft(g, 1, "a longer opinion", thread_id=other)
    wait_for(lambda: s.called("chat.startStream"))
    assert draft(g, 1, "a longer opinion, streamed", thread_id=other, final=True)["success"]
    s.say(GENERAL, "thanks for that, too", thread_ts=other, parent_user_id=ANN)
    g.hear("thanks for that, too")
    s.say(DM, "and directly")
    g.hear("and directly")
    assert g.quiet()


def test_a_stop_outside_of_threads_stops_the_newest_answer(rig):
    s, g = rig.sim, rig.gateway
    g.act(op="typing", chat_id=DM, platform="slack", bot=BOT, metadata={})  # a newer gateway: a thread under each message
    for say in (lambda: s.say(DM, "/stop"), lambda: s.command(DM, "/stop")):
        asked = s.say(DM, "do something long")
        g.hear("do something long")
        say()
        assert g.next("interrupt_inbound")["session_key"] == f"agent:main:slack:dm:{s.TEAM}:{DM}:{asked}"
        assert g.next("inbound")["event"]["text"] == "/stop"
        assert g.quiet("interrupt_inbound")  # each would cost a released gateway half a minute


def test_what_nobody_said_is_not_delivered(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "<@U0ANN1> has joined the channel", subtype="channel_join")
    s.tell(s.envelope({**s.message(GENERAL, "mine"), "user": s.BOT_USER, "bot_id": s.BOT_ID}))
    s.tell(s.envelope({**s.message(GENERAL, "also mine"), "bot_id": "B0ELSE", "app_id": s.APP}))
    s.tell(s.envelope({"type": "app_home_opened", "user": ANN, "channel": DM, "tab": "home", "event_ts": "1.2"}))
    s.tell(s.envelope({**s.message(GENERAL, "a bot"), "bot_id": "B0ELSE", "user": "U0ELSE"}))  # the gate refuses bots
    s.tell(s.envelope({**s.message(GENERAL, "a bot in disguise"), "app_id": "A0ELSE", "client_msg_id": None}))
    s.tell({"type": "app_rate_limited", "team_id": s.TEAM, "minute_rate_limited": 1, "api_app_id": s.APP, "token": "x"})
    s.tell(s.envelope({**s.message(GENERAL, ""), "blocks": []}))
    s.say(GENERAL, "after all")
    g.hear("after all")
    assert g.quiet() and status(rig.server)["ignored"] >= 5


def test_an_event_is_delivered_once_however_often_it_comes(rig):
    s, g = rig.sim, rig.gateway
    body = s.envelope(s.message(DM, "once"))
    s.tell(body)
    for retry in (1, 2, 3):
        s.tell(body, retry=retry)
    g.hear("once")
    # a retry header proves nothing: the first delivery may be the one that carries it
    s.tell(s.envelope(s.message(DM, "late")), retry=3)
    g.hear("late")
    assert g.quiet()


def test_edits_and_deletions_reach_what_still_waits(sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial)
    r.gateway.sleep()

    def change(first, **more):
        edited = {**first, "text": "right", "edited": {"user": ANN, "ts": "1.2"}, **more}
        return sim.envelope({"type": "message", "subtype": "message_changed", "hidden": True, "channel": DM, "channel_type": "im",
                             "ts": "1.3", "event_ts": "1.3", "message": edited, "previous_message": first})

    first, second, third = (sim.message(DM, t) for t in ("wrong", "gone", "kept"))
    fourth = sim.message(GENERAL, "gone, too")
    for event in (first, second, third, fourth):
        sim.tell(sim.envelope(event))
    sim.tell(change(first))
    unfurled = change(third, text="kept", attachments=[{"text": "a preview"}])
    del unfurled["event"]["message"]["edited"]
    sim.tell(unfurled)
    sim.tell(sim.envelope({"type": "message", "subtype": "message_deleted", "hidden": True, "channel": DM, "channel_type": "im",
                           "ts": "1.4", "event_ts": "1.4", "deleted_ts": second["ts"], "previous_message": second}))
    sim.tell(sim.envelope({"type": "message", "subtype": "message_deleted", "hidden": True, "channel": GENERAL,
                           "ts": "1.5", "event_ts": "1.5", "deleted_ts": fourth["ts"]}))  # as Slack's reference has it
    g = r.dial()
    g.hear("right")
    g.hear("kept")
    assert g.quiet()


def test_url_verification_is_answered(rig):
    status_, text = rig.sim.post(json.dumps({"token": "x", "challenge": "3eZbrw1aB", "type": "url_verification"}))
    assert status_ == 200 and json.loads(text) == {"challenge": "3eZbrw1aB"}


def test_hostile_bytes_are_refused_in_good_order(rig):
    s = rig.sim
    for body in ("{", "{}", "[]", '{"type":1}', '{"type":"event_callback"}', '{"type":"event_callback","event":{"type":"message"}}',
                 json.dumps(s.envelope({"type": "message", "channel": "../x", "user": ANN, "ts": "1.2", "text": "x"})),
                 json.dumps(s.envelope({"type": "message", "channel": GENERAL, "user": ANN, "ts": "now", "text": "x"})),
                 "payload=%7B", "payload=1", "command=%2Fx", "a=%zz", "ssl=1"):
        kind = "application/json" if body[0] in "{[" else "application/x-www-form-urlencoded"
        assert s.post(body, kind)[0] == 400, body
    assert s.post("ssl_check=1&token=x", "application/x-www-form-urlencoded")[0] == 200
    s.say(DM, "still here")
    rig.gateway.hear("still here")


def test_only_signed_requests_of_now_are_heard(rig):
    s = rig.sim
    body = json.dumps(s.envelope(s.message(DM, "forged"))).encode()
    now = time.time()
    good = s.sign(body)
    bad = [s.sign(body, at=now + 302), s.sign(body, secret="another"), s.sign(body, at=now - 301), s.sign(body + b" "), {},
           {k: v for k, v in good.items() if "Time" in k}, {k: v for k, v in good.items() if "Sig" in k},
           {**good, "X-Slack-Signature": good["X-Slack-Signature"].replace("v0=", "v1=")}]
    answers = {s.post(body, headers={"Accept": "*/*", **h}) for h in bad}
    assert len(answers) == 1 and answers.pop()[0] == 401
    assert rig.gateway.quiet()
    assert s.post(body, headers=s.sign(body, at=now - 290))[0] == 200
    rig.gateway.hear("forged")


# ---- out ----


def test_threads_are_those_of_the_metadata_only(rig):
    s, g = rig.sim, rig.gateway
    roots = {chat: s.say(chat, "question") for chat in (GENERAL, OTHER, MPIM, DM)}
    for _ in roots:
        g.hear("question")
    assert send(g, GENERAL, "flat", reply_to=roots[GENERAL])["success"]
    assert send(g, OTHER, "threaded", thread_id=roots[OTHER])["success"]
    assert send(g, MPIM, "as well", thread_ts=roots[MPIM])["success"]
    assert [s.sent(c)[0].get("thread_ts") for c in (GENERAL, OTHER, MPIM)] == [None, roots[OTHER], roots[MPIM]]
    assert "not the ts" in send(g, DM, "x", thread_id="general")["error"]
    assert "no such thread" in send(g, DM, "x", thread_id="1.000001")["error"]


def test_nobody_is_pinged_by_what_an_agent_writes(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "x")
    g.hear("x")
    evil = f"<!channel> <!here|here> <!everyone> <@{BEN}> <!subteam^S1> a < b && `<!channel>` @channel @here"
    sent = send(g, GENERAL, evil)
    assert sent["success"]
    assert g.act(op="edit", chat_id=GENERAL, message_id=sent["message_id"], content=evil + "!", metadata={})["success"]
    assert s.pings == []
    shown, = s.shown(GENERAL)
    assert shown.replace("\u200b", "") == evil + "!"  # people read what was written
    s.say(OTHER, f"<@{s.BOT_USER}> x")
    g.hear("x")
    s.trouble("chat.postMessage", error="invalid_blocks")
    assert send(g, OTHER, evil)["success"]
    assert s.sent(OTHER)[-1]["blocks"] == [] and s.pings == []


def test_long_texts_are_split_and_paced(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "x")
    g.hear("x")
    text = "word \U0001f600 " * 3500  # 28,000 units
    assert send(g, GENERAL, text)["success"]
    parts = s.shown(GENERAL)
    assert len(parts) == 3 and " ".join(parts).split() == text.split()
    assert "16 messages" in send(g, GENERAL, "a " * 100000)["error"]
    assert not send(g, GENERAL, " \n ")["success"]
    assert s.violations == []


def test_edits_reactions_status_and_lookups(rig):
    s, g = rig.sim, rig.gateway
    root = s.say(GENERAL, "x")
    g.hear("x")
    sent = send(g, GENERAL, "first")["message_id"]
    edit = lambda text: g.act(op="edit", chat_id=GENERAL, message_id=sent, content=text, metadata={})  # noqa: E731
    assert edit("second")["success"] and s.shown(GENERAL) == ["second"]
    assert edit("long " * 5000)["success"]
    wait_for(lambda: sum(x.count("long") for x in s.shown(GENERAL)) == 5000)  # what outgrows a message goes on in the next
    assert len(s.sent(GENERAL)) == 3 and edit("second")["success"]
    wait_for(lambda: s.shown(GENERAL) == ["second", "…", "…"])
    assert not g.act(op="edit", chat_id=GENERAL, message_id=root, content="x", metadata={})["success"]
    react = lambda emoji, **m: g.act(op="react", chat_id=GENERAL, message_id=root, emoji=emoji, metadata={}, **m)  # noqa: E731
    marks = s._message(s.channels[GENERAL], root)
    assert react("👀")["success"] and react("👀")["success"] and marks["own_reactions"] == ["eyes"]
    assert react("👀", remove=True)["success"] and react("👀", remove=True)["success"]
    assert react("✅")["success"] and react("❤️")["success"] and react(":partyparrot:")["success"]
    assert marks["own_reactions"] == ["white_check_mark", "heart", "partyparrot"]
    assert "no such emoji" in react("🪿")["error"]
    typing = lambda **m: g.act(op="typing", chat_id=GENERAL, **m)  # noqa: E731
    assert typing(metadata={})["success"] and s.statuses == []  # a status is shown in threads only
    for _ in range(3):
        assert typing(metadata={"thread_id": root})["success"]
    assert typing(content="is running pytest", metadata={"thread_id": root})["success"]
    assert typing(content="", metadata={"thread_id": root})["success"]
    assert typing(content="", metadata={"thread_id": root})["success"]
    assert s.statuses == [(GENERAL, root, "is typing…"), (GENERAL, root, "is running pytest"), (GENERAL, root, "")]
    assert g.act(op="get_chat_info", chat_id=GENERAL)["chat_info"] == {"name": "general", "type": "group"}
    s.say(DM, "y")
    g.hear("y")
    assert g.act(op="get_chat_info", chat_id=DM)["chat_info"]["type"] == "dm"
    assert not g.act(op="thread_create", chat_id=GENERAL, thread_name="x", metadata={})["success"]


def test_refusals_are_told_in_words(rig):
    s, g = rig.sim, rig.gateway
    for chat, error, words in ((GENERAL, "not_in_channel", "/invite"), (OTHER, "is_archived", "archived"),
                               (DM, "some_new_error", "some_new_error"), (MPIM, "restricted_action", "does not let the bot write")):
        s.say(chat, "x")
        g.hear("x")
        s.trouble("chat.postMessage", error=error)
        answer = send(g, chat, "x")
        assert not answer["success"] and words in answer["error"], answer
    s.scopes = s.scopes.replace("reactions:write,", "")
    ts = s.channels[GENERAL]["messages"][0]["ts"]
    assert "reactions:write" in g.act(op="react", chat_id=GENERAL, message_id=ts, emoji="👀", metadata={})["error"]
    s.trouble("chat.postMessage", error="token_revoked")
    assert "install the app again" in send(g, GENERAL, "x")["error"]
    assert "revoked" in status(rig.server)["problem"]
    assert send(g, GENERAL, "mended")["success"] and status(rig.server)["problem"] is None


def test_limits_are_waited_out(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "x")
    g.hear("x")
    s.trouble("chat.postMessage", status=429, error="ratelimited", headers={"Retry-After": "2"})
    began = time.monotonic()
    assert send(g, GENERAL, "patience")["success"] and time.monotonic() - began >= 2
    assert s.shown(GENERAL) == ["patience"] and status(rig.server)["limited"] == 1


@pytest.mark.parametrize("thread", [False, True])
def test_a_lost_answer_is_looked_up_and_never_sent_twice(rig, thread):
    s, g = rig.sim, rig.gateway
    root = s.say(GENERAL, "x")
    g.hear("x")
    where = {"thread_id": root} if thread else {}
    s.trouble("chat.postMessage", taken=True)  # taken, and cut
    answer = send(g, GENERAL, "arrived", **where)
    assert answer["success"] and answer["message_id"] == s.sent(GENERAL)[0]["ts"]
    assert s.shown(GENERAL) == ["arrived"]
    if thread:
        return
    s.trouble("chat.postMessage", error="fatal_error")  # not taken, and nobody can know
    answer = send(g, GENERAL, "lost", **where)
    assert not answer["success"] and answer["error"].startswith("timed out")
    assert s.shown(GENERAL) == ["arrived"]


def test_a_crash_between_request_and_answer_sends_nothing_twice(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "x")
    g.hear("x")
    s.answering.clear()
    g.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": GENERAL, "content": "once", "metadata": {}}})
    wait_for(lambda: len(s.sent(GENERAL)) == 1)
    rig.server.kill()
    s.answering.set()
    rig.server.start()
    rig.hook()
    rig.dial()
    wait_for(lambda: status(rig.server)["requestsWaiting"] == 0 and s.called("conversations.history"))
    time.sleep(0.5)
    assert s.shown(GENERAL) == ["once"]


def test_doctor_names_what_is_missing(rig):
    s = rig.sim
    done = rig.server.cli("doctor", check=False)
    assert f"ok    platform   slack {BOT}: its credentials are valid" in done.stdout, done.stdout
    s.scopes = s.scopes.replace("files:read,", "").replace("im:history,", "", 1)
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 1 and "im:history, files:read" in done.stdout, done.stdout
    s.tokens.clear()
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 1 and "invalid_auth" in done.stdout and TOKEN not in done.stdout


# ---- streams ----


def draft(g, request, text, chat=GENERAL, **more):
    """One frame of an answer that is being written."""
    metadata = {k: more.pop(k) for k in ("thread_id", "thread_ts") if k in more}
    return g.act(op="draft", chat_id=chat, draft_id=request, content=text, metadata=metadata, **more)


def asked(rig, chat=GENERAL, text="question"):
    """A person writes; the root of the thread in which the answer goes."""
    ts = rig.sim.say(chat, f"<@{rig.sim.BOT_USER}> {text}")
    rig.gateway.hear(text)
    return ts


def names(sim):
    return [name for name, _ in sim.calls if name.startswith("chat.")]


def test_a_draft_is_a_message_that_grows(rig):
    """chat.startStream, appendStream and stopStream; the last frame is the message, and a repeated one gets the same id."""
    s, g = rig.sim, rig.gateway
    assert not {"draft", "task_card"} & set(g.descriptor["supported_ops"])  # an older gateway knows neither
    g.send({"type": "hello", "platform": "slack", "botId": BOT, "command_manifest": []})
    d = g.next("descriptor")["descriptor"]
    assert d["supports_draft_streaming"] and {"draft", "task_card"} <= set(d["supported_ops"])
    root = asked(rig)
    assert draft(g, 7, "Let me <!chan", thread_id=root) == {"success": True, "queued": True}
    wait_for(lambda: s.shown(GENERAL) == ["Let me "])
    start, = s.called("chat.startStream")
    assert (start["recipient_user_id"], start["recipient_team_id"], start["thread_ts"]) == (ANN, s.TEAM, root)
    draft(g, 7, "Let me <!channel> **th", thread_id=root)
    wait_for(lambda: s.shown(GENERAL) == ["Let me <\u200b!channel> "])  # half of the emphasis is held back
    draft(g, 7, "Let me <!channel> **think**. Yes", thread_ts=root)
    wait_for(lambda: s.shown(GENERAL)[0].endswith("**think**. Yes"))
    text = "Let me <!channel> **think**. Yes, that is **it"  # the last text is taken as it is
    done = draft(g, 7, text, final=True)  # a final frame without the thread, as gateways send it
    message, = s.sent(GENERAL)
    assert done == {"success": True, "message_id": message["ts"]} and message["streaming_state"] == "completed"
    assert message["text"].replace("\u200b", "") == text and message["thread_ts"] == root
    assert names(s) == ["chat.startStream", "chat.appendStream", "chat.appendStream", "chat.stopStream"]
    rig.server.kill()
    rig.server.start()
    rig.hook()
    g = rig.dial()
    assert draft(g, 7, text, final=True, thread_id=root)["message_id"] == message["ts"]  # also after a crash
    assert draft(g, 7, "late", thread_id=root)["success"] and len(s.sent(GENERAL)) == 1


def test_two_turns_of_one_thread_do_not_seal_each_other(rig):
    s, g = rig.sim, rig.gateway
    root = asked(rig)
    for id, text in ((1, "one"), (2, "two")):
        assert draft(g, id, text + " goes", thread_id=root)["success"]
    wait_for(lambda: sorted(s.shown(GENERAL)) == ["one goes", "two goes"])
    for id, text in ((2, "two is done"), (1, "one is done")):
        assert draft(g, id, text, thread_id=root, final=True)["success"]
    assert sorted(s.shown(GENERAL)) == ["one is done", "two is done"]


def test_a_draft_without_a_thread_is_a_message_that_is_edited(rig):
    """Slack streams in threads only; elsewhere, and for somebody who is not known, the draft is the message all the same."""
    s, g = rig.sim, rig.gateway
    asked(rig, DM)
    draft(g, 1, "He", chat=DM)
    wait_for(lambda: s.shown(DM) == ["He"])
    done = draft(g, 1, "Hello", chat=DM, final=True)
    assert s.shown(DM) == ["Hello"] and done["message_id"] == s.sent(DM)[0]["ts"]
    assert draft(g, 1, "Hello", chat=DM, final=True)["message_id"] == done["message_id"]
    once = draft(g, 2, "all at once", chat=DM, final=True)
    assert s.shown(DM)[-1] == "all at once" and once["message_id"] == s.sent(DM)[-1]["ts"]
    assert not s.called("chat.startStream")


def test_a_stream_that_slack_ends_goes_on_as_edits(rig):
    s, g = rig.sim, rig.gateway
    root = asked(rig)
    draft(g, 3, "It is", thread_id=root)
    wait_for(lambda: s.shown(GENERAL) == ["It is"])
    s.sent(GENERAL)[0]["streaming_state"] = "expired"
    draft(g, 3, "It is long", thread_id=root)
    wait_for(lambda: s.shown(GENERAL) == ["It is long"])
    assert draft(g, 3, "It is long ago", thread_id=root, final=True)["message_id"] == s.sent(GENERAL)[0]["ts"]
    assert s.shown(GENERAL) == ["It is long ago"]
    s.trouble("chat.startStream", error="feature_not_enabled")
    draft(g, 4, "Another", thread_id=root)
    wait_for(lambda: s.shown(GENERAL)[-1] == "Another")
    assert draft(g, 4, "Another one", thread_id=root, final=True)["success"] and s.shown(GENERAL)[-1] == "Another one"
    assert len(s.called("chat.startStream")) == 1  # it is not asked again for a while


def test_a_changed_text_and_lost_answers_end_right(rig):
    s, g = rig.sim, rig.gateway
    for n, trouble in enumerate((None, "chat.appendStream", "chat.stopStream")):
        root = asked(rig)
        draft(g, 10 + n, "The first try", thread_id=root)
        wait_for(lambda: len(s.sent(GENERAL)) == n + 1)
        if trouble:
            s.trouble(trouble, taken=True)  # taken, and cut
        draft(g, 10 + n, "The first try, and more" if trouble else "Another beginning", thread_id=root)
        last = ("The first try, and more of it" if trouble else "Another beginning") + f" {n}"
        assert draft(g, 10 + n, last, thread_id=root, final=True)["message_id"] == s.sent(GENERAL)[n]["ts"]
        assert s.shown(GENERAL)[n] == last and s.sent(GENERAL)[n]["streaming_state"] == "completed"
    assert len(s.sent(GENERAL)) == 3


def test_a_stream_rolls_over_before_the_cap(rig):
    s, g = rig.sim, rig.gateway
    root = asked(rig)
    text = "```python\n" + "".join(f"line = {i}\n" for i in range(1600)) + "```\nDone."  # about 17,000 units
    for part in (text[:6000], text[:11900], text[:13000]):
        draft(g, 5, part, thread_id=root)
        wait_for(lambda: "".join(s.shown(GENERAL)).count("line") >= part.count("line") - 1)
    assert draft(g, 5, text, thread_id=root, final=True)["message_id"] == s.sent(GENERAL)[0]["ts"]
    parts = s.shown(GENERAL)
    assert len(parts) == 2 and all(p.count("```") == 2 for p in parts) and parts[1].endswith("Done.")
    assert [x for p in parts for x in p.splitlines() if "line" in x] == [x for x in text.splitlines() if "line" in x]
    assert all(m["streaming_state"] == "completed" for m in s.sent(GENERAL))


@pytest.mark.parametrize("graceful", [False, True])
def test_a_restart_completes_a_message_that_grows(rig, graceful):
    s, g = rig.sim, rig.gateway
    root = asked(rig)
    draft(g, 6, "Half of", thread_id=root)
    wait_for(lambda: s.shown(GENERAL) == ["Half of"])
    draft(g, 6, "Half of it", thread_id=root)
    wait_for(lambda: s.shown(GENERAL) == ["Half of it"])
    time.sleep(0.2)  # the record of the message is written behind the answer
    (rig.server.stop if graceful else rig.server.kill)()
    rig.server.start()
    rig.hook()
    wait_for(lambda: s.sent(GENERAL)[0]["streaming_state"] == "completed")
    assert s.shown(GENERAL) == ["Half of it"]
    g = rig.dial()  # the gateway did not die: its last frame completes the same message
    assert draft(g, 6, "Half of it is more", final=True)["message_id"] == s.sent(GENERAL)[0]["ts"]
    assert s.shown(GENERAL) == ["Half of it is more"]


@pytest.mark.parametrize("parts", [2, 3])
def test_a_crash_in_the_middle_of_a_long_answer_repeats_none_of_it(rig, parts):
    s, g = rig.sim, rig.gateway
    asked(rig, DM)
    draft(g, 8, "1", chat=DM)
    wait_for(lambda: s.shown(DM) == ["1"])
    text = " ".join(str(i) for i in range(1, 9001))  # four messages
    g.send({"type": "outbound", "requestId": "long", "action": {"op": "draft", "chat_id": DM, "draft_id": 8, "content": text, "final": True,
                                                                "metadata": {}}})
    wait_for(lambda: len(s.sent(DM)) == parts)
    rig.server.kill()
    rig.server.start()
    rig.hook()
    wait_for(lambda: len(s.sent(DM)) >= 4 and status(rig.server)["requestsWaiting"] == 0)
    assert " ".join(s.shown(DM)).split() == text.split()


def test_task_cards_show_what_an_agent_does(rig):
    s, g = rig.sim, rig.gateway
    root = asked(rig)

    def card(*tasks, op="task_card", **more):
        return g.act(op=op, chat_id=GENERAL, card_id="turn:1", chunks=[dict(zip(("id", "title", "status"), t)) for t in tasks],
                     metadata={"thread_ts": root, **more})

    assert card(("a", "read <!channel>", "running"))["success"]
    assert card(("a", "read <!channel>", "running"))["success"]  # unchanged: nothing is sent
    assert card(("a", "read", "completed"), ("b", "x" * 300, "in_progress", ))["success"]
    message, = s.sent(GENERAL)
    assert [(c["id"], c["status"], len(c["title"])) for c in message["chunks"]] == [("a", "complete", 4), ("b", "in_progress", 256)]
    message["streaming_state"] = "expired"
    assert card(("c", "more", "pending"))["success"] and len(s.sent(GENERAL)) == 2
    for bad in ({"chunks": []}, {"chunks": "x"}, {"chunks": [{"title": "no id"}]}, {"chunks": [{"id": "x"}] * 41}, {"card_id": ""}):
        answer = g.act(op="task_card", chat_id=GENERAL, metadata={"thread_ts": root}, **{"card_id": "turn:2", "chunks": [{"id": "x"}], **bad})
        assert not answer["success"], bad
    assert "thread_ts" in g.act(op="task_card", chat_id=GENERAL, card_id="turn:3", chunks=[{"id": "x"}], metadata={})["error"]
    assert card(op="task_card_stop")["success"] and s.sent(GENERAL)[-1]["streaming_state"] == "completed"
    assert card(op="task_card_stop")["success"]  # twice is once
    assert names(s) == ["chat.startStream"] + ["chat.appendStream"] * 2 + ["chat.startStream", "chat.stopStream"]


# ---- files ----

PICTURE = bytes.fromhex("89504e470d0a1a0a0000000d49484452")


def media(g, server, credential, data, name, type, chat=GENERAL, caption="", **metadata):
    """An agent hands a file to bellhop, and sends it."""
    id = test_media.kept(server, credential, data, type=type, name=name)
    return g.act(op="send_media", chat_id=chat, media_kind="image", source_url=f"/relay/media/{id}", filename=name, content=caption,
                 metadata=metadata)


def test_files_go_both_ways(rig):
    s, g = rig.sim, rig.gateway
    root = s.say(GENERAL, "look", subtype="file_share", files=[s.file(PICTURE), s.file(b"text", "a.txt", "text/plain")])
    event = g.hear("look")["event"]
    assert event["message_type"] == "photo" and len(event["media_urls"]) == 2
    url = event["media_urls"][0]
    assert test_media.ask(rig.server, "GET", url[url.index("/relay/media"):], rig.credential.token()).content == PICTURE
    shared = s.file(b"of another organization", "b.txt", "text/plain", file_access="check_file_info")
    del shared["url_private"], shared["url_private_download"]
    s.say(GENERAL, "", subtype="file_share", files=[shared])
    assert len(g.next("inbound")["event"]["media_urls"]) == 1
    s.say(GENERAL, "elsewhere", files=[s.file(b"x", url_private="https://evil.example/x", url_private_download="https://evil.example/x")])
    assert g.next("inbound")["event"]["media_urls"] == []  # the token goes nowhere but to Slack
    assert media(g, rig.server, rig.credential, PICTURE, "out.png", "image/png", caption="see <!channel> here", thread_id=root)["success"]
    message = s.sent(GENERAL)[-1]
    assert message["thread_ts"] == root and message["text"] == "see &lt;\u200b!channel&gt; here"
    assert s.uploads[message["files"][0]["id"]]["data"] == PICTURE and message["files"][0]["name"] == "out.png"
    assert media(g, rig.server, rig.credential, b"%PDF-1.4", "r.pdf", "application/pdf", caption="**bold**\n- a")["success"]
    assert not any("Authorization" in h for h in s.upload_headers)  # the address is the credential
    assert s.sent(GENERAL)[-2]["files"][0]["name"] == "r.pdf" and s.shown(GENERAL)[-1] == "**bold**\n- a"


def test_an_upload_that_breaks_is_begun_again_and_shared_once(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "x")
    g.hear("x")
    s.trouble("files.getUploadURLExternal")  # cut
    s.trouble("files.completeUploadExternal", taken=True)  # taken, and cut
    assert media(g, rig.server, rig.credential, PICTURE, "out.png", "image/png")["success"]
    assert len(s.sent(GENERAL)) == 1
    s.trouble("files.getUploadURLExternal", error="file_uploads_disabled")
    assert "does not take files" in media(g, rig.server, rig.credential, PICTURE + b"1", "out.png", "image/png")["error"]


# ---- questions, interactions, commands ----


def ask(g, chat, **metadata):
    return g.act(op="prompt", chat_id=chat, content="Sure?", prompt_kind="approval", prompt_id="q1", timeout_s=600, metadata=metadata,
                 options=[{"id": "yes", "label": "Yes" + "!" * 90, "style": "primary"}, {"id": "no", "label": "No", "style": "danger"}])


def test_a_question_is_answered_by_a_button(rig):
    s, g = rig.sim, rig.gateway
    root = s.say(GENERAL, "x")
    g.hear("x")
    shown = ask(g, GENERAL, thread_id=root)
    assert shown["success"], shown
    question, = s.sent(GENERAL)
    values = [e["value"] for e in question["blocks"][1]["elements"]]
    assert values == ["hp1:q1:yes", "hp1:q1:no"] and question["thread_ts"] == root
    s.press(GENERAL, question["ts"], "hp1:q1:yes", user=BEN)
    event = g.next("inbound")["event"]
    answer = event["prompt_response"]
    assert (answer["prompt_id"], answer["option_id"], answer["prompt_message_id"]) == ("q1", "yes", question["ts"])
    assert event["source"]["user_id"] == BEN
    wait_for(lambda: not any(b["type"] == "actions" for b in question["blocks"]))
    assert question["blocks"][0] == {"type": "markdown", "text": "Sure?"} and "✔ Yes" in json.dumps(question["blocks"], ensure_ascii=False)
    s.interact({"type": "block_actions", "user": {"id": ANN, "username": "ann", "team_id": s.TEAM}, "team": {"id": s.TEAM},
                "channel": {"id": GENERAL}, "container": {"type": "message", "message_ts": question["ts"], "channel_id": GENERAL},
                "actions": [{"type": "button", "action_id": "bellhop_1", "value": "hp1:q1:no"}], "trigger_id": "1.2.3"})
    wait_for(lambda: s.ephemeral)
    assert s.ephemeral[0]["user"] == ANN and "answered already" in s.ephemeral[0]["text"]
    assert g.quiet()


def test_a_long_question_is_shown_whole_where_slack_takes_no_markdown(rig):
    s, g = rig.sim, rig.gateway
    s.say(GENERAL, "x")
    g.hear("x")
    s.trouble("chat.postMessage", error="invalid_blocks")
    words = "größer " * 1600
    assert g.act(op="prompt", chat_id=GENERAL, content=words, prompt_kind="choice", prompt_id="q1", timeout_s=600, metadata={},
                 options=[{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}])["success"]
    question, = s.sent(GENERAL)
    assert [b["type"] for b in question["blocks"][-2:]] == ["section", "actions"]
    assert "".join(b["text"]["text"] for b in question["blocks"][:-1]).split() == words.split()


def test_slash_commands_are_words_in_the_channel(rig):
    s, g = rig.sim, rig.gateway
    s.command(GENERAL, "/hermes", "what is &lt;this&gt;")
    event = g.hear("/hermes what is <this>")["event"]
    assert event["message_type"] == "command" and event["source"]["chat_id"] == GENERAL and event["source"]["user_name"] == "ann"
    s.say(DM, "long work")
    g.hear("long work")
    for stop in (lambda: s.command(DM, "/stop"), lambda: s.say(DM, "/stop"), lambda: s.say(DM, f"<@{s.BOT_USER}> /stop")):
        stop()
        assert g.next("interrupt_inbound")["session_key"].startswith("agent:main:slack:dm:")


def test_link_is_understood_by_word_and_by_command(sim, make_bellhop, dial):
    server = make_bellhop(config(sim))
    sim.request_url = f"{server.url}/webhooks/slack/{BOT}"
    credential = server.add(platform="slack", bot=BOT, open=False, instance="mine")
    g = dial(server, credential, hello=("slack", BOT))
    for chat, tell in ((GENERAL, lambda code: sim.say(GENERAL, f"<@{sim.BOT_USER}> /link {code}", user=BEN)),
                       (DM, lambda code: sim.command(DM, "/link", code))):
        tell(server.cli("link", "--instance", "mine").stdout.split()[0])
        wait_for(lambda: any("Linked" in x for x in sim.shown(chat)))
    sim.say(DM, "hello")
    g.hear("hello")
    sim.say(GENERAL, "me too", user=BEN)
    g.hear("me too")


def test_other_interactions_are_forwarded_without_their_credentials(rig):
    s, g = rig.sim, rig.gateway
    s.interact({"type": "view_submission", "team": {"id": s.TEAM}, "user": {"id": ANN, "username": "ann", "team_id": s.TEAM},
                "api_app_id": s.APP, "token": "planted-verification-token", "trigger_id": "9.8.7", "view": {"id": "V1", "state": {"x": 1}},
                "response_urls": [{"response_url": "https://hooks.slack.com/app/planted"}]})
    frame = g.next("passthrough_forward")
    forward = frame["forward"]
    body = json.loads(base64.b64decode(forward["bodyB64"]))
    assert (forward["platform"], forward["botId"], body["view"]["id"]) == ("slack", BOT, "V1")
    assert "planted" not in json.dumps(body)
    s.interact({"type": "view_closed", "team": {"id": s.TEAM}, "user": {"id": ANN, "username": "ann", "team_id": s.TEAM},
                "api_app_id": s.APP, "token": "planted-verification-token", "view": {"id": "V2"}, "is_cleared": False})
    assert json.loads(base64.b64decode(g.next("passthrough_forward")["forward"]["bodyB64"]))["type"] == "view_closed"


# ---- several workspaces ----


def browse(server, path, cookie=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
    answer = connection.getresponse()
    answer.text = answer.read().decode()
    connection.close()
    return answer


def install(sim, server, team, **change):
    """A person installs the app in that workspace; the last answer."""
    page = browse(server, f"/slack/install/{BOT}")
    assert page.status == 302 and page.headers["Location"].startswith(sim.root + "/oauth/v2/authorize?")
    asked = dict(urllib.parse.parse_qsl(page.headers["Location"].partition("?")[2]))
    assert asked["client_id"] == "12.34" and "chat:write" in asked["scope"]
    assert asked["redirect_uri"] == f"https://relay.example.org/slack/install/{BOT}/callback"
    cookie = page.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "Secure" in cookie and "SameSite=Lax" in cookie
    token = f"xoxb-planted-{team}"
    sim.tokens[token] = team
    sim.codes[f"code-{team}"] = {"client": ("12.34", "planted-client-secret"), "answer": {
        "access_token": token, "token_type": "bot", "scope": "chat:write", "bot_user_id": sim.BOT_USER, "app_id": sim.APP,
        "team": {"id": team, "name": "Another"}, "enterprise": None, "is_enterprise_install": False, "authed_user": {"id": ANN},
        **{k: change[k] for k in ("refresh_token",) if k in change}}}
    query = {"code": f"code-{team}", "state": change.get("state", asked["state"])}
    return browse(server, f"/slack/install/{BOT}/callback?" + urllib.parse.urlencode(query),
                  change.get("cookie", cookie.partition(";")[0]))


def test_the_app_is_installed_in_several_workspaces(sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial, ', client_id: "12.34", client_secret: "planted-client-secret"')
    for team in ("T0TEAM2", "T0TEAM3"):
        assert install(sim, r.server, team, state="x" * 40).status == 403
        assert install(sim, r.server, team, cookie="bellhop_slack_install=" + "x" * 40).status == 403
        sim.codes.clear()
        answer = install(sim, r.server, team)
        assert answer.status == 200 and "Installed" in answer.text, answer.text
        chat = f"C0IN{team}"
        sim.channels[chat] = {"id": chat, "name": "there", "kind": "channel", "team": team, "messages": []}
        sim.say(chat, "hello")
        assert r.gateway.hear("hello")["event"]["source"]["scope_id"] == team
        assert send(r.gateway, chat, "hi there")["success"] and sim.shown(chat) == ["hi there"]
    sim.say(GENERAL, "at home")
    r.gateway.hear("at home")
    assert send(r.gateway, GENERAL, "hi")["success"]
    assert status(r.server)["installations"] == 2
    r.server.kill()  # the tokens are kept, and sealed
    assert not any(b"xoxb-planted-T0" in f.read_bytes() for f in r.server.state.rglob("*") if f.is_file())
    r.server.start()
    r.hook()
    g = r.dial()
    assert send(g, "C0INT0TEAM2", "again", scope_id="T0TEAM2")["success"]
    sim.trouble("chat.postMessage", error="account_inactive")  # of one workspace: the app is well
    assert "install the app again" in send(g, "C0INT0TEAM2", "x", scope_id="T0TEAM2")["error"]
    assert status(r.server)["problem"] is None
    sim.tell(sim.envelope({"type": "tokens_revoked", "tokens": {"oauth": [ANN]}}, "T0TEAM2"))  # a person's, not the bot's
    late = sim.envelope({"type": "tokens_revoked", "tokens": {"oauth": [], "bot": ["U0BOT1"]}}, "T0TEAM2")
    sim.tell({**late, "event_time": int(time.time()) - 3600})  # of an earlier installation
    assert status(r.server)["installations"] == 2
    sim.tell(sim.envelope({"type": "app_uninstalled", "event_ts": "1.2"}, "T0TEAM2"))
    assert status(r.server)["installations"] == 1
    assert install(sim, r.server, "T0TEAM4", refresh_token="xoxe-1").status == 502
    assert status(r.server)["installations"] == 1
    assert "not installed" in send(g, "C0INT0TEAM2", "gone", scope_id="T0TEAM2")["error"]
    assert browse(r.server, "/slack/install/nobody").status == 404
    assert "planted" not in r.server.log()


# ---- Socket Mode ----


class SocketRig(Rig):
    def hook(self):
        wait_for(lambda: self.sim.sockets)


@pytest.fixture
def socket(sim, make_bellhop, dial):
    r = SocketRig(sim, make_bellhop, dial, f', mode: socket, app_token: "{APP_TOKEN}"')
    yield r
    assert "planted" not in r.server.log()


def test_a_socket_brings_messages_presses_and_commands(socket):
    s, g = socket.sim, socket.gateway
    s.say(GENERAL, "hello")
    g.hear("hello")
    assert send(g, GENERAL, "hi")["success"]
    assert ask(g, DM)["success"] is False  # nobody wrote there yet
    s.say(DM, "x")
    g.hear("x")
    assert ask(g, DM)["success"]
    s.press(DM, s.sent(DM)[0]["ts"], "hp1:q1:no")
    assert g.next("inbound")["event"]["prompt_response"]["option_id"] == "no"
    s.command(DM, "/hermes", "help")
    g.hear("/hermes help")
    s.push("events_api", {"type": "event_callback"})
    s.push("something_new", {"x": 1})
    wait_for(lambda: not s.unacked)
    assert set(s.acks.values()) == {None} and status(socket.server)["sockets"] == 1


def test_two_sockets_overlap_at_a_refresh_and_none_is_left(socket):
    s, g = socket.sim, socket.gateway
    for turn in range(2):
        old, = s.sockets
        s.disconnect("refresh_requested" if turn else "warning", old)
        wait_for(lambda: len(s.sockets) == 2)
        for i, ws in enumerate(s.sockets):  # Slack uses any of them
            s.push("events_api", s.envelope(s.message(DM, f"{turn} {i}")), socket=ws)
        assert {g.next("inbound")["event"]["text"] for _ in range(2)} == {f"{turn} 0", f"{turn} 1"}
        wait_for(lambda: len(s.sockets) == 1 and old not in s.sockets)
    assert s.opened == 3 and not s.unacked and status(socket.server)["socketsLost"] == 0


def test_a_cut_socket_is_replaced_and_nothing_is_lost_or_doubled(socket):
    import asyncio
    s, g = socket.sim, socket.gateway
    for turn in range(3):
        ws, = s.sockets
        s.push("events_api", s.envelope(s.message(DM, f"event {turn}")))
        asyncio.run_coroutine_threadsafe(cut(ws), s.loop).result(10)
        wait_for(lambda: s.sockets and s.sockets != [ws])
        s.again()
        g.hear(f"event {turn}")
    wait_for(lambda: not s.unacked)
    assert g.quiet()


async def cut(ws):
    ws._req.transport.abort()


def test_an_envelope_is_acknowledged_once_it_is_safe(socket):
    s = socket.sim
    socket.gateway.sleep()
    for i in range(4):
        s.push("events_api", s.envelope(s.message(DM, f"kept {i}")))
        if i % 2:
            wait_for(lambda: not s.unacked)
        socket.server.kill()  # acknowledged: it is on disk; not: Slack sends it again
        wait_for(lambda: not s.sockets)
        socket.server.start()
        socket.hook()
        s.again()
        wait_for(lambda: not s.unacked)
    g = socket.dial()
    for i in range(4):
        g.hear(f"kept {i}")
    assert g.quiet()


def test_a_switched_off_socket_mode_and_a_wrong_token_are_told(socket):
    s = socket.sim
    s.disconnect("link_disabled")
    wait_for(lambda: "switch it on" in (status(socket.server)["problem"] or ""))
    s.app_token = "xapp-another"
    socket.server.restart()
    wait_for(lambda: "app_token" in (status(socket.server)["problem"] or ""))
    assert s.sockets == []


def test_a_good_socket_does_not_hide_a_wrong_bot_token(socket):
    s = socket.sim
    s.trouble("auth.test", error="invalid_auth")
    socket.server.restart()
    wait_for(lambda: status(socket.server)["sockets"] == 1 and not s.troubles)
    time.sleep(0.5)
    assert "bot's token" in (status(socket.server)["problem"] or "")
    s.say(DM, "x")
    g = socket.dial()
    g.hear("x")
    assert send(g, DM, "y")["success"] and status(socket.server)["problem"] is None


@pytest.mark.skipif(not os.environ.get("BELLHOP_LONG"), reason="takes 45 s: ./dev crash runs it")
def test_a_deaf_socket_is_noticed_within_45_seconds(socket):
    s, g = socket.sim, socket.gateway
    s.deaf = True
    s.disconnect("refresh_requested")
    wait_for(lambda: len(s.sockets) == 2)
    wait_for(lambda: len(s.sockets) == 1)
    began, (ws,) = time.monotonic(), s.sockets
    s.deaf = False
    wait_for(lambda: s.sockets and ws not in s.sockets, 45)
    assert time.monotonic() - began < 45 and status(socket.server)["socketsDeaf"] == 1
    wait_for(lambda: len(s.sockets) == 1)
    s.say(DM, "heard")
    g.hear("heard")


# ---- much ----


def test_many_messages_each_once_and_in_order_whatever_fails(sim, make_bellhop, dial):
    """BELLHOP_SLACK_MESSAGES of them in and as many out, with repeats, lost answers, limits and kills."""
    total = int(os.environ.get("BELLHOP_SLACK_MESSAGES", 40))
    chats = [f"C0MANY{i:04d}" for i in range(min(200, max(20, total // 20)))]
    for id in chats:
        sim.channels[id] = {"id": id, "name": id.lower(), "kind": "channel", "team": sim.TEAM, "messages": []}
    r, dice = Rig(sim, make_bellhop, dial), random.Random(7)
    many = Many(r, chats, sim.shown, lambda: status(r.server)["requestsWaiting"], r.hook, scope_id=sim.TEAM)
    for n in range(total):
        chat = dice.choice(chats)
        body = sim.envelope(sim.message(chat, many.text(chat)))
        sim.tell(body)
        if dice.random() < 0.1:
            sim.tell(body, retry=1)
        if dice.random() < 0.05:
            sim.trouble("chat.postMessage", taken=True)
        if dice.random() < 0.03:
            sim.trouble("chat.postMessage", status=429, error="ratelimited", headers={"Retry-After": "1"})
        if n in (total // 3, 2 * total // 3):
            many.crash()
        many.breathe()
    many.check()

"""Matrix: the real program against a strict simulator of a homeserver, by sync and as an application service."""
import json
import os
import pathlib
import random
import sys
import threading
import time

import pytest

import test_media
from conftest import days_pass, wait_for
from many_rig import Many

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from matrix import MatrixSim, Refusal  # noqa: E402

BOT, ANN, BEN, TOKEN = MatrixSim.BOT, MatrixSim.ANN, MatrixSim.BEN, "syt-planted-token"
AS, HS = "planted-as-token", "planted-hs-token"
PICTURE = bytes.fromhex("89504e470d0a1a0a0000000d49484452")

CONFIG = """\
listen: 127.0.0.1:0
public_url: https://relay.example.org
state_dir: {{state}}
log: {{{{level: debug}}}}
limits: {{{{instance_actions: 0}}}}
platforms:
  - {{{{platform: matrix, bot: "@desk:example.org", homeserver: "{url}"{more}}}}}
"""
SYNC = f', token: "{TOKEN}", rate: 600'
REGISTRATION = {"id": "bellhop-desk", "url": "https://relay.example.org", "as_token": AS, "hs_token": HS, "sender_localpart": "desk",
                "rate_limited": False, "namespaces": {"users": [{"exclusive": True, "regex": "@desk_.*:example\\.org"}], "aliases": [],
                                                      "rooms": []}}
SERVICE = f', appservice: {{{{as_token: {AS}, hs_token: {HS}, namespace: "@desk_.*:example\\\\.org"}}}}'


@pytest.fixture
def sim():
    s = MatrixSim(TOKEN)
    s.per_second = 10  # Synapse allows 12 a minute by default, and ten at once
    yield s
    s.close()
    assert s.violations == []


def config(sim, more=SYNC):
    return CONFIG.format(url=sim.url, more=more)


class Rig:
    def __init__(self, sim, make_bellhop, dial, more=SYNC, **how):
        self.sim = sim
        self.service = "appservice" in more
        if self.service:
            sim.tokens.clear()
            sim.service(REGISTRATION)
        self.dm = sim.room(*([] if self.service else [BOT]))
        self.server = make_bellhop(config(sim, more))
        self.register()
        self.credential = self.server.add(platform="matrix", bot=BOT, **how)
        self.dial = lambda **more: dial(self.server, self.credential, hello=("matrix", BOT), **more)
        self.gateway = self.dial()
        if self.service:
            wait_for(lambda: status(self.server)["state"] == "live")
            sim.invite(self.dm)
            wait_for(lambda: BOT in sim.members(self.dm))
        else:
            wait_for(lambda: sim.called("sync"))

    def register(self):
        """The homeserver reaches bellhop at its address of now."""
        if self.service:
            next(iter(self.sim.services.values()))["at"] = self.server.url

    def again(self):
        self.server.kill()
        self.server.start()
        self.register()
        return self.dial()


@pytest.fixture(params=["sync", "service"])
def rig(request, sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial, SYNC if request.param == "sync" else SERVICE)
    yield r
    assert "planted" not in r.server.log()


@pytest.fixture
def sync(sim, make_bellhop, dial):
    return Rig(sim, make_bellhop, dial)


def status(server):
    return next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "matrix")


def send(gateway, chat, content, **metadata):
    return gateway.act(op="send", chat_id=chat, content=content, reply_to=metadata.pop("reply_to", None), metadata=metadata)


def group(rig, name="The room"):
    """A room of three, which the bot is in."""
    id = rig.sim.room(BEN, name=name)
    rig.sim.invite(id)
    wait_for(lambda: BOT in rig.sim.members(id))
    return id


# ---- in ----


def test_a_person_writes_and_sees_the_answer(rig):
    s, g = rig.sim, rig.gateway
    id = s.say(rig.dm, "hello")
    event = g.hear("hello")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["scope_id"]) == ("matrix", rig.dm, "dm", "example.org")
    assert (source["user_id"], source["user_name"], event["message_id"]) == (ANN, "Ann Lee", id)
    result = send(g, rig.dm, "**hi** there & `you`, @ben:other.example")
    assert result["success"], result
    answer, = s.sent(rig.dm)
    assert result["message_id"] == answer["event_id"]
    assert answer["content"] == {
        "msgtype": "m.text", "body": "**hi** there & `you`, @ben:other.example", "format": "org.matrix.custom.html",
        "formatted_body": "<p><strong>hi</strong> there &amp; <code>you</code>, @ben:other.example</p>",
        "m.mentions": {"user_ids": [BEN]}}
    assert send(g, rig.dm, "plain words")["success"]
    assert s.sent(rig.dm)[-1]["content"] == {"msgtype": "m.text", "body": "plain words", "m.mentions": {}}
    wait_for(lambda: (rig.dm, BOT, id) in s.receipts)
    d = g.descriptor
    assert (d["platform"], d["max_message_length"], d["len_unit"], d["supports_edit"]) == ("matrix", 8000, "chars", True)
    assert {"send", "edit", "typing", "get_chat_info", "send_media", "prompt", "react"} <= set(d["supported_ops"])


def test_rooms_threads_replies_and_mentions(rig):
    s, g = rig.sim, rig.gateway
    policy = {"platform": "matrix", "requireAddress": True}
    assert rig.server.post("/relay/policy", policy, headers={"Authorization": f"Bearer {rig.credential.token()}"}).status == 200
    room = group(rig)
    root = s.say(room, "not for you")
    s.mention(room, "do this")
    event = g.hear("do this")["event"]
    assert event["source"]["chat_type"] == "group" and event["source"]["chat_name"] == "The room"
    s.say(room, "x", **{"m.mentions": {"user_ids": [BOT]}, "m.relates_to": {
        "rel_type": "m.thread", "event_id": root, "is_falling_back": True, "m.in_reply_to": {"event_id": root}}})
    event = g.hear("x")["event"]
    assert event["source"]["thread_id"] == root and event.get("reply_to_message_id") is None
    ours = send(g, room, "an answer", thread_id=root, reply_to=event["message_id"])["message_id"]
    assert s.sent(room)[-1]["content"]["m.relates_to"] == {"rel_type": "m.thread", "event_id": root, "is_falling_back": False,
                                                           "m.in_reply_to": {"event_id": event["message_id"]}}
    send(g, room, "more", thread_id=root)
    assert s.sent(room)[-1]["content"]["m.relates_to"]["is_falling_back"] is True
    send(g, room, "flat", reply_to=root)
    assert s.sent(room)[-1]["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": root}}
    s.say(room, "> <@desk:example.org> an answer\n> more\n\nthanks", **{"m.relates_to": {"m.in_reply_to": {"event_id": ours}}})
    assert g.hear("thanks")["event"]["reply_to_message_id"] == ours  # a reply to the bot is for the bot
    s.say(room, "> <@ann:example.org> not for you\n\nno", **{"m.relates_to": {"m.in_reply_to": {"event_id": root}}})
    s._add(s.rooms[room], "m.room.message", ANN, {"msgtype": "m.text", "body": "desk, an old app"})  # without m.mentions
    g.hear("an old app")
    assert "not the id" in send(g, room, "x", thread_id="general")["error"]
    assert "not the id" in send(g, "#general", "x")["error"] or "not routed" in send(g, "#general", "x")["error"]
    assert g.quiet()


def test_a_reply_to_an_answer_of_before_a_restart_is_for_the_bot(rig):
    s, g = rig.sim, rig.gateway
    policy = {"platform": "matrix", "requireAddress": True}
    assert rig.server.post("/relay/policy", policy, headers={"Authorization": f"Bearer {rig.credential.token()}"}).status == 200
    room = group(rig)
    s.mention(room, "a question")
    g.hear("a question")
    ours = send(g, room, "an answer")["message_id"]
    theirs, lost = s.say(room, "chatter"), s.say(room, "more chatter")
    s.mention(room, "so far")
    g.hear("so far")
    g.sleep()
    g = rig.again()
    reply = lambda text, to: s.say(room, text, **{"m.relates_to": {"m.in_reply_to": {"event_id": to}}})  # noqa: E731
    reply("thanks", ours)
    g.hear("thanks")
    for _ in range(2):
        reply("not for the bot", theirs)
    wait_for(lambda: len(s.called("event")) == 2)
    s.trouble("event", 403, "M_FORBIDDEN")
    reply("not for the bot", lost)
    reply("not for the bot", s.say(room, "new chatter"))
    s.say(room, "in a thread", **{"m.relates_to": {"rel_type": "m.thread", "event_id": ours, "is_falling_back": True,
                                                   "m.in_reply_to": {"event_id": theirs}}})
    g.hear("in a thread")
    s.mention(room, "the end")
    g.hear("the end")
    assert g.quiet()
    assert [c[1][1] for c in s.called("event")] == [ours, theirs]


def test_what_nobody_said_to_the_bot_is_not_delivered(sync):
    s, g, rig = sync.sim, sync.gateway, sync
    room = rig.dm
    s.say(room, "a bot's notice", msgtype="m.notice")
    s.say(room, "", user=ANN)
    s._add(s.rooms[room], "m.room.message", ANN, {})
    s._add(s.rooms[room], "m.room.message", ANN, {"msgtype": "m.key.verification.request", "body": "verify"})
    s._add(s.rooms[room], "m.room.topic", ANN, {"topic": "x"}, "")
    s._add(s.rooms[room], "m.room.message", ANN, {"msgtype": "m.image", "body": "x", "url": "https://evil.example/x.png"})
    s._add(s.rooms[room], "m.room.message", ANN, {"msgtype": ["m.text"], "body": {"a": 1}, "m.relates_to": 7})
    s.say(room, "waves", msgtype="m.emote")
    g.hear("* Ann Lee waves")
    assert send(g, room, "mine")["success"]
    s.say(room, "after all")
    g.hear("after all")
    assert g.quiet() and status(rig.server)["ignored"] >= 4


def test_two_bots_of_one_bellhop_do_not_answer_each_other(sim, make_bellhop, dial):
    other = "@other:example.org"
    sim.users[other], sim.tokens["syt-planted-other"] = "Other", other
    sim.strict.add("syt-planted-other")
    line = f'  - {{{{platform: matrix, bot: "{other}", homeserver: "{sim.url}", token: "syt-planted-other", rate: 600}}}}\n'
    r = Rig(sim, lambda config: make_bellhop(config + line), dial)
    room = sim.room(BOT, other, BEN)
    sim.say(room, "as people do", user=other)
    sim.say(room, "hello")
    r.gateway.hear("hello")
    assert r.gateway.quiet()


def test_edits_and_deletions_reach_what_still_waits(rig):
    s = rig.sim
    rig.gateway.sleep()
    first, second, _ = (s.say(rig.dm, t) for t in ("wrong", "gone", "kept"))
    wait_for(lambda: status(rig.server)["events"] == 3)  # a homeserver does not show what is deleted
    s.edit(rig.dm, first, "right")
    s.redact(rig.dm, second)
    s.say(rig.dm, "last")
    wait_for(lambda: status(rig.server)["events"] == 6)
    g = rig.dial()
    for text in ("right", "kept", "last"):
        g.hear(text)
    assert g.quiet()


def test_a_large_room_is_not_counted_again_whenever_somebody_joins(sync):
    s, g = sync.sim, sync.gateway
    room = s.room(BEN, *(f"@p{i}:example.org" for i in range(20)), name="Many")
    s.invite(room)
    wait_for(lambda: BOT in s.members(room))
    s.say(room, "one")
    g.hear("one")
    counted = len(s.called("joined_members"))
    for i in range(5):
        s.enter(room, f"@q{i}:example.org")
        s.say(room, f"after {i}")
        g.hear(f"after {i}")
    s.enter(room, "@invited:example.org", "invite", ANN)
    s.say(room, "and then")
    g.hear("and then")
    assert len(s.called("joined_members")) == counted
    s.enter(room, "@q0:example.org", "leave")
    s.say(room, "last")
    assert g.hear("last")["event"]["source"]["chat_type"] == "group"


def test_a_room_of_very_many_stops_nobody(rig):
    s, g = rig.sim, rig.gateway
    room = s.room(BEN, name="Very many")
    s.rooms[room]["crowd"] = 60000  # more than 8 MiB of members
    s.invite(room)
    wait_for(lambda: BOT in s.members(room))
    s.mention(room, "in the crowd")
    assert g.hear("in the crowd")["event"]["source"]["chat_type"] == "group"
    s.say(rig.dm, "in private")
    g.hear("in private")


def test_nobody_edits_what_somebody_else_said(rig):
    s = rig.sim
    room = group(rig)
    rig.gateway.sleep()
    first = s.mention(room, "pay nothing")
    wait_for(lambda: status(rig.server)["events"] == 1)
    s.edit(room, first, "pay everything", BEN)  # a homeserver sends it to everybody, and apps show nothing of it
    s.mention(room, "last")
    wait_for(lambda: status(rig.server)["events"] == 3)
    g = rig.dial()
    for text in ("pay nothing", "last"):
        g.hear(text)
    assert g.quiet()


def test_commands_questions_and_reactions(sim, make_bellhop, dial):
    r = Rig(sim, make_bellhop, dial, SYNC + ", reactions: true")
    g = r.gateway
    sim.say(r.dm, "long work")
    g.hear("long work")
    sim.say(r.dm, "!stop")
    assert g.next("interrupt_inbound")["session_key"] == f"agent:main:matrix:dm:{r.dm}"
    g.hear("/stop")
    sim.mention(r.dm, "!model gpt")
    assert g.hear("/model gpt")["event"]["message_type"] == "command"
    asked = g.act(op="prompt", chat_id=r.dm, content="Sure?", prompt_kind="approval", prompt_id="q1", timeout_s=600, metadata={},
                  options=[{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}])
    assert asked["success"] and "1" in sim.shown(r.dm)[-1] and "Yes" in sim.shown(r.dm)[-1]
    sim.say(r.dm, "2")
    answer = g.next("inbound")["event"]["prompt_response"]
    assert (answer["prompt_id"], answer["option_id"]) == ("q1", "no")
    sim.react(r.dm, asked["message_id"], "👍")
    assert g.hear("reaction:added:👍")["event"]["reply_to_message_id"] == asked["message_id"]
    mine = sim.say(r.dm, "mine")
    g.hear("mine")
    sim.react(r.dm, mine, "👍")
    assert g.quiet()


def test_a_number_answers_the_question_of_its_own_thread(rig):
    """What somebody writes elsewhere in the room approves nothing."""
    s, g = rig.sim, rig.gateway
    roots = [s.say(rig.dm, f"thread {n}") for n in range(2)]
    for n in range(2):
        g.hear(f"thread {n}")

    def say(text, root):
        s.say(rig.dm, text, **{"m.relates_to": {"rel_type": "m.thread", "event_id": root, "is_falling_back": True,
                                                "m.in_reply_to": {"event_id": root}}})

    assert g.act(op="prompt", chat_id=rig.dm, content="Delete it all?", prompt_kind="approval", prompt_id="q1", timeout_s=600,
                 metadata={"thread_id": roots[0]}, options=[{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}])["success"]
    for text, root in (("1", roots[1]), ("1", None)):
        say(text, root) if root else s.say(rig.dm, text)
        assert "prompt_response" not in g.hear(text)["event"]
    say("2", roots[0])
    assert g.next("inbound")["event"]["prompt_response"]["option_id"] == "no"


def test_links_by_code_and_invitations_by_policy(sim, make_bellhop, dial):
    """Linked people may invite the bot, and anybody may where an operator opened the room."""
    server = make_bellhop(config(sim))
    credential = server.add(platform="matrix", bot=BOT, open=False, instance="mine")
    g = dial(server, credential, hello=("matrix", BOT))
    wait_for(lambda: sim.called("sync"))
    anns, bens, opened = sim.room(), sim.room(BEN), sim.room(BEN)
    sim.invite(anns)
    sim.invite(bens, by=BEN)
    wait_for(lambda: status(server)["invitationsWaiting"] == 2)
    assert "not linked" in server.cli("why", "--chat", anns, check=False).stdout
    waits = server.cli("pairing", "list").stdout
    assert ANN in waits and BEN in waits, waits
    server.kill()  # an invitation waits on disk
    server.start()
    g = dial(server, credential, hello=("matrix", BOT))
    assert status(server)["invitationsWaiting"] == 2
    server.cli("link", "add", "--instance", "mine", "--platform", "matrix", "--user", ANN)
    wait_for(lambda: BOT in sim.members(anns))
    sim.say(anns, "hello")
    g.hear("hello")
    server.cli("route", "add", "--platform", "matrix", "--key", opened, "--tenant", "t", "--instance", "mine", "--open")
    sim.invite(opened, by=BEN)
    wait_for(lambda: BOT in sim.members(opened))
    sim.say(opened, "from a stranger", BEN)
    g.hear("from a stranger")
    assert status(server)["invitationsWaiting"] == 1 and BOT not in sim.members(bens)
    code = server.cli("link", "--instance", "mine").stdout.split()[0]
    sim.say(opened, f"!link {code}", BEN)
    wait_for(lambda: any("Linked" in x for x in sim.shown(opened)))
    wait_for(lambda: BOT in sim.members(bens))  # the invitation that waited
    carl = "@carl:example.org"
    sim.users[carl] = "Carl"
    carls = sim.room(by=carl)
    sim.invite(carls, by=carl, reason="/link WRONG123")
    wait_for(lambda: status(server)["invitationsWaiting"] == 1)
    code = server.cli("link", "--instance", "mine").stdout.split()[0]
    sim.invite(carls, by=carl, reason=f"!link {code}")  # who is not linked says it with the invitation
    wait_for(lambda: any("Linked" in x for x in sim.shown(carls)))
    sim.enter(anns, BOT, "leave", ANN)  # kicked
    wait_for(lambda: not send(g, anns, "x")["success"])


def test_what_was_said_between_invitation_and_join_is_heard(sync):
    s, g = sync.sim, sync.gateway
    room = s.room()
    s.say(room, "before")
    s.trouble("join", 500, "M_UNKNOWN", times=2)
    s.invite(room)
    s.say(room, "hello there")
    wait_for(lambda: BOT in s.members(room))
    g.hear("hello there")
    assert g.quiet()


def test_a_busy_room_loses_nothing_that_was_said_since_the_invitation(sync):
    s, g = sync.sim, sync.gateway
    room = s.room()
    for n in range(120):
        s.say(room, f"before {n}")
    s.trouble("join", 500, "M_UNKNOWN", times=2)
    s.invite(room)
    for n in range(130):
        s.say(room, f"after {n}")
    wait_for(lambda: BOT in s.members(room))
    s.say(room, "and now")
    for text in [*(f"after {n}" for n in range(130)), "and now"]:
        assert g.next("inbound")["event"]["text"] == text
    assert g.quiet()


def test_the_bot_follows_to_the_room_that_replaces_one(rig):
    s, g = rig.sim, rig.gateway
    room = group(rig)
    s.mention(room, "here")
    g.hear("here")
    new = s.upgrade(room, BEN)  # no server but that of the author is in it
    wait_for(lambda: BOT in s.members(new))
    s.mention(new, "there", user=BEN)
    assert g.hear("there")["event"]["source"]["chat_id"] == new


def test_an_encrypted_room_gets_one_sentence(rig):
    s, g = rig.sim, rig.gateway
    room = s.room(encrypted=True)
    s.invite(room)
    wait_for(lambda: s.sent(room))
    for _ in range(3):
        s._add(s.rooms[room], "m.room.encrypted", ANN, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x"})
    s.say(rig.dm, "x")
    g.hear("x")
    s.encrypt(rig.dm)
    wait_for(lambda: status(rig.server)["encryptedRooms"] == 2)
    wait_for(lambda: len(s.sent(rig.dm)) == 1)
    assert "encrypted" in send(g, rig.dm, "secret words")["error"]
    assert "2 rooms are encrypted" in rig.server.cli("status").stdout
    g = rig.again()
    s._add(s.rooms[room], "m.room.encrypted", ANN, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "y"})
    s.say(group(rig), "still here")
    g.hear("still here")
    notices = [e["content"] for r in (room, rig.dm) for e in s.sent(r)]
    assert len(notices) == 2 and all(c["msgtype"] == "m.notice" and "encrypted" in c["body"] for c in notices)


# ---- sync: places, gaps, troubles ----


def test_a_first_start_answers_nothing_old_and_a_restart_misses_nothing(sim, make_bellhop, dial):
    room = sim.room(BOT)
    for i in range(5):
        sim.say(room, f"old {i}")
    r = Rig(sim, make_bellhop, dial)
    sim.say(room, "new")
    r.gateway.hear("new")
    r.gateway.sleep()
    r.server.kill()
    other = sim.room()
    sim.invite(other)
    for i in range(230):  # more than a sync tells: the gap is asked for
        sim.say(room, f"missed {i}")
    r.server.start()
    g = r.dial()
    for i in range(230):
        g.hear(f"missed {i}")
    wait_for(lambda: BOT in sim.members(other))
    assert g.quiet() and status(r.server)["gapsFilled"] == 1
    assert not r.server.log().count("joined_members")


def test_a_homeserver_in_trouble_is_waited_for(sync):
    s, g = sync.sim, sync.gateway
    s.trouble("sync", 502, "M_UNKNOWN")
    s.trouble("sync", 429, "M_LIMIT_EXCEEDED", retry_after_ms=300)
    s.trouble("sync")
    s.trouble("joined_members", 500, "M_UNKNOWN")
    s.trouble("messages", 500, "M_UNKNOWN")
    s.say(sync.dm, "one")
    g.hear("one")
    s.say(sync.dm, "two")
    g.hear("two")
    s.trouble("sync", 400, "M_INVALID_PARAM", times=2)  # the place is lost: it starts at the newest events
    s.say(sync.dm, "three")
    wait_for(lambda: "starting at its newest" in sync.server.log() and not status(sync.server)["problem"])
    s.say(sync.dm, "four")
    if (text := g.next("inbound")["event"]["text"]) == "three":  # a request for events was under way already
        g.hear("four")
    assert text in ("three", "four")
    s.tokens.clear()
    wait_for(lambda: s.say(sync.dm, "x") and "does not accept the token" in (status(sync.server)["problem"] or ""))


def test_a_token_of_somebody_else_is_told(sim, make_bellhop):
    sim.tokens[TOKEN] = BEN
    server = make_bellhop(config(sim))
    wait_for(lambda: "belongs to @ben:other.example" in (status(server)["problem"] or ""))
    done = server.cli("doctor", check=False)
    assert "@ben:other.example" in done.stdout and TOKEN not in done.stdout, done.stdout


def test_doctor_asks_the_homeserver(rig):
    done = rig.server.cli("doctor", check=False)
    assert f"ok    platform   matrix {BOT}: its credentials are valid" in done.stdout, done.stdout
    rig.sim.tokens.clear()
    rig.sim.services.clear()
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 1 and ("registration" if rig.service else "log in again") in done.stdout, done.stdout


# ---- out ----


def test_edits_reactions_typing_and_lookups(rig):
    s, g = rig.sim, rig.gateway
    root = s.say(rig.dm, "x")
    g.hear("x")
    sent = send(g, rig.dm, "first")["message_id"]
    edit = lambda text: g.act(op="edit", chat_id=rig.dm, message_id=sent, content=text, metadata={})  # noqa: E731
    assert edit("second **bold**")["message_id"] == sent and s.shown(rig.dm) == ["second **bold**"]
    content = s.sent(rig.dm)[-1]["content"]
    assert content["body"] == "* second **bold**" and content["m.new_content"]["formatted_body"] == "<p>second <strong>bold</strong></p>"
    assert edit("third")["success"]
    wait_for(lambda: s.shown(rig.dm) == ["third"])
    assert not g.act(op="edit", chat_id=rig.dm, message_id=root, content="x", metadata={})["success"]
    react = lambda emoji, **m: g.act(op="react", chat_id=rig.dm, message_id=root, emoji=emoji, metadata={}, **m)  # noqa: E731
    shown = lambda: [e["content"]["m.relates_to"]["key"] for e in s.sent(rig.dm, "m.reaction") if e["content"]]  # noqa: E731
    assert react("👀")["success"] and react("👀")["success"] and shown() == ["👀"]
    assert react("👀", remove=True)["success"] and react("👀", remove=True)["success"] and shown() == []
    assert react("✅")["success"] and shown() == ["✅"]
    for _ in range(3):
        assert g.act(op="typing", chat_id=rig.dm, metadata={})["success"]
    assert g.act(op="typing", chat_id=rig.dm, content="", metadata={})["success"]
    assert s.typing == [(rig.dm, BOT, True), (rig.dm, BOT, False)]
    assert g.act(op="typing", chat_id=rig.dm, metadata={})["success"] and send(g, rig.dm, "done")["success"]
    wait_for(lambda: s.typing[2:] == [(rig.dm, BOT, True), (rig.dm, BOT, False)])  # an answer ends it
    assert g.act(op="get_chat_info", chat_id=rig.dm)["chat_info"] == {"name": rig.dm, "type": "dm"}
    room = group(rig)
    s.mention(room, "y")
    g.hear("y")
    assert g.act(op="get_chat_info", chat_id=room)["chat_info"] == {"name": "The room", "type": "group"}
    assert not g.act(op="thread_create", chat_id=room, thread_name="x", metadata={})["success"]
    assert not g.act(op="thread_rename", chat_id=room, message_id=root, thread_name="x", metadata={})["success"]


def test_an_edit_notifies_only_whom_the_message_did_not_mention(rig):
    s, g = rig.sim, rig.gateway
    s.say(rig.dm, "x")
    g.hear("x")
    sent = send(g, rig.dm, f"{ANN}, one moment")["message_id"]
    for text, all, new in ((f"{ANN}, still", [ANN], []), (f"{ANN}, ask {BEN}", [ANN, BEN], [BEN]), (f"{ANN}, ask {BEN}!", [ANN, BEN], []),
                           ("done", [], []), (f"{ANN}, done", [ANN], [])):
        assert g.act(op="edit", chat_id=rig.dm, message_id=sent, content=text, metadata={})["success"]
        wait_for(lambda: s.shown(rig.dm) == [text])
        content = s.sent(rig.dm)[-1]["content"]
        assert content["m.new_content"]["m.mentions"] == ({"user_ids": all} if all else {})
        assert content["m.mentions"] == ({"user_ids": new} if new else {})


def test_long_texts_are_split_and_no_event_is_too_large(sync):
    s, g = sync.sim, sync.gateway
    s.say(sync.dm, "x")
    g.hear("x")
    text = "wörd 😀 " * 3000
    assert send(g, sync.dm, text)["success"]
    parts = s.shown(sync.dm)
    assert len(parts) >= 3 and " ".join(parts).split() == text.split()
    hostile = '"<&>\\\x01*_' * 1000
    sent = send(g, sync.dm, hostile)
    assert sent["success"]
    assert g.act(op="edit", chat_id=sync.dm, message_id=sent["message_id"], content=hostile[:7000], metadata={})["success"]
    assert "16 Matrix messages" in send(g, sync.dm, "a " * 100000)["error"]
    assert not send(g, sync.dm, " \n ")["success"]
    s.trouble("send", 413, "M_TOO_LARGE")
    assert send(g, sync.dm, "*too* large")["success"] and "formatted_body" not in s.sent(sync.dm)[-1]["content"]


def test_files_go_both_ways(rig):
    s, g = rig.sim, rig.gateway
    root = s.say(rig.dm, "a.png", msgtype="m.image", url="mxc://" + s.file(PICTURE), info={"mimetype": "image/png", "size": 16})
    event = g.hear("")["event"]
    assert event["message_type"] == "photo" and len(event["media_urls"]) == 1
    url = event["media_urls"][0]
    assert test_media.ask(rig.server, "GET", url[url.index("/relay/media"):], rig.credential.token()).content == PICTURE
    s.say(rig.dm, "look at this", msgtype="m.file", filename="a.txt", url="mxc://" + s.file(b"text", "text/plain"),
          info={"mimetype": "text/plain"})
    assert g.hear("look at this")["event"]["message_type"] == "document"

    def media(data, name, type, caption="", **metadata):
        id = test_media.kept(rig.server, rig.credential, data, type=type, name=name)
        return g.act(op="send_media", chat_id=rig.dm, media_kind="image", source_url=f"/relay/media/{id}", filename=name, content=caption,
                     metadata=metadata)

    done = media(PICTURE, "out.png", "image/png", "see *here*", thread_id=root)
    content = s.sent(rig.dm)[-1]["content"]
    assert done["message_id"] == s.sent(rig.dm)[-1]["event_id"]
    assert (content["msgtype"], content["filename"], content["body"]) == ("m.image", "out.png", "see *here*")
    assert s.media[content["url"][6:]]["data"] == PICTURE and content["info"] == {"mimetype": "image/png", "size": 16}
    assert content["m.relates_to"]["event_id"] == root and content["formatted_body"] == "<p>see <em>here</em></p>"
    s.trouble("upload", 502, "M_UNKNOWN")
    s.trouble("send", taken=True)  # taken, and cut
    assert media(b"%PDF-1.4", "r.pdf", "application/pdf")["success"]
    assert s.sent(rig.dm)[-1]["content"]["body"] == "r.pdf" and len(s.sent(rig.dm)) == 2
    s.trouble("upload", 413, "M_TOO_LARGE")
    assert "larger than" in media(PICTURE + b"1", "big.png", "image/png")["error"]


def test_an_old_homeserver_has_media_without_authentication(sim, make_bellhop, dial):
    sim.versions = sim.versions[:-2]
    r = Rig(sim, make_bellhop, dial)
    sim.say(r.dm, "a.png", msgtype="m.image", url="mxc://" + sim.file(PICTURE), info={"mimetype": "image/png"})
    assert len(r.gateway.hear("")["event"]["media_urls"]) == 1


def test_refusals_are_told_in_words_and_limits_are_waited_out(sync):
    s, g, rig = sync.sim, sync.gateway, sync
    s.say(rig.dm, "x")
    g.hear("x")
    for status_, code, words in ((403, "M_FORBIDDEN", "invite it again"), (400, "M_UNKNOWN", "M_UNKNOWN"), (404, "M_NOT_FOUND", "no such room")):
        s.trouble("send", status_, code)
        answer = send(g, rig.dm, f"x {code}")
        assert not answer["success"] and words in answer["error"], answer
    s.trouble("send", 429, "M_LIMIT_EXCEEDED", retry_after_ms=1500)
    began = time.monotonic()
    assert send(g, rig.dm, "patience")["success"] and time.monotonic() - began >= 1.5
    s.trouble("send", 429, "M_LIMIT_EXCEEDED", headers={"Retry-After": "1"})
    assert send(g, rig.dm, "more")["success"]
    assert s.shown(rig.dm) == ["patience", "more"] and status(rig.server)["limited"] == 2


def test_the_limits_of_a_homeserver_are_kept(sim, make_bellhop, dial):
    """The simulator refuses what Synapse refuses by default, scaled up: 12 at once at most, then 10 a second."""
    r = Rig(sim, make_bellhop, dial)
    sim.say(r.dm, "x")
    r.gateway.hear("x")
    began = time.monotonic()
    for i in range(30):
        assert send(r.gateway, r.dm, f"{i}")["success"]
    assert time.monotonic() - began > 1.5 and sim.limited == 0
    assert sim.shown(r.dm) == [f"{i}" for i in range(30)]


def test_an_answer_streams_by_edits(sync):
    s, g, rig = sync.sim, sync.gateway, sync
    s.say(rig.dm, "x")
    g.hear("x")
    sent = send(g, rig.dm, "Let ▉")["message_id"]
    for text in ("Let me ▉", "Let me **think** ▉", "Let me **think**. Yes."):
        assert g.act(op="edit", chat_id=rig.dm, message_id=sent, content=text, metadata={})["success"]
    wait_for(lambda: s.shown(rig.dm) == ["Let me **think**. Yes."])
    assert s.limited == 0


# ---- exactly once ----


def test_a_lost_answer_is_asked_for_again_and_nothing_is_sent_twice(rig):
    s, g = rig.sim, rig.gateway
    s.say(rig.dm, "x")
    g.hear("x")
    s.trouble("send", taken=True)  # taken, and cut
    s.trouble("send", 504, "M_UNKNOWN")
    answer = send(g, rig.dm, "arrived")
    assert answer["success"] and answer["message_id"] == s.sent(rig.dm)[0]["event_id"] and s.shown(rig.dm) == ["arrived"]
    s.trouble("send")  # not taken
    assert send(g, rig.dm, "again")["success"] and s.shown(rig.dm) == ["arrived", "again"]


@pytest.mark.parametrize("op,mode", [("send", SYNC), ("long", SYNC), ("edit", SERVICE)], ids=["send", "long", "edit"])
def test_a_crash_between_request_and_answer_sends_nothing_twice(sim, make_bellhop, dial, op, mode):
    rig = Rig(sim, make_bellhop, dial, mode)
    s, g = rig.sim, rig.gateway
    s.say(rig.dm, "x")
    g.hear("x")
    first = send(g, rig.dm, "first")["message_id"] if op == "edit" else None
    n = len(s.sent(rig.dm))
    s.answering.clear()
    text = " ".join(str(i) for i in range(6000)) if op == "long" else "once"
    action = {"op": "send", "chat_id": rig.dm, "content": text, "metadata": {}}
    if op == "edit":
        action.update(op="edit", message_id=first)
    g.send({"type": "outbound", "requestId": "r1", "action": action})
    wait_for(lambda: len(s.sent(rig.dm)) == n + 1)
    rig.server.kill()
    s.answering.set()
    rig.server.start()
    rig.register()
    rig.dial()
    wait_for(lambda: " ".join(s.shown(rig.dm)) == text and status(rig.server)["requestsWaiting"] == 0)
    assert len(s.sent(rig.dm)) == n + (4 if op == "long" else 1)


# ---- the application service ----


@pytest.fixture
def service(sim, make_bellhop, dial):
    return Rig(sim, make_bellhop, dial, SERVICE)


def push(rig, txn, events, token=HS, path="/_matrix/app/v1/transactions/", query="", method="PUT"):
    import http.client
    c = http.client.HTTPConnection("127.0.0.1", rig.server.port, timeout=30)
    body = events if isinstance(events, (str, bytes)) else json.dumps({"events": events})
    c.request(method, f"{path}{txn}{query}", body, {"Authorization": f"Bearer {token}"} if token else {})
    answer = c.getresponse()
    text = answer.read()
    c.close()
    return answer.status, json.loads(text)


def idle(rig):
    """What the simulator had to push is taken: a transaction that comes now is not refused."""
    wait_for(lambda: not next(iter(rig.sim.services.values()))["busy"] and status(rig.server)["state"] == "live")


def event(rig, text, id, **more):
    return {"type": "m.room.message", "room_id": rig.dm, "sender": ANN, "event_id": id, "origin_server_ts": 1,
            "content": {"msgtype": "m.text", "body": text}, **more}


def test_a_transaction_is_taken_once(service):
    g = service.gateway
    idle(service)
    assert push(service, "x1", [event(service, "one", "$one"), event(service, "two", "$two")]) == (200, {})
    g.hear("one")
    g.hear("two")
    assert push(service, "x1", [event(service, "one", "$one"), event(service, "two", "$two")]) == (200, {})
    assert push(service, "x2", [event(service, "two", "$two"), event(service, "three", "$three")]) == (200, {})
    g.hear("three")
    again = service.again()
    idle(service)
    assert push(service, "x2", [event(service, "other", "$other")]) == (200, {})  # known from the disk
    assert again.quiet() and status(service.server)["transactionsRepeated"] >= 1
    assert push(service, "x3", [event(service, "old way", "$old")], token=None, query=f"?access_token={HS}")[0] == 200
    again.hear("old way")
    assert push(service, "x4", [event(service, "by path", "$path")], path=f"/webhooks/matrix/{BOT}/_matrix/app/v1/transactions/")[0] == 200
    again.hear("by path")


def test_only_the_homeserver_is_heard(service):
    one = [event(service, "forged", "$forged")]
    idle(service)
    for how in ({"token": "other"}, {"token": None}, {"token": AS}, {"token": HS, "query": "?access_token=other"},
                {"token": None, "query": "?access_token=other"}):
        assert push(service, "y", one, **how)[0] == 401, how
    assert push(service, "y", one, method="POST") == (405, {"errcode": "M_UNRECOGNIZED", "error": "This path takes another method."})
    assert push(service, "", one, path="/_matrix/app/v1/nothing", method="GET")[0] == 404
    assert push(service, "", one)[0] == 400 and push(service, "y" * 300, one)[0] == 400
    for body in ("{", "[]", "{}", '{"events":{}}', '{"events":7}'):
        assert push(service, "z", body)[0] == 400, body
    hostile = [7, None, [], {}, {"room_id": "x"}, {"room_id": service.dm}, event(service, "x", 7), event(service, "x", "$" + "x" * 300),
               event(service, "x", "$a", sender="nobody"), event(service, "x", "$b", content=7), event(service, "x", "$c", state_key={}),
               {**event(service, "x", "$d"), "type": "m.room.member", "state_key": "@x:y", "content": {"membership": 9}},
               {**event(service, "x", "$e"), "type": "m.room.redaction"}, event(service, "x", "$f", content={"msgtype": "m.text", "body": "\u0000"})]
    assert push(service, "h", hostile)[0] == 200
    service.gateway.next("inbound")  # the last one
    assert push(service, "ping", "{}", path="/_matrix/app/v1/", method="POST") == (200, {})
    assert push(service, "%23x:example.org", "", path="/_matrix/app/v1/rooms/", method="GET")[0] == 404
    service.sim.say(service.dm, "still here")
    service.gateway.hear("still here")


def test_a_transaction_is_answered_when_its_events_are_safe(service):
    s = service.sim
    service.gateway.sleep()
    for i in range(3):
        s.say(service.dm, f"kept {i}")
        if i % 2:
            idle(service)
        service.server.kill()
        service.server.start()
        service.register()
    g = service.dial()
    for i in range(3):
        g.hear(f"kept {i}")
    assert g.quiet()


def test_nobody_deletes_from_another_room(service):
    """Who may delete in a room of their own names a message of another room: a homeserver of somebody else may let that pass."""
    room = group(service)
    service.sim.say(room, "hi", user=BEN)
    service.gateway.hear("hi")
    service.gateway.sleep()
    idle(service)
    assert push(service, "d1", [event(service, "to be kept", "$kept")])[0] == 200
    theirs = {**event(service, "", "$theirs", room_id=room, sender=BEN), "type": "m.room.redaction", "content": {"redacts": "$kept"}}
    assert push(service, "d2", [theirs])[0] == 200
    assert push(service, "d3", [event(service, "last", "$last")])[0] == 200
    g = service.dial()
    g.hear("to be kept")
    g.hear("last")


def test_what_an_agent_had_does_not_come_again_however_late_it_is_told(sim, make_bellhop, dial):
    """A full mailbox holds up a transaction for days.  After a restart the homeserver tells all of it again."""
    r = Rig(sim, lambda c: make_bellhop(c + "delivery: {{max_mailbox_bytes: 64KiB}}\n"), dial, SERVICE)
    room = group(r, "Sales")
    sales = r.server.add(platform="matrix", open=False, instance="sales")
    r.server.cli("route", "add", "--platform", "matrix", "--key", room, "--tenant", "t", "--instance", "sales", "--open")
    idle(r)
    told = [event(r, f"{i} " + "x" * 20000, f"$big{i}", room_id=room, sender=BEN) for i in range(4)] + [event(r, "once", "$once")]

    def tell():
        try:
            push(r, "held", told)
        except OSError:  # no answer: it is held
            pass

    threading.Thread(target=tell, daemon=True).start()
    r.gateway.hear("once")
    wait_for(lambda: "a mailbox is full" in (status(r.server)["problem"] or ""))
    r.server.stop()
    days_pass(r.server, 3)
    r.server.start()
    r.register()
    again = r.dial()
    idle(r)
    threading.Thread(target=tell, daemon=True).start()
    wait_for(lambda: "a mailbox is full" in (status(r.server)["problem"] or ""))
    assert again.quiet()
    g = dial(r.server, sales, hello=("matrix", BOT))
    for e in told[:4]:
        g.hear(e["content"]["body"])


def test_each_instance_has_a_user_of_its_own(service, dial):
    s, g, own = service.sim, service.gateway, "@desk_t.sales:example.org"
    sales = service.server.add(platform="matrix", bot=BOT, open=False, instance="sales")
    theirs = dial(service.server, sales, hello=("matrix", BOT))
    service.server.cli("link", "add", "--instance", "sales", "--platform", "matrix", "--user", ANN)
    room = s.room(BEN)
    with pytest.raises(Refusal):
        s.invite(room, "@desk_t.nobody:example.org")
    s.invite(room, own)
    wait_for(lambda: own in s.members(room) and s.users[own] == "sales")
    s.mention(room, "an offer, please", own)
    theirs.hear("an offer, please")
    assert send(theirs, room, "here it is")["success"]
    assert s.sent(room)[-1]["sender"] == own
    dm = s.room()
    s.invite(dm, own)
    wait_for(lambda: own in s.members(dm))
    s.say(dm, "and privately")
    assert theirs.hear("and privately")["event"]["source"]["chat_type"] == "dm"
    assert theirs.act(op="typing", chat_id=dm, metadata={})["success"] and s.typing[-1] == (dm, own, True)
    wait_for(lambda: any(r[:2] == (dm, own) for r in s.receipts))
    s.say(dm, "not yours", BEN)  # nobody linked
    assert g.quiet() and theirs.quiet()


def test_the_registration_file_is_what_the_homeserver_needs(service):
    import yaml
    assert yaml.safe_load(service.server.cli("matrix", "registration").stdout) == REGISTRATION
    other = yaml.safe_load(service.server.cli("matrix", "registration", "--bot", BOT, "--url", "http://127.0.0.1:7077").stdout)
    assert other["url"] == "http://127.0.0.1:7077"
    assert "no such matrix bot" in service.server.cli("matrix", "registration", "--bot", "@x:y", check=False).stderr


def test_the_registration_needs_an_address_and_a_service(sim, make_bellhop):
    server = make_bellhop(config(sim))
    done = server.cli("matrix", "registration", check=False)
    assert done.returncode == 1 and "appservice" in done.stderr and done.stdout == ""
    for more, words in ((f', token: x, appservice: {{{{as_token: {AS}}}}}', "not both"), (', appservice: {{as_token: x}}', "hs_token"),
                        (', appservice: {{as_token: x, hs_token: x}}', "differ"), ("", "token"),
                        (', appservice: {{as_token: x, hs_token: y, namespace: "@("}}', "regular expression")):
        server.config.write_text(config(sim, more).format(state=server.state))
        done = server.cli("matrix", "registration", check=False)
        assert done.returncode == 1 and words in done.stderr, (more, done.stderr)


# ---- the simulator, judged by somebody else's client ----


def test_an_independent_client_has_nothing_to_complain_about(sim, make_bellhop, dial, caplog):
    """matrix-nio checks every answer against its own schemas, and talks with the bot through the simulator."""
    import asyncio
    import io
    import nio
    r = Rig(sim, make_bellhop, dial)
    nils = "@nils:example.org"
    sim.users[nils], sim.passwords[nils] = "Nils", "a password"
    caplog.set_level("WARNING")

    async def good(call):
        answer = await call
        assert not isinstance(answer, nio.ErrorResponse), answer
        return answer

    async def until(client, text, by=BOT):
        for _ in range(100):
            await good(client.sync(timeout=3000, sync_filter={"room": {"timeline": {"limit": 20}}}))
            if any(e.sender == by and text in e.body for e in heard):
                return
        raise AssertionError(f"no {text}: {heard}")

    heard = []

    async def talk():
        client = nio.AsyncClient(sim.url, nils, config=nio.AsyncClientConfig(encryption_enabled=False))
        client.add_event_callback(lambda room, e: heard.append(e), nio.RoomMessageText)
        assert isinstance(await client.login("wrong"), nio.LoginError)
        await good(client.login("a password"))
        assert (await good(client.whoami())).user_id == nils
        await good(client.sync(timeout=0))
        room = (await good(client.room_create(name="Nils and the desk", invite=[BOT], is_direct=True))).room_id
        for _ in range(100):
            await good(client.sync(timeout=500))
            if BOT in sim.members(room):
                break
        sent = await good(client.room_send(room, "m.room.message", {"msgtype": "m.text", "body": "hello from nio"}))
        event = (await asyncio.to_thread(r.gateway.hear, "hello from nio"))["event"]
        assert (event["message_id"], event["source"]["user_name"], event["source"]["chat_type"]) == (sent.event_id, "Nils", "dm")
        assert (await asyncio.to_thread(send, r.gateway, room, "**hi** nio"))["success"]
        await until(client, "**hi** nio")
        shown = next(e for e in heard if e.sender == BOT)
        assert shown.formatted_body == "<p><strong>hi</strong> nio</p>"
        up, _ = await client.upload(io.BytesIO(PICTURE), "image/png", "n.png", filesize=len(PICTURE))
        assert isinstance(up, nio.UploadResponse), up
        assert (await good(client.download(up.content_uri))).body == PICTURE
        await good(client.room_send(room, "m.room.message", {"msgtype": "m.image", "body": "n.png", "url": up.content_uri,
                                                             "info": {"mimetype": "image/png", "size": len(PICTURE)}}))
        assert (await asyncio.to_thread(r.gateway.hear, ""))["event"]["message_type"] == "photo"
        await good(client.room_typing(room, True, 5000))
        await good(client.update_receipt_marker(room, shown.event_id))
        await good(client.room_redact(room, sent.event_id))
        assert {m.user_id for m in (await good(client.joined_members(room))).members} == {nils, BOT}
        assert room in (await good(client.joined_rooms())).rooms
        back = await good(client.room_messages(room, start=client.next_batch, direction=nio.MessageDirection.back, limit=50))
        assert shown.event_id in [e.event_id for e in back.chunk]
        front = await good(client.room_messages(room, start="s0", direction=nio.MessageDirection.front, limit=3))
        assert len(front.chunk) == 3 and front.end
        assert any(e["type"] == "m.room.name" for e in (await good(client.room_get_state(room))).events)
        assert (await good(client.room_get_state_event(room, "m.room.name"))).content["name"] == "Nils and the desk"
        await good(client.set_displayname("Nils N."))
        assert (await good(client.get_displayname())).displayname == "Nils N."
        assert client.rooms[room].member_count == 2 and not client.rooms[room].encrypted
        await good(client.room_leave(room))
        assert isinstance(await client.room_send(room, "m.room.message", {"msgtype": "m.text", "body": "x"}), nio.RoomSendError)
        await client.close()

    asyncio.run(talk())
    assert [x.getMessage() for x in caplog.records if x.name.startswith("nio") and "rror" in x.getMessage()] == []


# ---- connected but deaf ----


@pytest.mark.skipif(not os.environ.get("BELLHOP_LONG"), reason="takes 45 s: ./dev crash runs it")
def test_a_deaf_bot_is_noticed_within_45_seconds(rig):
    s = rig.sim
    if rig.service:  # the homeserver reaches bellhop no more
        wait_for(lambda: s.called("ping"))
        there = next(iter(s.services.values()))
        at, there["at"] = there["at"], "http://127.0.0.1:9"
    s.deaf = True
    s.say(rig.dm, "x")
    wait_for(lambda: status(rig.server)["deaf"] or status(rig.server)["problem"], 46)
    s.deaf = False
    if rig.service:
        there["at"] = at
    rig.gateway.hear("x", 60)


# ---- much ----


@pytest.mark.parametrize("mode", ["sync", "service"])
def test_many_messages_each_once_and_in_order_whatever_fails(sim, make_bellhop, dial, mode):
    """BELLHOP_MATRIX_MESSAGES of them in and as many out, with gaps, lost answers, limits and kills: transaction ids make each of them one."""
    total = int(os.environ.get("BELLHOP_MATRIX_MESSAGES", 60))
    sim.per_second = 0
    r, dice = Rig(sim, make_bellhop, dial, SYNC.replace("600", "0") if mode == "sync" else SERVICE), random.Random(7)
    chats = []
    for _ in range(min(50, max(8, total // 20))):
        chats.append(sim.room())
        sim.invite(chats[-1])
    wait_for(lambda: all(BOT in sim.members(c) for c in chats), 60)
    many = Many(r, chats, sim.shown, lambda: status(r.server)["requestsWaiting"], r.register)
    for n in range(total):
        chat = dice.choice(chats)
        sim.say(chat, many.text(chat))
        if dice.random() < 0.05:
            sim.trouble("send", taken=True)
        if dice.random() < 0.03:
            sim.trouble("send", 429, "M_LIMIT_EXCEEDED", retry_after_ms=200)
        if dice.random() < 0.03 and not any(t["name"] == "sync" for t in sim.troubles):
            sim.trouble("sync", 502, "M_UNKNOWN")
        if n in (total // 3, 2 * total // 3):
            many.crash()
        many.breathe()
    many.check(once=True)

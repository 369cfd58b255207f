"""Signal: the real program with a stand-in for signal-cli, which is written from its manual pages and source."""
import asyncio
import base64
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from signal import SIGCONT, SIGSTOP

import pytest

import test_media
from conftest import PROGRAM, wait_for
from many_rig import Many

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from signal_cli import SignalSim  # noqa: E402

BOT, SELF, ANN, BEN, CLEO, GROUP = (SignalSim.NUMBER, SignalSim.UUID, SignalSim.ANN, SignalSim.BEN, SignalSim.CLEO, SignalSim.GROUP)
ROOM = "group:" + GROUP

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
{head}
platforms:
  - {{{{platform: signal, bot: "{bot}", {where}{more}}}}}
"""


@pytest.fixture
def sim(tmp_path):
    s = SignalSim(tmp_path / "signal-cli")
    yield s
    assert s.violations == []


def config(sim, where=None, more="", head=""):
    return CONFIG.format(bot=BOT, where=where or f"command: {json.dumps(sim.command)}", more=more, head=head)


def status(server):
    return next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "signal")


class Rig:
    def __init__(self, sim, make_bellhop, dial, **more):
        self.sim = sim
        self.server = make_bellhop(config(sim, **more))
        self.credential = self.server.add(platform="signal", bot=BOT)
        self.dial = lambda **more: dial(self.server, self.credential, hello=("signal", BOT), **more)
        self.gateway = self.dial()

    def live(self):
        wait_for(lambda: status(self.server)["state"] == "live")


@pytest.fixture
def make_rig(sim, make_bellhop, dial):
    return lambda **more: Rig(sim, make_bellhop, dial, **more)


@pytest.fixture
def rig(make_rig):
    return make_rig()


def send(gateway, chat, content, **more):
    return gateway.act(op="send", chat_id=chat, content=content, reply_to=more.pop("reply_to", None), metadata=more)


# ---- in and out ----


def test_a_person_writes_and_sees_the_answer(rig):
    s, g = rig.sim, rig.gateway
    said = s.say(ANN, "hello wörld 😀")
    event = g.hear("hello wörld 😀")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["user_id"]) == ("signal", ANN, "dm", ANN)
    assert (source["user_id_alt"], source["user_name"], event["message_id"]) == ("+15551230001", "Ann", said)
    result = send(g, ANN, "😀 **hi** [Ann](https://a.example)", reply_to=said)
    assert result["success"], result
    answer, = s.sent
    assert result["message_id"] == str(answer["timestamp"]) and answer["recipient"] == [ANN]
    assert answer["message"] == "😀 hi Ann (https://a.example)" and answer["textStyles"] == ["3:2:BOLD"]
    assert (answer["quoteTimestamp"], answer["quoteAuthor"]) == (int(said.split(":")[0]), ANN)
    assert answer["quoteMessage"] == "hello wörld 😀"
    d = g.descriptor
    assert (d["platform"], d["max_message_length"], d["len_unit"], d["supports_edit"]) == ("signal", 8000, "utf16", True)
    assert set(d["supported_ops"]) == {"send", "edit", "typing", "get_chat_info", "send_media", "prompt", "react"}
    assert g.act(op="get_chat_info", chat_id=ANN)["chat_info"] == {"name": "Ann", "type": "dm"}
    wait_for(lambda: [r["targetTimestamp"] for r in s.calls("sendReceipt")] == [[int(said.split(":")[0])]])
    assert not g.act(op="thread_create", chat_id=ANN, thread_name="x", metadata={})["success"]


def test_groups_mentions_and_quotes(rig):
    s, g = rig.sim, rig.gateway
    said = s.say(ANN, "\ufffc and \ufffc look", GROUP, mentions=[s.mention(SELF, 0), s.mention(BEN, 6)])
    event = g.hear("and @+15551230002 look")["event"]
    source = event["source"]
    assert (source["chat_id"], source["chat_type"], source["chat_name"], source["user_id"]) == (ROOM, "group", "Kitchen", ANN)
    result = send(g, ROOM, "hi all", reply_to=said)
    assert result["success"] and s.sent[-1]["groupId"] == GROUP and "recipient" not in s.sent[-1]
    s.say(BEN, "why?", GROUP, quote=s.quote(SELF, result["message_id"], "hi all"))
    event = g.hear("why?")["event"]
    assert event["reply_to_message_id"] == result["message_id"] and event["reply_to"]["is_own"] is True
    s.say(BEN, "as Ann said", GROUP, quote=s.quote(ANN, said.split(":")[0], "look"))
    event = g.hear("as Ann said")["event"]
    assert event["reply_to_message_id"] == said and event["reply_to"]["text"] == "look"
    assert g.act(op="get_chat_info", chat_id=ROOM)["chat_info"] == {"name": "Kitchen", "type": "group"}
    for chat in ("neither", "group:", "group:no such", "15551230001", ANN.upper()):
        assert not send(g, chat, "x")["success"]
    refused = send(g, "group:AAAA", "x")
    assert not refused["success"]


def test_edits_reactions_typing_and_deletes(make_rig):
    r = make_rig(more=", reactions: true")
    s, g = r.sim, r.gateway
    said = s.say(ANN, "frist")
    g.hear("frist")
    s.edit(ANN, said, "first")
    event = g.next("inbound")["event"]
    assert event["message_id"] == said and "first" in event["text"]
    sent = send(g, ANN, "ansewr")["message_id"]
    assert g.act(op="edit", chat_id=ANN, message_id=sent, content="*answer*", metadata={})["success"]
    edit = s.sent[-1]
    assert (edit["editTimestamp"], edit["message"], edit["textStyles"]) == (int(sent), "answer", ["0:6:ITALIC"])
    assert not g.act(op="edit", chat_id=ANN, message_id=said, content="not mine", metadata={})["success"]
    assert not g.act(op="edit", chat_id=ANN, message_id="1000000000000", content="a day old", metadata={})["success"]
    assert g.act(op="react", chat_id=ANN, message_id=said, emoji="👍", metadata={})["success"]
    assert g.act(op="react", chat_id=ANN, message_id=said, emoji="👍", remove=True, metadata={})["success"]
    assert [(x["emoji"], x["targetAuthor"], x["targetTimestamp"], x["remove"]) for x in s.calls("sendReaction")] == [
        ("👍", ANN, int(said.split(":")[0]), False), ("👍", ANN, int(said.split(":")[0]), True)]
    assert not g.act(op="react", chat_id=ANN, message_id="x", emoji="👍", metadata={})["success"]
    s.react(ANN, SELF, sent, "❤️")
    event = g.hear("reaction:added:❤️")["event"]
    assert event["reply_to_message_id"] == sent
    s.react(ANN, BEN, 1, "❤️")  # to somebody else's message
    for _ in range(3):
        assert g.act(op="typing", chat_id=ANN, metadata={})["success"]
    assert g.act(op="typing", chat_id=ANN, content="", metadata={})["success"]
    wait_for(lambda: [x.get("stop", False) for x in s.calls("sendTyping")] == [False, True])
    unsend = lambda id: s.deliver(ANN, dataMessage=s.data(s.now(), None, remoteDelete={"timestamp": int(id.split(":")[0])}))  # noqa: E731
    unsend(said)
    assert g.quiet()  # an agent that has it gets no empty message
    g.sleep()
    entries = lambda: r.server.instance(r.credential.id)["entries"]  # noqa: E731
    waits = s.say(ANN, "a mistake")
    s.say(ANN, "kept")
    wait_for(lambda: entries() == 2)
    unsend(waits)
    wait_for(lambda: entries() == 1)
    r.dial().hear("kept")


def test_ten_edits_are_shared_out(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "go")
    g.hear("go")
    sent = send(g, ANN, "0 ▉")["message_id"]
    for i in range(30):  # an answer that streams, and then its end
        g.act(op="edit", chat_id=ANN, message_id=sent, content=f"{i} ▉", metadata={})
        time.sleep(0.01)
    result = g.act(op="edit", chat_id=ANN, message_id=sent, content="the end", metadata={})
    assert result["success"], result
    wait_for(lambda: s.texts(ANN)[-1] == "the end")
    edits = [x for x in s.sent if x.get("editTimestamp") == int(sent)]
    assert len(edits) <= 10


def test_what_the_account_writes_elsewhere_is_not_answered(rig):
    s, g = rig.sim, rig.gateway
    at = s.now()
    s.deliver(SELF, syncMessage={"sentMessage": {"destination": "+15551230001", "destinationNumber": "+15551230001", "destinationUuid": ANN,
                                                 **s.data(at, "from the phone")}})
    s.deliver(SELF, dataMessage=s.data(s.now(), "an answer that came back"))
    s.deliver(SELF, syncMessage={"readMessages": [{"sender": ANN, "timestamp": at}]})
    s.deliver(ANN, receiptMessage={"when": at, "isDelivery": True, "isRead": False, "isViewed": False, "timestamps": [at]})
    s.deliver(ANN, typingMessage={"action": "STARTED", "timestamp": at})
    s.deliver(ANN, callMessage={"offerMessage": {"id": 1, "type": "AUDIO_CALL", "opaque": ""}})
    s.deliver(ANN, _exception={"message": "x", "type": "ProtocolNoSessionException"})
    s.deliver(ANN, dataMessage=s.data(s.now(), None, isExpirationUpdate=True))
    s.deliver(ANN, dataMessage=s.data(s.now(), "secret", viewOnce=True))
    s.raw({"account": "+15559999999", "envelope": {"sourceUuid": ANN, "timestamp": at, "dataMessage": s.data(at, "not for us")}})
    s.raw({"account": BOT, "envelope": {"sourceUuid": "nonsense", "timestamp": at, "dataMessage": s.data(at, "x")}})
    s.say(ANN, "last")
    g.hear("last")
    now = status(rig.server)
    assert (now["ownDevices"], now["notDecrypted"], now["malformed"]) == (2, 1, 1) and now["events"] == 1


def test_the_owner_writes_in_note_to_self_and_in_groups(rig):
    s, g = rig.sim, rig.gateway

    def elsewhere(text, group=None, at=None):
        at = at or s.now()
        to = {} if group else {"destination": BOT, "destinationNumber": BOT, "destinationUuid": SELF}
        s.deliver(SELF, _at=at, syncMessage={"sentMessage": {**to, **s.data(at, text, group)}})
        return str(at)

    said = elsewhere("note to self")
    event = g.hear("note to self")["event"]
    assert (event["source"]["chat_id"], event["source"]["user_id"], event["source"]["chat_type"]) == (SELF, SELF, "dm")
    assert event["message_id"] == said
    answer = send(g, SELF, "noted", reply_to=said)
    assert answer["success"] and s.sent[-1]["notifySelf"] is True and s.sent[-1]["quoteAuthor"] == BOT
    elsewhere("noted", at=int(answer["message_id"]))  # should signal-cli tell of it, it is not answered
    elsewhere("to all of you", GROUP)
    assert g.hear("to all of you")["event"]["source"]["chat_id"] == f"group:{GROUP}"
    assert send(g, f"group:{GROUP}", "yes")["success"] and "notifySelf" not in s.sent[-1]
    assert g.quiet() and s.calls("sendReceipt") == []


def test_other_kinds_become_notes(rig):
    s, g = rig.sim, rig.gateway
    s.say(CLEO, None, sticker={"packId": "ab", "stickerId": 3})
    source = g.hear("[sticker]")["event"]["source"]
    assert source["user_id"] == CLEO and source.get("user_id_alt") is None
    s.say(ANN, None, contacts=[{"name": {"display": "Dan"}, "phone": [{"value": "+15551112222", "type": "MOBILE"}]}])
    g.hear("[contact: Dan, +15551112222]")


def test_files_both_ways(rig):
    s, g = rig.sim, rig.gateway
    fetch = lambda url: test_media.ask(rig.server, "GET", url[url.index("/relay/media"):], rig.credential.token()).content  # noqa: E731
    picture = test_media.PNG
    voice = os.urandom(90_000)  # the answer of signal-cli is a line of 120 kB
    s.say(ANN, "look", attachments=[s.file("cat.png", "image/png", picture)])
    event = g.hear("look")["event"]
    assert event["message_type"] == "photo" and fetch(event["media_urls"][0]) == picture
    s.say(ANN, None, attachments=[s.file(None, "audio/aac", voice), s.file("a.txt", "text/plain", b"text")])
    event = g.hear("")["event"]
    assert event["message_type"] == "voice" and [fetch(u) for u in event["media_urls"]] == [voice, b"text"]
    s.say(ANN, "gone", attachments=[{"contentType": "image/png", "filename": "x.png", "id": "nowhere.png", "size": 3}])
    event = g.hear("gone\n[a file is missing: signal-cli does not have the file]")["event"]
    assert event["media_urls"] == []
    s.say(ANN, "huge", attachments=[{"contentType": "video/mp4", "filename": "film.mp4", "id": "film.mp4", "size": 1 << 30}])
    assert g.next("inbound")["event"]["text"] == "huge\n[a file that could not be fetched: film.mp4]"

    id = test_media.kept(rig.server, rig.credential)
    for caption in ("**my** cat", ""):
        result = g.act(op="send_media", chat_id=ANN, media_kind="image", source_url=f"/relay/media/{id}", filename="my, cat.png",
                       content=caption, metadata={})
        assert result["success"], result
        sent = s.sent[-1]
        head, data = sent["attachments"][0].split(";base64,")
        assert head.startswith("data:image/png;filename=") and base64.b64decode(data) == picture
        assert sent.get("message", "") == caption.replace("*", "")


def test_questions_have_numbers(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hello")
    g.hear("hello")
    result = g.act(op="prompt", chat_id=ANN, content="Which?", prompt_id="p", prompt_kind="choice",
                   options=[{"id": "a", "label": "Left"}, {"id": "b", "label": "Right"}], metadata={})
    assert result["success"], result
    assert "1. Left" in s.sent[-1]["message"] and "2. Right" in s.sent[-1]["message"]
    s.say(ANN, "2")
    assert g.next("inbound")["event"]["prompt_response"]["option_id"] == "b"


def test_a_long_answer_is_split_in_utf16_units(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "tell")
    g.hear("tell")
    result = send(g, ANN, "😀" * 5000 + " **end**")
    assert result["success"], result
    first, second = s.sent
    assert first["message"] == "😀" * 4000 and second["message"] == "😀" * 1000 + " end" and second["textStyles"] == ["2001:3:BOLD"]
    assert result["message_id"] == str(first["timestamp"])
    assert not send(g, ANN, "x" * 600_000)["success"]


def test_link_and_stop_are_words(sim, make_bellhop, dial):
    server = make_bellhop(config(sim))
    credential = server.add(platform="signal", bot=BOT, open=False, instance="mine")
    g = dial(server, credential, hello=("signal", BOT))
    sim.say(BEN, "a stranger")
    sim.say(ANN, "/link " + server.cli("link", "--instance", "mine").stdout.split()[0])
    wait_for(lambda: any("Linked" in x for x in sim.texts(ANN)))
    sim.say(ANN, "long work")
    g.hear("long work")
    sim.say(ANN, "/stop")
    assert g.next("interrupt_inbound")["session_key"] == f"agent:main:signal:dm:{ANN}"
    assert sim.texts(BEN) == [] and all(x["recipient"] == ANN for x in sim.calls("sendReceipt"))  # strangers learn nothing


def test_a_route_names_a_person_by_number_or_a_group(sim, make_bellhop, dial):
    server = make_bellhop(config(sim))
    credential = server.add(platform=None, instance="mine")
    for key in ("+15551230001", ROOM):
        server.cli("route", "add", "--platform", "signal", "--key", key, "--tenant", "t", "--instance", "mine", "--open")
    g = dial(server, credential, hello=("signal", BOT))
    sim.say(BEN, "not routed")
    sim.say(ANN, "by number")
    g.hear("by number")
    sim.say(BEN, "\ufffc here", GROUP, mentions=[sim.mention(SELF, 0)])
    g.hear("here")
    assert send(g, ANN, "hi")["success"] and send(g, ROOM, "hi")["success"]


# ---- refusals and limits ----


def test_refusals_say_what_to_do(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hello")
    g.hear("hello")
    s.fault("send", "untrusted")
    assert "signal-cli trust" in send(g, ANN, "1")["error"]
    s.fault("send", "unregistered")
    assert "not on Signal any more" in send(g, ANN, "2")["error"]
    s.fault("send", "error:-1:You are not a member of the group")
    assert "not a member of the group" in send(g, ANN, "3")["error"]
    s.fault("send", "network")
    assert send(g, ANN, "4")["error"].startswith("timed out")
    s.fault("send", "error:-32603:Failed to send message: chat.signal.org (UnknownHostException)")
    assert send(g, ANN, "5")["success"]  # it never left, and is tried again
    assert s.texts(ANN) == ["5"]


def test_a_rate_limit_is_waited_out(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hello")
    g.hear("hello")
    s.fault("send", "rate:1")
    began = time.monotonic()
    assert send(g, ANN, "late")["success"] and time.monotonic() - began >= 0.9
    s.fault("send", "captcha")
    results = []
    t = threading.Thread(target=lambda: results.append(send(g, ANN, "later")))
    t.start()
    wait_for(lambda: "submitRateLimitChallenge" in (status(rig.server).get("problem") or ""))
    t.join()
    assert results[0]["success"] and status(rig.server)["state"] == "live" and s.texts(ANN) == ["late", "later"]
    assert status(rig.server)["limited"] == 2


def test_signals_own_limits_are_not_met(rig):
    """The simulator has the buckets of Signal's server, and calls it a violation to empty one."""
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hello")
    g.hear("hello")
    for i in range(41):
        g.send({"type": "outbound", "requestId": str(i), "action": {"op": "send", "chat_id": ANN, "content": f"m{i}", "metadata": {}}})
    wait_for(lambda: s.texts(ANN) == [f"m{i}" for i in range(41)])


# ---- the program dies, and bellhop does ----


def test_the_program_is_started_again(rig):
    s, g = rig.sim, rig.gateway
    rig.live()
    first = s.pid()
    s.kill()
    s.say(ANN, "while it was down")
    g.hear("while it was down")
    assert s.pid() != first and send(g, ANN, "hi")["success"]
    now = status(rig.server)
    assert now["state"] == "live" and now["programStarts"] == 2 and now.get("problem") is None


def test_an_account_that_is_not_registered_is_a_problem_to_read(sim, make_bellhop):
    sim.save(unregistered=True)
    server = make_bellhop(config(sim))
    found = wait_for(lambda: status(server).get("problem"))
    assert "User +15550001000 is not registered." in found and status(server)["state"] == "degraded"
    sim.save()
    wait_for(lambda: status(server)["state"] == "live")


def test_a_program_that_cannot_be_run_is_a_problem_to_read(sim, make_bellhop):
    server = make_bellhop(config(sim, where="command: [/nonexistent/signal-cli, -a, x, jsonRpc]"))
    assert "No such file" in wait_for(lambda: status(server).get("problem"))
    done = server.cli("doctor", check=False)
    assert "/nonexistent/signal-cli cannot be run" in done.stdout, done.stdout


def test_bellhop_is_killed_in_the_middle_of_a_flood(rig):
    """What signal-cli has printed is in a file, so that nothing is lost with the process that reads it."""
    s = rig.sim
    heard = []
    rig.live()
    for round in range(2):
        for i in range(40):
            s.say(ANN, f"{round}.{i}")
        wait_for(lambda: len(list((s.dir / "queue").iterdir())) < 30)
        rig.server.kill()
        old = [rig.gateway]  # has what it acknowledged
        rig.server.start()
        rig.gateway = rig.dial()
        while len({x for x in heard if x.startswith(f"{round}.")}) < 40:
            try:
                text = (old or [rig.gateway])[0].next("inbound", 0.3 if old else 30)["event"]["text"]
            except AssertionError:
                if not old:
                    raise
                old = []
                continue
            if text not in heard:
                heard.append(text)
    assert heard == [f"{r}.{i}" for r in range(2) for i in range(40)]


def test_the_program_is_killed_in_the_middle_of_a_flood(rig):
    s, g = rig.sim, rig.gateway
    rig.live()
    for i in range(90):
        s.say(ANN, f"m{i}")
        if i % 40 == 20:
            s.kill()
    for i in range(90):
        g.hear(f"m{i}")
    assert g.quiet()


def test_an_answer_that_bellhop_did_not_live_to_read_is_read_after_all(rig):
    """signal-cli sent the message and printed its answer while bellhop was dead: the file has the answer."""
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hello")
    g.hear("hello")
    s.fault("send", "after:0.5")
    g.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": ANN, "content": "once", "metadata": {}}})
    wait_for(lambda: s.texts(ANN) == ["once"])
    g.close()
    rig.server.signal(SIGSTOP)  # it will not read the answer
    lines = lambda: b"".join(p.read_bytes() for p in (rig.server.state / "children").rglob("[0-9]*"))  # noqa: E731
    wait_for(lambda: str(s.sent[0]["timestamp"]).encode() in lines())
    rig.server.kill()
    rig.server.start()
    rig.dial()
    wait_for(lambda: status(rig.server)["answersLate"] == 1)
    wait_for(lambda: status(rig.server)["sent"] == 1)
    assert status(rig.server)["sendsUnknown"] == 0 and s.texts(ANN) == ["once"]


@pytest.mark.parametrize("when", ["die_before", "die_after"])
def test_a_send_that_the_program_did_not_survive_is_unknown(rig, when):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hello")
    g.hear("hello")
    s.fault("send", when)
    result = send(g, ANN, "perhaps")
    assert not result["success"] and result["error"].startswith("timed out"), result
    assert s.texts(ANN) == (["perhaps"] if when == "die_after" else [])
    assert send(g, ANN, "and now")["success"]  # nothing is repeated blindly
    assert s.texts(ANN).count("perhaps") <= 1


def test_a_deaf_program_is_restarted(rig):
    """It stands still: the ping is not answered."""
    if not os.environ.get("BELLHOP_LONG"):
        pytest.skip("takes 45 s: ./dev crash runs it")
    s, g = rig.sim, rig.gateway
    rig.live()
    os.kill(s.pid(), SIGSTOP)
    s.say(ANN, "anybody there?")
    began = time.monotonic()
    assert g.next("inbound", 80)["event"]["text"] == "anybody there?"
    assert time.monotonic() - began < 60 and "it does not answer" in rig.server.log()


def test_taken_lines_are_erased(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "my secret words")
    g.hear("my secret words")
    files = lambda: [p for p in (rig.server.state / "children").rglob("*") if p.is_file()]  # noqa: E731
    wait_for(lambda: files() and all(b"secret words" not in p.read_bytes() for p in files()))
    assert all(p.stat().st_mode & 0o077 == 0 for p in files())


def test_a_clean_stop_ends_the_program_and_loses_nothing(rig):
    s = rig.sim
    rig.live()
    pid = s.pid()
    rig.gateway.close()
    rig.server.stop()
    wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists())
    s.say(ANN, "good morning")
    rig.server.start()
    rig.dial().hear("good morning")


def test_what_no_mailbox_has_room_for_waits_in_the_file(make_rig):
    r = make_rig(head="delivery: {{max_mailbox_bytes: 64KiB}}")
    s = r.sim
    r.live()
    r.gateway.close()
    texts = [f"{i} " + "x" * 20_000 for i in range(6)]
    for text in texts:
        s.say(ANN, text)
    wait_for(lambda: status(r.server)["unreadBytes"] > 20_000)
    g = r.dial()
    for text in texts:
        g.hear(text)


def test_a_message_that_comes_twice_is_delivered_once(rig):
    s, g = rig.sim, rig.gateway
    at = s.now()
    for _ in range(3):
        s.deliver(ANN, _at=at, dataMessage=s.data(at, "again"))
    s.say(ANN, "once")
    g.hear("again")
    g.hear("once")


def test_noise_on_stdout_and_stderr_does_no_harm(sim, make_bellhop, dial, tmp_path):
    """A wrapper prints stray text, half JSON, answers to nobody, and fills its stderr."""
    wrapper = tmp_path / "wrapper.sh"
    wrapper.write_text(f"""#!/bin/sh
echo 'Picked up JAVA_TOOL_OPTIONS'; echo '{{{{"jsonrpc"'; echo '[]'; echo '{{{{"jsonrpc":"2.0","id":99,"result":1}}}}'
echo '{{{{"jsonrpc":"2.0","id":7,"method":"sudo"}}}}'; echo '{{{{"jsonrpc":"2.0","method":"receive","params":[1]}}}}'
for i in $(seq 300); do echo "WARN line $i" >&2; done
exec {" ".join(sim.command)} "$@"
""".replace("{{", "{").replace("}}", "}"))
    wrapper.chmod(0o755)
    r = Rig(sim, make_bellhop, dial, where=f"command: [{wrapper}, --receive-mode=manual]")
    sim.say(ANN, "hello")
    r.gateway.hear("hello")
    assert send(r.gateway, ANN, "hi")["success"]
    assert status(r.server)["programNoise"] >= 2
    assert r.server.log().count("the program says: WARN") <= 20


# ---- a daemon instead ----


@pytest.fixture
def daemon(sim, tmp_path):
    made = []

    def run(where):
        p = subprocess.Popen([*sim.command[:-1], "daemon", where, "--receive-mode=manual"], stderr=subprocess.PIPE)
        made.append(p)
        return p

    yield run
    for p in made:
        p.kill()
        p.wait()
        p.stderr.close()


def test_a_daemon_behind_a_unix_socket(sim, make_rig, daemon, tmp_path):
    path = tmp_path / "socket"
    r = make_rig(where=f"address: unix:{path}")
    assert "socket" in wait_for(lambda: status(r.server).get("problem"))
    p = daemon(f"--socket={path}")
    r.live()
    sim.say(ANN, "hello")
    r.gateway.hear("hello")
    assert send(r.gateway, ANN, "hi")["success"]
    done = r.server.cli("doctor", check=False)
    assert f"signal {BOT}: its credentials are valid" in done.stdout, done.stdout
    p.kill()
    p.wait()
    wait_for(lambda: status(r.server)["state"] == "degraded")
    sim.say(ANN, "meanwhile")
    daemon(f"--socket={path}")
    r.gateway.hear("meanwhile")
    assert send(r.gateway, ANN, "there")["success"]
    for i in range(30):
        sim.say(ANN, f"m{i}")
    for i in range(30):
        r.gateway.hear(f"m{i}")


def test_a_daemon_behind_a_port(sim, make_rig, daemon):
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    daemon(f"--tcp=127.0.0.1:{port}")
    r = make_rig(where=f'address: "127.0.0.1:{port}"')
    sim.say(ANN, "hello")
    r.gateway.hear("hello")
    assert send(r.gateway, ANN, "hi")["success"]


# ---- set-up ----


def test_doctor_runs_the_program(rig):
    done = rig.server.cli("doctor", check=False)
    assert f"signal {BOT}: its credentials are valid" in done.stdout, done.stdout


def test_setup_writes_what_it_was_told(sim, tmp_path):
    done = subprocess.run([PROGRAM, "setup", "--yes", "-c", tmp_path / "bellhop.yaml", "--platform", "signal", "--bot", BOT,
                           "--set", "command=" + " ".join(sim.command)], text=True, capture_output=True, timeout=60,
                          env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == 0 and "signal-cli 0.14.6" in done.stderr, done.stdout + done.stderr
    assert "signal +15550001000: its credentials are valid" in done.stdout
    assert "jsonRpc" in (tmp_path / "conf.d" / "signal-%2B15550001000.yaml").read_text()


@pytest.mark.parametrize("wrong, why", [
    ("", "needs `command` or `address`, and not both"),
    ("command: [x], address: 'unix:/x'", "needs `command` or `address`, and not both"),
    ("address: nonsense", "expected unix:/path or host:port"),
    ("address: 'unix:relative'", "expected unix:/path or host:port"),
])
def test_wrong_settings_are_refused(sim, make_bellhop, wrong, why):
    server = make_bellhop(config(sim, where=wrong or "debounce: 1s"), start=False)
    done = server.cli("doctor", check=False)
    assert why in done.stdout + done.stderr


# ---- much ----


def test_many_messages_each_once_and_in_order_whatever_fails(sim, make_bellhop, dial):
    """BELLHOP_SIGNAL_MESSAGES of them in, and as many out, while bellhop and signal-cli are killed."""
    total = int(os.environ.get("BELLHOP_SIGNAL_MESSAGES", 60))
    chats = [sim.person(f"P{i}", f"+1556{i:07d}") for i in range(max(20, total // 20))]
    r, dice = Rig(sim, make_bellhop, dial, head="limits: {{instance_actions: 1000, tenant_actions: 1000}}"), random.Random(7)
    many = Many(r, chats, sim.texts, lambda: status(r.server)["requestsWaiting"])
    kills = {total // 4: "bellhop", total // 2: "signal-cli", 3 * total // 4: "both"}
    for n in range(total):
        chat = dice.choice(chats)
        sim.say(chat, many.text(chat))
        if dice.random() < 0.02:
            sim.fault("send", dice.choice(("rate:1", "slow:0.2", "error:-32603:x (ConnectException)")))
        what = kills.get(n + 1, "bellhop" if n and n % 1000 == 0 else None)
        if what in ("signal-cli", "both"):
            sim.kill()
        if what in ("bellhop", "both"):
            many.crash()
        many.breathe()
    many.check()

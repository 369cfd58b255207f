"""LINE: webhooks with several events, push messages with retry keys, against a simulator of its Messaging API."""
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
from test_interactions import raw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from line import ANN, BOT, GROUP, LineSim  # noqa: E402

TOKEN, SECRET = "line-access-token-planted", "line-channel-secret-planted"
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
limits: {{{{instance_actions: 0, tenant_actions: 0}}}}
platforms:
  - {{{{platform: line, bot: {bot}, token: {token}, channel_secret: {secret}, api_base: "{api}"}}}}
"""


class Rig:
    def __init__(self, make_bellhop, dial):
        self.sim = LineSim(TOKEN, SECRET)
        self.server = make_bellhop(CONFIG.format(bot=BOT, token=TOKEN, secret=SECRET, api=self.sim.url))
        self.dial = lambda: dial(self.server, self.credential, hello=("line", BOT))
        self.aim()
        self.credential = self.server.add(platform="line", bot=BOT)
        self.gateway = self.dial()

    def aim(self):
        self.sim.to = f"{self.server.url}/webhooks/line/{BOT}"

    def start(self):
        self.server.start()
        self.aim()
        return self.dial()


@pytest.fixture
def rig(make_bellhop, dial):
    r = Rig(make_bellhop, dial)
    yield r
    r.sim.close()
    assert r.sim.violations == []
    assert SECRET not in r.server.log() and TOKEN not in r.server.log()


def send(gateway, text, chat=ANN):
    return gateway.act(op="send", chat_id=chat, content=text, metadata={})


def status(server):
    return json.loads(server.cli("status", "--json").stdout)["platforms"][0]


def test_a_person_writes_and_gets_the_answer(rig):
    assert rig.sim.post(rig.sim.event("hello wörld")) == 200
    event = rig.gateway.hear("hello wörld")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["user_id"]) == ("line", ANN, "dm", ANN)
    assert send(rig.gateway, "hi \U0001f600") == {"success": True, "message_id": "461230966842064897"}
    assert rig.sim.sent == [(ANN, {"type": "text", "text": "hi \U0001f600"})]
    assert rig.gateway.act(op="get_chat_info", chat_id=ANN)["chat_info"]["type"] == "dm"
    assert "unsupported op" in rig.gateway.act(op="edit", chat_id=ANN, message_id="1", content="x", metadata={})["error"]


def test_typing_is_the_loading_animation(rig):
    rig.sim.post(rig.sim.event("hello"), rig.sim.event("hi all", chat=GROUP))
    rig.gateway.hear("hello"), rig.gateway.hear("hi all")
    for chat, content in ((ANN, None), (ANN, None), (GROUP, None), (ANN, "")):
        assert rig.gateway.act(op="typing", chat_id=chat, metadata={}, **({} if content is None else {"content": content}))["success"]
    wait_for(lambda: rig.sim.loading == [ANN])  # not twice, not in a group, and nothing ends it
    assert send(rig.gateway, "done")["success"]
    assert rig.gateway.act(op="typing", chat_id=ANN, metadata={})["success"]
    wait_for(lambda: rig.sim.loading == [ANN, ANN])


def test_an_answer_quotes_the_message_that_it_names(rig):
    said = rig.sim.event("which one?")
    rig.sim.post(said)
    event = rig.gateway.hear("which one?")["event"]
    first = rig.gateway.act(op="send", chat_id=ANN, content="this " * 1500, reply_to=event["message_id"], metadata={})
    assert first["success"]
    (_, begins), (_, ends) = rig.sim.sent
    assert begins["quoteToken"] == said["message"]["quoteToken"] and "quoteToken" not in ends
    assert rig.gateway.act(op="send", chat_id=ANN, content="mine", reply_to=first["message_id"], metadata={})["success"]
    assert rig.sim.sent[-1][1]["quoteToken"] in rig.sim.quotable
    rig.gateway.act(op="send", chat_id=ANN, content="x", reply_to="7", metadata={})  # unknown: sent without a quote
    assert "quoteToken" not in rig.sim.sent[-1][1]


def test_a_message_that_is_taken_back_is_not_delivered(rig):
    rig.gateway.sleep()
    kept, gone = rig.sim.event("kept"), rig.sim.event("gone")
    assert rig.sim.post(kept, gone) == 200
    assert rig.sim.post(rig.sim.unsend(gone)) == 200
    g = rig.dial()
    g.hear("kept")
    assert g.quiet()


def test_a_webhook_has_several_events_and_their_order_holds(rig):
    e = rig.sim.event
    batch = [e("one"), e(kind="follow"), e("two", chat=GROUP), e("three"), e("standby", mode="standby"),
             e(message={"type": "sticker", "packageId": "1", "stickerId": "2"}),
             e(message={"type": "location", "latitude": 35.65, "longitude": 139.7, "address": "Tokyo"}), e("four", quotedMessageId="42")]
    assert [rig.sim.post(*batch) for _ in range(2)] == [200, 200]
    texts = ["one", "two", "three", "[sticker]", "[location: 35.650000, 139.700000; Tokyo]", "four"]
    events = [rig.gateway.hear(t)["event"] for t in texts]
    assert events[1]["source"]["chat_type"] == "group" and events[1]["source"]["chat_id"] == GROUP
    assert events[5]["reply_to_message_id"] == "42"
    assert rig.gateway.quiet()
    assert rig.sim.post() == 200  # LINE's test of the address has no events
    assert rig.gateway.act(op="get_chat_info", chat_id=GROUP)["chat_info"]["type"] == "group"


def test_a_full_mailbox_loses_no_message_of_another_chat(make_bellhop, dial):
    sim, ben = LineSim(TOKEN, SECRET), "U" + "b" * 32
    server = make_bellhop(CONFIG.format(bot=BOT, token=TOKEN, secret=SECRET, api=sim.url) + "delivery: {{max_mailbox_bytes: 64KiB}}\n")
    sim.to = f"{server.url}/webhooks/line/{BOT}"
    credentials = {}
    for who, user in (("full", ANN), ("fine", ben)):
        credentials[who] = server.add(platform="line", bot=BOT, tenant=who, instance=who, open=False)
        server.cli("link", "add", "--tenant", who, "--instance", who, "--platform", "line", "--user", user, "--bot", BOT)
    while sim.post(sim.event("x" * 4000)) == 200:
        pass
    g = dial(server, credentials["fine"], hello=("line", BOT))
    batch = [sim.event("y" * 4000), sim.event("not before it"), sim.event("for Ben", chat=ben, user=ben)]
    assert [sim.post(*batch) for _ in range(2)] == [503, 503]
    g.hear("for Ben")
    assert g.quiet()
    server.stop()
    days_pass(server, 3)  # nobody knows how long LINE tries
    server.start()
    sim.to = f"{server.url}/webhooks/line/{BOT}"
    g = dial(server, credentials["fine"], hello=("line", BOT))
    assert sim.post(*batch) == 503 and g.quiet()
    late = dial(server, credentials["full"], hello=("line", BOT))
    wait_for(lambda: sim.post(*batch) == 200)
    wait_for(lambda: late.seen[-2:] == ["y" * 4000, "not before it"])
    assert late.seen.count("not before it") == 1
    sim.close()


def test_what_is_not_for_this_bot_is_refused(rig):
    sim = rig.sim
    for body in (b"{", b"[]", json.dumps(sim.envelope(sim.event("x"), destination="U" + "0" * 32)).encode()):
        assert sim.post(body=body) == 400
    good = json.dumps(sim.envelope(sim.event("x"))).encode()
    for headers in ({}, {"x-line-signature": ""}, sim.sign(good, "another"), sim.sign(good + b" "), {"x-line-signature": "A" * 44}):
        assert raw("POST", sim.to, good, headers).status == 401
    assert raw("GET", sim.to, None, sim.sign(b"")).status == 401
    assert rig.gateway.quiet()
    assert sim.post({**sim.event("x"), "source": {"type": "user"}}, sim.event("heard")) == 200  # one bad event spoils no other
    rig.gateway.hear("heard")
    assert status(rig.server)["malformed"] == 4


def test_pictures_come_in_and_the_token_stays(rig):
    event = rig.sim.event(message={"type": "image", "contentProvider": {"type": "line"}, "quoteToken": "q"})
    rig.sim.files[event["message"]["id"]] = b"\x89PNG\r\n\x1a\n" + b"x" * 100
    assert rig.sim.post(event) == 200
    frame = rig.gateway.next("inbound")["event"]
    assert frame["message_type"] == "photo" and len(frame["media_urls"]) == 1 and TOKEN not in json.dumps(frame)


def test_a_video_that_line_still_prepares_is_waited_for(rig):
    event = rig.sim.event(message={"type": "video", "duration": 60000, "contentProvider": {"type": "line"}, "quoteToken": "q"})
    video, id = b"\0\0\0\x18ftypmp42" + b"x" * 100, event["message"]["id"]
    rig.sim.files[id], rig.sim.preparing[id] = video, 2
    assert rig.sim.post(event) == 200
    frame = rig.gateway.next("inbound")["event"]
    url, = frame["media_urls"]
    assert frame["message_type"] == "video" and frame["text"] == ""
    assert test_media.ask(rig.server, "GET", url[url.index("/relay/media"):], rig.credential.token()).content == video


def test_long_texts_are_split(rig):
    rig.sim.post(rig.sim.event("go"))
    rig.gateway.hear("go")
    assert send(rig.gateway, "word " * 2500)["success"]
    texts = [m["text"] for _, m in rig.sim.sent]
    assert len(texts) == 3 and " ".join(texts).split() == ["word"] * 2500


def test_a_lost_answer_is_asked_for_again_and_nothing_comes_twice(rig):
    rig.sim.post(rig.sim.event("go"))
    rig.gateway.hear("go")
    for trouble in (None, "lost", 500):
        rig.sim.trouble(trouble)
        assert send(rig.gateway, f"after {trouble}")["success"]
    assert [m["text"] for _, m in rig.sim.sent] == ["after None", "after lost", "after 500"]
    rig.sim.go.clear()
    rig.gateway.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": ANN, "content": "crash", "metadata": {}}})
    wait_for(lambda: len(rig.sim.sent) == 4)
    rig.server.kill()
    rig.sim.go.set()
    assert rig.start().next("outbound_result")["result"]["success"]
    assert len(rig.sim.sent) == 4


def test_refusals_are_told_in_words(rig):
    rig.sim.post(rig.sim.event("go"))
    rig.gateway.hear("go")
    rig.sim.trouble(400, {"message": "The property, 'to', in the request body is invalid"})
    assert send(rig.gateway, "a")["error"] == "LINE refused this (HTTP 400)"
    rig.sim.trouble(429, {"message": "You have reached your monthly limit."})
    assert "the month's push messages" in send(rig.gateway, "b")["error"]
    rig.sim.trouble(429, {"message": "The API rate limit has been exceeded. Try again later."}, {"Retry-After": "1"})
    began = time.monotonic()
    assert send(rig.gateway, "c")["success"] and time.monotonic() - began >= 1
    rig.sim.trouble(401, {"message": "Authentication failed"})
    send(rig.gateway, "d")
    assert "channel access token" in status(rig.server)["problem"]


def test_doctor_asks_line(rig):
    assert f"ok    platform   line {BOT}" in rig.server.cli("doctor", check=False).stdout
    rig.sim.token = "another"
    done = rig.server.cli("doctor", check=False)
    assert "LINE refuses the channel access token" in done.stdout and TOKEN not in done.stdout
    rig.sim.token = TOKEN


def test_it_waits_for_the_disk_and_not_for_the_gateway(rig):
    rig.gateway.sleep()
    assert rig.sim.post(rig.sim.event("asleep"), rig.sim.event("still")) == 200
    rig.server.kill()
    g = rig.start()
    g.hear("asleep")
    g.hear("still")


def test_killed_before_the_request_within_a_long_text_and_with_a_webhook_half_taken(rig):
    def say(text):
        g.send({"type": "outbound", "requestId": text[:9], "action": {"op": "send", "chat_id": ANN, "content": text, "metadata": {}}})

    def again():
        rig.server.kill()
        rig.sim.troubles.clear()
        rig.sim.go.set()
        return rig.start()

    g = rig.gateway
    rig.sim.post(rig.sim.event("go"))
    g.hear("go")
    for _ in range(50):
        rig.sim.trouble(429, {"message": "The API rate limit has been exceeded. Try again later."}, {"Retry-After": "1"})
    say("kept")
    wait_for(lambda: [r["state"] for r in json.loads(rig.server.cli("outbox", "list", "--json").stdout)] == ["waiting"])
    assert rig.sim.sent == []
    g = again()
    assert g.next("outbound_result")["result"]["success"]
    rig.sim.go.clear()
    say("word " * 2500)
    wait_for(lambda: len(rig.sim.sent) == 2)
    g = again()
    assert g.next("outbound_result")["result"]["success"]
    texts = [m["text"] for _, m in rig.sim.sent]
    assert len(texts) == 4 and texts[0] == "kept" and " ".join(texts[1:]).split() == ["word"] * 2500
    batch = [rig.sim.event(f"m{i}") for i in range(20)]
    half = threading.Thread(target=lambda: rig.sim.post(*batch, quietly=True))
    half.start()
    g.hear("m0")
    g = again()
    half.join()
    assert rig.sim.post(*batch, again=True) == 200
    heard = [g.next("inbound")["event"]["text"] for _ in range(g._queue("inbound").qsize() or 1)]
    wait_for(lambda: "m19" in heard or heard.append(g.next("inbound")["event"]["text"]))
    assert heard == [f"m{i}" for i in range(20 - len(heard), 20)]  # those before were acknowledged
    assert g.quiet()


def test_many_messages_each_once_and_in_order_whatever_fails(rig):
    """BELLHOP_LINE_MESSAGES of them in, in batches, and as many out, with repeats, lost answers, limits and kills: keys make each of them one."""
    total, dice = int(os.environ.get("BELLHOP_LINE_MESSAGES", 60)), random.Random(3)
    chats = [f"U{i:032x}" for i in range(max(8, min(500, total // 20)))]
    shown = {c: [] for c in chats}
    rig.sim.note = lambda to, message: shown[to].append(message["text"])
    many = Many(rig, chats, shown.get, lambda: status(rig.server)["requestsWaiting"], rig.aim, window=min(100, max(15, total // 100)))
    n, kills = 0, [total // 3, 2 * total // 3]
    while n < total:
        size = dice.choice((1, 1, 2, 5))
        batch = []
        for chat in dice.choices(chats, k=size):
            batch.append(rig.sim.event(many.text(chat), chat=chat, user=chat))
        if dice.random() < 0.3:
            rig.sim.trouble(*dice.choice(((None,), ("lost",), (500,), (429, {"message": "The API rate limit has been exceeded. Try again later."}))))
        assert rig.sim.post(*batch) == 200
        if dice.random() < 0.1:
            assert rig.sim.post(*batch, again=True) == 200
        n += size
        if kills and n >= kills[0]:
            kills.pop(0)
            many.crash()
        many.breathe()
    many.check(once=True)

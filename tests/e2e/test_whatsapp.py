"""WhatsApp Cloud: the real program against a strict simulator of Meta's Graph API and its webhooks."""
import asyncio
import json
import os
import pathlib
import random
import sqlite3
import sys
import threading
import time
import urllib.parse

import pytest

import test_media
from conftest import rows_naming, wait_for
from many_rig import Many
from test_interactions import raw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from whatsapp import DAY, WhatsAppSim  # noqa: E402

BOT, TOKEN, SECRET, VERIFY = WhatsAppSim.NUMBER_ID, "EAAplantedtoken", "plantedappsecret", "planted-verify-token"
ANN, ANNS_NUMBER, BEN, CLEO = "US.13491208655302741918", "15551230001", "15551230002", "DE.1502576394655843"

CONFIG = """\
listen: 127.0.0.1:0
public_url: https://relay.example.org
state_dir: {{state}}
log: {{{{level: debug}}}}
{head}
platforms:
  - {{{{platform: whatsapp, bot: "{bot}", token: "{token}", app_secret: "{secret}", verify_token: "{verify}", api_base: "{api}"{more}}}}}
"""


@pytest.fixture
def sim():
    s = WhatsAppSim(TOKEN, SECRET, VERIFY)
    yield s
    s.close()
    assert s.violations == []


def config(sim, more="", head="", bot=BOT):
    return CONFIG.format(bot=bot, token=TOKEN, secret=SECRET, verify=VERIFY, api=sim.url, more=more, head=head)


class Rig:
    def __init__(self, sim, make_bellhop, dial, more="", head=""):
        self.sim = sim
        self.server = make_bellhop(config(sim, more, head))
        self.hook()
        self.credential = self.server.add(platform="whatsapp", bot=BOT)
        self.dial = lambda **more: dial(self.server, self.credential, hello=("whatsapp", BOT), **more)
        self.gateway = self.dial()

    def hook(self):
        self.sim.request_url = f"{self.server.url}/webhooks/whatsapp/{BOT}"

    def wrote(self, *people):
        """These people have written, and the agent has heard it."""
        for id in people:
            self.sim.say(id, "x")
            self.gateway.hear("x")


@pytest.fixture
def make_rig(sim, make_bellhop, dial):
    made = []

    def make(**more):
        made.append(Rig(sim, make_bellhop, dial, **more))
        return made[-1]

    yield make
    for r in made:
        assert "planted" not in r.server.log()


@pytest.fixture
def rig(make_rig):
    return make_rig()


def status(server):
    return next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "whatsapp")


def send(gateway, chat, content, **more):
    return gateway.act(op="send", chat_id=chat, content=content, reply_to=more.pop("reply_to", None), metadata=more)


def why(server, request):
    return json.loads(server.cli("why", "--action", request, "--json").stdout)


# ---- in ----


def test_the_beginning_of_a_streamed_answer_is_no_message(rig):
    """WhatsApp cannot edit: a gateway that streams is refused its preview, and sends the whole answer at the end."""
    rig.wrote(ANN)
    sent = len(rig.sim.sent)
    for text in ("word0 \u2589", "word0 word1 \u2589"):
        refused = rig.gateway.act("whatsapp", BOT, op="send", chat_id=ANN, content=text, metadata={"expect_edits": True})
        assert not refused["success"] and "cannot be edited" in refused["error"]
    assert send(rig.gateway, ANN, "word0 word1 word2", expect_edits=True)["success"]
    assert send(rig.gateway, ANN, "[\u2588\u2588\u2588")["success"]  # a bar, not a cursor
    assert [m["text"]["body"] for m in rig.sim.sent[sent:]] == ["word0 word1 word2", "[\u2588\u2588\u2588"]


def test_a_person_writes_and_sees_the_answer(rig):
    s, g = rig.sim, rig.gateway
    said = s.say(ANN, "hello wörld 😀")
    event = g.hear("hello wörld 😀")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["user_id"]) == ("whatsapp", ANN, "dm", ANN)
    assert (source["user_id_alt"], source["user_name"], event["message_id"]) == (ANNS_NUMBER, "Ann", said)
    result = send(g, ANN, "**hi** Ann", reply_to=said)
    assert result["success"], result
    answer, = s.sent
    assert result["message_id"] == answer["id"] and answer["recipient"] == ANN and "to" not in answer
    assert answer["text"] == {"body": "*hi* Ann", "preview_url": False} and answer["context"] == {"message_id": said}
    assert answer["biz_opaque_callback_data"].split(".")[1] == "0"
    d = g.descriptor
    assert (d["platform"], d["max_message_length"], d["len_unit"], d["supports_edit"]) == ("whatsapp", 4096, "utf16", False)
    assert set(d["supported_ops"]) == {"send", "typing", "get_chat_info", "send_media", "prompt", "react"}
    assert g.act(op="get_chat_info", chat_id=ANN)["chat_info"] == {"name": "Ann", "type": "dm"}
    for op in ("edit", "thread_create", "draft"):
        assert not g.act(op=op, chat_id=ANN, message_id=answer["id"], content="x", draft_id=1, thread_name="x", metadata={})["success"]
    wait_for(lambda: status(rig.server)["statuses"] >= 2)


def test_people_are_known_by_their_id_and_their_number(rig):
    s, g = rig.sim, rig.gateway
    s.say(BEN, "by number")
    source = g.hear("by number")["event"]["source"]
    assert (source["chat_id"], source["user_id"], source.get("user_id_alt")) == (BEN, BEN, None)
    assert send(g, BEN, "hi")["success"] and s.sent[-1]["to"] == BEN and "recipient" not in s.sent[-1]
    s.say(CLEO, "by id")
    source = g.hear("by id")["event"]["source"]
    assert (source["chat_id"], source.get("user_id_alt")) == (CLEO, None)
    assert send(g, CLEO, "hi")["success"] and s.sent[-1]["recipient"] == CLEO
    # an agent may know somebody by the number from before Meta gave ids: it is the same chat
    number = "15551230009"
    dan = s.person("Dan", number=number)
    rig.wrote(dan)
    s.people["FR.99"] = {**s.people[number], "bsuid": "FR.99"}
    s.people[number] = s.people["FR.99"]
    s.say("FR.99", "now with an id")
    assert g.hear("now with an id")["event"]["source"]["user_id_alt"] == number
    assert send(g, number, "hi")["success"] and s.sent[-1]["recipient"] == "FR.99"
    for chat in ("neither", "+15551230001", "US.", "us.1", "15551230001@s.whatsapp.net"):
        assert not send(g, chat, "x")["success"]


def test_a_new_id_keeps_chat_and_window(make_rig):
    r = make_rig()
    s, g = r.sim, r.gateway
    r.wrote(CLEO)
    new = "DE.7777"
    s.people[new] = s.people[CLEO]
    s.people[CLEO]["bsuid"] = new
    s.tell(s.envelope(s.change({"user_id_update": [{"wa_id": "15551230003", "detail": "x", "timestamp": "1", "user_id":
                                                     {"previous": CLEO, "current": new}}]}, "user_id_update")))
    assert send(g, CLEO, "to the old id")["success"] and s.sent[-1]["recipient"] == new
    r.server.restart()
    r.hook()
    g = r.dial()
    assert send(g, CLEO, "and after a restart")["success"] and s.sent[-1]["recipient"] == new
    s.say(new, "hello again")
    assert g.hear("hello again")["event"]["source"]["chat_id"] == new


def test_the_challenge_is_answered_to_who_knows_the_token(rig):
    url = rig.sim.request_url
    ask = lambda **q: raw("GET", f"{url}?" + urllib.parse.urlencode({f"hub.{k}": v for k, v in q.items()}), None, {})  # noqa: E731
    answer = ask(mode="subscribe", verify_token=VERIFY, challenge="1158201444")
    assert (answer.status, answer.text) == (200, "1158201444") and answer.headers["Content-Type"].startswith("text/plain")
    for bad in (dict(mode="subscribe", verify_token="another", challenge="1"), dict(mode="subscribe", challenge="1"),
                dict(mode="unsubscribe", verify_token=VERIFY, challenge="1"), dict(mode="subscribe", verify_token=VERIFY[:-1], challenge="1"),
                dict(mode="subscribe", verify_token=VERIFY)):
        assert ask(**bad).status == 401


def test_batches_are_taken_in_order_and_for_every_number(make_bellhop, dial, sim):
    other = "206540352242922"
    sim.numbers[other] = "15550783882"
    second = f'  - {{{{platform: whatsapp, bot: "{other}", token: "{TOKEN}", app_secret: "{SECRET}", verify_token: "{VERIFY}", api_base: "{sim.url}"}}}}\n'
    server = make_bellhop(config(sim) + second)
    sim.request_url = f"{server.url}/webhooks/whatsapp/{BOT}"
    credential = server.add(platform="whatsapp", bot=BOT, instance="one")
    second = server.add(platform="whatsapp", bot=other, instance="two")
    g = dial(server, credential, hello=("whatsapp", BOT))
    h = dial(server, second, hello=("whatsapp", other))
    mine = [sim.message(p, f"{p} {i}") for i in range(5) for p in (ANN, BEN, CLEO)]
    theirs = [sim.message(ANN, f"other {i}") for i in range(3)]
    sim.tell({**sim.envelope(), "entry": [
        {"id": "1", "changes": [sim.change(sim.value(*mine[:4])), sim.change(sim.value(*theirs), number=other)]},
        {"id": "2", "changes": [sim.change(sim.value(*mine[4:])), sim.change({"event": "x"}, "account_update")]}]})
    heard = [g.next("inbound")["event"] for _ in mine]
    for p in (ANN, BEN, CLEO):
        assert [e["text"] for e in heard if e["source"]["chat_id"] == p] == [f"{p} {i}" for i in range(5)]
    assert [h.next("inbound")["event"]["text"] for _ in theirs] == [f"other {i}" for i in range(3)]
    assert send(h, ANN, "from the other")["success"] and f"POST {other}/messages" in [" ".join(c) for c in sim.calls]
    # a number that nobody serves here
    sim.numbers["306540352242922"] = "15550783883"
    sim.say(ANN, "for nobody", number="306540352242922")
    assert g.quiet() and h.quiet()
    assert status(server)["forOtherNumbers"] == 1


def test_a_large_webhook_is_taken_whole(rig):
    s, g = rig.sim, rig.gateway
    messages = [s.message(ANN, f"{i} " + "x" * 2000) for i in range(1000)]
    s.tell(s.envelope(s.change(s.value(*messages))))  # 2.4 MB
    for i in range(1000):
        assert g.next("inbound")["event"]["text"].startswith(f"{i} ")


def test_a_message_is_delivered_once_however_often_it_comes(rig):
    s, g = rig.sim, rig.gateway
    body = s.envelope(s.change(s.value(s.message(ANN, "once"))))
    for _ in range(3):
        s.tell(body)
    g.hear("once")
    rig.server.restart()
    rig.hook()
    g = rig.dial()
    s.tell(body)
    again = s.message(ANN, "twice")
    s.tell(s.envelope(s.change(s.value(*[m for m in body["entry"][0]["changes"][0]["value"]["messages"]], again))))
    g.hear("twice")
    assert g.quiet()


def test_edits_and_deletions_reach_what_still_waits(rig):
    """Meta tells of them where the number is in the WhatsApp Business app, too."""
    s = rig.sim
    rig.gateway.sleep()
    gone, wrong, _ = s.say(ANN, "gone"), s.say(ANN, "wrong"), s.say(ANN, "kept")
    s.say(ANN, type="revoke", revoke={"original_message_id": gone})
    s.say(ANN, type="edit", edit={"original_message_id": wrong, "message": {"type": "text", "text": {"body": "right"}}})
    g = rig.dial()
    g.hear("right")
    g.hear("kept")
    s.say(ANN, type="revoke", revoke={"original_message_id": wrong})  # an agent that has the message is not told
    assert g.quiet()


def test_keys_are_kept_for_as_long_as_meta_repeats(rig):
    """A webhook that Meta repeats after a week is known still, though delivery.dedup says a day."""
    s, g = rig.sim, rig.gateway
    body = s.envelope(s.change(s.value(s.message(ANN, "a week ago"))))
    s.tell(body)
    g.hear("a week ago")
    rig.server.stop()
    with sqlite3.connect(rig.server.state / "bellhop.db") as db:
        assert db.execute("update seen set at_ms = at_ms - ?", (7 * DAY * 1000,)).rowcount > 0
    rig.server.start()
    rig.hook()
    g = rig.dial()
    s.tell(body)
    s.say(ANN, "now")
    g.hear("now")
    assert g.quiet()


def test_every_kind_of_message_says_something(rig):
    s, g = rig.sim, rig.gateway
    kinds = [
        (dict(type="location", location={"latitude": 52.5, "longitude": -13.25, "name": "Hotel", "address": "Street 1"}),
         "[location: 52.5, -13.25; Hotel; Street 1]"),
        (dict(type="contacts", contacts=[{"name": {"formatted_name": "Bob Roe"}, "phones": [{"phone": "+1 555"}], "emails": [{"email": "b@x.y"}]}]),
         "[contact: Bob Roe, +1 555, b@x.y]"),
        (dict(type="order", order={"catalog_id": "1", "product_items": [{"product_retailer_id": "p1", "quantity": 2}], "text": "soon"}),
         "[order: 2 x p1]\nsoon"),
        (dict(type="button", button={"text": "Stop", "payload": "stop"}), "Stop"),
        (dict(type="interactive", interactive={"type": "nfm_reply", "nfm_reply": {"name": "flow", "body": "Sent", "response_json": '{"a":1}'}}),
         '[form: {"a":1}]'),
        (dict(type="unsupported", unsupported={"type": "poll_creation"}, errors=[{"code": 131051}]), "[unsupported message: poll_creation]"),
        (dict(type="something_new", something_new={}), "[unsupported message: something_new]"),
        (dict(type="request_welcome"), "[the chat was opened]"),
        (dict(type="image", image={"id": "../../evil"}), "[unsupported message: image]"),
    ]
    for more, text in kinds:
        s.say(ANN, **more)
        assert g.next("inbound")["event"]["text"] == text
    s.say(ANN, "/help me", context={"from": s.NUMBER, "id": "wamid.abc"})
    event = g.hear("/help me")["event"]
    assert event["message_type"] == "command" and event["reply_to_message_id"] == "wamid.abc"
    # notices, reactions that are not wanted, groups
    s.say(ANN, type="system", system={"body": "x", "type": "customer_identity_changed"})
    s.say(ANN, type="reaction", reaction={"message_id": "wamid.abc", "emoji": "👍"})
    s.say(ANN, "in a group", group_id="g1")
    assert g.quiet()


def test_hostile_bytes_are_refused_in_good_order(rig):
    s = rig.sim
    for body in ("{", "[]", "1", '"x"', "", '{"object":'):
        assert s.post(body)[0] == 400, body
    for body in ("{}", '{"object":"page","entry":[]}', '{"object":"whatsapp_business_account","entry":{}}',
                 '{"object":"whatsapp_business_account","entry":[1,[],{"changes":[{"field":"messages","value":[]}]}]}',
                 json.dumps(s.envelope(s.change({"messages": [1, {}, {"id": "x"}, {"id": "wamid.x", "type": "text"}]}))),
                 json.dumps(s.envelope(s.change({"statuses": [{}, {"id": 1}, {"id": "wamid.x", "status": "sent", "biz_opaque_callback_data": "9.9"}]}))),
                 json.dumps(s.envelope(s.change({"user_id_update": [{"user_id": {"previous": "x", "current": "y"}}]}, "user_id_update")))):
        assert s.post(body)[0] == 200, body
    s.say(ANN, "still here")
    rig.gateway.hear("still here")


def test_reactions_are_left_out_before_they_use_up_what_a_person_may_get(rig):
    """For Meta a reaction is a message: one in six seconds to a person, and a few at once."""
    s, g = rig.sim, rig.gateway
    s.pair_burst = 4
    said = s.say(ANN, "hello")
    g.hear("hello")
    done = [g.act(op="react", chat_id=ANN, message_id=said, emoji="👀", metadata={}, remove=n % 2 == 1) for n in range(12)]
    assert all(d["success"] for d in done[:3])
    assert "left out" in next(d["error"] for d in done if not d["success"])
    assert send(g, ANN, "the answer")["success"]  # at once: one is left for it
    assert s.limited == 0


def test_reactions_come_and_go(make_rig):
    r = make_rig(more=", reactions: true")
    s, g = r.sim, r.gateway
    r.wrote(ANN)
    sent = send(g, ANN, "what do you think?")["message_id"]
    s.say(ANN, type="reaction", reaction={"message_id": sent, "emoji": "👍"})
    event = g.hear("reaction:added:👍")["event"]
    assert event["reply_to_message_id"] == sent
    s.say(ANN, type="reaction", reaction={"message_id": sent, "emoji": ""})
    g.hear("reaction:removed")
    said = s.say(ANN, "thanks")
    g.hear("thanks")
    react = lambda emoji, id=said, **m: g.act(op="react", chat_id=ANN, message_id=id, emoji=emoji, metadata={}, **m)  # noqa: E731
    assert react("👀")["success"] and s.sent[-1]["reaction"] == {"message_id": said, "emoji": "👀"}
    assert react("👀", remove=True)["success"] and s.sent[-1]["reaction"]["emoji"] == ""
    assert not react("eyes")["success"] and not react("👀", id="17")["success"]


# ---- out ----


def test_long_texts_become_few_messages(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN)
    text = "word 😀 " * 1300  # 10,400 units
    assert send(g, ANN, text)["success"]
    assert len(s.sent) == 3 and " ".join(s.shown(ANN)).split() == text.split()
    assert "sixteen" in send(g, ANN, "a " * 200000)["error"]
    assert not send(g, ANN, " \n ")["success"]


def test_the_pair_rate_is_kept_without_a_refusal(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN, BEN)
    began = time.monotonic()
    for i in range(5):
        g.send({"type": "outbound", "requestId": f"r{i}", "action": {"op": "send", "chat_id": ANN, "content": f"m{i}", "metadata": {}}})
    wait_for(lambda: len(s.shown(ANN)) == 4)
    assert send(g, BEN, "meanwhile")["success"] and time.monotonic() - began < 5  # others do not wait
    wait_for(lambda: len(s.shown(ANN)) == 5)
    assert time.monotonic() - began > 5 and s.shown(ANN) == [f"m{i}" for i in range(5)] and s.limited == 0


def test_limits_are_waited_out(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN, BEN)
    began = time.monotonic()
    s.trouble(code=131056)
    assert send(g, ANN, "patience")["success"] and time.monotonic() - began >= 1
    s.trouble(code=130429, status=429)
    began = time.monotonic()
    assert send(g, BEN, "patience")["success"] and time.monotonic() - began >= 2
    s.trouble(status=503)
    assert send(g, BEN, "again")["success"]
    assert s.shown(ANN) == ["patience"] and s.shown(BEN) == ["patience", "again"] and status(rig.server)["limited"] == 2


def test_typing_is_shown_under_the_last_message(rig):
    s, g = rig.sim, rig.gateway
    typing = lambda chat=ANN, **m: g.act(op="typing", chat_id=chat, metadata={}, **m)  # noqa: E731
    said = s.say(ANN, "x")
    g.hear("x")
    for _ in range(3):  # every two seconds from a gateway; WhatsApp shows it for 25 s
        assert typing()["success"]
    assert typing(content="")["success"]
    assert s.typed == [(said, True)]
    assert send(g, ANN, "done")["success"]
    assert typing()["success"] and len(s.typed) == 2
    newer = s.say(ANN, "y")
    g.hear("y")
    assert typing()["success"] and s.typed[-1] == (newer, True)
    rig.server.kill()
    rig.server.start()
    rig.hook()
    g = rig.dial()
    assert g.act(op="typing", chat_id=ANN, metadata={})["success"]
    wait_for(lambda: len(s.typed) == 4)


def test_a_quoted_message_that_is_gone_costs_no_answer(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN)
    assert send(g, ANN, "an answer", reply_to="wamid.Z29uZQ==")["success"]
    assert "context" not in s.sent[-1] and s.shown(ANN) == ["an answer"]


def test_refusals_are_told_in_words(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN, BEN, CLEO)
    for chat, code, words in ((ANN, 131026, "could not deliver"), (BEN, 131030, "list of recipients"), (CLEO, 987654, "code 987654"),
                              (ANN, 100, "code 100")):
        s.trouble(code=code)
        answer = send(g, chat, "x")
        assert not answer["success"] and words in answer["error"], answer
    assert status(rig.server)["problem"] is None
    s.trouble(code=190, status=401)
    assert "expired or was revoked" in send(g, BEN, "x")["error"] and "`token`" in status(rig.server)["problem"]
    assert send(g, CLEO, "mended")["success"] and status(rig.server)["problem"] is None


def test_doctor_asks_the_graph_api(rig):
    s = rig.sim
    done = rig.server.cli("doctor", check=False)
    assert f"ok    platform   whatsapp {BOT}: its credentials are valid" in done.stdout, done.stdout
    s.secret = "another"
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 1 and "`app_secret` is not that of the app" in done.stdout, done.stdout
    s.token = "another"
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 1 and "expired or was revoked" in done.stdout and TOKEN not in done.stdout
    s.token, s.secret = TOKEN, SECRET
    s.numbers.clear()
    assert "no phone number with this id" in rig.server.cli("doctor", check=False).stdout


# ---- the window ----


def age(rig, seconds):
    """Everybody wrote so much earlier, for Meta and in bellhop's records."""
    rig.server.stop()
    for who in {id(w): w for w in rig.sim.people.values()}.values():
        who["heard"] = who["heard"] and who["heard"] - seconds
    with sqlite3.connect(rig.server.state / "bellhop.db") as db:
        for k, v in db.execute("select k, v from kv where ns = 'whatsapp_person'").fetchall():
            doc = json.loads(v)
            doc["heard"] -= seconds * 1000
            db.execute("update kv set v = ? where ns = 'whatsapp_person' and k = ?", (json.dumps(doc).encode(), k))
    rig.server.start()
    rig.hook()
    rig.gateway = rig.dial()


def test_the_window_is_known_and_told_before_anybody_asks(rig):
    s = rig.sim
    rig.wrote(ANN, BEN)
    age(rig, DAY + 3600)
    asked = len(s.calls)
    answer = send(rig.gateway, ANN, "too late")
    assert not answer["success"] and "within 24 hours of the person's last message, which came at " in answer["error"], answer
    s.say(ANN, "in a group", group_id="g1")  # opens nothing for a direct message
    assert "within 24 hours" in send(rig.gateway, ANN, "still too late").get("error", "")
    assert not [c for c in s.calls[asked:] if c[0] == "POST"]
    s.say(ANN, "hello again")
    rig.gateway.hear("hello again")
    assert send(rig.gateway, ANN, "in time")["success"]


def test_what_meta_says_of_the_window_is_remembered(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN, BEN)
    s.people[ANN]["heard"] -= DAY + 60  # bellhop believes it open
    answer = send(g, ANN, "too late")
    assert not answer["success"] and "within 24 hours" in answer["error"], answer
    asked = len(s.calls)
    assert "within 24 hours" in send(g, ANN, "again")["error"] and len(s.calls) == asked
    # told later, by a status: the action's outcome is the truth
    s.late_window = True
    s.people[BEN]["heard"] -= DAY + 60
    g.send({"type": "outbound", "requestId": "late", "action": {"op": "send", "chat_id": BEN, "content": "x", "metadata": {}}})
    wait_for(lambda: status(rig.server)["failedLater"] == 1)
    wait_for(lambda: "24 hours" in rig.server.cli("why", "--action", "late").stdout)
    assert "within 24 hours" in send(g, BEN, "again")["error"]


def test_a_template_opens_a_closed_window(make_rig):
    r = make_rig(more=", template: {{name: new_answer, language: en_US}}")
    s, g = r.sim, r.gateway
    r.wrote(ANN, BEN)
    age(r, DAY + 3600)
    g = r.gateway
    for text in ("x" * 1001, "x" * 9000):  # nothing of an answer is lost silently
        assert "texts of at most 1,000 characters" in send(g, ANN, text)["error"]
    assert s.sent == []
    text = "several lines and spaces " + "x" * 975
    sent = send(g, ANN, text.replace(" ", "\n\t  "))
    assert sent["success"], sent
    template = s.sent[-1]["template"]
    assert (template["name"], template["language"]) == ("new_answer", {"code": "en_US"})
    assert template["components"][0]["parameters"][0]["text"] == text
    assert "takes texts" in g.act(op="prompt", chat_id=ANN, content="Sure?", prompt_kind="approval", prompt_id="q", timeout_s=60, metadata={},
                                 options=[{"id": "y", "label": "Yes"}])["error"]
    s.templates.clear()
    assert "no approved template" in send(g, BEN, "x")["error"]
    assert status(r.server)["templates"] == 1
    s.say(ANN, "I am here")
    g.hear("I am here")
    assert send(g, ANN, "free text")["success"] and "text" in s.sent[-1]


# ---- lost answers, crashes, statuses ----


def test_a_lost_answer_is_settled_by_its_status(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN, BEN)
    s.trouble(taken=True)  # taken, and cut
    answer = send(g, ANN, "arrived")
    assert answer["success"] and answer["message_id"] == s.sent[0]["id"]
    assert s.shown(ANN) == ["arrived"]
    s.trouble(code=131000, status=500)  # Meta says that it failed
    assert send(g, ANN, "again")["success"] and s.shown(ANN) == ["arrived", "again"]
    s.statuses = False
    s.trouble(taken=True)
    answer = g.act(op="send", chat_id=BEN, content="nobody knows", metadata={})
    assert not answer["success"] and answer["error"].startswith("timed out"), answer
    assert status(rig.server)["sendsUnknown"] == 1 and s.shown(BEN) == ["nobody knows"]
    listed = rig.server.cli("outbox", "list").stdout
    assert "unknown" in listed
    s.status(s.sent[-1]["id"], "delivered", data="1.0.0000000000000000", wait=True)  # somebody else's
    assert "unknown" in rig.server.cli("outbox", "list").stdout
    s.status(s.sent[-1]["id"], "delivered", wait=True)
    assert "unknown" not in rig.server.cli("outbox", "list").stdout
    assert send(g, BEN, "next")["success"] and s.shown(BEN) == ["nobody knows", "next"]


def test_a_failed_status_after_a_lost_answer_is_the_error(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN)
    s.statuses = False
    s.trouble(taken=True)
    g.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": ANN, "content": "x", "metadata": {}}})
    wait_for(lambda: s.sent)
    s.status(s.sent[-1]["id"], "failed", code=131026, wait=True)
    result = g.next("outbound_result")["result"]
    assert not result["success"] and "could not deliver" in result["error"], result


@pytest.mark.parametrize("heard", ["soon", "late", "failed"])
def test_a_crash_between_request_and_answer_sends_nothing_twice(rig, heard):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN)
    s.answering.clear()
    s.hooks.clear()
    s.statuses = heard != "failed"
    g.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": ANN, "content": "once", "metadata": {}}})
    wait_for(lambda: len(s.sent) == 1)
    rig.server.kill()
    s.answering.set()
    rig.server.start()
    rig.hook()
    g = rig.dial()
    if heard == "failed":
        s.status(s.sent[0]["id"], "failed", code=131026, wait=True)
        assert "could not deliver" in g.next("outbound_result", 20)["result"]["error"]
    elif heard == "late":  # after bellhop gave up waiting
        wait_for(lambda: status(rig.server)["sendsUnknown"] == 1, 20)
        s.hooks.set()
        wait_for(lambda: "unknown" not in rig.server.cli("outbox", "list").stdout)
    else:
        s.hooks.set()
        wait_for(lambda: status(rig.server)["sent"] == 1, 20)
    assert send(g, ANN, "next")["success"]
    assert s.shown(ANN) == ["once", "next"]


def test_a_crash_before_the_request_loses_nothing(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN)
    s.trouble(code=131056, times=3)
    g.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": ANN, "content": "kept", "metadata": {}}})
    wait_for(lambda: [r["state"] for r in json.loads(rig.server.cli("outbox", "list", "--json").stdout)] == ["waiting"])
    rig.server.kill()
    s.troubles.clear()
    rig.server.start()
    rig.hook()
    rig.dial()
    wait_for(lambda: s.shown(ANN) == ["kept"], 20)


# ---- files ----

PICTURE = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
OGG = b"OggS" + bytes(24) + b"OpusHead" + bytes(20)


def media(rig, data, name, type, chat=ANN, caption="", kind="image"):
    id = test_media.kept(rig.server, rig.credential, data, type=type, name=name)
    return rig.gateway.act(op="send_media", chat_id=chat, media_kind=kind, source_url=f"/relay/media/{id}", filename=name, content=caption,
                           metadata={})


def test_files_come_from_people(rig):
    s, g = rig.sim, rig.gateway
    fetch = lambda url: test_media.ask(rig.server, "GET", url[url.index("/relay/media"):], rig.credential.token()).content  # noqa: E731
    for type, body, mime, kind in (("image", {"caption": "look"}, "image/png", "photo"), ("audio", {"voice": True}, "audio/ogg; codecs=opus", "voice"),
                                   ("video", {}, "video/mp4", "video"), ("document", {"filename": "a.txt"}, "text/plain", "document"),
                                   ("sticker", {"animated": False}, "image/webp", "photo")):
        data = PICTURE + type.encode()
        id = s.file(data, mime.partition(";")[0])
        s.say(ANN, type=type, **{type: {"id": id, "mime_type": mime, "sha256": "x", **body}})
        event = g.next("inbound")["event"]
        assert event["message_type"] == kind and event["text"] == body.get("caption", "")
        url, = event["media_urls"]
        assert fetch(url) == data
    s.say(ANN, type="image", image={"id": s.file(b"x", url="https://evil.example/x"), "mime_type": "image/png"})
    assert g.next("inbound")["event"]["media_urls"] == []  # the token goes nowhere but to Meta
    s.say(ANN, type="image", image={"id": "4711", "mime_type": "image/png"})
    assert g.next("inbound")["event"]["media_urls"] == []


def test_files_go_to_people(rig):
    s = rig.sim
    rig.wrote(ANN, BEN, CLEO)
    assert media(rig, PICTURE, "out.png", "image/png", caption="see")["success"]
    image = s.sent[-1]["image"]
    assert image["caption"] == "see" and s.uploads[image["id"]]["data"] == PICTURE
    assert media(rig, OGG, "a.ogg", "audio/ogg", caption="listen", kind="voice")["success"]
    assert s.sent[-2]["audio"]["voice"] is True and s.shown(ANN) == ["listen"]
    assert media(rig, b"%PDF-1.4 x", "r.pdf", "application/pdf", chat=BEN, caption="x" * 1100)["success"]
    assert s.sent[-2]["document"]["filename"] == "r.pdf" and s.shown(BEN) == ["x" * 1100]
    assert media(rig, b"a,b\n1,2\n", "t.csv", "text/csv", chat=CLEO)["success"]
    assert s.sent[-1]["document"]["filename"] == "t.csv" and s.uploads[s.sent[-1]["document"]["id"]]["type"] == "text/plain"
    assert "no files of this type" in media(rig, b"PK\x03\x04zip", "x.zip", "application/zip", chat=CLEO)["error"]
    assert "larger than WhatsApp takes" in media(rig, PICTURE + bytes(6 << 20), "big.png", "image/png", chat=CLEO)["error"]
    s.trouble("media", code=131053)
    assert "does not take this file" in media(rig, PICTURE + b"1", "out.png", "image/png", chat=CLEO)["error"]


def test_an_upload_that_breaks_is_begun_again_and_sent_once(rig):
    s = rig.sim
    rig.wrote(ANN)
    s.trouble("media")  # cut
    s.trouble(taken=True)  # the message was taken, and the answer is lost
    assert media(rig, PICTURE, "out.png", "image/png")["success"]
    assert len(s.sent) == 1


# ---- questions ----


def ask(g, chat, n, content="Which?", label="Option {}"):
    return g.act(op="prompt", chat_id=chat, content=content, prompt_kind="choice", prompt_id="q1", timeout_s=600, metadata={},
                 options=[{"id": f"o{i}", "label": label.format(i)} for i in range(n)])


@pytest.mark.parametrize("n,label,kind", [(3, "Option {}", "button"), (3, "{}: a label longer than twenty-four characters", "list"), (10, "Option {}", "list"),
                                          (12, "Option {}", "text")])
def test_a_question_is_answered(rig, n, label, kind):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN)
    shown = ask(g, ANN, n, label=label)
    assert shown["success"], shown
    message = s.sent[-1]
    if kind == "text":
        assert "12. Option 11" in message["text"]["body"]
        s.say(ANN, "2")
    else:
        assert message["interactive"]["type"] == kind
        options = message["interactive"]["action"]
        title = options["buttons"][1]["reply"]["title"] if kind == "button" else options["sections"][0]["rows"][1]["title"]
        s.press(ANN, message["id"], title)
    answer = g.next("inbound")["event"]["prompt_response"]
    assert (answer["prompt_id"], answer["option_id"]) == ("q1", "o1")
    if kind == "button":  # too late: it is a message like any other
        s.press(ANN, message["id"], "Option 2")
        event = g.hear("Option 2")["event"]
        assert event.get("prompt_response") is None and event["reply_to_message_id"] == message["id"]


def test_a_long_question_is_one_message_with_numbers(rig):
    s, g = rig.sim, rig.gateway
    rig.wrote(ANN)
    assert ask(g, ANN, 2, content="why " * 400)["success"]
    assert len(s.sent) == 1 and "\n2. Option 1\n" in s.sent[0]["text"]["body"]
    rig.server.restart()  # the question is open still
    rig.hook()
    g = rig.dial()
    s.say(ANN, "1")
    assert g.next("inbound")["event"]["prompt_response"]["option_id"] == "o0"


def test_link_and_stop_are_words(sim, make_bellhop, dial):
    server = make_bellhop(config(sim))
    sim.request_url = f"{server.url}/webhooks/whatsapp/{BOT}"
    credential = server.add(platform="whatsapp", bot=BOT, open=False, instance="mine")
    g = dial(server, credential, hello=("whatsapp", BOT))
    sim.say(ANN, "/link " + server.cli("link", "--instance", "mine").stdout.split()[0])
    wait_for(lambda: any("Linked" in x for x in sim.shown(ANN)))
    sim.say(ANN, "long work")
    g.hear("long work")
    sim.say(ANN, "/stop")
    assert g.next("interrupt_inbound")["session_key"] == f"agent:main:whatsapp:dm:{ANN}"


def test_a_person_is_erased(rig):
    s = rig.sim
    rig.wrote(ANN, BEN)
    assert status(rig.server)["people"] == 2
    done = rig.server.cli("erase", "--person", f"whatsapp:{ANN}", "--yes", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert status(rig.server)["people"] == 1
    rig.server.stop()
    assert rows_naming(rig.server, ANN) == []


# ---- much ----


def test_many_messages_each_once_and_in_order_whatever_fails(sim, make_bellhop, dial):
    """BELLHOP_WHATSAPP_MESSAGES of them in, in batches, and as many out, with repeats, lost answers, limits and kills."""
    total = int(os.environ.get("BELLHOP_WHATSAPP_MESSAGES", 60))
    chats = [sim.person(f"P{i}", f"US.{10**15 + i}", f"1556{i:07d}") for i in range(max(60, total // 3))]
    r, dice = Rig(sim, make_bellhop, dial), random.Random(7)
    many = Many(r, chats, sim.shown, lambda: status(r.server)["requestsWaiting"] + len(sim.unheard), r.hook)
    n, kills = 0, [total // 3, 2 * total // 3]
    while n < total:
        batch = [sim.message(chat, many.text(chat)) for chat in dice.choices(chats, k=min(total - n, dice.choice((1, 1, 2, 5, 9))))]
        n += len(batch)
        body = sim.envelope(*[sim.change(sim.value(*batch[i:i + 4])) for i in range(0, len(batch), 4)])
        if dice.random() < 0.05:
            sim.trouble(taken=True)
        if dice.random() < 0.03:
            sim.trouble(code=131056 if dice.random() < 0.1 else 131016)
        sim.tell(body)
        if dice.random() < 0.1:
            sim.post(json.dumps(body))
        if kills and n >= kills[0]:
            kills.pop(0)
            many.crash()
        many.breathe()
    many.check()

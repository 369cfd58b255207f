"""Twilio: signed by its own library, answered with TwiML, sent through a simulator of its REST API."""
import base64
import json
import pathlib
import sqlite3
import sys
import time
import urllib.parse

import pytest

from conftest import wait_for
from oracle import b64, oracle  # noqa: F401 - a fixture
from test_enroll import credential, provision, token
from test_interactions import raw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from webapi import TwilioSim  # noqa: E402

SID, AUTH, BOT, ANN = "AC0123456789", "auth-token-of-the-account-planted", "+15550100", "+15551234567"
PUBLIC = "https://relay.example.org"
TWIML = '<?xml version="1.0" encoding="UTF-8"?><Response></Response>'

CONFIG = """\
listen: 127.0.0.1:0
{public}
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: twilio, bot: "{bot}", account_sid: {sid}, auth_token: "{auth}", api_base: "{api}"{more}}}}}
"""


class Rig:
    def __init__(self, oracle, make_bellhop, dial, more="", public=PUBLIC, bot=BOT):  # noqa: F811
        self.oracle, self.n, self.bot = oracle, 0, bot
        self.sim = TwilioSim(SID, AUTH)
        self.server = make_bellhop(CONFIG.format(sid=SID, auth=AUTH, api=self.sim.url, more=more, bot=bot,
                                                 public=f"public_url: {public}" if public else ""))
        self.public = public or self.server.url
        self.credential = self.server.add(platform="twilio", bot=bot)
        self.dial = lambda credential=None: dial(self.server, credential or self.credential, hello=("twilio", bot))
        self.gateway = self.dial()

    def sign(self, params, url=None, auth=AUTH):
        return self.oracle.ask("twilio", token=auth, url=url or self.url(), params=params)["signature"]

    def url(self, query=""):
        return f"{self.public}/webhooks/twilio/{self.bot}{query}"

    def post(self, body, signature, query="", kind="application/x-www-form-urlencoded", bot=None):
        body = body if isinstance(body, bytes) else urllib.parse.urlencode(body, doseq=True).encode()
        return raw("POST", f"{self.server.url}/webhooks/twilio/{bot or self.bot}{query}", body,
                   {"Content-Type": kind, "X-Twilio-Signature": signature})

    def params(self, text, **more):
        self.n += 1
        return {"ToCountry": "US", "SmsMessageSid": f"SM{self.n:032x}", "NumMedia": "0", "SmsStatus": "received",
                "Body": text, "To": BOT, "NumSegments": "1", "MessageSid": f"SM{self.n:032x}", "AccountSid": SID,
                "From": ANN, "ApiVersion": "2010-04-01", **more}

    def say(self, text, **more):
        params = self.params(text, **more)
        return self.post(params, self.sign(params))


@pytest.fixture
def rig(oracle, make_bellhop, dial):  # noqa: F811
    r = Rig(oracle, make_bellhop, dial)
    yield r
    r.sim.close()
    assert r.sim.violations == []
    assert AUTH not in r.server.log()


@pytest.fixture
def make_rig(oracle, make_bellhop, dial):  # noqa: F811
    made = []

    def make(**more):
        made.append(Rig(oracle, make_bellhop, dial, **more))
        return made[-1]

    yield make
    for r in made:
        r.sim.close()


def send(gateway, text, chat=ANN):
    return gateway.act(op="send", chat_id=chat, content=text, reply_to=None, metadata={})


def test_a_person_writes_and_gets_the_answer(rig):
    answer = rig.say("hello wörld & more + 1")
    assert (answer.status, answer.text) == (200, TWIML)
    assert answer.headers["Content-Type"].startswith("text/xml")
    event = rig.gateway.hear("hello wörld & more + 1")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["user_id"]) == ("twilio", ANN, "dm", ANN)
    result = send(rig.gateway, "hi Ann")
    assert result == {"success": True, "message_id": f"SM{1:032x}"}
    assert rig.sim.sent == [{"To": ANN, "From": BOT, "Body": "hi Ann"}]
    d = rig.gateway.descriptor
    assert (d["platform"], d["max_message_length"], d["supports_edit"]) == ("twilio", 1600, False)
    info = rig.gateway.act(op="get_chat_info", chat_id=ANN)
    assert info["chat_info"] == {"name": ANN, "type": "dm"}


def test_doctor_checks_the_credentials(rig):
    sent = len(rig.sim.sent)
    done = rig.server.cli("doctor", check=False)
    assert f"ok    platform   twilio {BOT}: its credentials are valid" in done.stdout and done.returncode == 0, done.stdout
    rig.sim.state = "suspended"
    assert "the Twilio account is suspended" in rig.server.cli("doctor", check=False).stdout
    rig.sim.state, rig.sim.auth = "active", "another"
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 1 and "FIX   platform" in done.stdout and "`auth_token`" in done.stdout
    assert AUTH not in done.stdout + done.stderr
    rig.server.stop()  # and without a server
    assert "`auth_token`" in rig.server.cli("doctor", check=False).stdout
    rig.sim.close()
    done = rig.server.cli("doctor", check=False)
    assert done.returncode == 0 and "the platform does not answer" in done.stdout
    assert len(rig.sim.sent) == sent
    rig.server.start()


def test_whatsapp_is_answered_on_whatsapp(rig):
    rig.say("hola", From="whatsapp:" + ANN, To="whatsapp:" + BOT, ProfileName="Ann")
    source = rig.gateway.hear("hola")["event"]["source"]
    assert (source["chat_id"], source["user_name"]) == ("whatsapp:" + ANN, "Ann")
    assert send(rig.gateway, "buenas", "whatsapp:" + ANN)["success"]
    assert rig.sim.sent == [{"To": "whatsapp:" + ANN, "From": "whatsapp:" + BOT, "Body": "buenas"}]


def test_media_that_cannot_be_fetched_are_said_to_be_missing(rig):
    rig.say("", NumMedia="1", MediaUrl0=rig.sim.url + "/m/ME1", MediaContentType0="image/jpeg")
    event = rig.gateway.hear("[a file is missing: its address answered with status 404]")["event"]
    assert event["media_urls"] == [] and event["message_type"] == "photo"
    rig.sim.violations.clear()


def test_a_retry_is_one_delivery(rig):
    params = rig.params("once")
    for _ in range(3):
        assert rig.post(params, rig.sign(params)).status == 200
    rig.gateway.hear("once")
    assert rig.gateway.quiet()


def test_the_port_may_be_there_or_not(make_rig):
    for public, signed in ((PUBLIC, PUBLIC + ":443"), (PUBLIC + ":443", PUBLIC), (PUBLIC + ":8443", PUBLIC + ":8443"),
                           (PUBLIC + ":8443/under", PUBLIC + ":8443/under"), (None, None)):
        r = make_rig(public=public)
        params = r.params("x")
        url = f"{signed or r.server.url}/webhooks/twilio/{BOT}?a=1"
        assert r.post(params, r.sign(params, url), query="?a=1").status == 200
        r.gateway.hear("x")


def test_json_bodies_need_their_hash(rig, make_rig):
    body = b'{"EventType":"onMessageAdded","token":"planted-in-json","x":1}'
    query = "?bodySHA256=" + rig.oracle.ask("twilio_body_hash", body=b64(body))["hash"]
    sign = lambda r, q: r.sign({}, r.url(q))  # noqa: E731
    assert rig.post(body, sign(rig, query), query, "application/json").status == 200
    assert rig.gateway.quiet()  # nothing anybody said
    assert rig.post(body, sign(rig, ""), "", "application/json").status == 401
    assert rig.post(body + b" ", sign(rig, query), query, "application/json").status == 401
    r = make_rig(more=", plane: passthrough")
    assert r.post(body, sign(r, query), query, "application/json").status == 200
    forward = r.gateway.next("passthrough_forward")["forward"]
    assert json.loads(base64.b64decode(forward["bodyB64"])) == {"EventType": "onMessageAdded", "x": 1}


def test_passthrough_hands_the_form_on(make_rig):
    r = make_rig(more=", plane: passthrough")
    assert r.say("ümlaut").status == 200
    frame = r.gateway.next("passthrough_forward")
    forward = frame["forward"]
    assert (forward["platform"], forward["botId"], forward["method"]) == ("twilio", BOT, "POST")
    form = dict(urllib.parse.parse_qsl(base64.b64decode(forward["bodyB64"]).decode()))
    assert (form["Body"], form["From"]) == ("ümlaut", ANN)
    assert "ignature" not in json.dumps(frame)
    assert send(r.gateway, "ok")["success"]


def test_long_texts_are_split(rig):
    rig.say("tell")
    rig.gateway.hear("tell")
    assert send(rig.gateway, "word " * 700)["success"]
    bodies = [s["Body"] for s in rig.sim.sent]
    assert len(bodies) == 3 and " ".join(bodies).split() == ["word"] * 700


def test_an_answer_that_streams_is_sent_whole_at_its_end(rig):
    """No edits here: nothing before the final frame, then one message, however often that frame comes."""
    rig.say("go")
    g = rig.gateway
    g.hear("go")
    draft = lambda g, text, **more: g.act(op="draft", chat_id=ANN, draft_id=9, message=True, content=text, metadata={}, **more)  # noqa: E731
    for text in ("It", "It is", "It is **no"):
        assert draft(g, text) == {"success": True, "queued": True}
    assert rig.sim.sent == []
    done = draft(g, "It is noon.", final=True)
    assert done == {"success": True, "message_id": f"SM{1:032x}"} and [m["Body"] for m in rig.sim.sent] == ["It is noon."]
    assert draft(g, "It is noon.", final=True) == done and draft(g, "late")["success"]
    rig.server.kill()
    rig.server.start()
    g = rig.dial()
    again = draft(g, "It is noon.", final=True)  # known, or honest that it may have been delivered: never a second message
    assert again == done or again["error"].startswith("timed out"), again
    assert len(rig.sim.sent) == 1
    assert "unsupported op: draft" in g.act(op="draft", chat_id=ANN, draft_id=10, content="x", metadata={})["error"]


def test_refusals_are_told_in_words(rig):
    rig.say("x")
    rig.gateway.hear("x")
    rig.sim.trouble(400, {"code": 21610, "message": "unsubscribed"})
    assert "unsubscribed" in send(rig.gateway, "a")["error"]
    rig.sim.trouble(500)
    assert send(rig.gateway, "b")["error"].startswith("timed out")
    rig.sim.trouble(None)
    assert send(rig.gateway, "c")["success"]  # it is in Twilio's list
    rig.sim.trouble(200, {"page": "log in"})  # not Twilio's
    assert send(rig.gateway, "nothing")["error"].startswith("timed out")
    for status in (429, 503):
        rig.sim.trouble(status, {"code": 20429 if status == 429 else 0}, {"Retry-After": "2"})
        began = time.monotonic()
        assert send(rig.gateway, f"d{status}")["success"]
        assert time.monotonic() - began >= 2
    assert [s["Body"] for s in rig.sim.sent] == ["c", "d429", "d503"]
    rig.sim.trouble(401, {"code": 20003})
    assert "credentials" in send(rig.gateway, "e")["error"]
    status = json.loads(rig.server.cli("status", "--json").stdout)["platforms"][0]
    assert status["state"] == "degraded" and "credentials" in status["problem"]
    assert rig.gateway.act(op="send", chat_id="+4900", content="x", reply_to=None, metadata={})["error"] == \
        "target not routed to an onboarded tenant"


def test_a_lost_answer_is_looked_for_and_nothing_is_sent_twice(rig):
    """Twilio has no key that makes twice once, but it lists what it has."""
    rig.say("x")
    rig.gateway.hear("x")
    assert send(rig.gateway, "same") == {"success": True, "message_id": f"SM{1:032x}"}
    rig.sim.behind = 1
    rig.sim.trouble(None)
    assert send(rig.gateway, "same") == {"success": True, "message_id": f"SM{2:032x}"}  # and not the first one
    assert rig.sim.looks == [{"To": ANN, "From": BOT, "PageSize": "50"}] * 2
    rig.sim.trouble("lost")
    lost = send(rig.gateway, "same")["error"]  # the other two are known, and there is no third
    assert lost.startswith("timed out: ") and "list of messages" in lost
    assert len(rig.sim.looks) == 2 + 3 and len(rig.sim.sent) == 2
    rig.sim.clock_s = -86400  # what counts is Twilio's clock
    rig.sim.trouble(None)
    assert send(rig.gateway, "yesterday")["message_id"] == f"SM{3:032x}"
    status = json.loads(rig.server.cli("status", "--json").stdout)["platforms"][0]
    assert (status["sent"], status["sendsUnknown"]) == (3, 1)
    (kept,) = json.loads(rig.server.cli("outbox", "list", "--json").stdout)
    assert kept["state"] == "unknown" and "list of messages" in kept["last_error"]


def test_what_was_on_its_way_is_told_after_a_crash_and_after_a_stop(rig):
    """What may have been sent is looked for at Twilio, never sent blindly, and told; what had not left goes on."""
    rig.say("x")
    rig.gateway.hear("x")

    def ask_two(first):
        rig.sim.go.clear()
        seen, gateway = len(rig.sim.sent), rig.dial()
        for i, text in enumerate([first, "second"]):
            gateway.send({"type": "outbound", "requestId": f"r{i}",
                          "action": {"op": "send", "chat_id": ANN, "content": text, "metadata": {}}})
        wait_for(lambda: len(rig.sim.sent) > seen)
        wait_for(lambda: sorted(r["state"] for r in records(rig.server)) == ["trying", "waiting"])

    def reports(gateway):
        frames = [gateway.next("outbound_result") for _ in range(2)]
        return [f["result"] for f in sorted(frames, key=lambda f: f["requestId"])]

    ask_two("one")
    rig.server.kill()
    rig.sim.go.set()
    rig.server.start()
    gateway = rig.dial()
    first, second = reports(gateway)
    assert (first["message_id"], second["message_id"]) == (f"SM{1:032x}", f"SM{2:032x}")
    assert [s["Body"] for s in rig.sim.sent] == ["one", "second"] and len(rig.sim.looks) == 1
    wait_for(lambda: records(rig.server) == [])

    ask_two("two")
    assert rig.server.stop() == 0
    rig.sim.go.set()
    rig.server.start()
    gateway = rig.dial()
    first, second = reports(gateway)
    assert (first["message_id"], second["message_id"]) == (f"SM{3:032x}", f"SM{4:032x}")
    assert [s["Body"] for s in rig.sim.sent] == ["one", "second", "two", "second"]

    ask_two("three")
    rig.server.kill()
    rig.sim.made.pop()  # it had not been taken after all
    rig.sim.go.set()
    rig.server.start()
    gateway = rig.dial()
    first, second = reports(gateway)
    assert first["error"].startswith("timed out: ") and "list of messages" in first["error"] and second["success"]
    assert [s["Body"] for s in rig.sim.sent] == ["one", "second", "two", "second", "three", "second"]
    wait_for(lambda: [r["state"] for r in records(rig.server)] == ["unknown"])


def records(server):
    """What is on its way out, as it stands in the database."""
    with sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True) as db:
        return [json.loads(bytes(v)) for v, in db.execute("SELECT v FROM kv WHERE ns = 'outgoing'")]


def test_the_answer_waits_for_the_disk_and_not_for_the_gateway(rig):
    rig.gateway.sleep()
    began = time.monotonic()
    assert rig.say("asleep").status == 200
    assert time.monotonic() - began < 1
    rig.server.kill()
    rig.server.start()
    rig.dial().hear("asleep")


def test_a_hello_grants_nothing(rig, dial):
    """Who announces another tenant's number, or claims its customers, neither hears nor writes through it."""
    rig.say("for acme")
    rig.gateway.hear("for acme")
    me = token(rig.server, "provision", tenant="zorg")
    got = provision(rig.server, me, "thief", platform="twilio", botId=BOT, routeKeys=[ANN, BOT, "+15550199"])
    assert ANN not in got.json["routeKeys"] and BOT not in got.json["routeKeys"]
    thief = dial(rig.server, credential(rig.server, got), hello=("twilio", BOT))
    for number in (ANN, "+15550199", BOT):
        for identity in ({}, {"platform": "twilio", "bot": BOT}):
            refused = thief.act(op="send", chat_id=number, content="spam", reply_to=None, metadata={}, **identity)
            assert "not routed" in refused["error"]
    rig.say("again")
    rig.gateway.hear("again")
    assert thief.quiet() and rig.sim.sent == []


def test_a_number_can_be_routed_on_its_own(rig):
    other = rig.server.add(tenant="other", platform="twilio", bot=ANN)
    theirs = rig.dial(other)
    rig.say("for the other")
    theirs.hear("for the other")
    assert rig.gateway.quiet()


def test_what_is_signed_but_no_message_is_refused_or_ignored(rig):
    for params in ({"Body": "x"}, rig.params("x", From="nobody"), rig.params("x", AccountSid="AC9"),
                   rig.params("x", MessageSid="SM/../x")):
        assert rig.post(params, rig.sign(params)).status == 400
    status = rig.params("x", MessageStatus="delivered")
    assert rig.post(status, rig.sign(status)).text == TWIML
    assert rig.gateway.quiet()

"""The door for the rest: Nextcloud Talk and Chatwoot by the files in examples/, and a service of our own for the edges."""
import json
import os
import pathlib
import random
import shutil
import sqlite3
import sys
import time
import types

import pytest

from conftest import ROOT, wait_for
from test_interactions import raw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from hook import Chatwoot, Plain, Talk  # noqa: E402

SECRET = "hook-secret-0123456789-0123456789-planted-0123456789"
TOKEN = "hook-token-planted"
EXAMPLES = ROOT / "examples" / "hook"
# {{ and }} are braces of YAML: the whole is formatted once more by the server's fixture.
ENTRY = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - platform: hook
    bot: {bot}
    verify: {{{{header: X-Sign, secret: "%s", encoding: base64}}}}
    map: {{{{text: /text, chat_id: /chat, user_id: /from/id, user_name: /from/name, event_id: /id, thread_id: /thread,
            skip_if: [/from/bot, /type=edit]}}}}
    send:
      url: "{url}/rooms/{{{{chat_id}}}}/posts"
      headers: {{{{Authorization: "Bearer {{{{secret}}}}"{headers}}}}}
      secret: %s
      body: {{{{text: "{{{{text}}}}", thread: "{{{{thread_id?}}}}", re: "{{{{reply_to?}}}}", fixed: {{{{a: [1, true, null, "x"]}}}}}}}}
      message_id: /message/id
      allow_private: true
      max_length: 200
{more}
""" % (SECRET, TOKEN)


class Rig:
    def __init__(self, make_bellhop, dial, headers="", more="", bot="desk"):
        self.sim = Plain(SECRET)
        self.server = make_bellhop(ENTRY.format(url=self.sim.url, bot=bot, headers=headers, more=more))
        self.bot = bot
        self.dial = lambda: dial(self.server, self.credential, hello=("webhook", bot))
        self.aim()
        self.credential = self.server.add(platform="hook", bot=bot)
        self.gateway = self.dial()

    def aim(self):
        self.sim.to = f"{self.server.url}/webhooks/hook/{self.bot}"

    def start(self):
        self.server.start()
        self.aim()
        return self.dial()


@pytest.fixture
def make_rig(make_bellhop, dial):
    made = []

    def make(**more):
        made.append(Rig(make_bellhop, dial, **more))
        return made[-1]

    yield make
    for r in made:
        r.sim.close()
        assert r.sim.violations == []
        assert SECRET not in r.server.log() and TOKEN not in r.server.log()


@pytest.fixture
def rig(make_rig):
    return make_rig()


def send(gateway, text, chat="desk/c1", **more):
    return gateway.act(op="send", chat_id=chat, content=text, metadata=more.pop("metadata", {}), **more)


def status(server):
    return json.loads(server.cli("status", "--json").stdout)["platforms"][0]


# ---- the examples ----

def example(make_bellhop, name, sim, env, secrets):
    """A server whose only bot is that of the example; the file is used as it is."""
    server = make_bellhop("listen: 127.0.0.1:0\nstate_dir: {state}\nlog: {{level: debug}}\ninclude: " + name + "\n", start=False, env=env)
    shutil.copy(EXAMPLES / name, server.dir)
    for file, text in secrets.items():
        (server.dir / file).write_text(text + "\n")
    server.start()
    bot = json.loads(server.cli("status", "--json").stdout)["platforms"][0]["bot"]
    sim.to = f"{server.url}/webhooks/hook/{bot}"
    return server, bot


def test_nextcloud_talk(make_bellhop, dial):
    sim = Talk(SECRET)
    server, bot = example(make_bellhop, "nextcloud-talk.yaml", sim, {"NEXTCLOUD_URL": sim.url, "NEXTCLOUD_IS_PRIVATE": "true"},
                          {"talk.secret": SECRET})
    g = dial(server, server.add(platform="hook", bot=bot), hello=("webhook", bot))
    assert (g.descriptor["platform"], g.descriptor["max_message_length"]) == ("webhook", 32000)
    assert sim.say("hi {mention-call1} and {nobody}!", parameters={"mention-call1": {"type": "call", "id": "n3xtc10ud", "name": "world"}}) == 200
    event = g.hear("hi world and {nobody}!")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"], source["chat_name"]) == ("webhook", "talk/n3xtc10ud", "group", "world")
    assert (source["user_id"], source["user_name"], event["message_id"]) == ("talk/users/ada", "Ada", "1567")
    assert send(g, "hello \"Ada\" \n & <all>", "talk/n3xtc10ud", reply_to="1567")["success"]
    assert send(g, "more", "talk/n3xtc10ud")["success"]
    assert sim.sent == [("n3xtc10ud", "hello \"Ada\" \n & <all>", 1567), ("n3xtc10ud", "more", None)]
    quoted = {"object": {"type": "Note", "id": "1567"}}
    assert sim.say("re", inReplyTo=quoted) == 200
    assert g.hear("re")["event"]["reply_to_message_id"] == "1567"
    file = {"file": {"type": "file", "id": "9", "name": "plan.pdf", "path": "Talk/plan.pdf", "mimetype": "application/pdf"}}
    assert sim.say("{file}", type="Activity", parameters=file) == 200  # Talk tells of a shared file so
    g.hear("plan.pdf")
    for other in (sim.message("\U0001f606", type="Like"), sim.message("left", type="Activity", name="user_removed"),
                  {"type": "Join", "actor": {"type": "Application", "id": "bots/bot-1", "name": "B"}, "object": {"id": "n3xtc10ud"}}):
        assert sim.post(other) == 200
    assert g.quiet()
    assert sim.post(sim.message("forged"), {"X-Nextcloud-Talk-Random": "x" * 64, "X-Nextcloud-Talk-Signature": "0" * 64}) == 401
    sim.trouble(401, {})
    assert "refused" in send(g, "x", "talk/n3xtc10ud")["error"]
    assert "credentials" in status(server)["problem"]
    sim.close()
    assert sim.violations == [] and SECRET not in server.log()


def chatwoot_rig(sim, make_bellhop, dial):
    server, bot = example(make_bellhop, "chatwoot.yaml", sim,
                          {"CHATWOOT_URL": sim.url, "CHATWOOT_ACCOUNT": "5", "CHATWOOT_IS_PRIVATE": "true"},
                          {"chatwoot.secret": SECRET, "chatwoot.token": Chatwoot.TOKEN})
    return types.SimpleNamespace(server=server, gateway=dial(server, server.add(platform="hook", bot=bot), hello=("webhook", bot)))


def test_chatwoot(make_bellhop, dial):
    sim = Chatwoot(SECRET)
    rig = chatwoot_rig(sim, make_bellhop, dial)
    server, g = rig.server, rig.gateway
    assert sim.say("where is my parcel?") == 200
    event = g.hear("where is my parcel?")["event"]
    source = event["source"]
    assert (source["chat_id"], source["chat_type"], source["user_id"], source["user_name"]) == ("chatwoot/7", "dm", "chatwoot/21", "Ann")
    assert send(g, "on its way", "chatwoot/7") == {"success": True, "message_id": "9001"}
    assert sim.sent == [(7, "on its way", "outgoing")]
    for other in (sim.message("on its way", kind="outgoing"), sim.message("he is angry", private=True),
                  sim.message("x", event="conversation_updated")):
        assert sim.post(other) == 200
    assert g.quiet()
    body = json.dumps(sim.message("late")).encode()
    for off in (-301, 301):
        assert sim.post(body, sim.headers(body, at=int(time.time()) + off)) == 401
    mixed = {**sim.headers(body), "X-Chatwoot-Timestamp": str(int(time.time()) - 5)}
    assert sim.post(body, mixed) == 401
    assert sim.post(body, sim.headers(body, at=int(time.time()) - 240)) == 200
    g.hear("late")
    sim.close()
    assert sim.violations == [] and SECRET not in server.log() and Chatwoot.TOKEN not in server.log()


# ---- in ----

def test_a_person_writes_and_gets_the_answer(rig):
    assert rig.sim.say("hello wörld", thread="t9") == 200
    event = rig.gateway.hear("hello wörld")["event"]
    assert event["source"]["thread_id"] == "t9" and event["bot_id"] == "desk"
    assert send(rig.gateway, "a \"b\" \\ \u2028 \x01 é", reply_to="1", metadata={"thread_id": "t9"}) == {"success": True, "message_id": "m1"}
    assert rig.sim.sent == [("/rooms/c1/posts", {"text": "a \"b\" \\ \u2028 \x01 é", "thread": "t9", "re": "1",
                                                 "fixed": {"a": [1, True, None, "x"]}})]
    assert rig.gateway.act(op="get_chat_info", chat_id="desk/c1")["chat_info"] == {"name": "c1", "type": "group"}
    why = rig.server.cli("why", "--platform", "hook").stdout
    assert "hook" in why and "desk/c1" in why
    assert "desk/c1" in rig.server.cli("why", "--platform", "webhook").stdout  # a person may use the name that the agent sees


def test_a_repeated_webhook_is_one_delivery(rig, make_bellhop, dial):
    body = rig.sim.message("once")
    assert [rig.sim.post(body) for _ in range(3)] == [200] * 3
    rig.gateway.hear("once")
    assert rig.gateway.quiet()
    del body["id"]  # without an id the body itself is compared
    assert [rig.sim.post(body) for _ in range(3)] == [200] * 3
    rig.gateway.hear("once")
    assert rig.gateway.quiet()
    rig.server.kill()
    g = rig.start()
    assert rig.sim.post(body) == 200 and g.quiet()


def test_what_is_not_a_message_is_ignored_or_refused(rig):
    m = rig.sim.message
    assert [rig.sim.post(b) for b in (m("x", **{"from": {"id": "u", "bot": True}}), m("x", type="edit"), {**m("x"), "text": ""}, {}, [], 3)] == [200] * 6
    bad = [{**m("x"), "chat": None}, {**m("x"), "chat": ""}, {**m("x"), "chat": "a\nb"}, {**m("x"), "chat": "c" * 201},
           {**m("x"), "chat": {"a": 1}}, {**m("x"), "chat": 1.5}, {**m("x"), "from": {}}, b"{", b"\xff", b""]
    assert [rig.sim.post(b) for b in bad] == [400] * len(bad)
    assert rig.gateway.quiet()
    s = status(rig.server)
    assert (s["ignored"], s["malformed"], s["state"]) == (6, len(bad), "live")
    assert "map.chat_id finds no id" in rig.server.log()
    assert rig.sim.post(m("numbers", chat=12, **{"from": {"id": -7}})) == 200
    source = rig.gateway.hear("numbers")["event"]["source"]
    assert (source["chat_id"], source["user_id"], source["user_name"]) == ("desk/12", "desk/-7", "-7")


def test_two_bots_share_no_chat_and_no_person(make_bellhop, dial):
    sim = Plain(SECRET)
    text = ENTRY.format(url=sim.url, bot="a", headers="", more="")
    entry = text[text.index("  - platform"):]
    server = make_bellhop(text + entry.replace("bot: a\n", "bot: b\n"))
    credentials = {b: server.add(tenant=b, platform="hook", bot=b) for b in "ab"}
    gateways = {b: dial(server, credentials[b], hello=("webhook", b)) for b in "ab"}
    for b in "ab":
        sim.to = f"{server.url}/webhooks/hook/{b}"
        sim.n = 0  # the same ids everywhere
        assert sim.say(f"to {b}") == 200
        source = gateways[b].hear(f"to {b}")["event"]["source"]
        assert (source["chat_id"], source["user_id"]) == (f"{b}/c1", f"{b}/u1")
    assert gateways["a"].quiet() and gateways["b"].quiet()
    assert send(gateways["b"], "x", "a/c1")["error"] == "target not routed to an onboarded tenant"
    assert send(gateways["b"], "x", "b/c1")["success"]
    sim.close()


def test_a_link_is_made_and_counts(make_bellhop, dial):
    """The text that `gateway add` prints, sent through the hook, links its author; nobody else is heard."""
    sim = Plain(SECRET)
    server = make_bellhop(ENTRY.format(url=sim.url, bot="desk", headers="", more=""))
    sim.to = f"{server.url}/webhooks/hook/desk"
    done = server.cli("gateway", "add", "--tenant", "t", "--platform", "hook", "--bot", "desk")
    from conftest import Credential
    code = next(w for w in (done.stdout + done.stderr).split() if len(w) == 8 and w.isalnum() and w.isupper())
    g = dial(server, Credential(done.stdout), hello=("webhook", "desk"))
    assert sim.say("before") == 200 and g.quiet()
    assert sim.say(f"/link {code}") == 200
    wait_for(lambda: sim.sent)  # bellhop's own answer
    assert sim.say("after") == 200
    g.hear("after")
    assert sim.say("another", who="u2") == 200 and g.quiet()
    sim.close()


def test_a_question_has_numbers(rig):
    rig.sim.say("go")
    rig.gateway.hear("go")
    result = rig.gateway.act(op="prompt", chat_id="desk/c1", prompt_id="p1", content="Which?", kind="choice", metadata={},
                             options=[{"id": "a", "label": "Tea"}, {"id": "b", "label": "Coffee"}])
    assert result["success"] and "2" in rig.sim.sent[0][1]["text"] and "Coffee" in rig.sim.sent[0][1]["text"]
    assert rig.sim.say("2") == 200
    assert rig.gateway.next("inbound")["event"]["prompt_response"]["option_id"] == "b"


def test_it_waits_for_the_disk_and_not_for_the_gateway(rig):
    rig.gateway.sleep()
    assert rig.sim.say("asleep") == 200
    rig.server.kill()
    rig.start().hear("asleep")


def test_the_erased_are_gone(rig):
    rig.gateway.sleep()
    assert rig.sim.say("mine") == 200
    done = rig.server.cli("erase", "--person", "hook:desk/u1", "--yes")
    assert "1" in done.stdout
    assert rig.dial().quiet()


# ---- out ----

def test_answers_of_the_service(rig):
    rig.sim.say("x")
    g = rig.gateway
    g.hear("x")
    rig.sim.trouble(400, {"error": "no"})
    assert send(g, "a")["error"] == "the service refused this (HTTP 400)"
    rig.sim.trouble(302, {}, {"Location": rig.sim.url + "/elsewhere"})
    assert "HTTP 302" in send(g, "a")["error"]
    rig.sim.trouble(500)
    assert send(g, "b")["error"].startswith("timed out: ")
    rig.sim.trouble(None)
    assert send(g, "taken")["error"].startswith("timed out: ")
    for code in (429, 503):
        rig.sim.trouble(code, {}, {"Retry-After": "1"})
        began = time.monotonic()
        assert send(g, f"d{code}")["success"] and time.monotonic() - began >= 1
    assert [m["text"] for _, m in rig.sim.sent] == ["taken", "d429", "d503"]
    s = status(rig.server)
    assert (s["sent"], s["sendsUnknown"], s["sendsRefused"], s["verify"]) == (2, 2, 2, "sha256")
    assert "unsupported op" in g.act(op="edit", chat_id="desk/c1", message_id="m1", content="x", metadata={})["error"]


def test_long_texts_are_split_in_order(rig):
    rig.sim.say("x")
    rig.gateway.hear("x")
    assert send(rig.gateway, "wörd " * 100)["success"]
    texts = [m["text"] for _, m in rig.sim.sent]
    assert len(texts) == 3 and " ".join(texts).split() == ["wörd"] * 100 and all(len(t) <= 200 for t in texts)


def test_hostile_ids_stay_in_their_place(rig):
    for chat, path in (("a/../../b", "a%2F..%2F..%2Fb"), ("?x=1#y", "%3Fx%3D1%23y"), ("{text}", "%7Btext%7D"), ("ä b", "%C3%A4%20b")):
        assert rig.sim.say("x", chat=chat) == 200
        rig.gateway.hear("x")
        assert send(rig.gateway, "y", f"desk/{chat}")["success"]
        assert rig.sim.sent[-1][0] == f"/rooms/{path}/posts"
    n = len(rig.sim.sent)
    for chat in (".", ".."):
        assert rig.sim.say("x", chat=chat) == 200
        rig.gateway.hear("x")
        assert "cannot stand in the request" in send(rig.gateway, "y", f"desk/{chat}")["error"]
    assert len(rig.sim.sent) == n


def test_a_key_makes_it_exactly_once(make_rig):
    r = make_rig(headers=', Idempotency-Key: "{{key}}"')
    r.sim.say("x")
    r.gateway.hear("x")
    r.sim.trouble(None)
    assert send(r.gateway, "first") == {"success": True, "message_id": "m1"}  # lost, and sent again with its key
    r.sim.trouble(500)
    assert send(r.gateway, "second")["success"]
    r.sim.go.clear()
    r.gateway.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": "desk/c1", "content": "third", "metadata": {}}})
    wait_for(lambda: len(r.sim.sent) == 3)
    r.server.kill()
    r.sim.go.set()
    g = r.start()
    assert g.next("outbound_result")["result"] == {"success": True, "message_id": "m3"}
    assert [m["text"] for _, m in r.sim.sent] == ["first", "second", "third"]


def records(server):
    with sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True) as db:
        return sorted(json.loads(bytes(v))["state"] for v, in db.execute("SELECT v FROM kv WHERE ns = 'outgoing'"))


def test_what_was_on_its_way_is_told_after_a_crash(rig):
    """Without a key nothing that may have been sent is sent again; what had not left goes on."""
    rig.sim.say("x")
    rig.gateway.hear("x")
    rig.sim.go.clear()
    for i, text in enumerate(["one", "two"]):
        rig.gateway.send({"type": "outbound", "requestId": f"r{i}", "action": {"op": "send", "chat_id": "desk/c1", "content": text, "metadata": {}}})
    wait_for(lambda: len(rig.sim.sent) == 1 and records(rig.server) == ["trying", "waiting"])
    rig.server.kill()
    rig.sim.go.set()
    g = rig.start()
    results = {f["requestId"]: f["result"] for f in (g.next("outbound_result") for _ in range(2))}
    assert results["r0"]["error"].startswith("timed out: ") and results["r1"]["success"]
    assert [m["text"] for _, m in rig.sim.sent] == ["one", "two"]


def test_the_pace_is_kept(make_rig):
    r = make_rig(more="      per_second: 5")
    r.sim.say("x")
    r.gateway.hear("x")
    began = time.monotonic()
    for i in range(5):
        assert send(r.gateway, str(i))["success"]
    assert time.monotonic() - began >= 0.55
    assert [m["text"] for _, m in r.sim.sent] == list("01234")


def test_private_addresses_are_refused_unless_allowed(make_bellhop, dial):
    sim = Plain(SECRET)
    port = sim.url.rsplit(":", 1)[1]
    text = ENTRY.format(url=f"https://127.0.0.1:{port}", bot="desk", headers="", more="").replace("      allow_private: true\n", "")
    server = make_bellhop(text)
    sim.to = f"{server.url}/webhooks/hook/desk"
    g = dial(server, server.add(platform="hook", bot="desk"), hello=("webhook", "desk"))
    sim.say("x")
    g.hear("x")
    assert "private" in send(g, "y")["error"]
    assert sim.calls == []
    assert "set `send.allow_private: true`" in server.cli("doctor", check=False).stdout
    sim.close()


def test_doctor_asks_the_host(rig):
    done = rig.server.cli("doctor", check=False)
    assert "ok    platform   hook desk" in done.stdout, done.stdout
    rig.sim.close()
    done = rig.server.cli("doctor", check=False)
    assert "the platform does not answer" in done.stdout and SECRET not in done.stdout


# ---- configuration ----

WRONG = [
    ('verify: {{header: X-Sign, secret: "%s", encoding: base64}}' % SECRET, "", "a hook needs `verify.header`"),
    ('secret: "%s", encoding: base64' % SECRET, 'hmac: none, secret: "x"', "`verify.hmac: none` verifies nothing"),
    ("encoding: base64", 'signed: "{{header:X-Time}}"', "`verify.signed` must have {body}"),
    ("encoding: base64", "timestamp_header: X-Time", "must have {header:X-Time}"),
    ("encoding: base64", 'signed: "{{body}}{{nothing}}"', "placeholder that is not known"),
    ("encoding: base64", "secret_encoding: base64", "`verify.secret` is not written as `secret_encoding` says"),
    ("text: /text", "text: text", "a JSON pointer begins with a slash"),
    ("text: /text", "text: /a~2", "a ~ is written ~0"),
    ("chat_id: /chat, ", "", "a hook needs `map.text`, `map.chat_id` and `map.user_id`"),
    ("/from/bot, ", "from/bot, ", "`map.skip_if`"),
    ("bot: desk", 'bot: "a/b"', "`bot` of a hook is a name of yours"),
    ("rooms/{{chat_id}}", "rooms/{{chat}}", "placeholder that is not known"),
    ("http://127.0.0.1", "ftp://127.0.0.1", "begins with https://"),
    ("http://127.0.0.1", "http://{{chat_id}}", "its host has no placeholder"),
    ("http://127.0.0.1", "http://u:p@127.0.0.1", "its host has no placeholder and no user"),
    ("allow_private: true", "allow_private: false", "begins with https://, or with http:// if"),
    ('text: "{{text}}"', "text: x", "`send` has no {text}"),
    ('text: "{{text}}"', 'text: "{{secret}}{{text}}"', "placeholder that is not known"),
    ('thread: "{{thread_id?}}"', 'thread: "x{{thread_id?}}"', "stand alone"),
    ("secret: %s" % TOKEN, "per_second: 9", "there is no `send.secret`"),
    ("Authorization:", "Content-Length:", "is not a header that can be set"),
    ("Authorization:", '"A B":', "is not a header that can be set"),
    ('"Bearer {{secret}}"', "[1]", "is not a text of one line"),
    ("message_id: /message/id", "message_id: id", "`send.message_id`"),
    ("max_length: 200", "sign: {{header: X-S, signed: \"{{nope}}\"}}", "`send.sign.signed`"),
    ("max_length: 200", "max_length: 10", "a whole number from 64"),
    ('headers: {{Authorization: "Bearer {{secret}}"}}', "headers: [1]", "`send.headers` is a section"),
]


def test_a_wrong_configuration_is_refused_with_words(make_bellhop):
    good = ENTRY.format(url="http://127.0.0.1:1", bot="desk", headers="", more="")
    wrong = []
    for a, b, words in WRONG:
        assert a in good, a
        server = make_bellhop(good.replace(a, b), start=False)
        done = server.cli("status", check=False)
        if done.returncode == 0 or words not in done.stderr:
            wrong.append((a, b, words, done.returncode, done.stderr))
        if SECRET in done.stderr or TOKEN in done.stderr:
            wrong.append((a, "a secret is shown"))
    assert wrong == []


def test_without_verification_it_says_so(make_bellhop, dial):
    sim = Plain(SECRET)
    text = ENTRY.format(url=sim.url, bot="desk", headers="", more="")
    server = make_bellhop(text.replace('{{header: X-Sign, secret: "%s", encoding: base64}}' % SECRET, "{{hmac: none}}"))
    g = dial(server, server.add(platform="hook", bot="desk"), hello=("webhook", "desk"))
    assert "webhooks are not verified" in server.log()
    body = json.dumps(sim.message("open")).encode()
    assert raw("POST", f"{server.url}/webhooks/hook/desk", body, {}).status == 200
    g.hear("open")
    assert raw("GET", f"{server.url}/webhooks/hook/desk", None, {}).status == 401
    assert status(server)["verify"] == "none"
    sim.close()


def test_other_signatures(make_bellhop, dial):
    """A token, base64 secrets, and several signatures in one header, as the Standard Webhooks have them."""
    import base64
    import hashlib
    import hmac
    sim, key = Plain(SECRET), b"\x00\x01raw key\xff" * 3
    base = ENTRY.format(url=sim.url, bot="desk", headers="", more="")
    old = '{{header: X-Sign, secret: "%s", encoding: base64}}' % SECRET
    entry = base[base.index("  - platform"):].replace("bot: desk\n", "bot: std\n").replace(
        old, '{{header: webhook-signature, prefix: "v1,", encoding: base64, secret_encoding: base64, secret: "%s", '
             'signed: "{{header:webhook-id}}.{{header:webhook-timestamp}}.{{body}}", timestamp_header: webhook-timestamp}}'
             % base64.b64encode(key).decode())
    server = make_bellhop(base.replace(old, '{{hmac: token, header: X-Token, secret: "%s", prefix: "Token "}}' % SECRET) + entry)
    g = dial(server, server.add(platform="hook", bot="desk"), hello=("webhook", "desk"))
    g2 = dial(server, server.add(platform="hook", bot="std", tenant="u"), hello=("webhook", "std"))
    body = json.dumps(sim.message("t")).encode()
    for shown, want in ((SECRET, 401), ("Token " + SECRET, 200), ("Token " + SECRET + "x", 401), ("Token ", 401)):
        assert raw("POST", f"{server.url}/webhooks/hook/desk", body, {"X-Token": shown}).status == want
    g.hear("t")
    now = str(int(time.time()))
    good = "v1," + base64.b64encode(hmac.new(key, b"msg_1." + now.encode() + b"." + body, hashlib.sha256).digest()).decode()
    ids = {"webhook-id": "msg_1", "webhook-timestamp": now}
    for shown, more, want in ((good, {}, 200), ("v1,AAAA v2,xyz " + good, {}, 200), (good, {"webhook-id": "msg_2"}, 401), (good[3:], {}, 401),
                              (" ".join(["v1,AAAA"] * 20 + [good]), {}, 401)):
        assert raw("POST", f"{server.url}/webhooks/hook/std", body, {**ids, **more, "webhook-signature": shown}).status == want, shown
    g2.hear("t")
    sim.close()


# ---- many ----

def test_thousands_each_once_and_in_order(make_rig):
    """BELLHOP_HOOK_MESSAGES of them in and as many out, with repeats, lost answers, limits and kills; requests have keys."""
    total, dice = int(os.environ.get("BELLHOP_HOOK_MESSAGES", 60)), random.Random(5)
    r = make_rig(headers=', Idempotency-Key: "{{key}}"')
    chats = [f"c{i}" for i in range(5)]
    said, heard, kills = {c: 0 for c in chats}, {c: [] for c in chats}, [total // 3, 2 * total // 3]
    g, done, told, asked = r.gateway, set(), set(), set()

    def listen(g):
        """What came so far; returns the answers to it."""
        todo = []
        while not g._queue("outbound_result").empty():
            frame = g.next("outbound_result")
            told.add(frame["requestId"])
            if frame["result"]["success"] and not frame["result"].get("queued"):
                done.add(frame["requestId"])
        while not g._queue("inbound").empty():
            event = g.next("inbound")["event"]
            chat, text = event["source"]["chat_id"].removeprefix("desk/"), event["text"]
            if text not in heard[chat]:  # the last ones may come again after a crash
                heard[chat].append(text)
                todo.append((chat, text))
        return todo

    def answer(g, todo):
        for chat, text in todo:
            asked.add(f"{chat} {text}")
            g.send({"type": "outbound", "requestId": f"{chat} {text}", "action": {
                "op": "send", "chat_id": f"desk/{chat}", "content": f"re {text}", "metadata": {}}})

    for n in range(total):
        chat = dice.choice(chats)
        said[chat] += 1
        body = r.sim.message(f"m{said[chat]}", chat=chat)
        if dice.random() < 0.05:
            r.sim.trouble(dice.choice((None, "lost", 500)))
        if dice.random() < 0.02:
            r.sim.trouble(429, {}, {"Retry-After": "0.2"})
        if kills and n == kills[0]:
            kills.pop(0)
            r.server.kill()
            assert g.over.wait(30)
            todo = listen(g)
            g = r.start()
            asked.clear()  # an answer that the kill cut off may stay untold
            answer(g, todo)
        assert r.sim.post(body) == 200
        if dice.random() < 0.1:
            assert r.sim.post(body) == 200
        wait_for(lambda: answer(g, listen(g)) or len(asked - told) < 10, 60)  # people wait for answers, too
    want = {c: [f"m{i + 1}" for i in range(k)] for c, k in said.items()}
    wait_for(lambda: answer(g, listen(g)) or heard == want, 60 + total / 10)
    wait_for(lambda: status(r.server)["requestsWaiting"] == 0, 60 + total / 10)
    listen(g)
    shown = [f"{p.split('/')[2]} {m['text'].removeprefix('re ')}" for p, m in r.sim.sent]
    assert len(shown) == len(set(shown))  # never twice
    assert done <= set(shown) and len(done) > total * 0.8, (len(done), len(shown))  # what was told is true
    for c in chats:
        assert [x for x in shown if x.startswith(c + " ")] == [f"{c} {x}" for x in want[c] if f"{c} {x}" in shown], c  # in order


def test_setup_writes_what_the_server_reads(tmp_path):
    """Sections of two levels, a tree as JSON, a list of conditions, three secrets in files of their own."""
    from test_setup import run, secret
    sim, home = Talk(SECRET), tmp_path / "home"
    home.mkdir()
    words = ["--yes", "--platform", "hook", "--bot", "talk", "--public-url", "https://relay.example.org", "--agent", "none",
             "--secret", f"verify.secret={secret(tmp_path, SECRET)}", "--secret", f"send.secret={secret(tmp_path, TOKEN, 'token')}",
             "--secret", f"send.sign.secret={secret(tmp_path, SECRET + '2', 'second')}"]
    given = {"verify.header": "X-Nextcloud-Talk-Signature", "verify.signed": "{header:X-Nextcloud-Talk-Random}{body}",
             "map.text": "/object/content/message", "map.chat_id": "/target/id", "map.user_id": "/actor/id", "map.user_name": "/actor/name",
             "map.event_id": "/object/id", "map.skip_if": "/type!=Create, /object/name!=message",
             "send.url": sim.url + "/{chat_id}", "send.allow_private": "true", "send.body": '{"a": ["{text}"], "r": "{number:reply_to?}"}',
             "send.headers": '{"X-R": "{random}", "Authorization": "Bearer {secret}"}', "send.sign.header": "X-S",
             "send.sign.signed": "{header:X-R}{text}"}
    for key, value in given.items():
        words += ["--set", f"{key}={value}"]
    done = run(home, *words)
    assert done.returncode == 0, done.stderr
    assert "Its webhook is https://relay.example.org/webhooks/hook/talk" in done.stderr
    file = home / "conf.d" / "hook-talk.yaml"
    first = file.read_text()
    assert "\n      sign:\n" in first and "secret_file: ../secrets/hook-talk.send.sign.secret" in first and SECRET not in first
    done = run(home, "--yes", "--platform", "hook", "--bot", "talk", "--agent", "none", "--set", "send.sign.prefix=v1,")  # keeps the rest
    assert done.returncode == 0, done.stderr
    assert [line for line in file.read_text().splitlines() if line not in first.splitlines()] == ['        prefix: "v1,"']
    assert "a JSON pointer begins with a slash" in run(home, *words, "--set", "map.text=text").stderr
    sim.close()

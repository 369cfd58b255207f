"""The edge as a whole: floods, full mailboxes, other tenants, and secrets that must not leave."""
import base64
import json
import socket
import time
import urllib.parse

import pytest

import test_interactions
import test_twilio
import test_wecom
from conftest import CONFIG
from oracle import oracle  # noqa: F401 - a fixture
from relay import http
from test_interactions import DISCORD_KEY, RELAY_KEY, forwarded, raw, sim  # noqa: F401 - a fixture


@pytest.fixture
def make_twilio(oracle, make_bellhop, dial):  # noqa: F811
    made = []

    def make(extra="", **more):
        made.append(test_twilio.Rig(oracle, lambda c: make_bellhop(c + extra), dial, **more))
        return made[-1]

    yield make
    for r in made:
        r.sim.close()


# ---- floods ----


def test_a_flood_of_forgeries_costs_a_bot_nothing(make_twilio):
    """Its proof is cheap: every webhook is looked at, whatever else comes from the same address."""
    r = make_twilio("webhooks: {{refused_per_source: 2, strangers: 5}}\n")
    answers = [r.post(r.params("x"), "A" * 28).status for _ in range(60)]
    assert answers == [401] * 60
    assert [r.say(f"n{n}").status for n in range(40)] == [200] * 40


def test_who_is_refused_again_and_again_must_wait_where_looking_is_expensive(make_bellhop):
    server = make_bellhop(CONFIG + "webhooks: {{refused_per_source: 2}}\ntrusted_proxies: [127.0.0.1]\n")

    def knock(peer, **headers):
        return raw("POST", f"{server.url}/webhooks/discord/nobody", b"{}", {"X-Forwarded-For": peer, **headers})

    def forged():
        return {"X-Signature-Timestamp": str(int(time.time())), "X-Signature-Ed25519": "ab" * 64}

    answers = [knock("198.51.100.1", **forged()) for _ in range(40)]
    assert [a.status for a in answers[:20]] == [401] * 20
    late = [a for a in answers[20:] if a.status == 429]
    assert len(late) > 10 and late[0].headers["Retry-After"] == "1" and late[0].json["code"] == "too_many_requests"
    # What cannot be right at a glance is refused without the door, and somebody else is not held up.
    assert knock("198.51.100.1").status == 401
    assert knock("198.51.100.7", **forged()).status == 401
    assert server.metric("webhooks_turned_away_total") >= 10


def test_what_platforms_send_is_never_counted(make_twilio):
    r = make_twilio("webhooks: {{refused_per_source: 1}}\n")
    assert [r.say(f"n{n}").status for n in range(40)] == [200] * 40


# ---- sizes ----


def test_a_body_over_the_limit_is_413_and_costs_nothing(make_twilio):
    r = make_twilio()
    with socket.create_connection(("127.0.0.1", r.server.port), 10) as s:
        s.sendall(f"POST /webhooks/twilio/{r.bot} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n".encode())
        assert b" 413 " in s.recv(4096).split(b"\r\n")[0]
    assert r.say("still here").status == 200


def test_a_full_mailbox_makes_the_platform_retry(make_twilio):
    r = make_twilio("delivery: {{max_mailbox_bytes: 64KiB}}\n")
    r.gateway.sleep()
    statuses = [r.say("x" * 1500).status for _ in range(60)]
    assert statuses[0] == 200 and statuses[-1] == 503 and set(statuses) == {200, 503}
    taken = statuses.count(200)
    awake = r.dial()
    for _ in range(taken):
        awake.next("inbound")
    assert r.say("room again").status == 200


# ---- other tenants ----


def test_another_tenants_things_look_like_nothing(oracle, sim, make_bellhop, dial):  # noqa: F811
    e = test_interactions.Edge(oracle, sim, make_bellhop, dial)
    e.interact()
    forwarded(e.gateway)
    chat = test_interactions.GENERAL
    theirs = e.server.add(tenant="b", platform="discord", bot="901")
    b = dial(e.server, theirs, hello=("discord", "900"))
    owner = e.server.add("--instance", "twin", tenant="t", platform=None)
    twin = dial(e.server, owner, hello=("discord", "900"))

    def answers(gateway, chat, key, message, **identity):
        return [
            gateway.act(op="send", chat_id=chat, content="x", reply_to=None, metadata={"guild_id": test_interactions.GUILD},
                        **identity),
            gateway.act(op="edit", chat_id=chat, message_id=message, content="x", metadata={}, **identity),
            gateway.act(op="typing", chat_id=chat, metadata={}, **identity),
            gateway.act(op="get_chat_info", chat_id=chat, **identity),
            gateway.act(op="follow_up", session_key=key, kind=test_interactions.KIND, content="x", metadata={}, **identity),
        ]

    nothing = ("999999999999999999", "agent:main:relay:channel:9:9", "888888888888888888")
    for identity in ({}, {"platform": "discord"}, {"platform": "discord", "bot": "900"}, {"platform": "relay"}):
        for key in (RELAY_KEY, DISCORD_KEY):
            assert answers(b, chat, key, "990000000000000001", **identity) == answers(b, *nothing, **identity), identity
    assert all(not a["success"] for a in answers(b, chat, RELAY_KEY, "1"))
    assert sim.hooks[test_interactions.TOKEN] == {"original": None, "edits": 0, "follow_ups": []}
    assert sim.texts(chat) == [] and sim.typed == []
    # The same tenant's other instance did not receive it, and its send does not use the token.
    twin.act(op="send", chat_id=chat, content="x", reply_to=None, metadata={})
    assert sim.hooks[test_interactions.TOKEN]["edits"] == 0
    assert b.quiet("passthrough_forward") and b.quiet("inbound") and twin.quiet("passthrough_forward")
    gone = [http("GET", f"{e.server.url}/relay/media/{x}").status for x in ("a", "b" * 32)]
    assert gone[0] == gone[1] == 401


# ---- secrets ----

ALL = """\
listen: 127.0.0.1:0
public_url: https://relay.example.org
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: discord, bot: "900", token: "{bot_token}", api_base: "{discord}", public_key: "{key}"}}}}
  - {{{{platform: twilio, bot: "+15550100", account_sid: {sid}, auth_token: "{auth}", api_base: "{twilio}"}}}}
  - {{{{platform: wecom, bot: "1000002", corp_id: {corp}, secret: "{secret}", token: "{token}", encoding_aes_key: {aes}, api_base: "{wecom}"}}}}
"""


class Tap:
    """A gateway whose every byte is kept."""

    def __init__(self, dial, server, credential):
        self.gateway = dial(server, credential, hello=("discord", "900"))
        self.bytes = []
        take = self.gateway._frame

        async def keep(frame):
            self.bytes.append(json.dumps(frame))
            for forward in [frame.get("forward")] if frame.get("forward") else []:
                self.bytes.append(base64.b64decode(forward["bodyB64"]).decode())
            await take(frame)
        self.gateway._frame = keep


def test_no_secret_leaves(oracle, sim, make_bellhop, dial):  # noqa: F811
    twilio = test_twilio.TwilioSim(test_twilio.SID, test_twilio.AUTH)
    wecom = test_wecom.WecomSim(test_wecom.CORP, test_wecom.SECRET)
    key = oracle.ask("discord", seed=test_interactions.SEED, timestamp="0", body="")["key"]
    server = make_bellhop(ALL.format(
        bot_token=test_interactions.BOT_TOKEN, discord=sim.url, key=key, sid=test_twilio.SID, auth=test_twilio.AUTH,
        twilio=twilio.url, corp=test_wecom.CORP, secret=test_wecom.SECRET, token=test_wecom.TOKEN, aes=test_wecom.KEY,
        wecom=wecom.url))
    credential = server.add(platform="discord", bot="900")
    for platform, bot in (("twilio", "+15550100"), ("wecom", "1000002")):
        server.cli("route", "add", "--platform", platform, "--key", bot, "--tenant", "t", "--open")
    tap = Tap(dial, server, credential)
    g = tap.gateway

    e = test_interactions.Edge.__new__(test_interactions.Edge)
    e.oracle, e.sim, e.n, e.server = oracle, sim, 0, server
    t = test_twilio.Rig.__new__(test_twilio.Rig)
    t.oracle, t.n, t.bot, t.public, t.server = oracle, 0, "+15550100", "https://relay.example.org", server
    w = test_wecom.Rig.__new__(test_wecom.Rig)
    w.oracle, w.sim, w.server = oracle, wecom, server

    assert e.interact(nested={"deep": [{"token": "another-planted-token"}]}).status == 200
    assert t.say("sms").status == 200
    assert w.say("wecom").status == 200
    g.next("passthrough_forward")
    for _ in range(2):
        g.next("inbound")
    results = [g.act(op="send", chat_id=chat, content="x", reply_to=None, metadata={})
               for chat in (test_interactions.GENERAL, test_twilio.ANN, "ann")]
    assert all(r["success"] for r in results)
    # everything that can go wrong, and what is said about it
    del sim.hooks[test_interactions.TOKEN]
    g.act(op="follow_up", session_key=RELAY_KEY, kind=test_interactions.KIND, content="x", metadata={})
    twilio.trouble(401, {"code": 20003, "message": f"bad {test_twilio.AUTH}"})
    wecom.trouble(200, {"errcode": 60020, "errmsg": f"not allowed {wecom.tokens[-1]}"})
    for chat in (test_twilio.ANN, "ann"):
        g.act(op="send", chat_id=chat, content="y", reply_to=None, metadata={})
    e.post(b"{}", {}), t.post(t.params("x"), "A" * 28), w.post("AAAA", {})
    e.interact(token=test_interactions.TOKEN + "z")
    g.next("passthrough_forward")

    secrets = [test_interactions.TOKEN, test_interactions.BOT_TOKEN, "another-planted-token", test_twilio.AUTH,
               test_wecom.SECRET, test_wecom.TOKEN, test_wecom.KEY, "access-token-", credential.secret]
    secrets += [base64.b64encode(s.encode()).decode().rstrip("=")[:-2] for s in secrets]
    places = {
        "frames": "".join(tap.bytes), "log": server.log(), "metrics": server.get("/metrics").text,
        "status": server.cli("status", "--json").stdout, "mailbox": server.cli("mailbox", "list", "--json").stdout,
        "gateways": server.cli("gateway", "list", "--json").stdout, "doctor": server.cli("doctor", check=False).stdout,
    }
    for file in server.state.rglob("*"):
        if file.is_file():
            places[file.name] = file.read_bytes().decode("latin-1")
    leaks = [(name, secret) for name, text in places.items() for secret in secrets if secret in text]
    assert leaks == []
    assert places["frames"] and places["bellhop.db"]
    twilio.close()
    wecom.close()

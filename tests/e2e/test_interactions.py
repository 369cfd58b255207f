"""Discord interactions at the edge: proven, stripped of their token, forwarded, and answered through it."""
import base64
import json
import pathlib
import sys
import time

import pytest

from conftest import wait_for
from oracle import b64, oracle  # noqa: F401 - a fixture
from relay import http

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from discord import ANN, DM, GENERAL, GUILD, THREAD, DiscordSim  # noqa: E402

BOT_TOKEN = "MTIz.secret-token.of-the-bot"
SEED = "11" * 32
TOKEN = "aW50ZXJhY3Rpb24tdG9rZW4tcGxhbnRlZA"
KIND = "discord.interaction_token"
NOT_HEARD = "this message was not delivered to this agent, or too long ago"

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: discord, bot: "900", token: "{token}", api_base: "{api}", public_key: "{key}"{more}}}}}
"""


@pytest.fixture
def sim():
    s = DiscordSim(BOT_TOKEN)
    yield s
    s.close()
    assert s.violations == []


class Edge:
    """A bellhop with one Discord application, and Discord's side of its webhooks."""

    def __init__(self, oracle, sim, make_bellhop, dial, more=""):  # noqa: F811
        self.oracle, self.sim, self.n = oracle, sim, 0
        key = oracle.ask("discord", seed=SEED, timestamp="0", body="")["key"]
        self.server = make_bellhop(CONFIG.format(token=BOT_TOKEN, api=sim.url, key=key, more=more))
        self.credential = self.server.add(platform="discord", bot="900")
        self.dial = lambda credential=None, **m: dial(self.server, credential or self.credential,
                                                      hello=("discord", "900"), **m)
        self.gateway = self.dial()
        wait_for(lambda: sim.live())  # what is said before goes to nobody

    def sign(self, body, timestamp=None, seed=SEED):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        timestamp = str(int(time.time())) if timestamp is None else timestamp
        signed = self.oracle.ask("discord", seed=seed, timestamp=timestamp, body=b64(body))
        return body, {"X-Signature-Timestamp": timestamp, "X-Signature-Ed25519": signed["signature"],
                      "Content-Type": "application/json"}

    def post(self, body, headers, bot="900"):
        return raw("POST", f"{self.server.url}/webhooks/discord/{bot}", body, headers)

    def interact(self, kind=2, token=TOKEN, **more):
        """What Discord sends; returns its answer."""
        self.n += 1
        self.sim.interaction(token)
        body = {"id": str(990000000000000000 + self.n), "application_id": "900", "type": kind, "token": token,
                "version": 1, "channel_id": GENERAL, "guild_id": GUILD, "channel": {"id": GENERAL, "type": 0},
                "member": {"user": {"id": ANN, "username": "ann"}, "nick": "Annie"}, "data": {"name": "ask"}, **more}
        body = {k: v for k, v in body.items() if v is not None}
        return self.post(*self.sign(body))


def raw(method, url, body, headers):
    """Like http(), for bytes."""
    import urllib.error
    import urllib.request
    from relay import Answer
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=10) as a:
            return Answer(a.status, a.headers, a.read())
    except urllib.error.HTTPError as e:
        with e:
            return Answer(e.code, e.headers, e.read())


@pytest.fixture
def edge(oracle, sim, make_bellhop, dial):  # noqa: F811
    e = Edge(oracle, sim, make_bellhop, dial)
    yield e
    assert TOKEN not in e.server.log() and BOT_TOKEN not in e.server.log()


def forwarded(gateway):
    frame = gateway.next("passthrough_forward")
    assert TOKEN not in json.dumps(frame)
    forward = frame["forward"]
    return forward, json.loads(base64.b64decode(forward["bodyB64"], validate=True))


def send(gateway, content, chat=GENERAL, reply_to=None, **more):
    return gateway.act(op="send", chat_id=chat, content=content, reply_to=reply_to, metadata={}, **more)


def follow_up(gateway, content, key, kind=KIND):
    return gateway.act(op="follow_up", session_key=key, kind=kind, content=content, metadata={})


RELAY_KEY = f"agent:main:relay:channel:{GENERAL}:{ANN}"
DISCORD_KEY = f"agent:main:discord:group:{GENERAL}:{ANN}"


# ---- in ----


def test_ping_and_autocomplete_are_answered_at_the_edge(edge):
    assert edge.interact(1).json == {"type": 1}
    assert edge.interact(4).json == {"type": 8, "data": {"choices": []}}
    assert edge.gateway.quiet("passthrough_forward")


def test_a_command_is_forwarded_without_its_token(edge):
    answer = edge.interact(data={"name": "ask", "options": [{"name": "what", "type": 3, "value": f"is {TOKEN} safe"}]},
                           message={"interaction": {"token": "a nested token"}, "url": f"https://x/{TOKEN}/y"})
    assert (answer.status, answer.json) == (200, {"type": 5})
    forward, body = forwarded(edge.gateway)
    assert (forward["platform"], forward["botId"], forward["method"]) == ("discord", "900", "POST")
    assert forward["headers"] == [["content-type", "application/json"]]
    assert "token" not in body and body["message"] == {"interaction": {}, "url": ""}
    assert body["data"]["options"][0]["value"] == ""
    assert (body["channel_id"], body["member"]["user"]["id"], body["data"]["name"]) == (GENERAL, ANN, "ask")
    assert "nested" not in json.dumps(body)


def test_the_answer_comes_in_time_while_the_gateway_sleeps(edge):
    edge.interact()
    forwarded(edge.gateway)
    edge.gateway.sleep()
    began = time.monotonic()
    assert edge.interact(token=TOKEN + "2").json == {"type": 5}
    assert time.monotonic() - began < 1
    awake = edge.dial()
    assert forwarded(awake)[1]["data"]["name"] == "ask"
    assert send(awake, "good morning")["success"]
    assert edge.sim.hooks[TOKEN]["original"] == "good morning"  # the older one first
    assert send(awake, "and again")["success"]
    assert edge.sim.hooks[TOKEN + "2"]["original"] == "and again"


def test_a_button_is_acknowledged_and_keeps_its_message(edge):
    assert edge.interact(3, data={"custom_id": "yes", "component_type": 2}).json == {"type": 6}
    forwarded(edge.gateway)
    assert send(edge.gateway, "noted")["success"]
    assert edge.sim.texts(GENERAL) == ["noted"] and edge.sim.hooks[TOKEN]["edits"] == 0
    assert follow_up(edge.gateway, "more", RELAY_KEY)["success"]
    assert edge.sim.hooks[TOKEN] == {"original": None, "edits": 0, "follow_ups": ["more"]}


@pytest.mark.parametrize("key", [RELAY_KEY, DISCORD_KEY, RELAY_KEY.rsplit(":", 1)[0], DISCORD_KEY.rsplit(":", 1)[0],
                                 RELAY_KEY.replace("agent:main", "agent:work")])
def test_a_gateway_may_name_the_session_as_it_knows_it(edge, key):
    edge.interact()
    forwarded(edge.gateway)
    assert follow_up(edge.gateway, "forty-two", key)["success"]
    assert edge.sim.hooks[TOKEN]["original"] == "forty-two"
    edge.sim.say(GENERAL, "hello")
    edge.gateway.hear("hello")
    edge.gateway.send({"type": "interrupt", "session_key": key, "reason": "a newer task"})
    frames = [edge.gateway.next("interrupt_inbound")]
    if ":work:" in key:  # released gateways know their turns without the profile
        frames.append(edge.gateway.next("interrupt_inbound"))
    assert key in [f["session_key"] for f in frames]
    assert all((f["chat_id"], f["reason"]) == (GENERAL, "a newer task") for f in frames)


def test_the_same_interaction_twice_is_one_delivery(edge):
    body = {"id": "990000000000009999", "type": 2, "token": TOKEN, "channel_id": GENERAL, "guild_id": GUILD,
            "member": {"user": {"id": ANN}}, "data": {"name": "ask"}}
    request = edge.sign(body)
    edge.sim.interaction(TOKEN)
    assert edge.post(*request).json == edge.post(*request).json == {"type": 5}
    forwarded(edge.gateway)
    assert edge.gateway.quiet("passthrough_forward")
    assert send(edge.gateway, "one")["success"]
    assert edge.post(*request).status == 200
    assert send(edge.gateway, "two")["success"]  # the token does not come to life again
    assert edge.sim.hooks[TOKEN]["original"] == "one" and edge.sim.texts(GENERAL) == ["two"]


def test_stop_interrupts_both_sessions_of_the_person(edge):
    edge.interact(channel={"id": GENERAL, "type": 0})
    forwarded(edge.gateway)
    answer = edge.interact(data={"name": "stop"}, token=TOKEN + "s")
    assert answer.json["type"] == 4 and answer.json["data"]["flags"] == 64
    keys = {edge.gateway.next("interrupt_inbound")["session_key"] for _ in range(4)}
    shared = {key.rsplit(":", 1)[0] for key in (RELAY_KEY, DISCORD_KEY)}  # of gateways with one session per group
    assert keys == {RELAY_KEY, DISCORD_KEY} | shared
    edge.gateway.hear("/stop")
    assert edge.gateway.quiet("passthrough_forward") and edge.gateway.quiet("inbound")


def test_nobody_routed_is_said_and_not_left_thinking(oracle, sim, make_bellhop):  # noqa: F811
    key = oracle.ask("discord", seed=SEED, timestamp="0", body="")["key"]
    e = Edge.__new__(Edge)
    e.oracle, e.sim, e.n = oracle, sim, 0
    e.server = make_bellhop(CONFIG.format(token=BOT_TOKEN, api=sim.url, key=key, more=""))
    answer = e.interact().json
    assert answer["type"] == 4 and answer["data"]["flags"] == 64


def test_a_command_counts_as_a_turn(edge):
    edge.server.cli("allowance", "--instance", edge.credential.id, "--turns", "1/day")
    edge.interact()
    forwarded(edge.gateway)
    edge.interact(token=TOKEN + "2")
    wait_for(lambda: any("used up" in text for text in edge.sim.texts(GENERAL)))
    assert edge.gateway.quiet("passthrough_forward", 1)


def test_link_works_as_a_command(oracle, sim, make_bellhop, dial):  # noqa: F811
    e = Edge(oracle, sim, make_bellhop, dial)
    mine = e.server.add("--id", "mine", tenant="mine", platform=None)
    code = e.server.cli("link", "--instance", "mine").stdout.split()[0]
    answer = e.interact(data={"name": "link", "options": [{"name": "code", "type": 3, "value": code}]})
    assert answer.json["type"] == 4 and answer.json["data"]["flags"] == 64
    wait_for(lambda: sim.texts(GENERAL))
    assert sim.texts(GENERAL)[0].startswith("Linked.")
    e.interact(token=TOKEN + "l")  # Ann's own agent comes first now
    gateway = dial(e.server, mine, hello=("discord", "900"))
    assert forwarded(gateway)[1]["data"]["name"] == "ask"
    assert e.gateway.quiet("passthrough_forward")


def test_inbound_interactions_are_ordinary_events(oracle, sim, make_bellhop, dial):  # noqa: F811
    e = Edge(oracle, sim, make_bellhop, dial, more=", interactions: inbound")
    options = [{"name": "install", "type": 1, "options": [{"name": "which", "type": 3, "value": " notes "},
                                                         {"name": "force", "type": 5, "value": True}]}]
    assert e.interact(data={"name": "skills", "options": options}).json == {"type": 5}
    event = e.gateway.hear("/skills install notes True")["event"]
    source = event["source"]
    assert event["message_type"] == "command"
    assert (source["platform"], source["chat_id"], source["chat_type"], source["guild_id"], source["user_id"]) == \
        ("discord", GENERAL, "group", GUILD, ANN)
    assert TOKEN not in json.dumps(event)
    assert send(e.gateway, "installed")["success"]
    assert sim.hooks[TOKEN]["original"] == "installed" and sim.texts(GENERAL) == []
    e.interact(token=TOKEN + "t", channel_id=THREAD, channel={"id": THREAD, "type": 11, "parent_id": GENERAL})
    source = e.gateway.hear("/ask")["event"]["source"]
    assert (source["chat_id"], source["thread_id"], source["parent_chat_id"], source["chat_type"]) == \
        (THREAD, THREAD, GENERAL, "thread")


# ---- out ----


def test_the_next_send_becomes_the_answer(edge):
    edge.interact()
    forwarded(edge.gateway)
    result = send(edge.gateway, "forty-two")
    assert result["success"] and result["message_id"]
    assert edge.sim.hooks[TOKEN] == {"original": "forty-two", "edits": 1, "follow_ups": [], "files": []}
    assert send(edge.gateway, "by the way")["success"]
    assert edge.sim.texts(GENERAL) == ["by the way"]


def test_a_long_answer_is_split_behind_the_first_part(edge):
    edge.interact()
    forwarded(edge.gateway)
    assert send(edge.gateway, "a" * 1999 + " " + "b" * 1999 + " c")["success"]
    used = edge.sim.hooks[TOKEN]
    assert used["original"] == "a" * 1999 and used["follow_ups"] == ["b" * 1999 + "c"] or \
        used["follow_ups"] == ["b" * 1999, "c"]
    assert edge.sim.texts(GENERAL) == []


def test_another_channel_or_a_used_token_goes_the_ordinary_way(edge):
    edge.sim.say(DM, "hi")
    edge.gateway.hear("hi")
    edge.interact()
    forwarded(edge.gateway)
    assert send(edge.gateway, "in the dm", chat=DM)["success"]
    assert edge.sim.texts(DM) == ["in the dm"] and edge.sim.hooks[TOKEN]["edits"] == 0


@pytest.mark.parametrize("mode", ["passthrough", "inbound"])
def test_a_command_is_no_message_to_react_to(oracle, sim, make_bellhop, dial, mode):  # noqa: F811
    """Hermes reacts to the id of every command, which Discord knows as no message."""
    e = Edge(oracle, sim, make_bellhop, dial, more=f", interactions: {mode}")
    e.interact()
    if mode == "inbound":
        id = e.gateway.hear("/ask")["event"]["message_id"]
    else:
        id = forwarded(e.gateway)[1]["id"]
    for remove in (False, True):
        result = e.gateway.act(op="react", chat_id=GENERAL, message_id=id, emoji="\U0001f440", remove=remove, metadata={})
        assert result == {"success": False, "error": NOT_HEARD}
    result = e.gateway.act(op="thread_create", chat_id=GENERAL, message_id=id, thread_name="x", metadata={})
    assert result == {"success": False, "error": NOT_HEARD}
    assert not [path for _, path, *_ in sim.calls if id in path and not path.startswith("/interactions/")]
    answer = send(e.gateway, "forty-two", reply_to=id)
    assert answer["success"] and sim.hooks[TOKEN]["original"] == "forty-two"
    assert send(e.gateway, "by the way", reply_to=id)["success"] and sim.texts(GENERAL) == ["by the way"]
    said = sim.say(GENERAL, "a message")["id"]
    e.gateway.hear("a message")
    assert e.gateway.act(op="react", chat_id=GENERAL, message_id=said, emoji="\U0001f440", metadata={})["success"]


@pytest.mark.parametrize("mode", ["passthrough", "inbound"])
def test_no_thread_is_opened_under_a_command(oracle, sim, make_bellhop, dial, mode):  # noqa: F811
    e = Edge(oracle, sim, make_bellhop, dial, more=f", interactions: {mode}, auto_thread: true")
    sim.say(GENERAL, "a message")
    e.gateway.hear("a message")
    e.interact()
    id = e.gateway.hear("/ask")["event"]["message_id"] if mode == "inbound" else forwarded(e.gateway)[1]["id"]
    for text in ("one", "two", "three"):
        assert send(e.gateway, text, reply_to=id)["success"]
    assert send(e.gateway, "four")["success"]
    assert sim.hooks[TOKEN]["original"] == "one" and sim.texts(GENERAL) == ["two", "three", "four"]
    assert not [path for _, path, *_ in sim.calls if path.startswith("/channels/") and id in path]
    if mode == "passthrough":
        return
    e.interact(token=TOKEN + "t", channel_id=THREAD, channel={"id": THREAD, "type": 11, "parent_id": GENERAL})
    event = e.gateway.hear("/ask")["event"]
    assert (event["source"]["chat_id"], event["source"]["thread_id"]) == (GENERAL, THREAD)
    for metadata in ({"thread_id": THREAD}, {"thread_id": THREAD}, {}):  # the first one answers the command
        assert e.gateway.act(op="send", chat_id=GENERAL, content="inside", reply_to=event["message_id"], metadata=metadata)["success"]
    assert sim.hooks[TOKEN + "t"]["original"] == "inside" and sim.texts(THREAD) == ["inside", "inside"]
    assert sim.texts(GENERAL) == ["two", "three", "four"]


@pytest.mark.parametrize("mode", ["passthrough", "inbound"])
def test_a_restart_forgets_no_command(oracle, sim, make_bellhop, dial, mode):  # noqa: F811
    e = Edge(oracle, sim, make_bellhop, dial, more=f", interactions: {mode}, auto_thread: true")
    sim.say(GENERAL, "a message")
    e.gateway.hear("a message")
    e.interact()
    id = e.gateway.hear("/ask")["event"]["message_id"] if mode == "inbound" else forwarded(e.gateway)[1]["id"]
    assert send(e.gateway, "one", reply_to=id)["success"]
    e.interact(token=TOKEN + "t", channel_id=THREAD, channel={"id": THREAD, "type": 11, "parent_id": GENERAL})
    if mode == "inbound":
        inside = e.gateway.hear("/ask")["event"]["message_id"]
        assert e.gateway.act(op="send", chat_id=GENERAL, content="inside", reply_to=inside, metadata={"thread_id": THREAD})["success"]
    e.server.restart()
    gateway = e.dial()
    for n, text in enumerate(("two", "three", "four")):
        assert send(gateway, text, reply_to=id)["success"], text
        if n == 0:
            wait_for(lambda: sim.live())
    assert send(gateway, "five")["success"]
    assert sim.texts(GENERAL) == ["two", "three", "four", "five"]
    assert not [path for _, path, *_ in sim.calls if path.startswith("/channels/") and id in path]
    if mode == "inbound":  # the thread may be a private one
        assert "name its thread" in send(gateway, "a secret", reply_to=inside)["error"]
        assert sim.texts(GENERAL) == ["two", "three", "four", "five"]


def test_follow_up_edits_first_and_posts_then(edge):
    edge.interact()
    forwarded(edge.gateway)
    assert follow_up(edge.gateway, "one", RELAY_KEY)["message_id"]
    assert follow_up(edge.gateway, "two", DISCORD_KEY)["success"]
    assert follow_up(edge.gateway, "x" * 2500, RELAY_KEY)["success"]
    used = edge.sim.hooks[TOKEN]
    assert used["original"] == "one" and used["follow_ups"] == ["two", "x" * 2000, "x" * 500]


def test_a_capability_that_is_not_there_tells_nothing(edge, dial):
    edge.interact()
    forwarded(edge.gateway)
    other = edge.server.add(tenant="other", platform="discord", bot="901")
    stranger = dial(edge.server, other, hello=("discord", "900"))
    answers = [follow_up(stranger, "x", RELAY_KEY), follow_up(stranger, "x", DISCORD_KEY),
               follow_up(edge.gateway, "x", "agent:main:relay:channel:1:2"),
               follow_up(edge.gateway, "x", RELAY_KEY, kind="discord.other")]
    assert all(a == {"success": False, "error": "capability not available"} for a in answers), answers
    assert edge.sim.hooks[TOKEN]["edits"] == 0


def test_a_token_survives_a_restart(edge):
    edge.interact()
    forwarded(edge.gateway)
    edge.gateway.sleep()
    edge.server.restart()
    gateway = edge.dial()
    assert follow_up(gateway, "still here", RELAY_KEY)["success"]
    assert edge.sim.hooks[TOKEN]["original"] == "still here"


def test_revocation_wipes_the_tokens(edge):
    edge.interact()
    forwarded(edge.gateway)
    second = edge.server.add("--id", "second", platform=None)
    edge.server.cli("gateway", "revoke", edge.credential.id)
    wait_for(lambda: "capabilities wiped" in edge.server.log())
    gateway = edge.dial(second)
    assert follow_up(gateway, "x", RELAY_KEY) == {"success": False, "error": "capability not available"}


def test_a_token_discord_has_forgotten_does_not_lose_the_answer(edge):
    edge.interact()
    forwarded(edge.gateway)
    del edge.sim.hooks[TOKEN]
    assert send(edge.gateway, "anyway")["success"]
    assert edge.sim.texts(GENERAL) == ["anyway"]
    edge.interact(token=TOKEN + "x")
    forwarded(edge.gateway)
    del edge.sim.hooks[TOKEN + "x"]
    assert follow_up(edge.gateway, "x", RELAY_KEY)["error"] == "capability not available"
    assert send(edge.gateway, "the bot still works")["success"]  # its own token was not doubted


# ---- leaks ----


def test_the_token_is_nowhere_it_should_not_be(edge):
    edge.interact()
    forwarded(edge.gateway)
    edge.gateway.sleep()
    edge.interact(token=TOKEN + "b")
    server = edge.server
    shown = server.cli("status", "--json").stdout + server.cli("mailbox", "list", "--json").stdout + \
        server.get("/metrics").text + server.log()
    for file in server.state.rglob("*"):
        if file.is_file():
            shown += file.read_bytes().decode("latin-1")
    assert TOKEN not in shown and base64.b64encode(TOKEN.encode()).decode()[:-4] not in shown


# ---- forgeries ----


def test_forgeries_all_look_alike(edge):
    good = {"id": "1", "type": 1}
    body, headers = edge.sign(good)
    old = str(int(time.time()) - 400)
    attempts = [
        edge.post(body + b" ", headers), edge.post(body, {}), edge.post(body, headers, bot="nobody"),
        edge.post(*edge.sign(good, seed="22" * 32)), edge.post(*edge.sign(good, timestamp=old)),
        edge.post(body, {**headers, "X-Signature-Timestamp": old}),
        raw("GET", f"{edge.server.url}/webhooks/discord/900", None, headers),
    ]
    assert {a.status for a in attempts} == {401}
    assert len({a.text for a in attempts}) == 1
    assert edge.post(body, headers).status == 200


def test_what_is_signed_but_makes_no_sense_is_refused(edge):
    for body in (b"[]", b"nonsense", b"{}", b'{"type":99}', b'{"type":"2"}', b"\xff\xfe", b"[" * 500):
        assert edge.post(*edge.sign(body)).status == 400
    assert http("GET", edge.server.url + "/healthz").status == 200

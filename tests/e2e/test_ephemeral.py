"""serve --ephemeral, say and expect: a connector to test gateways against, with the real engine behind it."""
import json
import os
import pathlib
import subprocess
import sys
import time
from signal import SIGKILL, SIGTERM

import pytest

from conftest import PROGRAM, ROOT, wait_for
from relay import Gateway, http

KEYS = ["url", "control", "tenant", "instance", "gateway_id", "secret", "key"]


class Ephemeral:
    def __init__(self, **env):
        self.process = subprocess.Popen([PROGRAM, "serve", "--ephemeral"], text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**os.environ, **env}, cwd="/")
        self.line = json.loads(self.process.stdout.readline())
        self.url, self.control = self.line["url"], self.line["control"]
        self.dir = pathlib.Path(self.control).parent
        self.env = {**os.environ, "GATEWAY_RELAY_URL": self.url, "GATEWAY_RELAY_ID": self.line["gateway_id"],
                    "GATEWAY_RELAY_SECRET": self.line["secret"]}

    def run(self, command, *words, input=None):
        done = subprocess.run([PROGRAM, command, "--control", self.control, *words], text=True, capture_output=True, input=input,
                              timeout=60)
        assert "Sanitizer" not in done.stderr, done.stderr
        return done

    def say(self, *words, **more):
        done = self.run("say", *words, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def event(self, event, *words):
        return self.say("--event", "-", *words, input=json.dumps(event))

    def expect(self, *words):
        done = self.run("expect", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def cli(self, *words):
        done = subprocess.run([PROGRAM, *words, "--state-dir", self.dir], text=True, capture_output=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def dial(self, **more):
        return Gateway(self.url, self.line["gateway_id"], self.line["secret"], **{"hello": ("relay", ""), **more})

    def end(self, number=SIGTERM):
        self.process.send_signal(number)
        rest, log = self.process.communicate(timeout=30)
        assert rest == "" and "Sanitizer" not in log, log
        return self.process.returncode


@pytest.fixture
def ephemeral():
    made = []

    def make(**env):
        made.append(Ephemeral(**env))
        return made[-1]

    yield make
    for e in made:
        if e.process.returncode is None:
            assert e.end() == 0


def test_it_prints_one_line_and_leaves_nothing_behind_however_it_ends(ephemeral):
    for number in (SIGTERM, SIGKILL):
        e = ephemeral()
        assert list(e.line) == KEYS and all(e.line.values()) and e.url.startswith("http://127.0.0.1:")
        assert e.dir.is_dir() and str(e.dir).startswith(("/dev/shm/", "/tmp/"))
        e.say("kept for nobody")
        assert e.end(number) == (0 if number == SIGTERM else -SIGKILL)
        wait_for(lambda: not e.dir.exists())


def test_it_is_refused_together_with_a_configuration():
    done = subprocess.run([PROGRAM, "serve", "--ephemeral", "--state-dir", "/tmp/x"], text=True, capture_output=True)
    assert done.returncode == 2 and "state directory of its own" in done.stderr


def test_the_defaults_reach_the_printed_instance_and_its_answer_is_seen(ephemeral):
    e = ephemeral()
    said = e.say("hello")
    assert said["delivered"] == [{"tenant": e.line["tenant"], "instance": e.line["instance"], "reason": "open"}]
    gateway = e.dial()
    event = gateway.hear("hello")["event"]
    assert event["message_id"] == said["message_id"] and event["source"]["user_id"] == "user1"
    sent = gateway.act(op="send", chat_id=said["chat_id"], content="hi", reply_to=said["message_id"], metadata={})
    assert sent["success"]
    came = e.expect("send")
    assert (came["content"], came["message_id"], came["reply_to"]) == ("hi", sent["message_id"], said["message_id"])
    assert e.expect("ack")["text"] == "hello"
    gateway.sleep()
    assert e.expect("sleep")["instance"] == e.line["instance"]


def test_the_key_is_one_of_the_instance(ephemeral):
    e = ephemeral()
    answer = http("GET", e.url + "/v1/agents", headers={"Authorization": "Bearer " + e.line["key"]})
    assert answer.status == 200, answer.text


def test_each_thing_is_handed_out_once_in_order_and_a_match_passes_over_the_others(ephemeral):
    e = ephemeral()
    chat = e.say("go")["chat_id"]
    gateway = e.dial()
    gateway.hear("go")
    for text in ("one", "two", "three"):
        assert gateway.act(op="send", chat_id=chat, content=text, reply_to=None, metadata={})["success"]
    assert e.expect("send", "--match", "^t")["content"] == "two"
    assert [e.expect("send")["content"] for _ in range(2)] == ["one", "three"]
    begun = time.monotonic()
    none = e.run("expect", "send", "--timeout", "300ms")
    assert none.returncode == 1 and none.stdout == "" and "300 ms" in none.stderr and time.monotonic() - begun < 5
    assert e.run("expect", "send", "--match", "(").returncode == 1
    assert e.run("expect", "nonsense").returncode == 1


def test_expect_waits_for_what_has_not_come_yet(ephemeral):
    e = ephemeral()
    waiting = subprocess.Popen([PROGRAM, "expect", "--control", e.control, "ack", "--timeout", "30s"], text=True,
                               stdout=subprocess.PIPE)
    time.sleep(0.3)
    assert waiting.poll() is None
    e.say("late")
    e.dial().hear("late")
    assert json.loads(waiting.communicate(timeout=30)[0])["text"] == "late"


FULL = {
    "text": "look", "message_type": "photo", "message_id": "m-1", "reply_to_message_id": "m-0",
    "media_urls": ["https://cdn.example/a.png"], "media_types": ["image/png"],
    "media": [{"kind": "image", "mime": "image/png", "size": 3, "filename": "a.png", "caption": "look"}],
    "reply_to": {"is_own": True, "text": "show me", "author": "Bot"},
    "prompt_response": {"prompt_id": "p1", "option_id": "yes", "label": "Yes", "prompt_message_id": "m-0"},
    "bot_id": "app1", "source": {
        "platform": "discord", "chat_id": "c1", "chat_type": "thread", "chat_name": "general", "user_id": "u1", "user_name": "Ann",
        "thread_id": "t1", "chat_topic": "all", "user_id_alt": "ua", "chat_id_alt": "ca", "guild_id": "g1", "scope_id": "g1",
        "parent_chat_id": "p1", "message_id": "m-1", "user_display_name": "Ann", "user_handle": "ann", "prospective_thread_id": "pt",
        "auto_thread_created": True, "auto_thread_initial_name": "name"},
    "dispatch": {"kind": "augment", "skill_name": "s"},
}


def test_any_event_of_the_wire_arrives_as_it_was_said(ephemeral):
    e = ephemeral()
    gateway = e.dial()
    e.event(FULL)
    assert gateway.next("inbound")["event"] == FULL
    e.event({"type": "inbound", "bufferId": "x", "event": {**FULL, "message_id": "m-2"}})  # a whole frame
    assert gateway.next("inbound")["event"]["source"]["chat_id"] == "c1"
    for platform, kind in (("telegram", "forum"), ("slack", "channel"), ("matrix", "group"), ("whatsapp", "dm"), ("web", "dm")):
        said = e.event({"text": platform, "source": {"platform": platform, "chat_id": "c:" + platform, "chat_type": kind,
                                                     "user_id": "@u:x"}})
        assert said["delivered"], said
        source = gateway.hear(platform)["event"]["source"]
        assert (source["platform"], source["chat_type"]) == (platform, kind)
        assert gateway.act(op="send", chat_id="c:" + platform, content="re " + platform, reply_to=None, metadata={})["success"]
        assert e.expect("send")["platform"] == platform


def test_what_is_no_event_is_refused_by_a_sentence(ephemeral):
    e = ephemeral()
    for event, word in (({"text": 1}, "text must be a text"), ({"source": {"chat_id": 5}}, "source.chat_id must be a text"),
                        ({"source": []}, "source must be an object"), ({"media_urls": ["file:///etc/passwd"]}, "media_urls"),
                        ({"text": "x", "source": {"platform": "a b"}}, "a platform is a word")):
        done = e.run("say", "--event", "-", input=json.dumps(event))
        assert done.returncode == 1 and word in done.stderr, (event, done.stderr)
    assert e.run("say", "--event", "-", input="[]").returncode == 1
    assert e.run("say").returncode == 2 and e.run("say", "a", "--event", "-").returncode == 2


def test_a_message_that_the_platform_repeats_is_delivered_once(ephemeral):
    e = ephemeral()
    gateway = e.dial()
    for _ in range(2):
        e.event(FULL)
    gateway.next("inbound")
    assert gateway.quiet()


def test_the_gate_is_the_real_one(ephemeral):
    e = ephemeral()
    gateway = e.dial(hello=("telegram", "tb"))
    answer = http("POST", e.url + "/relay/policy", {"platform": "telegram", "requireAddress": True}, {
        "Authorization": gateway.headers["Authorization"]})
    assert answer.status == 200
    group = {"source": {"chat_id": "-7", "chat_type": "group", "user_id": "9"}}
    refused = e.event({"text": "not to you", **group}, "--unaddressed")
    assert (refused["platform"], refused["bot"]) == ("telegram", "tb"), "the bot that the gateway named"
    assert refused["delivered"] == [] and refused["refused"][0]["reason"] == "not_addressed"
    assert e.event({"text": "@tb hello", **group})["delivered"]
    gateway.hear("@tb hello")
    code = json.loads(e.cli("link", "--tenant", "test", "--instance", "agent", "--platform", "telegram", "--bot", "tb", "--json"))["code"]
    assert e.say("/link " + code, "--user", "9", "--chat", "9")["consumed"] == "/link"
    assert e.event({"text": "an owner needs no address", **group}, "--unaddressed")["delivered"][0]["reason"] == "owner"
    e.say("/stop", "--chat", "-7", "--user", "9")
    gateway.next("interrupt_inbound")


def test_a_gateway_is_heard_only_where_it_may_speak(ephemeral):
    e = ephemeral()
    e.cli("gateway", "add", "--tenant", "other", "--id", "other")
    e.say("mine")
    gateway = e.dial()
    gateway.hear("mine")
    other = e.cli("gateway", "rotate", "other", "--json")
    foreign = Gateway(e.url, "other", json.loads(other)["secret"], hello=("discord", "bot"))
    refused = foreign.act(op="send", chat_id="chat1", content="psst", reply_to=None, metadata={})
    assert not refused["success"] and refused["error"].startswith("target not routed")
    assert e.run("expect", "send", "--timeout", "100ms").returncode == 1


def test_files_are_fetched_before_the_bot_sends_them(ephemeral):
    e = ephemeral()
    e.say("a picture please")
    gateway = e.dial()
    gateway.hear("a picture please")
    headers = {"Authorization": gateway.headers["Authorization"], "Content-Type": "image/png", "X-Media-Filename": "a.png"}
    file = http("POST", e.url + "/relay/media", b"\x89PNG\r\n\x1a\n", headers).json
    send = dict(op="send_media", chat_id="chat1", media_kind="image", content="here", reply_to=None, metadata={})
    assert gateway.act(source_url=f"{e.url}/relay/media/{file['id']}", filename="a.png", **send)["success"]
    assert e.expect("send_media", "--match", "here")["media_kind"] == "image"
    assert not gateway.act(source_url=f"{e.url}/relay/media/{'0' * len(file['id'])}", **send)["success"]


def test_a_server_with_real_bots_lets_nobody_play_a_person(bellhop):
    for words in (("say", "hello"), ("expect", "send")):
        done = subprocess.run([PROGRAM, words[0], "--control", bellhop.state, *words[1:]], text=True, capture_output=True)
        assert done.returncode == 1 and "serve --ephemeral" in done.stderr


def test_the_example_for_strangers_passes():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "examples" / "gateway-test"], text=True,
                          capture_output=True, env={**os.environ, "BELLHOP": str(PROGRAM)}, timeout=120)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr

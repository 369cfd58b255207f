"""How to test a gateway with pytest: bellhop itself is the connector, the test is the person.

    BELLHOP=/usr/bin/bellhop pytest test_gateway.py

Copy this file, put the command of your gateway into GATEWAY, and write your own tests below the line.
"""
import json
import os
import pathlib
import subprocess
import sys

import pytest

BELLHOP = os.environ.get("BELLHOP", "bellhop")
GATEWAY = [sys.executable, str(pathlib.Path(__file__).with_name("echo_gateway.py"))]


class Connector:
    """bellhop on a free port, in memory. It goes with the test."""

    def __init__(self):
        self.process = subprocess.Popen([BELLHOP, "serve", "--ephemeral"], stdout=subprocess.PIPE, text=True)
        self.line = json.loads(self.process.stdout.readline())
        self.env = {**os.environ, "GATEWAY_RELAY_URL": self.line["url"], "GATEWAY_RELAY_ID": self.line["gateway_id"],
                    "GATEWAY_RELAY_SECRET": self.line["secret"]}

    def ask(self, *words):
        command, *rest = words
        return subprocess.run([BELLHOP, command, "--control", self.line["control"], *rest], capture_output=True, text=True)

    def say(self, *words):
        """A person writes; returns the ids of the message."""
        done = self.ask("say", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def expect(self, *words):
        """What the gateway did; fails when nothing of that kind came in time."""
        done = self.ask("expect", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def connector():
    connector = Connector()
    yield connector
    connector.stop()


@pytest.fixture
def gateway(connector):
    process = subprocess.Popen(GATEWAY, env=connector.env)
    yield process
    process.terminate()
    process.wait(20)


# ---- your tests ----


def test_it_answers_and_then_acks(connector, gateway):
    asked = connector.say("hello")
    answer = connector.expect("send")
    assert answer["content"] == "echo: hello" and answer["reply_to"] == asked["message_id"]
    assert connector.expect("ack")["message_id"] == asked["message_id"]


def test_it_answers_in_the_thread_where_it_was_asked(connector, gateway, tmp_path):
    (tmp_path / "event.json").write_text(json.dumps({
        "text": "hello", "message_id": "900", "source": {
            "platform": "slack", "chat_id": "C1", "chat_type": "channel", "user_id": "U1", "user_name": "Ann", "thread_id": "17.5",
            "scope_id": "T1"}}))
    connector.say("--event", str(tmp_path / "event.json"))
    assert connector.expect("send", "--match", "hello")["thread_id"] == "17.5"


def test_what_was_written_while_it_was_away_is_answered_in_order(connector, gateway):
    connector.say("one")
    connector.expect("ack", "--match", "^one$")
    gateway.terminate()
    connector.expect("sleep")
    gateway.wait(20)
    connector.say("two")
    connector.say("three", "--user", "user2")
    again = subprocess.Popen(GATEWAY, env=connector.env)
    assert [connector.expect("send")["content"] for _ in range(3)] == ["echo: one", "echo: two", "echo: three"]
    again.terminate()
    again.wait(20)

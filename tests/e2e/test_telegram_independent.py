"""Telegram against a server somebody else wrote: the npm package telegram-test-api (./dev test installs it)."""
import shutil
import socket
import subprocess

import pytest

from conftest import ROOT, wait_for
from relay import http

TOKEN = "12345:independent-token"
PACKAGES = ROOT / "build" / "npm" / "node_modules"

START = """
const TelegramServer = require('telegram-test-api');
const server = new TelegramServer({ host: '127.0.0.1', port: Number(process.argv[1]), storeTimeout: 600 });
server.start().then(() => console.log('ready'));
"""

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: telegram, bot: TestNameBot, token: "{token}", api_base: "{api}"}}}}
"""


class Independent:
    def __init__(self):
        assert (PACKAGES / "telegram-test-api").is_dir(), "run ./dev test, or: npm install --prefix build/npm telegram-test-api"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([shutil.which("node"), "-e", START, str(port)], cwd=PACKAGES.parent, text=True,
                                        stdout=subprocess.PIPE)
        assert self.process.stdout.readline().strip() == "ready"

    def say(self, text, chat=1, **more):
        person = {"id": chat, "first_name": "Ann", "username": "annlee", "is_bot": False}
        message = {"botToken": TOKEN, "date": 1, "from": person, "chat": {**person, "type": "private"}, "text": text}
        assert http("POST", self.url + "/sendMessage", {**message, **more}).status == 200

    def sent(self, chat=1):
        """What the bot wrote there, from the beginning."""
        history = http("POST", self.url + "/getUpdatesHistory", {"token": TOKEN}).json["result"]
        return [u for u in history if "chat_id" in u["message"] and str(u["message"]["chat_id"]) == str(chat)]

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture
def telegram():
    server = Independent()
    yield server
    server.close()


@pytest.fixture
def rig(telegram, make_bellhop, dial):
    server = make_bellhop(CONFIG.format(token=TOKEN, api=telegram.url))
    credential = server.add(platform="telegram", bot="TestNameBot")

    def connect():
        return dial(server, credential, hello=("telegram", "TestNameBot"))

    return telegram, server, connect, credential


def test_a_conversation(rig):
    telegram, _, connect, _ = rig
    gateway = connect()
    telegram.say("hello")
    event = gateway.hear("hello")["event"]
    assert event["source"]["user_name"] == "Ann" and event["source"]["chat_id"] == "1"
    result = gateway.act(op="send", chat_id="1", content="**bold** 1 < 2.", reply_to=event["message_id"], metadata={})
    assert result["success"], result
    message, = telegram.sent()
    assert result["message_id"] == str(message["messageId"])
    assert message["message"]["text"] == "bold 1 < 2."
    assert message["message"]["entities"] == [{"type": "bold", "offset": 0, "length": 4}]
    edit = gateway.act(op="edit", chat_id="1", message_id=result["message_id"], content="changed", metadata={})
    assert edit["success"], edit
    assert telegram.sent()[0]["message"]["text"] == "changed"


def test_commands_and_order(rig):
    telegram, _, connect, _ = rig
    gateway = connect()
    telegram.say("/start@TestNameBot now", entities=[{"type": "bot_command", "offset": 0, "length": 18}])
    assert gateway.hear("/start now")["event"]["message_type"] == "command"
    sent = [f"m{i}" for i in range(30)]
    for text in sent:
        telegram.say(text)
    wait_for(lambda: gateway.seen[1:] == sent)


def test_asleep_and_across_a_restart(rig):
    telegram, server, connect, credential = rig
    gateway = connect()
    telegram.say("one")
    gateway.hear("one")
    gateway.sleep()
    telegram.say("two")
    wait_for(lambda: server.instance(credential.id)["entries"] == 1)
    server.restart()
    telegram.say("three")
    gateway = connect()
    gateway.hear("two")
    chat = gateway.hear("three")["event"]["source"]["chat_id"]
    assert gateway.act(op="send", chat_id=chat, content="here again", metadata={})["success"]
    assert [m["message"]["text"] for m in telegram.sent()] == ["here again"]
    assert gateway.quiet()

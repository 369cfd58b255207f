"""What the end-to-end tests hold in their hands: the real program on a free port, and gateways that dial it.

BELLHOP_BUILD names the build directory (default build/asan). Every server gets its own state directory and
port, so tests run side by side.
"""
import http.client as http_client
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import types
from signal import SIGKILL, SIGTERM

import pytest

from relay import Gateway, http, mint

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BELLHOP_BUILD", ROOT / "build" / "asan"))
PROGRAM = BUILD / "bellhop"

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {state}
wake: {{cooldown: 300ms, timeout: 2s, allow_private: true}}
log: {{level: debug}}
platforms:
  - {{platform: web, bot: lobby}}
  - {{platform: web, bot: attic}}
"""


class Credential:
    def __init__(self, text):
        lines = dict(line.split("=", 1) for line in text.splitlines())
        assert list(lines) == ["GATEWAY_RELAY_URL", "GATEWAY_RELAY_ID", "GATEWAY_RELAY_SECRET"], text
        self.url, self.id, self.secret = lines.values()

    def token(self, ttl=300, **more):
        return mint(self.id, self.secret, ttl=ttl, **more)


class Bellhop:
    """One server. start() and stop() may follow each other: the state directory stays."""

    def __init__(self, config=CONFIG, env=None, files=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bh-"))
        self.state = self.dir / "state"
        self.config = self.dir / "bellhop.yaml"
        self.config.write_text(config.format(state=self.state))
        self.env = {**os.environ, **(env or {})}
        self.process = None
        self.limits = ["prlimit", f"--nofile={files}:{files}"] if files else []  # of open files
        self.lines = []  # what it wrote to stderr

    def begin(self):
        """Start, without waiting for anything."""
        assert self.process is None
        self.lines = []
        self.process = subprocess.Popen([*self.limits, PROGRAM, "serve", "-c", self.config], env=self.env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def find_port(self):
        self.port = int((self.state / "port").read_text())
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        self.begin()
        self.ready = self.process.stdout.readline()
        while "stands by" in self.ready:  # another process on the same database serves, or has just died
            self.ready = self.process.stdout.readline()
        if "ready" not in self.ready:
            self.reader.join(5)  # it ended: its last lines tell why
        assert "ready" in self.ready, self.log()
        self.find_port()
        return self

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def log(self):
        return "".join(self.lines)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=20):
        """The exit status; every byte it logged has been read."""
        code = self.process.wait(timeout)
        self.reader.join(5)
        self.process.stdout.close()
        self.process.stderr.close()
        self.process = None
        return code

    def stop(self, number=SIGTERM):
        self.signal(number)
        return self.wait()

    def kill(self):
        self.signal(SIGKILL)
        self.wait()

    def restart(self):
        assert self.stop() == 0, self.log()
        return self.start()

    def cli(self, *args, check=True, input=None):
        words = list(args)
        at = words.index("--") if "--" in words else len(words)  # what follows belongs to a program
        done = subprocess.run([PROGRAM, *words[:at], "-c", self.config, *words[at:]], env=self.env, text=True,
                              input=input, capture_output=True, timeout=30)
        assert "Sanitizer" not in done.stderr, done.stderr
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def add(self, *args, tenant="t", platform="web", bot="lobby", open=True, **options):
        """A gateway; with a platform everybody who writes to the bot reaches it, unless open is false."""
        words = ["gateway", "add", "--tenant", tenant, *args]
        if platform:
            words += ["--platform", platform, "--bot", bot]
            if open and platform != "web":  # a web page always is
                words.append("--open")
        for name, value in options.items():
            words += ["--" + name.replace("_", "-"), value]
        return Credential(self.cli(*words).stdout)

    def get(self, path, **more):
        return http("GET", self.url + path, **more)

    def post(self, path, body=None, **more):
        return http("POST", self.url + path, body, **more)

    def write(self, text, bot="lobby", visitor="e2e-visitor-000000", client_id=None):
        """A person writes on the chat page; returns the HTTP status."""
        body = {"text": text}
        if client_id:
            body["client_id"] = client_id
        return self.post(f"/chat/{bot}/api/message", body, headers={"X-Bellhop-Visitor": visitor}).status

    def admin(self, method, path, body=None):
        """A request to the admin socket: the status and the JSON."""
        c = http_client.HTTPConnection("localhost", timeout=30)
        c.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        c.sock.settimeout(30)
        c.sock.connect(str(self.state / "admin.sock"))
        c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        got = c.getresponse()
        text = got.read()
        c.close()
        return types.SimpleNamespace(status=got.status, json=json.loads(text) if text else None)

    def metric(self, name):
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(f"bellhop_{name} "):
                return int(float(line.rsplit(" ", 1)[1]))
        raise KeyError(name)

    def instance(self, name):
        status = json.loads(self.cli("status", "--json").stdout)
        return next((i for i in status["instances"] if i["instance"] == name), None)

    def clean(self):
        if self.process is not None:
            code = self.stop()
            assert code == 0, f"exit status {code}\n{self.log()}"
        assert "Sanitizer" not in self.log(), self.log()
        assert "runtime error" not in self.log(), self.log()
        shutil.rmtree(self.dir, ignore_errors=True)


def rows_naming(server, text):
    """The namespaces of records on disk that have the text anywhere in them."""
    db = sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True)
    rows = db.execute("SELECT ns, CAST(k AS BLOB), CAST(v AS BLOB) FROM kv").fetchall()
    return sorted({ns for ns, k, v in rows if text.encode() in k + v})


def days_pass(server, days):
    """While the server is stopped: what it remembers of events becomes so much older."""
    db = sqlite3.connect(f"{server.state}/bellhop.db")
    assert db.execute("UPDATE seen SET at_ms = at_ms - ?", (days * 86400000,)).rowcount > 0
    db.commit()
    db.close()


def wait_for(what, timeout=30.0, every=0.02):
    """The first true answer of what(). Patient, for a machine that has other things to do."""
    end = time.monotonic() + timeout
    while True:
        got = what()
        if got:
            return got
        assert time.monotonic() < end, "never came true"
        time.sleep(every)


@pytest.fixture
def make_bellhop():
    made = []

    def make(config=CONFIG, start=True, **more):
        server = Bellhop(config, **more)
        made.append(server)
        return server.start() if start else server

    yield make
    for server in made:
        server.clean()


@pytest.fixture
def bellhop(make_bellhop):
    return make_bellhop()


@pytest.fixture
def dial():
    """dial(server, credential, ...) -> a connected Gateway; all are closed at the end."""
    made = []

    def connect(server, credential, **more):
        gateway = Gateway(server.url, credential.id, credential.secret, **more)
        made.append(gateway)
        return gateway

    yield connect
    for gateway in made:
        gateway.close()


LONGEST = ("crash", "cluster", "sleeper", "discord", "web", "hostile", "prompts", "twilio", "cli", "outbox", "discord_tenancy", "media",
           "v1_skills", "obligations", "enroll", "dispatch_substrates", "telegram", "postgres", "disk", "mcp", "rich", "limits", "agent",
           "backup")


def pytest_collection_modifyitems(items):
    """Files that take long first, so that no worker is left alone with one at the end."""
    place = {f"test_{name}.py": at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))

"""The gateway library and its echo example against the real bellhop."""
import http.client
import json
import re
import socket
import subprocess
import threading
import time
from signal import SIGTERM

import pytest

from conftest import BUILD, CONFIG, wait_for
from probe import Probe
from test_ephemeral import ephemeral  # noqa: F401 - a fixture

PROBE = BUILD / "tests" / "sdk" / "gateway-probe"
ECHO = BUILD / "echo"
VISITOR = "e2e-visitor-000000"
FAST = {"backoff_min_ms": 50, "backoff_max_ms": 200}


class Echo:
    """The example agent as a newcomer starts it."""

    def __init__(self, server, credential, *args, url=None):
        self.process = subprocess.Popen(
            [ECHO, "--platform", "web=lobby", *args], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={
                "GATEWAY_RELAY_URL": url or server.url, "GATEWAY_RELAY_ID": credential.id,
                "GATEWAY_RELAY_SECRET": credential.secret})
        self.lines = []
        self.errors = []
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in
                        ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def said(self, text, times=1, timeout=20):
        wait_for(lambda: sum(text in line for line in self.lines) >= times, timeout)

    def end(self, number=SIGTERM):
        if self.process.poll() is None and number:
            self.process.send_signal(number)
        code = self.process.wait(30)
        for reader in self.readers:
            reader.join(5)
        self.process.stdout.close()
        self.process.stderr.close()
        assert not [e for e in self.errors if "Sanitizer" in e or "runtime error" in e], self.errors
        return code


@pytest.fixture
def start_echo():
    made = []

    def start(*args, **more):
        made.append(Echo(*args, **more))
        return made[-1]

    yield start
    for echo in made:
        if echo.process.returncode is None:
            assert echo.end() == 0


@pytest.fixture
def start_probe():
    made = []

    def start(server, credential, *identities, **more):
        made.append(Probe(PROBE, server.url, credential.id, credential.secret, *identities,
                          **{**FAST, **more}))
        return made[-1]

    yield start
    for probe in made:
        assert probe.quit() == 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_fixed_port(make_bellhop):
    """A server that is found again after it was killed."""
    return make_bellhop(CONFIG.replace("127.0.0.1:0", f"127.0.0.1:{free_port()}"))


def history(server, visitor=VISITOR):
    got = server.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": visitor}).json
    return [m["text"] for m in got["messages"]]


def answered(server, *texts, timeout=20):
    wait_for(lambda: history(server)[-len(texts):] == list(texts), timeout)


# ---- echo ----


def test_echo_answers_counts_and_helps(bellhop, start_echo):
    echo = start_echo(bellhop, bellhop.add())
    echo.said("state: ready")
    bellhop.write("good morning")
    answered(bellhop, "good morning", "good morning")
    bellhop.write("/help")
    wait_for(lambda: "whatever you write comes back" in history(bellhop)[-1])
    bellhop.write("/count")
    wait_for(lambda: history(bellhop)[-1] == "1… 2… 3… 4… 5 — done!")
    bellhop.write("/who")
    wait_for(lambda: "on web." in history(bellhop)[-1])
    assert echo.end() == 0


def test_a_person_s_stop_interrupts_echo(bellhop, start_echo):
    echo = start_echo(bellhop, bellhop.add())
    echo.said("state: ready")
    bellhop.write("/count 99")  # long enough for any machine
    wait_for(lambda: any(t.startswith("1… 2…") for t in history(bellhop)))
    bellhop.write("/stop")
    echo.said("interrupted")
    wait_for(lambda: any("stopped, as you wish" in t for t in history(bellhop)))


def test_echo_sleeps_and_is_woken_by_a_message(bellhop, start_echo):
    port = free_port()
    c = bellhop.add(wake_url=f"http://127.0.0.1:{port}/wake")
    echo = start_echo(bellhop, c, "--idle", "1", "--wake-listen", f"127.0.0.1:{port}")
    echo.said("state: ready")
    for round_ in range(1, 3):
        echo.said("asleep: a poke wakes me", round_)
        wait_for(lambda: bellhop.instance(c.id)["state"] == "asleep")
        bellhop.write(f"wake up {round_}")
        bellhop.write(f"and answer {round_}")
        echo.said("poked: waking up", round_)
        wait_for(lambda: sorted(history(bellhop)[-4:]) == sorted(
            [f"wake up {round_}", f"and answer {round_}"] * 2))
    assert echo.end() == 0
    assert len(history(bellhop)) == 8, "everything answered once"


def test_echo_survives_a_killed_connector(make_bellhop, start_echo):
    server = on_fixed_port(make_bellhop)
    echo = start_echo(server, server.add())
    echo.said("state: ready")
    server.write("before")
    answered(server, "before", "before")
    server.kill()
    echo.said("state: waiting")
    server.start()
    echo.said("state: ready", 2)
    server.write("after")
    wait_for(lambda: history(server)[-2:] == ["after", "after"])


def test_a_revoked_echo_ends_with_status_3(bellhop, start_echo):
    c = bellhop.add()
    echo = start_echo(bellhop, c)
    echo.said("state: ready")
    bellhop.cli("gateway", "revoke", c.id)
    echo.said("state: disabled")
    assert echo.end(None) == 3


def test_echo_says_how_it_is_used():
    done = subprocess.run([ECHO, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--wake-listen" in done.stdout
    assert subprocess.run([ECHO, "--idle", "soon"], capture_output=True).returncode == 2
    done = subprocess.run([ECHO], capture_output=True, text=True, env={})
    assert done.returncode == 2 and "there is no url" in done.stderr


# ---- the library ----


def test_a_blocking_call_from_a_handler_works(bellhop, start_probe):
    p = start_probe(bellhop, bellhop.add(), "web=lobby")
    p.mode("reply")
    p.open()
    bellhop.write("ping")
    assert p.expect("replied")["success"]
    answered(bellhop, "ping", "ping")
    wait_for(lambda: bellhop.metric("deliveries_acked_total") == 1)


def test_several_identities_share_one_socket(bellhop, start_probe):
    c = bellhop.add("--instance", "both")
    bellhop.cli("route", "add", "--platform", "web", "--key", "attic", "--tenant", "t", "--instance",
                "both")
    p = start_probe(bellhop, c, "web=lobby", "web=attic")
    p.mode("reply")
    p.open()
    bellhop.write("downstairs")
    first = p.expect("event")
    bellhop.write("upstairs", bot="attic")
    second = p.expect("event")
    assert (first["text"], second["text"]) == ("downstairs", "upstairs")
    assert (first["bot_id"], second["bot_id"]) == ("lobby", "attic")
    assert p.expect("replied")["success"]
    attic = lambda: bellhop.get("/chat/attic/api/history", headers={"X-Bellhop-Visitor": VISITOR}).json
    wait_for(lambda: [m["text"] for m in attic()["messages"]] == ["upstairs", "upstairs"])
    answered(bellhop, "downstairs", "downstairs")


def test_an_interrupt_comes_back_to_the_instance_that_runs_the_session(bellhop, start_probe):
    p = start_probe(bellhop, bellhop.add(), "web=lobby")
    p.open()
    bellhop.write("hello")
    event = p.expect("event")
    p.do("interrupt", event["session_key"])
    assert p.expect("interrupt")["session_key"] == event["session_key"]
    bellhop.write("/stop")
    got = p.expect("interrupt")
    assert got["session_key"] == event["session_key"] and got["chat_id"] == event["chat_id"]


def test_a_stranger_s_chat_is_refused_with_a_reason(bellhop, start_probe):
    p = start_probe(bellhop, bellhop.add(), "web=lobby")
    p.open()
    result = p.ask("result", "send nobody-s-chat hello")
    assert not result["success"] and "not routed" in result["error"]


def test_an_unacked_message_comes_again_and_a_settled_one_does_not(make_bellhop, start_probe):
    server = on_fixed_port(make_bellhop)
    p = start_probe(server, server.add(), "web=lobby")
    p.open()
    server.write("taken")
    p.expect("event")
    wait_for(lambda: server.metric("deliveries_acked_total") == 1)
    p.mode("later")
    server.write("kept")
    p.expect("event")
    server.kill()
    p.expect("state", state="waiting")
    server.start()
    p.expect("state", state="ready")
    p.do("ackheld")
    wait_for(lambda: server.metric("deliveries_acked_total") >= 1)
    stats = p.ask("stats", "stats")
    assert stats["events"] == 2 and stats["pending"] == 0


def test_going_idle_keeps_what_arrives_and_opening_fetches_it(bellhop, start_probe):
    c = bellhop.add()
    p = start_probe(bellhop, c, "web=lobby")
    p.open()
    assert p.ask("idle", "idle")["status"] == "ok"
    wait_for(lambda: bellhop.instance(c.id)["state"] == "asleep")
    sent = [f"while you slept {i}" for i in range(20)]
    for text in sent:
        assert bellhop.write(text) == 200
    assert bellhop.instance(c.id)["entries"] == 20
    p.do("open")
    assert [p.expect("event")["text"] for _ in sent] == sent
    wait_for(lambda: bellhop.instance(c.id)["entries"] == 0)
    assert p.ask("stats", "stats")["duplicates"] == 0


def write_many(server, visitor, texts, failures):
    """One person's messages down one connection, in order."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for text in texts:
        connection.request("POST", "/chat/lobby/api/message", json.dumps({"text": text}), {
            "Content-Type": "application/json", "X-Bellhop-Visitor": visitor})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            failures.append((text, answer.status))
    connection.close()


def test_a_backlog_of_ten_thousand_drains_in_order_without_duplicates(make_bellhop, start_probe):
    people, each = 20, 500
    server = make_bellhop(CONFIG.replace("level: debug", "level: info"))
    c = server.add()
    p = start_probe(server, c, "web=lobby")
    p.open()
    assert p.ask("idle", "idle")["status"] == "ok"
    failures = []
    writers = [threading.Thread(target=write_many, args=(
        server, f"e2e-visitor-{n:06}", [f"{n}:{i}" for i in range(each)], failures))
        for n in range(people)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures, failures[:3]
    assert server.instance(c.id)["entries"] == people * each
    begin = time.monotonic()
    p.do("open")
    got = [p.expect("event", timeout=60)["text"] for _ in range(people * each)]
    took = time.monotonic() - begin
    per_person = {}
    for text in got:
        n, i = map(int, text.split(":"))
        assert per_person.get(n, -1) + 1 == i, f"{text} is out of order"
        per_person[n] = i
    wait_for(lambda: server.instance(c.id)["entries"] == 0)
    stats = p.ask("stats", "stats")
    assert stats["events"] == people * each and stats["duplicates"] == 0
    assert stats["ack_messages"] < stats["acks"] / 4, "a burst is acked in few messages"
    print(f"drained {people * each} in {took:.2f} s, {stats['ack_messages']} ack messages")


# ---- a person on any platform: serve --ephemeral ----


def test_the_example_answers_people_wherever_they_write(ephemeral):  # noqa: F811
    e = ephemeral()
    echo = subprocess.Popen([ECHO], env=e.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asked = e.say("to the library")
    assert e.expect("send", "--match", "to the library")["reply_to"] == asked["message_id"]
    assert e.expect("ack")["message_id"] == asked["message_id"]
    e.event({"text": "in a thread", "source": {"platform": "slack", "chat_id": "C1", "chat_type": "channel", "user_id": "U1", "thread_id": "17.5",
                                               "scope_id": "T1"}})
    answer = e.expect("send", "--match", "in a thread")
    assert (answer["platform"], answer["thread_id"], answer["metadata"]["scope_id"]) == ("slack", "17.5", "T1")
    echo.send_signal(SIGTERM)
    e.expect("sleep")
    assert echo.wait(30) == 0


def test_the_library_says_what_the_platform_shows(ephemeral, start_probe):  # noqa: F811
    class Server:
        def __init__(self, url, line):
            self.url, self.id, self.secret = url, line["gateway_id"], line["secret"]

    e = ephemeral()
    server = Server(e.url, e.line)
    probe = start_probe(server, server, "telegram=tb")
    probe.open()
    chat = e.say("hello")["chat_id"]
    probe.expect("event", text="hello", platform="telegram", bot_id="tb")
    sent = probe.ask("result", "send", chat, "one")
    assert sent["success"] and e.expect("send")["message_id"] == sent["message_id"]
    assert probe.ask("result", "edit", chat, sent["message_id"], "two")["success"]
    assert e.expect("edit")["content"] == "two"
    e.say("/stop")
    probe.expect("interrupt")

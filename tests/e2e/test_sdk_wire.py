"""The gateway library against a connector that misbehaves on purpose."""
import base64
import json
import queue
import ssl
import subprocess
import time

import pytest

from conftest import BUILD
from fake_connector import FakeConnector, inbound
from probe import Probe

PROGRAM = BUILD / "tests" / "sdk" / "gateway-probe"
FAST = {"backoff_min_ms": 50, "backoff_max_ms": 200}


@pytest.fixture
def fake():
    connector = FakeConnector()
    yield connector
    connector.stop()


@pytest.fixture
def probe(fake):
    p = Probe(PROGRAM, fake.url, **FAST)
    yield p
    assert p.quit() == 0


def test_it_dials_with_a_fresh_token_and_says_hello(fake, probe):
    probe.open()
    assert fake.expect("hello") == {"type": "hello", "platform": "relay", "botId": ""}
    path, headers = fake.headers[0]
    assert path == "/relay"
    token = headers["authorization"].removeprefix("Bearer ")
    payload, exp, _ = base64.urlsafe_b64decode(token + "==").decode().split(":")
    assert payload == "gw-test" and 290 <= int(exp) - time.time() <= 301
    assert "sec-websocket-extensions" not in headers and "origin" not in headers


def test_without_a_credential_it_presents_none(fake):
    p = Probe(PROGRAM, fake.url, "-", "-")
    p.open()
    assert "authorization" not in fake.headers[0][1]
    assert p.quit() == 0


def test_several_identities_each_say_hello_in_order(fake):
    p = Probe(PROGRAM, fake.url, "gw", "s", "web=lobby", "discord=app1", "telegram")
    p.open()
    hellos = [fake.expect("hello") for _ in range(3)]
    assert [(h["platform"], h["botId"]) for h in hellos] == [
        ("web", "lobby"), ("discord", "app1"), ("telegram", "")]
    p.expect("descriptor", platform="telegram")
    assert p.ask("descriptor", "descriptor discord")["platform"] == "discord"
    assert p.ask("descriptor", "descriptor")["platform"] == "web"
    # An answer names the platform only where it is one of ours.
    p.mode("reply")
    fake.send(inbound("x", "b1", platform="discord"), inbound("y", "b2", platform="slack"))
    tags = [fake.expect("outbound").get("platform") for _ in range(2)]
    assert tags == ["discord", None]
    assert p.quit() == 0


def test_an_event_arrives_parsed_and_is_acked_after_the_handler(fake, probe):
    probe.open()
    probe.mode("ack", 300)
    start = time.monotonic()
    fake.send(inbound("hällo 🌍", "b1", thread_id="t9", guild_id="g1", chat_type="group"))
    event = probe.expect("event")
    assert event["text"] == "hällo 🌍" and event["user_name"] == "Ann"
    assert json.loads(event["answer_metadata"]) == {
        "notify": True, "thread_id": "t9", "guild_id": "g1", "scope_id": "g1", "user_id": "u1"}
    assert fake.acks(1) == ["b1"]
    assert time.monotonic() - start >= 0.28


def test_a_blocking_call_from_a_handler_gets_its_result(fake, probe):
    probe.open()
    probe.mode("reply")
    fake.send(inbound("ping", "b1"))
    reply = fake.expect("outbound")["action"]
    assert reply["op"] == "send" and reply["reply_to"] == "m-ping" and reply["chat_id"] == "c1"
    assert probe.expect("replied")["message_id"] == "sent-1"
    assert fake.acks(1) == ["b1"]


def test_a_slow_handler_holds_up_neither_results_nor_interrupts(fake, probe):
    probe.open()
    probe.mode("ack", 3000)
    fake.send(inbound("slow", "b1"))
    probe.expect("event")
    start = time.monotonic()
    assert probe.ask("result", "send c1 meanwhile")["success"]
    fake.send({"type": "interrupt_inbound", "session_key": "k", "chat_id": "c1"})
    probe.expect("interrupt", session_key="k")
    assert time.monotonic() - start < 2
    assert fake.acks(1) == ["b1"]


def test_requests_of_every_kind(fake, probe):
    probe.open()
    probe.do("asend c1 hello there")
    assert probe.expect("done")["success"]
    action = fake.expect("outbound")["action"]
    assert action == {"op": "send", "chat_id": "c1", "content": "hello there", "reply_to": None,
                      "metadata": {}}
    assert probe.ask("result", "edit c1 m1 new text")["success"]
    assert fake.expect("outbound")["action"] == {
        "op": "edit", "chat_id": "c1", "message_id": "m1", "content": "new text", "metadata": {}}
    info = probe.ask("result", "info c1")
    assert (info["chat_name"], info["chat_type"]) == ("Lobby", "group")
    probe.ask("result", "follow key discord.interaction_token later")
    fake.expect("outbound")
    assert fake.expect("outbound")["action"] == {
        "op": "follow_up", "session_key": "key", "kind": "discord.interaction_token",
        "content": "later", "metadata": {}}
    probe.ask("result", 'json {"op":"react","emoji":"👀"}')
    assert fake.expect("outbound")["action"] == {"op": "react", "emoji": "👀"}
    assert probe.ask("interrupted", "interrupt some:key")["status"] == "ok"
    assert fake.expect("interrupt") == {"type": "interrupt", "session_key": "some:key",
                                        "reason": None}


def test_a_request_nobody_answers_times_out_with_the_words_of_the_contract(fake):
    fake.react = lambda conn, f: [] if f["type"] == "outbound" else fake.answer(f)
    p = Probe(PROGRAM, fake.url, request_timeout_ms=300)
    p.open()
    assert p.ask("result", "send c1 x")["error"] == "relay outbound timed out"
    p.ask("closed", "close")
    assert p.ask("result", "send c1 x")["error"] == "relay transport not connected"
    assert p.quit() == 0


def test_a_deliberate_close_fails_open_requests(fake):
    fake.react = lambda conn, f: [] if f["type"] == "outbound" else fake.answer(f)
    p = Probe(PROGRAM, fake.url)
    p.open()
    p.do("asend c1 x")
    fake.expect("outbound")
    p.do("close")
    assert p.expect("done")["error"] == "relay transport not connected"
    assert p.quit() == 0


def test_garbage_is_survived(fake, probe):
    probe.open()
    fake.send(raw='[]\nnull\n"x"\n1\n{"type":"inbound","event":null}\nnot json\n{"type":"novel"}\n'
                  '{"type":"passthrough_forward","forward":null}\n\r\n\n'
                  '{"type":"outbound_result","result":null}\n{"type":"descriptor"}\n')
    line = json.dumps(inbound("still here", "b1")) + "\n"
    for c in line:
        fake.send(raw=c)
    assert probe.expect("event")["text"] == "still here"
    assert probe.ask("stats", "stats")["bad_frames"] == 8
    assert fake.acks(1) == ["b1"]


def test_a_burst_is_acked_in_few_messages_and_in_order(fake, probe):
    probe.open()
    fake.send(*(inbound(f"t{i}", f"b{i}") for i in range(1000)))
    assert fake.acks(1000) == [f"b{i}" for i in range(1000)]
    assert [probe.expect("event")["text"] for _ in range(1000)] == [f"t{i}" for i in range(1000)]
    stats = probe.ask("stats", "stats")
    assert stats["acks"] == 1000 and stats["ack_messages"] < 500


def test_a_repeated_delivery_is_acked_again_and_not_handed_over(fake, probe):
    probe.open()
    fake.send(inbound("once", "b1"))
    assert fake.acks(1) == ["b1"]
    fake.cut()
    probe.expect("state", state="waiting")
    probe.expect("state", state="ready")
    fake.send(inbound("once", "b1"), inbound("two", "b2"))
    assert fake.acks(2) == ["b1", "b2"]
    assert probe.expect("event")["text"] == "two"
    assert sum(line["t"] == "event" for line in probe.seen) == 2


def test_an_event_that_comes_again_after_a_restart_acts_once(fake, tmp_path):
    """The process dies in the instant its ack should have left; the next one has the same seen_file."""
    env = {"PROBE_SEEN_FILE": str(tmp_path / "seen")}
    first = Probe(PROGRAM, fake.url, env=env)
    first.open()
    fake.send(*(inbound(f"t{i}", f"b{i}") for i in range(20)))
    assert fake.acks(20) == [f"b{i}" for i in range(20)]
    first.process.kill()
    first.process.wait(20)
    with open(tmp_path / "seen", "a") as torn:
        torn.write("b2")  # half of b20, say
    second = Probe(PROGRAM, fake.url, env=env)
    second.open()
    fake.send(inbound("new", "b2x"), *(inbound(f"t{i}", f"b{i}") for i in range(20)))
    assert sorted(fake.acks(21)) == sorted(["b2x"] + [f"b{i}" for i in range(20)])
    assert second.expect("event")["text"] == "new"
    stats = second.ask("stats", "stats")
    assert (stats["events"], stats["duplicates"]) == (1, 20)
    assert second.quit() == 0


def test_a_seen_file_that_is_something_else_is_refused(fake, tmp_path):
    (tmp_path / "mine").write_text("dear diary\n")
    probe = Probe(PROGRAM, fake.url, env={"PROBE_SEEN_FILE": str(tmp_path / "mine")})
    probe.do("open")
    assert probe.process.wait(20) == 2
    assert (tmp_path / "mine").read_text() == "dear diary\n"


def test_a_deferred_ack_survives_a_reconnect(fake, probe):
    probe.open()
    probe.mode("later")
    fake.send(inbound("keep", "b1"))
    probe.expect("event")
    fake.cut()
    probe.expect("state", state="waiting")
    probe.expect("state", state="ready")
    probe.do("ackheld")
    assert probe.ask("stats", "stats")["acks"] == 0
    fake.send(inbound("keep", "b1"))
    assert fake.acks(1) == ["b1"]
    assert probe.ask("stats", "stats")["events"] == 1


def test_a_released_delivery_is_handed_over_again(fake, probe):
    probe.open()
    probe.mode("release")
    fake.send(inbound("no", "b1"))
    probe.expect("event")
    while probe.ask("stats", "stats")["pending"] > 0:
        time.sleep(0.05)
    probe.mode("ack")
    fake.send(inbound("no", "b1"))
    assert probe.expect("event")["text"] == "no"
    assert fake.acks(1) == ["b1"]


def test_passthrough_is_decoded_and_acked(fake, probe):
    probe.open()
    fake.send({"type": "passthrough_forward", "bufferId": 41, "forward": {
        "platform": "discord", "botId": "app", "method": "POST", "path": "/i",
        "headers": [["content-type", "application/json"], ["odd"], 7],
        "bodyB64": base64.b64encode(b'{"type":2}').decode()}})
    got = probe.expect("passthrough")
    assert got["body"] == '{"type":2}' and got["header"] == "application/json"
    assert fake.acks(1) == ["41"]


def test_going_idle_waits_for_the_confirmation_then_closes_1000(fake, probe):
    probe.open()
    confirmed = []

    def react(conn, frame):
        if frame["type"] == "going_idle":
            # What was under way when it said so still counts.
            confirmed.append(time.monotonic())
            return [inbound("last", "b1"), {"type": "going_idle_ack"}]
        return fake.answer(frame)

    fake.react = react
    assert probe.ask("idle", "idle")["status"] == "ok"
    assert fake.acks(1) == ["b1"]
    assert fake.expect("closed")["code"] == 1000
    assert probe.ask("state", "state")["state"] in ("draining", "dormant")
    time.sleep(0.5)
    assert fake.n == 1, "a dormant gateway does not dial by itself"
    probe.open()
    assert fake.n == 2


def test_going_idle_unconfirmed_is_told_apart(fake):
    fake.react = lambda conn, f: [] if f["type"] == "going_idle" else fake.answer(f)
    p = Probe(PROGRAM, fake.url, idle_ack_timeout_ms=300)
    p.open()
    assert p.ask("idle", "idle")["status"] == "timeout"
    assert fake.expect("closed")["code"] == 1000
    p.open()
    assert p.quit() == 0


def test_going_idle_and_closing_from_a_handler_do_not_deadlock(fake, probe):
    probe.open()
    probe.mode("idle")
    fake.send(inbound("sleep", "b1"))
    assert probe.expect("idle", timeout=5)["status"] == "ok"
    probe.mode("close")
    probe.open()
    fake.send(inbound("leave", "b2"))
    probe.expect("state", state="closed", timeout=5)


def test_closing_lets_the_running_handler_finish_and_leaves_the_rest(fake, probe):
    probe.open()
    probe.mode("ack", 500)
    fake.send(inbound("running", "b1"), inbound("waiting", "b2"))
    probe.expect("event")
    probe.ask("closed", "close")
    assert fake.acks(1) == ["b1"]
    with pytest.raises(queue.Empty):
        fake.acks(1, timeout=0.3)
    probe.do("state")
    probe.expect("state", state="closed")
    assert sum(line["t"] == "event" for line in probe.seen) == 1


def test_4401_before_any_handshake_is_retried(fake, probe):
    fake.on_connect = lambda n: 4401 if n < 3 else None
    probe.open()
    assert fake.n == 3


def test_4401_after_a_handshake_is_the_end(fake, probe):
    probe.open()
    fake.close(4401)
    probe.expect("state", state="disabled")
    time.sleep(0.5)
    assert fake.n == 1
    assert probe.ask("open", "open")["status"] == "stopped"
    assert probe.ask("ready", "wait 5000")["status"] == "stopped"


def test_4401_on_a_later_socket_is_the_end_too(fake, probe):
    fake.on_connect = lambda n: 4401 if n == 2 else None
    probe.open()
    fake.close(1012)
    probe.expect("state", state="disabled")


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012, 4400, 4408])
def test_every_other_close_is_followed_by_a_redial(fake, probe, code):
    probe.open()
    fake.close(code)
    probe.expect("state", state="waiting")
    probe.expect("state", state="ready")


@pytest.mark.parametrize("status", [400, 401, 403, 503])
def test_a_refused_upgrade_is_retried_whatever_its_status(fake, probe, status):
    fake.refuse = status
    probe.do("open")
    probe.expect("state", state="waiting", why=f"the upgrade was refused: HTTP {status}")
    fake.refuse = None
    probe.expect("state", state="ready")


def test_a_descriptor_that_never_comes_is_a_failed_handshake(fake):
    fake.react = lambda conn, f: [] if conn == 1 else fake.answer(f)
    p = Probe(PROGRAM, fake.url, handshake_timeout_ms=300, **FAST)
    p.do("open")
    p.expect("state", state="waiting", why="no descriptor in time")
    p.expect("state", state="ready")
    assert p.quit() == 0


def test_a_silent_peer_is_given_up(fake):
    p = Probe(PROGRAM, fake.url, ping_interval_ms=200, **FAST)
    p.open()
    time.sleep(1)
    assert fake.n == 1, "pongs keep it alive"
    ws = fake.sockets[1]
    fake._loop.call_soon_threadsafe(ws.transport.pause_reading)
    p.expect("state", state="waiting", why="the connector went silent")
    fake._loop.call_soon_threadsafe(ws.transport.abort)
    p.expect("state", state="ready")
    assert p.quit() == 0


def test_nobody_there_is_retried_until_somebody_is():
    fake = FakeConnector()
    port = fake.port
    fake.stop()
    p = Probe(PROGRAM, f"http://localhost:{port}", **FAST)
    p.do("open")
    p.expect("state", state="waiting")
    assert p.ask("ready", "wait 300")["status"] == "timeout"
    p.ask("closed", "close")
    assert p.quit() == 0


def test_too_much_pending_pauses_the_connection_and_loses_nothing(fake):
    p = Probe(PROGRAM, fake.url, max_pending=50, **FAST)
    todo = {f"b{i}": f"t{i}" for i in range(300)}

    def react(conn, frame):
        if frame["type"] == "inbound_ack":
            todo.pop(frame["bufferId"], None)
        if frame["type"] == "hello":
            return fake.answer(frame) + [inbound(t, b) for b, t in todo.items()]
        return fake.answer(frame)

    fake.react = react
    p.mode("ack", 2)
    p.do("open")  # events may be told before the state is: two threads
    assert [p.expect("event")["text"] for _ in range(300)] == [f"t{i}" for i in range(300)]
    assert p.quit() == 0
    assert fake.n > 1


def test_a_megabyte_goes_both_ways(fake, probe):
    probe.open()
    fake.send(inbound("x" * 3_000_000, "b1"))
    assert len(probe.expect("event")["text"]) == 3_000_000
    assert probe.ask("result", "send c1 " + "y" * 2_000_000)["success"]
    assert len(fake.expect("outbound")["action"]["content"]) == 2_000_000


def test_tls_is_verified(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days",
                    "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    fake = FakeConnector(ssl=context)
    stranger = Probe(PROGRAM, fake.url, **FAST)
    stranger.do("open")
    assert "cannot connect" in stranger.expect("state", state="waiting")["why"]
    assert stranger.quit() == 0
    p = Probe(PROGRAM, fake.url, env={"PROBE_CA_FILE": str(cert)}, **FAST)
    p.open()
    p.mode("reply")
    fake.send(*(inbound("z" * 10_000, f"b{i}") for i in range(200)))
    assert fake.acks(200) == [f"b{i}" for i in range(200)]
    assert p.quit() == 0
    fake.stop()

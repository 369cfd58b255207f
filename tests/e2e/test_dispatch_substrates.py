"""Each substrate with its real peer: an HTTP receiver, a pane of tmux, a FIFO, a program, a gateway."""
import hashlib
import hmac
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import ROOT, wait_for
from dispatch_rig import Sender, augment, config, template
from mcp_rig import META, Client
from relay import http as call

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Receiver:
    """An HTTP server that notes what it is sent and answers as told."""

    def __init__(self):
        self.got, self.status, self.body, self.delay = [], [], b"{}", 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                outer.got.append((self.command, self.path, dict(self.headers), self.rfile.read(length)))
                time.sleep(outer.delay)
                status = outer.status.pop(0) if outer.status else 200
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", self.path)
                body = b"" if self.command == "HEAD" else outer.body
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    pass  # nobody waits any more

            do_GET = do_POST = do_HEAD = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def bodies(self, path="/in"):
        return [json.loads(body) for method, at, _, body in self.got if at == path and method == "POST"]


@pytest.fixture
def receiver():
    r = Receiver()
    yield r
    r.server.shutdown()
    r.server.server_close()


# ---- webhook ----

def test_a_webhook_gets_the_body_of_the_contract_signed_and_in_order(make_bellhop, receiver):
    server = make_bellhop(config(f"id: hook, substrate: webhook, url: '{receiver.url}/in', secret: s3cret, "
                                 f"authorization: Bearer x"))
    sender = Sender(server)
    for i in range(20):
        assert sender.deliver("hook", augment(f"grüß {i}", f"w{i}")).status == 200
    wait_for(lambda: len(receiver.got) == 20)
    assert [b["meta"]["dispatch_id"] for b in receiver.bodies()] == [f"w{i}" for i in range(20)]
    method, path, headers, body = receiver.got[0]
    assert (method, path, headers["Content-Type"], headers["Authorization"]) == (
        "POST", "/in", "application/json", "Bearer x")
    want = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["X-Signature"] == f"sha256={want}"
    assert body.startswith('{"agent_id":"hook","kind":"augment","content":"grüß 0","meta":{"dispatch_id":"w0"'.encode())


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_trace_goes_on_to_the_webhook_the_gateway_and_the_file(make_bellhop, receiver, dial, tmp_path):
    server = make_bellhop(config(f"id: hook, substrate: webhook, url: '{receiver.url}/in', wake_url: '{receiver.url}/wake'",
                                 "id: near, substrate: relay, instance: near"))
    near = dial(server, server.add("--instance", "near", tenant="t", platform=None), hello=("relay", ""))
    sender = Sender(server)
    header = {"traceparent": TRACE}
    path = sender.path("hook", "deliver")
    assert sender.ask("POST", path, augment("one", "t1"), **header).status == 200
    bad = ("nonsense", TRACE.upper(), TRACE + "-more", "00-" + "0" * 32 + "-00f067aa0ba902b7-01")
    for i, value in enumerate(bad):
        assert sender.ask("POST", path, augment("two", f"t2{i}"), traceparent=value).status == 200
    own = augment("three", "t3")
    own["meta"]["traceparent"] = TRACE  # a runtime that writes its own meta
    assert sender.ask("POST", path, own).status == 200
    wait_for(lambda: len(receiver.got) == 6)
    assert [h.get("traceparent") for _, _, h, _ in receiver.got] == [TRACE, *[None] * len(bad), TRACE]
    assert [b["meta"].get("traceparent") for b in receiver.bodies()] == [TRACE, *[None] * len(bad), TRACE]
    assert sender.wake("hook", {"context": "up"}, **header).status == 200
    wait_for(lambda: [h.get("traceparent") for _, at, h, _ in receiver.got if at == "/wake"] == [TRACE])
    receiver.body = b"the answer"
    assert sender.request("hook", {**augment("four", "t4"), "meta": {"dispatch_id": "t4", "correlation_id": "c4"}}, **header).status == 200
    assert receiver.got[-1][2]["traceparent"] == TRACE
    assert sender.ask("POST", sender.path("near", "deliver"), augment("five", "t5"), **header).status == 200
    assert near.next("inbound")["event"]["dispatch"]["traceparent"] == TRACE
    tool = {"name": "agent_deliver", "arguments": {"agent_id": "hook", "kind": "augment", "content": "six"}, "_meta": {**META, "traceparent": TRACE}}
    client = Client(server, sender.key)
    n = len(receiver.got)
    assert client.say("tools/call", tool, MCP_Protocol_Version="2026-07-28", Mcp_Method="tools/call", Mcp_Name="agent_deliver").status == 200
    wait_for(lambda: len(receiver.got) == n + 1)
    assert receiver.got[-1][2]["traceparent"] == TRACE


def test_a_webhook_that_fails_is_tried_again_in_order_and_a_redirect_is_not_followed(make_bellhop, receiver):
    server = make_bellhop(config(f"id: hook, substrate: webhook, url: '{receiver.url}/in'"))
    sender = Sender(server)
    receiver.status = [503, 500, 429, 200, 302, 200]
    for i in range(3):
        assert sender.deliver("hook", augment("x", f"f{i}")).status == 200
    wait_for(lambda: server.instance("agent:hook")["entries"] == 0)
    assert [b["meta"]["dispatch_id"] for b in receiver.bodies()] == ["f0"] * 4 + ["f1", "f2"]


def test_a_webhook_that_answers_too_late_is_tried_again(make_bellhop, receiver):
    server = make_bellhop(config(f"id: hook, substrate: webhook, url: '{receiver.url}/in', timeout: 200ms"))
    sender = Sender(server)
    receiver.delay = 0.6
    assert sender.deliver("hook", augment("x", "slow")).status == 200
    wait_for(lambda: len(receiver.got) >= 2)
    receiver.delay = 0
    wait_for(lambda: server.instance("agent:hook")["entries"] == 0)


def test_a_webhook_to_a_private_address_is_refused(make_bellhop, receiver):
    text = config(f"id: hook, substrate: webhook, url: '{receiver.url}/in'", attempts=2)
    server = make_bellhop(text.replace("allow_private: true", "allow_private: false"))
    sender = Sender(server)
    assert sender.deliver("hook", augment("x", "private")).status == 200
    wait_for(lambda: server.instance("agent:hook")["parked"] == 1)
    assert receiver.got == []
    shown = server.cli("mailbox", "show", "agent:hook", "--tenant", "t", "--json").stdout
    assert "not a public one" in shown
    assert sender.status("hook").json["status"] == "unknown"


def test_waking_a_webhook(make_bellhop, receiver):
    server = make_bellhop(config(
        f"id: bell, substrate: webhook, url: '{receiver.url}/in', wake_url: '{receiver.url}/wake', secret: s, "
        f"status_url: '{receiver.url}/status'",
        f"id: mute, substrate: webhook, url: '{receiver.url}/in', sessions: [tab]"))
    sender = Sender(server)
    receiver.body = b'{"session_id": "tab", "warnings": ["two tabs are open"]}'
    woken = sender.wake("bell@tab", {"context": "look"})
    assert woken.status == 200 and woken.json["woken"] is True and woken.json["session_id"] == "tab"
    assert woken.json["warnings"] == ["two tabs are open"]
    receiver.body = b"{}"
    assert receiver.bodies("/wake") == [{"agent_id": "bell", "session_id": "tab", "context": "look"}]
    assert "X-Signature" in receiver.got[-1][2]
    assert sender.wake("bell").json["woken"] is True
    assert receiver.bodies("/wake")[-1] == {"agent_id": "bell"}
    receiver.status = [500]
    failed = sender.wake("bell", {"context": "x"})
    assert failed.status == 502
    assert (failed.json["class"], failed.json["cause_kind"], failed.json["http_status"]) == (
        "DeliveryFailedError", "http_status", 500)
    degraded = sender.wake("mute@tab", {"context": "kept"}).json
    assert degraded["woken"] is False and degraded["session_id"] == "tab" and degraded["warnings"]
    wait_for(lambda: len(receiver.bodies()) == 1)
    body = receiver.bodies()[0]
    assert (body["kind"], body["content"], body["session_id"]) == ("augment", "kept", "tab")
    bare = sender.wake("mute").json
    assert bare["woken"] is False and len(receiver.bodies()) == 1
    assert sender.status("bell").json == {"status": "idle"}
    receiver.status = [503]
    assert sender.status("bell").json["status"] == "unknown"


def test_wake_on_deliver_rings_a_webhook_too(make_bellhop, receiver):
    server = make_bellhop(config(f"id: bell, substrate: webhook, url: '{receiver.url}/in', "
                                 f"wake_url: '{receiver.url}/wake', wake_on_deliver: true, sessions: [tab]"))
    sender = Sender(server)
    assert "warnings" not in sender.deliver("bell@tab", augment("x", "d1")).json
    assert [path for _, path, _, _ in receiver.got] == ["/in", "/wake"]
    assert receiver.bodies("/wake") == [{"agent_id": "bell", "session_id": "tab"}]
    receiver.status = [200, 500]
    silent = sender.deliver("bell", augment("x", "d2")).json
    assert "delivery_skipped" not in silent and "not woken" in silent["warnings"][0] and "500" in silent["warnings"][0]
    receiver.status = [500, 200]
    sender.deliver("bell", augment("x", "d3"))
    wait_for(lambda: server.instance("agent:bell")["entries"] == 0)
    assert [path for _, path, _, _ in receiver.got][4:] == ["/in", "/in", "/wake"]  # nobody is rung for what did not arrive


def test_a_wake_with_a_key_is_one_wake(make_bellhop, receiver):
    server = make_bellhop(config(f"id: bell, substrate: webhook, url: '{receiver.url}/in', "
                                 f"wake_url: '{receiver.url}/wake'"))
    sender = Sender(server)
    first = sender.wake("bell", {"context": "once"}, Idempotency_Key="k1").json
    server.restart()
    again = sender.ask("POST", sender.path("bell", "wake"), {"context": "once"}, Idempotency_Key="k1").json
    assert again.pop("warnings") and again == first
    assert len(receiver.bodies("/wake")) == 1
    assert sender.wake("bell", {"context": "twice"}, Idempotency_Key="k2").json["woken"] is True
    assert len(receiver.bodies("/wake")) == 2


def test_the_same_key_while_the_first_is_under_way_waits_its_turn(make_bellhop, receiver):
    server = make_bellhop(config(f"id: bell, substrate: webhook, url: '{receiver.url}/in', "
                                 f"wake_url: '{receiver.url}/wake'"))
    sender, answers = Sender(server), []
    receiver.delay = 1
    first = threading.Thread(target=lambda: answers.append(sender.wake("bell", {}, Idempotency_Key="k")))
    first.start()
    wait_for(lambda: receiver.got)
    assert sender.wake("bell", {}, Idempotency_Key="k").status == 429
    first.join()
    assert answers[0].json["woken"] is True
    assert sender.wake("bell", {}, Idempotency_Key="k").json["woken"] is True
    assert len(receiver.bodies("/wake")) == 1


def test_a_request_to_a_webhook_is_answered_by_its_answer(make_bellhop, receiver):
    server = make_bellhop(config(f"id: hook, substrate: webhook, url: '{receiver.url}/in'"))
    sender = Sender(server)
    receiver.body = json.dumps({"content": "42", "other": 1}).encode()
    answer = sender.request("hook", augment("what?", "q1", correlation_id="c1"))
    assert answer.status == 200
    assert answer.json.pop("sent_at") > 0
    assert {k: v for k, v in answer.json.items() if k != "sent_at"} == {
        "correlation_id": "c1", "content": "42", "agent_id": "hook"}
    receiver.body = b"plain words"
    assert sender.request("hook", augment("?", correlation_id="c2")).json["content"] == "plain words"
    receiver.body = b'{"content": "same", "correlation_id": "c5"}'
    assert sender.request("hook", augment("?", correlation_id="c5")).json["content"] == "same"
    mixed = sender.request("hook", augment("?", correlation_id="c6"))
    assert (mixed.status, mixed.json["cause_kind"]) == (502, "malformed_response") and "another" in mixed.json["error"]
    receiver.status = [404]
    failed = sender.request("hook", augment("?", correlation_id="c3"))
    assert (failed.status, failed.json["cause_kind"], failed.json["http_status"]) == (502, "http_status", 404)
    receiver.delay, receiver.body = 0.8, b"too late"
    late = sender.request("hook", augment("?", "q4", correlation_id="c4"), timeout_ms=200)
    assert (late.status, late.json["class"], late.json["timeout_ms"]) == (504, "TimeoutError", 200)
    reply = wait_for(lambda: sender.replies("hook").json["replies"])[0]
    assert (reply["content"], reply["correlation_id"], reply["dispatch_id"]) == ("too late", "c4", "q4")
    assert sender.request("hook", augment("?")).status == 400  # no correlation_id
    ask = lambda **more: sender.ask("POST", sender.path("hook", "request"), {**augment("?", correlation_id="c7"), **more})
    in_opts = ask(opts={"timeout_ms": 300})
    assert (in_opts.status, in_opts.json["timeout_ms"]) == (504, 300)
    assert ask(opts=300).status == 400 and ask(opts={"timeout_ms": "soon"}).status == 400


def test_what_is_sent_is_what_the_example_connector_sends(make_bellhop, receiver):
    """webhook_delivery.json: body and headers byte for byte, and which answers are success."""
    cases = [c for c in json.loads((ROOT / "tests/vectors/webhook_delivery.json").read_text())["cases"]
             if c["call"] == "deliver" and c.get("request") and c["name"] != "timeout"]
    assert len(cases) > 12
    agents = []
    for i, case in enumerate(cases):
        keys = "".join(f", {ours}: {json.dumps(case['config'][theirs])}"
                       for ours, theirs in (("authorization", "authorization"), ("secret", "hmac_secret"))
                       if case.get("config", {}).get(theirs))
        agents.append(f"id: a, tenant: t{i}, substrate: webhook, url: '{receiver.url}/in/{i}'{keys}")
    server = make_bellhop(config(*agents, attempts=1))
    for i, case in enumerate(cases):
        receiver.status, receiver.body = [case["response"]["status"]], case["response"]["body"].encode()
        assert Sender(server, f"t{i}").deliver("a", case["payload"]).status == 200
        method, _, headers, body = wait_for(lambda: [g for g in receiver.got if g[1] == f"/in/{i}"])[0]
        want = case["request"]
        assert (method, body.decode()) == (want["method"], want["body"]), case["name"]
        for name, value in want["headers"].items():
            assert headers.get(name.title()) == value, case["name"]
        left = 0 if "receipt" in case and case["receipt"] else 1
        wait_for(lambda: [i_["entries"] for i_ in json.loads(server.cli("status", "--json").stdout)["instances"]
                          if i_["tenant"] == f"t{i}"] == [left])


def test_a_receipt_says_what_the_webhook_says(make_bellhop, receiver):
    server = make_bellhop(config(f"id: hook, substrate: webhook, url: '{receiver.url}/in'"))
    sender = Sender(server)
    receiver.body = json.dumps({"delivery_skipped": True, "session_id": "kitchen", "delivery_id": "theirs",
                                "warnings": ["rate-limited", 7, "", "x" * 1000]}).encode()
    receipt = sender.deliver("hook@attic", augment("x", "d1")).json
    assert receipt.pop("delivered_at") > 0
    assert receipt == {"delivery_id": "d1", "delivery_skipped": True, "session_id": "kitchen",
                       "warnings": ["rate-limited"]}
    receiver.body = b"no JSON at all"
    plain = sender.deliver("hook@attic", augment("x", "d2")).json
    assert "session_id" not in plain and "delivery_skipped" not in plain and "session" in plain["warnings"][0]
    # delivered_at is when the webhook confirmed, and an answer that is slow is not awaited for ever
    receiver.delay = 0.5
    begun = time.time() * 1000
    slow = sender.deliver("hook", augment("x", "d3")).json
    assert slow["delivered_at"] >= begun + 500 and "delivery_skipped" not in slow
    receiver.delay = 3
    on_its_way = sender.deliver("hook", augment("x", "d4")).json
    assert on_its_way["delivery_skipped"] is True and "on its way" in on_its_way["warnings"][0]
    wait_for(lambda: server.instance("agent:hook")["entries"] == 0)
    arrived = sender.deliver("hook", augment("x", "d4")).json
    assert "delivery_skipped" not in arrived and len(arrived["warnings"]) == 1 and "before" in arrived["warnings"][0]


# ---- pipe ----

def test_a_fifo_gets_a_line_each_when_somebody_reads(make_bellhop, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    server = make_bellhop(config(f"id: pipe, substrate: pipe, path: {fifo}"))
    sender = Sender(server)
    for waits in (sender.deliver("pipe", augment("one", "p1")).json, sender.deliver("pipe", template("two\nlines", "p2")).json):
        assert waits["delivery_skipped"] is True and "nobody reads" in waits["warnings"][0]
    wait_for(lambda: "nobody reads" in server.log())
    assert sender.status("pipe").json["status"] == "unknown"
    assert server.instance("agent:pipe")["entries"] == 2
    with open(fifo, encoding="utf-8") as reading:
        lines = [json.loads(reading.readline()) for _ in range(2)]
        assert [line["meta"]["dispatch_id"] for line in lines] == ["p1", "p2"] and lines[1]["prompt"] == "two\nlines"
        assert sender.deliver("pipe", augment("x" * 400_000, "p3")).status == 200
        assert len(json.loads(reading.readline())["content"]) == 400_000
        wait_for(lambda: server.instance("agent:pipe")["entries"] == 0)
        assert sender.status("pipe").json == {"status": "idle"}
    assert sender.wake("pipe", {"context": "look"}).json["woken"] is False
    with open(fifo, encoding="utf-8") as reading:
        assert json.loads(reading.readline())["content"] == "look"


def test_what_a_reader_left_unread_comes_again(make_bellhop, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    server = make_bellhop(config(f"id: pipe, substrate: pipe, path: {fifo}"))
    sender = Sender(server)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert sender.deliver("pipe", augment("one", "u1")).status == 200
    time.sleep(0.3)  # it lies in the pipe
    os.close(reader)
    with open(fifo, encoding="utf-8") as reading:
        assert json.loads(reading.readline())["meta"]["dispatch_id"] == "u1"
        wait_for(lambda: server.instance("agent:pipe")["entries"] == 0)


def test_what_is_no_fifo_is_left_alone(make_bellhop, tmp_path):
    victim = tmp_path / "file"
    victim.write_text("mine")
    server = make_bellhop(config(f"id: pipe, substrate: pipe, path: {victim}"))
    assert Sender(server).deliver("pipe", augment("x")).status == 200
    wait_for(lambda: "no FIFO" in server.log())
    assert victim.read_text() == "mine"


# ---- exec ----

def program(path, text):
    path.write_text(f"#!{sys.executable}\nimport json, sys, time, os\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_program_gets_each_delivery_on_standard_input_in_order(make_bellhop, tmp_path):
    out = tmp_path / "out"
    prog = program(tmp_path / "take", f"open({str(out)!r}, 'a').write(sys.stdin.read() + '\\n')")
    server = make_bellhop(config(f"id: prog, substrate: exec, command: [{prog}, 'a b']"))
    sender = Sender(server)
    for i in range(5):
        assert sender.deliver("prog", augment(f"n{i}", f"e{i}")).status == 200
    wait_for(lambda: out.exists() and len(out.read_text().splitlines()) == 5)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["content"] for line in lines] == [f"n{i}" for i in range(5)]
    assert sender.status("prog").json == {"status": "idle"}


def test_a_program_gets_no_secret_that_the_configuration_took_from_the_environment(make_bellhop):
    env = {"HOOK_SECRET": "hush", "PLACE": "here"}
    server = make_bellhop(config("id: prog, substrate: exec, command: [/usr/bin/env]",
                                 "id: hook, substrate: webhook, url: 'https://example.org/${{PLACE}}', "
                                 "secret: '${{HOOK_SECRET}}'"),
                          env=env)
    said = Sender(server).request("prog", augment("x", correlation_id="c")).json["content"]
    assert "PLACE=here" in said and "hush" not in said and "HOOK_SECRET" not in said


def test_a_program_that_fails_is_parked_with_its_last_words(make_bellhop, tmp_path):
    prog = program(tmp_path / "fail", "print('no such luck', file=sys.stderr); sys.exit(3)")
    server = make_bellhop(config(f"id: prog, substrate: exec, command: '{prog} \"x y\"'", attempts=2))
    assert Sender(server).deliver("prog", augment("x", "e1")).status == 200
    wait_for(lambda: server.instance("agent:prog")["parked"] == 1)
    shown = server.cli("mailbox", "show", "agent:prog", "--tenant", "t", "--json").stdout
    assert "status 3: no such luck" in shown


def test_a_program_answers_requests_on_standard_output(make_bellhop, tmp_path):
    prog = program(tmp_path / "answer", "d = json.load(sys.stdin); time.sleep(float(sys.argv[1]) if d['content'] == "
                                        "'slow' else 0); print(d['content'] + ' ' + sys.argv[2], end='')")
    server = make_bellhop(config(f"id: prog, substrate: exec, command: '{prog} 1 \"x y\"'"))
    sender = Sender(server)
    answer = sender.request("prog", augment("hi", correlation_id="c\0d")).json
    assert (answer["content"], answer["correlation_id"]) == ("hi x y", "c\0d")
    slow = sender.request("prog", augment("slow", "s1", correlation_id="c9"), timeout_ms=200)
    assert (slow.status, slow.json["class"]) == (504, "TimeoutError")
    reply = wait_for(lambda: sender.replies("prog").json["replies"])[0]
    assert (reply["content"], reply["correlation_id"]) == ("slow x y", "c9")


def test_an_answer_that_is_no_text_or_too_long_is_an_error_and_of_a_delivery_nothing(make_bellhop, tmp_path):
    prog = program(tmp_path / "bad", "d = json.load(sys.stdin); os.write(1, b'\\xff\\xfe' if d['content'] == 'bytes' else "
                                     "('é' * 600000).encode()); open(sys.argv[1], 'a').write(d['content'] + '\\n')")
    server = make_bellhop(config(f"id: prog, substrate: exec, command: [{prog}, {tmp_path}/ran]"))
    sender = Sender(server)
    for content, why in (("bytes", "no text"), ("long", "longer than allowed")):
        answer = sender.request("prog", augment(content, correlation_id="c"))
        assert (answer.status, answer.json["cause_kind"]) == (502, "malformed_response") and why in answer.json["error"]
    assert sender.deliver("prog", augment("bytes")).status == 200
    wait_for(lambda: (tmp_path / "ran").read_text().split() == ["bytes", "long", "bytes"])
    wait_for(lambda: server.instance("agent:prog")["entries"] == 0)


def test_requests_to_an_agent_without_a_substrate_are_not_implemented(make_bellhop):
    server = make_bellhop(config("id: n, substrate: none"))
    answer = Sender(server).request("n", augment("x", correlation_id="c"))
    assert (answer.status, answer.json["class"]) == (501, "NotImplementedError")


# ---- tmux ----

@pytest.fixture
def pane(tmp_path):
    """A tmux server of our own whose one pane writes down what is typed into it."""
    socket, typed = tmp_path / "tmux.sock", tmp_path / "typed"
    run = lambda *words: subprocess.run(["tmux", "-S", socket, "-f", "/dev/null", *words], check=True,
                                        capture_output=True, text=True).stdout
    run("new-session", "-d", "-s", "work", "-x", "200", "-y", "50", f"stty -icanon -echo; exec cat > {typed}")
    wait_for(typed.exists)
    time.sleep(0.3)
    yield socket, typed, run
    subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True)


@needs_tmux
def test_text_is_typed_into_the_pane_and_nothing_in_it_acts_on_the_terminal(make_bellhop, pane):
    socket, typed, run = pane
    server = make_bellhop(config(f"id: mux, substrate: tmux, target: work, socket: {socket}"))
    sender = Sender(server)
    evil = "a\x1b[201~\x1b]0;owned\x07b\x00c\x9bd; rm -rf $HOME `id`"
    assert sender.deliver("mux", augment(evil, "m1", event_type="deploy")).status == 200
    wait_for(lambda: server.instance("agent:mux")["entries"] == 0)
    text = wait_for(lambda: "rm -rf" in typed.read_text() and typed.read_text())
    assert re.match(r"\[context from the skill morning-status, event deploy, trigger cron, "
                    r"sent \d{4}-\d\d-\d\dT[\d:.]{12}Z, dispatch m1\]\n", text)
    assert "a\u241b[201~\u241b]0;owned\u2407b\u2400c\ufffdd; rm -rf $HOME `id`\n" in text
    assert not any(c in text for c in "\x1b\x07\x00\x9b")
    long = "".join(f"{i:06d}" for i in range(20_000))
    assert sender.deliver("mux", template(long, "m2")).status == 200
    wait_for(lambda: long in typed.read_text())
    assert run("list-buffers") == ""
    assert sender.status("mux").json == {"status": "idle"}


@needs_tmux
def test_a_delivery_to_a_pane_presses_no_key_and_a_wake_presses_enter_and_rings(make_bellhop, pane, tmp_path):
    socket, _, run = pane
    typed = tmp_path / "pasted"
    run("new-window", "-t", "work:7", f"stty -icanon -echo; printf '\\033[?2004h'; exec cat > {typed}")
    wait_for(typed.exists)
    time.sleep(0.3)
    server = make_bellhop(config(f"id: mux, substrate: tmux, target: 'work:7', socket: {socket}"))
    sender = Sender(server)
    rung = lambda: run("display-message", "-p", "-t", "work:7", "#{window_bell_flag}").strip()
    assert sender.deliver("mux", template("think of it", "m1")).status == 200
    assert wait_for(lambda: typed.read_text().endswith("\x1b[201~") and typed.read_text()).count("\x1b[200~") == 1
    assert rung() == "0"
    assert sender.wake("mux", {"context": "now"}).json["woken"] is True
    wait_for(lambda: typed.read_text().endswith("now\x1b[201~\n"))
    wait_for(lambda: rung() == "1")


@needs_tmux
def test_a_session_that_the_agent_does_not_have_is_typed_nowhere(make_bellhop, pane):
    socket, typed, run = pane
    agent = f"id: mux, substrate: tmux, target: work, socket: {socket}, sessions: "
    server = make_bellhop(config(agent + "[here, 'gone=nowhere:0.0']"))
    sender = Sender(server)
    for refused in (sender.deliver("mux@attic", augment("astray")), sender.wake("mux@attic", {"context": "astray"}),
                    sender.deliver("mux", {**augment("astray"), "session_id": "attic"})):
        assert (refused.status, refused.json["class"], refused.json["cause_kind"]) == (
            404, "DeliveryFailedError", "client_validation")
        assert "attic" in refused.json["error"]
    taken = sender.deliver("mux@here", augment("right", "r1")).json
    assert taken["session_id"] == "here" and "warnings" not in taken and "delivery_skipped" not in taken
    assert "right" in typed.read_text() and "astray" not in typed.read_text()
    # what waits for a session that a reload takes away is parked, not typed elsewhere
    waits = sender.deliver("mux@gone", augment("astray", "g1")).json
    assert waits["delivery_skipped"] is True and "find" in waits["warnings"][0]
    server.config.write_text(server.config.read_text().replace(", 'gone=nowhere:0.0'", ""))
    server.signal(signal.SIGHUP)
    wait_for(lambda: server.instance("agent:mux")["parked"] == 1)
    assert "astray" not in typed.read_text()


@needs_tmux
def test_waking_a_pane_types_one_line_and_a_pane_that_is_gone_keeps_the_context(make_bellhop, pane):
    socket, typed, run = pane
    server = make_bellhop(config(f"id: mux, substrate: tmux, target: work, socket: {socket}"))
    sender = Sender(server)
    assert sender.wake("mux").json["woken"] is True
    wait_for(lambda: "[wake]" in typed.read_text())
    assert sender.wake("mux", {"context": "come here"}).json["woken"] is True
    wait_for(lambda: "come here" in typed.read_text())
    run("kill-server")
    gone = sender.wake("mux", {"context": "later"}).json
    assert gone.get("woken") is False and gone["warnings"], gone["error"]
    assert sender.status("mux").json["status"] == "unknown"
    assert server.instance("agent:mux")["entries"] == 1
    run("new-session", "-d", "-s", "work", f"stty -icanon -echo; exec cat > {typed}")
    wait_for(lambda: typed.exists() and "later" in typed.read_text())


# ---- relay ----

def test_deliver_pokes_nobody_and_wake_does(make_bellhop, dial, receiver):
    server = make_bellhop(config("id: bot, substrate: relay, tenant: t"))
    cred = server.add("--instance", "bot", wake_url=f"{receiver.url}/poke")
    dial(server, cred).sleep()
    wait_for(lambda: server.instance("bot")["state"] == "asleep")
    sender = Sender(server)
    assert sender.status("bot").json["status"] == "asleep"
    assert sender.deliver("bot", augment("quiet", "d1")).json["delivery_skipped"] is True
    time.sleep(0.8)
    assert receiver.got == []
    woken = sender.wake("bot", {"context": "loud"}).json
    assert woken["woken"] is False and "sleeps" in woken["warnings"][0]
    wait_for(lambda: receiver.got)
    gateway = dial(server, cred)
    assert gateway.next("inbound")["event"]["text"].endswith("quiet")
    assert gateway.next("inbound")["event"]["text"] == "loud"
    live = sender.wake("bot").json
    assert live["woken"] is True and "warnings" not in live
    assert gateway.next("inbound")["event"]["text"].startswith("[wake]")


def test_a_request_on_the_relay_is_answered_by_what_the_agent_sends(make_bellhop, dial):
    server = make_bellhop(config("id: bot, substrate: relay, tenant: t"))
    gateway = dial(server, server.add("--instance", "bot"))
    sender = Sender(server)
    answers = []

    def ask(name, correlation, timeout_ms=8000):
        answers.append(sender.request("bot", augment("q", name, correlation_id=correlation), timeout_ms))

    asking = [threading.Thread(target=ask, args=(f"q{i}", f"c{i}")) for i in range(2)]
    for thread in asking:
        thread.start()
        ev = gateway.next("inbound")["event"]
        assert ev["text"] == "[question from the skill morning-status]\nThe skill waits for your answer to this.\n\nq"
        chat = ev["source"]["chat_id"]
    for said in ({"content": "second", "reply_to": "q1"}, {"content": "first"}):
        result = gateway.act(op="send", chat_id=chat, **said)
        assert result["success"], result
    for thread in asking:
        thread.join()
    assert {a.json["correlation_id"]: a.json["content"] for a in answers} == {"c0": "first", "c1": "second"}
    late = sender.request("bot", augment("q", "q9", correlation_id="c9"), timeout_ms=150)
    assert (late.status, late.json["class"]) == (504, "TimeoutError")
    assert gateway.act(op="send", chat_id=chat, content="late", reply_to="q9")["success"]
    replies = sender.replies("bot").json["replies"]
    assert [(r["content"], r.get("correlation_id")) for r in replies] == [
        ("second", "c1"), ("first", "c0"), ("late", "c9")]


class Ask(threading.Thread):
    """A request in a thread of its own."""

    def __init__(self, sender, name, timeout_ms=20000, **headers):
        super().__init__()
        self.run_it = lambda: sender.request("bot", augment("q", name, correlation_id="c-" + name), timeout_ms, **headers)
        self.start()

    def run(self):
        begun = time.monotonic()
        self.answer = self.run_it()
        self.took = time.monotonic() - begun

    def end(self):
        self.join()
        return self.answer.json


def test_the_answer_of_a_request_is_what_is_said_until_the_end_of_the_turn(make_bellhop, dial):
    server = make_bellhop(config("id: bot, substrate: relay, tenant: t"))
    gateway = dial(server, server.add("--instance", "bot"))
    sender = Sender(server)

    def say(content, **more):
        done = gateway.act(op="send", chat_id=chat, content=content, **more)
        assert done["success"], done
        return done["message_id"]

    def edit(message_id, content):
        done = gateway.act(op="edit", chat_id=chat, message_id=message_id, content=content)
        assert done["success"] and done["message_id"] == message_id, done

    final = {"metadata": {"notify": True}}
    # a marked final message ends the turn at once, however long the agent took before it
    asked = Ask(sender, "q1")
    chat = gateway.next("inbound")["event"]["source"]["chat_id"]
    say("let me look that up", reply_to="q1")
    for _ in range(4):
        time.sleep(1)
        assert gateway.act(op="typing", chat_id=chat)["success"]
    assert asked.is_alive()
    say("it is 42", **final)
    answer = asked.end()
    assert (answer["content"], answer["correlation_id"]) == ("let me look that up\nit is 42", "c-q1")
    assert "warnings" not in answer and asked.took < 6
    # a streamed answer: one message and its edits, without a mark; then silence
    asked = Ask(sender, "q2")
    gateway.next("inbound")
    first = say("It", metadata={"expect_edits": True})
    edit(first, "It is 4")
    second = say("and")
    edit(first, "It is 42.")
    edit(second, "and odd? No.")
    answer = asked.end()
    assert answer["content"] == "It is 42.\nand odd? No." and 2.8 < asked.took < 6
    # a long final text in several marked messages is one answer
    asked = Ask(sender, "q3")
    gateway.next("inbound")
    parts = ["a" * 900, "b" * 900, "c"]
    for part in parts:
        say(part, **final)
    assert asked.end()["content"] == "\n".join(parts)
    # timeout_ms is the longest a turn may take: the texts so far, and a warning
    asked = Ask(sender, "q4", 1200, **{"Idempotency-Key": "k4"})
    gateway.next("inbound")
    say("working on it")
    answer = asked.end()
    assert answer["content"] == "working on it" and "before the agent had finished" in answer["warnings"][0]
    say("now it is done", reply_to="q4", **final)
    assert Ask(sender, "q4", 1200, **{"Idempotency-Key": "k4"}).end() == answer
    replies = sender.replies("bot").json["replies"]
    assert [(r["content"], r["correlation_id"]) for r in replies] == [
        ("let me look that up", "c-q1"), ("it is 42", "c-q1"), ("It is 42.", "c-q2"), ("and odd? No.", "c-q2"),
        *((part, "c-q3") for part in parts), ("working on it", "c-q4"), ("now it is done", "c-q4")]


# ---- later ----

def test_a_scheduled_wake_fires_once_after_a_restart_and_not_early(make_bellhop, receiver):
    server = make_bellhop(config(f"id: bell, substrate: webhook, url: '{receiver.url}/in', "
                                 f"wake_url: '{receiver.url}/wake'"))
    sender = Sender(server)
    due = int(time.time() * 1000) + 3000
    receipt = sender.wake("bell", {"context": "tea", "when": due}).json
    assert receipt["woken"] is False and str(due) in receipt["warnings"][0]
    assert sender.wake("bell", {"context": "now", "when": 1}).json["woken"] is True
    server.kill()
    server.start()
    assert [b["context"] for b in receiver.bodies("/wake")] == ["now"]
    wait_for(lambda: len(receiver.bodies("/wake")) == 2)
    assert time.time() * 1000 >= due
    server.restart()
    time.sleep(0.5)
    assert [b["context"] for b in receiver.bodies("/wake")] == ["now", "tea"]


# ---- hooks ----

def hook(server, *flags):
    return json.loads(server.cli("dispatch", "hook", "--agent", "box", "--tenant", "t", "--json", *flags).stdout)


def test_a_capability_url_takes_what_a_webhook_client_sends(make_bellhop):
    server = make_bellhop(config("id: box, substrate: none"))
    made = hook(server)
    body = json.dumps({"agent_id": "my name for it", **augment("x", "h1")}).encode()

    def post(url, data, **headers):
        import urllib.error
        import urllib.request
        request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())

    good = "sha256=" + hmac.new(made["secret"].encode(), body, hashlib.sha256).hexdigest()
    assert post(made["url"], body)[0] == 401
    assert post(made["url"], body, **{"X-Signature": "sha256=" + "0" * 64})[0] == 401
    status, receipt = post(made["url"], body, **{"X-Signature": good})
    assert status == 200 and receipt["delivery_id"] == "h1"
    assert post(made["wake_url"], b'{"agent_id":"my name for it"}')[1]["woken"] is False
    assert call("GET", made["status_url"]).status == 200
    assert call("GET", made["status_url"].replace("bhk_", "bhk_0")).status == 404
    bare = hook(server, "--no-signature")
    assert "secret" not in bare and post(bare["url"], body)[0] == 200
    server.cli("dispatch", "hook", "--agent", "box", "--tenant", "t", "--revoke")
    assert post(made["url"], body, **{"X-Signature": good})[0] == 404


def test_a_hook_needs_a_tenant_only_where_several_have_the_agent(make_bellhop):
    server = make_bellhop(config("id: box, substrate: none", "id: mine, substrate: none, tenant: t",
                                 "id: both, substrate: none, tenant: t", "id: both, substrate: none, tenant: u"))
    make = lambda agent: server.cli("dispatch", "hook", "--agent", agent, "--json", "--no-signature", check=False)
    assert call("GET", json.loads(make("mine").stdout)["status_url"]).status == 200
    assert call("GET", json.loads(make("box").stdout)["status_url"]).status == 200  # t is the only tenant now
    Sender(server, "u")
    assert call("GET", json.loads(make("mine").stdout)["status_url"]).status == 200
    for agent in ("both", "box"):
        asked = make(agent)
        assert asked.returncode == 1 and "--tenant" in asked.stderr

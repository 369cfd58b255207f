"""The server's life: starting, refusing to start, reloading, going down; health and metrics."""
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from conftest import CONFIG, PROGRAM, wait_for
from relay import http


def serve(path, **env):
    """A start that is expected to fail."""
    return subprocess.run([PROGRAM, "serve", "-c", path], text=True, capture_output=True, timeout=20,
                          env={**os.environ, **env})


# ---- starting ----


def test_the_ready_line_and_the_port_file_name_the_port(bellhop):
    assert re.fullmatch(rf"bellhop \S+ ready: http://127\.0\.0\.1:{bellhop.port}/chat .*\n", bellhop.ready)
    assert bellhop.get("/healthz").status == 200


def test_a_second_server_on_the_same_state_is_refused(bellhop):
    done = serve(bellhop.config)
    assert done.returncode == 1 and "in use by process" in done.stderr
    assert bellhop.cli("status").returncode == 0


def test_a_taken_port_is_named(bellhop, make_bellhop):
    other = make_bellhop(start=False)
    done = serve(other.config, BELLHOP_LISTEN=f"127.0.0.1:{bellhop.port}")
    assert done.returncode == 1 and str(bellhop.port) in done.stderr


@pytest.mark.parametrize("yaml, expected", [
    ("lisen: x\n", ':1: unknown key "lisen"'),
    ("delivery:\n  window: lots\n", ":2: delivery.window: expected a whole number"),
    ("store: {kind: postgres}\n", "store.url: a store of kind postgres needs one"),
    ("store: {kind: postgres, url: \"host=/nonexistent\"}\n", "PostgreSQL cannot be reached"),
    ("cluster: {node: a b}\n", "cluster.node: expected"),
    ("bus: {kind: local}\n", 'Delete the whole section "bus:"'),
    ("data: {node: a}\n", 'Delete the whole section "data:"'),
    ("identity: {kind: jwt}\n", 'jwt needs identity.jwks_url'),
    ("platforms:\n  - {platform: telegraph, bot: x}\n", ':2: platforms: unknown platform "telegraph"'),
    ("platforms:\n  - {platform: wecom, bot: x}\n", ":2: wecom x: a wecom platform needs"),
    ("a: [\n", "not YAML"),
    ("listen: nowhere\n", "nowhere"),
    ("tls: {cert: /nonexistent.pem, key: /nonexistent.key}\n", "/nonexistent"),
    ("admin: {token: \"${BH_E2E_UNSET}\"}\n", "BH_E2E_UNSET is not set"),
])
def test_a_wrong_configuration_stops_the_start_with_a_sentence(tmp_path, yaml, expected):
    path = tmp_path / "bellhop.yaml"
    path.write_text(yaml)
    done = serve(path, BELLHOP_STATE_DIR=str(tmp_path / "s"), **(
        {} if "listen" in yaml else {"BELLHOP_LISTEN": "127.0.0.1:0"}))
    assert done.returncode == 1 and expected in done.stderr, done.stderr
    assert done.stdout == ""


def test_a_missing_configuration_file_is_named(tmp_path):
    done = serve(tmp_path / "none.yaml")
    assert done.returncode == 1 and "none.yaml" in done.stderr


def test_another_master_key_does_not_start(bellhop):
    bellhop.add()
    assert bellhop.stop() == 0
    done = serve(bellhop.config, BELLHOP_MASTER_KEY="not the key that was used before")
    assert done.returncode == 1 and "key" in done.stderr
    bellhop.start()


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "bellhop.yaml"
    path.write_text("listen: 127.0.0.1:0\n")
    done = serve(path, BELLHOP_STATE_DIR=str(tmp_path / "file" / "s"))
    assert done.returncode == 1 and "state_dir" in done.stderr


def test_it_listens_on_a_unix_socket(make_bellhop):
    server = make_bellhop(start=False)
    path = server.dir / "public.sock"
    server.config.write_text(f"listen: unix:{path}\nstate_dir: {server.state}\n")
    process = subprocess.Popen([PROGRAM, "serve", "-c", server.config], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    assert "ready" in process.stdout.readline()
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        s.sendall(b"GET /admin/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 404")
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    process.stdout.close()


# ---- going down ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_with_1012_and_exit_0(bellhop, dial, number):
    c = bellhop.add()
    gateway = dial(bellhop, c)
    bellhop.write("hello")
    gateway.hear("hello")
    begin = time.monotonic()
    assert bellhop.stop(number) == 0, bellhop.log()
    assert time.monotonic() - begin < 5
    assert gateway.wait_closed()[0] == 1012
    assert not (bellhop.state / "admin.sock").exists() and not (bellhop.state / "port").exists()
    bellhop.start()


def test_a_planned_restart_costs_no_attempt_and_loses_nothing(make_bellhop, dial):
    server = make_bellhop(CONFIG + "delivery: {{max_attempts: 2}}\n")
    c = server.add()
    g = dial(server, c)
    server.write("ack me")
    g.hear("ack me")
    g.close()
    for _ in range(4):
        g = dial(server, c, ack=False)
        if _ == 0:
            server.write("patience")
        g.hear("patience")
        server.restart()
    dial(server, c).hear("patience")
    assert server.instance(c.id)["parked"] == 0


def mute_gateway(server):
    """A WebSocket that answers nothing, not even a close."""
    mute = socket.create_connection(("127.0.0.1", server.port))
    mute.sendall(b"GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                 b"Authorization: Bearer " + server.add().token().encode() + b"\r\n\r\n")
    assert mute.recv(4096).startswith(b"HTTP/1.1 101")
    return mute


def test_a_peer_that_answers_nothing_cannot_hold_up_the_end(bellhop):
    mute = mute_gateway(bellhop)
    page = socket.create_connection(("127.0.0.1", bellhop.port))
    page.sendall(b"GET /chat/lobby/api/events HTTP/1.1\r\nHost: localhost\r\nX-Bellhop-Visitor: e2e-visitor-000000\r\n\r\n")
    assert page.recv(4096).startswith(b"HTTP/1.1 200")
    begin = time.monotonic()
    assert bellhop.stop() == 0
    assert time.monotonic() - begin < 12
    mute.close()
    page.close()
    bellhop.start()


def test_a_signal_that_comes_twice_still_drains(bellhop, dial):
    """Ctrl-C reaches a server from the terminal and from the script around it."""
    gateway = dial(bellhop, bellhop.add())
    bellhop.signal(signal.SIGINT)
    bellhop.signal(signal.SIGTERM)
    assert bellhop.wait() == 0 and "at once" not in bellhop.log()
    assert gateway.wait_closed()[0] == 1012
    bellhop.start()


def test_a_later_second_signal_leaves_at_once(bellhop):
    mute = mute_gateway(bellhop)
    bellhop.signal(signal.SIGTERM)
    wait_for(lambda: "shutting down" in bellhop.log())
    time.sleep(1.2)
    bellhop.signal(signal.SIGTERM)
    assert bellhop.wait(8) == 0 and "exiting at once" in bellhop.log()
    mute.close()
    bellhop.start()


# ---- reload ----


def test_sighup_takes_what_it_can_and_says_what_it_cannot(bellhop):
    text = bellhop.config.read_text()
    bellhop.config.write_text(text.replace("cooldown: 300ms", "cooldown: 7s").replace("bot: attic", "bot: cellar"))
    bellhop.signal(signal.SIGHUP)
    wait_for(lambda: "reload:" in bellhop.log())
    line = next(x for x in bellhop.lines if "reload:" in x)
    assert "taken: wake.cooldown" in line and "needs a restart: platforms" in line


def test_sighup_with_a_broken_file_keeps_the_old_configuration(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    bellhop.config.write_text(bellhop.config.read_text() + "nonsense: 1\n")
    bellhop.signal(signal.SIGHUP)
    wait_for(lambda: "kept the old configuration" in bellhop.log())
    assert 'unknown key "nonsense"' in bellhop.log()
    bellhop.write("still here")
    gateway.hear("still here")


def test_reload_changes_what_is_asked_of_tokens(bellhop):
    from relay import Gateway, Refused, mint
    c = bellhop.add()
    Gateway(bellhop.url, token=mint(c.id, c.secret, exp=0)).close()
    bellhop.config.write_text(bellhop.config.read_text() + "auth: {require_expiry: true}\n")
    bellhop.signal(signal.SIGHUP)
    wait_for(lambda: "reload:" in bellhop.log())
    with pytest.raises(Refused):
        Gateway(bellhop.url, token=mint(c.id, c.secret, exp=0))


# ---- health ----


def test_health_and_readiness(bellhop):
    assert bellhop.get("/healthz").json == {"status": "ok"}
    assert bellhop.get("/readyz").json == {"status": "ready"}


def test_metrics_are_prometheus_text_with_every_counter(bellhop):
    bellhop.write("nobody listens")
    text = bellhop.get("/metrics").text
    names = set()
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.match(r"# (HELP|TYPE) bellhop_[a-z_]+ \S", line), line
            continue
        assert re.fullmatch(r'bellhop_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?\d+(\.\d+)?', line), line
        names.add(re.match(r"[a-z_]+", line).group())
    assert {"bellhop_events_accepted_total", "bellhop_deliveries_acked_total", "bellhop_store_healthy",
            "bellhop_mailbox_entries", "bellhop_sessions", "bellhop_instances", "bellhop_platform_up",
            "bellhop_resident_bytes", "bellhop_events_refused_total"} <= names
    assert len({n for n in names if n.endswith("_total")}) >= 28


def test_metrics_through_a_proxy_need_the_admin_token(make_bellhop):
    far = {"X-Forwarded-For": "203.0.113.9"}
    closed = make_bellhop()
    assert closed.get("/metrics", headers=far).status == 403
    server = make_bellhop(CONFIG + "admin: {{token: let-me-see}}\n")
    assert server.get("/metrics", headers=far).status == 401
    assert server.get("/metrics", headers={**far, "Authorization": "Bearer wrong"}).status == 401
    assert server.get("/metrics", headers={**far, "Authorization": "Bearer let-me-see"}).status == 200


# ---- the public side ----


def test_errors_are_json_with_a_sentence_and_a_word(bellhop):
    for method, path, status, code in (("GET", "/nothing", 404, "not_found"), ("POST", "/healthz", 405, "method_not_allowed"),
                                       ("GET", "/webhooks/telegram/x", 401, "unauthorized"),
                                       ("GET", "/webhooks", 404, "not_found"), ("DELETE", "/", 405, "method_not_allowed")):
        answer = http(method, bellhop.url + path)
        assert (answer.status, answer.json["code"]) == (status, code), path
        assert answer.json["error"].endswith(".")


def test_the_front_door_leads_to_the_chat_page(bellhop):
    answer = bellhop.get("/")
    assert answer.status == 302 and answer.headers["Location"] == "/chat"
    assert bellhop.get("/chat").status == 200


def test_admin_paths_do_not_exist_on_the_public_side(bellhop):
    for path in ("/admin/status", "/admin/gateways", "/admin/mailbox?instance=x", "//admin/status", "/admin"):
        assert bellhop.get(path).status == 404, path
    assert bellhop.post("/admin/gateways/add", {"tenant": "evil"}).status == 404
    assert json.loads(bellhop.cli("gateway", "list", "--json").stdout) == []


def test_core_dumps_are_off(bellhop):
    limits = open(f"/proc/{bellhop.process.pid}/limits", encoding="utf-8").read()
    assert re.search(r"Max core file size\s+0\s+0", limits)


def test_json_logs_are_one_object_per_line(make_bellhop):
    server = make_bellhop(CONFIG.replace("level: debug", "level: info, format: json"))
    server.add()
    assert server.stop() == 0
    lines = server.lines
    assert lines
    for line in lines:
        assert {"level", "msg"} <= set(json.loads(line)) or "message" in json.loads(line)
    server.start()


def test_the_service_manager_hears_from_a_loop_that_turns(make_bellhop, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        server = make_bellhop(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"})
        heard = [manager.recv(100) for _ in range(4)]
        assert heard == [b"READY=1"] + [b"WATCHDOG=1"] * 3
        server.signal(signal.SIGSTOP)  # as stuck as a loop can be
        manager.settimeout(0.5)
        with pytest.raises(TimeoutError):
            while True:
                manager.recv(100)
        server.signal(signal.SIGCONT)
        manager.settimeout(20)
        assert manager.recv(100) == b"WATCHDOG=1"
        assert server.stop() == 0
        last = b""
        while last != b"STOPPING=1":
            last = manager.recv(100)


def test_turns_of_the_loop_are_a_histogram(bellhop):
    text = bellhop.get("/metrics").text
    counts = [int(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("bellhop_loop_stall_seconds_bucket")]
    assert len(counts) == 10 and counts == sorted(counts) and counts[0] > 0
    assert f"bellhop_loop_stall_seconds_count {counts[-1]}" in text


def test_what_messages_waited_for_is_a_histogram(bellhop):
    bellhop.add()  # its gateway is away: the message is written before its sender is answered
    bellhop.write("for the disk")
    text = bellhop.get("/metrics").text
    for what in ("queue", "checkpoint", "commit", "answer"):
        counts = [int(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                  if line.startswith(f'bellhop_accept_wait_seconds_bucket{{for="{what}"')]
        assert len(counts) == 10 and counts == sorted(counts) and counts[-1] == 1
        assert f'bellhop_accept_wait_seconds_count{{for="{what}"}} 1' in text

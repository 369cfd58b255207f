"""Messages in, messages out: order, acks, sleep, wake, several sockets."""
import http.server
import json
import sqlite3
import threading
import time

import pytest

from conftest import CONFIG, wait_for


class WakeListener:
    """An HTTP server that counts who rings."""

    def __init__(self, status=200):
        self.rings = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.rings.append((time.monotonic(), self.path, dict(self.headers),
                                    self.rfile.read(int(self.headers.get("Content-Length", 0)))))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/wake/me"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def wake():
    listener = WakeListener()
    yield listener
    listener.close()


def texts(gateway, n):
    return [gateway.next("inbound")["event"]["text"] for _ in range(n)]


# ---- live ----


def test_a_message_is_delivered_and_acked_away(bellhop, dial):
    c = bellhop.add()
    gateway = dial(bellhop, c)
    assert bellhop.write("hello") == 200
    event = gateway.hear("hello")["event"]
    assert event["source"]["platform"] == "web" and event["source"]["chat_type"] == "dm"
    assert event["message_type"] == "text" and event["message_id"]
    assert "tenant" not in json.dumps(event) and "is_bot" not in json.dumps(event)
    wait_for(lambda: bellhop.metric("deliveries_acked_total") == 1)
    assert bellhop.instance(c.id)["entries"] == 0


def test_an_answer_reaches_the_page(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    bellhop.write("hello")
    chat = gateway.hear("hello")["event"]["source"]["chat_id"]
    result = gateway.act(op="send", chat_id=chat, content="hi there", reply_to=None, metadata={})
    assert result["success"] and result["message_id"]
    history = bellhop.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": "e2e-visitor-000000"}).json
    assert [m["text"] for m in history["messages"]] == ["hello", "hi there"]
    assert gateway.act(op="edit", chat_id=chat, message_id=result["message_id"], content="hi!")["success"]
    info = gateway.act(op="get_chat_info", chat_id=chat)
    assert info["success"]


def test_events_arrive_in_order(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    sent = [f"m{i}" for i in range(100)]
    for i, text in enumerate(sent):
        assert bellhop.write(text, visitor=f"e2e-visitor-{i % 7:06}") == 200
    assert texts(gateway, 100) == sent


def test_the_same_event_twice_is_delivered_once(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    for _ in range(3):
        assert bellhop.write("once", client_id="c-1") == 200
    gateway.hear("once")
    assert gateway.quiet()


def test_an_event_without_a_route_goes_to_nobody(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    bellhop.write("anyone?", bot="attic")
    assert gateway.quiet()
    assert bellhop.metric("events_unrouted_total") == 1


def test_every_instance_of_a_routed_tenant_gets_a_copy(bellhop, dial):
    bellhop.cli("route", "add", "--platform", "web", "--key", "attic", "--tenant", "t")  # while it has no instance
    a, b = bellhop.add(platform=None), bellhop.add(platform=None)
    other = bellhop.add(platform=None, tenant="other")
    gateways = [dial(bellhop, x, hello=("web", "attic")) for x in (a, b, other)]
    bellhop.write("all of you", bot="attic")
    gateways[0].hear("all of you")
    gateways[1].hear("all of you")
    assert gateways[2].quiet()


# ---- no ack, no end ----


def test_an_unacked_delivery_comes_again_on_the_next_socket(bellhop, dial):
    c = bellhop.add()
    first = dial(bellhop, c, ack=False)
    for text in ("a", "b", "c"):
        bellhop.write(text)
    frames = [first.hear(t) for t in ("a", "b", "c")]
    first.acknowledge(frames[0])
    wait_for(lambda: bellhop.metric("deliveries_acked_total") == 1)
    first.cut()
    second = dial(bellhop, c)
    assert [second.hear("b")["bufferId"], second.hear("c")["bufferId"]] == [f["bufferId"] for f in frames[1:]]
    assert second.quiet()


def test_nothing_is_sent_twice_on_one_socket(bellhop, dial):
    gateway = dial(bellhop, bellhop.add(), ack=False)
    bellhop.write("a")
    gateway.hear("a")
    gateway.send({"type": "hello", "platform": "web", "botId": "lobby"})
    gateway.next("descriptor")
    assert gateway.quiet()


def test_unacked_deliveries_survive_kill_9(bellhop, dial):
    c = bellhop.add()
    first = dial(bellhop, c, ack=False)
    for text in ("a", "b"):
        assert bellhop.write(text) == 200
    first.acknowledge(first.hear("a"))
    first.hear("b")
    wait_for(lambda: bellhop.metric("store_queued") == 0 and bellhop.metric("deliveries_acked_total") == 1)
    time.sleep(0.1)  # the ack's own commit
    bellhop.kill()
    bellhop.start()
    second = dial(bellhop, c)
    second.hear("b")
    assert second.quiet()


def test_a_backlog_larger_than_the_window_drains_in_order(bellhop, dial):
    c = bellhop.add()
    sent = [f"m{i} " + "x" * 2000 for i in range(300)]
    for i, text in enumerate(sent):
        assert bellhop.write(text, visitor=f"e2e-visitor-{i % 50:06}") == 200
    gateway = dial(bellhop, c)
    assert texts(gateway, 300) == sent
    wait_for(lambda: bellhop.instance(c.id)["entries"] == 0)


def test_an_old_client_that_never_acks_is_served_anyway(make_bellhop, dial):
    """Released gateways before acks existed: recognised by what they do, then settled when written."""
    server = make_bellhop(CONFIG + "delivery: {{ack_patience: 3s}}\n")
    c = server.add()
    old = dial(server, c, ack=False)
    sent = [f"m{i}" for i in range(60)]
    for i, text in enumerate(sent):
        assert server.write(text, visitor=f"e2e-visitor-{i % 20:06}") == 200
    first = old.next("inbound")["event"]
    assert old.act(op="send", chat_id=first["source"]["chat_id"], content="hi", reply_to=first["message_id"],
                   metadata={})["success"]
    wait_for(lambda: old.seen == sent, timeout=20)
    wait_for(lambda: server.instance(c.id)["entries"] == 0)
    old.cut()
    again = dial(server, c, ack=False)
    assert again.quiet(seconds=0.5)
    server.write("and on")
    again.hear("and on")
    wait_for(lambda: server.instance(c.id)["entries"] == 0)


# ---- asleep ----


def test_going_idle_keeps_messages_and_the_next_handshake_drains_them(bellhop, dial):
    c = bellhop.add()
    gateway = dial(bellhop, c)
    bellhop.write("before")
    gateway.hear("before")
    gateway.send({"type": "going_idle"})
    gateway.next("going_idle_ack")
    bellhop.write("while idle")
    assert gateway.quiet()
    gateway.close()
    assert bellhop.instance(c.id)["state"] == "asleep"
    bellhop.write("while asleep")
    again = dial(bellhop, c)
    again.hear("while idle")
    again.hear("while asleep")
    bellhop.write("live again")
    again.hear("live again")
    assert bellhop.instance(c.id)["state"] == "live"


def test_what_lands_between_going_idle_and_its_ack_comes_live(bellhop, dial, wake):
    c = bellhop.add(wake_url=wake.url)
    gateway = dial(bellhop, c)
    bellhop.write("before")
    gateway.hear("before")
    other = sqlite3.connect(bellhop.state / "bellhop.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # a slow disk: the sleep is not written yet
    gateway.send({"type": "going_idle"})
    assert bellhop.write("just before you go") == 200
    gateway.hear("just before you go")
    assert gateway.quiet("going_idle_ack")
    other.execute("ROLLBACK")
    other.close()
    gateway.next("going_idle_ack")
    wait_for(lambda: bellhop.instance(c.id)["entries"] == 0)
    gateway.close()
    wait_for(lambda: bellhop.instance(c.id)["sessions"] == 0)
    time.sleep(2.5)  # longer than a lost client is given to come back
    assert wake.rings == [] and bellhop.instance(c.id)["state"] == "asleep"
    bellhop.write("wake up")
    wait_for(lambda: wake.rings)
    dial(bellhop, c).hear("wake up")


def test_sleep_survives_a_restart(bellhop, dial, wake):
    c = bellhop.add(wake_url=wake.url)
    dial(bellhop, c).sleep()
    bellhop.write("one")
    bellhop.restart()
    assert bellhop.instance(c.id)["state"] == "asleep"
    bellhop.write("two")
    again = dial(bellhop, c)
    again.hear("one")
    again.hear("two")
    assert again.quiet()


def test_a_sleeper_is_rung_once_per_cooldown_with_nothing_to_tell(make_bellhop, dial, wake):
    bellhop = make_bellhop(CONFIG.replace("cooldown: 300ms", "cooldown: 5s"))
    c = bellhop.add(wake_url=wake.url)
    dial(bellhop, c).sleep()
    assert wake.rings == []
    for i in range(5):
        bellhop.write(f"m{i}")
    wait_for(lambda: wake.rings)
    time.sleep(0.15)
    assert len(wake.rings) == 1
    _, path, headers, body = wake.rings[0]
    assert path == "/wake/me" and body == b""
    assert "authorization" not in {k.lower() for k in headers} and c.id not in str(headers)
    wait_for(lambda: bellhop.metric("pokes_total") >= 1)


def test_a_live_gateway_is_not_rung(bellhop, dial, wake):
    gateway = dial(bellhop, bellhop.add(wake_url=wake.url))
    bellhop.write("hello")
    gateway.hear("hello")
    time.sleep(0.5)
    assert wake.rings == []


def test_a_failed_poke_is_shown_and_tried_again(bellhop, dial):
    dead = WakeListener()
    dead.close()
    c = bellhop.add(wake_url=dead.url)
    dial(bellhop, c).sleep()
    bellhop.write("wake up")
    wait_for(lambda: bellhop.metric("pokes_failed_total") >= 2)
    assert bellhop.instance(c.id)["pokeProblem"]


def test_private_wake_urls_are_never_rung_unless_allowed(make_bellhop, dial, wake):
    server = make_bellhop(CONFIG.replace("allow_private: true", "allow_private: false"))
    c = server.add(wake_url=wake.url)
    dial(server, c).sleep()
    server.write("wake up")
    wait_for(lambda: server.metric("pokes_failed_total") >= 1)
    assert wake.rings == []


# ---- several sockets ----


def test_the_newest_socket_receives_and_an_older_one_takes_over(bellhop, dial):
    c = bellhop.add()
    old, new = dial(bellhop, c), dial(bellhop, c)
    bellhop.write("to the new one")
    new.hear("to the new one")
    assert old.quiet()
    new.close()
    bellhop.write("to the old one")
    old.hear("to the old one")


def test_what_the_newest_left_unacked_goes_to_the_one_that_takes_over(bellhop, dial):
    c = bellhop.add()
    old, new = dial(bellhop, c), dial(bellhop, c, ack=False)
    bellhop.write("first")
    new.hear("first")
    new.cut()
    old.hear("first")


# ---- many tenants ----


def test_tenants_never_see_each_other(bellhop, dial):
    a, b = bellhop.add(tenant="a"), bellhop.add(tenant="b", bot="attic")
    ga, gb = dial(bellhop, a), dial(bellhop, b, hello=("web", "attic"))
    bellhop.write("for a")
    bellhop.write("for b", bot="attic")
    chat = ga.hear("for a")["event"]["source"]["chat_id"]
    gb.hear("for b")
    assert ga.quiet() and gb.quiet()
    refused = gb.act(op="send", chat_id="nobody-ever-wrote-here", content="?", metadata={})
    assert not refused["success"]
    foreign = gb.act(platform="web", bot="lobby", op="send", chat_id=chat, content="gotcha", metadata={})
    assert not foreign["success"]
    history = bellhop.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": "e2e-visitor-000000"}).json
    assert [m["text"] for m in history["messages"]] == ["for a"]

"""Every limit of docs/security.md, driven to it: what is over it is refused or shed, and everybody else goes on."""
import contextlib
import json
import random
import re
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import CONFIG, PROGRAM, wait_for
from dispatch_rig import Sender, augment, config as dispatch_config
from mcp_rig import Client, Stream
from relay import Refused
from test_enroll import provision, token
from v1 import Program, make_key
from test_hostile import MIB, SMALL, Raw, RawRelay, frame, is_well, resident, status_of

HELD = re.compile(r'^bellhop_limit_(held|refused_total)\{limit="(\w+)"\} (\d+)$', re.M)


def limits(server):
    """{("held", "streams"): 3, ("refused_total", "streams"): 0, ...}"""
    return {(m[1], m[2]): int(m[3]) for m in HELD.finditer(server.get("/metrics").text)}


def config(**settings):
    lines = ", ".join(f"{name}: {value}" for name, value in settings.items())
    return CONFIG + f"limits: {{{{{lines}}}}}\n"


def stream(server, visitor):
    c = Raw(server, receive_buffer=4096)
    c.say(b"GET /chat/lobby/api/events HTTP/1.1\r\nHost: localhost\r\nX-Bellhop-Visitor: %s\r\n\r\n" % visitor.encode())
    return c, int(c.head().split()[1])


def no_long_turn(server, sanitized="1"):
    """No turn of the loop took over 10 ms of CPU time (./dev siege); with sanitizers on a busy machine none a second."""
    stalls = {m[1]: int(m[2]) for m in re.finditer(r'bellhop_loop_stall_seconds_bucket\{le="([^"]+)"\} (\d+)',
                                                  server.get("/metrics").text)}
    most = sanitized if b"__asan_init" in PROGRAM.read_bytes() else "0.01"
    assert stalls["+Inf"] - stalls[most] == 0, stalls


def test_an_address_has_so_many_event_streams(make_bellhop):
    server = make_bellhop(config(streams_per_address=3))
    open_ones = [stream(server, f"a-visitor-of-many-{i:04}") for i in range(4)]
    assert [status for _, status in open_ones] == [200, 200, 200, 429]
    assert limits(server)["held", "streams"] == 3 and limits(server)["refused_total", "streams"] == 1
    open_ones[0][0].s.close()
    wait_for(lambda: limits(server)["held", "streams"] == 2)
    again, status = stream(server, "a-visitor-of-many-0009")
    assert status == 200
    for c, _ in open_ones + [(again, 0)]:
        c.s.close()


def test_a_key_has_so_many_streams_and_so_have_all_keys(make_bellhop):
    server = make_bellhop(config(listeners_per_credential=2, listeners=3))
    one, other = (Client(server, make_key(server, instance="desk")) for _ in range(2))
    mine = [one.listen("bellhop://inbox") for _ in range(3)]
    assert [s.type == "text/event-stream" for s in mine] == [True, True, False]
    others = [other.listen("bellhop://inbox") for _ in range(2)]
    assert [s.type == "text/event-stream" for s in others] == [True, False]
    assert limits(server)["held", "listeners"] == 3 and limits(server)["refused_total", "listeners"] == 2
    near = lambda: [w["words"] for w in json.loads(server.cli("status", "--json").stdout)["warnings"] if w["what"] == "limit"]  # noqa: E731
    assert near() == ["limits.listeners: 3 of 3 are in use. See: bellhop help limits"]
    mine[0].close()
    wait_for(lambda: limits(server)["held", "listeners"] == 2)
    assert near() == []
    others.append(other.listen("bellhop://inbox"))
    assert others[-1].type == "text/event-stream"
    session = one.say("initialize").headers["Mcp-Session-Id"]
    assert Stream(one, session=session).status == 429


def test_a_credential_has_so_many_sockets(make_bellhop, dial):
    server = make_bellhop(config(sockets_per_credential=2))
    c, other = server.add(id="many"), server.add(id="other")
    first = dial(server, c)
    second = dial(server, c)
    with pytest.raises(Refused) as refused:
        dial(server, c)
    assert refused.value.status == 503
    dial(server, other)
    first.close()
    wait_for(lambda: limits(server)["held", "sockets"] == 2)
    dial(server, c)
    second.close()


def test_the_gateways_of_a_tenant_have_so_many_sockets_and_others_get_in(make_bellhop, dial):
    server = make_bellhop(config(gateway_sockets_per_tenant=2))
    many, other = [server.add(id=f"g{i}") for i in range(3)], server.add(id="other", tenant="other", bot="attic")
    first = dial(server, many[0])
    dial(server, many[1])
    with pytest.raises(Refused) as refused:
        dial(server, many[2])
    assert refused.value.status == 503
    dial(server, other)
    first.close()
    wait_for(lambda: limits(server)["held", "gateway_sockets"] == 2 and limits(server)["held", "sockets"] == 2)
    dial(server, many[2])


def test_unfinished_lines_of_a_credential_have_so_many_bytes(make_bellhop):
    server = make_bellhop(config(frame_bytes_per_credential="2MiB"), env=SMALL)
    c = server.add(id="half")
    sockets = [RawRelay(server, c) for _ in range(6)]
    before = resident(server)
    for s in sockets:
        s.say(frame(b'{"type":"outbound","x":"' + b"y" * 700_000))
    wait_for(lambda: limits(server)["refused_total", "frame_bytes"] >= 4)
    assert limits(server)["held", "frame_bytes"] <= 2 * MIB
    wait_for(lambda: limits(server)["held", "sockets"] <= 3)  # the others were closed; which ones is chance
    assert resident(server) - before < 16 * MIB
    for s in sockets:
        s.s.close()
    wait_for(lambda: limits(server)["held", "frame_bytes"] == 0)
    is_well(server)


def test_an_address_has_so_many_connections_and_the_operator_still_gets_in(make_bellhop):
    server = make_bellhop(config(connections_per_address=20))
    crowd = [Raw(server) for _ in range(20)]
    with Raw(server) as late:
        assert status_of(late.hear_all()) == 503
    assert server.cli("status", "--json").returncode == 0
    for c in crowd:
        c.s.close()
    wait_for(lambda: server.get("/healthz").status == 200)


def test_requests_that_never_end_cost_what_the_table_says(make_bellhop):
    server = make_bellhop(config(request_bytes="4MiB", request_bytes_per_address="4MiB"), env=SMALL)
    before = resident(server)
    crowd = []
    for _ in range(40):
        c = Raw(server)
        c.say(b"POST /chat/lobby/api/message HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" +
              b"x" * 500_000)
        crowd.append(c)
    wait_for(lambda: limits(server)["refused_total", "request_bytes"] >= 20)
    assert limits(server)["held", "request_bytes"] <= 4 * MIB
    assert resident(server) - before < 24 * MIB
    for c in crowd:
        c.s.close()
    is_well(server)


def flood(server, total, bot="lobby"):
    """Made-up visitors write that many bytes, as fast as one connection goes."""
    body = json.dumps({"text": "x" * 15000}).encode()
    sent = 0
    with Raw(server) as c:
        while sent < total:
            for i in range(16):
                c.say(b"POST /chat/%s/api/message HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"X-Bellhop-Visitor: made-up-%016d\r\nContent-Length: %d\r\n\r\n" %
                      (bot.encode(), random.getrandbits(50), len(body)) + body)
            for i in range(16):
                assert " 200 " in c.head().splitlines()[0]
                c.left = c.left[c.left.index(b"}") + 1:] if b"}" in c.left else c.left
            sent += 16 * len(body)


def test_history_of_made_up_visitors_fills_no_disk(make_bellhop, dial):
    server = make_bellhop(config(history_bytes="1MiB"), env=SMALL)
    dial(server, server.add(id="a"))  # it acks by itself
    flood(server, 5 * MIB)
    assert limits(server)["held", "history_bytes"] <= MIB
    assert limits(server)["refused_total", "history_bytes"] > 0
    rows = sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True).execute(
        "SELECT coalesce(sum(length(k) + length(v)), 0) FROM kv WHERE ns = 'web'").fetchone()[0]
    assert rows <= 1.25 * MIB
    assert server.write("still heard") == 200
    is_well(server)


def test_made_up_visitors_of_one_page_push_out_nothing_of_another(make_bellhop, dial):
    server = make_bellhop(config(history_bytes="1MiB"), env=SMALL)
    dial(server, server.add(id="a"))
    dial(server, server.add(id="b", tenant="other", bot="attic"))
    for i in range(20):
        assert server.write(f"{i} " + "y" * 8000, bot="attic", visitor="a-quiet-visitor-000") == 200
    for _ in range(3):
        flood(server, 2 * MIB)
        assert server.write("hello", bot="attic") == 200  # both pages look for what to delete now
        began = time.monotonic()
        wait_for(lambda: time.monotonic() - began > 5 and limits(server)["held", "history_bytes"] <= 0.85 * MIB, 30)
    kept = server.get("/chat/attic/api/history?limit=100", headers={"X-Bellhop-Visitor": "a-quiet-visitor-000"}).json["messages"]
    assert [m["text"].split()[0] for m in kept] == [str(i) for i in range(20)]


def test_nothing_is_kept_for_a_bot_that_nobody_is_routed_to(make_bellhop):
    server = make_bellhop(env=SMALL)
    flood(server, MIB, bot="attic")
    server.stop()
    rows = sqlite3.connect(f"{server.state}/bellhop.db").execute(
        "SELECT count(*) FROM kv WHERE ns IN ('web', 'web_once', 'chat', 'web_name')").fetchone()[0]
    assert rows == 0


def test_a_tenant_has_so_many_gateways(make_bellhop):
    server = make_bellhop(config(gateways_per_tenant=3))
    me, other = token(server, "provision"), token(server, "provision", tenant="other")
    assert [provision(server, me, gateway=f"gw-{i}").status for i in range(5)] == [200, 200, 200, 503, 503]
    assert provision(server, me, gateway="gw-1").status == 200  # the same again
    assert provision(server, other, gateway="gw-9").status == 200


def test_gateways_of_a_tenant_ask_for_their_secret_so_often(make_bellhop):
    server = make_bellhop(config(tenant_provisions=1))
    me, other = token(server, "provision"), token(server, "provision", tenant="other")
    answers = [provision(server, me, gateway=f"gw-{i % 3}").status for i in range(60)]
    assert answers[:20] == [200] * 20 and answers.count(429) >= 20 and set(answers) == {200, 429}
    assert provision(server, other, gateway="gw-9").status == 200
    wait_for(lambda: provision(server, me, gateway="gw-1").status == 200)  # a second later


def test_a_flood_of_large_frames_leaves_others_their_turns(make_bellhop, dial):
    """One tenant pushes 1 MB frames through many sockets; the loop's own time per turn stays short."""
    server = make_bellhop(config(instance_actions=0, tenant_actions=0), env=SMALL)
    bad = server.add(id="bad", tenant="bad", bot="attic")
    g = dial(server, server.add(id="good", tenant="good"))
    sockets = [RawRelay(server, bad) for _ in range(8)]
    body = frame(b'{"type":"outbound","requestId":"x","action":{"op":"send","chat_id":"z","content":"' +
                 b"y" * 1_000_000 + b'"}}\n')
    stop = threading.Event()

    def push(s):
        with contextlib.suppress(OSError):
            while not stop.is_set():
                s.say(body)

    def drain(s):
        with contextlib.suppress(OSError):
            while not stop.is_set():
                s.s.recv(65536)

    crowd = [threading.Thread(target=what, args=(s,), daemon=True) for s in sockets for what in (push, drain)]
    for t in crowd:
        t.start()
    worst = 0
    for i in range(30):
        began = time.monotonic()
        assert server.write(f"m{i}") == 200
        assert g.next("inbound")["event"]["text"] == f"m{i}"
        worst = max(worst, time.monotonic() - began)
    stop.set()
    for s in sockets:
        s.s.close()
    assert worst < 3, "others waited for whole seconds"
    no_long_turn(server)


def test_a_gateway_that_asks_and_never_reads_is_closed(make_bellhop):
    server = make_bellhop(config(unsent_bytes_per_credential="512KiB", instance_actions=0, tenant_actions=0), env=SMALL)
    c, before = server.add(id="deaf"), resident(server)
    ask = frame(b"".join(b'{"type":"outbound","requestId":"%0100d","action":{"op":"send","chat_id":"nowhere","content":"x"}}\n' % i
                         for i in range(50)))
    sockets = [RawRelay(server, c, receive_buffer=4096) for _ in range(4)]
    for s in sockets:
        s.pour(ask * 2000, 20)
    wait_for(lambda: limits(server)["refused_total", "unsent_bytes"] >= 1)
    assert limits(server)["held", "unsent_bytes"] <= MIB // 2
    assert resident(server) - before < 24 * MIB
    for s in sockets:
        s.s.close()
    wait_for(lambda: limits(server)["held", "unsent_bytes"] == 0)
    is_well(server)
    no_long_turn(server)


def test_answers_that_nobody_reads_cost_what_the_table_says(make_bellhop):
    server = make_bellhop(config(answer_bytes_per_address="1MiB"), env=SMALL)
    before, crowd = resident(server), []
    for _ in range(60):
        c = Raw(server, receive_buffer=4096)
        c.say(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        crowd.append(c)
    wait_for(lambda: limits(server)["refused_total", "answer_bytes"] >= 1)
    assert limits(server)["held", "answer_bytes"] <= MIB
    assert resident(server) - before < 24 * MIB
    for c in crowd:
        c.s.close()
    is_well(server)


def at_once(n, what):
    """The answers of @n calls that are under way together."""
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(what, range(n)))


def test_what_programs_ask_for_has_so_many_bytes(make_bellhop):
    server = make_bellhop(config(work_bytes_per_tenant="300KiB"))
    greedy, other = Program(server), Program(server, tenant="other")
    large = "# Skill: s\n# Status: Draft\n\n" + "x" * 250_000
    answers = at_once(12, lambda i: greedy.write(f"s{i}", source=large).status)
    assert set(answers) <= {200, 201, 429} and 429 in answers, answers
    assert answers.count(429) < 12
    assert limits(server)["refused_total", "work_bytes"] == answers.count(429)
    wait_for(lambda: limits(server)["held", "work_bytes"] == 0)
    assert greedy.write("again", source=large).status in (200, 201)
    assert other.write("s").status in (200, 201)
    refused = greedy.write("too-large", source=large + "y" * 60_000)
    assert refused.status == 429 and refused.json["code"] == "busy" and refused.headers["Retry-After"]
    hook = greedy.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 400_000}})
    assert hook.status == 429


def test_what_agents_say_to_requests_counts_until_they_are_answered_or_late(make_bellhop, dial):
    """The joined texts of a request that waits are memory: of the tenant, up to its limit, and no longer than the caller waits."""
    server = make_bellhop(dispatch_config("id: bot, substrate: relay, tenant: t", "id: bot, substrate: relay, tenant: other") +
                          "limits: {{work_bytes_per_tenant: 1MiB}}\n")
    gateway = dial(server, server.add("--instance", "bot"))
    spared = dial(server, server.add("--instance", "bot", "--id", "spared", tenant="other"))
    sender = Sender(server)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(sender.request, "bot", augment("q", f"q{n}", correlation_id=f"c{n}"), 30000) for n in range(6)]
        chats = [gateway.next("inbound")["event"]["source"]["chat_id"] for _ in range(6)]
        for n in range(6):
            for part in range(5):  # 1.8 MB in all, each request below its own 512 KiB
                assert gateway.act(op="send", chat_id=chats[n], content=f"{part}" + "x" * 60_000, reply_to=f"q{n}")["success"]
                assert gateway.act(op="typing", chat_id=chats[n])["success"]  # none of them has ended
                assert limits(server)["held", "work_bytes"] <= MIB
        assert limits(server)["held", "work_bytes"] > MIB * 9 // 10 and limits(server)["refused_total", "work_bytes"] > 0
        assert sender.write("s", source="# Skill: s\n# Status: Draft\n\n" + "x" * 200_000).status == 429
        other = pool.submit(Sender(server, tenant="other").request, "bot", augment("q", "o", correlation_id="o"), 30000)
        chat = spared.next("inbound")["event"]["source"]["chat_id"]
        assert spared.act(op="send", chat_id=chat, content="y" * 60_000, metadata={"notify": True})["success"]
        assert len(other.result().json["content"]) == 60_000
        answers = [a.result().json for a in asked]
    assert len(answers[0]["content"]) > 300_000 and "warnings" not in answers[0]
    assert "limits.work_bytes" in answers[-1]["warnings"][0]
    wait_for(lambda: limits(server)["held", "work_bytes"] == 0)
    # A late request has nobody who waits for its texts: they go with the answer, and later ones are not kept.
    late = sender.request("bot", augment("q", "late", correlation_id="late"), 150)
    assert late.status == 504
    for part in range(20):
        assert gateway.act(op="send", chat_id=chats[0], content="x" * 60_000, reply_to="late")["success"]
        assert gateway.act(op="typing", chat_id=chats[0])["success"]
        assert limits(server)["held", "work_bytes"] < 16384
    wait_for(lambda: limits(server)["held", "work_bytes"] == 0)


@pytest.mark.parametrize("kind", ["sqlite", "filesystem"])
def test_skills_of_a_tenant_have_so_many_bytes_with_their_history(make_bellhop, kind):
    server = make_bellhop(config(skill_bytes_per_tenant="1MiB", skill_bytes="1500KiB") +
                          f"skills: {{{{kind: {kind}}}}}\n")
    greedy, other = Program(server), Program(server, tenant="other")
    bodies = ["# Skill: s\n# Status: Draft\n\n" + str(i) + "x" * 100_000 for i in range(14)]
    taken = [greedy.write("s", source=b).status for b in bodies]
    assert taken == sorted(taken) and taken[0] in (200, 201) and taken[-1] == 429, taken
    assert 7 <= taken.count(429) + 4 and limits(server)["held", "skill_bytes"] <= MIB
    assert limits(server)["refused_total", "skill_bytes"] == taken.count(429)
    assert greedy.get("/v1/skills/s").status == 200
    assert greedy.ask("PATCH", "/v1/skills/s", {"status": "Disabled"}).status == 200
    assert [other.write(f"o{i}", source=bodies[i]).status for i in range(9)][-1] == 429  # all together
    assert "limits.skill_bytes" in other.write("more").json["error"]
    server.restart()
    assert limits(server)["held", "skill_bytes"] > MIB  # known again
    assert greedy.ask("DELETE", "/v1/skills/s?confirm=s").status in (200, 204)
    wait_for(lambda: greedy.write("s", source=bodies[0]).status in (200, 201))
    assert limits(server)["held", "skill_bytes"] <= 1.5 * MIB


def test_data_of_a_tenant_and_of_all_has_so_many_bytes(make_bellhop):
    server = make_bellhop(config(data_bytes_per_tenant="2MiB", data_bytes="3MiB"))
    greedy, other = Program(server), Program(server, tenant="other")

    def fill(program):
        """Until it is refused; what was said."""
        for i in range(100):
            answer = program.ask("POST", "/v1/data", {"content": f"{i} " + "word " * 10_000})
            if answer.status == 429:
                return answer.json["error"]
            assert answer.status in (200, 201)
            time.sleep(0.06)  # the folder is looked at once a second
        return None

    assert "data_bytes_per_tenant" in fill(greedy)
    assert "(limits.data_bytes)" in fill(other)
    assert limits(server)["refused_total", "data_bytes"] >= 2
    assert greedy.ask("POST", "/v1/data/query", {"query": "word", "limit": 1}).status == 200


def with_agents(*agents, **settings):
    lines = ", ".join(f"{name}: {value}" for name, value in settings.items())
    return dispatch_config(*agents) + f"limits: {{{{{lines}}}}}\n"


def test_wakes_for_later_have_so_many_bytes(make_bellhop):
    server = make_bellhop(with_agents("id: bot, substrate: none", wake_bytes_per_tenant="16KiB", wake_bytes="40KiB"))
    tomorrow = int(time.time() * 1000) + 86_400_000
    mine, others = Sender(server), Sender(server, "other")

    def fill(sender):
        for i in range(100):
            answer = sender.wake("bot", {"when": tomorrow, "context": "x" * 744})
            if answer.status != 200:
                assert answer.status == 429 and "limits.wake_bytes" in answer.text
                return i
        return None

    assert fill(mine) == 16 and fill(others) == 16 and fill(Sender(server, "third")) == 8
    held = limits(server)["held", "wake_bytes"]
    assert held == 40_000 and limits(server)["refused_total", "wake_bytes"] == 3
    server.restart()  # counted anew
    assert limits(server)["held", "wake_bytes"] == held
    assert fill(mine) == 0 and mine.wake("bot", {"context": "now"}).status == 200
    soon = Sender(server, "third")
    assert soon.wake("bot", {"when": tomorrow}).status == 200  # a small one still fits into 40 KiB


def test_requests_of_a_tenant_that_nobody_answers_leave_others_their_room(make_bellhop, dial):
    """2,500 of a tenant wait at a time, of 10,000: an agent that is silent takes nobody else's."""
    server = make_bellhop(with_agents("id: silent, substrate: relay, tenant: t", "id: good, substrate: relay, tenant: other",
                                      connections_per_address=4096, key_requests=0, tenant_requests=0))
    server.add(id="silent", tenant="t")
    good = dial(server, server.add(id="good", tenant="other", bot="attic"))
    mine, others = Sender(server), Sender(server, "other")
    waiting = []

    def ask(n):
        body = json.dumps({**augment(f"{n}", correlation_id=f"c{n}"), "timeout_ms": 600_000}).encode()
        c = Raw(server)
        c.say(b"POST /v1/agents/silent/request HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
              b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (mine.key.encode(), len(body), body))
        return c

    try:
        for n in range(2500):
            waiting.append(ask(n))
        wait_for(lambda: server.instance("silent")["entries"] == 2500, 60)
        refused = mine.request("silent", augment("one more", correlation_id="c"))
        assert refused.status == 429 and "wait for an answer" in refused.text, refused.text
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(others.request, "good", augment("and you?", correlation_id="c"), 60_000)
            event = good.next("inbound")["event"]
            assert good.act(op="send", chat_id=event["source"]["chat_id"], content="fine", reply_to=event["message_id"])["success"]
            assert asked.result().status == 200
    finally:
        for c in waiting:
            c.s.close()


def test_a_wake_that_rang_is_not_counted_any_more(make_bellhop):
    server = make_bellhop(with_agents("id: bot, substrate: none", wake_bytes_per_tenant="1KiB"))
    sender = Sender(server)
    assert sender.wake("bot", {"when": int(time.time() * 1000) + 300, "context": "x" * 700}).status == 200
    assert limits(server)["held", "wake_bytes"] == 956
    wait_for(lambda: limits(server)["held", "wake_bytes"] == 0)


def test_receipts_of_a_tenant_have_so_many_bytes(make_bellhop):
    server = make_bellhop(with_agents("id: bot, substrate: none", receipt_bytes_per_tenant="4KiB", receipt_bytes="12KiB"))
    sender = Sender(server)
    answers = [sender.deliver("bot", augment("x", f"d{i}")) for i in range(60)]
    taken = [a.status for a in answers].count(200)
    assert 10 < taken < 60 and {a.status for a in answers[taken:]} == {429}
    assert "limits.receipt_bytes" in answers[-1].text
    assert sender.wake("bot", {"context": "x"}, **{"Idempotency-Key": "k"}).status == 429
    assert sender.wake("bot", {"context": "x"}).status == 200  # that one leaves no receipt
    assert Sender(server, "other").deliver("bot", augment("x")).status == 200
    held = limits(server)["held", "receipt_bytes"]
    assert 4096 <= held < 6000
    server.restart()
    wait_for(lambda: limits(server)["held", "receipt_bytes"] >= 4096)  # what is on disk counts for all


def test_replies_of_an_agent_have_so_many_bytes_and_the_oldest_go(make_bellhop, dial):
    server = make_bellhop(with_agents("id: bot, substrate: relay, tenant: t", reply_bytes_per_instance="64KiB", reply_bytes="1MiB"))
    gateway = dial(server, server.add(id="bot", tenant="t"))
    sender = Sender(server)
    assert sender.deliver("bot", augment("talk to me")).status == 200
    chat = gateway.next("inbound")["event"]["source"]["chat_id"]

    def say(n, size):
        for i in range(n):
            assert gateway.act(op="send", chat_id=chat, content=f"{i:06}" + "x" * size)["success"]

    def on_disk():
        db = sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True)
        return db.execute("SELECT count(*), coalesce(sum(length(k) + length(v)), 0) FROM kv WHERE ns = 'reply'").fetchone()

    say(100, 2000)
    wait_for(lambda: on_disk()[1] <= 64 * 1024)
    count, size = on_disk()
    assert count < 40 and limits(server)["held", "reply_bytes"] == size
    kept = [int(r["content"][:6]) for r in sender.replies("bot").json["replies"]]
    assert kept == list(range(100 - count, 100))  # the newest
    server.restart()
    wait_for(lambda: limits(server)["held", "reply_bytes"] == size)


def test_a_tenant_has_so_many_open_questions_and_its_own_oldest_is_over(make_bellhop, dial):
    server = make_bellhop(config(prompts_per_tenant=3, prompts=100))
    gateways = [dial(server, server.add(id=f"gw-{bot}", tenant=bot, bot=bot)) for bot in ("lobby", "attic")]
    asked = []
    for gateway, bot, n in ((gateways[1], "attic", 1), (gateways[0], "lobby", 6)):
        for i in range(n):
            assert server.write("hello", bot=bot, visitor=f"asked-{bot}-{i:010}") == 200
            chat = gateway.next("inbound")["event"]["source"]["chat_id"]
            assert gateway.act(op="prompt", chat_id=chat, content="Well?", prompt_id="q",
                               options=[{"id": "yes", "label": "Yes"}])["success"]
            asked.append(chat)
    assert limits(server)["held", "prompts"] == 4 and limits(server)["refused_total", "prompts"] == 3
    db = sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True)

    def open_ones():
        return {bytes(k) if isinstance(k, bytes) else k.encode() for (k,) in db.execute("SELECT k FROM kv WHERE ns = 'prompt'")}

    wait_for(lambda: len(open_ones()) == 4)
    kept = {chat for chat in asked for k in open_ones() if chat.encode() in k}
    assert kept == {asked[0], *asked[-3:]}


def test_files_that_never_come_take_so_many_fetches_of_a_tenant(make_bellhop, dial):
    server = make_bellhop(config(fetches_per_tenant=2, fetches=3) + "media: {{allow_private: true}}\n")
    gateways = [dial(server, server.add(id=f"gw-{bot}", tenant=bot, bot=bot)) for bot in ("lobby", "attic")]
    silent = socket.create_server(("127.0.0.1", 0), backlog=64)
    chats = []
    for gateway, bot in zip(gateways, ("lobby", "attic")):
        assert server.write("hello", bot=bot, visitor=f"wants-files-{bot}-0000") == 200
        chats.append(gateway.next("inbound")["event"]["source"]["chat_id"])

    def ask(who, n):
        gateways[who].send({"type": "outbound", "requestId": f"r{n}", "action": {
            "op": "send_media", "chat_id": chats[who], "media_kind": "image", "content": "", "filename": "cat.png",
            "source_url": f"http://127.0.0.1:{silent.getsockname()[1]}/{n}.png", "reply_to": None, "metadata": {}}})

    for n in range(4):
        ask(0, n)
    for _ in range(2):
        told = gateways[0].next("outbound_result")["result"]
        assert not told["success"] and "network" in told["error"] and "limits.fetches" in told["error"]
    assert limits(server)["held", "fetches"] == 2
    ask(1, 5)
    wait_for(lambda: limits(server)["held", "fetches"] == 3)
    assert gateways[1].act(op="send", chat_id=chats[1], content="words go on", metadata={})["success"]
    silent.close()  # the two of them are refused now
    wait_for(lambda: limits(server)["held", "fetches"] == 0, 60)


def test_every_row_of_the_table_is_driven_to_its_limit_here(make_bellhop):
    server = make_bellhop(start=False)
    here = open(__file__).read()
    rows = re.findall(r"^\| `(\w+)` \|", server.cli("help", "limits").stdout, re.M)
    assert len(rows) > 10
    assert [r for r in rows if not re.search(rf"\b{r}(_per_\w+)?=", here)] == []

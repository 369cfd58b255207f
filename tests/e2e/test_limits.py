"""Every limit of docs/security.md, driven to it: what is over it is refused or shed, and everybody else goes on."""
import contextlib
import json
import random
import re
import sqlite3
import threading
import time

import pytest

from conftest import CONFIG, wait_for
from relay import Refused
from test_enroll import provision, token
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
    stalls = {m[1]: int(m[2]) for m in re.finditer(r'bellhop_loop_stall_seconds_bucket\{le="([^"]+)"\} (\d+)',
                                                  server.get("/metrics").text)}
    assert stalls["+Inf"] - stalls["0.25"] == 0, stalls

"""What strangers and broken peers may do to bellhop: it answers clearly or hangs up, stays small, and goes on."""
import base64
import json
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import CONFIG, PROGRAM, Bellhop, wait_for
from relay import Refused

# Freed memory is kept for a while by the sanitizer, to catch its use; here it would hide what is measured.
SMALL = {"ASAN_OPTIONS": "quarantine_size_mb=1:malloc_context_size=0:abort_on_error=0"}
MIB = 1 << 20


class Raw:
    """A TCP connection that says exactly what it is told."""

    def __init__(self, server, receive_buffer=None):
        self.s = socket.socket()
        if receive_buffer:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.s.settimeout(20)
        self.s.connect(("127.0.0.1", server.port))
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def say(self, data):
        """As much of it as the other side takes; False when it has hung up."""
        try:
            self.s.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def pour(self, data, seconds):
        """Push until the other side takes no more: the number of bytes it took, and whether it hung up."""
        self.s.setblocking(False)
        at, end, last = 0, time.monotonic() + seconds, time.monotonic()
        gone = False
        while at < len(data) and time.monotonic() < end and time.monotonic() - last < 1.5:
            try:
                at += self.s.send(data[at:at + 65536])
                last = time.monotonic()
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                gone = True
                break
        self.s.settimeout(20)
        return at, gone

    def hear_all(self, seconds=6):
        """Everything until the server hangs up."""
        self.s.settimeout(seconds)
        got = self.left
        try:
            while True:
                piece = self.s.recv(65536)
                if not piece:
                    return got
                got += piece
        except ConnectionResetError:
            return got

    def head(self):
        while b"\r\n\r\n" not in self.left:
            piece = self.s.recv(65536)
            assert piece, self.left
            self.left += piece
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        return head.decode()


class RawRelay(Raw):
    """A gateway's WebSocket, frame by frame."""

    def __init__(self, server, credential, hello=True, **more):
        super().__init__(server, **more)
        key = base64.b64encode(os.urandom(16)).decode()
        self.say(f"GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                 f"Authorization: Bearer {credential.token()}\r\n\r\n".encode())
        assert " 101 " in self.head().splitlines()[0]
        if hello:
            self.say(frame(b'{"type":"hello","platform":"web","botId":"lobby"}\n'))
            assert b'"descriptor"' in self.message()[1]

    def exactly(self, n):
        while len(self.left) < n:
            piece = self.s.recv(65536)
            if not piece:
                raise ConnectionResetError
            self.left += piece
        got, self.left = self.left[:n], self.left[n:]
        return got

    def message(self):
        """(opcode, payload) of the next frame."""
        first, second = self.exactly(2)
        n = second & 127
        if n == 126:
            n, = struct.unpack("!H", self.exactly(2))
        elif n == 127:
            n, = struct.unpack("!Q", self.exactly(8))
        return first & 15, self.exactly(n)

    def close_code(self, seconds=20):
        """The code of the close frame; None when it was just cut off."""
        self.s.settimeout(seconds)
        try:
            while True:
                op, payload = self.message()
                if op == 8:
                    return struct.unpack("!H", payload[:2])[0]
        except (ConnectionResetError, BrokenPipeError):
            return None


def frame(payload, op=1, fin=True, masked=True, rsv=0, length=None):
    n = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | rsv << 4 | op])
    bit = 0x80 if masked else 0
    if n < 126:
        head += bytes([bit | n])
    elif n < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", n)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", n)
    return head + (b"\0\0\0\0" if masked else b"") + payload  # a mask of zeros leaves the payload readable


def resident(server):
    for line in open(f"/proc/{server.process.pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def cpu_seconds(server):
    fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_well(server):
    """It still answers others, within the ten seconds that http() waits."""
    assert server.get("/healthz").status == 200


def write_many(server, texts):
    """People write, 32 at a time; every message is taken."""
    with ThreadPoolExecutor(32) as pool:
        statuses = set(pool.map(server.write, texts))
    assert statuses == {200}


# ---- attacks that take their time: begun with the first test of this file, judged by the last ----

class Dribble(threading.Thread):
    """A hundred clients that never finish the head of a request."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.crowd = [Raw(server) for _ in range(100)]
        self.left, self.seconds = self.crowd, None
        self.start()

    def run(self):
        began, line = time.monotonic(), b"GET /healthz HTTP/1.1\r\n"
        while self.left and time.monotonic() < began + 60:
            self.left = [c for c in self.left if c.say(line)]
            line = b"X: y\r\n"
            time.sleep(0.7)
        self.seconds = time.monotonic() - began
        for c in self.crowd:
            c.s.close()


class Frozen:
    """A gateway in a process of its own, which was stopped with a message under way."""

    SCRIPT = ("import sys, relay\n"
              "g = relay.Gateway(*sys.argv[1:4])\n"
              "while True: print(g.next('inbound', 600)['event']['text'], flush=True)\n")

    def __init__(self):
        self.server = Bellhop(CONFIG).start()
        c = self.server.add(id="frozen")
        self.process = subprocess.Popen([sys.executable, "-c", self.SCRIPT, self.server.url, c.id, c.secret],
                                        cwd=os.path.dirname(__file__), stdout=subprocess.PIPE, text=True)
        wait_for(lambda: self.server.instance("frozen")["state"] == "live")
        assert self.server.write("before") == 200
        assert self.process.stdout.readline() == "before\n"
        self.process.send_signal(signal.SIGSTOP)
        assert self.server.write("while frozen 1") == 200

    def clean(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.server.clean()


@pytest.fixture(scope="module")
def shared():
    """One server for the attacks that leave nothing behind."""
    server = Bellhop(CONFIG, env=SMALL).start()
    yield server
    is_well(server)
    server.clean()


@pytest.fixture(scope="module", autouse=True)
def dribble(shared):
    return Dribble(shared)


@pytest.fixture(scope="module", autouse=True)
def frozen():
    it = Frozen()
    yield it
    it.clean()


# ---- HTTP ----

POST = b"POST /chat/lobby/api/message HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" \
       b"X-Bellhop-Visitor: hostile-visitor-0001\r\n"
BODY = b'{"text":"x"}'
SECOND = b"GET /healthz HTTP/1.1\r\nHost: smuggled\r\n\r\n"


@pytest.mark.parametrize("request_bytes", [
    POST + b"Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\nc\r\n" + BODY + b"\r\n0\r\n\r\n",
    POST + b"Content-Length: 12\r\nContent-Length: 0\r\n\r\n" + BODY,
    POST + b"Content-Length: 12\r\nContent-Length: 12\r\n\r\n" + BODY,
    POST + b"Content-Length: 12, 12\r\n\r\n" + BODY,
    POST + b"Content-Length: +12\r\n\r\n" + BODY,
    POST + b"Content-Length: -1\r\n\r\n" + BODY,
    POST + b"Content-Length: 0xc\r\n\r\n" + BODY,
    POST + b"Content-Length: 12 0\r\n\r\n" + BODY,
    POST + b"Content-Length: 99999999999999999999999999\r\n\r\n" + BODY,
    POST + b"Content-Length : 12\r\n\r\n" + BODY,
    POST + b"Content-Length:\r\n 12\r\n\r\n" + BODY,
    POST + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nc\r\n" + BODY + b"X\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nc\n" + BODY + b"\n0\n\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n0;" + b"e" * 9000 + b"\r\n\r\n",
    b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: y\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA\0B: y\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n",
    b"GET /health\0z HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n: y\r\n\r\n",
    b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
    b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"get /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz\r\n\r\n",
    b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    b"\0" * 100,
], ids=lambda b: re.sub(r"[^ -~]+", ".", b.replace(POST, b"").decode("latin-1"))[:40])
def test_what_two_parsers_might_read_differently_is_refused_and_ends_the_connection(shared, request_bytes):
    with Raw(shared) as c:
        c.say(request_bytes + SECOND)
        got = c.hear_all()
    assert len(re.findall(rb"^HTTP/1.1 \d", got, re.M)) == 1, got
    status = int(got.split()[1])
    assert status in (400, 413, 501, 505), got
    assert b'"code":' in got and b"Connection: close" in got


def status_of(got):
    return int(got.split()[1])


def test_heads_and_bodies_have_their_limits(shared):
    for head, status in ((b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 17000 + b"\r\n\r\n", 431),
                         (b"GET /" + b"a" * 17000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
                         (b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431),
                         (POST + b"Content-Length: %d\r\n\r\n" % (MIB + 1), 413),
                         (POST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 17, 413)):
        with Raw(shared) as c:
            c.say(head)
            assert status_of(c.hear_all()) == status, head[:60]


def test_a_client_that_closes_its_half_still_gets_its_answer(shared):
    with Raw(shared) as c:
        c.say(POST + b"Content-Length: 12\r\n\r\n" + BODY)
        c.s.shutdown(socket.SHUT_WR)
        assert status_of(c.hear_all()) == 200


def test_deep_and_odd_json_is_refused_in_words(shared):
    for body in (b"[" * 100000, b'{"text":' * 5000, b'{"text":"\xff\xfe"}', b'{"text":"\\ud800"}', b'{"text":1e999}', b"",
                 b"{}", b"null", b'{"text":"x"', b'{"text":"x"}{"text":"y"}', b'\xef\xbb\xbf{', b"\0" * 100,
                 b'{"text":' + b"9" * 500000 + b"}"):
        with Raw(shared) as c:
            c.say(POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
            got = c.hear_all()
            assert status_of(got) == 400 and b'"error"' in got, (body[:40], got)
    is_well(shared)


def test_requests_sent_without_reading_the_answers_cost_little(make_bellhop):
    server = make_bellhop(env=SMALL)
    before = resident(server)
    many = [Raw(server, receive_buffer=4096) for _ in range(20)]
    for c in many:
        c.pour(b"GET /chat/lobby HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4000, 5)
    grown = resident(server) - before
    is_well(server)
    for c in many:
        c.s.close()
    assert grown < 40 * MIB, f"{grown / MIB:.0f} MiB for 20 connections"


def test_a_page_that_stops_reading_its_events_costs_little(make_bellhop, dial):
    server = make_bellhop(env=SMALL)
    gateway = dial(server, server.add())
    visitor = "hostile-visitor-0002"
    with Raw(server, receive_buffer=4096) as page:
        page.say(f"GET /chat/lobby/api/events HTTP/1.1\r\nHost: localhost\r\nX-Bellhop-Visitor: {visitor}\r\n\r\n".encode())
        assert "200" in page.head()
        assert server.write("hello", visitor=visitor) == 200
        chat = gateway.hear("hello")["event"]["source"]["chat_id"]
        before = resident(server)
        for n in range(400):
            result = gateway.act(op="send", chat_id=chat, content=f"{n} " + "x" * 15000)
            assert result["success"], result
        grown = resident(server) - before
        is_well(server)
    assert grown < 40 * MIB, f"{grown / MIB:.0f} MiB"


# ---- WebSocket ----

@pytest.mark.parametrize("bad,codes", [
    (frame(b"{}\n", masked=False), (1002,)),
    (frame(b"{}\n", rsv=4), (1002,)),
    (frame(b"{}\n", rsv=1), (1002,)),
    (frame(b"{}\n", op=3), (1002,)),
    (frame(b"{}\n", op=11), (1002,)),
    (frame(b"x" * 126, op=9), (1002,)),
    (frame(b"x", op=9, fin=False), (1002,)),
    (frame(b"x", op=0), (1002,)),
    (frame(b"x", fin=False) + frame(b"y"), (1002,)),
    (frame(b"x", op=8), (1002,)),
    (frame(struct.pack("!H", 1005), op=8), (1002,)),
    (frame(struct.pack("!H", 99), op=8), (1002,)),
    (frame(b"", length=1 << 62), (1002, 1009)),
    (frame(b"", length=(1 << 64) - 1), (1002, 1009)),
    (frame(b"", length=1 << 30), (1009,)),
    (frame(b"x" * (5 * MIB)), (1009,)),
    (frame(b"x" * 60000, fin=False) + frame(b"x" * 60000, op=0, fin=False) * 100, (1009,)),
], ids=str)
def test_what_is_not_websocket_is_closed_with_its_code(shared, bad, codes):
    credential = shared.add()
    with RawRelay(shared, credential) as c:
        c.say(bad)
        assert c.close_code() in codes
    is_well(shared)


def test_other_garbage_after_the_upgrade_is_survived(shared):
    credential = shared.add()
    rng = random.Random(7)
    for n in range(60):
        with RawRelay(shared, credential, hello=n % 2 == 0) as c:
            c.say(rng.randbytes(rng.choice((1, 7, 100, 5000, 70000))))
            if n % 3 == 0:
                c.s.shutdown(socket.SHUT_WR)
    is_well(shared)


def test_lines_that_are_no_frames_end_with_1008_and_change_nothing(shared):
    deep = b'{"type":' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}\n"
    for junk in (deep, b"[" * 200000 + b"\n", b'{"type":"\xff"}\n', b'{"type":"inbound_ack","bufferId":}\n', b"\0\n",
                 b'"hello"\n', b"1\n", b'{"type":"hello"\n'):
        with RawRelay(shared, shared.add()) as c:
            for _ in range(200):
                if not c.say(frame(junk, op=2)):
                    break
            assert c.close_code() == 1008, junk[:40]
    is_well(shared)


def test_odd_values_in_good_frames_are_answered_or_ignored(shared):
    """Whatever fills the fields, every line that comes back is JSON, UTF-8, and of the right shape."""
    with RawRelay(shared, shared.add()) as c:
        odd = [None, 1, -1, 1e308, True, "", "é" * 40, "\U0001f600" * 33, "a" + "é" * 60, "x" * 1000, "\0", "\x1e\x1f",
               "\u2028", {}, [], {"a": 1}, "../../etc/passwd", "a\r\nb: c"]
        n = 0
        for value in odd:
            for key in ("op", "chat_id", "content", "reply_to", "message_id", "metadata", "session_key", "kind"):
                action = {"op": "send", "chat_id": "c", "content": "x", key: value}
                n += 1
                c.say(frame(json.dumps({"type": "outbound", "requestId": f"r{n}", "action": action},
                                       ensure_ascii=n % 2 == 0).encode() + b"\n"))
            for bad in ({"type": "outbound", "requestId": value, "action": {"op": "send"}},
                        {"type": "outbound", "requestId": "y", "action": value}, {"type": "hello", "platform": value},
                        {"type": "hello", "platform": "web", "botId": value}, {"type": value},
                        {"type": "inbound_ack", "bufferId": value}, {"type": "interrupt", "session_key": value}):
                c.say(frame(json.dumps(bad, ensure_ascii=False).encode() + b"\n"))
        c.say(frame(b'{"type":"outbound","requestId":"last","action":{"op":"nonsense"}}\n'))
        results, last = {}, False
        while not last:
            op, payload = c.message()
            assert op in (1, 9), (op, payload)
            for line in payload.decode().split("\n") if op == 1 else ():
                if not line:
                    continue
                got = json.loads(line)
                assert got["type"] in ("outbound_result", "descriptor"), got
                if got["type"] == "outbound_result" and got["requestId"].startswith("r"):
                    assert got["requestId"] not in results
                    results[got["requestId"]] = got["result"]
                    assert got["result"]["success"] is False and got["result"]["error"], got
                last = last or got.get("requestId") == "last"
        assert len(results) == n
    is_well(shared)


def test_thousands_of_tiny_frames_do_not_keep_others_waiting(shared):
    with RawRelay(shared, shared.add()) as c:
        tiny = frame(b'{"type":"x"}\n') * 2000 + frame(b"\n") * 2000 + b"".join(frame(bytes([b])) for b in b'{"type":"y"}\n') * 300
        for _ in range(10):
            assert c.say(tiny)
            is_well(shared)


def flood(server, what, times):
    """Push a message over and over, reading nothing; then how much the server has grown by."""
    with RawRelay(server, server.add(), receive_buffer=4096) as c:
        before = resident(server)
        c.pour(what * times, 20)
        grown = resident(server) - before
        is_well(server)
        return grown


@pytest.mark.parametrize("what", [
    frame(b"x" * 125, op=9),
    frame(b'{"type":"hello","platform":"web","botId":"lobby"}\n'),
    frame(b'{"type":"outbound","requestId":"r","action":{"op":"' + b"o" * 60 + b'"}}\n'),
    frame(b'{"type":"going_idle"}\n' + b'{"type":"hello","platform":"web"}\n'),
], ids=["pings", "hellos", "requests", "naps"])
def test_a_gateway_that_asks_and_never_reads_costs_little(make_bellhop, what):
    server = make_bellhop(env=SMALL)
    grown = flood(server, what, 40 * MIB // len(what))
    assert grown < 40 * MIB, f"{grown / MIB:.0f} MiB"


def test_a_gateway_that_never_reads_costs_a_window_however_long_its_backlog(make_bellhop):
    server = make_bellhop(env=SMALL)
    credential = server.add(id="deaf")
    with RawRelay(server, credential, receive_buffer=4096):
        write_many(server, ["x" * 16000] * 50)
        before = resident(server)
        write_many(server, ["x" * 16000] * 5000)
        grown = resident(server) - before
        is_well(server)
    assert server.instance("deaf")["entries"] == 5050
    assert grown < 50 * MIB, f"{grown / MIB:.0f} MiB for 80 MB of backlog"


# ---- the machine it runs on ----

def limit(server, what, value):
    resource.prlimit(server.process.pid, what, (value, resource.prlimit(server.process.pid, what)[1]))


def test_out_of_file_descriptors_it_waits_without_spinning_and_recovers(bellhop, dial):
    gateway = dial(bellhop, bellhop.add())
    used = len(os.listdir(f"/proc/{bellhop.process.pid}/fd"))
    limit(bellhop, resource.RLIMIT_NOFILE, used + 12)
    crowd = [socket.create_connection(("127.0.0.1", bellhop.port)) for _ in range(60)]
    began, spent = time.monotonic(), cpu_seconds(bellhop)
    gateway.send({"type": "hello", "platform": "web", "botId": "lobby"})
    gateway.next("descriptor")  # who is in is served
    assert gateway.quiet("descriptor", 2)
    busy = (cpu_seconds(bellhop) - spent) / (time.monotonic() - began)
    assert busy < 0.5, f"{busy:.0%} of a core while nobody can come in"
    for s in crowd:
        s.close()
    wait_for(lambda: bellhop.write("after the crowd") == 200)
    gateway.hear("after the crowd")


def test_a_full_disk_refuses_what_cannot_be_kept_and_serves_the_living(bellhop, dial):
    asleep = bellhop.add(id="asleep", bot="attic")
    gateway = dial(bellhop, bellhop.add(id="awake"))
    dial(bellhop, asleep).sleep()
    assert bellhop.write("before", bot="attic") == 200
    size = max(p.stat().st_size for p in bellhop.state.iterdir() if p.suffix != ".reserve")
    limit(bellhop, resource.RLIMIT_FSIZE, size)  # no file grows any more
    wait_for(lambda: bellhop.write("x" * 9000, bot="attic") == 503)
    assert bellhop.get("/readyz").status == 503
    assert bellhop.get("/healthz").status == 200
    assert bellhop.metric("store_healthy") == 0
    with ThreadPoolExecutor(1) as pool:  # the answer waits for the ack, which comes meanwhile
        status = pool.submit(bellhop.write, "still here", client_id="c1")
        gateway.hear("still here")
        assert status.result() in (200, 503)  # delivered in any case
    with pytest.raises(Refused) as no:  # not the gateway's fault: it may come back
        dial(bellhop, asleep)
    assert no.value.status == 503
    limit(bellhop, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
    wait_for(lambda: bellhop.get("/readyz").status == 200)  # by itself: nobody writes meanwhile
    assert bellhop.write("after", bot="attic", client_id="c2") == 200
    woken = dial(bellhop, asleep)
    woken.hear("before")
    woken.hear("after")
    assert bellhop.write("all is well", client_id="c3") == 200
    gateway.hear("all is well")
    bellhop.kill()
    bellhop.start()
    assert dial(bellhop, asleep).quiet()


def test_killed_at_any_moment_of_its_first_start_it_starts_the_next_time(make_bellhop):
    rng = random.Random(3)
    server = make_bellhop(start=False)
    for _ in range(12):
        for _ in range(3):
            process = subprocess.Popen([PROGRAM, "serve", "-c", server.config], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, 0.08))  # not a synchronisation: any moment will do
            process.kill()
            process.wait()
        server.start()
        assert server.write("x", client_id="c") == 200
        server.kill()
        if rng.random() < 0.7:
            subprocess.run(["rm", "-rf", server.state], check=True)
    server.start()


def test_a_key_file_cut_short_by_a_crash_is_no_key_file(make_bellhop):
    """The key is put in place in one step: a start that died half way left a draft, which is nothing."""
    server = make_bellhop(start=False)
    server.state.mkdir(mode=0o700)
    (server.state / "master.key.new").write_text("00")
    server.start()
    assert len((server.state / "master.key").read_text().strip()) == 64
    assert not (server.state / "master.key.new").exists()


def test_nothing_a_peer_says_writes_its_own_log_line(make_bellhop, dial):
    server = make_bellhop()
    forged = "x\n2026-01-01T00:00:00.000Z error forged=line \x1b[31mred"
    gateway = dial(server, server.add())
    gateway.send({"type": forged})
    gateway.send({"type": "hello", "platform": forged, "botId": forged})
    gateway.send({"type": "interrupt", "session_key": forged})
    gateway.send_raw('{"type": "' + forged.replace("\n", "\\n") + '", broken\n')
    gateway.act(op=forged, chat_id=forged)
    server.write(forged, client_id="c", visitor="hostile-visitor-0003")
    with Raw(server) as c:
        c.say(b"GET /x%0aforged=line HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        c.hear_all()
    gateway.close()
    assert server.stop() == 0
    assert "\x1b" not in server.log()
    assert not [line for line in server.lines if "forged" in line and not re.match(r"\d{4}-\d\d-\d\dT.* debug ", line)]
    assert not [line for line in server.lines if line.startswith("2026-01-01")]


def test_secrets_are_nowhere_to_be_seen(make_bellhop, dial):
    key = "5eC4e7" * 6
    server = make_bellhop(CONFIG + "master_key: " + key + "\nadmin: {{token: adm1n-t0ken-secret}}\n")
    credential = server.add(id="g")
    gateway = dial(server, credential)
    server.write("a secret thought", visitor="visitor-token-0123456789")
    gateway.hear("a secret thought")
    rotated = server.cli("gateway", "rotate", "g").stdout
    new = re.search(r"GATEWAY_RELAY_SECRET=(\S+)", rotated)[1]
    seen = "".join(server.cli(*words).stdout for words in (
        ("status",), ("status", "--json"), ("gateway", "list"), ("gateway", "list", "--json"), ("mailbox", "list"),
        ("doctor",), ("route", "list")))
    seen += server.get("/metrics").text + server.get("/readyz").text
    arguments = open(f"/proc/{server.process.pid}/cmdline").read()
    assert server.stop() == 0
    disk = b"".join(p.read_bytes() for p in server.state.iterdir() if p.is_file()).decode("latin-1")
    for secret in (credential.secret, new, key, "adm1n-t0ken-secret", credential.token(), "visitor-token-0123456789"):
        for where, text in (("output", seen), ("log", server.log()), ("disk", disk), ("arguments", arguments)):
            assert secret not in text, f"{secret} in the {where}"
    assert "a secret thought" not in server.log() + seen


def test_a_log_that_nobody_reads_holds_up_nothing(make_bellhop):
    server = make_bellhop(start=False)
    reader, writer = os.pipe()
    process = subprocess.Popen([PROGRAM, "serve", "-c", server.config], stdout=subprocess.PIPE, stderr=writer, text=True)
    os.close(writer)
    try:
        assert "ready" in process.stdout.readline()
        server.port = int((server.state / "port").read_text())
        server.url = f"http://127.0.0.1:{server.port}"
        credential = server.add()
        for _ in range(250):  # five lines each, into a pipe of 64 KiB
            RawRelay(server, credential).s.close()
        is_well(server)
        os.set_blocking(reader, False)
        log = b""
        while piece := read_some(reader):
            log += piece
        server.add()
        wait_for(lambda: b"lines lost=" in (read_some(reader) or b""))
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reader)


def read_some(fd):
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return None


def test_no_spelling_of_a_private_address_is_rung(make_bellhop):
    server = make_bellhop(CONFIG.replace("allow_private: true", "allow_private: false"))
    hosts = ["127.1", "0", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1",
             "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "user:pw@127.0.0.1", "169.254.169.254", "100.64.0.1", "[fe80::1]",
             "[fd00::1]"]
    for n, host in enumerate(hosts):
        RawRelay(server, server.add(id=f"g{n}", wake_url=f"http://{host}:9/wake")).s.close()
    assert server.write("wake up") == 200
    for n, host in enumerate(hosts):
        problem = wait_for(lambda: server.instance(f"g{n}")["pokeProblem"])
        assert problem == "the address is not a public one", host


def test_a_full_mailbox_refuses_for_now_and_takes_again_when_it_has_drained(make_bellhop, dial):
    server = make_bellhop(CONFIG + "delivery: {{max_mailbox_bytes: 64KiB}}\n")
    credential = server.add(id="full")
    taken = [server.write(f"{n} " + "x" * 9000, client_id=f"c{n}") for n in range(10)]
    assert taken == sorted(taken) and {200, 503} == set(taken)
    gateway = dial(server, credential)
    for n in range(taken.count(200)):
        assert gateway.next("inbound")["event"]["text"].startswith(f"{n} ")
    wait_for(lambda: server.instance("full")["entries"] == 0)
    assert server.write("the platform tries again", client_id="c9") == 200
    gateway.hear("the platform tries again")


# ---- gateways that freeze ----

def test_a_gateway_that_is_slow_to_ack_is_left_alone_and_one_that_never_does_is_away(make_bellhop, dial):
    server = make_bellhop(CONFIG + "delivery: {{ack_patience: 4s}}\n")
    gateway = dial(server, server.add(id="slow"), ack=False)
    server.write("one")
    held = gateway.hear("one")
    assert gateway.quiet(seconds=2)
    assert server.instance("slow")["state"] == "live"
    server.write("two")
    later = gateway.hear("two")  # a stalled reader still gets what fits into its window
    wait_for(lambda: server.instance("slow")["state"] == "away", 15)
    server.write("three")
    assert gateway.quiet(seconds=1)
    gateway.acknowledge(held)
    gateway.hear("three")
    assert server.instance("slow")["state"] == "live"
    gateway.acknowledge(later)
    assert gateway.closed is None


def test_an_old_gateway_that_thinks_for_long_and_never_acks_is_served(make_bellhop, dial):
    server = make_bellhop(CONFIG + "delivery: {{ack_patience: 4s}}\n")
    old = dial(server, server.add(id="old"), ack=False)
    server.write("a hard question")
    event = old.hear("a hard question")["event"]
    wait_for(lambda: server.instance("old")["state"] == "away")
    assert old.act(op="send", chat_id=event["source"]["chat_id"], content="42", reply_to=event["message_id"])["success"]
    wait_for(lambda: server.instance("old")["entries"] == 0)
    server.write("another one")
    old.hear("another one")
    assert old.closed is None


def test_a_frozen_gateway_is_away_when_its_pings_go_unanswered_and_back_when_it_thaws(frozen):
    """Bellhop pings every 10 s and waits 20 s for an answer."""
    server, process = frozen.server, frozen.process
    wait_for(lambda: server.instance("frozen")["state"] == "away", 60, 0.3)
    assert server.write("while frozen 2") == 200
    process.send_signal(signal.SIGCONT)
    assert [process.stdout.readline() for _ in range(2)] == ["while frozen 1\n", "while frozen 2\n"]
    wait_for(lambda: server.instance("frozen")["entries"] == 0)
    assert server.instance("frozen")["state"] == "live"


def test_heads_that_never_end_are_cut_off(dribble):
    """Ten seconds is what a head may take; the tests before this one were not held up by it."""
    dribble.join(70)
    assert not dribble.left, f"{len(dribble.left)} are still there"
    assert dribble.seconds > 5, "they were refused, not cut off"

"""Strangers and one greedy tenant do everything at once, at the default limits: the process stays within what
docs/security.md promises for a machine of 512 MB, no turn of the loop is long, and a good tenant is served."""
import contextlib
import json
import os
import random
import re
import socket
import sqlite3
import subprocess
import threading
import time

from conftest import PROGRAM, ROOT, wait_for
from test_hostile import MIB, SMALL, RawRelay, frame, is_well, resident
from test_limits import limits, no_long_turn
from v1 import Program

SECONDS, ROUNDS, MOST = 6, 10, 90  # at least so long, and until so many were served, but no longer
POST = (b"POST /chat/attic/api/message HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"X-Bellhop-Visitor: %s\r\nContent-Length: %d\r\n\r\n")


def connect(server, address):
    """From an address of its own; most of what is sent back is never read."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(2)
    s.bind((address, 0))
    s.connect(("127.0.0.1", server.port))
    return s


def address():
    return f"127.0.{random.randrange(1, 20)}.{random.randrange(1, 20)}"


class Siege:
    def __init__(self, server, evil, program):
        self.server, self.evil, self.program = server, evil, program
        self.begun, self.over = time.monotonic(), False
        self.kept, self.done = [], {}

    def goes_on(self):
        return not self.over

    # ---- strangers ----

    def half_requests(self):
        with contextlib.closing(connect(self.server, address())) as s:
            s.sendall(POST % (b"half-a-visitor-00000", 900_000) + b"x" * 400_000)
            time.sleep(0.3)

    def idlers(self):
        self.kept.append(connect(self.server, address()))

    def unread_streams(self):
        s = connect(self.server, address())
        s.sendall(b"GET /chat/attic/api/events?last=0 HTTP/1.1\r\nHost: localhost\r\nX-Bellhop-Visitor: made-up-%016d\r\n\r\n" %
                  random.getrandbits(50))
        self.kept.append(s)

    def unread_answers(self):
        s = connect(self.server, address())
        s.sendall(b"GET /chat/attic HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        self.kept.append(s)

    def made_up_visitors(self):
        with contextlib.closing(connect(self.server, address())) as s:
            body = json.dumps({"text": "x" * 15000}).encode()
            for _ in range(20):
                s.sendall(POST % (b"made-up-%016d" % random.getrandbits(50), len(body)) + body)
            s.recv(65536)

    def forged_webhooks(self):
        with contextlib.closing(connect(self.server, address())) as s:
            s.sendall(b"POST /webhooks/twilio/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na=b" * 20)
            s.recv(65536)

    def guessers(self):
        with contextlib.closing(connect(self.server, address())) as s:
            for path in (b"/relay", b"/v1/skills", b"/mcp", b"/relay/media/0", b"/admin/status"):
                s.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % (path, os.urandom(20).hex().encode()))
            s.recv(65536)

    # ---- the greedy tenant ----

    def half_lines(self):
        r = RawRelay(self.server, self.evil, hello=False)
        r.say(frame(b'{"type":"outbound","x":"' + b"y" * 900_000))
        self.kept.append(r.s)

    def frames_unread(self):
        r = RawRelay(self.server, self.evil, receive_buffer=4096)
        one = b"".join(b'{"type":"outbound","requestId":"%d","action":{"op":"send","chat_id":"nowhere","content":"%s"}}\n' %
                       (i, b"[a](" * 100) for i in range(50))
        r.pour(frame(one) * 40, 1)
        self.kept.append(r.s)

    def large_frames(self):
        with contextlib.closing(RawRelay(self.server, self.evil).s) as s:
            s.sendall(frame(b'{"type":"outbound","requestId":"x","action":{"op":"send","chat_id":"z","content":"' + b"y" * 1_000_000 +
                            b'"}}\n') * 4)

    def skills(self):
        self.program.write(f"s{random.randrange(5)}", source="# Skill: s\n# Status: Draft\n\n" + os.urandom(300_000).hex())

    def data(self):
        self.program.ask("POST", "/v1/data", {"content": os.urandom(100_000).hex()})

    def tools(self):
        self.program.ask("POST", "/mcp", [{"jsonrpc": "2.0", "id": i, "method": "tools/list"} for i in range(100)])

    def one(self, what):
        """Again and again until the time is over; refused is fine."""
        n = 0
        while self.goes_on():
            with contextlib.suppress(OSError, AssertionError, ValueError):
                what()
            n += 1
            time.sleep(0.02)
        self.done[what.__name__] = n

    def run(self):
        deeds = [self.half_requests, self.half_requests, self.idlers, self.unread_streams, self.unread_answers, self.made_up_visitors,
                 self.forged_webhooks, self.guessers, self.half_lines, self.frames_unread, self.large_frames, self.skills, self.data,
                 self.tools]
        threads = [threading.Thread(target=self.one, args=(d,), daemon=True) for d in deeds]
        for t in threads:
            t.start()
        return threads


def write(server, text):
    """A good visitor writes, and is patient: the machine may be busy with others' tests."""
    body = json.dumps({"text": text, "client_id": text}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 120) as s:
        s.sendall((POST % (b"a-good-visitor-00000", len(body))).replace(b"/attic/", b"/lobby/") + body)
        return s.recv(4096).split()[1]


def promised():
    """What all of a limit of memory may take together, by the page, in bytes."""
    page = (ROOT / "docs" / "security.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| (\d+) MiB \|", page, re.M))
    return MIB * sum(int(rows[name]) for name in ("request_bytes", "answer_bytes", "frame_bytes", "unsent_bytes", "work_bytes"))


def test_everything_at_once_stays_within_what_the_page_promises(make_bellhop, dial):
    server = make_bellhop(env=SMALL)
    evil, good = server.add(id="evil", tenant="evil", bot="attic"), dial(server, server.add(id="good", tenant="good"))
    siege = Siege(server, evil, Program(server, tenant="evil"))
    before, peak, heard = resident(server), 0, 0
    threads = siege.run()
    while not siege.over:
        peak = max(peak, resident(server))
        assert write(server, f"m{heard}") == b"200"
        assert good.next("inbound", timeout=120)["event"]["text"] == f"m{heard}"
        heard += 1
        took = time.monotonic() - siege.begun
        siege.over = took > MOST or (took > SECONDS and heard >= ROUNDS)
    for t in threads:
        t.join(120)
    assert promised() + 100 * MIB < 512 * MIB  # the page itself
    assert peak - before < promised(), f"{(peak - before) / MIB:.0f} MB"
    disk = sum(f.stat().st_size for f in server.state.rglob("*") if f.is_file())
    assert disk < 512 * MIB, f"{disk / MIB:.0f} MB"
    assert heard >= ROUNDS and all(siege.done.values()), (heard, siege.done)
    no_long_turn(server)
    for s in siege.kept:
        s.close()
    held = ("request_bytes", "answer_bytes", "frame_bytes", "unsent_bytes", "work_bytes", "streams", "sockets")
    wait_for(lambda: [n for n in held if limits(server)["held", n] > (1 if n == "sockets" else 0)] == [], 30)
    is_well(server)


def test_what_waits_is_erased_and_purged_in_many_small_turns(make_bellhop):
    """Half a million messages of two people for an agent that never came (./dev siege): one of them is forgotten, then all
    is thrown away, and meanwhile others are served."""
    each = 250_000 if os.environ.get("BELLHOP_LONG") else 10_000
    server = make_bellhop()
    server.add(id="away")
    for visitor in ("ada-0123456789abcdef", "bob-0123456789abcdef"):
        assert server.write("first", visitor=visitor) == 200
    wait_for(lambda: server.instance("away")["entries"] == 2)
    assert server.stop() == 0
    database = sqlite3.connect(server.state / "bellhop.db")
    ada = json.loads(database.execute("SELECT frame FROM mailbox ORDER BY id").fetchone()[0])["event"]["source"]["chat_id"]
    database.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO mailbox"
                     " SELECT id + 2 * i, box, kind, flags, at_ms, attempts, parked, frame FROM n, mailbox ORDER BY i", (each,))
    database.commit()
    database.close()
    server.start()
    assert server.instance("away")["entries"] == 2 * each + 2
    times = {}
    for what, words, left in (("erase", ("erase", "--person", f"web:{ada}", "--yes"), each + 1),
                              ("purge", ("mailbox", "purge", "away", "--yes"), 0)):
        asked, began, slowest = Asked(server, words), time.monotonic(), 0.0
        while asked.is_alive() or server.instance("away")["entries"] != left:
            at = time.monotonic()
            assert server.get("/healthz").status == 200
            slowest = max(slowest, time.monotonic() - at)
            assert at - began < 300
        times[what] = (time.monotonic() - began, slowest)
        assert asked.done.returncode == 0, asked.done.stderr
    no_long_turn(server)
    print(", ".join(f"{what}: {took:.1f} s, healthz at most {slow * 1000:.0f} ms" for what, (took, slow) in times.items()))
    assert server.write("afterwards", visitor="cat-0123456789abcdef") == 200
    wait_for(lambda: server.instance("away")["entries"] == 1)


class Asked(threading.Thread):
    """A command that is under way."""

    def __init__(self, server, words):
        super().__init__()
        self.server, self.words = server, words
        self.start()

    def run(self):
        self.done = subprocess.run([PROGRAM, *self.words, "-c", self.server.config], text=True, capture_output=True, timeout=300)

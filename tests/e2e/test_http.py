"""HTTP as bellhop reads it, beside Node's parser: what is ambiguous is refused, what is taken means the same to both."""
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

import pytest

from conftest import CONFIG, Bellhop, wait_for

HERE = pathlib.Path(__file__).resolve().parent
H = b"Host: 127.0.0.1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + H
POST = b"POST /nothing HTTP/1.1\r\n" + H
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

# what is sent -> the answers, in order
CORPUS = {
    "plain": (GET + b"\r\n", [200]),
    "two in a row": (GET + b"\r\n" + GET + b"\r\n", [200, 200]),
    "an empty line before": (b"\r\n" + GET + b"\r\n", [200]),
    "with a length": (POST + b"Content-Length: 3\r\n\r\nabc" + GET + b"\r\n", [404, 200]),
    "chunked": (CHUNKED + b"3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n" + GET + b"\r\n", [404, 200]),
    "absolute": (b"GET http://127.0.0.1/healthz HTTP/1.1\r\n" + H + b"\r\n", [200]),
    "latin-1 in a value": (GET + b"X: caf\xe9\r\n\r\n", [200]),
    "many fields": (GET + b"X: y\r\n" * 99 + b"\r\n", [200]),
    "no Host": (b"GET /healthz HTTP/1.1\r\n\r\n", [400]),
    "two Hosts": (GET + H + b"\r\n", [400]),
    "another host in the target": (b"GET http://example.org/healthz HTTP/1.1\r\n" + H + b"\r\n", [400]),
    "a query where the path starts": (b"GET http://127.0.0.1?/healthz HTTP/1.1\r\n" + H + b"\r\n", [400]),
    "a fragment": (b"GET /healthz#x HTTP/1.1\r\n" + H + b"\r\n", [400]),
    "HTTP/1.9": (b"GET /healthz HTTP/1.9\r\n" + H + b"\r\n", [400]),
    "HTTP/2.0": (b"GET /healthz HTTP/2.0\r\n" + H + b"\r\n", [505]),
    "a lower-case method": (b"get /healthz HTTP/1.1\r\n" + H + b"\r\n", [400]),
    "a method nobody has": (b"BREW /healthz HTTP/1.1\r\n" + H + b"\r\n", [501]),
    "a chunk size with a space in it": (CHUNKED + b"c 5\r\nabc\r\n0\r\n\r\n", [400]),
    "a control byte in a chunk extension": (CHUNKED + b"3;a\x01\r\nabc\r\n0\r\n\r\n", [400]),
    "a line feed in a chunk extension": (CHUNKED + b"3;a\nb\r\nabc\r\n0\r\n\r\n", [400]),
    "a chunk that is longer than it says": (CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", [400]),
    "length and encoding": (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
    "two lengths": (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", [400]),
    "a length with a plus": (POST + b"Content-Length: +3\r\n\r\nabc", [400]),
    "an encoding behind a tab": (POST + b"Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", [400]),
    "an encoding behind another": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [501]),
    "a space before the colon": (GET + b"X : y\r\n\r\n", [400]),
    "a folded line": (GET + b"X: y\r\n z\r\n\r\n", [400]),
    "a bare line feed": (GET + b"X: y\n\r\n", [400]),
    "a bare carriage return": (GET + b"X: y\rz\r\n\r\n", [400]),
    "a NUL": (GET + b"X: y\0\r\n\r\n", [400]),
    "an unknown expectation": (GET + b"Expect: a-tip\r\n\r\n", [400]),
    "a second request behind a refused one": (b"GET /healthz\r\n\r\n" + GET + b"\r\n", [400]),
}


class Node:
    def __init__(self):
        self.process = subprocess.Popen(["node", HERE / "http_oracle.js"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = self.line()["port"]

    def line(self):
        return json.loads(self.process.stdout.readline())

    def reads(self, data):
        """The requests it saw whole."""
        talk(self.port, data)
        return [r for r in self.line()["seen"] if r.get("whole")]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def talk(port, data):
    """Say it, close our half, hear everything."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while piece := s.recv(65536):
                got += piece
        except (ConnectionResetError, BrokenPipeError, OSError):
            pass
    return got


def statuses(server, data):
    return [int(s) for s in re.findall(rb"HTTP/1\.1 (\d\d\d) ", talk(server.port, data)) if s != b"100"]


@pytest.fixture(scope="module")
def server():
    server = Bellhop().start()
    yield server
    assert server.stop() == 0, server.log()
    server.clean()


@pytest.fixture(scope="module")
def node():
    node = Node()
    yield node
    node.stop()


@pytest.mark.parametrize("name", CORPUS)
def test_one_reading_or_none(server, node, name):
    data, want = CORPUS[name]
    assert statuses(server, data) == want
    taken = [s for s in want if s in (200, 404)]
    if taken:
        seen = node.reads(data)
        assert len(seen) == len(taken)
        assert [s["url"].endswith("/healthz") for s in seen] == [s == 200 for s in taken]
    else:
        node.reads(data)  # whatever it thinks of it


def test_nothing_that_is_taken_means_something_else_to_node(server, node):
    """Random damage to good requests: Node must see at least the requests that bellhop answered, and in the same place."""
    rng = random.Random(11)
    good = [data for data, want in CORPUS.values() if 400 not in want]
    bits = [b"\r", b"\n", b" ", b"\t", b"\0", b":", b"#", b"?", b"\r\n", b"0", b"3\r\n", b"Host: localhost\r\n", b"\x7f", b"\xff", b";", b"chunked"]
    taken = 0
    for _ in range(400):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(data))
            what = rng.randrange(3)
            if what == 0:
                del data[at]
            elif what == 1:
                data[at:at] = rng.choice(bits)
            else:
                data[at] = rng.randrange(256)
        answers = statuses(server, bytes(data))
        taken_here = sum(s not in (400, 408, 413, 421, 431, 501, 505) for s in answers)
        seen = node.reads(bytes(data))
        assert len(seen) >= taken_here, (bytes(data), answers, seen)
        taken += taken_here
    assert taken > 50  # it was not all refused


# ---- by which name, and for whom ----


def ask(port, host, path="/healthz", more=b"", first=b"", method="GET"):
    got = talk(port, first + f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n".encode() + more + b"\r\n")
    return int(got.split()[1]) if got else None, got


def test_a_name_somebody_pointed_here_is_not_answered(server):
    """DNS rebinding: a page of evil.example talks to 127.0.0.1 by its own name, with a browser on this machine."""
    for path in ("/healthz", "/chat", "/metrics", "/chat/lobby/api/events"):
        status, got = ask(server.port, f"evil.example:{server.port}", path)
        assert status == 421 and b"add the name to hosts" in got and b"unknown_host" in got
    status, got = ask(server.port, "evil.example", "/relay", b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
                      b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
    assert status == 421
    for host in ("localhost", f"localhost:{server.port}", "127.0.0.1", "[::1]", "192.168.7.7:80"):
        assert ask(server.port, host)[0] == 200


def test_configured_names_are_answered_and_a_reload_takes_new_ones(make_bellhop):
    server = make_bellhop(CONFIG + "public_url: https://Relay.example.org:8443/base\nhosts: [bellhop, '*.inside.example']\n")
    for host, want in (("relay.example.org", 200), ("bellhop:7077", 200), ("a.inside.example", 200),
                       ("example.org", 421), ("late.example", 421)):
        assert ask(server.port, host)[0] == want, host
    server.config.write_text(server.config.read_text().replace("[bellhop,", "[late.example,"))
    server.signal(signal.SIGHUP)
    wait_for(lambda: ask(server.port, "late.example")[0] == 200)
    assert ask(server.port, "bellhop")[0] == 421


def forge(server, more=b"", first=b""):
    """A webhook whose signature looks right and is wrong: checking it is what the door saves."""
    proof = b"X-Signature-Timestamp: %d\r\nX-Signature-Ed25519: %s\r\n" % (time.time(), b"ab" * 64)
    return ask(server.port, "localhost", "/webhooks/discord/none", proof + b"Content-Length: 0\r\n" + more, first, "POST")[0]


def refuse_until_429(server, more, first=b""):
    """How many of them this client may send."""
    for n in range(200):
        status = forge(server, more, first)
        if status == 429:
            return n
    return None


FEW = CONFIG + "webhooks: {{refused_per_source: 1}}\n"


def test_only_a_trusted_proxy_says_who_a_client_is(make_bellhop):
    server = make_bellhop(FEW)
    assert refuse_until_429(server, b"X-Forwarded-For: 203.0.113.1\r\n") is not None
    assert forge(server, b"X-Forwarded-For: 203.0.113.2\r\n") == 429  # the same
    wait_for(lambda: "add it to trusted_proxies" in server.log())

    behind = make_bellhop(FEW + "trusted_proxies: [127.0.0.1, 10.0.0.0/8]\n")
    assert refuse_until_429(behind, b"X-Forwarded-For: 9.9.9.9, 203.0.113.1, 10.0.0.1\r\n") is not None
    assert forge(behind, b"X-Forwarded-For: 8.8.8.8, 203.0.113.1\r\n") == 429
    assert forge(behind, b"X-Forwarded-For: 203.0.113.2\r\n") == 401


def proxied(address):
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + socket.inet_aton(address) + b"\x7f\0\0\1\x30\x39\0\x50"


def test_the_proxy_protocol_says_it_before_everything_else(make_bellhop):
    server = make_bellhop(FEW + "trusted_proxies: [127.0.0.1]\nproxy_protocol: true\n")
    assert ask(server.port, "localhost", first=proxied("203.0.113.1"))[0] == 200
    assert ask(server.port, "localhost")[0] is None  # nobody speaks without it
    assert refuse_until_429(server, b"", proxied("203.0.113.1")) is not None
    assert forge(server, first=proxied("203.0.113.2")) == 401
    assert "instances" in server.cli("status", "--json").stdout  # the operator's socket has none

    closed = make_bellhop(CONFIG + "trusted_proxies: [10.0.0.0/8]\nproxy_protocol: true\n")
    assert ask(closed.port, "localhost", first=proxied("203.0.113.1"))[0] is None

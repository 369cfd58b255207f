"""What a good tenant notices while somebody else does harm.

One server, two bots, two tenants. A good gateway is posted to and acks, fifty times a second; the time from the POST to its
frame is the round trip. Beside it /healthz is asked. Then, one after the other, from processes of their own and from many
addresses of the loopback network:

    idle        19,700 sockets that say nothing
    half-open   10,000 requests that never end
    streams     4,000 pages that listen and do not read
    no acks     a gateway that takes everything and acknowledges nothing, with 100,000 messages waiting for it
    frames      a gateway that sends frames as fast as it can
    posts       bodies of 1 MB, again and again
    disk full   the store has reached its largest size (the good tenant is refused too, and told so)

Each row: how much of the load was let in, whether a connection that comes then is served, the process's memory, /healthz, the round trip, and the longest turn of the loop while
it lasted, as the histogram tells.
"""
import base64
import hashlib
import hmac
import http.client
import json
import multiprocessing
import os
import resource
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import report
import scale

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {state}
log: {{level: error}}
store: {{max_size: {max_size}}}
platforms:
  - {{platform: web, bot: quiet}}
  - {{platform: web, bot: loud}}
"""
IDLE, HALF_OPEN, STREAMS, WAITING = 19700, 10000, 4000, 100000
PER_ADDRESS = 100
CONNECTIONS = 16
RATE = 50


# ---- the wire ----


def source(i):
    """An address of its own for every PER_ADDRESS connections."""
    i //= PER_ADDRESS
    return f"127.{1 + i // 65536}.{i // 256 % 256}.{i % 256}"


def connect(port, i=None):
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.settimeout(30)
    if i is not None:
        s.bind((source(i), 0))
    s.connect(("127.0.0.1", port))
    return s


def post(bot, visitor, text):
    body = json.dumps({"text": text, "client_id": f"{time.monotonic_ns():x}"}).encode()
    return (f"POST /chat/{bot}/api/message HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"X-Bellhop-Visitor: {visitor}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


def frame(text):
    data = text.encode()
    head = struct.pack("!BB", 0x81, 0x80 | len(data)) if len(data) < 126 else struct.pack("!BBH", 0x81, 0xFE, len(data))
    return head + b"\0\0\0\0" + data  # masked with zero


class Gateway:
    """A socket on /relay that said hello; read() gives what came, frame by frame."""

    def __init__(self, port, name, secret, bot):
        signed = f"{name}:{int(time.time()) + 3600}"
        mac = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
        token = base64.urlsafe_b64encode(f"{signed}:{mac}".encode()).rstrip(b"=").decode()
        self.s = connect(port)
        self.s.sendall((f"GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                        f"Authorization: Bearer {token}\r\n\r\n").encode())
        self.had = b""
        while b"\r\n\r\n" not in self.had:
            self.had += self.s.recv(4096)
        head, self.had = self.had.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0] + b" ":
            raise RuntimeError(head.decode())
        self.say({"type": "hello", "platform": "web", "botId": bot})

    def say(self, doc):
        self.s.sendall(frame(json.dumps(doc) + "\n"))

    def need(self, n):
        while len(self.had) < n:
            got = self.s.recv(65536)
            if not got:
                raise ConnectionError("closed")
            self.had += got

    def read(self):
        """The frames of one WebSocket message; [] for a ping, which is answered."""
        self.need(2)
        opcode, n, at = self.had[0] & 15, self.had[1] & 127, 2
        if n >= 126:
            at = 4 if n == 126 else 10
            self.need(at)
            n = int.from_bytes(self.had[2:at], "big")
        self.need(at + n)
        data, self.had = self.had[at:at + n], self.had[at + n:]
        if opcode == 8:
            self.s.shutdown(socket.SHUT_RDWR)  # whoever is sending notices
            raise ConnectionError("closed")
        if opcode == 9:
            self.s.sendall(struct.pack("!BB", 0x8A, 0x80 | n) + b"\0\0\0\0" + data)
        return [json.loads(line) for line in data.splitlines()] if opcode == 1 else []


# ---- the loads: each says through @ready how much was let in, and goes on until it is killed ----


def many_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hold(port, n, request, ready):
    """@n connections that send @request and nothing more; those that are still open count."""
    held = []
    for i in range(n):
        try:
            s = connect(port, i)
            if request:
                s.sendall(request(i))
            held.append(s)
        except OSError:
            break
    time.sleep(1)
    open_now = 0
    for s in held:
        s.setblocking(False)
        try:
            open_now += s.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"  # anything else is a refusal
        except BlockingIOError:
            open_now += 1
        except OSError:
            pass
    ready.send(f"{open_now:,} of {n:,}")
    time.sleep(3600)


def idle(port, _, ready):
    hold(port, IDLE, None, ready)


def half_open(port, _, ready):
    hold(port, HALF_OPEN, lambda i: b"POST /chat/loud/api/message HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Content-Length: 60000\r\n\r\n{\"text\":\"", ready)


def streams(port, _, ready):
    hold(port, STREAMS, lambda i: (f"GET /chat/loud/api/events HTTP/1.1\r\nHost: localhost\r\n"
                                   f"X-Bellhop-Visitor: hostile-visitor-{i:08}\r\n\r\n").encode(), ready)


def flood_some(port, first, n, text):
    """Pipelined on one connection, each from another made-up visitor; how many were taken."""
    accepted, sent, s = 0, 0, connect(port)
    while sent < n:
        batch = min(50, n - sent)
        s.sendall(b"".join(post("loud", f"hostile-{(first + sent + i) % 20000:08}", text) for i in range(batch)))
        answers = b""
        while answers.count(b"HTTP/1.1 ") < batch:
            got = s.recv(1 << 20)
            if not got:
                s, answers = connect(port), answers + b"HTTP/1.1 " * batch
            answers += got
        accepted += answers.count(b"HTTP/1.1 200")
        sent += batch
    return accepted


def flood_posts(port, n, text, ready):
    """On CONNECTIONS at once: one after the other they would wait for the disk most of the time."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        share = n // CONNECTIONS
        accepted = sum(pool.map(lambda i: flood_some(port, i * share, share, text), range(CONNECTIONS)))
    if ready is not None:
        ready.send(f"{accepted:,} of {n:,}")
    return accepted


def no_acks(port, secret, ready):
    gateway = Gateway(port, "evil", secret, "loud")
    threading.Thread(target=swallow, args=(gateway,), daemon=True).start()
    flood_posts(port, WAITING, "never acknowledged", ready)
    time.sleep(3600)


def swallow(gateway):
    try:
        while True:
            gateway.read()
    except (OSError, ConnectionError):
        pass


def frames(port, secret, ready):
    sent, begin, told = 0, time.monotonic(), False
    chunk = b"".join(frame(json.dumps({"type": "outbound", "requestId": f"r{i}", "action": {
        "op": "send", "chat_id": "nowhere", "content": "x" * 50}}) + "\n") for i in range(200))
    gateway = Gateway(port, "evil", secret, "loud")
    threading.Thread(target=swallow, args=(gateway,), daemon=True).start()
    while True:
        try:
            gateway.s.sendall(chunk)
            sent += 200
        except OSError:
            time.sleep(0.05)
            try:
                gateway = Gateway(port, "evil", secret, "loud")
                threading.Thread(target=swallow, args=(gateway,), daemon=True).start()
            except (OSError, RuntimeError):
                continue
        if not told and time.monotonic() - begin > 2:
            told = True
            ready.send(f"{sent / (time.monotonic() - begin):,.0f}/s")


def big_posts(port, _, ready):
    body, told, begin, sent = b"x" * 1000000, False, time.monotonic(), 0
    head = (b"POST /chat/loud/api/message HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"X-Bellhop-Visitor: hostile-00000001\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n")
    while True:
        try:
            with connect(port) as s:
                s.sendall(head + body)
                s.recv(4096)
        except OSError:
            pass
        sent += 1
        if not told and time.monotonic() - begin > 2:
            told = True
            ready.send(f"{sent / (time.monotonic() - begin):,.0f}/s")


def disk_full(port, _, ready):
    accepted = 1
    total = 0
    while accepted > 0 and total < 2000000:
        accepted = flood_posts(port, 5000, "y" * 3000, None)
        total += accepted
    ready.send(f"after {total:,}")
    time.sleep(3600)


LOADS = [("quiet", None), ("idle", idle), ("half-open", half_open), ("streams", streams), ("no acks", no_acks), ("frames", frames),
         ("posts", big_posts), ("disk full", disk_full)]


# ---- the good tenant ----


class Innocent:
    def __init__(self, port, secret):
        self.port, self.arrived = port, {}
        self.gateway = Gateway(port, "good", secret, "quiet")
        self.posts, self.checks = connect(port), http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            while True:
                for f in self.gateway.read():
                    if f["type"] != "inbound":
                        continue
                    self.arrived[f["event"]["text"]] = time.monotonic()
                    self.gateway.say({"type": "inbound_ack", "bufferId": f["bufferId"]})
        except OSError:
            pass  # the server has been stopped

    def newcomer(self):
        """Is a connection that comes now served?"""
        try:
            with connect(self.port) as s:
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return s.recv(100).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def posted(self, request):
        try:
            self.posts.sendall(request)
            answer = http.client.HTTPResponse(self.posts, method="POST")
            answer.begin()
            answer.read()
            return answer.status == 200
        except (OSError, http.client.HTTPException):
            self.posts = connect(self.port)  # it may have been idle for too long
            return False

    def trips(self, seconds):
        """Round trips and answers of /healthz, in milliseconds; how many posts were refused."""
        trip, health, refused, sent = [], [], 0, {}
        for i in range(int(seconds * RATE)):
            next_at, text = time.monotonic() + 1 / RATE, f"innocent-{time.monotonic_ns()}"
            sent[text] = time.monotonic()
            if not self.posted(post("quiet", f"good-visitor-{i % 200:04}", text)):
                refused += 1
                del sent[text]
            if i % 5 == 0:
                begin = time.monotonic()
                try:
                    self.checks.request("GET", "/healthz")
                    self.checks.getresponse().read()
                except (OSError, http.client.HTTPException):
                    self.checks.close()  # opened again by the next request
                health.append((time.monotonic() - begin) * 1e3)
            time.sleep(max(0, next_at - time.monotonic()))
        limit = time.monotonic() + 20
        while time.monotonic() < limit and any(t not in self.arrived for t in sent):
            time.sleep(0.01)
        for text, at in sent.items():
            trip.append((self.arrived.get(text, limit) - at) * 1e3)
        return trip, health, refused


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else float("nan")


class Hostile:
    def __init__(self, options, tools, work):
        self.o, self.work, self.program = options, work, os.path.join(options.build, "bellhop")
        self.results = {"hostile": {}}

    def start(self, name):
        """A fresh server with its two gateways; their secrets."""
        state = os.path.join(self.work, name.replace(" ", "-"))
        server = scale.Server(self.program, state, CONFIG.format(state=state, max_size="160MiB" if name == "disk full" else "0"))
        secrets = {}
        for gateway, tenant, bot in (("good", "good", "quiet"), ("evil", "evil", "loud")):
            secrets[gateway] = server.call("POST", "/admin/gateways/add",
                                           {"id": gateway, "tenant": tenant, "platform": "web", "bot": bot, "open": True})[0]["secret"]
        return server, secrets

    def one(self, name, load):
        server, secrets = self.start(name)
        child = None
        try:
            innocent, let_in = Innocent(server.port, secrets["good"]), "-"
            innocent.trips(0.5)
            before = server.stalls()
            if load is not None:
                mine, theirs = multiprocessing.Pipe()
                child = multiprocessing.Process(target=load, args=(server.port, secrets["evil"], theirs), daemon=True)
                child.start()
                let_in = mine.recv() if mine.poll(300) else "not ready in 300 s"
            innocent.trips(0.1)  # what was closed while nobody asked is open again
            trip, health, refused = innocent.trips(self.o.seconds * 2)
            self.results["hostile"][name] = {
                "let_in": let_in, "newcomer": innocent.newcomer(), "rss_mb": server.resident() / 1e6, "health_max_ms": max(health, default=float("nan")), "refused": refused,
                "p50_ms": percentile(trip, 50), "p99_ms": percentile(trip, 99), "max_ms": percentile(trip, 100),
                "stall_s": scale.longest_stall(before, server.stalls())}
            r = self.results["hostile"][name]
            print(f".. {name:10} {let_in:>20}  p50 {r['p50_ms']:.2f} ms, p99 {r['p99_ms']:.2f} ms, turn <= {r['stall_s'] * 1e3:g} ms",
                  file=sys.stderr, flush=True)
        finally:
            if child is not None:
                child.kill()
                child.join()
            server.stop()

    def run(self):
        many_files()
        for name, load in LOADS:
            self.one(name, load)
        return self.results

    def show(self):
        all_of = self.results["hostile"]
        print("\na good tenant's round trip (POST -> frame at its gateway) beside each load, in milliseconds")
        report.table(["", "let in", "newcomers", "MB", "/healthz max", "p50", "p99", "max", "refused", "longest turn"],
                     [[n, r["let_in"], "served" if r["newcomer"] else "refused", f"{r['rss_mb']:.0f}", f"{r['health_max_ms']:.1f}", f"{r['p50_ms']:.2f}", f"{r['p99_ms']:.2f}",
                       f"{r['max_ms']:.1f}", r["refused"], f"<= {r['stall_s'] * 1e3:g} ms"] for n, r in all_of.items()])
        bound = max(5.0, 10 * all_of["quiet"]["p99_ms"])
        rows = [(f"p99, {n}", f"<= {bound:.1f} ms", f"{r['p99_ms']:.2f} ms", r["p99_ms"] <= bound)
                for n, r in all_of.items() if n not in ("quiet", "disk full")]
        rows += [(f"longest turn, {n}", "<= 10 ms", f"{r['stall_s'] * 1e3:g} ms", r["stall_s"] <= 0.01) for n, r in all_of.items()]
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in rows]
        report.print_targets(self.results["targets"])

    def panels(self):
        return [("p99 of a good tenant's round trip", " ms", [(n, r["p99_ms"]) for n, r in self.results["hostile"].items()
                                                               if r["p99_ms"] == r["p99_ms"]])]

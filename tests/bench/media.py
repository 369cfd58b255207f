"""Files: uploads and downloads beside nginx with the same files, in the same run and from the same client; the memory of 200
uploads of 20 MiB under way; and what somebody who writes text notices of them.

The client is a few threads on plain sockets that read into one buffer and send from one, so that most of its time is the
kernel's. nginx takes uploads with its WebDAV module (PUT) and syncs nothing; bellhop syncs each file before it answers.
"""
import contextlib
import http.client
import json
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time

import peers
import report

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from relay import mint  # noqa: E402 - it lies beside the end-to-end tests

FILE_BYTES, THREADS, FILES = 4 << 20, 4, 32
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {state}
log: {{level: warn}}
media: {{per_tenant: 64GiB, total: 64GiB}}
platforms: [{{platform: web, bot: lobby, history: 0}}]
"""
NGINX = """\
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; client_max_body_size 0; client_body_temp_path {dir}/body; proxy_temp_path {dir}/p;
  fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; keepalive_requests 1000000;
  server {{ listen 127.0.0.1:{port}; root {dir}/files; dav_methods PUT; }}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Bellhop(peers.Served):
    def __init__(self, tools, work, program):
        super().__init__(tools, work, program, CONFIG)

    def start(self):
        super().start()
        text = self.command("gateway", "add", "--tenant", "bench", "--instance", "bot", "--platform", "web", "--bot", "lobby")
        said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        self.header = f"Authorization: Bearer {mint(said['GATEWAY_RELAY_ID'], said['GATEWAY_RELAY_SECRET'], ttl=3600)}\r\n"

    def put(self, n):
        return "POST", "/relay/media", self.header

    def get(self, where):
        return f"/relay/media/{where}", self.header

    def name_of(self, n, body):
        return json.loads(body)["id"]


class Nginx(peers.Peer):
    header = ""

    def __init__(self, tools, work):
        super().__init__("nginx", tools, work)
        self.port = free_port()
        os.makedirs(os.path.join(self.dir, "files"), exist_ok=True)
        os.chmod(self.dir, 0o777), os.chmod(os.path.join(self.dir, "files"), 0o777)
        with open(os.path.join(self.dir, "nginx.conf"), "w") as f:
            f.write(NGINX.format(dir=self.dir, port=self.port))

    def start(self):
        self.spawn(["/usr/sbin/nginx", "-c", os.path.join(self.dir, "nginx.conf"), "-p", self.dir], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.05)
        raise RuntimeError(f"nginx did not start, see {self.dir}/error.log")

    def put(self, n):
        return "PUT", f"/f{n}", ""

    def get(self, where):
        return f"/{where}", ""

    def name_of(self, n, body):
        return f"f{n}"


def read_answer(s, room):
    """(status, body's first bytes, body's length); reads all of it into @room."""
    view, n = memoryview(room), 0
    while b"\r\n\r\n" not in room[:n]:
        got = s.recv_into(view[n:])
        if got == 0:
            raise OSError("closed")
        n += got
    at = room.index(b"\r\n\r\n", 0, n) + 4
    head = bytes(room[:at]).decode()
    length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
    body, left = bytes(room[at:min(n, at + 4096)]), length - (n - at)
    while left > 0:
        got = s.recv_into(view[:min(left, len(room))])
        if got == 0:
            raise OSError("closed")
        left -= got
    return int(head.split(" ", 2)[1]), body, length


class Load:
    """@work(socket, room, n) again and again on THREADS connections, for a while."""

    def __init__(self, port, seconds, work):
        self.port, self.work, self.n, self.bytes, self.lock = port, work, 0, 0, threading.Lock()
        self.end, self.failed = time.monotonic() + seconds, None
        threads = [threading.Thread(target=self.run) for _ in range(THREADS)]
        begin = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.seconds = time.monotonic() - begin
        if self.failed:
            raise self.failed

    def run(self):
        room = bytearray(1 << 20)
        try:
            with socket.create_connection(("127.0.0.1", self.port)) as s:
                while time.monotonic() < self.end:
                    with self.lock:
                        self.n += 1
                        n = self.n
                    got = self.work(s, room, n)
                    with self.lock:
                        self.bytes += got
        except Exception as e:  # noqa: BLE001 - told to whoever measures
            self.failed = e


class Media:
    def __init__(self, options, tools, work):
        self.o, self.results = options, {"upload": {}, "download": {}}
        self.bellhop = Bellhop(tools, work, os.path.join(options.build, "bellhop"))
        self.all = [self.bellhop]
        if os.path.exists("/usr/sbin/nginx"):
            self.all.append(Nginx(tools, work))
        else:
            print("nginx is not installed: measured without it", file=sys.stderr)
        self.whole = os.urandom(FILE_BYTES)

    def upload(self, peer, names):
        def work(s, room, n):
            method, path, header = peer.put(n % FILES if peer.name == "nginx" else n)
            s.sendall(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}Content-Type: video/mp4\r\n"
                      f"Content-Length: {FILE_BYTES}\r\n\r\n".encode())
            s.sendall(self.whole)
            status, body, _ = read_answer(s, room)
            if status not in (200, 201, 204):
                raise RuntimeError(f"{peer.name} answers an upload with {status}: {body[:200]}")
            names.add(peer.name_of(n % FILES if peer.name == "nginx" else n, body))
            return FILE_BYTES
        return work

    def download(self, peer, names):
        names = sorted(names)[:FILES]

        def work(s, room, n):
            path, header = peer.get(names[n % len(names)])
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}\r\n".encode())
            status, _, length = read_answer(s, room)
            if status != 200 or length != FILE_BYTES:
                raise RuntimeError(f"{peer.name} answers a download with {status}, {length} bytes")
            return length
        return work

    def note(self, what, peer, load):
        r = self.results[what].setdefault(peer.name, {"bytes": 0, "seconds": 0, "rounds": []})
        r["bytes"] += load.bytes
        r["seconds"] += load.seconds
        r["rounds"].append(load.bytes / load.seconds / 1e6)
        r["rate"] = r["bytes"] / r["seconds"] / 1e6
        print(f"  {what} {peer.name}: {load.bytes / load.seconds / 1e6:.0f} MB/s", flush=True)

    # ---- many at once ----

    def texts(self, seconds):
        """Round trips of posts, fifty a second, in ms."""
        took, end = [], time.monotonic() + seconds
        c = http.client.HTTPConnection("127.0.0.1", self.bellhop.port, timeout=60)
        n = 0
        while time.monotonic() < end:
            begin = time.monotonic()
            c.request("POST", "/chat/lobby/api/message", json.dumps({"text": f"hello {n}", "client_id": f"{begin}-{n}"}),
                      {"Content-Type": "application/json", "X-Bellhop-Visitor": f"bench-visitor-{n % 50:08}"})
            answer = c.getresponse()
            answer.read()
            if answer.status == 200:
                took.append((time.monotonic() - begin) * 1e3)
            n += 1
            time.sleep(max(0, begin + 0.02 - time.monotonic()))
        c.close()
        return took

    def crowd(self, stop):
        """@uploads at once, each of 20 MiB, a piece of each in turn; how many were answered."""
        n, size, piece = self.o.uploads, 20 << 20, self.whole[:65536]
        poll, left, taken = selectors.DefaultSelector(), {}, 0
        for _ in range(n):
            s = socket.create_connection(("127.0.0.1", self.bellhop.port))
            s.sendall(f"POST /relay/media HTTP/1.1\r\nHost: 127.0.0.1\r\n{self.bellhop.header}Content-Type: video/mp4\r\n"
                      f"Content-Length: {size}\r\n\r\n".encode())
            s.setblocking(False)
            poll.register(s, selectors.EVENT_WRITE)
            left[s] = size
        while left and not stop.is_set():
            for key, mask in poll.select(1):
                s = key.fileobj
                if mask & selectors.EVENT_READ:
                    taken += b" 200 " in s.recv(4096)[:20]
                    poll.unregister(s), s.close()
                    del left[s]
                elif left[s] > 0:
                    with contextlib.suppress(BlockingIOError):
                        left[s] -= s.send(piece[:left[s]])
                    if left[s] == 0:
                        poll.modify(s, selectors.EVENT_READ)
        return taken

    def many(self):
        quiet = self.texts(max(self.o.seconds, 2))
        before = peak = self.bellhop.rss_kb() * 1024
        stop, loud, over = threading.Event(), [], {}
        client = threading.Thread(target=lambda: over.update(taken=self.crowd(stop)))
        client.start()
        while client.is_alive():
            loud += self.texts(0.2)
            peak = max(peak, self.bellhop.rss_kb() * 1024)
        client.join()
        p99 = lambda v: statistics.quantiles(v, n=100)[98]  # noqa: E731
        self.results["many"] = {"uploads": self.o.uploads, "taken": over["taken"], "rss_more_mb": (peak - before) / 1e6,
                                "quiet_p99_ms": p99(quiet), "loud_p99_ms": p99(loud), "texts": len(loud)}

    def run(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        names = {}
        try:
            for peer in self.all:
                peer.start()
            for _ in range(self.o.rounds):
                for peer in self.all:
                    known = names.setdefault(peer.name, set())
                    self.note("upload", peer, Load(peer.port, self.o.seconds, self.upload(peer, known)))
                for peer in self.all:
                    self.note("download", peer, Load(peer.port, self.o.seconds, self.download(peer, names[peer.name])))
            self.many()
        finally:
            for peer in self.all:
                peer.stop()

    def show(self):
        for what in ("upload", "download"):
            print(f"\n{what}s of {FILE_BYTES >> 20} MiB on {THREADS} connections")
            report.table(["", "MB/s", "rounds, least - most"],
                         [[name, f"{r['rate']:.0f}", f"{min(r['rounds']):.0f} - {max(r['rounds']):.0f}"]
                          for name, r in self.results[what].items()])
        m, targets = self.results["many"], []
        for what in ("upload", "download"):
            if "nginx" in self.results[what]:
                ratio = self.results[what]["bellhop"]["rate"] / self.results[what]["nginx"]["rate"]
                targets.append((f"{what}s, of nginx's", ">= 0.50", f"{ratio:.2f}", ratio >= 0.5))
        most = max(5, 10 * m["quiet_p99_ms"])
        targets += [(f"memory while {m['uploads']} uploads of 20 MiB are under way", "< +16 MB", f"+{m['rss_more_mb']:.1f} MB",
                     m["rss_more_mb"] < 16),
                    ("all of them taken", str(m["uploads"]), str(m["taken"]), m["taken"] == m["uploads"]),
                    ("texts meanwhile, p99", f"<= {most:.1f} ms", f"{m['loud_p99_ms']:.1f} ms", m["loud_p99_ms"] <= most)]
        self.results["targets"] = [dict(zip(("what", "target", "measured", "met"), row)) for row in targets]
        report.print_targets(self.results["targets"])

    def panels(self):
        return [(f"{what}s", "MB/s", [(name, r["rate"]) for name, r in self.results[what].items()])
                for what in ("upload", "download")]

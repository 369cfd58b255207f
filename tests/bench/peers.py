"""The servers that are measured: how each is started, told of its gateways, and looked at."""

import base64
import concurrent.futures
import contextlib
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time


class Peer:
    """A server on loopback. CPU and memory are read from /proc, so all are measured alike."""

    wire = "relay"
    tokens = None

    def __init__(self, name, tools, work):
        self.name, self.tools = name, tools
        self.dir = os.path.join(work, name)
        os.makedirs(self.dir, exist_ok=True)
        self.process = self.port = None

    def spawn(self, args, **more):
        log = open(os.path.join(self.dir, "log"), "a")
        self.process = subprocess.Popen(args, cwd=self.dir, stderr=log, **more)

    def spawn_and_read_port(self, args):
        self.spawn(args, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("port "):
            raise RuntimeError(f"{self.name} did not start, see {self.dir}/log")
        self.port = int(line.split()[1])

    def prepare(self):
        """Give every receiver a place where its events are kept while it is away."""

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def cpu_s(self):
        tasks = f"/proc/{self.process.pid}/task"
        total = 0
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat") as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def wait_quiet(self):
        """Until it has done what it put off: that is part of the load, and no burden on the next one."""
        limit, before = time.monotonic() + 10, self.cpu_s()
        while time.monotonic() < limit:
            time.sleep(0.2)
            now = self.cpu_s()
            if now - before < 0.004:
                return
            before = now

    def rss_kb(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        return 0

    def load_args(self, mode, **options):
        args = [os.path.join(self.tools, "load"), mode, "--port", str(self.port), "--wire", self.wire]
        if self.tokens:
            args += ["--tokens", self.tokens]
        for key, value in options.items():
            args += ["--" + key, str(value)]
        return args

    def load(self, mode, **options):
        """Run one load; what it measured, with the server's own CPU seconds beside."""
        before = self.cpu_s()
        done = subprocess.run(self.load_args(mode, **options), stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{mode} against {self.name} failed, see above and {self.dir}/log")
        self.wait_quiet()
        if not done.stdout.strip():
            return None
        result = json.loads(done.stdout)
        result["server_cpu_s"] = self.cpu_s() - before
        return result


class Tool(Peer):
    """One of ours that prints its port: sink, net_http, lws_http."""

    def start(self):
        self.spawn_and_read_port([os.path.join(self.tools, self.name)])


class Mosquitto(Peer):
    wire = "mqtt"

    # No limit on what is queued or in flight: the defaults would drop events or slow it down.
    CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {dir}/
autosave_interval 1800
max_queued_messages 0
max_queued_bytes 0
max_inflight_messages 0
max_connections -1
set_tcp_nodelay true
log_type error
"""

    def start(self):
        self.port = free_port()
        if os.geteuid() == 0:
            shutil.chown(self.dir, "mosquitto")  # it gives up root by itself
        path = os.path.join(self.dir, "mosquitto.conf")
        with open(path, "w") as f:
            f.write(self.CONFIG.format(port=self.port, dir=self.dir))
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        self.spawn([program, "-c", path])
        wait_for_port(self.port)

    def prepare(self):
        self.load("prepare")


class Nats(Peer):
    """JetStream with a stream on disk. Debian's version (2.9) has no setting to sync every message: the stream is synced every
    two minutes, so its accepts are in the page cache."""

    wire = "nats"
    CONFIG = """listen: 127.0.0.1:{port}
max_connections: 65536
jetstream {{ store_dir: "{dir}", max_file_store: 20G }}
"""

    def start(self):
        self.port = free_port()
        path = os.path.join(self.dir, "nats.conf")
        with open(path, "w") as f:
            f.write(self.CONFIG.format(port=self.port, dir=self.dir))
        self.spawn([shutil.which("nats-server") or "/usr/sbin/nats-server", "-c", path], stdout=subprocess.DEVNULL)
        wait_for_port(self.port)

    def prepare(self, receivers=100):
        with socket.create_connection(("127.0.0.1", self.port)) as s, s.makefile("rb") as answers:
            s.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB _INBOX.prepare 1\r\n')
            self.ask(s, answers, "STREAM.CREATE.G", {"name": "G", "subjects": ["g.*"], "storage": "file", "retention": "limits"})
            for n in range(receivers):
                self.ask(s, answers, f"CONSUMER.DURABLE.CREATE.G.c{n:05}", {"stream_name": "G", "config": {
                    "durable_name": f"c{n:05}", "deliver_subject": f"d.{n:05}", "filter_subject": f"g.{n:05}",
                    "deliver_policy": "all", "ack_policy": "explicit", "max_ack_pending": 65536}})

    def ask(self, s, answers, what, body):
        data = json.dumps(body).encode()
        s.sendall(f"PUB $JS.API.{what} _INBOX.prepare {len(data)}\r\n".encode() + data + b"\r\n")
        while not (line := answers.readline()).startswith(b"MSG"):
            if line == b"" or line.startswith(b"-ERR"):
                raise RuntimeError(f"NATS: {line}")
        answer = answers.read(int(line.split()[-1]) + 2)
        if b'"error"' in answer:
            raise RuntimeError(f"NATS: {answer}")


class Redis(Peer):
    """Streams with appendfsync always: an entry is on disk before its id is answered."""

    wire = "redis"

    def start(self):
        self.port = free_port()
        self.spawn(["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.dir, "--save", "",
                    "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
                    "--maxclients", "30000"], stdout=subprocess.DEVNULL)
        wait_for_port(self.port)

    def prepare(self, receivers=100):
        with socket.create_connection(("127.0.0.1", self.port)) as s, s.makefile("rb") as answers:
            for n in range(receivers):
                s.sendall(f"XGROUP CREATE g:{n:05} r 0 MKSTREAM\r\n".encode())
                if not (line := answers.readline()).startswith(b"+OK") and b"BUSYGROUP" not in line:
                    raise RuntimeError(f"Redis: {line}")


class Node(Peer):
    """A connector of a hundred lines on the npm package ws, all in memory."""

    def __init__(self, name, tools, work, modules):
        super().__init__(name, tools, work)
        self.modules = modules

    def start(self):
        here = os.path.dirname(os.path.abspath(__file__))
        self.spawn(["node", os.path.join(here, "connector.js")], stdout=subprocess.PIPE, text=True,
                   env={**os.environ, "NODE_PATH": self.modules})
        line = self.process.stdout.readline()
        if not line.startswith("port "):
            raise RuntimeError(f"{self.name} did not start, see {self.dir}/log")
        self.port = int(line.split()[1])


class Bellhop(Peer):
    """@bots web bots, @gateways gateways g00000...; gateway n receives what bot n is told."""

    def __init__(self, name, tools, work, program, bots, gateways):
        super().__init__(name, tools, work)
        self.program, self.bots, self.gateways = program, bots, gateways
        self.tokens = os.path.join(self.dir, "tokens")

    def start(self):
        self.port = free_port()
        lines = [f"listen: 127.0.0.1:{self.port}", f"state_dir: {self.dir}/state",
                 "log: {level: warn}", *self.more(), "platforms:"]
        lines += [f"  - {{platform: web, bot: b{n:05}, history: 0}}" for n in range(self.bots)]
        path = os.path.join(self.dir, "bellhop.yaml")
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        begin = time.monotonic()
        self.spawn([self.program, "serve", "-c", path], stdout=subprocess.DEVNULL)
        self.wait_until_ready()
        self.start_ms = (time.monotonic() - begin) * 1e3

    def wait_until_ready(self):
        wait_until_ready(self.port)

    def more(self):
        """Further lines of the configuration."""
        return []

    def admin(self, method, path, body=None):
        """One request on the admin socket."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.dir, "state", "admin.sock"))
            return exchange(s, method, path, body)

    def add_gateway(self, n):
        made = self.admin("POST", "/admin/gateways/add",
                          {"id": f"g{n:05}", "tenant": "bench", "instance": f"g{n:05}",
                           "platform": "web", "bot": f"b{n:05}"})
        if n < self.bots:
            self.admin("POST", "/admin/routes/add",
                       {"platform": "web", "key": f"b{n:05}", "tenant": "bench",
                        "instance": f"g{n:05}"})
        return mint(f"g{n:05}", made["secret"])

    def prepare(self, first=0):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            tokens = list(pool.map(self.add_gateway, range(first, self.gateways)))
        with open(self.tokens, "a" if first > 0 else "w") as f:
            f.write("\n".join(tokens) + "\n")

    def metrics(self):
        """bellhop_x -> number, from the admin socket."""
        text = self.admin("GET", "/metrics")
        rows = (line.split() for line in text.splitlines() if line and line[0] != "#")
        return {row[0]: float(row[1]) for row in rows if len(row) == 2}


class BellhopTls(Bellhop):
    """The same with a certificate of its own making."""

    def start(self):
        self.pem = os.path.join(self.dir, "tls.pem")
        if not os.path.exists(self.pem):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                            "-subj", "/CN=localhost", "-keyout", self.pem, "-out", self.pem + ".cert"], check=True, stderr=subprocess.DEVNULL)
            with open(self.pem + ".cert") as cert, open(self.pem, "a") as both:
                both.write(cert.read())
        super().start()

    def more(self):
        return [f"tls: {{cert: {self.pem}, key: {self.pem}}}"]

    def wait_until_ready(self):
        def ask():
            with self.dial() as s:
                exchange(s, "GET", "/readyz")
        wait_until(ask)

    def dial(self):
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        return trust.wrap_socket(socket.create_connection(("127.0.0.1", self.port)))

    @contextlib.contextmanager
    def connected(self, n):
        """So many gateways, which have said hello and are silent."""
        with open(self.tokens) as f:
            tokens = f.read().split()
        sockets = []
        try:
            for i in range(n):
                s = self.dial()
                sockets.append(s)
                s.sendall(f"GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                          f"Authorization: Bearer {tokens[i]}\r\n\r\n".encode())
                if b" 101 " not in s.recv(4096):
                    raise RuntimeError("a gateway was refused")
                hello = json.dumps({"type": "hello", "platform": "web", "botId": f"b{i:05}"}).encode() + b"\n"
                s.sendall(bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello)
                s.recv(65536)
            yield
        finally:
            for s in sockets:
                s.close()


class Served(Peer):
    """bellhop with one configuration file; CONFIG is its text with {state} in it."""

    def __init__(self, tools, work, program, config):
        super().__init__("bellhop", tools, work)
        self.program, self.state, self.config = program, os.path.join(self.dir, "state"), os.path.join(self.dir, "bellhop.yaml")
        with open(self.config, "w") as f:
            f.write(config.format(state=self.state))

    def start(self):
        self.spawn([self.program, "serve", "-c", self.config], stdout=subprocess.PIPE, text=True)
        if "ready" not in self.process.stdout.readline():
            raise RuntimeError(f"bellhop did not start, see {self.dir}/log")
        with open(os.path.join(self.state, "port")) as f:
            self.port = int(f.read())

    def command(self, *words):
        return subprocess.run([self.program, *words, "-c", self.config], check=True, stdout=subprocess.PIPE, text=True).stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def mint(gateway, secret):
    signed = f"{gateway}:{int(time.time()) + 86400}"
    mac = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
    return base64.urlsafe_b64encode(f"{signed}:{mac}".encode()).decode().rstrip("=")


def exchange(s, method, path, body=None):
    data = json.dumps(body).encode() if body is not None else b""
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
              f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = b""
    while chunk := s.recv(65536):
        answer += chunk
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1] if b" " in head else b"?"
    if status != b"200":
        raise RuntimeError(f"{method} {path} -> {status.decode()} {rest[:300].decode(errors='replace')}")
    return json.loads(rest) if rest.startswith(b"{") else rest.decode()


def wait_until(what, seconds=15):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            return what()
        except (OSError, RuntimeError):
            time.sleep(0.001)
    return what()


def wait_for_port(port):
    wait_until(lambda: socket.create_connection(("127.0.0.1", port)).close())


def wait_until_ready(port):
    def ask():
        with socket.create_connection(("127.0.0.1", port)) as s:
            exchange(s, "GET", "/readyz")
    wait_until(ask)

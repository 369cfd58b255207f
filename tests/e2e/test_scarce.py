"""A machine that has run out: descriptors, threads and mappings fail, one kind after the other, at every place they are
asked for. Starting fails with a sentence or succeeds; a running server never ends, and goes on when there is enough again."""
import errno
import http.server
import mmap
import os
import pathlib
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import CONFIG, PROGRAM, Bellhop, wait_for

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["socket", "accept", "open", "eventfd", "pipe", "epoll", "thread", "mapping", "library"]
ASKED_FOR_ALWAYS = ["library", "socket", "accept", "open"]  # the rest only when starting
ERRORS = {"thread": [errno.EAGAIN], "mapping": [errno.ENOMEM], "library": [errno.EMFILE]}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    where = tmp_path_factory.mktemp("scarce") / "scarce.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", where, HERE / "scarce.c", "-ldl"], check=True)
    return where


class Scarcity:
    """What scarce.c reads: struct order."""

    def __init__(self, path, library):
        self.path = path
        path.write_bytes(bytes(4096))
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        self.env = {"SCARCE_FILE": str(path), "LD_PRELOAD": str(library),
                    "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}

    def begin(self, kind, error, skip=0, times=-1):
        self.map[:20] = struct.pack("=IiiiI", 1 << KINDS.index(kind), error, skip, times, 0)

    def end(self):
        failed = self.failed()
        self.map[:4] = bytes(4)
        return failed

    def failed(self):
        return struct.unpack_from("=I", self.map, 16)[0]


def errors_of(kind):
    return ERRORS.get(kind, [errno.EMFILE, errno.ENFILE])


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_without_it_fails_with_a_sentence_or_succeeds(kind, library, tmp_path):
    """The first such call of a start fails, then the second and those after it, and so on: exponentially further."""
    scarce = Scarcity(tmp_path / "order", library)
    skip = 0
    while True:
        server = Bellhop(env=scarce.env)
        scarce.begin(kind, errors_of(kind)[0], skip=skip)
        done = subprocess.Popen([PROGRAM, "serve", "-c", server.config], env=server.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ready = done.stdout.readline()
        failed = scarce.end()
        if ready:
            done.terminate()
        _, err = done.communicate(timeout=30)
        assert done.returncode == (0 if ready else 1), (skip, done.returncode, err)
        assert ready or len(err.splitlines()[-1]) > 20, err
        assert "Sanitizer" not in err, err
        server.clean()
        if failed == 0:
            return  # that many it does not even ask for
        skip = skip + 1 if skip < 8 else skip * 3 // 2


class Bell:
    """Where a sleeper's wake URL leads."""

    def __init__(self):
        self.rings = 0
        bell = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                bell.rings += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/wake"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def bell():
    bell = Bell()
    yield bell
    bell.stop()


def try_everything(server):
    """What a server does, with short patience: whatever comes of it, the server must survive."""
    for path in ("/metrics", "/readyz", "/chat"):
        with socket.socket() as s:
            s.settimeout(0.1)
            try:
                s.connect(("127.0.0.1", server.port))
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                s.recv(1000)
            except OSError:
                pass
    time.sleep(0.25)  # two pokes
    assert server.process.poll() is None, server.log()


def test_a_running_server_goes_on(library, tmp_path, bell, dial):
    scarce = Scarcity(tmp_path / "order", library)
    server = Bellhop(CONFIG.replace("300ms", "100ms"), env=scarce.env).start()
    sleeper = server.add("--id", "sleeper", bot="lobby", wake_url=bell.url)
    gateway = dial(server, sleeper, hello=("web", "lobby"))
    gateway.sleep()
    met = set()
    scarce.begin("library", errno.EMFILE)
    server.write("for a sleeper")  # it is rung again and again from here on
    for kind in ["library"] + KINDS:  # asked for once only, when the first poke succeeds
        for error in errors_of(kind):
            for times, skip in ((-1, 0), (-1, 1), (1, 0)):
                scarce.begin(kind, error, skip=skip, times=times)
                try_everything(server)
                if kind in ASKED_FOR_ALWAYS and kind not in met:
                    wait_for(scarce.failed)
                if scarce.end():
                    met.add(kind)
    before = bell.rings
    wait_for(lambda: server.get("/healthz").status == 200)
    wait_for(lambda: server.get("/readyz").status == 200)
    assert server.write("wake up") == 200
    wait_for(lambda: bell.rings > before)
    assert "sleeper" in server.cli("status").stdout
    assert server.stop() == 0, server.log()
    server.clean()


def test_the_operator_is_heard_when_every_connection_is_taken(make_bellhop):
    """Idle connections stop short of the limit of open files; the admin socket, the store and calls go on."""
    limit = 512
    server = make_bellhop(files=limit)
    held = []
    try:
        for _ in range(limit + 50):
            s = socket.create_connection(("127.0.0.1", server.port), 20)
            held.append(s)
        held[-1].settimeout(20)
        assert b" 503 " in held[-1].recv(1000)
        assert "instances" in server.cli("status", "--json").stdout
        server.add("--id", "late")  # writes to the store
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        assert used <= limit - 32, used
    finally:
        for s in held:
            s.close()
    wait_for(lambda: server.get("/healthz").status == 200)

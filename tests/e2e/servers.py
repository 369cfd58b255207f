"""A PostgreSQL and a Redis of a test's own, in a temporary directory, as Debian ships them.

PostgreSQL refuses to run as root, so then it runs as nobody.
"""
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from signal import SIGINT, SIGKILL, SIGQUIT


def _as_nobody():
    if os.geteuid() == 0:
        who = pwd.getpwnam("nobody")
        os.setgid(who.pw_gid)
        os.setuid(who.pw_uid)


def _until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "the server never answered"
        time.sleep(0.02)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Postgres:
    def __init__(self, on_disk=False):
        """@on_disk: as it runs for real, with every commit told to the disk."""
        self.on_disk = on_disk
        self.bin = max(pathlib.Path("/usr/lib/postgresql").iterdir(), key=lambda p: int(p.name)) / "bin"
        memory = pathlib.Path("/dev/shm")  # no test pulls the plug of the machine, and a disk is slow
        self.dir = tempfile.mkdtemp(prefix="bh-pg-", dir=memory if os.access(memory, os.W_OK) and not on_disk else None)
        if os.geteuid() == 0:
            os.chown(self.dir, pwd.getpwnam("nobody").pw_uid, -1)
        self._run("initdb", "-D", f"{self.dir}/data", "-A", "trust", "-U", "bellhop", "--no-locale", "-E", "UTF8", "-N")
        self.url = f"host={self.dir} user=bellhop dbname=postgres"
        self.process = None

    def _run(self, name, *args, check=True):
        return subprocess.run([self.bin / name, *args], preexec_fn=_as_nobody, cwd=self.dir, check=check,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def start(self):
        # Only the machine's own crash needs the disk to be told: no test has one.
        sizes = ["-c", "shared_buffers=128MB"] if self.on_disk else ["-c", "shared_buffers=16MB", "-c", "fsync=off"]
        self.process = subprocess.Popen(
            [self.bin / "postgres", "-D", f"{self.dir}/data", "-k", self.dir, "-h", "", "-c", "max_connections=50", *sizes],
            preexec_fn=_as_nobody, cwd=self.dir,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _until(lambda: self._run("pg_isready", "-q", "-h", self.dir, check=False) == 0)
        return self

    def stop(self, number=SIGINT):
        self.process.send_signal(number)
        self.process.wait(30)
        self.process = None

    def crash(self):
        """As pg_ctl -m immediate: what was not committed is gone, and all lines are cut."""
        self.stop(SIGQUIT)

    def sql(self, text):
        done = subprocess.run([self.bin / "psql", "-h", self.dir, "-U", "bellhop", "-d", "postgres", "-tAc", text],
                              cwd=self.dir, check=True, text=True, capture_output=True)
        return done.stdout.strip()

    def dump(self):
        """Everything of bellhop, as SQL."""
        return subprocess.run([self.bin / "pg_dump", "-h", self.dir, "-U", "bellhop", "-d", "postgres", "-n", "bellhop", "-O"],
                              cwd=self.dir, check=True, text=True, capture_output=True).stdout

    def load(self, text):
        subprocess.run([self.bin / "psql", "-h", self.dir, "-U", "bellhop", "-d", "postgres", "-q", "-v", "ON_ERROR_STOP=1"],
                       cwd=self.dir, check=True, text=True, input=text, stdout=subprocess.DEVNULL)

    def clean(self):
        if self.process is not None:
            self.stop(SIGQUIT)
        shutil.rmtree(self.dir, ignore_errors=True)


class Redis:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="bh-redis-")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0

        _until(answers)
        return self

    def flush(self):
        with socket.create_connection(("127.0.0.1", self.port), 10) as s:
            s.sendall(b"FLUSHALL\r\n")
            assert s.recv(16).startswith(b"+OK")

    def kill(self):
        self.process.send_signal(SIGKILL)
        self.process.wait(30)
        self.process = None

    def clean(self):
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

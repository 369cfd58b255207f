"""A disk that gets full, and one that hangs: what is refused, what goes on, and how it recovers by itself."""
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess

import pytest

from conftest import CONFIG, wait_for
from test_media import download, files, upload

SMALL_CONFIG = CONFIG + "store: {{reserve: 8MiB}}\n"


class SmallDisk:
    """A file system of its own for the state of a server."""

    def __init__(self, server, size="64m"):
        self.path = server.state
        self.path.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", self.path], check=True)
        self.filler = self.path / "filler"

    def fill(self):
        """Somebody else takes all that is left."""
        with open(self.filler, "ab", buffering=0) as f:
            try:
                while f.write(b"\0" * 65536):
                    pass
            except OSError:
                pass

    def free(self):
        self.filler.unlink()

    def umount(self):
        subprocess.run(["umount", "-l", self.path], check=True)


@pytest.fixture
def small(make_bellhop):
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    server = make_bellhop(SMALL_CONFIG, start=False)
    disk = SmallDisk(server)
    try:
        server.start()
        yield server, disk
    finally:
        if server.process is not None:
            server.stop()
        disk.umount()


def fill_mailbox(server, limit=3000):
    """People write to an agent that is away until they are refused: how many were taken."""
    for n in range(limit):
        if server.write(f"{n} " + "x" * 15000, visitor=f"visitor-{n % 50:020d}") != 200:
            return n
    raise AssertionError("it never got full")


def test_a_full_disk_refuses_new_messages_and_serves_everybody_else(small, dial):
    server, disk = small
    away = server.add(id="away")
    live = server.add(id="live", platform="web", bot="attic")
    taken = fill_mailbox(server)
    assert taken > 100
    assert server.metric("store_full") == 1
    disk.fill()
    gateway = dial(server, live)  # dialling works
    assert server.write("hello", bot="attic") in (200, 503)
    assert server.get("/healthz").status == 200
    assert server.restart().get("/readyz").status == 200  # starting works
    agent = dial(server, away)  # what was taken is delivered, and acks make room
    for n in range(taken):
        assert agent.next("inbound", 30)["event"]["text"].startswith(f"{n} ")
    wait_for(lambda: server.metric("mailbox_entries") == 0, 30)
    disk.free()
    wait_for(lambda: server.metric("store_full") == 0, 30)
    assert server.write("hello again") == 200
    assert agent.next("inbound")["event"]["text"] == "hello again"
    gateway.close()


def test_a_purge_makes_room(small):
    server, disk = small
    server.add(id="away")
    fill_mailbox(server)
    disk.fill()
    assert server.write("no") == 503
    server.cli("mailbox", "purge", "away", "--yes")
    wait_for(lambda: server.metric("store_full") == 0, 60)
    assert server.write("yes") == 200


def test_a_database_that_takes_no_writes_is_not_ready_and_says_so(bellhop, dial):
    bellhop.add()
    assert bellhop.get("/readyz").status == 200
    other = sqlite3.connect(bellhop.state / "bellhop.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # somebody holds it
    post = subprocess.Popen(["curl", "-s", "-m", "60", "-H", "X-Bellhop-Visitor: patient-visitor-0001", "-H",
                             "Content-Type: application/json", "-d", '{"text":"slow"}',
                             f"{bellhop.url}/chat/lobby/api/message"], stdout=subprocess.PIPE)
    wait_for(lambda: bellhop.get("/readyz").status == 503, 20)
    assert bellhop.get("/healthz").status == 200
    other.execute("ROLLBACK")
    other.close()
    wait_for(lambda: bellhop.get("/readyz").status == 200, 20)
    post.communicate(timeout=60)
    assert bellhop.write("quick") == 200


def test_a_disk_that_hangs_is_told_by_health_and_holds_up_nobody_else(make_bellhop, dial, tmp_path):
    library, hang = tmp_path / "hang.so", None
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, pathlib.Path(__file__).parent / "hang.c", "-ldl"], check=True)
    server = make_bellhop(start=False)
    server.state.mkdir(mode=0o700)
    hang = server.state / "hang"  # where a confined server may look
    server.env.update(HANG=str(hang), LD_PRELOAD=str(library), ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")
    server.start()
    gateway = dial(server, server.add())
    assert server.write("before") == 200 and gateway.next("inbound")["event"]["text"] == "before"
    hang.write_text("")
    post = subprocess.Popen(["curl", "-s", "-m", "150", "-H", "X-Bellhop-Visitor: patient-visitor-0001", "-H",
                             "Content-Type: application/json", "-d", '{"text":"while it hangs"}',
                             f"{server.url}/chat/lobby/api/message"], stdout=subprocess.PIPE)
    assert gateway.next("inbound")["event"]["text"] == "while it hangs"  # the live path waits for no disk
    wait_for(lambda: server.get("/readyz").status == 503, 30)
    assert server.get("/readyz").json["code"] == "store_slow" and server.get("/healthz").status == 200
    assert server.metric("store_queue_age_us") > 3_000_000
    assert "hangs" not in server.cli("status").stdout  # the operator is answered
    if os.environ.get("BELLHOP_LONG"):  # a minute: ./dev siege
        wait_for(lambda: server.get("/healthz").status == 503, 90)
        assert server.get("/healthz").json["code"] == "store_stuck"
    hang.unlink()
    wait_for(lambda: server.get("/readyz").status == 200, 30)
    assert server.get("/healthz").status == 200
    assert b'"id"' in post.communicate(timeout=60)[0]
    assert server.write("after") == 200


def test_doctor_reads_every_page_of_the_database(bellhop):
    bellhop.add()
    for n in range(50):
        bellhop.write("x" * 10000)
    assert "is undamaged" in bellhop.cli("doctor", check=False).stdout
    bellhop.stop()
    assert "is undamaged" in bellhop.cli("doctor", check=False).stdout
    path = pathlib.Path(bellhop.state / "bellhop.db")
    shutil.copy(path, path.with_suffix(".good"))
    data = bytearray(path.read_bytes())
    for page in range(4, len(data) // 4096, 3):
        data[page * 4096:page * 4096 + 100] = os.urandom(100)
    path.write_bytes(data)
    done = bellhop.cli("doctor", check=False)
    assert done.returncode == 1 and "is damaged" in done.stdout, done.stdout
    shutil.copy(path.with_suffix(".good"), path)
    bellhop.start()


def test_files_leave_room_for_messages_and_a_full_disk_takes_none(small):
    server, disk = small
    mine = server.add(id="mine", tenant="acme")
    kept, statuses = [], []
    for n in range(80):  # a mebibyte each: more than there is
        whole = os.urandom(1 << 20)
        answer = upload(server, mine, whole)
        statuses.append(answer.status)
        if answer.status != 200:
            break
        kept.append((json.loads(answer.content)["id"], whole))
    assert statuses[-1] == 507 and len(kept) > 10, statuses
    assert b"the disk" in answer.content
    assert server.metric("store_full") == 0 and server.write("still room for words") == 200
    assert files(server) == sorted(id for id, _ in kept)
    disk.fill()
    assert upload(server, mine, b"x" * 100_000).status == 507  # now the disk itself refuses
    assert files(server) == sorted(id for id, _ in kept)
    for id, whole in kept[::5]:
        assert download(server, id, mine.token()).content == whole
    disk.free()
    server.cli("erase", "--tenant", "acme", "--yes")
    wait_for(lambda: files(server) == [])
    other = server.add(id="other", tenant="other")
    assert upload(server, other).status == 200

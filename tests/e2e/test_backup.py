"""Backups of a busy server, restoring them, and changing the master key."""
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import pytest

from conftest import PROGRAM, ROOT, wait_for
from test_enroll import provision, token


class Load(threading.Thread):
    """People who write all the time; each message is named, and what was taken is remembered in order."""

    def __init__(self, server, name):
        super().__init__(daemon=True)
        self.server, self.name, self.taken, self.stop = server, name, [], False
        self.start()

    def run(self):
        n = 0
        while not self.stop:
            text = f"{self.name}-{n}"
            if self.server.write(text + " " + "x" * 500, visitor=f"load-visitor-{self.name:0>10}") == 200:
                self.taken.append(text)
            n += 1


@pytest.fixture
def busy(bellhop):
    """A server whose agent is away, and people who write to it."""
    bellhop.add(id="away")
    people = [Load(bellhop, f"p{n}") for n in range(4)]
    wait_for(lambda: all(len(p.taken) > 5 for p in people), 30)
    yield bellhop, people
    for p in people:
        p.stop = True
    for p in people:
        p.join(20)


def test_a_backup_of_a_busy_server_has_everything_taken_before_it(busy, make_bellhop, dial, tmp_path):
    server, people = busy
    file = tmp_path / "b.tar"
    before = [list(p.taken) for p in people]
    done = server.cli("backup", str(file))
    assert "verified" in done.stderr and "does not contain the master key" in done.stderr
    after = [len(p.taken) for p in people]
    assert sum(after) > sum(len(b) for b in before)  # it went on writing meanwhile
    with tarfile.open(file) as tar:
        assert "bellhop.db" in tar.getnames()
        assert not [n for n in tar.getnames() if "master" in n or "lock" in n or "sock" in n or "wal" in n]
    assert oct(os.stat(file).st_mode & 0o777) == "0o600"

    other = make_bellhop(start=False)
    other.state.mkdir(mode=0o700)
    done = other.cli("restore", str(file))
    assert "put the master key of that backup into" in done.stderr
    (other.state / "master.key").write_bytes((server.state / "master.key").read_bytes())
    os.chmod(other.state / "master.key", 0o600)
    other.start()
    waiting = other.metric("mailbox_entries")
    assert waiting >= sum(len(b) for b in before)
    got = sorted(other.cli("mailbox", "show", "away", "--bodies", "--json").stdout.split('"text":"')[1:])
    names = {re.match(r"(p\d-\d+)", g).group(1) for g in got}
    for b in before:
        assert set(b) <= names
    for n, p in enumerate(people):  # and of each person a beginning without a gap
        mine = sorted(int(x.split("-")[1]) for x in names if x.startswith(f"p{n}-"))
        assert mine == list(range(len(mine)))


def test_a_running_server_is_not_restored_over(busy, tmp_path):
    server, _ = busy
    file = tmp_path / "b.tar"
    server.cli("backup", str(file))
    done = server.cli("restore", str(file), "--yes", check=False)
    assert done.returncode == 1 and "Stop the server first" in done.stderr
    assert server.write("still here") == 200
    done = server.cli("backup", str(file), check=False)
    assert done.returncode == 1 and "exists already" in done.stderr


def test_a_restore_keeps_what_was_there_and_is_checked_before(bellhop, tmp_path):
    bellhop.add(id="away")
    assert bellhop.write("before the backup") == 200
    file = tmp_path / "b.tar"
    bellhop.cli("backup", str(file))
    assert bellhop.cli("backup", str(tmp_path / "nowhere" / "b.tar"), check=False).returncode == 1
    assert bellhop.write("after the backup") == 200
    bellhop.stop()
    done = bellhop.cli("restore", str(file), check=False)
    assert done.returncode == 1 and "--yes" in done.stderr

    damaged = tmp_path / "damaged.tar"
    data = bytearray(file.read_bytes())
    for at in range(3 * 4096, len(data) - 2048, 2 * 4096):
        data[at:at + 64] = b"\xfa\x1b[2J" + os.urandom(59)
    damaged.write_bytes(data)
    for bad, why in [(damaged, "damaged"), (tmp_path / "none.tar", "No such file"), (PROGRAM, "not a backup")]:
        done = bellhop.cli("restore", str(bad), "--yes", check=False)
        assert done.returncode == 1 and "nothing was changed" in done.stderr and why in done.stderr, done.stderr
    bellhop.start()
    assert bellhop.metric("mailbox_entries") == 2
    bellhop.stop()

    bellhop.cli("restore", str(file), "--yes")
    assert (bellhop.state / "bellhop.db.before-restore").exists()
    assert not (bellhop.state / ".restore").exists()
    bellhop.start()
    assert bellhop.metric("mailbox_entries") == 1
    assert bellhop.write("after the restore") == 200
    bellhop.stop()
    with tarfile.open(file) as tar:  # by hand: what other programs see is a database
        tar.extract("bellhop.db", tmp_path)
    assert subprocess.run(["sqlite3", tmp_path / "bellhop.db", "PRAGMA integrity_check"], capture_output=True,
                          text=True).stdout == "ok\n"
    bellhop.start()


def test_a_backup_under_another_key_is_refused(bellhop, make_bellhop, tmp_path):
    bellhop.add(id="one")
    file = tmp_path / "b.tar"
    bellhop.cli("backup", str(file))
    other = make_bellhop()
    other.stop()
    done = other.cli("restore", str(file), "--yes", check=False)
    assert done.returncode == 1 and "does not fit" in done.stderr and "nothing was changed" in done.stderr
    other.start()


def test_ids_are_not_given_twice_after_a_restore(bellhop, dial, tmp_path):
    credential = bellhop.add(id="one")
    file = tmp_path / "b.tar"
    bellhop.cli("backup", str(file))
    bellhop.restart()
    assert bellhop.write("since") == 200
    gateway = dial(bellhop, credential)
    first = gateway.next("inbound")
    bellhop.stop()
    bellhop.cli("restore", str(file), "--yes")
    bellhop.start()
    assert bellhop.write("again") == 200
    second = dial(bellhop, credential).next("inbound")
    assert first["bufferId"] != second["bufferId"]


# ---- the master key ----

def everything_sealed(server):
    """One of each: gateways' secrets, a tenant's delivery key, the web bots' visitor keys; who provisions."""
    kept = server.add(id="kept")
    me = token(server, "provision")
    first = provision(server, me)
    assert first.status == 200, first.text
    return kept, me, first.json["deliveryKey"]


def test_every_secret_opens_with_the_new_key_and_tokens_stay_good(bellhop, dial):
    kept, me, delivery_key = everything_sealed(bellhop)
    old = (bellhop.state / "master.key").read_text()
    done = bellhop.cli("key", "rotate", check=False)
    assert done.returncode == 1 and "If a server runs, stop it first" in done.stderr
    bellhop.stop()
    done = bellhop.cli("key", "rotate")
    assert "the master key is changed" in done.stderr
    assert (bellhop.state / "master.key").read_text() != old
    assert (bellhop.state / "master.key.old").read_text() == old
    bellhop.start()
    gateway = dial(bellhop, kept)
    assert bellhop.write("hello") == 200
    gateway.hear("hello")
    second = provision(bellhop, me, gateway="gw-2")  # the token was made under the old key
    assert second.status == 200 and second.json["deliveryKey"] == delivery_key
    bellhop.stop()  # and the old one opens nothing any more
    new = (bellhop.state / "master.key").read_text()
    (bellhop.state / "master.key").write_text(old)
    done = subprocess.run([PROGRAM, "serve", "-c", bellhop.config], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "does not fit" in done.stderr
    (bellhop.state / "master.key").write_text(new)
    bellhop.start()


def test_a_passphrase_takes_over_from_the_key_file(make_bellhop, dial):
    server = make_bellhop()
    kept, _, _ = everything_sealed(server)
    server.stop()
    server.env["BELLHOP_NEW_MASTER_KEY"] = "a passphrase that is long enough"
    server.cli("key", "rotate")
    assert not (server.state / "master.key").exists()
    del server.env["BELLHOP_NEW_MASTER_KEY"]
    server.env["BELLHOP_MASTER_KEY"] = "a passphrase that is long enough"
    server.start()
    gateway = dial(server, kept)
    assert server.write("hello") == 200
    gateway.hear("hello")


def test_a_rotation_killed_in_the_middle_goes_on(bellhop, dial):
    kept, _, _ = everything_sealed(bellhop)
    bellhop.stop()
    killed = 0
    for n in range(40):
        p = subprocess.Popen([PROGRAM, "key", "rotate", "-c", bellhop.config], stderr=subprocess.DEVNULL)
        time.sleep(0.01 + n * 0.02)
        p.send_signal(signal.SIGKILL)
        if p.wait() == 0:
            break
        killed += 1
    bellhop.cli("key", "rotate")
    assert killed > 0
    bellhop.start()
    gateway = dial(bellhop, kept)
    assert bellhop.write("hello") == 200
    gateway.hear("hello")


@pytest.fixture(scope="module")
def fatal(tmp_path_factory):
    where = tmp_path_factory.mktemp("fatal") / "fatal.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", where, ROOT / "tests" / "e2e" / "fatal.c", "-ldl"], check=True)
    return {"LD_PRELOAD": str(where), "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}


@pytest.mark.parametrize("to", ["a file", "a passphrase"])
def test_a_rotation_killed_at_any_of_its_steps_loses_no_key(bellhop, dial, fatal, tmp_path, to):
    """Killed after each step to disk, then gone on with (or the server started): the database opens with the key there
    is, and the key from before is kept, because it opens backups from before. One rotation stays one."""
    kept, _, _ = everything_sealed(bellhop)
    bellhop.stop()
    old = (bellhop.state / "master.key").read_text()
    shutil.copytree(bellhop.state, tmp_path / "before")
    new = {"BELLHOP_NEW_MASTER_KEY": "a passphrase that is long enough"} if to == "a passphrase" else {}

    def rotate(**more):
        return subprocess.run([PROGRAM, "key", "rotate", "-c", bellhop.config], env={**os.environ, **bellhop.env, **new, **more},
                              capture_output=True, text=True, timeout=60)

    def keys():
        return {f.name: f.read_text() for f in bellhop.state.glob("master.key*")}

    def is_sealed_anew():
        database = sqlite3.connect(bellhop.state / "bellhop.db")
        rows = {row[0] for row in database.execute("SELECT CAST(k AS TEXT) FROM kv WHERE ns = 'seal'")}
        database.close()
        return "mac" in rows and "next" not in rows

    steps, made = 0, None
    while True:
        shutil.rmtree(bellhop.state)
        shutil.copytree(tmp_path / "before", bellhop.state)
        died = rotate(**fatal, FATAL_AT=str(steps))
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL, died.stderr
        at, steps = f"killed at step {steps}", steps + 1
        made = keys().get("master.key.next")
        if made and is_sealed_anew():
            shutil.rmtree(tmp_path / "nearly", ignore_errors=True)
            shutil.copytree(bellhop.state, tmp_path / "nearly")
        over = rotate()
        if over.returncode != 0:  # all was done but the last word: the passphrase has taken over
            assert to == "a passphrase" and "master.key is missing" in over.stderr, (at, over.stderr)
        assert old in [text for name, text in keys().items() if name != "master.key"], (at, sorted(keys()))
        if to == "a passphrase":
            assert sorted(keys()) == ["master.key.old"], at
        elif made:
            assert keys()["master.key"] == made, at  # not a second change
        if steps % 8 == 0 or over.returncode != 0:
            bellhop.env.update({"BELLHOP_MASTER_KEY": v for v in new.values()})
            bellhop.start()
            gateway = dial(bellhop, kept)
            assert bellhop.write("hello") == 200
            gateway.hear("hello")
            bellhop.stop()
            bellhop.env.pop("BELLHOP_MASTER_KEY", None)
    assert steps > 20
    if to == "a file":  # all but the names of the files was done: a server that starts does that
        shutil.rmtree(bellhop.state)
        shutil.copytree(tmp_path / "nearly", bellhop.state)
        bellhop.start()
        assert keys()["master.key.old"] == old and keys()["master.key"] != old and "master.key.next" not in keys()
        dial(bellhop, kept)


def test_every_form_of_records_is_listed():
    """Key rotation and the fuzz target go over forms_list(): a form that is in no list would keep the old key."""
    sources = {p: p.read_text() for p in (ROOT / "src").rglob("*.c")}
    listed = sources[ROOT / "src" / "cli" / "forms.c"]
    named = {name for t in sources.values() for name in re.findall(r"\.records = (\w+)", t)}
    lists = [(m[1], set(re.findall(r"&(\w+)", m[2]))) for t in sources.values() for m in re.finditer(r"(\w+)\[\] = \{([^}]*)\}", t)]
    for p, text in sources.items():
        for name in re.findall(r'const struct record_form (\w+) =\s+RECORD_FORM\("', text):
            its = [of for of, members in lists if name in members]
            assert its, f"{p}: {name} is in no list"
            assert any(of in listed or of in named for of in its), f"{p}: forms.c does not know the list of {name}"
        if re.search(r"\bseal_secret\(", text) and p.parent.name != "store":
            assert "record_seal_name" in text, f"{p} seals something that no form describes"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_what_root_writes_belongs_to_the_user_of_the_service(bellhop, tmp_path):
    """As after `apt install`: the state is the service's, and root runs the commands."""
    service = 65534  # nobody
    bellhop.add(id="away")
    assert bellhop.write("before the backup") == 200
    bellhop.cli("backup", str(tmp_path / "b.tar"))
    os.chmod(tmp_path / "b.tar", 0o600)
    bellhop.stop()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # every user reaches it
        os.chmod(folder, 0o755)
        state = Path(folder) / "state"
        shutil.copytree(bellhop.state, state, ignore=shutil.ignore_patterns("*.sock"))

        def give():
            for path in [state, *state.rglob("*")]:
                os.chown(path, service, service)

        def owners():
            return {path.stat().st_uid for path in [state, *state.rglob("*")]}

        give()
        env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # who gave up root cannot look for leaks

        def act(*words):
            done = subprocess.run([PROGRAM, *words, "--state-dir", str(state)], env=env, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert owners() == {service}, words

        for words, said in [(["doctor"], "Run the command as the user that runs the server"), (["backup", "x"], "this user may not enter")]:
            done = subprocess.run([PROGRAM, *words, "--state-dir", str(state)], env=env, cwd=folder, capture_output=True, text=True,
                                  preexec_fn=lambda: os.setuid(service - 1))  # neither root nor the service
            assert done.returncode == 1 and said in done.stdout + done.stderr, done
        act("restore", str(tmp_path / "b.tar"), "--yes")
        (state / "bellhop.db").rename(state / "gone")
        act("restore", str(tmp_path / "b.tar"))  # now the directory tells whose it is
        act("key", "rotate")

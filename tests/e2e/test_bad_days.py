"""Bad input and bad days on PostgreSQL: a clear sentence, and nothing that was accepted is lost."""
import asyncio
import base64
import hashlib
import hmac
import json
import os
import pathlib
import pwd
import re
import socket
import subprocess
import threading
import time
import urllib.parse
from signal import SIGCONT, SIGSTOP, SIGTERM

import pytest

from cluster_rig import AUTH, PUBLIC, DatabaseLine
from conftest import wait_for
from mcp_rig import Client
from relay import mint
from servers import Postgres, free_port
from test_clock import Clock
from v1 import make_key

KEY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
master_key: "{key}"
store: {{{{kind: postgres, url: "{url}"}}}}
cluster: {{{{node: {node}, lease: {lease}, drain: 0s}}}}
platforms:
  - {{{{platform: web, bot: lobby}}}}
"""


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


@pytest.fixture
def node(postgres, make_bellhop):
    """node(name) -> a server that was not started."""
    postgres.sql("DROP SCHEMA IF EXISTS bellhop CASCADE")

    def make(name="north", key=KEY, url=postgres.url, lease="60s", tail=""):
        return make_bellhop(CONFIG.format(node=name, key=key, url=url, lease=lease) + tail, start=False)

    return make


def refuses(server):
    server.begin()
    assert server.wait(60) == 1
    return server.log()


def test_a_wrong_password_is_told_and_not_shown(node, postgres):
    hba = f"{postgres.dir}/data/pg_hba.conf"
    with open(hba) as f:
        rules = f.read()
    postgres.sql("CREATE ROLE guest LOGIN PASSWORD 'right'")
    try:
        with open(hba, "w") as f:
            f.write("local all guest scram-sha-256\n" + rules)
        postgres.sql("SELECT pg_reload_conf()")
        url = postgres.url.replace("user=bellhop", "user=guest password=hunter2")
        says = refuses(node(url=url))
        assert 'password authentication failed for user "guest"' in says and "hunter2" not in says, says
    finally:
        with open(hba, "w") as f:
            f.write(rules)
        postgres.sql("SELECT pg_reload_conf()")
        postgres.sql("DROP ROLE guest")


def waiting(node, dial):
    """A server that was stopped with a message in a mailbox, and whose it is."""
    server = node().start()
    credential = server.add()
    gateway = dial(server, credential)
    gateway.close()
    assert server.write("kept") == 200
    server.stop()
    return server, credential


@pytest.mark.parametrize("table", ["meta", "part"])
def test_tables_of_a_newer_program_are_refused_and_left_alone(node, postgres, dial, table):
    server, credential = waiting(node, dial)
    if table == "meta":
        newer, back = [f"UPDATE bellhop.meta SET value = '{n}' WHERE name IN ('schema', 'oldest')" for n in (99, 1)]
    else:
        newer, back = [f"UPDATE bellhop.part SET version = {n}, oldest = {n} WHERE name = 'skills'" for n in (99, 1)]
    postgres.sql(newer)
    says = refuses(server)
    assert re.search(r"of a newer bellhop \(version 99, this program knows \d\): update this node", says), says
    postgres.sql(back)
    server.start()
    dial(server, credential).hear("kept")


def test_a_node_with_another_master_key_is_refused(node, dial):
    server, credential = waiting(node, dial)
    says = refuses(node("south", key=KEY[::-1]))
    assert "master key" in says or "master_key" in says, says
    server.start()
    dial(server, credential).hear("kept")


def test_a_node_with_another_master_key_is_refused_while_the_others_serve(node, dial):
    server = node().start()
    gateway = dial(server, server.add())
    says = refuses(node("south", key=KEY[::-1]))
    assert "the master key does not fit the database" in says and "every node needs the same one" in says, says
    assert "stands by" not in says, says
    assert server.write("kept") == 200
    gateway.hear("kept")


def test_of_two_nodes_with_different_keys_that_begin_a_database_together_one_is_refused(node):
    two = [node(), node("south", key=KEY[::-1])]
    for server in two:
        server.begin()
    ended = wait_for(lambda: [s for s in two if s.process.poll() is not None], timeout=60)
    assert len(ended) == 1 and ended[0].wait(10) == 1
    assert "the master key does not fit the database" in ended[0].log(), ended[0].log()
    other = next(s for s in two if s is not ended[0])
    wait_for(lambda: (other.state / "port").exists() and (other.state / "port").read_text(), timeout=60)
    other.find_port()
    wait_for(lambda: other.get("/readyz").status == 200, timeout=30)


def test_a_full_database_refuses_what_is_new_and_loses_nothing(node, postgres, dial):
    server = node().start()
    credential = server.add()
    gateway = dial(server, credential)
    assert server.write("before") == 200
    gateway.hear("before")
    postgres.sql("CREATE FUNCTION bellhop.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
                 "'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$; "
                 "CREATE TRIGGER full_disk BEFORE INSERT ON bellhop.mail FOR EACH STATEMENT EXECUTE FUNCTION bellhop.full()")
    assert server.write("refused", client_id="full-1") == 503
    wait_for(lambda: "No space left on device" in server.log())
    postgres.sql("DROP TRIGGER full_disk ON bellhop.mail")
    wait_for(lambda: server.write("refused", client_id="full-1") == 200, timeout=30)
    gateway.hear("refused")
    assert server.write("after") == 200
    gateway.hear("after")


@pytest.fixture
def tiny(postgres, tmp_path):
    """A disk of four megabytes, and a tablespace of the database on it."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    disk = pathlib.Path(postgres.dir) / "tiny"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=4m,mode=0700,uid={pwd.getpwnam('nobody').pw_uid}", "tmpfs", disk],
                   check=True)
    try:
        postgres.sql(f"CREATE TABLESPACE tiny LOCATION '{disk}'")
        yield disk
        postgres.sql("DROP SCHEMA IF EXISTS bellhop CASCADE")
        postgres.sql("DROP TABLESPACE tiny")
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_that_is_really_full_under_the_database(tiny, node, postgres, dial):
    server = node().start()
    credential = server.add()
    gateway = dial(server, credential)
    assert server.write("before") == 200
    gateway.hear("before")
    postgres.sql("ALTER TABLE bellhop.mail SET TABLESPACE tiny")
    gateway.close()
    kept, answer = [], 200
    while answer == 200:
        assert len(kept) < 500, "it never got full"
        answer = server.write(f"{len(kept)} " + "x" * 15000, client_id=f"full-{len(kept)}")
        if answer == 200:
            kept.append(f"{len(kept)} ")
    assert answer == 503
    wait_for(lambda: "No space left on device" in server.log())
    assert server.get("/healthz").status == 200
    postgres.sql("ALTER TABLE bellhop.mail SET TABLESPACE pg_default")  # somebody made room
    wait_for(lambda: server.write("room again", client_id="room") == 200)
    back = dial(server, credential)
    for text in kept:
        assert back.next("inbound")["event"]["text"].startswith(text)
    back.hear("room again")


def test_a_clock_that_is_ten_minutes_off_is_told_and_does_no_harm(node, dial):
    """The node with the wrong clock takes over from the one with the right one, and gives back."""
    north, south = node(lease="4s"), node("south", lease="4s")
    south.clock = Clock(south)
    south.clock.set(600)
    north.start()
    credential = north.add()
    gateway = dial(north, credential)
    gateway.close()
    assert north.write("one") == 200
    south.begin()
    wait_for(lambda: "the clock of this machine is" in south.log() and "s before that of the database" in south.log())
    north.kill()
    wait_for(lambda: "ready" in south.process.stdout.readline())
    south.find_port()
    assert south.write("two") == 200
    token = mint(credential.id, credential.secret, exp=south.clock.now() + 300)
    late = dial(south, credential, token=token)
    late.hear("one")
    late.hear("two")
    south.stop()
    north.start()
    assert north.write("three") == 200
    dial(north, credential).hear("three")


def test_an_address_that_nobody_reaches_is_told_and_the_others_take_over_all_the_same(node, dial):
    north, south = node(lease="4s"), node("south", lease="4s")
    for server in (north, south):
        text = server.config.read_text()
        server.config.write_text(text.replace("lease: 4s,", f'lease: 4s, address: "127.0.0.1:{free_port()}",'))
    north.start()
    credential = north.add()
    south.begin()
    wait_for(lambda: "cannot forward connections to north/" in south.log())
    south.find_port()
    assert south.get("/readyz").status == 503
    assert north.write("kept") == 200
    north.kill()
    wait_for(lambda: south.get("/readyz").status == 200)
    dial(south, credential).hear("kept")


def serves(server):
    return "serves: epoch" in server.log()


class HeldRead(DatabaseLine):
    """On it the messages that wait are not read until release()."""

    def __init__(self, database):
        self.held = True
        super().__init__(database)

    def release(self):
        self.held = False

    async def _pass(self, reader, writer):
        line = self

        class Held:
            async def read(self, n):
                data = await reader.read(n)
                while line.held and b"load_rows\0" in data and b"SELECT" not in data:
                    await asyncio.sleep(0.02)
                return data
        await super()._pass(Held(), writer)


@pytest.fixture
def held(postgres):
    made = HeldRead(postgres)
    yield made
    made.release()
    made.close()


def test_who_is_killed_while_it_starts_keeps_the_others_no_longer_than_a_lease(held, node):
    north = node(lease="3s")
    south, east = (node(name, url=held.url, lease="3s") for name in ("south", "east"))
    north.start()
    for server in (south, east):
        server.begin()
        wait_for(lambda: "stands by" in server.log())
    north.kill()
    first = wait_for(lambda: next((s for s in (south, east) if serves(s)), None))
    first.kill()  # it has the lease, and reads
    began = time.monotonic()
    held.release()
    other = south if first is east else east
    wait_for(lambda: serves(other))
    assert time.monotonic() - began < 3 + 2


def test_a_start_that_takes_longer_than_the_lease_keeps_it(held, node, dial):
    north, south = node(lease="2s"), node("south", url=held.url, lease="2s")
    north.start()
    credential = north.add()
    assert north.write("kept") == 200
    north.stop()
    south.begin()
    wait_for(lambda: serves(south))
    north.begin()
    wait_for(lambda: "stands by" in north.log())
    time.sleep(4)  # twice the lease
    assert not serves(north) and south.process.poll() is None, north.log() + south.log()
    held.release()
    assert "ready" in south.process.stdout.readline(), south.log()
    assert not serves(north), north.log()
    south.find_port()
    dial(south, credential).hear("kept")


@pytest.fixture
def line(postgres):
    made = DatabaseLine(postgres)
    yield made
    made.close()


def test_a_line_that_is_cut_is_opened_again(node, line, dial):
    server = node(url=line.url).start()
    gateway = dial(server, server.add())
    for n in range(5):
        wait_for(lambda: server.write(f"m{n}", client_id=f"cut-{n}") == 200, timeout=30)
        line.cut()
    for n in range(5):
        gateway.hear(f"m{n}")


def test_a_node_whose_line_is_deaf_ends_and_its_late_bytes_change_nothing(node, line, postgres, dial):
    north = node(url=line.url, lease="4s").start()
    south = node("south", lease="4s")
    credential = north.add()
    gateway = dial(north, credential)
    assert north.write("one") == 200
    gateway.hear("one")
    wait_for(lambda: postgres.sql("SELECT count(*) FROM bellhop.mail") == "0")  # its ack is on disk
    line.deaf()
    threading.Thread(target=lambda: north.write("late", client_id="late-1"), daemon=True).start()
    assert north.wait(60) == 75, north.log()
    south.start()
    assert south.write("two") == 200
    line.hear()  # what north had said arrives now
    again = dial(south, credential)
    again.hear("two")
    assert south.write("late", client_id="late-1") == 200
    again.hear("late")
    assert postgres.sql("SELECT count(*) FROM bellhop.mail") in ("0", "1")


def test_only_the_node_that_serves_ends_while_the_database_is_away(node, postgres, dial):
    north, south = node(lease="2s"), node("south", lease="2s")
    north.start()
    credential = north.add()
    assert north.write("kept") == 200
    south.begin()
    wait_for(lambda: "forwarding connections to" in south.log())
    postgres.crash()
    try:
        assert north.wait(30) == 75
        says = refuses(north)
        assert "PostgreSQL cannot be reached" in says, says
        assert south.process.poll() is None
    finally:
        postgres.start()
    wait_for(lambda: serves(south))
    south.find_port()
    dial(south, credential).hear("kept")


def test_backup_says_what_to_do_instead_and_that_works(node, postgres, dial, tmp_path):
    server = node(lease="4s").start()
    credential = server.add()
    assert server.write("kept") == 200
    (server.state / "bellhop.db").write_bytes(b"of an earlier life")
    commands = []
    for verb in ("backup", "restore"):
        done = server.cli(verb, tmp_path / "no.tar", check=False)
        assert done.returncode == 1 and "the state is in PostgreSQL" in done.stderr, done.stderr
        line = next(line for line in done.stderr.splitlines() if line.startswith("  pg_"))
        commands.append(line.split("    (")[0].strip().replace("FILE", str(tmp_path / "dump")))
    assert not (tmp_path / "no.tar").exists()

    def run(command):
        subprocess.run(f"{postgres.bin}/{command}", shell=True, check=True, env={**os.environ, "URL": postgres.url})
    run(commands[0])
    server.stop()
    postgres.sql("DELETE FROM bellhop.mail; DELETE FROM bellhop.kv")
    run(commands[1])
    server.start()
    dial(server, credential).hear("kept")


def findings(server):
    done = server.cli("doctor", "--json", check=False)
    return done.returncode, {(f["check"], f["result"]): f["detail"] for f in json.loads(done.stdout)}


def test_doctor_knows_the_cluster(node, postgres):
    north, south, strange = node(lease="4s"), node("south", lease="4s"), node("strange", key=KEY[::-1])
    code, found = findings(north)
    assert code == 0 and "creates the tables" in found["store", "ok"], found
    assert postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'bellhop'") == "0"  # doctor changes nothing
    north.start()
    code, found = findings(north)
    assert code == 0 and found["cluster", "ok"] == "node north is serving", found
    assert "this is the only node" in found["cluster", "warn"], found
    south.begin()
    wait_for(lambda: "forwarding connections to" in south.log())

    def both():
        done = south.cli("doctor").stdout
        return "node north is serving" in done and "node south is carrying" in done and "only node" not in done
    wait_for(both)
    code, found = findings(strange)
    assert code == 1 and "every node needs the same one" in found["key", "bad"], found
    boot = postgres.sql("SELECT last_value FROM bellhop.boot")
    south.stop()
    code, found = findings(south)
    assert code == 0 and found["store", "ok"] == "PostgreSQL answers" and found["key", "ok"], found
    assert postgres.sql("SELECT last_value FROM bellhop.boot") == boot
    north.kill()
    wait_for(lambda: any("was last seen" in text for text in findings(south)[1].values()))
    (south.state / "bellhop.db").write_bytes(b"of an earlier life")
    assert not any(check == "database" for check, _ in findings(south)[1])
    postgres.crash()
    try:
        code, found = findings(south)
        assert code == 1 and "PostgreSQL cannot be reached" in found["store", "bad"], found
    finally:
        postgres.start()


# ---- webhooks while a node goes ----

HOOKS = f"""\
  - {{{{platform: twilio, bot: "+15550001", account_sid: AC01, auth_token: "{AUTH}", api_base: "http://127.0.0.1:1"}}}}
  - {{{{platform: telegram, bot: my_bot, token: "1:x", mode: webhook, webhook_secret: s3cret, api_base: "http://127.0.0.1:1"}}}}
public_url: {PUBLIC}
"""


def twilio_hook():
    path = "/webhooks/twilio/+15550001"
    form = {"AccountSid": "AC01", "Body": "hello", "From": "+16660001", "MessageSid": f"SM{1:032x}", "NumMedia": "0",
            "To": "+15550001"}
    signed = PUBLIC + path + "".join(k + v for k, v in sorted(form.items()))
    mac = base64.b64encode(hmac.new(AUTH.encode(), signed.encode(), hashlib.sha1).digest()).decode()
    return path, f"X-Twilio-Signature: {mac}\r\nContent-Type: application/x-www-form-urlencoded", urllib.parse.urlencode(form)


def telegram_hook():
    person = {"id": 5, "is_bot": False, "first_name": "A"}
    update = {"update_id": 1, "message": {"message_id": 1, "date": int(time.time()), "text": "hello", "from": person,
                                          "chat": {"id": 5, "type": "private", "first_name": "A"}}}
    return ("/webhooks/telegram/my_bot", "X-Telegram-Bot-Api-Secret-Token: s3cret\r\nContent-Type: application/json",
            json.dumps(update))


class Hook:
    """A good webhook of which only a part has come."""

    def __init__(self, server, path, headers, body):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.rest = body.encode()
        self.socket.sendall(f"POST {path} HTTP/1.1\r\nHost: relay.example.org\r\n{headers}\r\n"
                            f"Content-Length: {len(self.rest)}\r\n\r\n".encode())

    def finish(self):
        self.socket.sendall(self.rest)

    def answer(self):
        with self.socket, self.socket.makefile("rb") as f:
            return f.read().decode()


def hooks(server):
    return [Hook(server, *hook()) for hook in (twilio_hook, telegram_hook)]


def comes_again(answer):
    assert answer.startswith("HTTP/1.1 503") and "\r\nRetry-After: " in answer, answer


def test_good_webhooks_are_told_to_come_again_while_a_node_goes(node):
    server = node(tail=HOOKS).start()
    now, late = hooks(server), hooks(server)
    time.sleep(0.3)
    for hook in now:
        hook.finish()
    server.signal(SIGTERM)
    for hook in now:
        assert hook.answer().startswith("HTTP/1.1 200")
    time.sleep(1)  # its platforms are closed
    for hook in late:
        hook.finish()
    for hook in late:
        comes_again(hook.answer())
    assert server.wait() == 0


def test_good_webhooks_are_told_to_come_again_when_a_node_has_lost_its_lease(node):
    server = node(tail=HOOKS, lease="1s").start()
    late = hooks(server)
    time.sleep(0.5)
    server.signal(SIGSTOP)
    time.sleep(1.5)
    for hook in late:
        hook.finish()
    server.signal(SIGCONT)
    for hook in late:
        comes_again(hook.answer())
    assert server.wait() == 75


def test_listeners_are_told_when_a_node_has_lost_its_lease(node):
    server = node(lease="3s").start()
    server.add("--id", "desk", tenant="acme")
    stream = Client(server, make_key(server, instance="desk")).listen("bellhop://inbox")
    assert "acknowledged" in stream.next()["method"]
    server.signal(SIGSTOP)
    time.sleep(3.5)
    server.signal(SIGCONT)
    assert [m["result"]["resultType"] for m in stream.rest()] == ["complete"]
    assert server.wait() == 75

"""Bad input and bad days on PostgreSQL: a clear sentence, and nothing that was accepted is lost."""
import asyncio
import os
import re
import shutil
import tempfile
import threading

import pytest

from conftest import wait_for
from servers import Postgres

KEY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
master_key: "{key}"
store: {{{{kind: postgres, url: "{url}"}}}}
cluster: {{{{node: {node}, lease: {lease}}}}}
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

    def make(name="north", key=KEY, url=postgres.url, lease="60s"):
        return make_bellhop(CONFIG.format(node=name, key=key, url=url, lease=lease), start=False)

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
    assert "No space left on device" in server.log()
    postgres.sql("DROP TRIGGER full_disk ON bellhop.mail")
    wait_for(lambda: server.write("refused", client_id="full-1") == 200, timeout=30)
    gateway.hear("refused")
    assert server.write("after") == 200
    gateway.hear("after")


class Line:
    """What lies between a node and its database: it can be cut, and it can be deaf, its bytes arriving late."""

    def __init__(self, database):
        self.dir = tempfile.mkdtemp(prefix="bh-line-")
        self.target = f"{database.dir}/.s.PGSQL.5432"
        self.url = database.url.replace(database.dir, self.dir)
        self.loop, self.open, self.writers = asyncio.new_event_loop(), threading.Event(), set()
        self.open.set()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        wait_for(lambda: os.path.exists(f"{self.dir}/.s.PGSQL.5432"))

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_unix_server(self._serve, f"{self.dir}/.s.PGSQL.5432"))
        os.chmod(f"{self.dir}/.s.PGSQL.5432", 0o777)
        self.loop.run_forever()

    async def _pass(self, reader, writer):
        try:
            while data := await reader.read(65536):
                while not self.open.is_set():
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _serve(self, reader, writer):
        there = await asyncio.open_unix_connection(self.target)
        self.writers |= {writer, there[1]}
        await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))

    def deaf(self):
        self.open.clear()

    def hear(self):
        self.open.set()

    def cut(self):
        self.loop.call_soon_threadsafe(lambda: [w.transport.abort() for w in list(self.writers)])

    def close(self):
        self.cut()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def line(postgres):
    made = Line(postgres)
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
    north = node(url=line.url, lease="2s").start()
    south = node("south", lease="2s")
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

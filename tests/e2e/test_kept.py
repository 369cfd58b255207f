"""Databases that earlier versions of the tables made, and what an older program says to newer ones.

kept/v1.sql is a database of version 1 as text, with what belongs to it: one gateway, a message that waits for it and the
history of a page; kept/v1.postgres.sql is the same of PostgreSQL, by pg_dump, with a skill. Every later program must open
them. `python3 test_kept.py` in this folder makes them anew; a version that was released is never made anew.
"""
import pathlib
import sqlite3
import subprocess
import sys

import pytest

from servers import Postgres
from v1 import Program

KEPT = pathlib.Path(__file__).resolve().parent / "kept"
KEY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
master_key: "{key}"
platforms:
  - {{{{platform: web, bot: lobby}}}}
""".format(key=KEY)
VERSION = 1
SKILL = "# Skill: kept\n# Status: Draft\nsay hello\n"


def shared(database):
    return CONFIG + f'store: {{{{kind: postgres, url: "{database.url}"}}}}\n'


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


@pytest.fixture
def database(postgres):
    """The server, empty."""
    postgres.sql("DROP SCHEMA IF EXISTS bellhop CASCADE")
    return postgres


def lay(server, name):
    """The kept database, as if the server had made it."""
    server.state.mkdir()
    with sqlite3.connect(server.state / "bellhop.db") as db:
        db.executescript((KEPT / name).read_text())
    db.close()


def tables(server):
    with sqlite3.connect(server.state / "bellhop.db") as db:
        found = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    return found


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_database_of_every_version_is_opened_with_all_that_is_in_it(make_bellhop, dial, version):
    from conftest import Credential
    server = make_bellhop(CONFIG, start=False)
    lay(server, f"v{version}.sql")
    server.start()
    credential = Credential((KEPT / f"v{version}.credential").read_text())
    assert credential.id in server.cli("gateway", "list").stdout
    gateway = dial(server, credential)
    gateway.hear("kept for you")
    assert server.write("and now") == 200
    gateway.hear("and now")
    assert server.restart()
    assert tables(server) == VERSION


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_postgres_of_every_version_is_opened_with_all_that_is_in_it(database, make_bellhop, dial, version):
    from conftest import Credential
    database.load((KEPT / f"v{version}.postgres.sql").read_text())
    server = make_bellhop(shared(database))
    credential = Credential((KEPT / f"v{version}.postgres.credential").read_text())
    assert credential.id in server.cli("gateway", "list").stdout
    gateway = dial(server, credential)
    gateway.hear("kept for you")
    assert server.write("and now") == 200
    gateway.hear("and now")
    assert Program(server, tenant="t").get("/v1/skills/kept").json["source"] == SKILL
    assert server.restart()
    assert database.sql("SELECT value FROM bellhop.meta WHERE name = 'schema'") == str(VERSION)


def test_a_postgres_of_a_newer_program_is_refused(database, make_bellhop):
    server = make_bellhop(shared(database))
    server.stop()
    database.sql(f"UPDATE bellhop.meta SET value = '{VERSION + 1}' WHERE name IN ('schema', 'oldest')")
    assert "of a newer bellhop" in refusal(server)


def refusal(server):
    server.begin()
    assert server.wait() != 0
    return server.log()


def test_a_database_of_a_newer_program_is_refused_and_left_alone(make_bellhop):
    server = make_bellhop(CONFIG)
    server.stop()
    with sqlite3.connect(server.state / "bellhop.db") as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    before = (server.state / "bellhop.db").read_bytes()
    told = refusal(server)
    assert "was written by a newer bellhop" in told and "restore a backup" in told
    assert (server.state / "bellhop.db").read_bytes() == before


def test_a_database_from_before_version_1_is_refused_with_one_sentence(make_bellhop):
    server = make_bellhop(CONFIG)
    server.stop()
    with sqlite3.connect(server.state / "bellhop.db") as db:
        db.execute(f"PRAGMA application_id = {0x62656c6c}")
    db.close()
    assert "from before version 1 of its tables" in refusal(server)


def fill(config):
    """A server with what is kept, stopped again; and the gateway's credential."""
    from conftest import Bellhop
    server = Bellhop(config).start()
    credential = server.cli("gateway", "add", "--tenant", "t", "--id", "keeper", "--platform", "web", "--bot", "lobby").stdout
    assert server.write("kept for you") == 200
    return server, credential


def make():
    server, credential = fill(CONFIG)
    server.stop()
    (KEPT / f"v{VERSION}.credential").write_text(credential)
    done = subprocess.run(["sqlite3", server.state / "bellhop.db", ".dump"], capture_output=True, text=True, check=True)
    with sqlite3.connect(server.state / "bellhop.db") as db:
        identity = db.execute("PRAGMA application_id").fetchone()[0]
    head = f"PRAGMA auto_vacuum=INCREMENTAL;\nPRAGMA application_id={identity};\nPRAGMA user_version={VERSION};\n"
    (KEPT / f"v{VERSION}.sql").write_text(head + done.stdout)
    make_postgres()


def make_postgres():
    database = Postgres().start()
    server, credential = fill(shared(database))
    assert Program(server, tenant="t").write("kept", SKILL).status == 200
    server.stop()
    (KEPT / f"v{VERSION}.postgres.credential").write_text(credential)
    (KEPT / f"v{VERSION}.postgres.sql").write_text(database.dump())
    database.clean()


if __name__ == "__main__":
    sys.exit(make())

"""One server on PostgreSQL: the relay as on a file, and an honest answer while the database is away."""
import json
import os
import re
import subprocess

import pytest

from conftest import PROGRAM, ROOT, wait_for
from relay import Refused
from servers import Postgres

OLD_KEY, NEW_KEY = "0123456789abcdef" * 4, "fedcba9876543210" * 4
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
master_key: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
store: {{{{kind: postgres, url: "{url}"}}}}
wake: {{{{cooldown: 300ms, timeout: 2s, allow_private: true}}}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: web, bot: lobby}}}}
"""


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


@pytest.fixture
def database(postgres):
    """The server, empty."""
    if postgres.process is None:
        postgres.start()
    postgres.sql("DROP SCHEMA IF EXISTS bellhop CASCADE")
    return postgres


@pytest.fixture
def served(database, make_bellhop):
    return make_bellhop(CONFIG.format(url=database.url))


def test_messages_arrive_in_order_and_leave_when_acked(served, database, dial):
    gateway = dial(served, served.add())
    for n in range(20):
        assert served.write(f"m{n}") == 200
    for n in range(20):
        gateway.hear(f"m{n}")
    wait_for(lambda: database.sql("SELECT count(*) FROM bellhop.mail") == "0")


def test_an_answer_reaches_the_page(served, dial):
    gateway = dial(served, served.add())
    assert served.write("hello") == 200
    chat = gateway.hear("hello")["event"]["source"]["chat_id"]
    assert gateway.act(op="send", chat_id=chat, content="good day")["success"]


def test_a_sleeper_finds_its_mail_after_a_restart(served, dial):
    credential = served.add()
    gateway = dial(served, credential)
    gateway.sleep()
    for n in range(5):
        assert served.write(f"m{n}") == 200
    served.restart()
    assert served.instance(credential.id)["state"] == "asleep"
    gateway = dial(served, credential)
    for n in range(5):
        gateway.hear(f"m{n}")


def test_unacked_messages_survive_kill_9_and_come_once_more(served, dial):
    credential = served.add()
    gateway = dial(served, credential, ack=False)
    assert served.write("kept") == 200
    first = gateway.hear("kept")
    served.kill()
    served.start()  # it waits for the lease of the one that was killed
    gateway = dial(served, credential)
    assert gateway.hear("kept")["bufferId"] == first["bufferId"]


def test_the_same_message_twice_is_one(served, dial):
    gateway = dial(served, served.add())
    assert served.write("once", client_id="c-1") == 200
    assert served.write("once", client_id="c-1") == 200
    gateway.hear("once")
    assert gateway.quiet()


def test_while_the_database_is_away_nothing_is_accepted_and_readyz_says_so(database, make_bellhop, dial):
    served = make_bellhop(CONFIG.format(url=database.url) + "cluster: {{lease: 60s}}\n")
    gateway = dial(served, served.add())
    assert served.write("before") == 200
    gateway.hear("before")
    database.crash()
    assert served.write("lost?") == 503
    assert gateway.quiet(seconds=0.1)
    wait_for(lambda: served.get("/readyz").status == 503)
    database.start()
    wait_for(lambda: served.get("/readyz").status == 200 or served.write("knock") == 200)
    wait_for(lambda: served.write("after") == 200)
    seen = []
    while not seen or seen[-1] != "after":
        seen.append(gateway.next("inbound")["event"]["text"])
    assert "lost?" not in seen


def test_a_database_away_for_longer_than_the_lease_ends_the_process(database, make_bellhop, dial):
    server = make_bellhop(CONFIG.format(url=database.url) + "cluster: {{lease: 1s}}\n")
    gateway = dial(server, server.add())
    database.crash()
    assert gateway.wait_closed(15)[0] == 1012
    assert server.wait(15) == 75
    assert "another node may serve by now" in server.log()
    database.start()
    server.start()


def test_a_wrong_key_is_refused_with_a_sentence(served, database, make_bellhop):
    served.add()
    served.stop()
    other = make_bellhop(CONFIG.format(url=database.url).replace("0123456789abcdef01", "1123456789abcdef01"),
                         start=False)
    with pytest.raises(AssertionError, match="master key"):
        other.start()
    other.wait()


def test_two_processes_one_serves_and_the_other_stands_by(served, database, make_bellhop, dial):
    credential = served.add()
    other = make_bellhop(CONFIG.format(url=database.url) + "cluster: {{serve: one}}\n", start=False)
    other.begin()
    assert "stands by" in other.process.stdout.readline()
    other.find_port()
    assert other.get("/healthz").json == {"status": "standby"}
    assert other.get("/readyz").status == 503
    assert other.write("hello") == 503
    with pytest.raises(Refused):
        dial(other, credential)
    served.stop()
    assert "ready" in other.process.stdout.readline(), other.log()
    assert other.get("/readyz").status == 200
    gateway = dial(other, credential)
    assert other.write("hello") == 200
    gateway.hear("hello")


def test_who_stands_by_stops_when_told(served, database, make_bellhop):
    other = make_bellhop(CONFIG.format(url=database.url), start=False)
    other.begin()
    assert "stands by" in other.process.stdout.readline()
    assert other.stop() == 0
    assert served.get("/readyz").status == 200


def test_nodes_are_listed_by_whoever_is_asked_and_drained(served, database, make_bellhop):
    other = make_bellhop(CONFIG.format(url=database.url) + "cluster: {{node: two, serve: one}}\n", start=False)
    other.begin()
    assert "stands by" in other.process.stdout.readline()

    def both():
        nodes = json.loads(other.cli("node", "list", "--json").stdout)
        return nodes if {n["state"] for n in nodes} == {"serving", "standby"} else None

    nodes = wait_for(both)
    assert [n["node"] for n in nodes if n["state"] == "standby"] == ["two"]
    assert nodes == json.loads(served.cli("node", "list", "--json").stdout) or both()
    assert "standby" in served.cli("node", "list").stdout
    assert "shuts down" in served.cli("node", "drain").stderr
    assert "ready" in other.process.stdout.readline(), other.log()
    assert served.wait() == 76
    assert json.loads(other.cli("status", "--json").stdout)["node"]["name"] == "two"


def test_a_server_on_a_file_has_no_other_nodes(bellhop):
    assert "no other nodes" in bellhop.cli("node", "list").stderr
    assert json.loads(bellhop.cli("node", "list", "--json").stdout) == []


def test_the_metrics_of_a_node_are_served(served):
    metrics = served.get("/metrics").text
    page = (ROOT / "docs" / "cluster.md").read_text()
    named = set(re.findall(r"`(bellhop_node_[a-z_]+)`", page))
    assert named and {m for m in named if f"\n# TYPE {m} " not in metrics} == set()


def test_another_master_key_while_no_node_serves_and_after_a_kill_too(database, make_bellhop, dial):
    """Where the lease is held nothing is changed; a rotation that was killed is ended by the next."""
    server = make_bellhop(CONFIG.format(url=database.url).replace(OLD_KEY, "${{BELLHOP_MASTER_KEY}}"),
                          env={"BELLHOP_MASTER_KEY": OLD_KEY})
    kept = server.add(id="kept")
    for n in range(20):
        server.add(id=f"g{n}")
    server.env["BELLHOP_NEW_MASTER_KEY"] = NEW_KEY
    done = server.cli("key", "rotate", check=False)
    assert done.returncode == 1 and "Stop all nodes first" in done.stderr
    server.stop()
    held = "BEGIN; SELECT FROM bellhop.kv WHERE ns = 'gateway' FOR UPDATE; SELECT pg_sleep(60)"
    holder = subprocess.Popen([database.bin / "psql", "-h", database.dir, "-U", "bellhop", "-d", "postgres", "-qc", held],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: database.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1")
    killed = subprocess.Popen([PROGRAM, "key", "rotate", "-c", server.config], env={**os.environ, **server.env},
                              stderr=subprocess.DEVNULL)
    wait_for(lambda: database.sql("SELECT count(*) FROM bellhop.kv WHERE ns = 'seal' AND key = 'next'") == "1")
    killed.kill()
    killed.wait()
    database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    holder.wait()

    tries = []

    def is_over():  # its lease has to end first
        done = server.cli("key", "rotate", check=False)
        tries.append(done.returncode)
        assert done.returncode == 0 or re.search("key rotate [0-9a-f]{8} serves", done.stderr), done.stderr
        return done.returncode == 0
    wait_for(is_over, timeout=60, every=0.5)
    assert len(tries) > 1
    del server.env["BELLHOP_NEW_MASTER_KEY"]
    done = subprocess.run([PROGRAM, "serve", "-c", server.config], env={**os.environ, **server.env}, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and "does not fit" in done.stderr, done.stderr
    server.env["BELLHOP_MASTER_KEY"] = NEW_KEY
    server.start()
    gateway = dial(server, kept)
    assert server.write("hello") == 200
    gateway.hear("hello")

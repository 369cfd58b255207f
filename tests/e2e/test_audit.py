"""The audit log: every change has an entry, without secrets, tampering is found, and the log is bounded."""
import json
import sqlite3
import tarfile
import threading

import pytest

from conftest import wait_for
from dashboard_rig import Person
from servers import Postgres

ALONE = """\
listen: 127.0.0.1:0
state_dir: {state}
master_key: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
platforms:
  - {{platform: web, bot: lobby}}
"""


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


def shared(database, more=""):
    return ALONE + f'store: {{{{kind: postgres, url: "{database.url}"}}}}\n' + more


def head_of(server):
    done = verify(server)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def set_principal(server, credential, mode):
    return server.post("/manage/principal", {"platform": "web", "mode": mode},
                       headers={"Authorization": "Bearer " + credential.token()}).status


def log(server, *words):
    return json.loads(server.cli("audit", *words, "--json").stdout)


def verify(server, *words):
    return server.cli("audit", "--verify", *words, check=False)


def test_every_change_is_logged_with_who_before_and_after_and_without_secrets(bellhop, dial):
    c = bellhop.add(id="agent", tenant="acme", wake_url="http://127.0.0.1:1/a")
    bellhop.cli("gateway", "set", "agent", "--wake-url", "http://127.0.0.1:1/b")
    bellhop.cli("link", "add", "--tenant", "acme", "--instance", "agent", "--platform", "web", "--user", "u7", "--bot", "lobby")
    answer = bellhop.post("/manage/principal", {"platform": "web", "mode": "any"}, headers={"Authorization": "Bearer " + c.token()})
    assert answer.status == 200
    key = bellhop.cli("token", "agent", "--tenant", "acme").stdout.strip()
    bellhop.cli("mailbox", "purge", "agent", "--yes")
    entries = log(bellhop)
    assert [e["what"] for e in entries] == ["purgeMailbox", "makeToken", "setPrincipal", "linkPerson", "setGateway", "addGateway"]
    assert [e["seq"] for e in entries] == [6, 5, 4, 3, 2, 1]
    by = [(e["by"], e["from"]) for e in entries]
    assert by[0] == ("operator", "admin.sock") and by[2][0] == "gateway" and by[2][1].startswith("127.0.0.1")
    assert entries[2]["who"] == "acme/agent" and entries[2]["tenant"] == "acme"
    wake = entries[4]["records"][0]
    assert wake["before"]["wakeUrl"] == "http://127.0.0.1:1/a" and wake["after"]["wakeUrl"] == "http://127.0.0.1:1/b"
    assert entries[5]["records"][0]["before"] is None
    whole = json.dumps(entries)
    assert c.secret not in whole and key not in whole and "redacted" in whole
    # what changes nothing is no change
    bellhop.post("/manage/principal", {"platform": "web", "mode": "any"}, headers={"Authorization": "Bearer " + c.token()})
    assert len(log(bellhop)) == 6 and len(log(bellhop, "--limit", "2")) >= 2
    assert [e["seq"] for e in log(bellhop, "--tenant", "acme") if e["what"] == "linkPerson"] == [3]
    assert bellhop.admin("GET", "/admin/audit?limit=2").json["next"] == 5
    assert [e["seq"] for e in bellhop.admin("GET", "/admin/audit?limit=2&after=5").json["entries"]] == [4, 3]


def test_agents_and_keys_are_logged_too(bellhop):
    bellhop.cli("agent", "add", "a1", "--tenant", "acme", "--substrate", "webhook", "--url", "http://127.0.0.1:1/a", "--secret", "planted-secret")
    bellhop.cli("agent", "set", "a1", "--tenant", "acme", "--name", "Nora")
    bellhop.cli("agent", "remove", "a1", "--tenant", "acme")
    bellhop.cli("token", "enroll", "--tenant", "acme")
    assert log(bellhop)[0]["note"] == "enroll token made: tenant=acme"  # it has no id
    bellhop.cli("token", "dashboard", "--tenant", "acme", "--read-only")
    key = json.loads(bellhop.cli("token", "list", "--json").stdout)[0]["id"]
    bellhop.cli("token", "revoke", key)
    revoked, made, _, removed, changed, added = log(bellhop)
    assert [e["what"] for e in (added, changed, removed)] == ["addAgent", "setAgent", "removeAgent"]
    assert all(e["tenant"] == "acme" and e["records"][0]["key"] == "a1" for e in (added, changed, removed))
    records = [e["records"][0] for e in (added, changed, removed)]
    assert records[0]["before"] is None and records[0]["after"]["url"] == "http://127.0.0.1:1/a"
    assert "name" not in records[1]["before"] and records[1]["after"]["name"] == "Nora"
    assert records[2]["before"]["name"] == "Nora" and records[2]["after"] is None
    assert made["note"] == f"dashboard token made: id={key} tenant=acme read-only"
    assert revoked["note"] == f"dashboard token revoked: id={key} tenant=acme identity=acme"
    assert "planted-secret" not in json.dumps(log(bellhop)) and verify(bellhop).returncode == 0


def test_the_chain_survives_restarts_and_tells_what_was_changed(bellhop):
    for i in range(3):
        bellhop.add(id=f"g{i}", tenant="acme")
    head = verify(bellhop).stdout.splitlines()[-1]
    assert head.startswith("3:")
    bellhop.kill()
    bellhop.start()
    bellhop.add(id="g3", tenant="acme")
    assert verify(bellhop, "--expect", head).returncode == 0
    assert "is not in the log" in verify(bellhop, "--expect", "3:" + "0" * 64).stderr
    assert bellhop.stop() == 0

    def tamper(sql, *args):
        db = sqlite3.connect(bellhop.state / "bellhop.db")
        kept = db.execute("SELECT k, v FROM kv WHERE ns = 'audit' ORDER BY k").fetchall()
        assert len(kept) == 4 and db.execute(sql, args).rowcount == 1
        db.commit()
        db.close()
        bellhop.start()
        said = verify(bellhop)
        assert bellhop.stop() == 0
        db = sqlite3.connect(bellhop.state / "bellhop.db")
        for k, v in kept:
            db.execute("INSERT OR REPLACE INTO kv (ns, k, v) VALUES ('audit', ?, ?)", (k, v))
        db.commit()
        db.close()
        assert said.returncode == 1, said.stdout
        return said.stderr

    db = sqlite3.connect(bellhop.state / "bellhop.db")
    keys = [k for k, in db.execute("SELECT k FROM kv WHERE ns = 'audit' ORDER BY k")]
    values = [v for v, in db.execute("SELECT v FROM kv WHERE ns = 'audit' ORDER BY k")]
    db.close()
    as_text = values[1].decode() if isinstance(values[1], bytes) else values[1]
    forged = as_text.replace("acme", "evil")
    forged = forged.encode() if isinstance(values[1], bytes) else forged
    assert "was changed" in tamper("UPDATE kv SET v = ? WHERE ns = 'audit' AND k = ?", forged, keys[1])
    assert "is missing" in tamper("DELETE FROM kv WHERE ns = 'audit' AND k = ?", keys[1])
    assert "newest entries are missing" in tamper("DELETE FROM kv WHERE ns = 'audit' AND k = ?", keys[3])
    assert "does not stand on the entry before it" in tamper("UPDATE kv SET v = ? WHERE ns = 'audit' AND k = ?", values[2], keys[1])
    bellhop.start()
    assert verify(bellhop).returncode == 0


def test_a_person_who_is_erased_is_in_no_entry_and_the_chain_is_whole(bellhop, dial):
    bellhop.add(id="agent", tenant="acme")
    bellhop.cli("link", "add", "--tenant", "acme", "--instance", "agent", "--platform", "web", "--user", "ada-77", "--bot", "lobby")
    bellhop.cli("link", "add", "--tenant", "acme", "--instance", "agent", "--platform", "web", "--user", "ada-778", "--bot", "lobby")
    done = json.loads(bellhop.cli("erase", "--person", "web:ada-77", "--yes", "--json").stdout)
    assert done["audit"] == 1
    wait_for(lambda: sum(e.get("redacted", False) for e in log(bellhop)) == 1)
    assert '"ada-77"' not in json.dumps(log(bellhop)) and "ada-778" in json.dumps(log(bellhop))
    assert verify(bellhop).returncode == 0


def test_a_person_who_links_themselves_is_named(bellhop, dial):
    g = dial(bellhop, bellhop.add(id="agent", tenant="acme"))
    assert bellhop.write("hello") == 200
    chat = g.next("inbound")["event"]["source"]["chat_id"]
    code = bellhop.cli("link", "--instance", "agent", "--platform", "web").stdout.split()[-1]
    code = next(w for line in bellhop.cli("link", "--instance", "agent", "--json").stdout.splitlines() for w in [json.loads(line)["code"]])
    assert bellhop.write(f"/link {code}") == 200
    entry = wait_for(lambda: [e for e in log(bellhop) if e["by"] == "person"])[0]
    assert entry["who"] == f"web:{chat}" and entry["what"] == "redeemCode" and code not in json.dumps(log(bellhop))


def test_the_log_moves_between_the_databases_and_through_backups(database, make_bellhop, tmp_path):
    server = make_bellhop(ALONE)
    for i in range(3):
        server.add(id=f"g{i}", tenant="acme")
    heads = [head_of(server)]
    alone = server.config.read_text()
    server.cli("backup", str(tmp_path / "b.tar"))
    server.stop()
    server.cli("store", "migrate", "--to", database.url)
    server.config.write_text(alone + f'store: {{kind: postgres, url: "{database.url}"}}\n')
    server.start()
    server.add(id="g3", tenant="acme")
    heads.append(head_of(server))
    server.stop()
    copy = database.dump()
    database.sql("DROP SCHEMA bellhop CASCADE")
    database.load(copy)
    server.start()
    server.add(id="g4", tenant="acme")
    heads.append(head_of(server))
    assert [h.split(":")[0] for h in heads] == ["3", "4", "5"]
    server.stop()
    (server.state / "bellhop.db").rename(server.state / "old.db")
    (server.state / "skills.db").unlink(missing_ok=True)
    server.cli("store", "migrate", "--to", "sqlite")
    server.config.write_text(alone)
    server.start()
    for head in heads:
        assert verify(server, "--expect", head).returncode == 0
    server.stop()
    server.cli("restore", str(tmp_path / "b.tar"), "--yes")
    server.start()
    server.add(id="g5", tenant="acme")
    assert verify(server, "--expect", heads[0]).returncode == 0
    assert "is not in the log" in verify(server, "--expect", heads[1]).stderr


def test_what_why_keeps_follows_the_message_when_its_database_moves(database, make_bellhop, dial, tmp_path):
    server = make_bellhop(ALONE)
    agent = server.add(id="agent", tenant="acme")
    assert server.write("waits for the move") == 200

    def told():
        found = json.loads(server.cli("why", "--instance", "agent", "--json", "--all").stdout)["decisions"]
        return [(d["messageId"], [s["what"] for s in d["steps"]]) for d in found]

    wait_for(lambda: len(told()) == 1)
    (message, steps), = told()
    assert steps == []
    server.cli("backup", str(tmp_path / "b.tar"))
    server.stop()
    alone = server.config.read_text()
    server.cli("store", "migrate", "--to", database.url)
    server.config.write_text(alone + f'store: {{kind: postgres, url: "{database.url}"}}\n')
    server.start()
    assert told() == [(message, [])]
    dial(server, agent).hear("waits for the move")
    wait_for(lambda: told() == [(message, ["sent", "acked"])])  # the steps on the new database find the decision of before
    server.stop()
    (server.state / "bellhop.db").rename(server.state / "old.db")
    (server.state / "skills.db").unlink(missing_ok=True)
    server.cli("store", "migrate", "--to", "sqlite")
    server.config.write_text(alone)
    server.start()
    assert told() == [(message, ["sent", "acked"])]
    server.stop()
    server.cli("restore", str(tmp_path / "b.tar"), "--yes")  # its message waits again; what is known of it stays
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert "bellhop.db" in tar.getnames() and not [n for n in tar.getnames() if n.startswith("why")]
    server.start()
    dial(server, agent).hear("waits for the move")
    wait_for(lambda: told() == [(message, ["sent", "acked", "sent", "acked"])])


def test_changes_while_the_database_is_away_leave_no_gap(database, make_bellhop):
    server = make_bellhop(shared(database, "cluster: {{lease: 60s}}\n"))
    credentials = [server.add(id=f"g{i}", tenant="acme") for i in range(4)]
    tokens = [c.token() for c in credentials]
    database.crash()

    def change(token):
        return server.post("/manage/principal", {"platform": "web", "mode": "any"}, headers={"Authorization": "Bearer " + token}).status

    answers = []
    people = [threading.Thread(target=lambda t=t: answers.append(change(t))) for t in tokens]
    for p in people:
        p.start()
    for p in people:
        p.join()
    assert answers == [503] * 4
    database.start()
    wait_for(lambda: change(tokens[0]) == 200, 20)
    assert [e["what"] for e in log(server)][0] == "setPrincipal"
    assert head_of(server)
    assert database.sql("SELECT count(*) FROM bellhop.kv WHERE ns = 'audit'") == head_of(server).split(":")[0]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_tenant_that_changes_its_facts_again_and_again_does_not_fill_the_database(kind, request, make_bellhop):
    config = ALONE + "audit: {{max_size: 40KiB}}\n"
    if kind == "postgres":
        config = shared(request.getfixturevalue("database"), "audit: {{max_size: 40KiB}}\n")
    server = make_bellhop(config)
    credentials = [server.add(id=f"g{i}", tenant=f"t{i}") for i in range(8)]
    first = head_of(server)
    modes = ["any", "owner-only"]
    refused = 0
    for c in credentials:  # one tenant may fill a quarter in a day
        for n in range(20):
            status = set_principal(server, c, modes[n % 2])
            assert status in (200, 429)
            refused += status == 429
            if status == 429:
                break
    assert refused == len(credentials)
    done = json.loads(wait_for(lambda: '"cut"' in (v := server.cli("audit", "--verify", "--json").stdout) and v))
    assert done["ok"] and done["entries"] * 500 < 40 << 10 and done["first"] > 1
    assert "older than the log" in verify(server, "--expect", first).stderr
    assert verify(server, "--expect", done["cut"]).returncode == 0
    assert [e["what"] for e in log(server)].count("cutLog") > 0
    server.cli("gateway", "set", "g0", "--wake-url", "http://127.0.0.1:1/b")  # operators are not bounded
    assert server.restart()
    assert verify(server, "--expect", done["head"]).returncode == 0
    assert "deleted after audit.keep or audit.max_size" in verify(server).stdout


def test_a_tenants_dashboard_does_not_push_out_the_entries_of_others(make_bellhop):
    """Also by changes of something other than facts, such as its mailboxes."""
    server = make_bellhop(ALONE + "audit: {{max_size: 40KiB}}\n")
    mine = server.add(tenant="acme", id="desk")
    before = head_of(server)
    page = Person(server)
    assert page.sign_in(token=server.cli("token", "dashboard", "--tenant", "acme").stdout.strip()).status == 200
    statuses = [page.ask("redriveMailbox", {"instance": mine.id}).status for _ in range(60)]
    assert statuses[:5] == [200] * 5 and statuses[-1] == 429 and sorted(set(statuses)) == [200, 429]
    assert "older than the log" not in verify(server, "--expect", before).stderr
    assert [e["what"] for e in log(server)].count("redriveMailbox") == statuses.count(200)
    assert server.cli("mailbox", "redrive", mine.id).returncode == 0  # operators are not bounded
    assert page.ask("showMailbox", {"instance": mine.id}).status == 200

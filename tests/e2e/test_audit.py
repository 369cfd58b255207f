"""The audit log: every change has an entry, without secrets, and tampering is found."""
import json
import sqlite3

from conftest import wait_for


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

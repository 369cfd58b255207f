"""What is kept of one person goes, and of nobody else."""
import json
import sqlite3

ADA, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"


def history(server, visitor):
    return server.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": visitor}).json


def rows_naming(server, text):
    """The namespaces of records on disk that have the text anywhere in them."""
    db = sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True)
    rows = db.execute("SELECT ns, CAST(k AS BLOB), CAST(v AS BLOB) FROM kv").fetchall()
    return sorted({ns for ns, k, v in rows if text.encode() in k + v})


def test_a_person_is_erased_and_nobody_else(bellhop, dial):
    g = dial(bellhop, bellhop.add(id="agent", tenant="acme"))
    chats = []
    for visitor in (ADA, BOB):
        bellhop.post("/chat/lobby/api/name", {"name": "somebody"}, headers={"X-Bellhop-Visitor": visitor})
        for i in range(3):
            assert bellhop.write(f"m{i}", visitor=visitor, client_id=f"c{i}") == 200
            event = g.next("inbound")["event"]
        chats.append(event["source"]["chat_id"])
    ada, bob = chats
    bellhop.cli("link", "add", "--tenant", "acme", "--instance", "agent", "--platform", "web", "--user", ada)

    counted = json.loads(bellhop.cli("erase", "--person", f"web:{ada}", "--dry-run", "--json").stdout)
    assert counted == {"dryRun": True, "messages": 3, "names": 1, "chats": 1, "outgoing": 0, "links": 1, "allowLists": 0}
    assert len(history(bellhop, ADA)["messages"]) == 3
    unsure = bellhop.cli("erase", "--person", f"web:{ada}", check=False)
    assert unsure.returncode != 0 and "--yes" in unsure.stderr
    done = json.loads(bellhop.cli("erase", "--person", f"web:{ada}", "--yes", "--json").stdout)
    assert done == {**counted, "dryRun": False}

    assert history(bellhop, ADA)["messages"] == [] and not history(bellhop, ADA)["name"]
    assert len(history(bellhop, BOB)["messages"]) == 3 and history(bellhop, BOB)["name"] == "somebody"
    bellhop.restart()
    assert rows_naming(bellhop, ada) == []
    assert "chat" in rows_naming(bellhop, bob) and "web" in rows_naming(bellhop, bob)
    again = json.loads(bellhop.cli("erase", "--person", f"web:{ada}", "--yes", "--json").stdout)
    assert again["messages"] == again["chats"] == again["links"] == 0


def test_who_is_meant_must_be_said(bellhop):
    for words in ([], ["--person", "web"], ["--person", "web:"], ["--person", "nowhere:x", "--yes"]):
        assert bellhop.cli("erase", *words, check=False).returncode != 0

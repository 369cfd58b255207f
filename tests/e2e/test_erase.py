"""What is kept of one person goes, and of nobody else."""
import json

import pytest

from conftest import CONFIG, rows_naming, wait_for
from dispatch_rig import augment
from relay import mint
from test_clock import Clock
from v1 import Program

ADA, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"


def history(server, visitor):
    return server.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": visitor}).json


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
    bellhop.cli("link", "add", "--tenant", "acme", "--instance", "agent", "--platform", "web", "--user", ada, "--bot", "lobby")

    counted = json.loads(bellhop.cli("erase", "--person", f"web:{ada}", "--dry-run", "--json").stdout)
    assert counted == {"dryRun": True, "messages": 3, "names": 1, "media": 0, "chats": 1, "people": 0, "mails": 0, "outgoing": 0, "questions": 0,
                       "links": 1, "waiting": 0, "quoted": 0, "allowLists": 0, "allowances": 0, "pairing": 0, "why": 3, "audit": 1}
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


def test_what_a_person_wrote_goes_before_an_agent_took_it_and_their_open_questions_too(bellhop, dial):
    credential = bellhop.add(id="agent", tenant="acme")
    g = dial(bellhop, credential)
    chats = {}
    for visitor in (ADA, BOB):
        assert bellhop.write("hello", visitor=visitor) == 200
        chats[visitor] = g.next("inbound")["event"]["source"]["chat_id"]
        asked = g.act(op="prompt", chat_id=chats[visitor], content="Well?", prompt_id="q1",
                      options=[{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}])
        assert asked["success"], asked
    g.close()
    wait_for(lambda: bellhop.instance("agent")["state"] != "live")
    for i in range(300):  # more than a page
        assert bellhop.write(f"secret of ada {i}" if i % 3 else f"word of bob {i}", visitor=ADA if i % 3 else BOB) == 200
    ada = chats[ADA]
    counted = json.loads(bellhop.cli("erase", "--person", f"web:{ada}", "--dry-run", "--json").stdout)
    assert (counted["waiting"], counted["questions"]) == (200, 1)
    assert bellhop.instance("agent")["entries"] == 300
    done = json.loads(bellhop.cli("erase", "--person", f"web:{ada}", "--yes", "--json").stdout)
    assert (done["waiting"], done["questions"]) == (200, 1)
    assert bellhop.instance("agent")["entries"] == 100
    g = dial(bellhop, credential)
    texts = [g.next("inbound")["event"]["text"] for _ in range(100)]
    assert texts == [f"word of bob {i}" for i in range(0, 300, 3)] and g.quiet(seconds=0.5)
    bellhop.restart()
    assert rows_naming(bellhop, ada) == [] and rows_naming(bellhop, "secret of ada") == []
    assert "prompt" in rows_naming(bellhop, chats[BOB])


def test_who_is_meant_must_be_said(bellhop):
    for words in ([], ["--person", "web"], ["--person", "web:"], ["--person", "nowhere:x", "--yes"]):
        assert bellhop.cli("erase", *words, check=False).returncode != 0


def everything(server, dial, tenant, bot):
    """A tenant with something of every kind; its program."""
    gateway = dial(server, server.add(id=f"gw-{tenant}", tenant=tenant, bot=bot))
    for i in range(2):
        assert server.write(f"hello {tenant}", bot=bot, visitor=f"visitor-of-{tenant}-0000", client_id=f"c{i}") == 200
        gateway.next("inbound")
    gateway.close()
    wait_for(lambda: server.instance(f"gw-{tenant}")["state"] != "live")
    assert server.write(f"while {tenant} is away", bot=bot, visitor=f"visitor-of-{tenant}-0000") == 200
    program = Program(server, tenant=tenant)
    elsewhere = Program(server, tenant=tenant, namespace="side")
    for p in (program, elsewhere):
        assert p.write("secret-recipe", source=f"# Skill: secret-recipe\n# Status: Draft\n\nonly {tenant} knows").status in (200, 201)
        assert p.ask("POST", "/v1/data", {"content": f"a note of {tenant}"}).status in (200, 201)
    return program


@pytest.mark.parametrize("kind", ["sqlite", "filesystem"])
def test_a_tenant_is_erased_and_no_other(make_bellhop, dial, kind):
    server = make_bellhop(CONFIG + f"skills: {{{{kind: {kind}}}}}\n")
    mine, other = everything(server, dial, "acme", "lobby"), everything(server, dial, "other", "attic")

    for tenant, who in (("acme", mine), ("other", other)):
        server.cli("agent", "add", "desk", "--tenant", tenant, "--substrate", "none")
        assert who.ask("PUT", "/v1/agents/desk/sessions/den").status == 200

    counted = json.loads(server.cli("erase", "--tenant", "acme", "--dry-run", "--json").stdout)
    assert counted == {"dryRun": True, "agents": 1, "sessions": 1, "requests": 0, "instances": 1, "keys": 2, "waiting": 1, "chats": 1, "allowances": 0, "messages": 3, "people": 0, "mails": 0, "outgoing": 0, "questions": 0,
                       "replies": 0, "wakes": 0, "media": 0, "skills": 2, "data": 2, "routes": counted["routes"], "pairing": 0, "why": 3}
    assert len(mine.names()) == 1  # nothing went
    unsure = server.cli("erase", "--tenant", "acme", check=False)
    assert unsure.returncode != 0 and "--yes" in unsure.stderr
    done = json.loads(server.cli("erase", "--tenant", "acme", "--yes", "--json").stdout)
    assert done == {**counted, "dryRun": False}

    assert mine.get("/v1/skills").status == 401  # its key is nobody's
    assert other.get("/v1/skills/secret-recipe").status == 200
    assert "a note of other" in other.ask("POST", "/v1/data/query", {"query": "note"}).text
    again = Program(server, tenant="acme")
    assert again.get("/v1/agents/desk/sessions").status == 404 and other.get("/v1/agents/desk/sessions").json[0]["session_id"] == "den"
    assert again.names() == [] and again.ask("POST", "/v1/data/query", {"query": "note"}).json == []
    history = [server.get(f"/chat/{bot}/api/history", headers={"X-Bellhop-Visitor": f"visitor-of-{tenant}-0000"}).json["messages"]
               for bot, tenant in (("lobby", "acme"), ("attic", "other"))]
    assert len(history[0]) == 0 and len(history[1]) == 3
    gone = json.loads(server.cli("erase", "--tenant", "acme", "--dry-run", "--json").stdout)
    assert {k: v for k, v in gone.items() if v and k not in ("dryRun", "routes")} == {"keys": 1, "data": 2}  # those are empty
    assert server.stop() == 0
    for file in (server.state / "data").rglob("*"):
        assert not file.is_file() or b"a note of acme" not in file.read_bytes(), file
    server.start()
    assert other.get("/v1/skills/secret-recipe").status == 200
    held = dial(server, server.add(id="gw-new", tenant="acme", bot="lobby"))
    assert held.quiet(seconds=1)  # the mail of the one before is nobody's


def test_retention_counts_for_everything_that_is_kept_of_people(make_bellhop, dial):
    """Ten days later, on the server's own clock, nothing of what was said is there, and what is new stays."""
    server = make_bellhop(CONFIG + "retention: 5d\nagents:\n  - {{id: agent, substrate: relay, tenant: acme}}\n", start=False)
    clock = Clock(server)
    server.start()
    credential = server.add(id="agent", tenant="acme")

    def connect():
        return dial(server, credential, token=mint(credential.id, credential.secret, exp=clock.now() + 300))

    g = connect()
    assert server.write("long ago", visitor=ADA) == 200
    ada = g.next("inbound")["event"]["source"]["chat_id"]
    assert server.post("/chat/lobby/api/name", {"name": "Ada"}, headers={"X-Bellhop-Visitor": ADA}).status == 200
    wait_for(lambda: "web_name" in rows_naming(server, ada))
    program = Program(server, tenant="acme")
    assert program.ask("POST", "/v1/agents/agent/deliver", augment("say something")).status == 200
    chat = g.next("inbound")["event"]["source"]["chat_id"]
    assert g.act(op="send", chat_id=chat, content="an old reply")["success"]
    g.close()
    wait_for(lambda: server.instance("agent")["state"] != "live")
    assert server.write("nobody read this", visitor=ADA) == 200
    assert server.instance("agent")["entries"] == 1 and "chat" in rows_naming(server, ada)

    assert server.stop() == 0
    clock.jump(10 * 86400)
    server.start()
    wait_for(lambda: server.instance("agent")["entries"] == 0)
    wait_for(lambda: [ns for ns in rows_naming(server, ada) if ns != "web_key"] == [])
    wait_for(lambda: rows_naming(server, "an old reply") == [])
    assert server.write("of today", visitor=BOB) == 200
    g = connect()
    event = g.next("inbound")["event"]
    assert event["text"] == "of today"
    bob = event["source"]["chat_id"]
    assert g.act(op="send", chat_id=bob, content="hello")["success"]
    assert server.stop() == 0
    clock.jump(2 * 86400)  # not long enough
    server.start()
    g = connect()
    assert g.act(op="send", chat_id=bob, content="still here")["success"]
    assert "chat" in rows_naming(server, bob)

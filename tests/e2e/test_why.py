"""`bellhop why` and `bellhop trace`: the life of a message, on disk, found by everything it has, and gone with its person."""
import json
import subprocess

from conftest import CONFIG, PROGRAM, wait_for

ADA, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"


def why(server, *words):
    return json.loads(server.cli("why", *words, "--json", "--all").stdout)


def bytes_on_disk(server):
    return b"".join(f.read_bytes() for f in sorted((server.state / "why").iterdir()))


def test_the_life_of_a_message_is_told_and_survives_a_restart_and_a_crash(bellhop, dial):
    g = dial(bellhop, bellhop.add(id="agent", tenant="acme"))
    assert bellhop.write("a very secret text", visitor=ADA) == 200
    event = g.next("inbound")["event"]
    chat, message = event["source"]["chat_id"], event["message_id"]
    answer = g.act(op="send", chat_id=chat, content="another secret text")
    assert answer["success"]

    def whole():
        told = why(bellhop, "--platform", "web", "--message", message)["decisions"]
        return told and [s["what"] for s in told[0]["steps"]] == ["sent", "acked"] and told[0]

    told = wait_for(whole)
    assert told["userId"] == chat and told["verdicts"][0]["received"] and told["verdicts"][0]["fate"] == "accepted"
    delivery = told["verdicts"][0]["delivery"]
    bellhop.restart()
    assert whole() == told
    for words in (["--person", chat], ["--chat", chat], ["--instance", "agent"], ["--tenant", "acme"], ["--delivery", delivery]):
        found = why(bellhop, *words)
        assert [d["messageId"] for d in found["decisions"]] == [message], words
    action = why(bellhop, "--chat", chat)["actions"][0]
    assert (action["op"], action["ended"], action["instance"]) == ("send", "done", "agent")
    assert why(bellhop, "--action", action["request"])["actions"] == [action]
    assert "acknowledged by the gateway" in bellhop.cli("why", "--person", chat).stdout
    assert b"secret text" not in bytes_on_disk(bellhop)

    assert bellhop.write("one more", visitor=ADA, client_id="later") == 200
    wait_for(lambda: len(why(bellhop, "--person", chat)["decisions"]) == 2)  # this search wrote it
    bellhop.kill()
    bellhop.start()
    assert len(why(bellhop, "--person", chat)["decisions"]) == 2


def test_pages_bounds_and_bad_cursors(bellhop, dial):
    dial(bellhop, bellhop.add(id="agent", tenant="acme"))
    for i in range(7):
        assert bellhop.write(f"m{i}", visitor=ADA, client_id=f"c{i}") == 200
    seen, after = [], ""
    while True:
        page = bellhop.admin("GET", f"/admin/why?limit=3&platform=web{after}").json
        assert len(page["decisions"]) + len(page["actions"]) <= 3
        seen += [d["id"] for d in page["decisions"]]
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert len(seen) == len(set(seen)) == 7 and seen == sorted(seen, key=lambda x: int(x, 16), reverse=True)
    assert bellhop.admin("GET", "/admin/why?after=zzz").status == 400
    assert bellhop.admin("GET", "/admin/why?limit=100000").status == 400
    assert bellhop.admin("GET", "/admin/why?after=" + "f" * 16).status == 200


def test_what_is_erased_is_not_found_and_not_on_disk(bellhop, dial):
    g = dial(bellhop, bellhop.add(id="agent", tenant="acme"))
    chats = {}
    for visitor in (ADA, BOB):
        assert bellhop.write("hello", visitor=visitor) == 200
        chats[visitor] = g.next("inbound")["event"]["source"]["chat_id"]
        assert g.act(op="send", chat_id=chats[visitor], content="yes")["success"]
    wait_for(lambda: len(why(bellhop, "--instance", "agent")["actions"]) == 2)
    assert chats[ADA].encode() in bytes_on_disk(bellhop)
    done = json.loads(bellhop.cli("erase", "--person", f"web:{chats[ADA]}", "--yes", "--json").stdout)
    assert done["why"] == 2  # what she wrote, and the answer to her
    assert chats[ADA].encode() not in bytes_on_disk(bellhop) and chats[BOB].encode() in bytes_on_disk(bellhop)
    left = why(bellhop)
    assert [d["userId"] for d in left["decisions"]] == [a["chat_id"] for a in left["actions"]] == [chats[BOB]]
    done = json.loads(bellhop.cli("erase", "--tenant", "acme", "--yes", "--json").stdout)
    assert done["why"] == 2
    bellhop.restart()
    assert why(bellhop)["decisions"] == why(bellhop)["actions"] == [] and chats[BOB].encode() not in bytes_on_disk(bellhop)


def test_the_retention_counts_when_it_is_shorter_and_nothing_is_written_when_it_is_off(make_bellhop, dial):
    server = make_bellhop(CONFIG + "why: {{keep: 0}}\n")
    g = dial(server, server.add(id="agent", tenant="acme"))
    assert server.write("hello", visitor=ADA) == 200
    g.next("inbound")
    assert len(why(server)["decisions"]) == 1  # from memory
    assert not (server.state / "why").exists()
    server.restart()
    assert why(server)["decisions"] == []
    brief = make_bellhop(CONFIG + "retention: 1s\n")
    g = dial(brief, brief.add(id="agent", tenant="acme"))
    assert brief.write("hello", visitor=ADA) == 200
    g.next("inbound")
    wait_for(lambda: why(brief)["decisions"] == [])


def test_a_trace_shows_one_person_live_and_saves_it(bellhop, dial, tmp_path):
    g = dial(bellhop, bellhop.add(id="agent", tenant="acme"))
    assert bellhop.write("hello", visitor=ADA) == 200
    ada = g.next("inbound")["event"]["source"]["chat_id"]
    cursor = bellhop.admin("GET", f"/admin/trace?person={ada}").json
    assert cursor["records"] == []
    file = tmp_path / "trace.jsonl"
    watching = subprocess.Popen([PROGRAM, "trace", "--person", ada, "--for", "60s", "--file", file, "-c", bellhop.config],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "Watching" in watching.stderr.readline()
    assert bellhop.write("not of interest", visitor=BOB) == 200
    assert bellhop.write("a secret", visitor=ADA, client_id="second") == 200
    for _ in range(2):
        g.next("inbound")
    assert g.act(op="send", chat_id=ada, content="an answer")["success"]
    seen = []
    while "send of acme/agent" not in "".join(seen):
        seen.append(watching.stdout.readline())
    watching.kill()
    watching.communicate()
    text = "".join(seen)
    assert "message web" in text and "acknowledged by the gateway" in text and "secret" not in text
    saved = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["kind"] for r in saved][:2] == ["event", "step"] and {r["kind"] for r in saved} == {"event", "step", "action"}
    assert all(r["event"]["userId"] == ada for r in saved if r["kind"] == "event")
    # nothing is missed between two looks, and a look that finds something does not wait
    page = bellhop.admin("GET", f"/admin/trace?person={ada}&after={cursor['after']}&wait=20000").json
    assert [r["kind"] for r in page["records"]] == [r["kind"] for r in saved]
    assert bellhop.cli("trace", check=False).returncode == 2


def test_slow_and_flow_and_top_tell_who_waits(bellhop, dial):
    c = bellhop.add(id="agent", tenant="acme")
    g = dial(bellhop, c)
    assert bellhop.write("hello", visitor=ADA) == 200
    g.next("inbound")
    wait_for(lambda: bellhop.admin("GET", "/admin/flow").json["counters"]["acked"] == 1)
    g.close()
    wait_for(lambda: bellhop.instance("agent")["state"] != "live")
    assert bellhop.write("waits", visitor=ADA, client_id="x") == 200
    slow = bellhop.admin("GET", "/admin/slow").json
    assert [(i["tenant"], i["instance"], i["waiting"]) for i in slow["unacked"]] == [("acme", "agent", 1)]
    flow = bellhop.admin("GET", "/admin/flow").json
    assert flow["counters"]["accepted"] == 2 and flow["mailbox"]["entries"] == 1 and flow["latency"]["acceptToAck"]["p50"] >= 1
    once = bellhop.cli("top").stdout  # no terminal: once, and no escape sequences
    assert "acme/agent" in once and "\033" not in once
    assert json.loads(bellhop.cli("top", "--json").stdout)["counters"]["accepted"] == 2


def test_dead_letters_are_listed_redriven_and_dropped_and_the_warning_clears(make_bellhop, dial):
    server = make_bellhop(CONFIG + "delivery: {{max_attempts: 1}}\n")
    c = server.add(id="agent", tenant="acme")

    def warned():
        return [w["what"] for w in json.loads(server.cli("status", "--json").stdout)["warnings"]]

    def park(n):
        g = dial(server, c, ack=False)
        for i in range(n):
            assert server.write(f"m{i}", visitor=ADA, client_id=f"{n}-{i}") == 200
        for _ in range(n):
            g.next("inbound")
        g.close()
        wait_for(lambda: server.instance("agent")["parked"] >= n)

    park(3)
    assert warned() == ["dead_letters"]
    assert server.cli("status").stderr == "Warning: 3 deliveries were set aside after too many attempts. See: bellhop mailbox dead\n"
    dead = json.loads(server.cli("mailbox", "dead", "--json").stdout)
    assert len(dead) == 3 and {d["instance"] for d in dead} == {"agent"}
    told = why(server, "--delivery", dead[0]["delivery"])["decisions"][0]
    assert told["steps"][-1]["what"] == "parked" and "1 socket was lost with it" in told["steps"][-1]["words"]
    assert server.admin("POST", "/admin/dead/drop", {}).status == 400
    assert server.admin("POST", "/admin/dead/drop", {"instance": "agent", "deliveries": ["x"]}).status == 400
    server.cli("mailbox", "drop", "agent", "--delivery", dead[0]["delivery"], "--yes")
    assert server.admin("POST", "/admin/dead/redrive", {"all": True}).json == {"ok": True, "deliveries": 2}
    assert json.loads(server.cli("mailbox", "dead", "--json").stdout) == [] and warned() == []
    g = dial(server, c)
    for _ in range(2):
        g.next("inbound")
    wait_for(lambda: server.instance("agent")["entries"] == 0)

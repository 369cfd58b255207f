"""`bellhop why` and `bellhop trace`: the life of a message, on disk, found by everything it has, and gone with its person."""
import json

from conftest import CONFIG, wait_for

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

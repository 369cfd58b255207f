"""Agents without YAML: bellhop agent add, list, show, set, remove, and /v1/agents with the admin token."""
import json
import os
import re
import sqlite3
import subprocess
import threading
import time

import pytest

from conftest import PROGRAM, ROOT, Credential, wait_for
from dispatch_rig import Sender, augment, config, template
from relay import http as call
from test_acp import EXAMPLE, NODE
from test_dispatch_substrates import Receiver, needs_tmux, pane, program  # noqa: F401 (pane is a fixture)
from test_mcp import page
from v1 import Program, make_key

TOKEN = "an-admin-token"


@pytest.fixture
def house(make_bellhop):
    return make_bellhop(config("id: yaml, substrate: none, tenant: t", "id: everywhere, substrate: none") +
                        f"admin: {{{{token: {TOKEN}}}}}\n")


def admin(server, method, path, body=None, token=TOKEN, **headers):
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    return call(method, server.url + path, body, {"Authorization": f"Bearer {token}", **headers})


def add(server, **entry):
    answer = admin(server, "POST", "/v1/agents", {"tenant": "t", **entry})
    assert answer.status == 200, answer.text
    return answer.json


def ids(who):
    return [a["agent_id"] for a in who.get("/v1/agents").json]


def test_an_added_agent_works_at_once_and_after_a_kill(house, tmp_path):
    sender = Sender(house)
    (tmp_path / "drop").mkdir()
    assert sender.deliver("filer", augment("x", "d0")).status == 404
    made = add(house, id="filer", substrate="file", dir=str(tmp_path / "drop"), name="A drop")
    assert made["id"] == "filer" and made["tenant"] == "t" and made["secrets"] == []
    assert ids(sender) == ["yaml", "everywhere", "filer"]
    assert sender.deliver("filer", augment("x", "d1")).status == 200
    wait_for((tmp_path / "drop" / "d1.json").exists)
    assert sender.status("filer").json == {"status": "idle"}
    house.kill()
    house.start()
    assert ids(sender) == ["yaml", "everywhere", "filer"]
    assert sender.deliver("filer", augment("x", "d2")).status == 200
    wait_for((tmp_path / "drop" / "d2.json").exists)
    assert ids(Sender(house, tenant="u")) == ["everywhere"]


def test_every_substrate_can_be_added(house, tmp_path):
    sender, receiver = Sender(house), Receiver()
    os.mkfifo(tmp_path / "fifo")
    prog = program(tmp_path / "prog", "d = json.load(sys.stdin); print(d['content'].upper(), end='')")
    add(house, id="prog", substrate="exec", command=[str(prog)])
    assert sender.request("prog", augment("loud", correlation_id="c")).json["content"] == "LOUD"
    add(house, id="hook", substrate="webhook", url=receiver.url + "/in", secret="hush", authorization="Bearer b")
    assert sender.deliver("hook", augment("x", "h1")).status == 200
    assert wait_for(lambda: receiver.bodies())[0]["meta"]["dispatch_id"] == "h1"
    assert [h["Authorization"] for _, _, h, _ in receiver.got] == ["Bearer b"] and receiver.got[0][2]["X-Signature"]
    add(house, id="pipe", substrate="pipe", path=str(tmp_path / "fifo"))
    assert sender.deliver("pipe", augment("x", "p1")).json["delivery_skipped"] is True
    with open(tmp_path / "fifo") as reader:
        assert json.loads(reader.readline())["meta"]["dispatch_id"] == "p1"
    wait_for(lambda: house.instance("agent:pipe")["entries"] == 0)
    add(house, id="bot", substrate="relay", instance="bot")
    add(house, id="shelf", substrate="none")
    assert sender.deliver("bot", augment("x", "b1")).json["delivery_skipped"] is True
    assert sender.deliver("shelf", augment("x", "s1")).json["delivery_skipped"] is True


@needs_tmux
def test_the_panes_of_a_tmux_agent_must_exist(house, pane):  # noqa: F811
    socket, typed, _ = pane
    bad = admin(house, "POST", "/v1/agents", {"tenant": "t", "id": "mux", "substrate": "tmux", "target": "nowhere",
                                              "socket": str(socket)})
    assert bad.status == 400 and "no pane 'nowhere'" in bad.json["error"]
    bad = admin(house, "POST", "/v1/agents", {"tenant": "t", "id": "mux", "substrate": "tmux", "target": "work",
                                              "socket": str(socket), "sessions": ["a=work", "b=elsewhere"]})
    assert bad.status == 400 and "no pane 'elsewhere'" in bad.json["error"]
    add(house, id="mux", substrate="tmux", target="work", socket=str(socket), sessions=["a=work"])
    assert Sender(house).deliver("mux@a", augment("typed text", "m1")).status == 200
    wait_for(lambda: "typed text" in typed.read_text())


def test_a_change_takes_effect_at_once_and_null_removes_a_key(house, tmp_path):
    sender = Sender(house)
    for name in "ab":
        (tmp_path / name).mkdir()
    add(house, id="filer", substrate="file", dir=str(tmp_path / "a"), name="first")
    changed = admin(house, "PATCH", "/v1/agents/filer?tenant=t", {"dir": str(tmp_path / "b"), "name": None})
    assert changed.status == 200 and changed.json["dir"] == str(tmp_path / "b") and "name" not in changed.json
    assert sender.deliver("filer", augment("x", "d1")).status == 200
    wait_for((tmp_path / "b" / "d1.json").exists)
    changed = admin(house, "PATCH", "/v1/agents/filer", {"substrate": "none", "dir": None}, X_Bellhop_Tenant="t")
    assert changed.json["substrate"] == "none"
    assert sender.deliver("filer", augment("x", "d2")).json["delivery_skipped"] is True
    assert admin(house, "PATCH", "/v1/agents/filer?tenant=t", {"id": "other"}).status == 400
    assert admin(house, "PATCH", "/v1/agents/nobody?tenant=t", {"name": "x"}).status == 404
    assert admin(house, "DELETE", "/v1/agents/filer?tenant=t").json == {"ok": True}
    assert admin(house, "DELETE", "/v1/agents/filer?tenant=t").status == 404
    assert sender.deliver("filer", augment("x", "d3")).status == 404
    add(house, id="filer", substrate="file", dir=str(tmp_path / "a"))  # its mail waited
    wait_for((tmp_path / "a" / "d2.json").exists)


def test_entries_of_the_file_and_taken_names_are_refused(house):
    for method, path, body in (("POST", "/v1/agents", {"tenant": "t", "id": "yaml", "substrate": "none"}),
                               ("PATCH", "/v1/agents/yaml?tenant=t", {"name": "x"}), ("DELETE", "/v1/agents/yaml?tenant=t", None),
                               ("DELETE", "/v1/agents/everywhere?tenant=t", None)):
        answer = admin(house, method, path, body)
        assert (answer.status, answer.json["code"]) == (409, "configured"), answer.text
    add(house, id="twice", substrate="none")
    answer = admin(house, "POST", "/v1/agents", {"tenant": "t", "id": "twice", "substrate": "none"})
    assert (answer.status, answer.json["code"]) == (409, "exists")
    assert admin(house, "POST", "/v1/agents", {"tenant": "u", "id": "twice", "substrate": "none"}).status == 200


BAD = [
    ({}, "missing"), ({"substrate": "telepathy"}, "unknown substrate"), ({"substrate": "file"}, '"dir" is missing'),
    ({"substrate": "file", "dir": "/tmp", "url": "x"}, 'does not take "url"'), ({"substrate": "none", "colour": "red"}, "unknown key"),
    ({"substrate": "webhook", "url": "ftp://x"}, "start with http"), ({"substrate": "none", "node": "north"}, "node"),
    ({"substrate": "webhook", "url": "http://x", "timeout": "1ms"}, "timeout"), ({"substrate": "none", "name": "a\0b"}, "NUL"),
    ({"substrate": "none", "capabilities": ["fly"]}, "capabilities"), ({"substrate": "none", "id": "a b"}, "id"),
    ({"substrate": "none", "id": ""}, "id"), ({"substrate": "none", "name": {"a": 1}}, "single value"),
    ({"substrate": "exec", "command": "a 'b"}, "quotes"), ({"substrate": "none", "name": "x" * 20000}, "16 KiB"),
    ({"substrate": "program", "command": ["x"], "bot": "b"}, "go together"),
]


def test_a_bad_entry_is_refused_with_a_reason(house):
    for entry, why in BAD:
        answer = admin(house, "POST", "/v1/agents", {"tenant": "t", "id": "bad", **entry})
        assert answer.status in (400, 413) and why in answer.json["error"], answer.text
    assert "bad" not in ids(Sender(house))


def test_only_the_operator_may_and_secrets_are_shown_to_nobody(house, tmp_path):
    key = make_key(house, "t")
    entry = {"tenant": "t", "id": "x", "substrate": "none"}
    for token in ("", "wrong", key, TOKEN + "x"):
        assert admin(house, "POST", "/v1/agents", entry, token=token).status == 401
        assert admin(house, "PATCH", "/v1/agents/x?tenant=t", {}, token=token).status == 401
        assert admin(house, "DELETE", "/v1/agents/x?tenant=t", token=token).status == 401
        assert admin(house, "GET", "/v1/agents/x?tenant=t", token=token).status == 401
    assert call("POST", house.url + "/v1/agents", entry).status == 401
    os.environ["HIDDEN_THING"] = "from-the-environment"
    made = add(house, id="hook", substrate="webhook", url="https://example.org/${HIDDEN_THING}/${BELLHOP_MASTER_KEY}",
               secret="very-secret-text", authorization="Bearer other-secret")
    assert made["url"].endswith("/${HIDDEN_THING}/${BELLHOP_MASTER_KEY}")
    assert sorted(made["secrets"]) == ["authorization", "secret"]
    shown = [json.dumps(made), admin(house, "GET", "/v1/agents/hook?tenant=t").text,
             house.cli("agent", "show", "hook", "--tenant", "t").stdout, house.cli("agent", "list", "--json").stdout]
    assert not any(word in text for text in shown for word in ("very-secret-text", "other-secret"))
    house.stop()
    for path in house.state.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"very-secret-text" not in data and b"other-secret" not in data, path
    assert sqlite3.connect(house.state / "bellhop.db").execute("select 1").fetchone() == (1,)


def test_the_command_line_adds_shows_sets_and_removes(house, tmp_path):
    (tmp_path / "drop").mkdir()
    (tmp_path / "secret").write_text("from a file\n")
    house.cli("agent", "add", "filer", "--tenant", "t", "--substrate", "file", "--dir", str(tmp_path / "drop"), "--name", "A drop")
    house.cli("agent", "add", "--id", "prog", "--tenant", "t", "--substrate", "exec", "--timeout", "5s", "--", "/bin/echo", "-n", "a b")
    house.cli("agent", "add", "hook", "--tenant", "t", "--substrate", "webhook", "--url", "https://example.org/", "--secret",
              f"@{tmp_path}/secret", "--session", "one", "--session", "two")
    listed = {a["agent_id"]: a for a in json.loads(house.cli("agent", "list", "--json").stdout)}
    assert listed["filer"]["source"] == "added" and listed["yaml"]["source"] == "configured"
    assert "filer" in house.cli("agent", "list").stdout
    shown = json.loads(house.cli("agent", "show", "hook", "--tenant", "t", "--json").stdout)
    assert shown["entry"]["secrets"] == ["secret"] and shown["entry"]["sessions"] == ["one", "two"]
    assert Sender(house).request("prog", augment("x", correlation_id="c")).json["content"] == "a b"
    house.cli("agent", "set", "filer", "--tenant", "t", "--name", "B", "--wake-on-deliver")
    shown = json.loads(house.cli("agent", "show", "filer", "--tenant", "t", "--json").stdout)["entry"]
    assert shown["name"] == "B" and shown["wake_on_deliver"] is True
    house.cli("agent", "set", "filer", "--tenant", "t", "--unset", "name")
    assert "name" not in json.loads(house.cli("agent", "show", "filer", "--tenant", "t", "--json").stdout)["entry"]
    assert "removed" in house.cli("agent", "remove", "filer", "--tenant", "t").stderr
    refused = house.cli("agent", "remove", "yaml", "--tenant", "t", check=False)
    assert refused.returncode == 1 and "configuration file" in refused.stderr
    assert house.cli("agent", "add", "x", "--tenant", "t", check=False).returncode == 2


def test_a_gateway_is_an_agent_without_an_entry(house, dial):
    sender = Sender(house)
    gateway = house.add("--instance", "helper", tenant="t")
    house.add("--instance", "yaml", tenant="t")
    assert ids(sender) == ["yaml", "everywhere", "helper"] and ids(Sender(house, tenant="u")) == ["everywhere"]
    live = dial(house, gateway)
    assert sender.deliver("helper@desk", template("do it", "d1")).status == 200
    assert live.next("inbound")["event"]["text"] == "do it"
    assert sender.get("/v1/deliveries/d1").json["state"] == "acknowledged"
    assert Sender(house, tenant="u").deliver("helper", augment("x")).status == 404
    house.restart()
    assert sender.get("/v1/deliveries/d1").json["agent_id"] == "helper"
    assert sender.get("/v1/deliveries/d1?agent_id=helper&kind=template").json["state"] == "acknowledged"
    house.cli("gateway", "revoke", gateway.id)
    assert sender.deliver("helper", augment("x", "d2")).status == 404 and ids(sender) == ["yaml", "everywhere"]


def test_remote_only_servers_take_no_agent_that_touches_the_machine(make_bellhop, tmp_path):
    server = make_bellhop(config("id: yaml, substrate: none").replace("retry: 50ms", "added: remote, retry: 50ms"))
    for words in (("file", "--dir", str(tmp_path)), ("exec", "--", "/bin/true"), ("program", "--", "/bin/true"),
                  ("tmux", "--target", "x"), ("pipe", "--path", "/tmp/x")):
        refused = server.cli("agent", "add", "x", "--tenant", "t", "--substrate", *words, check=False)
        assert refused.returncode == 1 and "dispatch.added: remote" in refused.stderr, refused.stderr
    server.cli("agent", "add", "x", "--tenant", "t", "--substrate", "relay")


def test_what_was_added_before_is_left_out_of_a_remote_only_server(house, tmp_path):
    sender = Sender(house)
    (tmp_path / "drop").mkdir()
    add(house, id="filer", substrate="file", dir=str(tmp_path / "drop"))
    add(house, id="far", substrate="relay")
    house.config.write_text(house.config.read_text().replace("retry: 50ms", "added: remote, retry: 50ms"))
    house.restart()
    assert ids(sender) == ["yaml", "everywhere", "far"]
    assert sender.deliver("filer", augment("x", "d1")).status == 404
    assert "stored agent left out: tenant=t agent=filer why=Added agents may not use files" in house.log()
    assert admin(house, "DELETE", "/v1/agents/filer?tenant=t").status == 200


# ---- agents that bellhop runs ----

ECHO = "import sys, json\nfor line in sys.stdin:\n    m = json.loads(line)\n    print('heard ' + m.get('text', ''), flush=True)\n"


def test_a_hosted_program_answers_requests_and_is_started_again(make_bellhop, tmp_path):
    (tmp_path / "echo.py").write_text(ECHO)
    server = make_bellhop(config(f"id: echo, tenant: t, substrate: program, command: [/usr/bin/python3, {tmp_path}/echo.py]"))
    sender = Sender(server)
    wait_for(lambda: server.instance("echo")["state"] == "live", 20)
    said = sender.request("echo", template("hello", correlation_id="c1"), timeout_ms=15000).json["content"]
    assert said == "heard hello"
    child = int(subprocess.run(["pgrep", "-f", f"agent --quiet --state {server.state}/agents"], text=True,
                               capture_output=True).stdout.split()[0])
    environ = open(f"/proc/{child}/environ").read()
    secret = next(v for v in environ.split("\0") if v.startswith("GATEWAY_RELAY_SECRET=")).split("=", 1)[1]
    for path in server.state.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    os.kill(child, 9)
    wait_for(lambda: server.instance("echo")["state"] != "live", 20)
    wait_for(lambda: server.instance("echo")["state"] == "live", 30)
    assert sender.request("echo", template("again", correlation_id="c2"), timeout_ms=15000).json["content"] == "heard again"
    server.stop()
    wait_for(lambda: subprocess.run(["pgrep", "-f", f"{tmp_path}/echo.py"], capture_output=True).returncode == 1)


def test_a_hosted_program_runs_in_its_directory(make_bellhop, tmp_path):
    (tmp_path / "where.py").write_text("import os, sys\nfor line in sys.stdin:\n    print(os.getcwd(), flush=True)\n")
    (tmp_path / "work").mkdir()
    server = make_bellhop(config(f"id: there, tenant: t, substrate: program, command: [/usr/bin/python3, {tmp_path}/where.py], "
                                 f"dir: {tmp_path}/work"))
    wait_for(lambda: server.instance("there")["state"] == "live", 20)
    assert Sender(server).request("there", template("where?", correlation_id="c1"), timeout_ms=15000).json["content"] == f"{tmp_path}/work"
    said = subprocess.run([PROGRAM, "agent", "--demo", "--dir", tmp_path / "nowhere", "--", "cat"], capture_output=True, text=True)
    assert said.returncode == 1 and f"--dir: {tmp_path}/nowhere: No such file or directory" in said.stderr


def test_a_hosted_agent_is_added_changed_and_removed_without_a_restart(make_bellhop, tmp_path):
    (tmp_path / "echo.py").write_text(ECHO)
    server = make_bellhop(config("id: yaml, substrate: none"))
    sender = Sender(server)
    server.cli("agent", "add", "echo", "--tenant", "t", "--substrate", "program", "--platform", "web", "--bot", "lobby", "--open",
               "--", "/usr/bin/python3", str(tmp_path / "echo.py"))
    wait_for(lambda: server.instance("echo")["state"] == "live", 20)
    assert sender.request("echo", template("one", correlation_id="c1"), timeout_ms=15000).json["content"] == "heard one"
    assert server.write("over the page") == 200
    wait_for(lambda: "heard over the page" in page(server), 20)
    (tmp_path / "other.py").write_text(ECHO.replace("heard", "understood"))
    server.cli("agent", "set", "echo", "--tenant", "t", "--", "/usr/bin/python3", str(tmp_path / "other.py"))
    assert wait_for(lambda: sender.request("echo", template("two", correlation_id="c2"),
                                           timeout_ms=15000).json["content"] == "understood two", 30)
    server.kill()
    server.start()
    wait_for(lambda: server.instance("echo")["state"] == "live", 30)
    server.cli("agent", "remove", "echo", "--tenant", "t")
    wait_for(lambda: subprocess.run(["pgrep", "-f", f"{tmp_path}/other.py"], capture_output=True).returncode == 1, 30)
    assert sender.deliver("echo", augment("x")).status == 404


def test_a_hosted_agent_has_a_gateway_of_its_own_and_says_why_it_cannot_run(make_bellhop):
    agents = config("id: one, tenant: t, substrate: program, command: [/bin/true], platform: web, bot: lobby",
                    "id: two, tenant: u, substrate: program, command: [/bin/true], platform: web, bot: lobby")
    server = make_bellhop(agents.replace("bot: lobby}}", "bot: lobby, tenant: t}}", 1))
    wait_for(lambda: server.instance("one")["state"] == "live", 20)
    state = lambda: {a["agent_id"]: a["state"] for a in json.loads(server.cli("agent", "list", "--json").stdout)}
    assert wait_for(lambda: "gateway cannot be added" in state()["two"]) and state()["one"] == "live"
    gateways = json.loads(server.cli("gateway", "list", "--json").stdout)
    assert [g["id"].split(":")[:3] for g in gateways] == [["hosted", "t", "one"]]


@pytest.mark.skipif(not EXAMPLE.exists() or NODE is None, reason="the ACP example agent is not installed")
def test_a_hosted_acp_agent_answers_programs_and_people(make_bellhop):
    server = make_bellhop(config(f"id: coder, tenant: t, substrate: acp, command: [{NODE}, {EXAMPLE}], platform: web, "
                                 "bot: lobby, open: true"))
    sender = Sender(server)
    wait_for(lambda: server.instance("coder")["state"] == "live", 20)
    said = sender.request("coder", template("hello", correlation_id="c1"), timeout_ms=20000)
    assert said.status == 200 and "I'll help you with that." in said.json["content"], said.text
    assert server.write("hello") == 200
    wait_for(lambda: any("I'll help you with that." in m for m in page(server)), 20)


def test_an_agent_that_is_closed_moved_or_removed_is_not_open_any_more(make_bellhop):
    server = make_bellhop(config("id: yaml, substrate: none, tenant: t") + f"admin: {{{{token: {TOKEN}}}}}\n")

    def opened():
        return [(r["tenant"], r["key"], r["instance"]) for r in json.loads(server.cli("route", "list", "--json").stdout) if r["open"]]

    def set_to(**more):
        assert admin(server, "PATCH", "/v1/agents/desk", {"tenant": "t", **more}).status == 200

    before = opened()
    server.cli("gateway", "add", "--id", "other", "--tenant", "u", "--platform", "web", "--bot", "attic", "--open")
    others = opened()
    add(server, id="desk", substrate="program", command=["cat"], platform="web", bot="lobby", open=True)
    wait_for(lambda: ("t", "lobby", "desk") in opened())
    set_to(name="The desk")
    set_to(bot="attic")
    wait_for(lambda: sorted(opened()) == sorted([*others, ("t", "attic", "desk")]))
    set_to(open=None)
    wait_for(lambda: opened() == others)
    set_to(open=True)
    wait_for(lambda: ("t", "attic", "desk") in opened())
    server.cli("gateway", "add", "--id", "mine", "--instance", "desk", "--tenant", "t", "--platform", "web", "--bot", "attic", "--open")
    server.cli("agent", "remove", "desk", "--tenant", "t")
    time.sleep(1)
    assert ("t", "attic", "desk") in opened()  # the operator's own gateway is open there too
    assert before == [] or before[0] in opened()


def test_mail_of_an_instance_that_an_agent_left_is_told(make_bellhop, dial):
    server = make_bellhop(config("id: yaml, substrate: none, tenant: t") + f"admin: {{{{token: {TOKEN}}}}}\n")
    add(server, id="desk", substrate="program", command=["cat"], dir=f"{server.state}/nowhere", platform="web", bot="lobby", open=True)
    wait_for(lambda: any(r["instance"] == "desk" for r in json.loads(server.cli("route", "list", "--json").stdout)))
    assert server.write("does anybody read this?") == 200
    wait_for(lambda: (server.instance("desk") or {}).get("entries") == 1)
    assert admin(server, "PATCH", "/v1/agents/desk", {"tenant": "t", "instance": "counter"}).status == 200
    wait_for(lambda: "no agent is any more: tenant=t instance=desk messages=1" in server.log())
    told = wait_for(lambda: re.search(r"desk: 1 message waits, and nobody reads them.* with: bellhop (gateway add [^.]*)\. "
                                      r"Or delete them with: bellhop (mailbox purge.*)", server.cli("doctor", check=False).stdout))
    credential = Credential(server.cli(*told.group(1).split()).stdout)
    assert dial(server, credential).hear("does anybody read this?")
    server.cli("gateway", "revoke", credential.id)
    assert server.cli(*told.group(2).split()).stdout == "0 deleted\n"


def test_an_agent_that_went_while_the_server_was_down_is_gone(make_bellhop):
    agents = [f"id: {name}, tenant: t, substrate: program, command: [cat], platform: web, bot: {bot}, open: true"
              for name, bot in (("gone", "lobby"), ("stays", "attic"))]
    server = make_bellhop(config(*agents))
    for name in ("gone", "stays"):
        wait_for(lambda: (server.instance(name) or {}).get("state") == "live")
    assert server.stop() == 0
    server.config.write_text(config(agents[1]).format(state=server.state))
    server.start()
    wait_for(lambda: (server.instance("stays") or {}).get("state") == "live")
    gateways = {g["instance"]: g["revokedAt"] for g in json.loads(server.cli("gateway", "list", "--json").stdout)}
    assert gateways["gone"] and not gateways["stays"], gateways
    assert [r["instance"] for r in json.loads(server.cli("route", "list", "--json").stdout) if r["open"]] == ["stays"]
    assert server.write("is somebody there?") == 200 and "no route and no link" in server.log()


def test_removing_an_agent_leaves_those_whose_names_begin_alike(make_bellhop, dial, tmp_path):
    server = make_bellhop(config("id: yaml, substrate: none, tenant: t") + f"admin: {{{{token: {TOKEN}}}}}\n")
    names = ["desk", "desk:2", "d" * 60 + "1", "d" * 60 + "2"]
    for name in names:
        add(server, id=name, substrate="program", command=["cat"])
        wait_for(lambda: (server.instance(name) or {}).get("state") == "live")
    for name in names[::2]:
        server.cli("agent", "remove", name, "--tenant", "t")
    wait_for(lambda: server.log().count("agent removed:") == 2)
    time.sleep(1)
    assert server.log().count("reason=revoked") == 2
    assert [server.instance(name)["state"] for name in names[1::2]] == ["live", "live"]


def test_an_acp_agent_has_the_options_of_the_command_line(make_bellhop, tmp_path):
    """In the file and added: what the tool calls are is shown, questions end in time."""
    (tmp_path / "acp").mkdir()
    program = [NODE, str(ROOT / "tests/e2e/acp_agent.cjs")]
    start = f"ACP_NPM={ROOT}/build/npm ACP_FILES={tmp_path}/acp ACP_LOGIN=1 exec {' '.join(program)}"
    server = make_bellhop(config(f"id: filed, tenant: t, substrate: acp, command: [/bin/sh, -c, '{start}'], platform: web, bot: lobby, "
                                 "open: true, progress: true, permission_timeout: 1s, login: x, process_sessions: 1"))
    wait_for(lambda: server.instance("filed")["state"] == "live", 20)
    server.write("tools")
    wait_for(lambda: any("Plan 1/2: Think" in m for m in page(server)), 20)
    server.write("permit")
    wait_for(lambda: "outcome selected n" in page(server), 20)
    server.cli("agent", "add", "added", "--tenant", "t", "--substrate", "acp", "--progress", "--merge", "--shared-groups", "--login", "x",
               "--permission-timeout", "2s", "--sessions", "3", "--", "/bin/sh", "-c", start)
    entry = json.loads(server.cli("agent", "show", "added", "--tenant", "t", "--json").stdout)["entry"]
    assert entry["progress"] and entry["merge"] and entry["shared_groups"] and entry["login"] == "x" and entry["process_sessions"] == "3"
    runs = lambda words: subprocess.run(["pgrep", "-f", words], capture_output=True).returncode == 0
    wait_for(lambda: runs(f"{server.state}/agents --acp --permission-timeout 2s --sessions 3 --progress --merge --shared-groups --login x"), 20)
    assert runs(f"{server.state}/agents --platform web=lobby --acp --permission-timeout 1s --sessions 1 --progress --login x")


def test_a_changed_acp_agent_finishes_what_it_said_and_does_not_begin_again(make_bellhop, tmp_path):
    (tmp_path / "acp").mkdir()
    start = f"ACP_NPM={ROOT}/build/npm ACP_FILES={tmp_path}/acp exec {NODE} {ROOT}/tests/e2e/acp_agent.cjs"
    server = make_bellhop(config("id: yaml, substrate: none"))
    server.cli("agent", "add", "coder", "--tenant", "t", "--substrate", "acp", "--platform", "web", "--bot", "lobby", "--open",
               "--", "/bin/sh", "-c", start)
    wait_for(lambda: server.instance("coder")["state"] == "live", 20)
    server.write("hang")
    wait_for(lambda: "busy" in page(server), 20)
    server.cli("agent", "set", "coder", "--tenant", "t", "--progress")
    wait_for(lambda: "busy\n\n[The agent broke off: exit status 0]" in page(server), 20)
    server.write("hello")
    wait_for(lambda: "heard hello" in page(server), 20)
    prompts = [line for line in (tmp_path / "acp/log").read_text().splitlines() if '"session/prompt"' in line]
    assert len(prompts) == 2


# ---- sessions ----

def test_sessions_are_registered_seen_and_listed(house, dial):
    sender = Sender(house)
    house.cli("agent", "add", "desk", "--tenant", "t", "--substrate", "none", "--session", "attic")
    own = Program(house, make_key(house, "t", agent="desk"))
    before = int(time.time() * 1000)
    made = own.ask("PUT", "/v1/agents/desk/sessions/kitchen%2Fone").json
    assert made["session_id"] == "kitchen/one" and made["source"] == "registered" and made["last_seen_at"] >= before
    listed = sender.get("/v1/agents/desk/sessions").json
    assert listed == [{"session_id": "attic", "source": "configured"}, made]
    house.kill()
    house.start()
    assert sender.get("/v1/agents/desk/sessions").json == listed
    assert "kitchen/one" in house.cli("dispatch", "sessions", "desk", "--tenant", "t").stdout
    other = Program(house, make_key(house, "t", agent="yaml"))
    for who in (other, Sender(house, tenant="u")):
        assert who.ask("PUT", "/v1/agents/desk/sessions/x").status == 404
        assert who.get("/v1/agents/desk/sessions").status == 404
    receipt = sender.deliver("desk@kitchen/one", augment("x", "d1")).json
    assert receipt["session_id"] == "kitchen/one"
    gateway = house.add("--instance", "helper", tenant="t")
    live = dial(house, gateway)
    assert sender.deliver("helper@den", augment("x", "d2")).status == 200
    assert [s["session_id"] for s in sender.get("/v1/agents/helper/sessions").json] == ["den"]
    assert live.next("inbound")
    assert own.ask("DELETE", "/v1/agents/desk/sessions/kitchen%2Fone").json == {"ok": True}
    assert own.ask("DELETE", "/v1/agents/desk/sessions/kitchen%2Fone").status == 404
    assert [s["session_id"] for s in sender.get("/v1/agents/desk/sessions").json] == ["attic"]
    for i in range(205):
        assert own.ask("PUT", f"/v1/agents/desk/sessions/s{i}").status == 200
    assert len(sender.get("/v1/agents/desk/sessions").json) == 201


# ---- kill -9 ----

def test_no_answered_change_of_an_agent_is_lost(house):
    answered, last = {}, []
    for round_ in range(3):
        done = threading.Event()

        def writer():
            try:
                for i in range(10000):
                    name = f"r{round_}-{i % 20}"
                    last[:] = [name]
                    if name in answered:
                        assert admin(house, "PATCH", f"/v1/agents/{name}?tenant=t", {"name": str(i)}).status == 200
                        answered[name] = str(i)
                    else:
                        add(house, id=name, substrate="none", name=str(i))
                        answered[name] = str(i)
                    if i > 40:
                        done.set()
            except (OSError, AssertionError):
                done.set()

        thread = threading.Thread(target=writer, daemon=True)
        thread.start()
        done.wait(20)
        house.kill()
        thread.join(20)
        house.start()
        for name, text in answered.items():
            shown = admin(house, "GET", f"/v1/agents/{name}?tenant=t").json["entry"]["name"]
            assert shown == text or name in last, name
            answered[name] = shown  # the last change may be there, though nobody was told


def test_the_list_of_agents_and_the_status_tell_the_same_state(house):
    """The dashboard's Agents, `bellhop agent list`, and Now and `bellhop status` beside them."""
    sender, receiver = Sender(house), Receiver()

    def told():
        agents = {a["agent_id"]: a["state"] for a in house.admin("GET", "/admin/agents").json if a.get("tenant")}
        now = {i["instance"]: i["state"] for i in house.admin("GET", "/admin/status").json["instances"]}
        assert agents == {a: now.get(f"agent:{a}", "never") for a in agents}
        return agents.get("hook")

    assert told() is None
    add(house, id="hook", substrate="webhook", url=receiver.url + "/in")
    assert [told(), told()] == ["never", "never"]
    assert sender.deliver("hook", augment("x", "h1")).status == 200
    wait_for(lambda: told() == "live")
    house.stop()
    house.start()
    assert told() != "live"
    assert sender.deliver("hook", augment("x", "h2")).status == 200
    wait_for(lambda: told() == "live")

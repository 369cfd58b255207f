"""/mcp and bellhop mcp: with the official clients, and with requests no client would send."""
import contextlib
import json
import os
import socket
import subprocess
import threading

import pytest

from conftest import PROGRAM, wait_for
from mcp_rig import EVERY, PACKAGES, Raw, To, official
from relay import http
from v1 import Program, body, make_key

TOOLS = ["skill_list", "skill_read", "skill_write", "skill_status", "skill_versions",
         "data_read", "data_query", "data_write",
         "agent_list", "agent_deliver", "agent_wake", "agent_request", "agent_status", "agent_replies", "delivery_status",
         "agent_reply"]


@pytest.fixture(scope="module", autouse=True)
def packages():
    for name in ("sdk", "client"):
        assert (PACKAGES / "node_modules" / "@modelcontextprotocol" / name).is_dir(), \
            f"run ./dev test, or: npm install --prefix build/npm @modelcontextprotocol/{name}"


@pytest.fixture(params=["older over http", "newer over stdio"])
def to(request):
    return To(request.param)


@pytest.fixture(params=EVERY)
def every(request):
    return To(request.param)


# ---- the official client ----


def test_the_official_client_gets_on_with_it(bellhop, every):
    key = make_key(bellhop, identity="ann")
    seen = official(every(bellhop, key), ["tools/list"], ["ping"],
                    ["skill_write", {"name": "hello", "source": body()}],
                    ["skill_read", {"name": "hello"}],
                    ["skill_list", {}],
                    ["skill_status", {"name": "hello", "new_state": "Approved"}],
                    ["skill_versions", {"name": "hello"}])
    assert seen["server"]["name"] == "bellhop" and seen["instructions"]
    tools, ping, written, read, listed, moved, versions = seen["steps"]
    if every.era == "newer":
        assert seen["version"] == "2026-07-28" and "session" not in seen and "error" in ping
    else:
        assert ping == {"pong": {}}
        assert every.transport == "stdio" or (seen["session"] and seen["version"] == "2025-11-25")
    assert [t["name"] for t in tools["tools"]] == TOOLS
    for tool in tools["tools"]:
        assert tool["description"] and tool["inputSchema"]["type"] == "object"
    assert written["result"]["status"] == "Draft" and len(written["result"]["version"]) == 12
    assert set(written["result"]) >= {"name", "version", "content_hash", "status", "changed_at"}
    assert read["result"]["source"] == body() and read["result"]["status"] == "Draft"
    assert read["result"]["metadata"]["author"] == "ann"
    assert [s["name"] for s in listed["result"]["skills"]] == ["hello"] and listed["result"]["catalog_version"]
    assert moved["result"]["previous_status"] == "Draft"
    assert [v["status"] for v in versions["result"]["versions"]] == ["Draft", "Approved"]


def test_an_unchanged_catalog_is_told_as_such(bellhop, to):
    key = make_key(bellhop)
    me = Program(bellhop, key)
    me.write("hello")
    token = me.get("/v1/skills:version").json["version"]
    same, other, filtered, nested, unknown = official(
        to(bellhop, key), ["skill_list", {"if_none_match": token}], ["skill_list", {"if_none_match": "x"}],
        ["skill_list", {"status": "Approved"}], ["skill_list", {"filter": {"name_pattern": "^h", "status": ["Draft"]}}],
        ["skill_list", {"filter": {"audience": "all"}}])["steps"]
    assert same["result"] == {"not_modified": True, "catalog_version": token}
    assert [s["name"] for s in other["result"]["skills"]] == ["hello"] and other["result"]["catalog_version"] == token
    assert filtered["result"]["skills"] == [] and len(nested["result"]["skills"]) == 1
    assert "audience" in unknown["failed"]["error"] and unknown["failed"]["class"] == "QueryError"


def test_failures_have_the_contracts_class(bellhop, to):
    key = make_key(bellhop, identity="ann")
    other = Program(bellhop, identity="bob")
    other.write("bobs")
    steps = official(to(bellhop, key), ["skill_read", {"name": "nope"}], ["skill_write", {"name": "bobs", "source": "x"}],
                     ["skill_write", {"name": "bobs", "source": "x", "overwrite": True}],
                     ["skill_status", {"name": "bobs", "new_state": "Great"}], ["skill_read", {}],
                     ["skill_write", {"name": "x"}], ["skill_delete", {"name": "bobs"}],
                     ["skill_write", {"name": "mine", "source": body("mine"), "author": "bob", "identity": "bob"}],
                     ["skill_read", {"name": "mine"}])["steps"]
    missing, taken, locked, bad, empty, sourceless, none, mine, read = steps
    assert missing["failed"]["class"] == "SkillNotFoundError"
    assert missing["failed"]["skill_name"] == "nope" and "Skill not found: 'nope'" in missing["failed"]["error"]
    assert taken["failed"]["class"] == locked["failed"]["class"] == "StorageConflictError"
    assert all(s["failed"]["code"] == "invalid" for s in (bad, empty, sourceless)), (bad, empty, sourceless)
    assert none["error"]["code"] == -32602
    assert read["result"]["metadata"]["author"] == "ann" and mine["result"]["name"] == "mine"
    assert other.get("/v1/skills/bobs").json["source"] == body("bobs")


def test_entries_are_written_searched_and_read(bellhop, to):
    key = make_key(bellhop, identity="ann")
    seen = official(to(bellhop, key), ["data_write", {"content": "apple pie\nwith cream", "tags": ["food"]}],
                    ["data_query", {"query": "cream", "domain_tags": "food"}], ["data_query", {"query": " "}],
                    ["data_query", {"query": "x", "color": "v"}], ["data_query", {"query": "x", "mode": "semantic"}],
                    ["data_write", {}], ["data_read", {"id": "nothing"}])["steps"]
    written, found, newest, filtered, mode, empty, missing = seen
    assert set(written["result"]) == {"id", "created_at"}
    assert [i["id"] for i in found["result"]["items"]] == [written["result"]["id"]] and newest["result"]["items"]
    assert filtered["failed"]["class"] == "UnsupportedFilterError"
    assert mode["failed"]["class"] == "QueryError" and "failed" in empty
    assert missing["result"] is None
    entry = official(to(bellhop, key), ["data_read", {"id": written["result"]["id"]}])["steps"][0]["result"]
    assert entry["detail"] == "apple pie\nwith cream" and entry["agent_id"] == "ann"


def test_many_calls_at_once_each_get_their_own_answer(bellhop, to):
    key = make_key(bellhop)
    names = [f"s{i}" for i in range(30)]
    writes = [["skill_write", {"name": n, "source": body(n)}] for n in names]
    reads = [["skill_read", {"name": n}] for n in names]
    wrote, read = official(to(bellhop, key), writes, reads)["steps"]
    assert [w["result"]["name"] for w in wrote] == names
    assert [r["result"]["source"] for r in read] == [body(n) for n in names]


def test_a_session_goes_on_after_a_restart(bellhop):
    key = make_key(bellhop)
    raw = Raw(bellhop, key)
    session = raw.say("initialize", {"protocolVersion": "2025-03-26"}).headers["Mcp-Session-Id"]
    bellhop.restart()
    raw = Raw(bellhop, key, Mcp_Session_Id=session)
    assert raw.say("tools/list").status == 200


# ---- the wire ----


@pytest.fixture
def raw(bellhop):
    return Raw(bellhop, make_key(bellhop))


def test_an_event_stream_whenever_it_is_accepted(raw):
    for accept in ("application/json, text/event-stream", "text/event-stream"):
        answer = raw.say("ping", Accept=accept)
        assert answer.headers["Content-Type"] == "text/event-stream"
        lines = answer.text.split("\n")
        assert lines[0] == "event: message" and json.loads(lines[1].removeprefix("data: ")) == {
            "jsonrpc": "2.0", "id": 1, "result": {}} and lines[2:] == ["", ""]
    for accept in ("application/json", "*/*"):
        answer = raw.say("ping", Accept=accept)
        assert answer.headers["Content-Type"].startswith("application/json") and answer.json["result"] == {}
    assert raw.say("ping", Accept="text/html").status == 406


def test_before_2025_11_25_a_failure_is_an_error(raw):
    def failure(version, tool, **arguments):
        headers = {"MCP_Protocol_Version": version} if version else {}
        return raw.say("tools/call", {"name": tool, "arguments": arguments}, Accept="application/json", **headers).json
    for version in (None, "2024-11-05", "2025-03-26", "2025-06-18"):
        assert [failure(version, *call)["error"]["code"] for call in
                (("skill_read",), ("skill_delete",))] == [-32602, -32601]
        missing = failure(version, "skill_read", name="nope")["error"]
        assert missing["code"] == -32603 and missing["data"]["class"] == "SkillNotFoundError"
    wrong = failure("2025-11-25", "skill_read")["result"]
    assert wrong["isError"] is True and json.loads(wrong["content"][0]["text"])["code"] == "invalid"


def test_versions_are_agreed_on(raw):
    for asked, got in (("2024-11-05",) * 2, ("2025-03-26",) * 2, ("2025-06-18",) * 2, ("2025-11-25",) * 2,
                       ("2026-07-28", "2025-11-25"), ("2031-01-01", "2025-11-25")):
        answer = raw.say("initialize", {"protocolVersion": asked}, Accept="application/json")
        assert answer.json["result"]["protocolVersion"] == got and answer.headers["Mcp-Session-Id"]
    assert raw.say("ping", MCP_Protocol_Version="2025-06-18").status == 200
    refused = raw.say("ping", MCP_Protocol_Version="1.0")
    assert refused.status == 400 and refused.json["error"]["code"] == -32022
    assert refused.json["error"]["data"]["supported"][0] == "2026-07-28"


def test_notifications_get_202_and_nonsense_400(raw):
    answer = raw.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (answer.status, answer.text) == (202, "")
    assert raw.post({"jsonrpc": "2.0", "id": 1, "result": {}}).status == 202
    bad = raw.post({"jsonrpc": "2.0", "id": 5})
    assert bad.status == 400 and bad.json["error"]["code"] == -32600
    assert http("POST", raw.url, None, raw.headers).status == 400
    batch = raw.post([{"jsonrpc": "2.0", "id": i, "method": "ping"} for i in (1, 2)], Accept="application/json")
    assert sorted(r["id"] for r in batch.json) == [1, 2]


def test_who_may_not(bellhop, raw):
    other = Raw(bellhop, make_key(bellhop, "zorg"))
    session = raw.say("initialize").headers["Mcp-Session-Id"]
    assert raw.say("ping", Mcp_Session_Id=session).status == 200
    assert other.say("ping", Mcp_Session_Id=session).status == 404
    assert raw.say("ping", Mcp_Session_Id=session[:-1] + "!").status == 404
    assert Raw(bellhop, "nonsense").say("ping").status == 401
    stranger = http("POST", raw.url, {"jsonrpc": "2.0", "id": 1, "method": "initialize"})
    assert stranger.status == 401 and stranger.headers["WWW-Authenticate"] == "Bearer"
    for origin, status in (("https://evil.example", 403), ("null", 403), ("http://127.0.0.1.evil.example", 403),
                           ("http://localhost:6274", 200), ("http://127.0.0.1:1", 200), ("http://[::1]:5", 200)):
        assert raw.say("ping", Origin=origin).status == status, origin
    got = http("GET", raw.url, None, raw.headers)
    assert got.status == 405 and got.headers["Allow"] == "POST, DELETE"  # a plain key has nothing to hear
    assert http("PUT", raw.url, None, raw.headers).headers["Allow"] == "POST, GET, DELETE"
    assert http("DELETE", raw.url, None, {**raw.headers, "Mcp-Session-Id": session}).status == 204
    assert raw.say("ping", Mcp_Session_Id=session).status == 404


def test_the_tenant_is_the_keys(bellhop, raw):
    Program(bellhop, tenant="zorg").write("secret")
    answer = raw.say("tools/call", {"name": "skill_read", "arguments": {"name": "secret", "tenant": "zorg"}},
                     Accept="application/json", X_Bellhop_Tenant="zorg")
    assert answer.json["error"]["data"]["class"] == "SkillNotFoundError"


# ---- standard input and output ----


def bridge(server, key, lines, *more):
    return subprocess.run([PROGRAM, "mcp", "-c", server.config, *more], env={**os.environ, "BELLHOP_KEY": key},
                          input=lines, text=True, capture_output=True, timeout=60)


def test_each_line_is_a_message_and_nothing_else_is_said(bellhop):
    key = make_key(bellhop)
    done = bridge(bellhop, key, '{"jsonrpc":"2.0","id":"a","method":"ping"}\n\nnonsense\n'
                                '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
                                '{"jsonrpc":"2.0","id":2,"method":"ping"}')
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(replies) == 3
    assert {r["id"] for r in replies} == {"a", 2, None}
    assert next(r for r in replies if r["id"] is None)["error"]["code"] == -32700


def test_a_server_that_is_gone_or_refuses_is_told_to_whoever_asked(bellhop):
    ping = '{"jsonrpc":"2.0","id":7,"method":"ping"}\n{"jsonrpc":"2.0","method":"notifications/x"}\n'
    refused = bridge(bellhop, "bhk_nonsense", ping)
    assert "Send a key" in json.loads(refused.stdout)["error"]["message"] and json.loads(refused.stdout)["id"] == 7
    key = make_key(bellhop)
    bellhop.stop()
    gone = bridge(bellhop, key, ping)
    assert json.loads(gone.stdout)["id"] == 7 and gone.stdout.count("\n") == 1
    assert "admin.sock" in gone.stdout and "--url" in gone.stdout
    assert subprocess.run([PROGRAM, "mcp"], env={k: v for k, v in os.environ.items() if k != "BELLHOP_KEY"},
                          capture_output=True).returncode == 2


def test_a_tool_call_that_may_have_run_is_not_repeated():
    """A server takes a request on a connection that it kept, and dies."""
    got = []

    def serve(listener):
        with listener.accept()[0] as one:
            got.append(take(one))
            body = b'{"jsonrpc":"2.0","id":1,"result":{}}'
            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            got.append(take(one))
        with contextlib.suppress(OSError), listener.accept()[0] as one:  # until the listener is closed
            got.extend(filter(None, [take(one)]))  # nothing: the program was killed

    def take(sock):
        with sock.makefile("rb") as f:
            length = 0
            while line := f.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            return f.read(length)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "chat_send", "arguments": {}}}
        with subprocess.Popen([PROGRAM, "mcp", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}"], text=True,
                              env={**os.environ, "BELLHOP_KEY": "k"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
            p.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            p.stdin.flush()
            assert json.loads(p.stdout.readline())["id"] == 1
            p.stdin.write(json.dumps(call) + "\n")
            p.stdin.flush()
            wait_for(lambda: len(got) >= 2)
            answer = json.loads(p.stdout.readline()) if len(got) == 2 else None
            p.stdin.close()
            p.kill()
    assert len(got) == 2 and answer["id"] == 2 and "error" in answer


# ---- chats ----


class Chats:
    """An MCP client as the agent of an instance."""

    def __init__(self, server, key):
        self.server, self.raw = server, Raw(server, key)

    def call(self, tool, **arguments):
        return self.raw.say("tools/call", {"name": tool, "arguments": arguments}, Accept="application/json").json

    def ask(self, tool, **arguments):
        answer = self.call(tool, **arguments)
        assert "result" in answer, answer
        return json.loads(answer["result"]["content"][0]["text"])

    def texts(self, **arguments):
        return [m["text"] for m in self.ask("chat_read", **arguments)["messages"]]


@pytest.fixture
def chats(bellhop):
    bellhop.credential = bellhop.add("--id", "desk", tenant="acme")
    return Chats(bellhop, make_key(bellhop, instance="desk"))


def page(server, visitor="e2e-visitor-000000"):
    """What the person sees."""
    answer = server.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": visitor})
    return [m["text"] for m in answer.json["messages"]]


def test_only_a_key_for_an_instance_has_chat_tools(bellhop, chats):
    plain = Chats(bellhop, make_key(bellhop))
    names = [t["name"] for t in plain.raw.say("tools/list", Accept="application/json").json["result"]["tools"]]
    assert names == TOOLS
    names = [t["name"] for t in chats.raw.say("tools/list", Accept="application/json").json["result"]["tools"]]
    assert names == TOOLS + ["chat_list", "chat_read", "chat_send"]
    refused = plain.call("chat_read")["error"]
    assert refused["code"] == -32601 and "--instance" in refused["message"]


def test_messages_wait_until_the_cursor_comes_back(bellhop, chats):
    assert chats.ask("chat_read") == {"messages": [], "next": None, "more": 0}
    for i in range(5):
        assert bellhop.write(f"message {i}") == 200
    first = chats.ask("chat_read", limit=2)
    assert [m["text"] for m in first["messages"]] == ["message 0", "message 1"] and first["more"] == 3
    assert first["messages"][0].items() >= {"platform": "web", "chat_type": "dm", "kind": "message"}.items()
    assert first["next"] == first["messages"][1]["cursor"]
    assert chats.texts(limit=2) == ["message 0", "message 1"]  # nobody said they were taken care of
    bellhop.restart()
    chats = Chats(bellhop, chats.raw.headers["Authorization"].split()[1])
    rest = chats.ask("chat_read", after=first["next"])
    assert [m["text"] for m in rest["messages"]] == ["message 2", "message 3", "message 4"] and rest["more"] == 0
    assert chats.texts(after=first["next"]) == ["message 2", "message 3", "message 4"]  # an old cursor takes nothing more
    last = chats.ask("chat_read", after=rest["next"])
    assert last["messages"] == [] and last["next"] == rest["next"]
    bellhop.restart()
    chats = Chats(bellhop, chats.raw.headers["Authorization"].split()[1])
    assert chats.texts() == [] and bellhop.metric("mailbox_entries") == 0
    for bad in ({"after": "x"}, {"after": 5}, {"limit": 0}, {"limit": 9999}):
        assert chats.call("chat_read", **bad)["error"]["code"] == -32602


def test_an_answer_reaches_the_person_and_nobody_else(bellhop, chats):
    assert bellhop.write("hello?") == 200
    chat = chats.ask("chat_read")["messages"][0]
    sent = chats.ask("chat_send", chat_id=chat["chat_id"], content="hello!", reply_to=chat["message_id"])
    assert sent["success"] is True and sent["message_id"]
    assert wait_for(lambda: "hello!" in page(bellhop))
    listed = chats.ask("chat_list")
    assert listed["waiting"] == 1 and [(c["chat_id"], c["waiting"]) for c in listed["chats"]] == [(chat["chat_id"], 1)]
    chats.ask("chat_read", after=chat["cursor"])
    again = chats.ask("chat_list")["chats"]
    assert [(c["chat_id"], c["platform"], c["waiting"]) for c in again] == [(chat["chat_id"], "web", 0)]
    # The guard is a gateway's: a chat it was never written to from is not its chat.
    assert "not sent" in chats.call("chat_send", chat_id="somebody-else", content="x")["error"]["message"]
    bellhop.add("--id", "other", tenant="zorg", bot="attic")
    other = Chats(bellhop, make_key(bellhop, "zorg", instance="other"))
    assert "error" in other.call("chat_send", chat_id=chat["chat_id"], content="x", platform="web")
    assert other.ask("chat_list")["chats"] == [] and other.texts() == []
    assert "x" not in page(bellhop)
    nobody = Chats(bellhop, make_key(bellhop, instance="nobody"))
    assert "gateway add" in nobody.call("chat_send", chat_id="x", content="x")["error"]["message"]
    assert nobody.ask("chat_list") == {"chats": [], "waiting": 0}


def test_reading_is_refused_while_a_gateway_is_connected(bellhop, chats, dial):
    gateway = dial(bellhop, bellhop.credential)
    for tool in ("chat_read", "chat_list"):
        assert "connected" in chats.call(tool)["error"]["message"]
    assert bellhop.write("to the gateway") == 200
    event = gateway.next("inbound")
    chat = event["event"]["source"]["chat_id"]
    assert chats.ask("chat_send", chat_id=chat, content="from beside")["success"] is True
    gateway.close()
    assert wait_for(lambda: "result" in chats.call("chat_read"))
    assert chats.texts() == []


def test_the_official_client_reads_and_answers(bellhop, chats, every):
    bellhop.write("are you there?")
    chat = chats.ask("chat_read")["messages"][0]
    key = chats.raw.headers["Authorization"].split()[1]
    read, sent = official(every(bellhop, key), ["chat_read", {}],
                          ["chat_send", {"chat_id": chat["chat_id"], "content": "yes"}])["steps"]
    assert read["result"]["messages"][0]["text"] == "are you there?" and sent["result"]["success"]

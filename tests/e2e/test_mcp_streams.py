"""Chats as MCP resources: changes are told on streams, to those who may know, within bounds."""
import json
import re
import socket
import subprocess
from signal import SIGTERM

import pytest

from conftest import ROOT, wait_for
from mcp_rig import EVERY, META, PACKAGES, Client, Stream, To
from v1 import make_key

INBOX, CHATS = "bellhop://inbox", "bellhop://chats"


def listeners(server):
    return int(re.search(r'bellhop_limit_held\{limit="listeners"\} (\d+)', server.get("/metrics").text)[1])


@pytest.fixture
def desk(bellhop):
    bellhop.credential = bellhop.add("--id", "desk", tenant="acme")
    return Client(bellhop, make_key(bellhop, instance="desk"))


def key_of(client):
    return client.headers["Authorization"].split()[1]


# ---- the official clients ----


@pytest.fixture
def begin(bellhop):
    """begin(to, key, steps...) -> an official client that does them; none outlives the test."""
    clients = []

    def start(to, key, *steps):
        clients.append(subprocess.Popen(["node", ROOT / "tests" / "e2e" / "mcp_client.cjs", PACKAGES, json.dumps(to(bellhop, key)),
                                         json.dumps(steps)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return clients[-1]

    yield start
    for client in clients:
        client.kill()
        client.communicate()


def finish(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    return json.loads(out.splitlines()[-1])["steps"]


def writes(server, text, visitor="e2e-visitor-000000"):
    return ["fetch", {"url": f"{server.url}/chat/lobby/api/message", "method": "POST", "body": json.dumps({"text": text}),
                      "headers": {"Content-Type": "application/json", "X-Bellhop-Visitor": visitor}}]


@pytest.mark.parametrize("name", EVERY)
def test_a_client_need_not_poll(bellhop, desk, begin, name):
    seen = finish(begin(To(name), key_of(desk), ["resources/list"], ["resources/templates/list"],
                        ["subscribe", {"uris": [INBOX, CHATS]}], writes(bellhop, "hello"),
                        ["wait", {"uri": INBOX}], ["wait", {"uri": CHATS}], ["wait", {}],
                        ["resources/read", {"uri": INBOX}], ["resources/read", {"uri": CHATS}], ["resources/list"],
                        ["chat_read", {"after": "18446744073709551615"}], ["wait", {"uri": INBOX}],
                        ["resources/read", {"uri": INBOX}], ["resources/read", {"uri": CHATS + "/web/nobody"}],
                        ["unsubscribe", {"uris": [INBOX, CHATS]}]))
    listed, templates, subscribed, _, inbox, chats, new, messages, all_chats, later, taken, gone, none, missing, over = seen
    assert [r["uri"] for r in listed["resources"]] == [INBOX, CHATS]
    assert templates["templates"][0]["uriTemplate"] == CHATS + "/{platform}/{chat_id}"
    assert "error" not in subscribed and "notified" in inbox and "notified" in chats
    assert new["notified"]["method"] == "notifications/resources/list_changed"
    assert [m["text"] for m in messages["result"]["messages"]] == ["hello"]
    chat = all_chats["result"]["chats"][0]
    assert [r["uri"] for r in later["resources"]] == [INBOX, CHATS, f"{CHATS}/web/{chat['chat_id']}"]
    assert taken["result"]["messages"] == none["result"]["messages"] == [] and "notified" in gone
    assert missing["error"]["code"] == (-32602 if name.startswith("newer") else -32002)
    assert "error" not in over and over.get("closed", "local") == "local"
    assert wait_for(lambda: listeners(bellhop) == 0)


def test_when_the_server_goes_down_a_listener_is_told(bellhop, desk, begin):
    clients = [begin(To(name), key_of(desk), ["subscribe", {"uris": [INBOX]}], ["closed"]) for name in EVERY[2:]]
    assert wait_for(lambda: listeners(bellhop) == 2)
    bellhop.signal(SIGTERM)
    assert [finish(c)[1] for c in clients] == [{"closed": "graceful"}] * 2
    assert bellhop.wait() == 0
    bellhop.process = None


def test_the_bridge_subscribes_again_when_the_server_is_back(bellhop, desk, begin):
    client = begin(To("older over stdio"), key_of(desk), ["subscribe", {"uris": [INBOX]}], ["say", "ready"],
                   ["until", {"uri": INBOX, "text": "are you back?"}])
    assert client.stdout.readline() == "ready\n"
    bellhop.restart()
    assert bellhop.write("are you back?") == 200
    assert finish(client)[2] == {"found": True}


# ---- the wire ----


def test_a_stream_begins_with_what_it_will_tell(bellhop, desk):
    bellhop.write("hello")
    chat = f"{CHATS}/web/{desk.call('chat_list')['chats'][0]['chat_id']}"
    stream = desk.listen(INBOX, chat, CHATS + "/web/nobody", "https://example.org/", id="s", toolsListChanged=True)
    assert stream.status == 200 and stream.type == "text/event-stream"
    first = stream.next()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"] == {"_meta": {"io.modelcontextprotocol/subscriptionId": "s"},
                               "notifications": {"resourceSubscriptions": [INBOX, chat]}}
    bellhop.write("hello again")
    assert {stream.updated(), stream.updated()} == {INBOX, chat}
    assert [m["text"] for m in desk.read(chat)["messages"]] == ["hello", "hello again"] and desk.read(chat)["waiting"] == 2
    bellhop.write("somebody else", visitor="e2e-visitor-000001")
    assert stream.updated() == INBOX
    desk.call("chat_read", after="18446744073709551615")
    assert {stream.updated(), stream.updated()} == {INBOX, chat}
    assert desk.read(chat) == {"platform": "web", "chat_id": chat.rsplit("/", 1)[1], "messages": [], "waiting": 0}
    stream.close()
    assert wait_for(lambda: listeners(bellhop) == 0)


def test_what_others_have_is_what_does_not_exist(bellhop, desk):
    bellhop.write("secret")
    chat = f"{CHATS}/web/{desk.call('chat_list')['chats'][0]['chat_id']}"
    bellhop.add("--id", "zorgs", "--instance", "desk", tenant="zorg", bot="attic")
    for other in (Client(bellhop, make_key(bellhop, "zorg", instance="desk")), Client(bellhop, make_key(bellhop)),
                  Client(bellhop, make_key(bellhop, instance="nobody"))):
        missing, never = (other.ask("resources/read", uri=uri).json["error"] for uri in (chat, CHATS + "/web/never"))
        assert missing == {**never, "data": {"uri": chat}} and missing["code"] == -32602
        assert chat not in json.dumps(other.result("resources/list"))
        stream = other.listen(chat, INBOX)
        assert chat not in json.dumps(stream.next())
        bellhop.write("another secret")
        bellhop.cli("token", "revoke", key_of(other).split("_")[1])
        assert stream.next()["result"]["resultType"] == "complete" and stream.next() is None  # and nothing before
    for strange in ("bellhop://chats/web", "bellhop://chats//x", "bellhop://chats/web/", "bellhop://inbox/", "x", chat + "/x",
                    chat.replace("web", "%77eb"), "bellhop://chats/web/%zz", "bellhop://chats/web/%00"):
        assert desk.ask("resources/read", uri=strange).json["error"]["code"] == -32602, strange


def test_many_chats_come_in_pages(bellhop, desk):
    for i in range(120):
        assert bellhop.write("hi", visitor=f"e2e-visitor-{i:06}") == 200
    seen, cursor = [], {}
    while True:
        page = desk.result("resources/list", **cursor)
        seen += [r["uri"] for r in page["resources"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen[:2] == [INBOX, CHATS] and len(seen) == len(set(seen)) == 122
    for bad in ("x", "", "AAAA", "=" * 9000):
        assert desk.ask("resources/list", cursor=bad).json["error"]["code"] == -32602


def test_a_revoked_key_hears_nothing_more(bellhop, desk):
    stream = desk.listen(INBOX)
    session = desk.say("initialize").headers["Mcp-Session-Id"]
    older = Stream(desk, session=session)
    assert stream.next() and older.status == 200 and listeners(bellhop) == 2
    bellhop.cli("token", "revoke", key_of(desk).split("_")[1])
    assert stream.next()["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
    assert stream.next() is None and older.next() is None and listeners(bellhop) == 0
    assert desk.ask("tools/list").status == 401


def test_a_tenant_that_is_erased_hears_nothing_more(bellhop, desk):
    stream = desk.listen(INBOX)
    assert stream.next()
    bellhop.cli("erase", "--tenant", "acme", "--yes")
    assert listeners(bellhop) == 0 and stream.next() and stream.next() is None
    assert desk.ask("tools/list").status == 401


def test_while_a_gateway_is_connected_it_alone_is_told(bellhop, desk, dial):
    stream = desk.listen(INBOX)
    stream.next()
    gateway = dial(bellhop, bellhop.credential, ack=False)
    assert bellhop.write("to the gateway") == 200
    gateway.next("inbound")
    assert "connected" in desk.ask("resources/read", uri=INBOX).json["error"]["message"]
    gateway.close()
    assert stream.updated() == INBOX  # it went without an ack
    assert wait_for(lambda: "result" in desk.ask("resources/read", uri=INBOX).json)
    assert [m["text"] for m in desk.read(INBOX)["messages"]] == ["to the gateway"]


def test_the_stream_of_a_session(bellhop, desk):
    older = {"Accept": "application/json", "MCP_Protocol_Version": "2025-11-25"}
    session = desk.say("initialize").headers["Mcp-Session-Id"]
    assert Stream(desk, session="x" * 44).status == 404
    assert desk.send("GET") == 400 and desk.send("GET", Mcp_Session_Id=session, Accept="application/json") == 406
    assert desk.send("GET", MCP_Protocol_Version="2026-07-28") == 405
    assert desk.say("resources/subscribe", {"uri": INBOX}, **older).json["error"]["code"] == -32600
    older["Mcp_Session_Id"] = session
    assert desk.say("resources/subscribe", {"uri": "x"}, **older).json["error"]["code"] == -32002
    assert desk.say("resources/subscribe", {"uri": INBOX}, **older).json["result"] == {}
    stream = Stream(desk, session=session)
    bellhop.write("one")
    told = [stream.next() for _ in range(2)]
    assert [t["method"].rsplit("/")[-1] for t in told] == ["list_changed", "updated"]
    assert told[1]["params"] == {"uri": INBOX}
    stream.close()
    bellhop.write("two")
    again = Stream(desk, session=session)
    assert again.next()["method"] == "notifications/resources/list_changed"
    assert again.updated() == INBOX  # what happened meanwhile
    newest = Stream(desk, session=session)
    again.rest()  # one stream of a session at a time
    assert newest.next()["method"] == "notifications/resources/list_changed"
    assert newest.updated() == INBOX
    assert desk.say("resources/unsubscribe", {"uri": INBOX}, **older).json["result"] == {}
    assert desk.send("DELETE", Mcp_Session_Id=session) == 204
    newest.rest()
    assert listeners(bellhop) == 0


# ---- hostile ----


def test_a_key_has_so_many_streams_and_no_more(bellhop, desk):
    streams = [desk.listen(INBOX, id=i) for i in range(40)]
    refused = [json.loads(s.answer.read()) for s in streams if s.type != "text/event-stream"]
    assert len(refused) == 8 and all("too many" in r["error"]["message"] for r in refused)
    other = Client(bellhop, make_key(bellhop, instance="desk")).listen(INBOX)
    assert other.next()["params"]["notifications"]
    for s in streams:
        s.close()
    assert wait_for(lambda: listeners(bellhop) == 1)
    many = desk.listen(*(f"{INBOX}#{i}" for i in range(20000)), INBOX)
    assert many.next()["params"]["notifications"]["resourceSubscriptions"] == [INBOX]


def test_thousands_of_sessions_with_subscriptions_are_bounded(bellhop, desk):
    for _ in range(200):
        session = desk.say("initialize").headers["Mcp-Session-Id"]
        assert desk.say("resources/subscribe", {"uri": INBOX}, Mcp_Session_Id=session, Accept="application/json",
                        MCP_Protocol_Version="2025-06-18").json["result"] == {}
    assert listeners(bellhop) == 32


def test_a_stream_that_nobody_reads_is_closed(bellhop, desk):
    for i in range(60):
        bellhop.write("hi", visitor=f"e2e-visitor-{i:06}")
    uris = [r["uri"] for r in desk.result("resources/list")["resources"]]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
                       "params": {"_meta": META, "notifications": {"resourceSubscriptions": uris}}})
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = desk.url.split("/")[2].split(":")
    deaf.connect((host, int(port)))
    head = {**desk.headers, "Host": "localhost", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
            "Content-Length": len(body)}
    deaf.sendall(("POST /mcp HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n" + body).encode())
    assert wait_for(lambda: listeners(bellhop) == 1)

    def change():
        bellhop.write("more")
        desk.call("chat_read", after="18446744073709551615")  # every resource changes
        return listeners(bellhop) == 0
    assert wait_for(change, timeout=60, every=0.05)
    deaf.close()

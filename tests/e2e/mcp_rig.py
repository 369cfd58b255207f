"""MCP clients: the official ones, and one that does exactly what a test says."""
import http.client
import json

from conftest import PROGRAM, ROOT
from relay import http as plain_http
from v1 import node_json

PACKAGES = ROOT / "build" / "npm"
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def official(to, *steps):
    return node_json("mcp_client.cjs", PACKAGES, json.dumps(to), json.dumps(steps))


class To:
    """One of the official clients on one transport."""

    def __init__(self, name):
        self.era, self.transport = name.split(" over ")

    def __call__(self, server, key):
        if self.transport == "http":
            return {"era": self.era, "url": server.url + "/mcp", "key": key}
        return {"era": self.era, "command": str(PROGRAM), "args": ["mcp", "-c", str(server.config)],
                "env": {"BELLHOP_KEY": key}}


EVERY = ["older over http", "older over stdio", "newer over http", "newer over stdio"]


class Raw:
    def __init__(self, server, key, **headers):
        self.url = server.url + "/mcp"
        self.headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream",
                        **{k.replace("_", "-"): v for k, v in headers.items()}}

    def post(self, message, **headers):
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        return plain_http("POST", self.url, message, {**self.headers, **headers})

    def say(self, method, params=None, id=1, **headers):
        return self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}, **headers)


class Client(Raw):
    """Requests of version 2026-07-28."""

    def ask(self, method, **params):
        headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method}
        if params.get("name") or params.get("uri"):
            headers["Mcp_Name"] = params.get("name") or params["uri"]
        return self.say(method, {**params, "_meta": META}, **headers)

    def result(self, method, **params):
        answer = self.ask(method, **params)
        assert answer.status == 200 and "result" in answer.json, answer.text
        return answer.json["result"]

    def read(self, uri):
        return json.loads(self.result("resources/read", uri=uri)["contents"][0]["text"])

    def call(self, tool, **arguments):
        return json.loads(self.result("tools/call", name=tool, arguments=arguments)["content"][0]["text"])

    def send(self, method, **headers):
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        return plain_http(method, self.url, None, {**self.headers, **headers}).status

    def listen(self, *uris, id=1, **more):
        return Stream(self, id, {"resourceSubscriptions": list(uris), **more})


class Stream:
    """subscriptions/listen, or the GET of a session; messages come by next()."""

    def __init__(self, client, id=1, filter=None, session=None):
        host, port = client.url.split("/")[2].split(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=30)
        headers = {**client.headers, "MCP-Protocol-Version": "2025-11-25" if session else "2026-07-28"}
        if session:
            self.connection.request("GET", "/mcp", headers={**headers, "Mcp-Session-Id": session})
        else:
            body = {"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen",
                    "params": {"_meta": META, "notifications": filter}}
            self.connection.request("POST", "/mcp", json.dumps(body), {**headers, "Mcp-Method": "subscriptions/listen"})
        self.answer = self.connection.getresponse()
        self.status, self.type = self.answer.status, self.answer.headers["Content-Type"]

    def next(self):
        """The next message; None: the stream has ended."""
        for line in self.answer:
            if line.startswith(b"data: "):
                return json.loads(line[6:])
        return None

    def updated(self):
        """The URI of the next notification."""
        note = self.next()
        assert note["method"] == "notifications/resources/updated", note
        return note["params"]["uri"]

    def rest(self):
        """The messages until the stream ends."""
        return list(iter(self.next, None))

    def close(self):
        self.connection.close()

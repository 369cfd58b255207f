"""/v1/data: the DataStore contract over HTTP, with keys."""
import json
import uuid

import pytest

from conftest import CONFIG
from v1 import Program, make_key


FILTERS = ["domain_tags", "recipients", "agent_id", "vault", "thread_status", "payload_type", "knowledge_type", "pinned"]


class Reader(Program):
    def keep(self, content, **more):
        answer = self.ask("POST", "/v1/data", {"content": content, **more})
        assert answer.status == 200, answer.text
        return answer.json

    def find(self, query="", **more):
        return self.ask("POST", "/v1/data/query", {"query": query, "limit": 10, "mode": "fts", **more})

    def ids(self, query="", **more):
        answer = self.find(query, **more)
        assert answer.status == 200, answer.text
        return [e["id"] for e in answer.json]


@pytest.fixture
def me(bellhop):
    return Reader(bellhop, identity="ann")


def test_an_entry_is_kept_found_and_read(me):
    entry = me.keep("The spare key\nis at Ann's", tags=["home"], metadata={"vault": "v", "color": "red"})
    assert uuid.UUID(entry["id"]) and entry["summary"] == "The spare key"
    assert (entry["agent_id"], entry["vault"], entry["metadata"]) == ("ann", "v", {"color": "red"})
    assert me.get(f"/v1/data/{entry['id']}").json == entry
    found = me.find("SPARE ann").json
    assert len(found) == 1 and found[0]["score"] < 0 and {**found[0], "score": 0} == {**entry, "score": 0}
    assert me.ids("spare bob") == [] and me.ids() == [entry["id"]]
    me.server.restart()
    assert me.ids("key", domain_tags=["x", "home"]) == [entry["id"]]


def test_a_miss_has_no_class_and_errors_have_theirs(me):
    me.keep("something")
    miss = me.get(f"/v1/data/{uuid.uuid4()}")
    assert (miss.status, miss.json["class"], miss.json["code"]) == (404, None, "not_found")
    assert me.get("/v1/data/nonsense").status == me.get("/v1/data/a%2Fb").status == 404
    for answer, cls in ((me.find("x", mode="semantic"), "QueryError"), (me.find('raw:"'), "QueryError"),
                        (me.find("x", domain_tags=""), "QueryError"), (me.find("x", domain_tags=[5]), "QueryError"),
                        (me.find("x", vault=""), "QueryError"), (me.find("x", pinned="true"), "QueryError"),
                        (me.find("x", color="v"), "UnsupportedFilterError"),
                        (me.find("x", color="v", permissive_filters="true"), "UnsupportedFilterError"),
                        (me.ask("POST", "/v1/data", {"content": 5}), None), (me.ask("POST", "/v1/data", {}), None),
                        (me.ask("POST", "/v1/data", ["x"]), None)):
        assert answer.status == 400 and answer.json["class"] == cls, answer.text
    refused = me.find("x", color="v").json
    assert refused["unsupportedKeys"] == ["color"] and refused["supportedKeys"] == FILTERS
    assert me.find("x", color="v", permissive_filters=True).json == []


def test_every_stored_field_is_a_filter(bellhop, me):
    runtime = Reader(bellhop, key=make_key(bellhop, "acme", "--attest", identity="runtime"))
    one = me.keep("word one", tags=["t"], recipients=["ann", "bob"], metadata={
        "vault": "main", "thread_status": "open", "pinned": True, "payload_type": "note", "knowledge_type": "fact"})["id"]
    two = runtime.keep("word two", recipients=["bob"], metadata={
        "vault": "side", "thread_status": "closed", "pinned": False, "agent_id": "carol"})["id"]
    three = me.keep("word three")["id"]
    for filters, want in (({"vault": "main"}, [one]), ({"vault": ["main", "side"]}, [two, one]), ({"agent_id": "carol"}, [two]),
                          ({"agent_id": "ann"}, [three, one]), ({"recipients": "bob"}, [two, one]), ({"recipients": ["ann", "x"]}, [one]),
                          ({"thread_status": "open"}, [one]), ({"pinned": True}, [one]), ({"pinned": False}, [three, two]),
                          ({"payload_type": "note", "knowledge_type": ["fact"]}, [one]), ({"vault": "side", "pinned": True}, []),
                          ({"recipients": "bob", "domain_tags": "t", "agent_id": "ann"}, [one]), ({"vault": "word"}, [])):
        assert me.ids(**filters) == want, filters
        assert sorted(me.ids("word", **filters)) == sorted(want), filters


def test_what_belongs_to_others_does_not_exist(bellhop, me):
    bob = Reader(bellhop, tenant="zorg", identity="ann")
    lab = Reader(bellhop, key=me.key, namespace="lab")
    entry = me.keep("the secret word", tags=["t"])
    for other in (bob, lab):
        assert other.get(f"/v1/data/{entry['id']}").status == 404
        assert other.ids("secret") == other.ids() == other.ids(domain_tags="t") == []
        assert other.find("raw:secret OR word").json == []
    assert Reader(bellhop, key=make_key(bellhop, identity="x")).ids("secret") == [entry["id"]]


def test_scores_know_nothing_of_other_tenants(bellhop):
    alone, beside = Reader(bellhop, tenant="one"), Reader(bellhop, tenant="two")
    loud = Reader(bellhop, tenant="three")
    for _ in range(30):
        loud.keep("apple apple apple")
    for reader in (alone, beside):
        for text in ("apple pie", "pear tart", "plum cake"):
            reader.keep(text)
    first = alone.find("apple").json[0]["score"]
    for _ in range(30):
        loud.keep("apple")
    assert alone.find("apple").json[0]["score"] == beside.find("apple").json[0]["score"] == first


def test_the_command_line_does_the_same(bellhop, tmp_path):
    make_key(bellhop)
    (tmp_path / "note").write_text("Buy milk\nand bread\n")
    entry = bellhop.cli("data", "write", tmp_path / "note", "--tags", "shop, food").stdout.strip()
    assert bellhop.cli("data", "get", entry).stdout == "Buy milk\nand bread\n"
    assert bellhop.cli("data", "query", "bread").stdout == f"{entry}  Buy milk\n"
    assert json.loads(bellhop.cli("data", "query", "--tags", "food", "--json").stdout)[0]["domain_tags"] == ["shop", "food"]
    assert bellhop.cli("data", "query", "wine").stdout == ""
    assert bellhop.cli("data", "get", str(uuid.uuid4()), check=False).returncode == 1
    for misuse in (["data"], ["data", "get"], ["data", "query", "a", "b"], ["data", "query", "--limit", "many"]):
        assert bellhop.cli(*misuse, check=False).returncode == 2


def test_the_manifest_is_true(me):
    manifest = me.get("/v1/data:manifest").json["manifest"]
    assert manifest["supported_modes"] == ["fts"] and manifest["supported_filters"] == FILTERS
    assert manifest["regexp_fallback_active"] is False and manifest["kind"] and manifest["score_range"]


@pytest.mark.parametrize("tenant", ["漢" * 42, "../../x", ".", "a" * 128, "A/B%2F"])
def test_any_tenants_name_has_stores(make_bellhop, tenant):
    server = make_bellhop(CONFIG + "skills: {{kind: filesystem}}\n")
    me = Reader(server, tenant=tenant, namespace="n" * 64)
    entry = me.keep("something")
    assert me.write("hello").status == 200
    server.restart()
    assert me.ids("something") == [entry["id"]] and me.names() == ["hello"]
    assert sorted(p.name for p in server.dir.iterdir()) == ["bellhop.yaml", "state"]


def test_an_answer_of_any_length_is_sent_whole(me):
    for i in range(12):
        assert me.ask("POST", "/v1/data", {"content": f"w{i} " + "x" * 900000}).status < 300
    found = me.ask("POST", "/v1/data/query", {"query": "", "limit": 100})
    assert len(found.text) > 10 << 20 and len(found.json) == 12
    assert all(len(e["detail"]) > 900000 for e in found.json)

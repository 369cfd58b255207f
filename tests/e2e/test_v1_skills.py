"""/v1/skills: the SkillStore contract over HTTP, with keys."""
import hashlib
import json
import subprocess

import pytest

from conftest import CONFIG
from relay import http
from v1 import Program, body, make_key


@pytest.fixture(params=["sqlite", "filesystem"])
def bellhop(request, make_bellhop):
    return make_bellhop(CONFIG + f"skills: {{{{kind: {request.param}}}}}\n")


@pytest.fixture
def me(bellhop):
    return Program(bellhop, tenant="acme", identity="ann")


def test_a_skill_is_written_read_listed_and_deleted(me):
    assert me.get("/v1/skills").json == []
    written = me.write("hello")
    assert written.status == 200
    hash_ = hashlib.sha256(body().encode()).hexdigest()
    assert {k: written.json[k] for k in ("name", "version", "content_hash", "status", "changed_by")} == {
        "name": "hello", "version": hash_[:12], "content_hash": hash_, "status": "Draft", "changed_by": "ann"}
    skill = me.get("/v1/skills/hello").json
    assert skill["source"] == body() and skill["content_hash"] == hash_ and skill["metadata"]["author"] == "ann"
    assert me.get("/v1/skills/hello/metadata").json == skill["metadata"]
    assert me.get("/v1/skills").json == [skill["metadata"]]
    moved = me.ask("PATCH", "/v1/skills/hello", {"status": "Approved"})
    assert (moved.status, moved.json["status"], moved.json["previous_status"]) == (200, "Approved", "Draft")
    history = me.get("/v1/skills/hello/versions").json
    assert [v["status"] for v in history] == ["Draft", "Approved"]
    assert me.get(f"/v1/skills/hello?version={hash_[:12]}").json["source"] == body()
    me.write("other", '# Skill: other\nt:\n    execute_skill(skill_name="hello")\n')
    assert me.get("/v1/skills/hello/dependents").json == ["other"]
    gone = me.ask("DELETE", "/v1/skills/hello?confirm=hello&force=true")
    assert gone.status == 204 and gone.text == ""
    assert me.get("/v1/skills/hello").status == 404 and me.names() == ["other"]


def test_errors_carry_their_class_and_its_fields(me):
    me.write("hello", author="ann")
    for answer, status, want in (
        (me.get("/v1/skills/nope"), 404, {"class": "SkillNotFoundError", "skill_name": "nope",
                                          "error": "Skill not found: 'nope'"}),
        (me.get("/v1/skills/nope/metadata"), 404, {"class": "SkillNotFoundError"}),
        (me.get("/v1/skills/nope/versions"), 404, {"class": "SkillNotFoundError"}),
        (me.ask("DELETE", "/v1/skills/nope"), 404, {"class": "SkillNotFoundError"}),
        (me.ask("PATCH", "/v1/skills/nope", {"status": "Draft"}), 404, {"class": "SkillNotFoundError"}),
        (me.get("/v1/skills/hello?version=000000000000"), 404,
         {"class": "VersionNotFoundError", "skill_name": "hello", "version": "000000000000"}),
        (me.write(".hidden"), 409, {"class": "StorageConflictError", "skill_name": ".hidden"}),
        (me.write("a%2Fb"), 409, {"class": "StorageConflictError", "skill_name": "a/b"}),
        (me.ask("PUT", "/v1/skills/hello", {"source": body()}, If_None_Match="*"), 409,
         {"class": "StorageConflictError", "skill_name": "hello"}),
        (me.ask("PATCH", "/v1/skills/hello", {"status": "Great"}), 400, {"class": None}),
        (me.ask("PATCH", "/v1/skills/hello", {}), 400, {"class": None}),
        (me.ask("PUT", "/v1/skills/x", {"source": 5}), 400, {"class": None}),
        (me.ask("PUT", "/v1/skills/x", {"source": "x", "metadata": []}), 400, {"class": None}),
        (me.ask("PUT", "/v1/skills/x", [1]), 400, {"class": None}),
        (me.get("/v1/skills?status=Great"), 400, {"class": "QueryError"}),
        (me.get("/v1/skills?limit=-1"), 400, {"class": "QueryError"}),
        (me.get("/v1/skills?statuses=Draft"), 400, {"class": "QueryError"}),
        (me.get("/v1/skills?status=Draft&if_none_match=x"), 400, {"class": "QueryError"}),
        (me.get("/v1/skills?name_pattern=%28"), 400, {"class": "QueryError"}),
        (me.get("/v1/skills?tag=%zz"), 400, {"class": "QueryError"}),
        (me.ask("POST", "/v1/skills/hello"), 405, {"class": None, "code": "method_not_allowed"}),
        (me.get("/v1/nothing"), 404, {"class": None, "code": "not_found"}),
    ):
        assert answer.status == status, answer.text
        assert want.items() <= answer.json.items() and answer.json["error"] and answer.json["code"], answer.text
    assert me.get("/v1/skills/hello").json["metadata"]["status"] == "Draft" and me.names() == ["hello"]


def test_filters_work_on_the_query_string(me):
    for name, status in (("a-draft", "Draft"), ("b-approved", "Approved"), ("c-off", "Disabled"), ("d-draft", "Draft")):
        tags = ["red", "big"] if name < "c" else ["red"]
        assert me.write(name, body(name, status), metadata_bag={"tags": tags}).status == 200
    assert me.names() == ["a-draft", "b-approved", "c-off", "d-draft"]
    assert me.names("?status=Draft") == ["a-draft", "d-draft"]
    assert me.names("?status=Draft&status=Disabled") == ["a-draft", "c-off", "d-draft"]
    assert me.names("?tag=red&tag=big") == ["a-draft", "b-approved"]
    assert me.names("?name_pattern=%5E.-draft%24") == ["a-draft", "d-draft"]
    assert me.names("?name_pattern=-&limit=2&offset=1") == ["b-approved", "c-off"]
    assert me.names("?author=ann&since=1") == me.names() and me.names("?author=bob") == []
    assert me.names("?since=99999999999") == [] and me.names("?limit=0") == []


def test_an_unknown_filter_is_refused(me):
    """Ignored, it would look as if everything matched."""
    me.write("hello")
    refused = me.get("/v1/skills?colour=red")
    assert refused.status == 400 and "colour" in refused.json["error"], refused.json
    assert me.names("?status=Draft") == ["hello"]


def test_an_unchanged_catalog_costs_a_304(me):
    me.write("hello")
    first = me.get("/v1/skills")
    etag, token = first.headers["ETag"], me.get("/v1/skills:version").json["version"]
    assert etag == f'"{token}"'
    for header in (etag, f"W/{etag}", f'{etag}, "x"'):
        again = me.get("/v1/skills", If_None_Match=header)
        assert again.status == 304 and again.text == "" and again.headers["ETag"] == etag
    assert me.get("/v1/skills", If_None_Match='"other"').status == 200
    me.ask("PATCH", "/v1/skills/hello", {"status": "Approved"})
    moved = me.get("/v1/skills", If_None_Match=etag)
    assert moved.status == 200 and moved.headers["ETag"] != etag


def test_what_belongs_to_others_does_not_exist(bellhop):
    ann, bob = Program(bellhop, tenant="acme", identity="ann"), Program(bellhop, tenant="zorg", identity="ann")
    ann.write("hello")
    assert bob.names() == []
    missing, hidden = bob.get("/v1/skills/nothere"), bob.get("/v1/skills/hello")
    assert hidden.status == missing.status == 404
    assert hidden.text == missing.text.replace("nothere", "hello")
    assert bob.ask("DELETE", "/v1/skills/hello").status == 404
    assert bob.get("/v1/skills:version").json == {"version": "empty"}
    assert bob.write("hello", body("hello", "Approved")).json["status"] == "Approved"
    assert ann.get("/v1/skills/hello").json["metadata"]["status"] == "Draft"
    # A header names no tenant, and neither does a body.
    assert bob.get("/v1/skills/hello", X_Bellhop_Tenant="acme").json["metadata"]["status"] == "Approved"


def test_a_namespace_is_a_store_of_its_own(bellhop):
    key = make_key(bellhop, identity="ann")
    plain, lab = Program(bellhop, key), Program(bellhop, key, namespace="lab")
    plain.write("hello")
    lab.write("world")
    assert plain.names() == ["hello"] and lab.names() == ["world"]
    bound = make_key(bellhop, identity="ann", namespace="lab")
    assert Program(bellhop, bound).names() == Program(bellhop, bound, namespace="lab").names() == ["world"]
    assert Program(bellhop, bound, namespace="attic").get("/v1/skills").status == 403
    assert Program(bellhop, key, namespace="../x").get("/v1/skills").status == 400


def test_the_author_is_the_keys_own_unless_it_may_attest(bellhop):
    ann, bob = Program(bellhop, identity="ann"), Program(bellhop, identity="bob")
    runtime = Program(bellhop, key=make_key(bellhop, "acme", "--attest", identity="runtime"))
    assert ann.write("mine").status == 200
    for author in (None, "bob", "ann"):
        taken = bob.write("mine", body() + "bob was here\n", **({"author": author} if author else {}))
        assert taken.status == 409 and taken.json["class"] == "StorageConflictError"
    assert bob.write("other", author="ann").status == 200
    assert bob.get("/v1/skills/other").json["metadata"]["author"] == "bob"
    assert runtime.write("theirs", author="carol").status == 200
    assert runtime.get("/v1/skills/theirs").json["metadata"]["author"] == "carol"
    assert runtime.write("theirs", author="dave").status == 409
    assert runtime.write("plain").status == 200
    assert runtime.get("/v1/skills/plain").json["metadata"]["author"] == "runtime"


def test_a_key_for_one_agent_deletes_nothing(bellhop):
    ann = Program(bellhop, identity="ann")
    bound = Program(bellhop, identity="ann", agent="helper")
    ann.write("hello")
    refused, missing = bound.ask("DELETE", "/v1/skills/hello"), bound.ask("DELETE", "/v1/skills/nope")
    assert refused.status == 403 and missing.status == 404 and missing.json["class"] == "SkillNotFoundError"
    assert ann.names() == ["hello"] and ann.ask("DELETE", "/v1/skills/hello?confirm=hello").status == 204


def test_a_delete_is_confirmed_by_name_and_refused_while_others_depend_on_it(me):
    me.write("hello")
    me.write("a-user", '# Skill: a-user\nt:\n    execute_skill(skill_name="hello")\n')
    me.write("b-user", '# Skill: b-user\nt:\n    inline(skill="hello")\n')
    for query in ("", "?confirm=", "?confirm=hell", "?force=true", "?confirm=a-user&force=true"):
        refused = me.ask("DELETE", "/v1/skills/hello" + query)
        assert (refused.status, refused.json["code"], refused.json["class"]) == (400, "confirm_required", None), query
    for query in ("?confirm=hello", "?confirm=hello&force=false"):
        needed = me.ask("DELETE", "/v1/skills/hello" + query)
        assert (needed.status, needed.json["code"], needed.json["class"]) == (409, "has_dependents", None)
        assert sorted(needed.json["dependents"]) == ["a-user", "b-user"]
    assert me.ask("DELETE", "/v1/skills/hello?confirm=hello&force=yes").status == 400
    assert me.get("/v1/skills/hello").json["source"] == body()
    assert me.ask("DELETE", "/v1/skills/hello?confirm=hello&force=true").status == 204
    assert me.ask("DELETE", "/v1/skills/a-user?confirm=a-user").status == 204
    assert me.names() == ["b-user"]


def test_a_body_is_kept_as_it_was_handed_over_and_its_status_line_counts(bellhop):
    me, bound = Program(bellhop, identity="ann"), Program(bellhop, identity="ann", agent="helper")
    texts = ["# Skill: x\n# Status:  approved \r\n\n\nt: 1\n", "# Status: Draft\n\n\nt: 2", "# Status: Disabled\n",
             "# Skill: x\n# Status: Approved\nt: 3\n"]
    for text, status in zip(texts, ("Approved", "Draft", "Disabled", "Approved")):
        assert me.write("x", text).json["status"] == status
        kept = me.get("/v1/skills/x").json
        assert (kept["source"], kept["metadata"]["status"]) == (text, status)
    # A key for one agent approves nothing: text it changes is a Draft, however often it is written.
    assert bound.write("x", texts[3]).json["status"] == "Approved"
    for _ in range(2):
        assert bound.write("x", texts[3] + "more\n").json["status"] == "Draft"
        assert me.get("/v1/skills/x").json["source"] == texts[3].replace("Approved", "Draft") + "more\n"
    refused = bound.ask("PATCH", "/v1/skills/x", {"status": "Approved"})
    assert refused.status == 403 and refused.json["class"] == "ApprovalRejectedError"
    assert me.ask("PATCH", "/v1/skills/x", {"status": "Approved"}).status == 200


def test_strangers_are_told_to_show_a_key(bellhop):
    key = make_key(bellhop)
    strangers = [None, "nonsense", key[:-1] + ("A" if key[-1] != "A" else "B"), key + "x",
                 bellhop.cli("token", "provision", "--tenant", "acme").stdout.strip()]
    answers = []
    for shown in strangers:
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        for path in ("/v1/skills", "/v1/skills/x", "/v1/skills:manifest", "/v1/data/x"):
            answers.append(http("GET", bellhop.url + path, None, headers))
    assert {(a.status, a.text) for a in answers} == {(401, answers[0].text)}
    assert answers[0].headers["WWW-Authenticate"] == "Bearer" and answers[0].json["code"] == "unauthorized"
    assert http("GET", bellhop.url + "/v1/nothing").status == 404
    bellhop.cli("token", "revoke", key.split("_")[1])
    assert Program(bellhop, key).get("/v1/skills").status == 401


def test_health_is_open_and_checks_a_key_that_is_shown(bellhop):
    key = make_key(bellhop)
    assert bellhop.get("/v1/health").json == {"status": "ok"}
    assert Program(bellhop, key).get("/v1/health").status == 200
    assert Program(bellhop, key + "x").get("/v1/health").status == 401
    document = bellhop.get("/v1/openapi.json")
    assert document.status == 200 and document.json["openapi"] == "3.1.0"


def test_the_command_line_stores_no_empty_skill(bellhop, tmp_path):
    program = Program(bellhop)
    blank = tmp_path / "blank.skill.md"
    blank.write_text(" \n\n")
    for words, given in ((["hello"], ""), (["hello", "-"], "\n"), (["hello", blank], None)):
        done = bellhop.cli("skill", "write", *words, input=given, check=False)
        assert done.returncode == 1 and done.stderr.startswith("bellhop: the text of hello is empty"), done
    assert program.get("/v1/skills").json == []


def test_the_command_line_does_the_same(bellhop, tmp_path):
    Program(bellhop, identity="ann")  # its tenant is the only one there is
    source = tmp_path / "hello.skill.md"
    source.write_text(body())
    assert bellhop.cli("skill", "write", "hello", source, "--author", "ann").stdout.endswith("Draft\n")
    assert bellhop.cli("skill", "show", "hello").stdout == body()
    source.write_text(body() + "# more\n")
    assert bellhop.cli("skill", "write", "hello", source, "--new", check=False).returncode == 1
    bellhop.cli("skill", "write", "hello", source)
    assert bellhop.cli("skill", "status", "hello", "Approved").stdout.endswith("Approved\n")
    assert len(bellhop.cli("skill", "versions", "hello").stdout.splitlines()) == 3
    shown = bellhop.cli("skill", "diff", "hello").stdout.splitlines()
    assert shown[0].startswith("--- ") and shown[1] == "+++ now" and shown[2].startswith("@@ -")
    assert "+# Status: Approved" in shown and "-# Status: Draft" in shown
    assert bellhop.cli("skill", "diff", "hello", shown[0].split()[1], shown[0].split()[1]).stdout == ""
    assert "hello" in bellhop.cli("skill", "list", "--status", "Approved,Disabled").stdout
    assert json.loads(bellhop.cli("skill", "list", "--status", "Draft", "--json").stdout) == []
    refused = bellhop.cli("skill", "show", "nope", check=False)
    assert refused.returncode == 1 and "Skill not found: 'nope'" in refused.stderr
    source.write_text('# Skill: user\n    execute_skill(skill_name="hello")\n')
    bellhop.cli("skill", "write", "user", source)
    asked = bellhop.cli("skill", "delete", "hello", check=False)
    assert asked.returncode == 1 and "user" in asked.stderr and "--yes" in asked.stderr
    bellhop.cli("skill", "delete", "hello", "--yes")
    assert bellhop.cli("skill", "list", "--json").stdout.count('"name"') == 1


def test_the_command_line_can_act_as_a_key(bellhop, tmp_path):
    key = make_key(bellhop, identity="ann")
    (tmp_path / "key").write_text(key + "\n")
    (tmp_path / "s").write_text(body())
    bellhop.cli("skill", "write", "hello", tmp_path / "s", "--key-file", tmp_path / "key", "--url", bellhop.url + "/")
    shown = json.loads(bellhop.cli("skill", "show", "hello", "--json", "--key-file", tmp_path / "key").stdout)
    assert shown["metadata"]["author"] == "ann"
    (tmp_path / "key").write_text(key + "x")
    assert "Send a key" in bellhop.cli("skill", "list", "--key-file", tmp_path / "key", check=False).stderr
    assert bellhop.cli("skill", "list", "--url", bellhop.url, check=False).returncode == 2
    make_key(bellhop, "zorg")  # now there are two tenants
    assert "--tenant" in bellhop.cli("skill", "list", check=False).stderr
    assert "hello" in bellhop.cli("skill", "list", "--tenant", "acme").stdout
    assert "hello" not in bellhop.cli("skill", "list", "--tenant", "zorg").stdout


# ---- secured mode ----


@pytest.fixture(params=["sqlite", "filesystem"])
def secured(request, make_bellhop, tmp_path):
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"], check=True)
    subprocess.run(["openssl", "pkey", "-in", tmp_path / "key.pem", "-pubout", "-out", tmp_path / "pub.pem"], check=True)
    return make_bellhop(CONFIG + f"skills: {{{{kind: {request.param}, approval: {{{{mode: secured, public_key: "
                                 f"{tmp_path / 'pub.pem'}}}}}}}}}\n")


def test_only_the_operators_signature_approves(secured, tmp_path):
    me = Program(secured, identity="ann")
    assert me.write("hello", body("hello", "Approved")).json["status"] == "Draft"
    refused = me.ask("PATCH", "/v1/skills/hello", {"status": "Approved"})
    assert refused.status == 403 and refused.json["class"] == "ApprovalRejectedError"
    assert refused.json["skill_name"] == "hello" and refused.json["reason"]
    assert secured.cli("skill", "approve", "hello", "--key", tmp_path / "key.pem").stdout.endswith("Approved\n")
    signed = me.get("/v1/skills/hello").json
    assert signed["metadata"]["status"] == "Approved" and "# Status: Approved v3:" in signed["source"]
    assert signed["metadata"]["author"] == "ann"
    assert "only with a signature" in secured.cli("doctor").stdout
    # Whoever edits it loses the approval; a status that comes and goes does not.
    me.ask("PATCH", "/v1/skills/hello", {"status": "Disabled"})
    assert me.write("hello", signed["source"] + "# one line more\n").json["status"] != "Approved"
    assert me.ask("PATCH", "/v1/skills/hello", {"status": "Approved"}).status == 403
    assert me.write("copy", signed["source"]).json["status"] == "Approved"
    assert "PRIVATE" not in secured.log() and (tmp_path / "key.pem").read_text().splitlines()[1] not in secured.log()


def test_a_key_that_is_none_is_told(secured, tmp_path):
    Program(secured).write("hello")
    (tmp_path / "none.pem").write_text("nonsense")
    for bad in (["--key", tmp_path / "none.pem"], ["--key", tmp_path / "pub.pem"], ["--key", tmp_path / "missing"]):
        done = secured.cli("skill", "approve", "hello", *bad, check=False)
        assert done.returncode == 1 and done.stderr
    assert secured.cli("skill", "approve", "hello", check=False).returncode == 2


def test_secured_mode_without_a_good_key_does_not_start(make_bellhop, tmp_path):
    (tmp_path / "none.pem").write_text("nonsense")
    for setting in (f"{{{{mode: secured, public_key: {tmp_path / 'none.pem'}}}}}", "{{mode: secured, public_key: /nowhere}}",
                    "{{mode: secured}}"):
        server = make_bellhop(CONFIG + f"skills: {{{{approval: {setting}}}}}\n", start=False)
        done = server.cli("serve", check=False)
        assert done.returncode == 1 and "approval" in done.stderr, done.stderr
        seen = server.cli("doctor", check=False)
        assert seen.returncode == 1 and "approval" in seen.stdout + seen.stderr


def test_a_catalog_of_any_length_is_sent_whole_and_a_tool_says_that_it_is_too_long(bellhop, me):
    """Longer than what may wait in memory for one address (limits.answer_bytes_per_address, 8 MiB)."""
    bag = {"note": "n" * 60000}
    for i in range(170):
        assert me.write(f"long-{i:03}", metadata_bag=bag).status == 200
    catalog = me.get("/v1/skills")
    assert len(catalog.text) > 9 << 20 and catalog.headers["ETag"]
    assert [s["name"] for s in catalog.json] == [f"long-{i:03}" for i in range(170)]
    assert all(s["metadata_bag"]["note"] == bag["note"] for s in catalog.json)
    assert me.get("/v1/skills", If_None_Match=catalog.headers["ETag"]).status == 304

    def tool(arguments):
        return me.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                                       "params": {"name": "skill_list", "arguments": arguments}}).text
    assert "ask for less with limit and offset" in tool({})
    assert "long-002" in tool({"limit": 3})

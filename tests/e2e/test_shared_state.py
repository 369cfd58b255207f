"""What nodes on one PostgreSQL have in common besides it: skills, the directory of files, the node of the data store.
A configuration that would split what is one does not start, and says why."""
import shutil
import uuid

import pytest

from conftest import http
from servers import Postgres

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
master_key: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
store: {{{{kind: postgres, url: "{url}"}}}}
cluster: {{{{node: {node}, lease: 2s, drain: 0s}}}}
platforms:
  - {{{{platform: web, bot: lobby}}}}
"""


@pytest.fixture(scope="module")
def postgres():
    server = Postgres().start()
    yield server
    server.clean()


@pytest.fixture
def node(postgres, make_bellhop):
    """node(name, more settings) -> a server that was not started."""
    postgres.sql("DROP SCHEMA IF EXISTS bellhop CASCADE")
    return lambda name, more="": make_bellhop(CONFIG.format(url=postgres.url, node=name) + more, start=False)


def braces(text):
    return text.replace("{", "{{").replace("}", "}}")


def refuses(server):
    server.begin()
    assert server.wait() == 1
    return server.log()


def ask(server, key, method, path, body=None):
    return http(method, server.url + path, body, headers={"Authorization": f"Bearer {key}"})


def key_of(server):
    return server.cli("token", "agent", "--tenant", "acme", "--identity", "ann").stdout.strip()


def test_skills_move_with_the_node_that_serves(node, postgres):
    north, south = node("north").start(), node("south")
    key = key_of(north)
    assert ask(north, key, "PUT", "/v1/skills/hello", {"source": "# Skill: hello\n# Status: Draft\n"}).status == 200
    assert ask(north, key, "PATCH", "/v1/skills/hello", {"status": "Approved"}).status == 200
    before = ask(north, key, "GET", "/v1/skills:version").json
    assert ask(north, key, "GET", "/v1/skills:manifest").json["manifest"]["kind"] == "postgres"
    assert not (north.state / "skills.db").exists()
    assert postgres.sql("SELECT count(*) FROM bellhop.skill_version") == "2"
    north.stop()
    south.start()
    assert ask(south, key, "GET", "/v1/skills:version").json == before
    skill = ask(south, key, "GET", "/v1/skills/hello").json
    assert "Approved" in skill["source"] and skill["metadata"]["author"] == "ann"
    assert [v["status"] for v in ask(south, key, "GET", "/v1/skills/hello/versions").json] == ["Draft", "Approved"]


@pytest.mark.parametrize("more, says", [
    ("skills: {kind: sqlite}\n", "skills.kind: sqlite is a file on one machine"),
    ("skills: {kind: filesystem}\n", "skills.kind: filesystem with store.kind: postgres needs skills.dir"),
])
def test_skills_on_one_machine_are_refused(node, more, says):
    assert says in refuses(node("north", braces(more)))


@pytest.mark.parametrize("more, says", [
    ("skills: {kind: postgres}\n", "skills.kind: postgres needs store.kind: postgres"),
    ("data: {node: north}\n", "data.node needs store.kind: postgres"),
])
def test_what_needs_postgresql_is_refused_without(make_bellhop, more, says):
    config = "listen: 127.0.0.1:0\nstate_dir: {state}\n" + braces(more)
    assert says in refuses(make_bellhop(config, start=False))


@pytest.mark.parametrize("setting", ["media: {dir: DIR}", "skills: {kind: filesystem, dir: DIR}"])
def test_a_directory_that_is_not_the_others_is_refused(node, tmp_path, setting):
    shared, own = tmp_path / "shared", tmp_path / "own"
    north = node("north", braces(setting.replace("DIR", str(shared))) + "\n").start()
    assert (shared / ".bellhop-shared").exists()
    says = refuses(node("south", braces(setting.replace("DIR", str(own))) + "\n"))
    assert f"dir: {own} is not the directory that the other nodes use" in says
    north.stop()
    node_of_another_word = tmp_path / "own" / ".bellhop-shared"
    node_of_another_word.write_text((shared / ".bellhop-shared").read_text()[:-4] + "0000")
    assert "is not the directory that" in refuses(node("south", braces(setting.replace("DIR", str(own))) + "\n"))
    node("south", braces(setting.replace("DIR", str(shared))) + "\n").start()


def test_the_directory_of_another_installation_is_refused(node, postgres, tmp_path):
    more = braces(f"media: {{dir: {tmp_path}}}\n")
    node("north", more).start().stop()
    postgres.sql("DROP SCHEMA bellhop CASCADE")
    assert f"media.dir: {tmp_path} belongs to another installation" in refuses(node("north", more))


def upload(server, credential):
    return http("POST", server.url + "/relay/media", b"hello",
                headers={"Authorization": f"Bearer {credential.token()}", "Content-Type": "text/plain"})


def test_without_a_shared_directory_no_file_is_taken(node, tmp_path):
    server = node("north").start()
    refused = upload(server, server.add())
    assert refused.status == 501 and "media.dir" in refused.json["error"]
    server.stop()
    server = node("north", braces(f"media: {{dir: {tmp_path}}}\n")).start()
    assert upload(server, server.add()).status in (200, 201)
    assert any(p.read_bytes() == b"hello" for p in tmp_path.iterdir() if not p.name.startswith("."))


def test_the_data_store_is_on_the_node_that_is_named(node):
    nobody = node("north").start()
    key = key_of(nobody)
    refused = ask(nobody, key, "POST", "/v1/data", {"content": "apple"})
    assert refused.status == 503 and "data.node" in refused.json["error"]
    nobody.stop()
    more = braces("data: {node: north}\n")
    north, south = node("north", more).start(), node("south", more)
    kept = ask(north, key, "POST", "/v1/data", {"content": "apple"}).json
    assert ask(north, key, "GET", f"/v1/data/{kept['id']}").json["detail"] == "apple"
    north.stop()
    south.start()
    for answer in (ask(south, key, "POST", "/v1/data", {"content": "pear"}),
                   ask(south, key, "POST", "/v1/data/query", {"query": "apple", "limit": 1, "mode": "fts"}),
                   ask(south, key, "GET", f"/v1/data/{uuid.uuid4()}")):
        assert answer.status == 503 and "it is on node north" in answer.json["error"], answer.text
    assert not (south.state / "data").exists()
    erased = south.cli("erase", "--tenant", "acme", "--yes", check=False)
    assert erased.returncode == 1 and "data.node" in erased.stderr
    assert south.get("/readyz").status == 200


def test_a_data_store_that_would_be_split_is_refused(node, postgres):
    more = braces("data: {node: north}\n")
    north = node("north", more).start()
    north.stop()
    says = refuses(node("south", braces("data: {node: south}\n")))
    assert "data.node" in says and "is not the directory that the other nodes use" in says
    says = refuses(node("west", braces("data: {node: east}\n")))
    assert "data.node is east here, but the data store is on node north" in says
    assert "is not the directory" in refuses(node("north", more))  # another machine of the same name
    # moved on purpose, with its directory: the new node says so, and the old name is refused from then on
    south = node("south", braces("data: {node: south}\n"))
    south.state.mkdir(parents=True)
    shutil.copytree(north.state / "data", south.state / "data")
    south.start()
    assert postgres.sql("SELECT encode(value, 'escape') FROM bellhop.kv WHERE key = 'data.node'") == '{"mark":"south"}'
    south.stop()
    assert "is on node south" in refuses(node("west", more))


def test_skills_are_moved_with_the_rest(node, make_bellhop, postgres):
    server = node("north")
    config = server.config.read_text()
    server.config.write_text("\n".join(l for l in config.splitlines() if not l.startswith(("store:", "cluster:"))))
    server.start()
    key = key_of(server)
    for text in ("one", "two"):
        assert ask(server, key, "PUT", "/v1/skills/hello", {"source": f"# Skill: hello\n{text}\n"}).status == 200
    before = ask(server, key, "GET", "/v1/skills:version").json
    server.stop()
    moved = server.cli("store", "migrate", "--to", postgres.url, "--json")
    assert '"skills": 1, "skill_versions": 2' in moved.stdout, moved.stdout
    assert "Every node needs the master key that this machine has now: the same master_key" in moved.stderr, moved.stderr
    server.config.write_text(config)
    server.start()
    assert ask(server, key, "GET", "/v1/skills:version").json == before
    server.stop()
    for name in ("bellhop.db", "skills.db"):
        (server.state / name).rename(server.state / f"old-{name}")
    assert "Every node needs" not in server.cli("store", "migrate", "--to", "sqlite").stderr
    server.config.write_text("\n".join(l for l in config.splitlines() if not l.startswith(("store:", "cluster:"))))
    server.start()
    assert ask(server, key, "GET", "/v1/skills:version").json == before
    assert len(ask(server, key, "GET", "/v1/skills/hello/versions").json) == 2

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


def find(server, key, words="", **filters):
    answer = ask(server, key, "POST", "/v1/data/query", {"query": words, "limit": 50, "mode": "fts", **filters})
    assert answer.status == 200, answer.text
    return [e["summary"] for e in answer.json]


def keep(server, key, text, **more):
    answer = ask(server, key, "POST", "/v1/data", {"content": text, **more})
    assert answer.status == 200, answer.text
    return answer.json


def test_the_data_is_in_postgresql_and_every_node_that_serves_finds_it(node, postgres):
    north, south = node("north").start(), node("south")
    key = key_of(north)
    kept = keep(north, key, "apple", tags=["fruit"])
    assert postgres.sql("SELECT encode(content, 'escape') FROM bellhop.data_entry") == "apple"
    north.stop()
    south.start()
    assert ask(south, key, "GET", f"/v1/data/{kept['id']}").json == kept
    assert find(south, key, "apple") == ["apple"] and find(south, key, domain_tags="fruit") == ["apple"]
    keep(south, key, "pear", tags=["fruit"])
    south.kill()  # it leaves its full-text files as they are
    north.start()  # with files from before
    assert find(north, key) == ["pear", "apple"] and find(north, key, "pear", domain_tags="fruit") == ["pear"]
    keep(north, key, "plum")
    north.stop()
    shutil.rmtree(north.state / "fulltext")  # files are built from PostgreSQL, and nothing else
    north.start()
    assert find(north, key) == ["plum", "pear", "apple"] and find(north, key, "plum") == ["plum"]


def test_data_of_an_erased_tenant_is_gone_from_every_node_that_serves(node, postgres):
    north, south = node("north").start(), node("south")
    key = key_of(north)
    keep(north, key, "a secret")
    north.stop()
    south.start()
    assert find(south, key, "secret") == ["a secret"]
    south.cli("erase", "--tenant", "acme", "--yes")
    assert postgres.sql("SELECT count(*) FROM bellhop.data_entry") == "0"
    south.stop()
    assert any(b"secret" in p.read_bytes() for p in (north.state / "fulltext").rglob("*.db*"))
    north.start()
    assert not any(b"secret" in p.read_bytes() for p in (north.state / "fulltext").rglob("*.db*"))
    assert find(north, key_of(north)) == []


def test_data_is_moved_with_the_rest(node, postgres):
    server = node("north")
    config = server.config.read_text()
    alone = "\n".join(l for l in config.splitlines() if not l.startswith(("store:", "cluster:")))
    server.config.write_text(alone)
    server.start()
    key = key_of(server)
    entries = [keep(server, key, f"note {i}", tags=["t"], metadata={"vault": "v"}) for i in range(3)]
    server.stop()
    assert '"data": 3' in server.cli("store", "migrate", "--to", postgres.url, "--json").stdout
    server.config.write_text(config)
    server.start()
    assert find(server, key, "note", vault="v", domain_tags="t", agent_id=entries[0]["agent_id"])
    assert [ask(server, key, "GET", f"/v1/data/{e['id']}").json for e in entries] == entries
    keep(server, key, "note 3")
    server.stop()
    for name in ("bellhop.db", "skills.db"):
        (server.state / name).rename(server.state / f"old-{name}")
    refused = server.cli("store", "migrate", "--to", "sqlite", check=False)
    assert refused.returncode == 1 and "holds data already" in refused.stderr
    (server.state / "data").rename(server.state / "old-data")
    (server.state / "skills.db").unlink(missing_ok=True)
    assert '"data": 4' in server.cli("store", "migrate", "--to", "sqlite", "--json").stdout
    server.config.write_text(alone)
    server.start()
    assert find(server, key) == ["note 3", "note 2", "note 1", "note 0"]
    assert [ask(server, key, "GET", f"/v1/data/{e['id']}").json for e in entries] == entries


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

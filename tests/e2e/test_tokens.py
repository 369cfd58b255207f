"""Keys of programs and tokens of gateways: made, listed, revoked."""
import json
import time
from concurrent.futures import ThreadPoolExecutor

import dispatch_rig
from conftest import CONFIG, wait_for
from test_enroll import provision, token
from v1 import Program


def tokens(server):
    return json.loads(server.cli("token", "list", "--json").stdout)


def test_a_token_is_listed_but_never_shown_again(bellhop):
    key = bellhop.cli("token", "agent", "--tenant", "acme", "--identity", "reporter", "--agent", "helper",
                      "--instance", "bot-1", "--namespace", "lab", "--attest").stdout.strip()
    me = token(bellhop, "provision")
    bellhop.restart()
    first, second = tokens(bellhop)
    assert (first["kind"], first["tenant"], first["identity"], first["agent"], first["instance"],
            first["namespace"], first["attest"]) == ("agent", "acme", "reporter", "helper", "bot-1", "lab", True)
    assert (second["kind"], second["tenant"], second["usedAt"], second["attest"]) == ("provision", "acme", None, False)
    assert first["madeAt"] <= second["madeAt"] < second["expiresAt"] and first["expiresAt"] is None
    shown = bellhop.cli("token", "list").stdout + bellhop.cli("token", "list", "--json").stdout + bellhop.log()
    for secret in (key, key.split("_", 2)[2], me):
        assert secret not in shown
        assert secret.encode() not in b"".join(p.read_bytes() for p in bellhop.state.glob("bellhop.db*"))


def test_a_revoked_provision_token_is_refused_also_after_a_restart(bellhop):
    me, other = token(bellhop, "provision"), token(bellhop, "provision")
    assert provision(bellhop, me).status == 200
    mine = next(t for t in tokens(bellhop) if t["usedAt"])
    bellhop.cli("token", "revoke", mine["id"])
    assert provision(bellhop, me).status == 401
    assert provision(bellhop, other).status == 200
    assert bellhop.cli("token", "revoke", mine["id"], check=False).returncode == 1
    bellhop.restart()
    assert provision(bellhop, me).status == 401
    assert provision(bellhop, other).status == 200
    states = {t["id"]: t["revokedAt"] for t in tokens(bellhop)}
    assert states.pop(mine["id"]) and not any(states.values())


def test_misuse_is_told_in_words(bellhop):
    for words in (["token"], ["token", "agent"], ["token", "revoke"], ["token", "provision", "--tenant", "t", "--attest"],
                  ["token", "list", "x"], ["token", "agent", "--tenant", "t", "--ttl", "soon"]):
        done = bellhop.cli(*words, check=False)
        assert done.returncode == 2 and done.stderr, words
    for bad in (["--tenant", "has blanks"], ["--tenant", "t", "--namespace", "../x"], ["--tenant", "t", "--identity", ""]):
        done = bellhop.cli("token", "agent", *bad, check=False)
        assert done.returncode == 1 and "must be" in done.stderr, bad
    assert tokens(bellhop) == []


def test_a_key_that_asks_too_often_is_told_to_wait_and_others_are_not(make_bellhop):
    server = make_bellhop(CONFIG + "limits: {{key_requests: 1, tenant_requests: 2}}\n")
    ann, bob, other = Program(server, identity="ann"), Program(server, identity="bob"), Program(server, tenant="zorg")
    seen = [ann.get("/v1/skills") for _ in range(6)]
    assert {a.status for a in seen} == {200, 429}
    refused = next(a for a in seen if a.status == 429)
    assert refused.headers["Retry-After"] == "1" and refused.json["code"] == "rate_limited"
    assert bob.get("/v1/skills").status == other.get("/v1/skills").status == 200
    assert 429 in [bob.get("/v1/skills").status for _ in range(6)]
    assert server.metric("keys") == 3


def test_a_revoked_key_gets_no_answer_to_what_it_asked_before(make_bellhop):
    server = make_bellhop(dispatch_rig.config("id: silent, substrate: relay, tenant: t"))
    server.add(id="silent")
    program = dispatch_rig.Sender(server)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(program.request, "silent", dispatch_rig.augment("and?", correlation_id="c"), 30_000)
        wait_for(lambda: server.instance("silent")["entries"] == 1)
        began = time.monotonic()
        server.cli("token", "revoke", program.key.split("_")[1])
        assert asked.result().status == 403 and "revoked" in asked.result().text
    assert time.monotonic() - began < 20
    assert program.get("/v1/agents").status == 401

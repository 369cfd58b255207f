"""The management plane: what an instance declares about itself, and who may."""
import json
import threading

import pytest

from conftest import wait_for

POSTS = ["/relay/policy", "/manage/link", "/manage/scope", "/manage/scope/release", "/manage/principal",
         "/manage/dm-default", "/manage/deprovision"]
ANN, BOB, EVE = "visitor-ann-0000001", "visitor-bob-0000001", "visitor-eve-0000001"
PLACE = {"platform": "discord", "guildId": "g1", "channelId": "c1"}


def bearer(credential):
    return {"Authorization": f"Bearer {credential.token()}"}


def post(server, credential, path, body=None):
    return server.post(path, body if body is not None else {}, headers=bearer(credential))


def grants(server, kind):
    words = {"bindings": "link", "scopes": "scope", "principals": "principal", "policies": "policy",
             "dmDefaults": "dm-default"}
    return json.loads(server.cli(words[kind], "list", "--json").stdout)


def at_once(*calls):
    """Run them side by side; their answers in order."""
    answers, barrier = [None] * len(calls), threading.Barrier(len(calls))

    def run(i):
        barrier.wait()
        answers[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return answers


# ---- who may ----


def test_strangers_learn_nothing_and_change_nothing(bellhop):
    real, gone = bellhop.add(id="real"), bellhop.add(id="gone")
    bellhop.cli("gateway", "revoke", "gone")
    other = bellhop.add(id="real2")
    forged = {"Authorization": f"Bearer {type(real).token(type('C', (), {'id': 'real', 'secret': other.secret})())}"}
    unsigned = {"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJhdWQiOiJhZ2VudDpyZWFsIn0."}
    answers = set()
    for path in POSTS:
        for headers in ({}, forged, bearer(gone), unsigned, {"Authorization": "Basic Zm9v"}):
            a = bellhop.post(path, PLACE, headers=headers)
            assert a.status == 401, (path, headers, a.text)
            answers.add(a.text)
    assert bellhop.get("/manage/instance").status == 401
    assert len(answers) == 1 and json.loads(answers.pop())["code"] == "unauthorized"
    assert grants(bellhop, "scopes") == [] and grants(bellhop, "policies") == []
    assert bellhop.get("/manage/instance", headers=bearer(real)).status == 200


def test_what_a_body_says_about_tenant_and_instance_is_not_read(bellhop):
    a, b = bellhop.add(id="a", tenant="acme"), bellhop.add(id="b", tenant="zorg")
    lie = {"tenant": "zorg", "instance": "b", "instanceId": "b", "gatewayId": "b"}
    assert post(bellhop, a, "/manage/scope", {**PLACE, **lie}).status == 200
    assert post(bellhop, a, "/manage/principal", {"mode": "any", **lie}).status == 200
    assert post(bellhop, a, "/relay/policy", {"platform": "web", "requireAddress": True, **lie}).status == 200
    for kind in ("scopes", "principals", "policies"):
        assert {(g["tenant"], g["instance"]) for g in grants(bellhop, kind)} == {("acme", "a")}, kind
    assert bellhop.get("/manage/instance", headers=bearer(b)).json["instanceId"] == "b"


def test_malformed_bodies_get_a_sentence(bellhop):
    c = bellhop.add()
    for path, body in [("/manage/scope", {}), ("/manage/scope", {**PLACE, "guildId": 7}),
                       ("/manage/scope", {**PLACE, "channelId": "a\u001fb"}),
                       ("/manage/scope", {**PLACE, "guildId": "x" * 300}), ("/manage/principal", {"mode": "all"}),
                       ("/manage/principal", {"mode": "allow-list", "allow": "ann"}),
                       ("/manage/principal", {"mode": "allow-list", "allow": ["a"] * 3000}),
                       ("/manage/principal", {"mode": "any", "platform": 3}),
                       ("/relay/policy", {"platform": "web", "requireAddress": "yes"}),
                       ("/relay/policy", {"platform": "web", "freeResponseScopes": [1]}), ("/relay/policy", {}),
                       ("/manage/link", {"platform": []}), ("/manage/dm-default", {}), ("/manage/scope", []),
                       ("/manage/scope", "x")]:
        a = post(bellhop, c, path, body)
        assert a.status == 400 and a.json["code"] == "malformed" and a.json["error"], (path, body, a.text)
    assert post(bellhop, c, "/manage/nothing").status == 404
    assert post(bellhop, c, "/manage/person", {"platform": "web", "userId": "u"}).status == 404
    assert post(bellhop, c, "/manage/tenant", {"requireAddress": True}).status == 404
    assert bellhop.get("/manage/scope", headers=bearer(c)).status == 405


# ---- links ----


def test_a_person_links_their_account_and_reaches_their_own_instance(bellhop, dial):
    a, b = bellhop.add(id="a"), bellhop.add(id="b", platform=None)
    gateways = {"a": dial(bellhop, a), "b": dial(bellhop, b)}
    answer = post(bellhop, b, "/manage/link", {"platform": "web"})
    assert answer.status == 200 and answer.json["platform"] == "web" and answer.json["expiresAt"] > 1e12
    code = answer.json["code"]
    assert len(code) == 8 and code not in bellhop.log()
    bellhop.write("before", visitor=ANN)
    gateways["a"].hear("before")
    assert bellhop.write(f"/link {code.lower()}", visitor=ANN) == 200
    bellhop.write("after", visitor=ANN)
    gateways["b"].hear("after")
    bellhop.write("somebody else", visitor=BOB)
    gateways["a"].hear("somebody else")
    assert gateways["a"].quiet() and gateways["b"].seen == ["after"]  # the code went to nobody
    history = bellhop.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": ANN})
    if history.status == 200:
        assert "Linked" in history.text
    bellhop.restart()
    bellhop.write("after a restart", visitor=ANN)
    dial(bellhop, b).hear("after a restart")


def test_a_link_code_raced_links_one_person(bellhop):
    c = bellhop.add(id="a")
    for round in range(3):
        code = post(bellhop, c, "/manage/link").json["code"]
        people = [f"visitor-race-{round}-{i:04}" for i in range(6)]
        statuses = at_once(*[lambda p=p: bellhop.write(f"/link {code}", visitor=p) for p in people])
        assert statuses == [200] * 6
        assert len(grants(bellhop, "bindings")) == round + 1


def test_too_many_codes_are_refused(bellhop):
    c = bellhop.add(id="a")
    answers = [post(bellhop, c, "/manage/link") for _ in range(9)]
    assert [a.status for a in answers] == [200] * 8 + [429]
    assert answers[-1].json["code"] == "rate_limited"


# ---- scopes ----


def test_a_scope_is_owned_by_one_instance(bellhop):
    a, b = bellhop.add(id="a", tenant="acme"), bellhop.add(id="b", tenant="zorg")
    assert post(bellhop, a, "/manage/scope", PLACE).json == {"ok": True}
    assert post(bellhop, a, "/manage/scope", PLACE).status == 200
    taken = post(bellhop, b, "/manage/scope", PLACE)
    assert taken.status == 409 and taken.json["code"] == "scope_taken"
    assert "acme" not in taken.text
    free = post(bellhop, b, "/manage/scope/release", {**PLACE, "channelId": "nobody's"})
    theirs = post(bellhop, b, "/manage/scope/release", PLACE)
    assert free.status == theirs.status == 404 and free.text == theirs.text
    bellhop.restart()
    assert post(bellhop, b, "/manage/scope", PLACE).status == 409
    assert post(bellhop, a, "/manage/scope/release", PLACE).status == 200
    assert post(bellhop, b, "/manage/scope", PLACE).status == 200


def test_of_many_claims_at_once_one_wins(bellhop):
    all = [bellhop.add(id=f"g{i}", tenant=f"t{i}") for i in range(6)]
    for round in range(3):
        place = {**PLACE, "channelId": f"c{round}"}
        statuses = [a.status for a in at_once(*[lambda c=c: post(bellhop, c, "/manage/scope", place) for c in all])]
        assert sorted(statuses) == [200] + [409] * 5
        assert len([s for s in grants(bellhop, "scopes") if s["channelId"] == place["channelId"]]) == 1


# ---- principals, policies, choices ----


def test_a_principal_takes_effect_for_the_next_message_and_why_tells(bellhop, dial):
    c = bellhop.add(id="a")
    gateway = dial(bellhop, c)
    bellhop.write("one", visitor=ANN)
    event = gateway.hear("one")["event"]
    assert post(bellhop, c, "/manage/principal", {"mode": "owner-only"}).json == {"ok": True}
    bellhop.write("two", visitor=ANN)
    assert bellhop.metric("events_gated_total") == 1
    user = event["source"]["user_id"]
    assert post(bellhop, c, "/manage/principal",
                {"platform": "web", "mode": "allow-list", "allow": [user]}).status == 200
    bellhop.write("three", visitor=ANN)
    bellhop.write("four", visitor=BOB)
    gateway.hear("three")
    assert gateway.quiet()
    newest = json.loads(bellhop.cli("why", "--platform", "web", "--json").stdout)
    assert [d["verdicts"][0]["reason"] for d in newest] == ["not_listed", "open", "owner_only", "open"]
    assert "four" not in json.dumps(newest)
    told = bellhop.cli("why", "--platform", "web", "--message", event["message_id"]).stdout
    assert "received     t/a" in told and event["message_id"] in told
    assert bellhop.cli("why", "--platform", "web", "--message", "no", check=False).returncode == 1


def test_a_policy_is_answered_with_exactly_200_and_replaced_as_a_whole(bellhop):
    c = bellhop.add(id="a")
    body = {"platform": "discord", "requireAddress": True, "freeResponseScopes": ["c1"], "allowOtherBots": False}
    assert post(bellhop, c, "/relay/policy", body).status == 200
    assert post(bellhop, c, "/relay/policy", {"platform": "discord", "allowOtherBots": True}).status == 200
    assert post(bellhop, c, "/relay/policy", {**body, "platform": "telegram"}).status == 200
    bellhop.restart()
    seen = {p["platform"]: (p["requireAddress"], p["freeResponseScopes"], p["allowOtherBots"])
            for p in grants(bellhop, "policies")}
    assert seen == {"discord": (False, [], True), "telegram": (True, ["c1"], False)}


def test_somebody_with_two_instances_chooses(bellhop, dial):
    a, b = bellhop.add(id="a", platform=None), bellhop.add(id="b", platform=None)
    gateways = dial(bellhop, a), dial(bellhop, b)
    for c in (a, b):
        bellhop.write(f"/link {post(bellhop, c, '/manage/link').json['code']}", visitor=ANN)
    user = grants(bellhop, "bindings")[0]["userId"]
    bellhop.write("oldest", visitor=ANN)
    gateways[0].hear("oldest")
    choice = {"platform": "web", "userId": user}
    assert post(bellhop, b, "/manage/dm-default", choice).json == {"ok": True}
    bellhop.write("chosen", visitor=ANN)
    gateways[1].hear("chosen")
    assert gateways[0].quiet()
    assert post(bellhop, b, "/manage/dm-default", {**choice, "userId": "a stranger"}).status == 404


def test_a_tenant_may_want_to_be_addressed_by_default(bellhop):
    bellhop.add(id="a", tenant="acme")
    bellhop.cli("policy", "default", "--tenant", "acme", "--require-address")
    assert json.loads(bellhop.cli("policy", "defaults", "--json").stdout) == [{"tenant": "acme",
                                                                              "requireAddress": True}]
    bellhop.cli("policy", "default", "--tenant", "acme", "--off")
    assert json.loads(bellhop.cli("policy", "defaults", "--json").stdout) == []


# ---- state and end ----


def test_the_state_of_an_instance_is_told(bellhop, dial):
    c = bellhop.add(id="a", instance="agent-1", wake_url="http://127.0.0.1:9/wake")
    state = lambda: bellhop.get("/manage/instance", headers=bearer(c)).json  # noqa: E731
    first = state()
    assert first["state"] == "never" and first["wakeUrlRegistered"] and first["lastInboundAt"] is None
    assert (first["tenant"], first["instanceId"], first["gatewayId"]) == ("t", "agent-1", "a")
    gateway = dial(bellhop, c, ack=False)
    bellhop.write("one")
    gateway.hear("one")
    live = state()
    assert live["state"] == "live" and live["unacked"] == 1 and live["mailbox"]["entries"] == 1
    assert live["lastInboundAt"] > 1e12 and live["flippedAt"] is None
    gateway.sleep()
    bellhop.write("two")
    asleep = wait_for(lambda: state()["mailbox"]["entries"] == 2 and state())
    assert asleep["state"] == "asleep" and asleep["flippedAt"] > 1e12
    assert asleep["mailbox"]["bytes"] > 0 and asleep["mailbox"]["oldestAt"] > 1e12


def test_deprovision_closes_the_sockets_and_forgets_everything(bellhop, dial):
    a, b = bellhop.add(id="a"), bellhop.add(id="b", platform=None)
    gateway = dial(bellhop, a)
    bellhop.write(f"/link {post(bellhop, a, '/manage/link').json['code']}", visitor=ANN)
    assert post(bellhop, a, "/manage/scope", PLACE).status == 200
    assert post(bellhop, a, "/manage/deprovision").json == {"ok": True}
    assert gateway.wait_closed()[0] == 4401
    assert post(bellhop, a, "/manage/link").status == 401
    assert grants(bellhop, "bindings") == [] and grants(bellhop, "scopes") == []
    assert post(bellhop, b, "/manage/scope", PLACE).status == 200
    bellhop.restart()
    assert post(bellhop, a, "/manage/link").status == 401
    assert len(grants(bellhop, "scopes")) == 1


def test_who_takes_the_name_of_a_deprovisioned_instance_reads_none_of_its_mail(bellhop, dial):
    a = bellhop.add(id="a", instance="desk")
    bellhop.write("for the first one only")
    assert post(bellhop, a, "/manage/deprovision").json == {"ok": True}
    gateway = dial(bellhop, bellhop.add(id="b", instance="desk"))
    bellhop.write("for the second")
    gateway.hear("for the second")  # the first thing it hears


def test_the_terminal_does_what_the_routes_do(bellhop):
    bellhop.add(id="a", tenant="acme")
    bellhop.add(id="a2", tenant="zorg", instance="a")
    ambiguous = bellhop.cli("link", "--instance", "a", check=False)
    assert ambiguous.returncode == 1 and "--tenant" in ambiguous.stderr
    who = ["--instance", "a", "--tenant", "acme"]
    assert len(bellhop.cli("link", *who).stdout.strip()) == 8
    bellhop.cli("link", "add", *who, "--platform", "discord", "--user", "u1", "--bot", "app1")
    bellhop.cli("scope", "claim", *who, "--platform", "discord", "--guild", "g", "--channel", "*")
    bellhop.cli("principal", "set", *who, "--mode", "allow-list", "--allow", "u1,u2")
    bellhop.cli("policy", "set", *who, "--platform", "discord", "--require-address", "--free", "c1")
    bellhop.cli("dm-default", "set", *who, "--platform", "discord", "--user", "u1")
    other = ["--instance", "a", "--tenant", "zorg"]
    taken = bellhop.cli("scope", "claim", *other, "--platform", "discord", "--guild", "g", "--channel", "*",
                        check=False)
    assert taken.returncode == 1 and "another instance" in taken.stderr
    for kind in ("bindings", "scopes", "principals", "policies", "dmDefaults"):
        assert [g["tenant"] for g in grants(bellhop, kind)] == ["acme"], kind
    bellhop.cli("scope", "release", *who, "--platform", "discord", "--guild", "g", "--channel", "*")
    bellhop.cli("link", "remove", *who, "--platform", "discord", "--user", "u1")
    assert grants(bellhop, "scopes") == grants(bellhop, "bindings") == grants(bellhop, "dmDefaults") == []
    for words in (["scope"], ["scope", "claim"], ["principal", "set"], ["policy", "default"], ["link"],
                  ["why", "--message", "m"]):
        assert bellhop.cli(*words, check=False).returncode == 2, words

"""Delivering to agents over /v1: addresses, receipts, idempotency, the mailbox behind every substrate."""
import json
import os
from signal import SIGHUP

import pytest

from conftest import wait_for
from dispatch_rig import Sender, augment, config, template
from v1 import make_key


@pytest.fixture
def drop(tmp_path):
    folder = tmp_path / "drop"
    folder.mkdir()
    return folder


@pytest.fixture
def house(make_bellhop, drop):
    """A server with an agent per kind that needs nobody else."""
    return make_bellhop(config(f"id: filer, substrate: file, dir: {drop}, name: The Filer",
                               "id: nobody, substrate: none, sessions: ['kitchen@2', attic]",
                               "id: ann@work, substrate: none",
                               "id: größe/1, substrate: none, sessions: [ü/ö]",
                               "id: theirs, substrate: none, tenant: other",
                               "id: bot, substrate: relay, tenant: t"))


def files(drop):
    return sorted(p.name for p in drop.iterdir() if not p.name.startswith("."))


def test_the_agents_of_a_tenant_are_listed_with_what_they_can(house):
    agents = Sender(house).get("/v1/agents").json
    assert agents[0] == {"agent_id": "filer", "agent_name": "The Filer",
                         "capabilities": ["deliver", "augment", "template"]}
    assert [a["agent_id"] for a in agents] == ["filer", "nobody", "ann@work", "größe/1", "bot"]
    assert agents[-1]["capabilities"] == ["deliver", "wake", "augment", "template"]
    assert [a["agent_id"] for a in Sender(house, "other").get("/v1/agents").json][-1] == "theirs"


def test_a_key_for_one_agent_sees_no_other(house):
    bound = Sender(house, agent="filer")
    assert [a["agent_id"] for a in bound.get("/v1/agents").json] == ["filer"]
    assert bound.deliver("nobody", augment("x")).status == 404
    assert bound.status("nobody").status == 404


def test_a_delivery_becomes_a_file_with_the_body_of_the_contract(house, drop):
    payload = augment("grüß 😀", "d-1", event_type="deploy", correlation_id="c1")
    answer = Sender(house).deliver("filer", payload)
    assert answer.status == 200
    receipt = answer.json
    assert set(receipt) == {"delivered_at", "delivery_id"} and receipt["delivery_id"] == "d-1"
    assert isinstance(receipt["delivered_at"], int)
    wait_for(lambda: files(drop) == ["d-1.json"])
    text = (drop / "d-1.json").read_text()
    assert json.loads(text) == {"agent_id": "filer", **payload}
    assert text.startswith('{"agent_id":"filer","kind":"augment","content":"grüß 😀","meta":{"dispatch_id":"d-1",')


def test_both_kinds_of_one_dispatch_have_files_of_their_own(house, drop):
    sender = Sender(house)
    assert sender.deliver("filer", augment("a", "both")).status == 200
    wait_for(lambda: files(drop) == ["both.json"])
    assert sender.deliver("filer", template("b", "both")).status == 200
    wait_for(lambda: files(drop) == ["both.json", "both.template.json"])
    assert json.loads((drop / "both.template.json").read_text())["prompt"] == "b"


def test_no_delivery_takes_the_place_of_another_in_the_drop(house, drop):
    """Tenants that share the agent, and wakes, have ids of their own."""
    one, two = Sender(house), Sender(house, tenant="u")
    assert one.deliver("filer", augment("of t", "same")).status == 200
    assert two.deliver("filer", augment("of u", "same")).status == 200
    assert one.wake("filer", {"context": "a wake"}, Idempotency_Key="k").status == 200
    assert one.deliver("filer", augment("no wake", "wake-k")).status == 200
    bare = augment("neither", "wake-k2")
    del bare["meta"]["origin"]
    assert one.deliver("filer", bare).status == 200
    assert one.wake("filer", {"context": "another"}, Idempotency_Key="k2").status == 200
    said = {"of t", "of u", "a wake", "no wake", "neither", "another"}
    wait_for(lambda: {json.loads((drop / f).read_text())["content"] for f in files(drop)} == said)
    assert len(files(drop)) == 6


def test_a_repeat_is_one_effect_and_as_many_successes(house, drop):
    sender = Sender(house)
    first = sender.deliver("filer", augment("once", "same")).json
    wait_for(lambda: files(drop) == ["same.json"])
    (drop / "same.json").unlink()
    again = sender.deliver("filer", augment("once", "same"))
    assert again.status == 200
    warnings = again.json.pop("warnings")
    assert len(warnings) == 1 and "before" in warnings[0]
    assert {k: v for k, v in again.json.items() if k != "warnings"} == first
    house.restart()
    assert sender.ask("POST", sender.path("filer", "deliver"), augment("once", "same")).json["warnings"] == warnings
    assert sender.deliver("filer", augment("next", "other")).status == 200
    wait_for(lambda: files(drop) == ["other.json"])


def test_a_repeat_after_a_restart_gets_the_first_receipt(house):
    sender = Sender(house)
    first = {f"d{i}": sender.deliver("nobody", augment("x", f"d{i}")).json for i in range(40)}
    house.kill()
    house.start()
    sender = Sender(house)
    for name, receipt in first.items():
        again = sender.deliver("nobody", augment("x", name)).json
        assert again.pop("warnings") != receipt.pop("warnings")  # one sentence more
        assert again == receipt
    assert house.instance("agent:nobody")["entries"] == 40


def test_path_tricks_in_a_dispatch_id_stay_in_the_directory(house, drop):
    sender = Sender(house)
    ids = ["../evil", "/etc/passwd", "a/b", ".hidden", "..", "-rf", "x" * 200, "nul\x00byte", "ümlaut", "a\nb"]
    for name in ids:
        answer = sender.deliver("filer", augment("x", name))
        assert answer.status == 200 and answer.json["delivery_id"] == name, name
    wait_for(lambda: len(files(drop)) == len(ids))
    assert all(f.startswith("sha256-") and f.endswith(".json") for f in files(drop))
    assert sorted(os.listdir(drop.parent)) == ["drop"]
    assert {json.loads(p.read_text())["meta"]["dispatch_id"] for p in drop.iterdir()} == set(ids)


def test_what_nobody_can_write_waits_and_arrives_later_in_order(house, drop):
    sender = Sender(house)
    drop.rename(drop.parent / "away")
    assert sender.deliver("filer", augment("1", "w1")).status == 200
    wait_for(lambda: house.instance("agent:filer")["entries"] == 1)
    wait_for(lambda: "agent not reached" in house.log())
    late = sender.deliver("filer", augment("2", "w2")).json
    assert late["delivery_skipped"] is True and "cannot open" in late["warnings"][0]
    assert sender.status("filer").json["status"] == "unknown"
    (drop.parent / "away").rename(drop)
    wait_for(lambda: files(drop) == ["w1.json", "w2.json"])
    wait_for(lambda: house.instance("agent:filer")["entries"] == 0)
    assert (drop / "w1.json").stat().st_mtime_ns <= (drop / "w2.json").stat().st_mtime_ns
    assert sender.status("filer").json == {"status": "idle"}


def test_after_too_many_attempts_it_is_parked_with_the_reason_and_can_be_redriven(make_bellhop, drop):
    house = make_bellhop(config(f"id: filer, substrate: file, dir: {drop}", attempts=3))
    sender = Sender(house)
    drop.rename(drop.parent / "away")
    assert sender.deliver("filer", augment("1", "p1")).status == 200
    wait_for(lambda: (house.instance("agent:filer") or {}).get("parked") == 1, timeout=20)
    shown = json.loads(house.cli("mailbox", "show", "agent:filer", "--tenant", "t", "--json").stdout)
    assert "cannot open" in json.dumps(shown)
    (drop.parent / "away").rename(drop)
    house.cli("mailbox", "redrive", "agent:filer", "--tenant", "t")
    wait_for(lambda: files(drop) == ["p1.json"])


def test_a_symlinked_drop_directory_is_refused(make_bellhop, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    server = make_bellhop(config(f"id: filer, substrate: file, dir: {tmp_path}/link"))
    sender = Sender(server)
    assert sender.deliver("filer", augment("x")).status == 200
    wait_for(lambda: "not a real directory" in server.log())
    assert list(real.iterdir()) == [] and sender.status("filer").json["status"] == "unknown"


def test_none_keeps_it_in_the_mailbox(house):
    receipt = Sender(house).deliver("nobody", augment("x", "n1")).json
    assert receipt["delivery_skipped"] is True and "mailbox" in receipt["warnings"][0]
    assert house.instance("agent:nobody")["entries"] == 1


def test_addresses_split_at_the_first_at_sign_unless_the_whole_is_an_agent(house):
    sender = Sender(house)
    assert "session_id" not in sender.deliver("ann@work", augment("x")).json
    assert sender.deliver("ann@work@desk", augment("x")).status == 404  # nobody is called ann
    assert sender.deliver("nobody@kitchen@2", augment("x")).json["session_id"] == "kitchen@2"
    both = sender.deliver("nobody@kitchen", {**augment("x"), "session_id": "attic"}).json
    assert both["session_id"] == "attic"
    assert sender.deliver("größe/1", augment("x")).status == 200
    assert sender.deliver("größe/1@ü/ö", augment("x")).json["session_id"] == "ü/ö"
    unknown = sender.deliver("nobody@cellar", augment("x")).json
    assert "session_id" not in unknown and "session" in unknown["warnings"][1]


def test_bad_input_is_told_apart(house):
    sender = Sender(house)

    def failed(answer, status, code, cause="client_validation"):
        assert (answer.status, answer.json["code"]) == (status, code), answer.text
        if cause:
            assert answer.json["class"] == "DeliveryFailedError"
            assert answer.json["cause_kind"] == cause and answer.json["http_status"] is None
            assert answer.json["agent_id"]

    failed(sender.deliver("stranger", augment("x")), 404, "unknown_agent")
    failed(sender.deliver("theirs", augment("x")), 404, "unknown_agent")
    failed(sender.deliver("nobody", {"kind": "binary", "content": "x", "meta": {"dispatch_id": "1"}}), 400, "invalid")
    failed(sender.deliver("nobody", {"kind": "augment", "meta": {"dispatch_id": "1"}}), 400, "invalid")
    failed(sender.deliver("nobody", {"kind": "template", "content": "x", "meta": {"dispatch_id": "1"}}), 400, "invalid")
    failed(sender.deliver("nobody", {"kind": "augment", "content": "x"}), 400, "invalid")
    failed(sender.deliver("nobody", augment("x", "y" * 201)), 400, "invalid")
    failed(sender.deliver("nobody", {**augment("x"), "session_id": "s\0"}), 400, "invalid")
    assert sender.wake("nobody", {"context": "x", "session_id": "s\0"}).status == 400
    failed(sender.deliver("nobody", augment("x" * (512 * 1024 + 1))), 413, "too_large", cause=None)
    failed(sender.deliver("nobody", {**augment("x"), "agent_id": "filer"}), 400, "invalid", cause=None)
    assert sender.deliver("nobody", augment("x" * 10_000_000)).status == 413
    assert sender.deliver("nobody", augment("x" * (512 * 1024))).status == 200
    assert sender.ask("POST", "/v1/agents/nobody/deliver", {"payload": augment("x")}).status == 200
    assert house.post("/v1/agents/nobody/deliver", augment("x")).status == 401


def test_a_gateway_gets_it_as_a_message_and_what_it_answers_is_a_reply(house, dial):
    cred = house.add("--instance", "bot")
    sender = Sender(house)
    skipped = sender.deliver("bot", augment("stored", "r0")).json
    assert skipped["delivery_skipped"] is True
    with_gateway = dial(house, cred)
    first = with_gateway.next("inbound")["event"]
    assert first["text"].endswith("stored") and "morning-status" in first["text"]
    assert sender.status("bot").json["status"] in ("active", "idle")
    assert sender.deliver("bot@desk", template("do it", "r1")).json["session_id"] == "desk"
    ev = with_gateway.next("inbound")["event"]
    assert ev["text"] == "do it" and ev["message_id"] == "r1"
    told = ev["dispatch"]
    assert told.pop("sent_at") > 0
    assert told == {"kind": "template", "skill_name": "morning-status", "trigger_kind": "cron", "session_id": "desk",
                    "dispatch_id": "r1", "origin": {"skill_name": "morning-status", "trigger_kind": "cron"}}
    source = ev["source"]
    assert (source["platform"], source["chat_type"], source["user_id"]) == ("relay", "dm", "skill:morning-status")
    assert source["chat_id"] != first["source"]["chat_id"]
    result = with_gateway.act(op="send", chat_id=source["chat_id"], content="done", reply_to="r1")
    assert result["success"], result
    replies = sender.replies("bot").json
    reply = replies["replies"][0]
    assert (reply["content"], reply["session_id"], reply["in_reply_to"], reply["dispatch_id"]) == (
        "done", "desk", "r1", "r1")
    assert replies["next"] == reply["cursor"] == result["message_id"]
    house.restart()
    assert sender.ask("GET", sender.path("bot", "replies")).json == replies
    assert sender.replies("bot", after=replies["next"]).json == {"replies": [], "next": replies["next"]}


def test_a_header_names_the_caller_where_the_key_may_say_so(make_bellhop, drop):
    agents = config(f"id: filer, substrate: file, dir: {drop}")
    house = make_bellhop(agents.replace("retry: 50ms", "caller_header: X-Agent-Id, retry: 50ms"))
    for i, flags in enumerate(((), ("--attest",))):
        sender = Sender(house, key=make_key(house, "t", *flags, identity=f"p{i}"))
        answer = sender.ask("POST", sender.path("filer", "deliver"), augment("x", f"c{i}"), **{"x-agent-id": "ann"})
        assert answer.status == 200
        wait_for(lambda: f"c{i}.json" in files(drop))
    told = [json.loads((drop / f"c{i}.json").read_text())["meta"]["origin"] for i in range(2)]
    assert told == [{"skill_name": "morning-status", "trigger_kind": "cron", **more}
                    for more in ({}, {"caller_agent_id": "ann"})]


def test_doctor_list_and_metrics_say_how_agents_are(make_bellhop, drop, tmp_path):
    fifo = tmp_path / "fifo"
    fifo.write_text("no fifo")
    house = make_bellhop(config(f"id: filer, substrate: file, dir: {drop}", f"id: pipe, substrate: pipe, path: {fifo}"))
    checks = json.loads(house.cli("doctor", "--json", check=False).stdout)
    found = [(c["result"], c["detail"]) for c in (checks if isinstance(checks, list) else checks["checks"])
             if c["check"] == "agents"]
    assert [r for r, _ in found] == ["ok", "bad"] and "mkfifo" in found[1][1]
    sender = Sender(house)
    assert sender.deliver("filer", augment("x", "m1")).status == 200
    assert sender.deliver("filer", augment("x", "m1")).status == 200
    wait_for(lambda: house.instance("agent:filer")["entries"] == 0)
    assert house.metric("dispatch_delivered_total") == 1 and house.metric("dispatch_repeated_total") == 1
    listed = {a["agent_id"]: a for a in json.loads(house.cli("dispatch", "list", "--json").stdout)}
    assert (listed["filer"]["substrate"], listed["filer"]["target"], listed["filer"]["tenant"]) == ("file", str(drop), "t")
    assert listed["filer"]["state"] == "live" and listed["filer"]["waiting"] == 0
    checks = json.loads(house.cli("doctor", "--json", check=False).stdout)
    told = [c["detail"] for c in checks if c["check"] == "dispatch"]
    assert len(told) == 2 and "pipe" in told[0] and told[1].startswith("1 of 2")


def test_doctor_and_list_know_a_program_that_is_not_there(make_bellhop, tmp_path):
    house = make_bellhop(config("id: a, substrate: exec, command: [/bin/cat]",
                                f"id: b, substrate: exec, command: [{tmp_path}/none, x]"))
    Sender(house)  # its key makes the tenant known
    listed = {a["agent_id"]: a for a in json.loads(house.cli("dispatch", "list", "--json").stdout)}
    assert listed["a"]["status"] == "idle" and "detail" not in listed["a"]
    assert listed["b"]["status"] == "unknown" and "not there" in listed["b"]["detail"]
    assert "the program is not there" in house.cli("dispatch", "list").stdout
    assert "agent b: the program is not there" in house.cli("doctor", check=False).stdout


def test_the_command_line_delivers_wakes_asks_and_reads_replies(house, dial, drop):
    house.add("--instance", "bot")
    said = house.cli("dispatch", "deliver", "filer", "hello", "--tenant", "t", "--id", "cli1", "--kind", "template")
    assert said.stdout == "delivered cli1\n"
    wait_for(lambda: files(drop) == ["cli1.json"])
    body = json.loads((drop / "cli1.json").read_text())
    assert body["prompt"] == "hello" and body["meta"]["origin"] == {"skill_name": "cli", "trigger_kind": "cli"}
    assert house.cli("dispatch", "wake", "filer", "c", "--tenant", "t").stdout == "not woken\n"
    refused = house.cli("dispatch", "request", "filer", "x", "--tenant", "t", "--timeout", "100ms", check=False)
    assert refused.returncode == 1 and "No answer within 100 ms" in refused.stderr
    assert house.cli("dispatch", "replies", "bot", "--tenant", "t").stdout == ""
    assert house.cli("dispatch", "deliver", "stranger", "x", "--tenant", "t", check=False).returncode == 1


def test_the_command_line_asks_for_a_tenant_only_where_several_have_the_agent(house):
    house.add(tenant="t")
    house.add(tenant="u")
    assert house.cli("dispatch", "deliver", "theirs", "x", "--id", "1").stdout == "waits 1\n"
    assert house.cli("dispatch", "wake", "theirs@desk", "x").stdout == "not woken\n"
    assert house.instance("agent:theirs")["tenant"] == "other"
    for agent in ("nobody", "stranger"):
        asked = house.cli("dispatch", "deliver", agent, "x", check=False)
        assert asked.returncode == 1 and "--tenant" in asked.stderr


def test_an_agent_on_the_relay_keeps_its_mailbox_over_a_reload(house):
    sender = Sender(house)
    for n in range(3):
        assert sender.deliver("bot", augment("x", f"d{n}")).status == 200
        assert house.instance("bot")["entries"] == n + 1
        house.config.write_text(house.config.read_text() + f"  - {{id: more{n}, substrate: none}}\n")
        house.signal(SIGHUP)
        wait_for(lambda: f"more{n}" in [a["agent_id"] for a in sender.get("/v1/agents").json])


def test_agents_come_go_and_change_with_a_reload(house, drop, tmp_path):
    sender = Sender(house)
    assert sender.deliver("nobody", augment("kept", "k1")).status == 200
    other = tmp_path / "other"
    other.mkdir()
    house.config.write_text(config(f"id: filer, substrate: file, dir: {drop}",
                                   f"id: nobody, substrate: file, dir: {drop}").format(state=house.state))
    house.signal(SIGHUP)
    wait_for(lambda: files(drop) == ["k1.json"])  # what waited for nobody has somewhere to go now
    assert sender.deliver("ann@work", augment("x")).status == 404
    house.config.write_text(config("id: nobody, substrate: file").format(state=house.state))
    house.signal(SIGHUP)
    wait_for(lambda: "kept the old configuration" in house.log())
    assert [a["agent_id"] for a in sender.get("/v1/agents").json] == ["filer", "nobody"]

"""The queue of people who wrote to a bot and are linked to nobody: approve, deny, block, receipts, tenants, floods."""
import json
import re

import pytest

from conftest import wait_for
from dashboard_rig import SECRET, Person
from relay import http
from test_telegram import ANN, GROUP, TelegramSim

BOB, EVE = 6, 7
NAMES = {ANN: "Ann", BOB: "Bob", EVE: "<img/src=x/onerror=window.hit=1>"}
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
admin: {{{{token: {secret}}}}}
platforms:
  - {{{{platform: telegram, bot: own_bot, token: "1:own", api_base: "{own}", mode: {mode}, tenant: bank}}}}
  - {{{{platform: telegram, bot: any_bot, token: "2:any", api_base: "{any}", mode: polling}}}}
  - {{{{platform: web, bot: lobby}}}}
{more}"""


def user(id, **more):
    return {"id": id, "is_bot": False, "first_name": NAMES.get(id, f"person {id}"), **more}


def simulator(token, name):
    s = TelegramSim()
    s.bot(token, name)
    for id, words in NAMES.items():
        s.person(id, words)
    s.group(GROUP, "Team")
    return s


@pytest.fixture
def town(make_bellhop):
    """The bank's own bot, a bot for everybody, and an instance of each of two tenants."""
    class Town:
        own, any = simulator("1:own", "own_bot"), simulator("2:any", "any_bot")

        def start(self, more="", mode="polling"):
            self.server = make_bellhop(CONFIG.format(own=self.own.url, any=self.any.url, secret=SECRET, more=more, mode=mode))
            self.bank = self.server.add("--instance", "desk", tenant="bank", platform="telegram", bot="own_bot", open=False)
            self.zorg = self.server.add("--instance", "z", tenant="zorg", platform="telegram", bot="any_bot", open=False)
            return self.server

        def people(self, *words):
            return json.loads(self.server.cli("pairing", "list", "--json", *words).stdout)

        def waits(self, name, n=1, sim="any_bot"):
            return wait_for(lambda: [p for p in self.people("--state", "waiting", "--bot", sim) if p["userName"] == name and p["messages"] >= n])[0]

        def say(self, sim, who, text="hello", **more):
            return sim.say(more.pop("chat", who), text, user=user(who), **more)

        def decide(self, verb, person, *words, **how):
            return self.server.cli("pairing", verb, person["id"], *words, **how)

    t = Town()
    yield t
    t.own.close()
    t.any.close()


def test_a_stranger_is_listed_let_in_and_heard_on_that_bot_only(town, dial):
    server = town.start()
    gateway = dial(server, town.zorg, hello=("telegram", "any_bot"))
    town.say(town.any, ANN, "a secret word")
    p = town.waits("Ann")
    assert {k: p[k] for k in ("platform", "bot", "userId", "chatType", "state", "messages")} == {
        "platform": "telegram", "bot": "any_bot", "userId": str(ANN), "chatType": "dm", "state": "waiting", "messages": 1}
    assert "tenant" not in p and p["firstAt"] == p["lastAt"] and p["toldAt"] is None
    assert re.fullmatch("[0-9a-f]{16}", p["id"]) and town.any.sent(ANN) == []  # nobody is told unless it is configured
    said = town.decide("approve", p, "--instance", "z", "--tenant", "zorg")
    assert "its owner" in said.stderr
    assert town.people() == []
    assert [(b["userId"], b["bots"]) for b in json.loads(server.cli("link", "list", "--json").stdout)] == [(str(ANN), ["any_bot"])]
    town.say(town.any, ANN, "now")
    gateway.hear("now")
    assert gateway.act(op="send", chat_id=str(ANN), content="welcome", reply_to=None, metadata={}, platform="telegram", bot="any_bot")["success"]
    town.say(town.own, ANN, "elsewhere")  # the link counts on the bot it was made through
    assert town.waits("Ann", sim="own_bot")["tenant"] == "bank"
    town.say(town.any, BOB)
    second = town.decide("approve", town.waits("Bob"), "--instance", "z", "--json")
    assert json.loads(second.stdout)["owner"] is False
    assert town.decide("approve", p, "--instance", "z", check=False).returncode == 1  # nobody waits there any more
    audit = json.loads(server.cli("audit", "--json").stdout)
    entry = next(e for e in audit if "approvePairing" in json.dumps(e))
    assert {r["record"] for r in entry["records"]} == {"binding", "pairing"} and entry["tenant"] == "zorg"
    assert "a secret word" not in json.dumps(audit) and b"a secret word" not in b"".join(f.read_bytes() for f in server.state.iterdir() if f.is_file())


def test_who_is_denied_or_blocked_is_told_nothing_and_can_be_restored(town):
    server = town.start("pairing: {{receipt: true, receipt_text: Please wait.}}\n")
    town.say(town.any, ANN)
    town.say(town.any, BOB)
    ann, bob = town.waits("Ann"), town.waits("Bob")
    wait_for(lambda: town.any.texts(ANN) == town.any.texts(BOB) == ["Please wait."])
    town.decide("deny", ann)
    assert "restore" in town.decide("block", bob).stderr
    town.any.person(EVE, "Eve")
    for _ in range(3):
        for who in (ANN, BOB, EVE):
            town.say(town.any, who)
    town.waits(NAMES[EVE], 3)
    assert town.people("--state", "waiting") == [p for p in town.people() if p["userId"] == str(EVE)]
    states = {p["userId"]: (p["state"], p["messages"]) for p in town.people()}
    assert states[str(ANN)][0] == "denied" and states[str(BOB)] == ("blocked", 1)
    wait_for(lambda: town.any.texts(EVE) == ["Please wait."])  # once a day
    server.restart()  # decisions and receipts are on disk
    for who in (ANN, BOB, EVE):
        town.say(town.any, who)
    wait_for(lambda: {p["userId"]: p["messages"] for p in town.people()}[str(EVE)] == 4)
    assert {p["userId"]: p["state"] for p in town.people()} == {str(ANN): "denied", str(BOB): "blocked", str(EVE): "waiting"}
    assert town.any.texts(ANN) == town.any.texts(BOB) == town.any.texts(EVE) == ["Please wait."]
    assert server.metric('pairing_people{state="blocked"}') == 1
    town.decide("restore", bob)
    town.decide("forget", ann)
    assert {p["userId"]: p["state"] for p in town.people()} == {str(BOB): "waiting", str(EVE): "waiting"}
    town.decide("approve", town.waits(NAMES[EVE]), "--instance", "z")
    wait_for(lambda: len(town.any.texts(EVE)) == 2 and "let in" in town.any.texts(EVE)[1])  # who got a receipt learns how it ended


def test_only_who_speaks_to_the_bot_is_listed(town):
    server = town.start()
    town.say(town.any, BOB, "among ourselves", chat=GROUP)
    town.any.say(GROUP, "beep", user=user(99, is_bot=True))
    server.write("a visitor")  # has no account to be linked
    town.say(town.any, ANN, "@any_bot hello", chat=GROUP)
    p = town.waits("Ann")
    assert p["chatType"] == "group" and [x["userId"] for x in town.people()] == [str(ANN)]
    code = server.cli("link", "--instance", "z", "--platform", "telegram").stdout.strip()
    town.say(town.any, ANN, f"/link {code}")
    wait_for(lambda: town.people() == [])  # linked without the queue
    off = town.start("pairing: {{keep: 0s}}\n")
    town.say(town.any, BOB)
    town.own.say(BOB, "hello", user=user(BOB))
    wait_for(lambda: off.metric("events_unrouted_total") + off.metric("events_gated_total") >= 1)
    assert json.loads(off.cli("pairing", "list", "--json").stdout) == []


def test_a_tenant_sees_and_decides_about_its_own_bots_alone(town):
    server = town.start()
    town.say(town.own, ANN)
    town.say(town.any, BOB)
    town.say(town.own, EVE)
    ann, bob, eve = town.waits("Ann", sim="own_bot"), town.waits("Bob"), town.waits(NAMES[EVE], sim="own_bot")
    views = {}
    for tenant in ("bank", "zorg"):
        views[tenant] = Person(server)
        assert views[tenant].sign_in(token=server.cli("token", "dashboard", "--tenant", tenant).stdout.strip()).status == 200
    seen = views["bank"].call("listPairings")
    assert {p["userId"] for p in seen["people"]} == {str(ANN), str(EVE)} and seen["waiting"] == 2
    for asked in ({}, {"tenant": "bank"}, {"platform": "telegram", "bot": "own_bot"}, {"tenant": ""}):
        assert views["zorg"].call("listPairings", **asked)["people"] == [] and views["zorg"].call("listPairings", **asked)["waiting"] == 0
    first = views["bank"].call("listPairings", limit=1)
    assert first["next"] not in (ann["id"], eve["id"])  # it may be the id of another tenant's entry
    assert len(first["people"] + views["bank"].call("listPairings", after=first["next"])["people"]) == 2
    for after in (first["next"], ann["id"], bob["id"], "0" * 16):  # nobody learns which ids there are
        assert views["zorg"].ask("listPairings", {"after": after}).status == 410
    for op in ("approvePairing", "denyPairing", "blockPairing", "restorePairing", "forgetPairing"):
        for p in (ann, bob):
            answer = views["zorg"].ask(op, {"id": p["id"], "instance": "z", "tenant": "bank"})
            assert answer.status == 404, (op, answer.text)
        assert views["bank"].ask(op, {"id": bob["id"], "instance": "desk"}).status == 404
    assert views["bank"].ask("approvePairing", {"id": ann["id"], "instance": "z", "tenant": "zorg"}).status == 404
    assert server.cli("pairing", "approve", ann["id"], "--instance", "z", check=False).returncode == 1  # the bot is the bank's
    assert {p["state"] for p in town.people()} == {"waiting"}
    assert views["bank"].call("approvePairing", id=ann["id"], instance="desk")["owner"]
    views["bank"].call("blockPairing", id=eve["id"])
    assert [(p["userId"], p["state"]) for p in views["bank"].call("listPairings")["people"]] == [(str(EVE), "blocked")]
    entry = next(e for e in json.loads(server.cli("audit", "--json").stdout) if "blockPairing" in json.dumps(e))
    assert entry["tenant"] == "bank" and entry["by"] == "key" and entry["records"][0]["after"]["state"] == "blocked"
    reader = Person(server)
    reader.sign_in(token=server.cli("token", "dashboard", "--read-only").stdout.strip())
    assert len(reader.call("listPairings")["people"]) == 2 and reader.ask("denyPairing", {"id": bob["id"]}).status == 403


def test_who_is_erased_is_gone_from_the_queue(town):
    server = town.start()
    for sim in (town.own, town.any):
        town.say(sim, ANN)
        town.say(sim, BOB)
    town.waits("Bob")
    town.decide("block", town.waits("Ann", sim="own_bot"))
    town.waits("Ann")
    dry = json.loads(server.cli("erase", "--person", f"telegram:{ANN}", "--dry-run", "--json").stdout)
    assert dry["pairing"] == 2 and len(town.people()) == 4
    assert json.loads(server.cli("erase", "--person", f"telegram:{ANN}", "--yes", "--json").stdout)["pairing"] == 2
    assert {p["userId"] for p in town.people()} == {str(BOB)}
    server.cli("erase", "--tenant", "bank", "--yes")
    assert {p["bot"] for p in town.people()} == {"any_bot"}
    server.restart()
    assert [(p["userId"], p["bot"]) for p in town.people()] == [(str(BOB), "any_bot")]


def test_a_flood_of_strangers_costs_bounded_memory_and_few_writes(town):
    """1,200 people write through a webhook; the queue keeps the newest 1,000 of the bot, and the other bot's people stay."""
    server = town.start("public_url: https://relay.example.org\n", mode="webhook, webhook_secret: hook-secret_1")
    town.say(town.any, BOB)
    town.waits("Bob")
    before = server.metric("pairing_writes_total")
    for i in range(1, 1201):
        message = {"message_id": i, "date": 1, "chat": {"id": 1000 + i, "type": "private"}, "from": user(1000 + i), "text": "buy"}
        answer = http("POST", f"{server.url}/webhooks/telegram/own_bot", {"update_id": i, "message": message},
                      {"X-Telegram-Bot-Api-Secret-Token": "hook-secret_1"})
        assert answer.status == 200
    people = town.people("--bot", "own_bot")
    assert len(people) == 1000 and people[0]["userId"] == "2200" and people[-1]["userId"] == "1201"
    assert server.metric("pairing_messages_total") == 1201 and server.metric("pairing_pushed_out_total") == 200
    assert server.metric("pairing_writes_total") - before < 60
    town.waits("Bob")
    wait_for(lambda: server.metric("pairing_writes_total") >= before + 4)
    server.restart()
    assert {p["userId"] for p in town.people("--bot", "own_bot")} == {p["userId"] for p in people}

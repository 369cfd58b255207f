"""Whose bot: a link counts on the bot it was made through, an asserted bot gives no right, and a tenant's own bot is its own."""
import json
import re

import pytest

from conftest import Credential, rows_naming, wait_for
from test_enroll import provision, token
from test_manifest import announce
from test_telegram import ANN, GROUP, TelegramSim

BOB = 6
CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
platforms:
  - {{{{platform: telegram, bot: bank_bot, token: "1:bank", api_base: "{bank}", mode: polling{more}}}}}
  - {{{{platform: telegram, bot: evil_bot, token: "2:evil", api_base: "{evil}", mode: polling}}}}
"""


def person(id):
    return {"id": id, "is_bot": False, "first_name": f"person {id}"}


def simulator(bot_token, name):
    s = TelegramSim()
    s.bot(bot_token, name)
    s.person(ANN, "Ann")
    s.person(BOB, "Bob")
    s.group(GROUP, "Team")
    s.commands = None
    return s


@pytest.fixture
def town(make_bellhop):
    """Two tenants on one server, the bank and evil, and a bot that everybody takes for the bank's."""
    class Town:
        bank, evil = simulator("1:bank", "bank_bot"), simulator("2:evil", "evil_bot")

        def config(self, more=""):
            return CONFIG.format(bank=self.bank.url, evil=self.evil.url, more=more)

        def start(self, more=""):
            self.server = make_bellhop(self.config(more))
            return self.server

        def reserve(self):
            """The operator says that the bank's bot is the bank's, and starts again."""
            self.server.config.write_text(self.config(", tenant: bank").format(state=self.server.state))
            self.server.restart()

    t = Town()
    yield t
    t.bank.close()
    t.evil.close()


def post(server, credential, path, body):
    return server.post(path, body, headers={"Authorization": f"Bearer {credential.token()}"})


def code_of(server, credential, **body):
    return post(server, credential, "/manage/link", body).json["code"]


def linked(sim, chat, text, **more):
    """Sends a code to a bot; what the bot says to it."""
    before = len(sim.sent(chat))
    sim.say(chat, text, **more)
    wait_for(lambda: len(sim.sent(chat)) > before)
    return sim.sent(chat)[-1]["text"]


def send(gateway, chat, bot, text="spam"):
    return gateway.act(op="send", chat_id=str(chat), content=text, reply_to=None, metadata={}, platform="telegram", bot=bot)


def why(server):
    newest = json.loads(server.cli("why", "--platform", "telegram", "--json").stdout)[0]
    return {v["instance"]: v["reason"] for v in newest["verdicts"]}


def self_provisioned(server, tenant, gateway, bot):
    got = provision(server, token(server, "provision", tenant=tenant), gateway, platform="telegram", botId=bot)
    assert got.status == 200
    return Credential(f"GATEWAY_RELAY_URL=\nGATEWAY_RELAY_ID={gateway}\nGATEWAY_RELAY_SECRET={got.json['secret']}\n")


# ---- a link counts on the bot it was made through ----


def test_who_is_linked_through_one_bot_reaches_the_owner_of_another(town, dial):
    server = town.start()
    bank = server.add(id="desk", tenant="bank", platform="telegram", bot="bank_bot")
    evil = server.add(id="e", tenant="evil", platform="telegram", bot="evil_bot", open=False)
    desk, e = dial(server, bank, hello=("telegram", "bank_bot")), dial(server, evil, hello=("telegram", "evil_bot"))
    assert "Linked" in linked(town.evil, ANN, f"/link {code_of(server, evil)}")
    town.evil.say(ANN, "my friend")
    e.hear("my friend")
    for _ in range(2):
        town.bank.say(ANN, "my balance, please")
        desk.hear("my balance, please")
        assert e.quiet(seconds=1)
        assert why(server) == {"desk": "open", "e": "linked_on_other_bot"}
        e.send({"type": "hello", "platform": "telegram", "botId": "bank_bot"})
        e.next("descriptor")
        assert "error" in send(e, ANN, "bank_bot")
        assert town.bank.sent(ANN) == []
        server.restart()
        desk, e = dial(server, bank, hello=("telegram", "bank_bot")), dial(server, evil, hello=("telegram", "evil_bot"))
    assert send(e, ANN, "evil_bot", "still here")["success"]
    assert [(b["userId"], b["bots"]) for b in json.loads(server.cli("link", "list", "--json").stdout)] == [(str(ANN), ["evil_bot"])]


def test_a_code_for_a_bot_works_on_that_bot(town):
    server = town.start()
    c = server.add(id="e", tenant="evil", platform=None)
    assert post(server, c, "/manage/link", {"bot": "evil_bot"}).status == 400  # of which platform?
    assert post(server, c, "/manage/link", {"platform": "telegram", "bot": "*"}).status == 400  # the operator's to say
    assert post(server, c, "/manage/link", {"platform": "telegram", "bot": 7}).status == 400
    asked = post(server, c, "/manage/link", {"platform": "telegram", "bot": "evil_bot"}).json
    assert asked["bot"] == "evil_bot" and asked["platform"] == "telegram"
    assert "not valid" in linked(town.bank, ANN, f"/link {asked['code']}")
    assert "Linked" in linked(town.evil, ANN, f"/link {asked['code']}")
    assert "person linked: platform=telegram bot=evil_bot tenant=evil instance=e\n" in server.log()


def test_nobody_is_linked_in_the_name_of_a_group(town, dial):
    """Anonymous admins all have the id of their group: a link to it would take what the others write."""
    server = town.start()
    desk = dial(server, server.add(id="desk", tenant="bank", platform="telegram", bot="bank_bot"))
    evil = server.add(id="e", tenant="evil", platform="telegram", bot="evil_bot", open=False)
    e, code = dial(server, evil), code_of(server, evil)
    anonymous = {"user": {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"},
                 "sender_chat": town.bank.chat_of(town.bank.chats[GROUP])}
    server.cli("link", "add", "--tenant", "evil", "--instance", "e", "--platform", "telegram", "--user", str(GROUP), "--bot", "bank_bot")
    for name in (anonymous, {**anonymous, "sender_chat": {"id": -200, "type": "channel", "title": "News"}}):
        before = town.bank.say(GROUP, f"/link {code}", **name)
        wait_for(lambda: any("own name" in m.get("text", "") for m in town.bank.sent(GROUP) if m["message_id"] > before))
    assert [b["userId"] for b in json.loads(server.cli("link", "list", "--json").stdout)] == [str(GROUP)]
    town.bank.say(GROUP, "said by another admin", **anonymous)
    desk.hear("said by another admin")
    assert e.quiet(seconds=1) and desk.quiet(seconds=0.1) and "error" in send(e, GROUP, "bank_bot")
    assert "Linked" in linked(town.bank, ANN, f"/link {code}")  # the code was not used up


def test_a_code_ends_with_its_instance(town, dial):
    server = town.start()
    code = code_of(server, server.add(id="old", instance="desk", tenant="bank", platform="telegram", bot="bank_bot", open=False))
    server.cli("erase", "--tenant", "bank", "--yes")
    assert "link_code" not in rows_naming(server, "desk")
    new = server.add(id="new", instance="desk", tenant="bank", platform="telegram", bot="bank_bot", open=False)
    assert "not valid" in linked(town.bank, ANN, f"/link {code}")
    assert "Linked" in linked(town.bank, ANN, f"/link {code_of(server, new)}")


def test_the_operator_links_on_one_bot_on_several_or_on_all(town, dial):
    server = town.start()
    c = server.add(id="e", tenant="evil", platform=None)
    g = dial(server, c, hello=("telegram", "evil_bot"))
    who = ["--instance", "e", "--platform", "telegram", "--user", str(ANN)]

    def bots():
        return [b["bots"] for b in json.loads(server.cli("link", "list", "--json").stdout)]

    assert "--bot" in server.cli("link", "add", *who, check=False).stderr  # there are two
    server.cli("link", "add", *who, "--bot", "evil_bot")
    server.cli("link", "add", *who, "--bot", "bank_bot")
    assert bots() == [["evil_bot", "bank_bot"]]
    server.cli("link", "remove", *who, "--bot", "evil_bot")
    town.evil.say(ANN, "unheard")
    town.bank.say(ANN, "heard")
    g.hear("heard")
    server.cli("link", "remove", *who)
    assert bots() == []
    several = server.cli("link", "--instance", "e", "--platform", "telegram", "--bot", "bank_bot", "--bot", "evil_bot")
    assert "Linked" in linked(town.evil, ANN, f"/link {several.stdout.strip()}")
    assert bots() == [["bank_bot", "evil_bot"]]
    every = server.cli("link", "--instance", "e", "--bot", "*").stdout.strip()
    assert "Linked" in linked(town.bank, BOB, f"/link {every}", user=person(BOB))
    assert sorted(bots()) == [["*"], ["bank_bot", "evil_bot"]]
    assert "bank_bot,evil_bot" in server.cli("link", "list").stdout.replace(", ", ",")
    town.evil.say(BOB, "everywhere", user=person(BOB))
    g.hear("everywhere")


def test_a_link_on_a_bot_that_is_not_there_is_told(town):
    server = town.start()
    server.add(id="e", tenant="evil", platform=None)
    who = ["--instance", "e", "--platform", "telegram"]
    for words in (["link", *who, "--bot", "bank_bto"], ["link", "add", *who, "--user", str(ANN), "--bot", "bank_bto"]):
        assert 'no bot "bank_bto" of telegram' in server.cli(*words).stderr
    for words in (["link", *who, "--bot", "*"], ["link", "add", *who, "--user", str(ANN), "--bot", "bank_bot"]):
        assert "Warning" not in server.cli(*words).stderr


def test_gateway_add_prints_a_code_for_each_bot(town):
    server = town.start()
    done = server.cli("gateway", "add", "--tenant", "t", "--id", "g", "--platform", "telegram", "--bot", "bank_bot",
                      "--bot", "evil_bot")
    assert len(done.stdout.splitlines()) == 3
    codes = dict(re.findall(r"send the bot (\w+) this message within ten minutes: (/link \w{8})", done.stderr))
    assert set(codes) == {"bank_bot", "evil_bot"}
    assert "not valid" in linked(town.bank, ANN, codes["evil_bot"])
    assert "Linked" in linked(town.evil, ANN, codes["evil_bot"])
    (listed,) = json.loads(server.cli("gateway", "list", "--json").stdout)
    assert [b["bot"] for b in listed["bots"]] == ["bank_bot", "evil_bot"]
    for words in (["--bot", "b"], ["--platform", "telegram"], ["--platform", "telegram", "--platform", "web", "--bot", "b"]):
        assert server.cli("gateway", "add", "--tenant", "t", *words, check=False).returncode == 2


# ---- what a gateway asserts gives no right ----


def test_a_gateway_that_is_added_again_says_if_its_bot_is_open_still(town):
    server = town.start()
    server.add("--id", "desk", tenant="bank", platform="telegram", bot="bank_bot")
    server.cli("gateway", "revoke", "desk")
    words = ("gateway", "add", "--id", "desk", "--tenant", "bank", "--platform", "telegram", "--bot", "bank_bot")
    told = server.cli(*words).stderr
    assert "everybody who writes to the telegram bot bank_bot reaches the instance" in told
    server.cli(*re.search(r"bellhop (route remove .*)", told).group(1).split())
    server.cli("gateway", "revoke", "desk")
    assert "everybody" not in server.cli(*words).stderr


@pytest.mark.parametrize("running", [True, False])
def test_doctor_names_a_place_that_is_open_to_nobody(town, running):
    server = town.start()
    server.add("--id", "desk", tenant="bank", platform="telegram", bot="bank_bot")
    assert "is open to everybody" not in server.cli("doctor", check=False).stdout
    server.cli("gateway", "revoke", "desk")
    if not running:
        server.stop()
    told = server.cli("doctor", check=False).stdout
    assert "bank_bot on telegram is open to everybody, but instance desk of tenant bank is without a gateway" in told
    if not running:
        server.start()
    server.cli(*re.search(r"Close it with: bellhop (route remove [^.]*)", told).group(1).split())
    assert "is open to everybody" not in server.cli("doctor", check=False).stdout


def test_an_asserted_bot_neither_speaks_nor_fills_the_menu(town, dial):
    server = town.start()
    bank = dial(server, server.add(id="desk", tenant="bank", platform="telegram", bot="bank_bot"), hello=("telegram", "bank_bot"))
    evil = self_provisioned(server, "evil", "e", "bank_bot")
    e = dial(server, evil, hello=("telegram", "bank_bot"))
    assert "Linked" in linked(town.evil, GROUP, f"/link {code_of(server, evil)}")
    assert "not routed" in send(e, ANN, "bank_bot")["error"]
    announce(e, "telegram", "bank_bot", [{"name": "pay", "description": "all of it"}])
    announce(bank, "telegram", "bank_bot", [{"name": "help", "description": "by the bank"}])
    wait_for(lambda: town.bank.commands)
    assert town.bank.commands == [{"command": "help", "description": "by the bank"}]
    assert "Linked" in linked(town.bank, GROUP, f"/link {code_of(server, evil)}")  # a person's link is for that person
    assert send(e, ANN, "bank_bot", "you linked me here")["success"]
    assert "not routed" in send(e, BOB, "bank_bot")["error"]
    announce(e, "telegram", "bank_bot", [{"name": "pay", "description": "all of it, again"}])
    assert e.quiet(seconds=3)
    assert town.bank.commands == [{"command": "help", "description": "by the bank"}]
    assert [m["text"] for m in town.bank.sent(ANN)] == ["you linked me here"]


def test_a_gateway_that_provisioned_itself_answers_where_it_was_given_a_right(town, dial):
    server = town.start()
    c = self_provisioned(server, "evil", "e", "evil_bot")
    e = dial(server, c, hello=("telegram", "evil_bot"))
    assert "Linked" in linked(town.evil, ANN, f"/link {code_of(server, c)}")
    town.evil.say(ANN, "hello")
    e.hear("hello")
    assert send(e, ANN, "evil_bot", "hello, Ann")["success"]
    server.cli("route", "add", "--platform", "telegram", "--key", "evil_bot", "--tenant", "evil", "--open")
    town.evil.say(BOB, "anybody?", user=person(BOB))
    e.hear("anybody?")
    assert send(e, BOB, "evil_bot", "everybody")["success"]
    announce(e, "telegram", "evil_bot", [{"name": "help", "description": "mine"}])
    wait_for(lambda: town.evil.commands)  # the operator's route gave it the bot
    server.cli("route", "remove", "--platform", "telegram", "--key", "evil_bot", "--tenant", "evil")
    wait_for(lambda: not town.evil.commands, 20)
    assert "not routed" in send(e, BOB, "evil_bot")["error"]
    assert send(e, ANN, "evil_bot", "still yours")["success"]


def test_the_menu_of_a_gateway_for_several_bots_reaches_exactly_those(town, dial):
    server = town.start()
    both = Credential(server.cli("gateway", "add", "--tenant", "t", "--id", "both", "--platform", "telegram", "--bot", "bank_bot",
                                 "--bot", "evil_bot").stdout)
    one = server.add(id="one", platform="telegram", bot="evil_bot", open=False)
    announce(dial(server, both, hello=("telegram", "bank_bot")), "telegram", "bank_bot", [{"name": "a", "description": "of both"}])
    announce(dial(server, one, hello=("telegram", "evil_bot")), "telegram", "bank_bot", [{"name": "b", "description": "of one"}])
    wait_for(lambda: len(town.evil.commands or []) == 2)
    assert [c["command"] for c in town.bank.commands] == ["a"]
    assert [c["command"] for c in town.evil.commands] == ["a", "b"]


# ---- a tenant's own bot ----


def test_through_a_tenants_own_bot_nobody_else_is_reached_or_speaks(town, dial):
    server = town.start()
    evil = server.add(id="e", tenant="evil", platform="telegram", bot="bank_bot", open=True)
    server.cli("link", "add", "--instance", "e", "--platform", "telegram", "--user", str(ANN), "--bot", "*")
    server.cli("route", "add", "--platform", "telegram", "--key", str(GROUP), "--tenant", "evil", "--open")
    server.cli("scope", "claim", "--instance", "e", "--platform", "telegram", "--guild", str(GROUP), "--channel", "*")
    e = dial(server, evil, hello=("telegram", "bank_bot"))
    announce(e, "telegram", "bank_bot", [{"name": "pay", "description": "all of it"}])
    wait_for(lambda: town.bank.commands)
    for chat in (ANN, GROUP):
        town.bank.say(chat, "before")
        e.hear("before")
        assert send(e, chat, "bank_bot", "I am the bank")["success"]
    said = {chat: len(town.bank.sent(chat)) for chat in (ANN, GROUP)}
    town.reserve()
    bank = self_provisioned(server, "bank", "desk", "bank_bot")
    server.cli("route", "add", "--platform", "telegram", "--key", "bank_bot", "--tenant", "bank", "--open")
    desk, e = dial(server, bank, hello=("telegram", "bank_bot")), dial(server, evil, hello=("telegram", "bank_bot"))
    wait_for(lambda: not town.bank.commands, 20)
    town.bank.say(ANN, "after")
    desk.hear("after")
    assert e.quiet(seconds=1)
    assert why(server) == {"desk": "open", "e": "foreign_bot"}
    town.bank.say(GROUP, "after")
    assert e.quiet(seconds=1)
    for chat in (ANN, GROUP):
        assert "not routed" in send(e, chat, "bank_bot")["error"]
        assert len(town.bank.sent(chat)) == said[chat]
    assert "not valid" in linked(town.bank, BOB, f"/link {code_of(server, evil)}", user=person(BOB))
    for words in (["link", "--instance", "e", "--platform", "telegram", "--bot", "bank_bot"],
                  ["link", "add", "--instance", "e", "--platform", "telegram", "--user", "9", "--bot", "bank_bot"],
                  ["gateway", "add", "--tenant", "evil", "--platform", "telegram", "--bot", "bank_bot"],
                  ["route", "add", "--platform", "telegram", "--key", "bank_bot", "--tenant", "evil", "--open"]):
        done = server.cli(*words, check=False)
        assert done.returncode == 1 and "another tenant" in done.stderr, words
    assert post(server, evil, "/manage/link", {"platform": "telegram", "bot": "bank_bot"}).status == 403
    announce(desk, "telegram", "bank_bot", [{"name": "help", "description": "by the bank"}])
    wait_for(lambda: town.bank.commands)  # the bank's own gateway needs nobody's leave
    town.evil.say(ANN, "elsewhere the link holds")
    e.hear("elsewhere the link holds")
    shown = {p["bot"]: p.get("tenant") for p in json.loads(server.cli("status", "--json").stdout)["platforms"]}
    assert shown == {"bank_bot": "bank", "evil_bot": None}


def test_what_waited_in_the_outbox_of_a_bot_does_not_leave_through_it_for_another_tenant(town, dial):
    server = town.start()
    evil = server.add(id="e", tenant="evil", platform="telegram", bot="bank_bot")
    e = dial(server, evil, hello=("telegram", "bank_bot"))
    town.bank.say(ANN, "hello")
    e.hear("hello")
    town.bank.limit(ANN, retry_after=4)
    e.send({"type": "outbound", "requestId": "r1", "action": {"op": "send", "chat_id": str(ANN), "content": "I am the bank"}})
    wait_for(lambda: json.loads(server.cli("outbox", "list", "--json").stdout))
    town.reserve()
    wait_for(lambda: not json.loads(server.cli("outbox", "list", "--json").stdout))
    assert dial(server, evil, hello=("telegram", "bank_bot")).quiet("inbound", 5)
    assert town.bank.sent(ANN) == []


def test_a_claimed_group_is_seen_by_who_was_heard_there_and_nobody_else(town, dial):
    server = town.start()
    town.evil.person(66, "Mal")
    evil = server.add(id="e", tenant="evil", platform=None)
    e = dial(server, evil, hello=("telegram", "evil_bot"))
    linked(town.evil, GROUP, f"/link {code_of(server, evil)}")
    town.evil.say(GROUP, "ann in the group")
    e.hear("ann in the group")
    linked(town.evil, 66, f"/link {code_of(server, evil)}", user=person(66))  # who never wrote in the group
    assert post(server, evil, "/manage/scope", {"platform": "telegram", "guildId": str(GROUP), "channelId": "*"}).status == 200
    assert post(server, evil, "/manage/principal", {"mode": "any"}).status == 200
    town.evil.say(GROUP, "bob asks", user=person(BOB))
    e.hear("bob asks")
    server.cli("link", "remove", "--instance", "e", "--platform", "telegram", "--user", str(ANN))
    town.evil.say(GROUP, "bob confides", user=person(BOB))
    assert e.quiet("inbound", 2)
    assert not e.act(op="send", chat_id=str(GROUP), platform="telegram", bot="evil_bot", content="hi", metadata={})["success"]

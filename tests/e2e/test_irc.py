"""IRC: the real program on ngircd (plain), on a strict simulator of IRCv3, and on ergo if BELLHOP_ERGO names it."""
import base64
import json
import os
import queue
import random
import sqlite3
import subprocess
import threading
import time

import pytest

import test_media
from conftest import rows_naming, wait_for
from irc_rig import Ergo, Ngircd, Person
from irc import IrcSim  # irc_rig knows where

BOT = "desk@net"
PASSWORD = "planted-irc-password"
SHOWN = base64.b64encode(f"\0desk\0{PASSWORD}".encode()).decode()[:20]
PEOPLE = ("desk", "alice", "bob")

CONFIG = """\
listen: 127.0.0.1:0
{head}
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - platform: irc
    bot: desk@net
    server: "127.0.0.1:{port}"
    tls: {tls}
    channels: {channels}
    flood: {{{{burst: {burst}, interval: {interval}}}}}
{more}"""
SASL = "    sasl: {mechanism: plain, user: desk, password: %s}\n" % PASSWORD


class Rig:
    def __init__(self, net, make_bellhop, dial, more=SASL, wait=True, port=None, tls="false", burst=200, interval="1ms", head="",
                 open=True, channels=("#lobby",)):
        self.net, self.people, self.heard = net, [], set()
        self.server = make_bellhop(CONFIG.format(port=port or net.port, more=more.replace("{", "{{").replace("}", "}}"), tls=tls,
                                                 burst=burst, interval=interval, head=head, channels=json.dumps(list(channels))))
        self.credential = self.server.add(platform="irc", bot=BOT, open=open)
        self.dial = lambda: dial(self.server, self.credential, hello=("irc", BOT))
        self.gateway = self.dial()
        if wait:
            self.wait_joined()

    def status(self):
        doc = json.loads(self.server.cli("status", "--json").stdout)
        return next(p for p in doc["platforms"] if p["platform"] == "irc")

    def wait_joined(self):
        wait_for(lambda: self.status()["channels"]["#lobby"] == "joined", every=0.1)

    def person(self, nick, account=True, join=("#lobby",), **more):
        p = Person(self.net.port, nick, account=nick if account else None, join=join, **more)
        self.people.append(p)
        return p

    def meet(self, nick):
        """Somebody whom the agent has heard in the channel: it may answer there."""
        p = self.person(nick)
        p.say("#lobby", "hi")
        self.hear("hi")
        return p

    def hear(self, text):
        """The next message, which must be @text.  After a crash a delivery may come again under its id, as everywhere."""
        frame = self.gateway.next("inbound")
        while frame["bufferId"] in self.heard:
            frame = self.gateway.next("inbound")
        self.heard.add(frame["bufferId"])
        assert frame["event"]["text"] == text, frame
        return frame["event"]

    def act(self, **action):
        return self.gateway.act(**action)

    def say(self, content, chat="#lobby@net", **more):
        return self.act(op="send", chat_id=chat, content=content, **more)

    def again(self):
        self.server.start()
        self.gateway = self.dial()
        self.wait_joined()

    def close(self):
        for p in self.people:
            p.close()


@pytest.fixture
def rigs(make_bellhop, dial):
    made = []

    def make(net, **more):
        made.append(Rig(net, make_bellhop, dial, **more))
        return made[-1]
    yield make
    for r in made:
        r.close()
        if r.server.process is not None:
            assert PASSWORD not in r.server.log() and SHOWN not in r.server.log()


def make_ergo():
    return Ergo(accounts=PEOPLE)


@pytest.fixture(params=["sim", pytest.param("ergo", marks=pytest.mark.skipif("BELLHOP_ERGO" not in os.environ, reason="no ergo here"))])
def net(request):
    s = IrcSim(accounts=PEOPLE, always_on=("desk",)) if request.param == "sim" else make_ergo()
    yield s
    s.stop()
    assert not getattr(s, "violations", []), s.violations


@pytest.fixture
def make_sim():
    made = []

    def make(**more):
        made.append(IrcSim(**{"accounts": PEOPLE, **more}))
        return made[-1]
    yield make
    for s in made:
        s.close()
        assert not s.violations, s.violations


# ---- IRCv3: the simulator, and ergo ----

def test_messages_and_answers(net, rigs):
    r = rigs(net)
    assert r.gateway.descriptor["supported_ops"] == ["send", "typing", "get_chat_info", "send_media", "prompt", "react"]
    assert r.gateway.descriptor["supports_edit"] is False
    status = r.status()
    assert status["state"] == "live" and status["account"] == "desk" and set(status["missing"]) <= {"draft/message-redaction"}
    alice = r.person("alice")
    alice.say("#lobby", "nice weather")
    first = r.hear("nice weather")
    alice.say("#lobby", "Desk, what \x02is\x02 \x0304,05new\x03?")
    ev = r.hear("what is new?")
    assert ev["source"] | {"message_id": None} == ev["source"] | {
        "message_id": None, "platform": "irc", "chat_id": "#lobby@net", "chat_type": "group", "chat_name": "#lobby",
        "user_id": "alice@net", "user_name": "alice"}
    assert ev["message_id"] and ev["message_id"] != first["message_id"]
    got = r.say("not much")
    back = alice.hear("not much")
    assert got["success"] and got["message_id"] == back.tags["msgid"]
    assert back.nick == "desk" and "bot" in back.tags
    alice.send("PRIVMSG #lobby :\x01ACTION waves\x01")
    r.hear("* alice waves")
    alice.say("desk", "psst")
    ev = r.hear("psst")
    assert (ev["source"]["chat_id"], ev["source"]["chat_type"]) == ("alice@net", "dm")
    assert r.say("yes?", chat="alice@net")["success"]
    assert alice.hear("yes?").params[0] == "alice"
    info = r.act(op="get_chat_info", chat_id="#lobby@net")
    assert info["chat_info"] == {"name": "#lobby", "type": "group"}, info
    for bad in ("#lobby", "#lobby@other", "$*@net", "a,b@net", "#a b@net", "@net"):
        assert not r.say("x", chat=bad)["success"], bad
    alice.send("NOTICE desk :never answered")
    alice.send("PRIVMSG desk :\x01VERSION\x01")
    alice.say("desk", "the end")
    r.hear("the end")


def test_only_an_account_proves_who_somebody_is(net, rigs):
    r = rigs(net, open=False)
    guest = r.person("carol", account=False)
    code = r.server.cli("link", "--instance", r.credential.id).stdout.split()[0]
    guest.say("desk", f"/link {code}")
    assert "account" in guest.hear().params[1]
    guest.say("desk", "do you hear me?")
    alice = r.person("alice")
    alice.say("desk", f"/link {code}")
    assert alice.hear().params[1].startswith("Linked.")
    alice.say("desk", "it is me")
    ev = r.hear("it is me")  # and nothing of the guest
    assert ev["source"]["user_id"] == "alice@net"
    guest.say("desk", "and me?")
    alice.say("desk", "still me")
    r.hear("still me")
    assert "not logged in to an account" in r.server.cli("why", "--platform", "irc").stdout
    assert r.status()["unprovenLinks"] == 1
    stranger = r.person("bob")
    stranger.say("desk", "let me in")
    people = wait_for(lambda: json.loads(r.server.cli("pairing", "list", "--json").stdout))
    assert [p["userId"] for p in people] == ["bob@net"]  # whoever takes the guest's nick would be let in
    linked = r.server.cli("link", "add", "--instance", r.credential.id, "--platform", "irc", "--user", "?carol@net", "--bot", "*")
    assert "proves nobody" in linked.stdout + linked.stderr
    guest.say("desk", "nor by an operator's mistake")
    alice.say("desk", "the end")
    r.hear("the end")
    for person, owner in (("?carol@net", False), ("alice@net", True)):  # what ACP's /mode asks
        body = {"platform": "irc", "userId": person, "bot": BOT}
        asked = r.server.post("/manage/owner", body, headers={"Authorization": "Bearer " + r.credential.token()})
        assert asked.json == {"owner": owner}, person


def test_people_without_an_account_have_an_id_that_is_no_account(net, rigs):
    r = rigs(net)
    guest = r.person("carol", account=False)
    guest.say("#lobby", "desk: hi")
    assert r.hear("hi")["source"]["user_id"] == "?carol@net"


def test_a_person_is_erased_under_any_nick(make_sim, rigs):
    r = rigs(make_sim(always_on=("desk",)))
    person = Person(r.net.port, "lissy", account="alice")
    r.people.append(person)
    for text in ("one", "two"):  # the place behind the second is written a second later
        person.say("desk", text)
        assert r.hear(text)["source"]["user_id"] == "alice@net"
    erased = json.loads(r.server.cli("erase", "--person", "irc:alice@net", "--yes", "--json").stdout)
    assert erased["people"] == 1 and erased["chats"] == 1
    time.sleep(1.5)
    r.server.stop()
    assert rows_naming(r.server, "lissy") == rows_naming(r.server, "alice") == []


@pytest.mark.skipif("BELLHOP_LONG" not in os.environ, reason="takes minutes")
def test_many_nicks_leave_a_bounded_number_of_places(make_sim, rigs):
    r = rigs(make_sim(always_on=("desk",)))
    person, total = r.person("alice"), 16600
    for i in range(total):
        person.send(f"NICK n{i}")
        person.say("desk", f"m{i}")
    wait_for(lambda: len(r.gateway.seen) >= total, 600, every=1)
    r.server.stop()
    with sqlite3.connect(f"file:{r.server.state}/bellhop.db?mode=ro", uri=True) as db:
        targets = [k.decode().split("\x1f")[-1] for k, in db.execute("SELECT CAST(k AS BLOB) FROM kv WHERE ns = 'irc_place'")]
    assert 16000 < len(targets) <= 16385 and "#lobby" in targets and f"n{total - 1}" in targets and "n0" not in targets


def test_long_texts_arrive_in_one_piece(net, rigs):
    r = rigs(net)
    alice = r.meet("alice")
    plain = r.person("bob", caps=False)
    text = "first\n\nthird " + "Füße 🦊 " * 120 + "\nlast"
    got = r.say(text)
    back = alice.hear()
    assert back.params[1] == text and got["message_id"] == back.tags["msgid"]
    lines = [plain.hear().params[1]]
    while lines[-1] != "last":
        lines.append(plain.hear().params[1])
    assert lines[0] == "first" and "".join(lines[1:-1]).replace(" ", "") == text.split("\n")[2].replace(" ", "")
    alice.say_many("#lobby", ["desk: one", "", "two"])
    r.hear("one\n\ntwo")
    long = "\n".join(f"line {n} " + "x" * 200 for n in range(30))
    assert r.say(long)["success"]
    heard = ""
    while not heard.endswith("line 29 " + "x" * 200):
        heard += ("\n" if heard else "") + alice.hear().params[1]
    assert heard == long
    assert "too long" in r.say("\n".join("x" for _ in range(200)))["error"]


def test_the_network_hears_of_no_id_that_it_did_not_give(make_sim, rigs):
    sim = make_sim(always_on=("desk",))
    r = rigs(sim)
    alice = r.person("alice")
    sim.no_ids = True
    alice.say("#lobby", "a question")
    ev = r.hear("a question")
    sim.no_ids = False
    refused = r.act(op="react", chat_id="#lobby@net", message_id=ev["message_id"], emoji="👍")
    assert "no id on the network" in refused["error"]
    assert r.say("an answer", reply_to=ev["message_id"])["success"]
    assert not {"+reply", "+draft/reply"} & set(alice.hear("an answer").tags)


def test_replies_reactions_and_typing(net, rigs):
    r = rigs(net, more=SASL + "    reactions: true\n")
    alice = r.person("alice")
    alice.say("#lobby", "a question")
    ev = r.hear("a question")
    got = r.say("an answer", reply_to=ev["message_id"])
    back = alice.hear("an answer")
    assert back.tags["+draft/reply"] == back.tags["+reply"] == ev["message_id"]
    alice.say("#lobby", "thanks", draft__reply=got["message_id"])
    assert r.hear("thanks")["reply_to_message_id"] == got["message_id"]
    assert r.act(op="react", chat_id="#lobby@net", message_id=ev["message_id"], emoji="👍")["success"]
    reaction = alice.hear_tag("+draft/react")
    assert reaction.tags["+draft/react"] == "👍" and reaction.tags["+draft/reply"] == ev["message_id"]
    assert r.act(op="react", chat_id="#lobby@net", message_id=ev["message_id"], emoji="👍", remove=True)["success"]
    assert alice.hear_tag("+draft/unreact").tags["+draft/unreact"] == "👍"
    alice.tag("#lobby", draft__react="🎉", draft__reply=got["message_id"])
    assert r.hear("reaction:added:🎉")["reply_to_message_id"] == got["message_id"]
    alice.tag("#lobby", draft__react="🎉", draft__reply=ev["message_id"])  # not the bot's message
    assert r.act(op="typing", chat_id="#lobby@net")["success"]
    assert alice.hear_tag("+typing").tags["+typing"] == "active"
    assert r.act(op="draft", chat_id="#lobby@net", content="so far", draft_id=1, message=True) is not None
    r.act(op="typing", chat_id="#lobby@net", metadata={})  # as newer gateways do: they are told what was said before
    alice.say("#lobby", "chatter")
    alice.say("#lobby", "desk: bye")
    ev = r.hear("bye")
    assert "chatter" in [m["text"] for m in ev["context"]], ev


def test_what_was_said_meanwhile_is_read_from_the_history(net, rigs):
    r = rigs(net)
    alice = r.person("alice")
    alice.say("#lobby", "before")
    alice.say("desk", "before, alone")
    assert {r.gateway.next("inbound")["event"]["text"] for _ in range(2)} == {"before", "before, alone"}
    r.server.kill()
    for n in range(130):
        alice.say("#lobby", f"m{n}")
    alice.say_many("#lobby", ["m130", "of two lines"])
    for n in range(5):
        alice.say("desk", f"d{n}")
    alice.sync()
    r.again()
    alice.say("#lobby", "live again")
    lobby, alone = [], []
    while len(lobby) + len(alone) < 137:
        ev = r.gateway.next("inbound")["event"]
        if ev["text"].startswith("before"):
            continue
        (alone if ev["source"]["chat_type"] == "dm" else lobby).append(ev["text"])
    assert lobby == [f"m{n}" for n in range(130)] + ["m130\nof two lines", "live again"]
    assert alone == [f"d{n}" for n in range(5)]
    assert r.status()["readFromHistory"] >= 136


def test_a_reaction_that_the_history_adds_to_a_message_is_no_place_in_it(make_sim, rigs):
    sim = make_sim()
    r = rigs(sim, more=SASL + "    reactions: true\n")
    r.meet("alice")
    ours = r.say("mine")["message_id"]
    r.server.kill()
    alice = r.people[0]
    for n in range(60):  # more than a page
        alice.say("#lobby", f"m{n}")
    alice.sync()
    last = {f"m{n}" for n in range(40, 55)}  # the last of the first page is among them
    for m in (ours, *(m.msgid for m in sim.history["#lobby"] if m.lines[0][0] in last)):
        alice.tag("#lobby", draft__react="🎉", draft__reply=m)
    alice.sync()
    r.again()
    heard = []
    while "m59" not in heard:
        heard.append(r.gateway.next("inbound")["event"]["text"])
    assert [t for t in heard if t.startswith("m")] == [f"m{n}" for n in range(60)]


def test_more_people_wrote_meanwhile_than_the_server_names_at_once(make_sim, rigs):
    r = rigs(make_sim(always_on=("desk",)))
    alice = r.person("alice")
    alice.say("desk", "before")
    r.hear("before")
    time.sleep(1.2)  # the place is on disk
    r.server.kill()
    people = 120
    for n in range(people):
        alice.send(f"NICK n{n}")
        alice.say("desk", f"from n{n}")
    alice.sync()
    r.again()
    heard = {}
    while len(heard) < people:
        ev = r.gateway.next("inbound")["event"]
        if ev["text"] != "before":
            heard.setdefault(ev["text"], ev["source"]["chat_id"])
    assert heard == {f"from n{n}": f"n{n}@net" for n in range(people)}


@pytest.mark.skipif("BELLHOP_LONG" not in os.environ, reason="takes a minute")
def test_a_history_whose_request_leaves_late_is_read_all_the_same(make_sim, rigs):
    """The request waits in the bot's own queue, behind a JOIN for each of its channels."""
    sim, closed = make_sim(always_on=("desk",)), [f"#closed-{n}" for n in range(7)]
    sim.bans = {channel: (473, "Cannot join channel (+i)") for channel in closed}
    r = rigs(sim, burst=1, interval="3s", channels=["#lobby", *closed])
    alice = r.person("alice")
    for target in ("#lobby", "desk"):
        alice.say(target, f"before in {target}")
        r.hear(f"before in {target}")
    time.sleep(1.2)  # the places are on disk
    r.server.kill()
    for target in ("#lobby", "desk"):
        alice.say(target, f"meanwhile in {target}")
    alice.sync()
    r.server.start()
    r.gateway = r.dial()
    missed = {f"meanwhile in {target}" for target in ("#lobby", "desk")}
    while missed:
        missed.discard(r.gateway.next("inbound", 90)["event"]["text"])


def test_an_own_message_of_another_nick_is_nobodys_in_the_history(make_sim, rigs):
    sim = make_sim(accounts=("alice",), bot_mode=None)  # nothing tells that it is a bot's
    thief = Person(sim.port, "desk")
    r = rigs(sim, more="", wait=False)
    r.wait_joined()
    thief.join("#lobby")
    alice = r.meet("alice")
    assert r.say("I am desk_ now")["success"]
    alice.hear("I am desk_ now")
    thief.send("QUIT :bye")
    wait_for(lambda: r.status()["nick"] == "desk", every=0.1)
    sim.cut("desk")
    wait_for(lambda: r.status()["connects"] == 2, every=0.1)
    r.wait_joined()
    alice.say("#lobby", "next")
    r.hear("next")


def test_a_channel_that_leads_elsewhere_is_told(make_sim, rigs):
    sim = make_sim()
    sim.bans["#lobby"] = (470, "Forwarding to another channel")
    r = rigs(sim, wait=False)
    wait_for(lambda: r.status()["channels"]["#lobby"].startswith("Forwarding"), every=0.1)


def test_a_question_is_answered_by_its_number(net, rigs):
    r = rigs(net)
    alice = r.person("alice")
    alice.say("desk", "deploy")
    r.hear("deploy")
    asked = r.act(op="prompt", chat_id="alice@net", content="Deploy?", prompt_kind="choice", prompt_id="p1",
                  options=[{"id": "y", "label": "Yes"}, {"id": "n", "label": "No"}])
    assert asked["success"]
    text = alice.hear().params[1]
    assert "Deploy?" in text and "1" in text and "No" in text
    alice.say("desk", "2")
    ev = r.gateway.next("inbound")["event"]
    assert ev.get("prompt_response", ev.get("press", {})), ev


def test_somebody_who_left_is_told_as_such(net, rigs):
    r = rigs(net)
    carol = r.person("carol", account=False)
    carol.say("desk", "I am off")
    r.hear("I am off")
    carol.close()
    wait_for(lambda: not r.say("come back", chat="carol@net")["success"])
    assert "nobody has the nick carol" in r.say("come back", chat="carol@net")["error"]


@pytest.mark.parametrize("burst", [1, 3])
def test_flood_control_keeps_no_answer_from_a_person(make_sim, rigs, burst):
    """Asking who has the nick costs a line, too; the answer to that is not forgotten before the message may leave."""
    r = rigs(make_sim(reserve=False), burst=burst, interval="2500ms", open=False)
    code = r.server.cli("link", "--instance", r.credential.id).stdout.split()[0]
    alice = r.person("alice", join=())
    alice.say("desk", f"/link {code}")
    assert alice.hear(timeout=20).params[1].startswith("Linked.")
    alice.say("desk", "a question")
    r.hear("a question")
    time.sleep(2.5)
    for n in range(2):
        assert r.say(f"answer {n}", chat="alice@net")["success"]
        alice.hear(f"answer {n}")


@pytest.mark.parametrize("seen", [True, False], ids=["in a channel with the bot", "out of its sight"])
def test_who_takes_the_nick_in_silence_gets_no_answer(make_sim, rigs, seen):
    """An agent thinks for a while, and whoever asked has left meanwhile."""
    sim = make_sim(reserve=False)
    r = rigs(sim, open=False)
    code = r.server.cli("link", "--instance", r.credential.id).stdout.split()[0]
    alice = r.person("alice", join=("#lobby",) if seen else ())
    alice.say("desk", f"/link {code}")
    assert alice.hear().params[1].startswith("Linked.")
    alice.say("desk", "a secret question")
    r.hear("a secret question")
    alice.close()
    wait_for(lambda: "alice" not in sim.clients)
    thief = r.person("alice", account=False, join=())
    thief.sync()
    if not seen:
        time.sleep(2.5)
    assert "somebody else" in r.say("the secret", chat="alice@net").get("error", "")


def test_an_answer_never_goes_to_whoever_took_the_nick(make_sim, rigs):
    sim = make_sim(reserve=False)
    r = rigs(sim, open=False)
    code = r.server.cli("link", "--instance", r.credential.id).stdout.split()[0]
    alice = r.person("alice")
    alice.say("desk", f"/link {code}")
    assert alice.hear().params[1].startswith("Linked.")
    alice.say("desk", "a secret question")
    r.hear("a secret question")
    assert r.say("the secret", chat="alice@net")["success"]
    alice.hear("the secret")
    alice.close()
    wait_for(lambda: "alice" not in sim.clients)
    thief = r.person("alice", account=False)
    thief.say("desk", "what was it again?")  # seen: nothing of this nick is for this one
    thief.sync()
    wait_for(lambda: "somebody else" in r.say("another secret", chat="alice@net").get("error", ""))
    thief.close()
    wait_for(lambda: "alice" not in sim.clients)
    assert r.server.stop() == 0  # a restart remembers whose nick it was, and asks the server
    silent = r.person("alice", account=False)
    r.again()
    assert "somebody else" in r.say("a third secret", chat="alice@net")["error"]
    silent.close()
    wait_for(lambda: "alice" not in sim.clients)
    back = r.person("alice")
    back.say("desk", "I am back")
    r.hear("I am back")
    assert r.say("welcome", chat="alice@net")["success"]
    back.hear("welcome")
    said = [m.lines[0][0] for key, ms in sim.history.items() if not isinstance(key, str) for m in ms if m.nick == "desk"]
    assert "another secret" not in said and "a third secret" not in said


# ---- IRCv3: faults ----

def own(sim):
    """What the bot said in the channel."""
    return [m for m in sim.history["#lobby"] if m.nick.startswith("desk") and m.command == "PRIVMSG"]


def test_an_echo_that_was_lost_is_found_in_the_history(make_sim, rigs):
    sim = make_sim()
    r = rigs(sim)
    alice = r.meet("alice")
    for text in ("two\nlines", "same", "same"):
        sim.trouble("taken")
        got = r.say(text)
        back = alice.hear(text)
        assert got["success"] and got["message_id"] == back.tags["msgid"], got
    assert [m.lines[0][0] for m in own(sim)] == ["two", "same", "same"]
    assert r.status()["connects"] == 4


def test_what_may_have_left_and_is_nowhere_is_unknown(make_sim, rigs):
    sim = make_sim()
    r = rigs(sim)
    alice = r.meet("alice")
    sim.trouble("lost")
    got = r.say("gone")
    assert not got["success"] and got["error"].startswith("timed out:") and "history" in got["error"]
    assert r.say("next")["success"]
    alice.hear("next")
    assert [m.lines[0][0] for m in own(sim)] == ["next"]


@pytest.mark.parametrize("forged", [False, True], ids=["", "whoever copies the key of a line"])
def test_lines_that_had_not_left_are_sent_on_the_next_connection(make_sim, rigs, forged):
    """A later line is taken by the server, and the connection ends before its echo."""
    sim = make_sim(caps=["message-tags", "server-time", "account-tag", "batch", "echo-message", "labeled-response",
                         "draft/chathistory", "sasl"])
    r = rigs(sim, burst=3, interval="400ms")
    alice = r.meet("alice")
    got = []
    t = threading.Thread(target=lambda: got.append(r.say("\n".join(f"line {n}" for n in range(8)))))
    t.start()
    key = alice.hear("line 0").tags["+bellhop/key"].split(".")
    for n in range(1, 8 if forged else 0):
        alice.say("#lobby", "not it", bellhop__key=".".join(key[:-2] + [str(n), key[-1]]))
    sim.trouble("taken")
    t.join()
    assert got[0]["success"], got
    assert [m.lines[0][0] for m in own(sim)] == [f"line {n}" for n in range(8)]


def test_a_kill_in_the_middle_of_sends(make_sim, rigs):
    sim = make_sim()
    r = rigs(sim)
    alice = r.person("alice")
    alice.say("#lobby", "hello")
    r.hear("hello")
    for n in range(2):
        sim.trouble("taken")  # taken, and nobody tells bellhop
        request = {"type": "outbound", "requestId": f"k{n}", "action": {"op": "send", "chat_id": "#lobby@net", "content": f"k{n}"}}
        r.gateway.send(request)
        alice.hear(f"k{n}")
        r.server.kill()
        r.again()
    wait_for(lambda: r.status()["requestsWaiting"] == 0)
    assert r.say("after")["success"]
    assert [m.lines[0][0] for m in own(sim)] == ["k0", "k1", "after"]
    assert r.status()["sendsUnknown"] == 0


def test_the_flood_limit_is_kept(make_sim, rigs):
    sim = make_sim(flood=(28, 12), caps=["message-tags", "batch", "echo-message", "labeled-response", "sasl"])
    r = rigs(sim, burst=5, interval="80ms")
    alice = r.meet("alice")
    assert r.say("\n".join(f"line {n}" for n in range(36)))["success"]
    for n in range(36):
        alice.hear(f"line {n}")
    assert sim.killed == 0 and r.status()["connects"] == 1


def test_the_nick_is_regained(make_sim, rigs):
    sim = make_sim(accounts=("alice",))
    thief = Person(sim.port, "desk")
    r = rigs(sim, more="", wait=False)
    r.wait_joined()
    assert r.status()["nick"] == "desk_"
    alice = r.person("alice")
    alice.say("#lobby", "desk_: hello")
    r.hear("hello")
    thief.join("#lobby")
    thief.send("QUIT :bye")
    wait_for(lambda: r.status()["nick"] == "desk", every=0.1)
    alice.say("#lobby", "desk: hello again")
    r.hear("hello again")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    d = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", d / "key.pem",
                    "-out", d / "cert.pem"], check=True, capture_output=True)
    (d / "both.pem").write_text((d / "cert.pem").read_text() + (d / "key.pem").read_text())
    der = subprocess.run(["openssl", "x509", "-in", d / "cert.pem", "-outform", "DER"], check=True, capture_output=True).stdout
    return d, der


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "external"])
def test_logins(make_sim, rigs, certificate, mechanism):
    d, der = certificate
    sim = make_sim(tls=(d / "cert.pem", d / "key.pem"), certs={der: "desk"})
    secret = f"cert_file: {d}/both.pem" if mechanism == "external" else f"password: {PASSWORD}"
    r = rigs(sim, port=sim.tls_port, tls="true",
             more=f"    ca: {d}/cert.pem\n    sasl: {{mechanism: {mechanism}, user: desk, {secret}}}\n")
    assert r.status()["account"] == "desk" and r.status()["tls"]


@pytest.mark.parametrize("kind", ["wrong", "liar", "without"])
def test_a_login_that_fails_is_a_problem_and_the_bot_does_not_stay(make_sim, rigs, kind):
    sim = make_sim(refuse=("liar",) if kind == "liar" else (), **({"caps": ["message-tags"]} if kind == "without" else {}))
    r = rigs(sim, wait=False, more="    sasl: {mechanism: scram-sha-256, user: desk, password: %s}\n" % ("bad" if kind == "wrong" else PASSWORD))
    words = {"wrong": "refuses the login", "liar": "does not know the password", "without": "has no SASL"}
    wait_for(lambda: words[kind] in (r.status()["problem"] or ""), every=0.1)
    assert "desk" not in sim.clients
    done = r.server.cli("doctor", check=False)
    assert words[kind] in done.stdout + done.stderr


def test_a_server_that_wants_tls_gets_it_for_good(make_sim, rigs, certificate):
    d, _ = certificate
    sim = make_sim(tls=(d / "cert.pem", d / "key.pem"), sts="")
    sim.sts = f"port={sim.tls_port},duration=3600"
    r = rigs(sim, more=f"    ca: {d}/cert.pem\n" + SASL)
    assert r.status()["tls"]
    before = [text for nick, text in sim.seen if "AUTHENTICATE" in text]
    assert before and sim.clients["desk"].secure  # the password went over TLS only
    sim.sts = None
    assert r.server.stop() == 0
    sim.call(lambda: sim.server.close())  # the next start does not even try without TLS
    r.again()
    assert r.status()["tls"] and sim.clients["desk"].secure


@pytest.mark.parametrize("public", [True, False])
def test_a_file_is_sent_as_its_address_or_refused(make_sim, rigs, public):
    r = rigs(make_sim(), head="public_url: https://relay.example.org" if public else "")
    alice = r.meet("alice")
    id = test_media.kept(r.server, r.credential)
    got = r.act(op="send_media", chat_id="#lobby@net", media_kind="image", source_url=f"/relay/media/{id}", filename="cat.png",
                content="a cat")
    if not public:
        assert not got["success"] and "IRC has no files" in got["error"]
        return
    assert got["success"]
    caption, address = alice.hear().params[1].split("\n")
    assert caption == "a cat" and address.startswith("https://relay.example.org/")


def test_capabilities_come_and_go(make_sim, rigs):
    sim = make_sim(refuse=("draft/multiline",))
    r = rigs(sim)
    assert "draft/multiline" in r.status()["missing"] and "echo-message" in r.status()["capabilities"]
    alice = r.meet("alice")
    assert r.say("a\nb")["success"]
    alice.hear("a")
    alice.hear("b")
    sim.refuse.clear()
    sim.announce(**{"draft/multiline": "max-bytes=4096,max-lines=100"})
    wait_for(lambda: "draft/multiline" in r.status()["capabilities"], every=0.1)
    assert r.say("c\nd")["success"]
    alice.hear("c\nd")
    sim.withdraw("labeled-response")
    wait_for(lambda: "labeled-response" in r.status()["missing"], every=0.1)
    got = r.say("no label")
    assert got["success"] and got["message_id"] == alice.hear("no label").tags["msgid"]


def test_a_redacted_message_is_withdrawn_while_it_waits(make_sim, rigs):
    sim = make_sim()
    r = rigs(sim)
    alice = r.person("alice")
    r.gateway.close()
    wait_for(lambda: r.server.instance(r.credential.id)["state"] != "live")
    alice.say("#lobby", "a secret slip")
    alice.say("#lobby", "fine")
    wait_for(lambda: r.status()["events"] == 2)
    slip = next(m.msgid for m in sim.history["#lobby"] if m.lines[0][0] == "a secret slip")
    alice.send(f"REDACT #lobby {slip} :oops")
    alice.sync()
    wait_for(lambda: r.status()["events"] == 3)
    r.gateway = r.dial()
    r.hear("fine")


def test_a_bot_that_is_kicked_comes_back_and_says_so(make_sim, rigs):
    sim = make_sim()
    r = rigs(sim)
    r.meet("alice")
    sim.bans["#lobby"] = (474, "Cannot join channel (+b)")
    sim.kick("#lobby", "desk", "enough")
    wait_for(lambda: "enough" in (r.status()["problem"] or ""), every=0.1)
    assert r.status()["state"] == "degraded"
    got = r.say("still here?")
    assert not got["success"]


def test_a_server_that_falls_silent_is_left(make_sim, rigs):
    if "BELLHOP_LONG" not in os.environ:
        pytest.skip("takes a minute")
    sim = make_sim()
    r = rigs(sim)
    sim.deaf = True
    wait_for(lambda: "does not answer" in r.server.log(), timeout=90, every=0.5)
    sim.deaf = False
    sim.cut("desk")
    r.wait_joined()


def test_hostile_lines_do_no_harm(make_sim, rigs):
    sim = make_sim()
    r = rigs(sim)
    bot = sim.clients["desk"]
    dice = random.Random(7)
    bad = [b"\r\n", b"@ \r\n", b"@a=\\ :x PRIVMSG\r\n", b":alice!a@b PRIVMSG desk :\x01\r\n", b":x!y@z PRIVMSG #lobby :\xff\xfe\r\n",
           b"@batch=none :a!b@c PRIVMSG #lobby :lost\r\n", b":s BATCH\r\n", b":s BATCH +\r\n", b":s BATCH -nothing\r\n", b"CAP\r\n", b"005\r\n",
           b":s 001\r\n", b":s 433 * x\r\n", b"@label=bh99999 :s FAIL CHATHISTORY X\r\n", b":desk!x@y NICK :\r\n", b"AUTHENTICATE +\r\n",
           b":s BATCH +q draft/multiline #lobby\r\n" + b"@batch=q :a!b@c PRIVMSG #lobby :x\r\n" * 3000 + b":s BATCH -q\r\n",
           b"@" + b"a=b;" * 5000 + b" :a!b@c PRIVMSG desk :long tags\r\n", b"x" * 40000 + b"\r\n",
           # what a history tells of the bot is over
           b":s BATCH +h chathistory #lobby\r\n@batch=h :desk!x@y NICK evil\r\n@batch=h :op!x@y KICK #lobby desk :out\r\n:s BATCH -h\r\n"]
    bad += [b":s BATCH +n%d netsplit\r\n" % n for n in range(100)]
    bad += [bytes(dice.randrange(256) for _ in range(dice.randrange(200))) + b"\r\n" for _ in range(300)]

    def send():
        for b in bad:
            bot.writer.write(b)
    sim.call(send)
    alice = r.person("alice")
    r.wait_joined()
    alice.say("desk", "still there?")
    texts = []
    while "still there?" not in texts:
        texts.append(r.gateway.next("inbound")["event"]["text"])
    assert r.say("yes", chat="alice@net")["success"]
    alice.hear("yes")


def test_many_messages_each_once_and_in_order_whatever_fails(make_sim, rigs):
    """BELLHOP_IRC_MESSAGES of them in and as many out, with cuts, netsplits, kills for flooding and kill -9."""
    total = int(os.environ.get("BELLHOP_IRC_MESSAGES", 120))
    sim = make_sim()
    r, dice = rigs(sim), random.Random(7)
    alice, bob = r.person("alice"), r.person("bob")
    heard, over, gateways, unsure = [], threading.Event(), [r.gateway], set()

    def answer(text):
        """As a gateway does: again after trouble, never after what may have been delivered."""
        n = 0
        while True:
            n += 1
            wait_for(lambda: not gateways[-1].over.is_set())
            g = gateways[-1]
            request = f"{text} {n} {id(g)}"
            g.results[request] = results = queue.Queue()
            try:
                g.send({"type": "outbound", "requestId": request, "action": {"op": "send", "chat_id": "#lobby@net", "content": f"re {text}"}})
                while True:
                    try:
                        got = results.get(timeout=0.1)
                        break
                    except queue.Empty:
                        assert not g.over.is_set()
            except Exception:  # noqa: BLE001 - bellhop was killed: what became of it, its record knows
                unsure.add(text)
                return
            if got["success"]:
                return
            if got["error"].startswith("timed out"):
                unsure.add(text)
                return
            time.sleep(0.05)

    def listen():
        at = 0
        while not over.is_set():
            try:
                frame = gateways[at].next("inbound", 0.2)
            except AssertionError:
                at += at + 1 < len(gateways)
                continue
            text = frame["event"]["text"]
            if text in heard:  # the last ones may come again after a crash
                continue
            heard.append(text)
            answer(text)

    threading.Thread(target=listen, daemon=True).start()
    faults = max(6, total // 100)
    at = {total * (n + 1) // (faults + 2): n % 6 for n in range(faults)}
    kills = 0
    for n in range(total):
        (alice if n % 2 else bob).say("#lobby", f"m{n}")
        (alice if n % 2 else bob).sync()
        fault = at.get(n)
        if fault == 0:
            sim.cut("desk")
        elif fault == 1:
            sim.split("alice")
        elif fault == 2:
            sim.cut("desk", error="Closing Link: desk (Excess Flood)")
        elif fault == 3:
            sim.trouble("taken")
        elif fault == 4 and kills < 5:
            kills += 1
            r.server.kill()
            r.server.start()
            r.gateway = r.dial()
            gateways.append(r.gateway)
        elif fault == 5:
            sim.cut("desk", error="Closing Link: (Ping timeout)")
    wait_for(lambda: len(heard) >= total, timeout=120 + total / 10)
    wait_for(lambda: len(own(sim)) + len(unsure) >= total and r.status()["requestsWaiting"] == 0, timeout=60)
    over.set()
    assert heard == [f"m{n}" for n in range(total)]
    out = [m.lines[0][0].removeprefix("re ") for m in own(sim)]
    assert out == [t for t in heard if t in out], "twice, or out of order"
    assert set(heard) - set(out) <= unsure and len(unsure) <= kills + faults, unsure
    assert r.status()["dropped"] == 0


# ---- plain IRC: ngircd ----

@pytest.fixture
def plain():
    s = Ngircd()
    yield s
    s.stop()


def test_a_plain_server(plain, rigs):
    r = rigs(plain, more="")
    status = r.status()
    assert status["state"] == "live" and status["capabilities"] == []
    assert "account-tag" in status["missing"] and "nobody can be linked" in status["missing"]["account-tag"]
    alice = r.person("alice", account=False)
    alice.say("#lobby", "desk: hello")
    ev = r.hear("hello")
    assert ev["source"]["user_id"] == "?alice@net" and ev["message_id"]
    assert r.say("hello yourself") == {"success": True}
    alice.hear("hello yourself")
    alice.say("desk", "/link ABCD1234")
    assert "account" in alice.hear().params[1]
    alice.say("desk", "hi")
    r.hear("hi")
    text = "one\n\ntwo\n" + "Grüße aus Köln 🦊🦊 " * 60
    assert r.say(text, chat="alice@net")["success"]
    assert alice.hear("one") and alice.hear("two")
    rest = ""
    while len(rest.replace(" ", "")) < len(text.split("\n")[3].replace(" ", "")):
        line = alice.hear()
        assert len((line.raw + "\r\n").encode()) <= 512 and "\ufffd" not in line.raw
        rest += line.params[1]
    assert rest.replace(" ", "") == text.split("\n")[3].replace(" ", "")
    refused = r.act(op="react", chat_id="#lobby@net", message_id=ev["message_id"], emoji="x")
    assert not refused["success"] and "no reactions" in refused["error"]
    assert r.act(op="typing", chat_id="#lobby@net")["success"]
    alice.close()
    wait_for(lambda: not r.say("gone?", chat="alice@net")["success"])


def test_a_plain_server_that_restarts(plain, rigs):
    r = rigs(plain, more="")
    alice = r.person("alice", account=False)
    alice.say("#lobby", "before")
    r.hear("before")
    plain.again()
    wait_for(lambda: r.status()["connects"] == 2 and r.status()["channels"]["#lobby"] == "joined", every=0.2)
    bob = r.person("bob", account=False)
    bob.say("#lobby", "after")
    r.hear("after")
    assert r.say("here again")["success"]
    bob.hear("here again")


def test_doctor_asks_the_server(plain, rigs):
    r = rigs(plain, more="")
    done = r.server.cli("doctor", check=False)
    assert "account-tag" in done.stdout and "not logged in" in done.stdout, done.stdout
    plain.process.kill()
    plain.process.wait()
    assert "does not answer" in r.server.cli("doctor", check=False).stdout


@pytest.mark.parametrize("change,words", [
    ({"bot: desk@net": "bot: desk"}, "nick@network"),
    ({"bot: desk@net": "bot: '#x@net'"}, "nick@network"),
    ({'server: "127.0.0.1:1"': 'server: "127.0.0.1:99999"'}, "server"),
    ({'["#lobby"]': '["lobby"]'}, "not a channel"),
    ({"tls: false": "tls: false\n    sasl: {{mechanism: plain, user: d, password: x}}", "127.0.0.1": "irc.example.org"}, "tls"),
    ({"tls: false": "tls: true\n    sasl: {{mechanism: external}}"}, "sasl.cert"),
    ({"tls: false": "tls: false\n    sasl: {{user: d}}"}, "mechanism"),
])
def test_wrong_settings_are_refused(make_bellhop, change, words):
    config = CONFIG.format(port=1, more="", tls="false", burst=4, interval="2s", head="", channels='["#lobby"]')
    for was, now in change.items():
        assert was in config
        config = config.replace(was, now)
    server = make_bellhop(config, start=False)
    done = subprocess.run([server.cli.__globals__["PROGRAM"], "serve", "-c", server.config], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and words in done.stderr, done.stderr

"""A right ends with the record that gave it: what a token, a queue or a thread's name would still allow is asked again."""
import json

import pytest

from conftest import wait_for
from test_discord import TOKEN as BOT_TOKEN
from test_discord import status
from test_discord_tenancy import BOB, CAT, GENERAL, GUILD, House, house, sim  # noqa: F401 - fixtures
from test_interactions import KIND, forwarded

from discord import ANN, THREAD, DiscordSim  # noqa: E402 - test_discord_tenancy knows where it is

TOKEN = "aW50ZXJhY3Rpb24tdG9rZW4tcGxhbnRlZA"


def interact(sim, user, token=TOKEN, n=1, **more):
    """A slash command of a person, over the bot's socket."""
    sim.interaction(token)
    sim.tell("INTERACTION_CREATE", {
        "id": str(990000000000000000 + n), "application_id": "app1", "type": 2, "token": token, "version": 1, "channel_id": GENERAL,
        "guild_id": GUILD, "channel": {"id": GENERAL, "type": 0}, "member": {"user": sim.people[user], "roles": []},
        "data": {"name": "ask"}, **more})


def follow_up(gateway, user, **more):
    return gateway.act(op="follow_up", session_key=f"agent:main:relay:channel:{GENERAL}:{user}", kind=KIND, content="still me",
                       metadata={}, **more)


def refused(answer):
    return not answer["success"] and answer["error"].startswith("capability not available")


# ---- tokens ----


def test_a_token_is_worth_nothing_after_its_person_unlinked(house):  # noqa: F811
    house.link(house.a, ANN)
    interact(house.sim, ANN)
    forwarded(house.ga)
    assert follow_up(house.ga, ANN)["success"]
    house.server.cli("link", "remove", "--instance", "a", "--platform", "discord", "--user", ANN)
    assert refused(follow_up(house.ga, ANN)) and "no right" in follow_up(house.ga, ANN)["error"]
    house.link(house.a, ANN)
    assert follow_up(house.ga, ANN)["success"]  # the record counts, not the moment
    assert house.sim.hooks[TOKEN]["edits"] == 1 and house.sim.hooks[TOKEN]["follow_ups"] == ["still me"]


def test_a_token_is_worth_nothing_after_its_scope_was_released(house):  # noqa: F811
    house.link(house.a, ANN)
    house.claim(house.a, GENERAL)
    wait_for(lambda: house.sim.say(GENERAL, "anybody there", user=CAT) and house.ga.seen)
    interact(house.sim, CAT)
    forwarded(house.ga)
    assert follow_up(house.ga, CAT)["success"]
    house.server.cli("scope", "release", "--instance", "a", "--platform", "discord", "--guild", GUILD, "--channel", GENERAL)
    assert refused(follow_up(house.ga, CAT))
    assert house.sim.hooks[TOKEN]["follow_ups"] == []


def test_a_token_waits_for_discord_and_asks_again_before_it_leaves(house):  # noqa: F811
    house.link(house.a, ANN)
    interact(house.sim, ANN)
    forwarded(house.ga)
    house.sim.trouble("PATCH", "/webhooks/", 503, times=1000)
    house.ga.send({"type": "outbound", "requestId": "f1", "action": {
        "op": "follow_up", "session_key": f"agent:main:relay:channel:{GENERAL}:{ANN}", "kind": KIND, "content": "late", "metadata": {}}})
    wait_for(lambda: house.sim.called("PATCH", "/webhooks/"))
    house.server.cli("link", "remove", "--instance", "a", "--platform", "discord", "--user", ANN)
    house.sim.troubles.clear()
    assert refused(house.ga.next("outbound_result")["result"])
    assert house.sim.hooks[TOKEN]["edits"] == 0


@pytest.fixture
def two_bots(make_bellhop, dial):
    """The bank's bot app1 and evil's bot app2; evil's agent was linked by Ann on both."""
    class Town:
        bank, evil = DiscordSim(BOT_TOKEN), DiscordSim("2.evil.token")

        def config(self, more=""):
            return f"""\
listen: 127.0.0.1:0
state_dir: {{state}}
platforms:
  - {{{{platform: discord, bot: app1, token: "{BOT_TOKEN}", api_base: "{self.bank.url}"{more}}}}}
  - {{{{platform: discord, bot: app2, token: "2.evil.token", api_base: "{self.evil.url}"}}}}
"""

        def dial(self):
            self.e = dial(self.server, self.c, hello=("discord", "app2"))
            self.e.send({"type": "hello", "platform": "discord", "botId": "app1"})
            self.e.next("descriptor")
            wait_for(lambda: self.bank.live() and self.evil.live())

    t = Town()
    t.server = make_bellhop(t.config())
    t.c = t.server.add(id="e", tenant="evil", platform=None)
    for bot in ("app1", "app2"):
        t.server.cli("link", "add", "--instance", "e", "--platform", "discord", "--user", ANN, "--bot", bot)
    t.dial()
    yield t
    t.bank.close()
    t.evil.close()


def test_a_token_belongs_to_its_bot(two_bots):
    interact(two_bots.bank, ANN)
    forwarded(two_bots.e)
    assert refused(follow_up(two_bots.e, ANN, platform="discord", bot="app2"))
    assert two_bots.bank.hooks[TOKEN]["edits"] == 0
    assert follow_up(two_bots.e, ANN)["success"]  # without a bot it is the chat's own, not the first that was announced
    assert follow_up(two_bots.e, ANN, platform="discord", bot="app1")["success"]
    server = two_bots.server
    server.config.write_text(two_bots.config(", tenant: bank").format(state=server.state))
    server.restart()
    two_bots.dial()
    for identity in ({}, {"platform": "discord"}, {"platform": "discord", "bot": "app1"}, {"platform": "discord", "bot": "app2"}):
        assert refused(follow_up(two_bots.e, ANN, **identity)), identity
    assert two_bots.bank.hooks[TOKEN]["edits"] == 1 and len(two_bots.bank.hooks[TOKEN]["follow_ups"]) == 1
    assert two_bots.evil.hooks == {}


# ---- private threads ----

PRIVATE = "230000000000000230"
OPTIONS = [{"id": "yes", "label": "Yes"}]


def everything(gateway, chat, thread, message="1"):
    """What can be done in a thread; the answers."""
    where = dict(chat_id=chat, metadata={"thread_id": thread})
    return [gateway.act(op="send", content="x", reply_to=None, **where), gateway.act(op="typing", **where),
            gateway.act(op="prompt", content="x?", prompt_id="0a1b2c3d", prompt_kind="choice", options=OPTIONS, **where),
            gateway.act(op="get_chat_info", **where), gateway.act(op="edit", message_id=message, content="x", **where),
            gateway.act(op="react", message_id=message, emoji="\U0001F440", **where),
            gateway.act(op="thread_rename", thread_name="x", **{**where, "message_id": thread}),
            gateway.act(op="send", chat_id=thread, content="x", reply_to=None, metadata={"guild_id": GUILD})]


@pytest.fixture(params=["", ", auto_thread: true"])
def private(request, sim, make_bellhop, dial, monkeypatch):  # noqa: F811
    """A private thread of Bob's in a channel that Ann sees; her agent a is heard in the channel, his agent b in the thread."""
    import test_discord_tenancy as tenancy
    monkeypatch.setattr(tenancy, "config", lambda s, plain=tenancy.config: plain(s, more=request.param))
    h = House(sim, make_bellhop, dial)
    h.threads = bool(request.param)
    h.dial = lambda who: dial(h.server, who, hello=("discord", "app1"))
    for instance, user in (("a", ANN), ("b", BOB)):
        h.server.cli("link", "add", "--instance", instance, "--platform", "discord", "--user", user, "--bot", "app1")
    sim.private_thread(PRIVATE, GENERAL, "a secret name")
    sim.say(GENERAL, "ann in public", user=ANN)
    h.ga.hear("ann in public")
    h.said = sim.say(PRIVATE, "between us", user=BOB)["id"]
    h.gb.hear("between us")
    return h


def again(private):
    """The server starts again, and has forgotten what it knew of Discord."""
    private.server.restart()
    private.ga, private.gb = private.dial(private.a), private.dial(private.b)
    wait_for(lambda: status(private.server)["state"] == "live")


def untouched(sim):  # noqa: F811
    return sim.texts(PRIVATE) == [] and PRIVATE not in sim.typed and sim.channels[PRIVATE]["name"] == "a secret name" and \
        not any(m.get("mine") for m in sim.messages[PRIVATE])


def test_a_private_thread_is_closed_to_an_agent_whose_people_do_not_see_it(private):
    sim = private.sim  # noqa: F811
    for _ in range(2):
        answers = everything(private.ga, GENERAL, PRIVATE, private.said)
        assert not any(a["success"] for a in answers), answers
        assert "secret" not in json.dumps(answers) and untouched(sim)
        for more in ({"reply_to": private.said}, {"reply_to": PRIVATE}, {"reply_to": PRIVATE, "metadata": {"thread_id": PRIVATE}}):
            private.ga.act(**{"op": "send", "chat_id": GENERAL, "content": "x", "metadata": {}, **more})
            assert untouched(sim), more
        again(private)
    sim.thread_members[PRIVATE].add(ANN)  # Discord tells bots of it only when they ask
    again(private)
    said = private.ga.act(op="send", chat_id=GENERAL, content="now I may", reply_to=None, metadata={"thread_id": PRIVATE})
    assert said["success"], said
    assert sim.texts(PRIVATE) == ["now I may"]


def test_a_private_thread_is_open_to_an_agent_that_is_heard_there(private):
    sim, where = private.sim, dict(chat_id=GENERAL if private.threads else PRIVATE, metadata={"thread_id": PRIVATE})  # noqa: F811
    said = private.gb.act(op="send", content="yes?", reply_to=private.said, **where)
    assert said["success"], said
    assert private.gb.act(op="typing", **where)["success"] and PRIVATE in sim.typed
    assert private.gb.act(op="get_chat_info", **where)["success"]
    assert private.gb.act(op="edit", message_id=said["message_id"], content="yes!", **where)["success"]
    again(private)
    assert private.gb.act(op="send", content="still", reply_to=None, **where)["success"]
    assert sim.texts(PRIVATE) == ["yes!", "still"] and sim.texts(GENERAL) == []


# ---- what waits in the outbox ----


def ask(gateway, id, **action):
    gateway.send({"type": "outbound", "requestId": id, "action": {"metadata": {}, **action}})


@pytest.mark.parametrize("how", ["waits", "restarts"])
def test_what_waited_does_not_leave_after_its_right_ended(house, dial, how):  # noqa: F811
    house.link(house.a, ANN)
    house.sim.say(GENERAL, "hi", user=ANN)
    house.ga.hear("hi")
    house.sim.limit(GENERAL, 3)
    ask(house.ga, "w1", op="send", chat_id=GENERAL, content="late", reply_to=None)
    ask(house.ga, "w2", op="send", chat_id=GENERAL, content="behind it", reply_to=None)
    wait_for(lambda: len(json.loads(house.server.cli("outbox", "list", "--json").stdout)) == 2)
    house.server.cli("link", "remove", "--instance", "a", "--platform", "discord", "--user", ANN)
    if how == "restarts":
        house.server.kill()
        house.server.start()
        house.ga = dial(house.server, house.a, hello=("discord", "app1"))
    for _ in range(2):
        result = house.ga.next("outbound_result", 20)["result"]
        assert not result["success"] and "no right to act" in result["error"], result
    assert not {"late", "behind it"} & set(house.sim.texts(GENERAL))
    left = json.loads(house.server.cli("outbox", "list", "--json").stdout)
    assert all(r["state"] == "unknown" for r in left)  # the kill came while its first try was answered


def test_what_waited_leaves_while_its_right_holds(house, dial):  # noqa: F811
    """A scope, and a server that starts and does not know yet who sees the channel."""
    house.link(house.a, ANN)
    house.claim(house.a, GENERAL)
    wait_for(lambda: house.sim.say(GENERAL, "anybody there", user=CAT) and house.ga.seen)
    house.ga.hear("anybody there")
    house.sim.limit(GENERAL, 2)
    ask(house.ga, "w1", op="send", chat_id=GENERAL, content="late", reply_to=None)
    wait_for(lambda: house.sim.called("POST", f"/channels/{GENERAL}/messages"))
    house.sim.forget_sessions()
    house.server.restart()
    wait_for(lambda: "late" in house.sim.texts(GENERAL), 20)


def test_bellhops_own_answers_need_no_right(house):  # noqa: F811
    """They are for whoever sent a command, also where they have to wait, and in a private thread."""
    house.sim.private_thread(PRIVATE, GENERAL)
    for n, chat in enumerate((GENERAL, PRIVATE)):
        house.sim.limit(chat, 1)
        house.sim.say(chat, "/link ABCDEFGH", user=(ANN, BOB)[n])
        wait_for(lambda: any("not valid" in t for t in house.sim.texts(chat)))


# ---- names of threads ----


@pytest.mark.parametrize("private", ["", ", auto_thread: true"], indirect=True)
def test_a_thread_is_renamed_by_whoever_opened_it_or_was_heard_in_it(private):
    """b's person sees everything in the channel; what a and people made there is not b's to name."""
    sim, a, b = private.sim, private.ga, private.gb  # noqa: F811
    sim.say(GENERAL, "bob in public", user=BOB)
    b.hear("bob in public")
    made = a.act(op="thread_create", chat_id=GENERAL, thread_name="a plan", metadata={})["thread_id"]
    said = sim.say(GENERAL, "ann again", user=ANN)["id"]
    a.hear("ann again")
    under = a.act(op="thread_create", chat_id=GENERAL, thread_name="under", message_id=said, metadata={})["thread_id"]
    rename = dict(op="thread_rename", thread_name="taken over", metadata={})
    for thread in (made, under, THREAD):
        for chat in (GENERAL, thread):
            answer = b.act(chat_id=chat, message_id=thread, **rename)
            assert not answer["success"], answer
    assert [sim.channels[t]["name"] for t in (made, under, THREAD)] == ["a plan", "under", "dinner"]
    for thread in (made, under):
        assert a.act(chat_id=GENERAL, message_id=thread, **rename)["success"]
    sim.say(THREAD, "bob in the thread", user=BOB)
    chat = b.hear("bob in the thread")["event"]["source"]["chat_id"]
    assert b.act(chat_id=chat, message_id=THREAD, **rename)["success"]
    assert not a.act(chat_id=GENERAL, message_id=THREAD, **rename)["success"]


# ---- questions ----


def press(sim, message, custom_id, user, n):  # noqa: F811
    sim.interaction(f"press{n}")
    sim.tell("INTERACTION_CREATE", {
        "id": str(700000000000000700 + n), "application_id": "app1", "token": f"press{n}", "type": 3, "version": 1, "guild_id": GUILD,
        "channel_id": GENERAL, "channel": {"id": GENERAL, "type": 0}, "message": {"id": message},
        "member": {"user": sim.people[user], "roles": []}, "data": {"component_type": 2, "custom_id": custom_id}})


def test_an_agent_cannot_take_over_the_question_of_another(house):  # noqa: F811
    """Whoever guesses the id of a question neither ends it nor gets or gives its answer."""
    for who, gateway, user in ((house.a, house.ga, ANN), (house.b, house.gb, BOB)):
        house.link(who, user)
        house.sim.say(GENERAL, f"hi {user}", user=user)
        gateway.hear(f"hi {user}")
    ask_it = dict(op="prompt", chat_id=GENERAL, prompt_kind="approval", prompt_id="0a1b2c3d", options=OPTIONS, metadata={})
    bait = house.gb.act(**ask_it, content="Do you like cats?")["message_id"]
    real = house.ga.act(**ask_it, content="Shall I pay?")["message_id"]
    press(house.sim, bait, "hp1:0a1b2c3d:yes", ANN, 1)
    assert house.ga.quiet() and house.gb.quiet()  # she does not answer b, and said nothing to a
    press(house.sim, real, "hp1:0a1b2c3d:yes", ANN, 2)
    assert house.ga.hear("/yes")["event"]["prompt_response"]["prompt_id"] == "0a1b2c3d"
    press(house.sim, bait, "hp1:0a1b2c3d:yes", BOB, 3)
    house.gb.hear("/yes")
    assert house.ga.quiet()

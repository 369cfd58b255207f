"""Telegram: the real program against a strict simulator of the Bot API."""
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

from conftest import BUILD, wait_for
from relay import http

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from telegram import TelegramSim, units  # noqa: E402

TOKEN = "777000:AAsecret-token_of-the-bot"
SECRET = "hook-secret_1"
ANN, GROUP, FORUM, NEWS = 5, -1001, -1002, -1003

CONFIG = """\
listen: 127.0.0.1:0
public_url: https://relay.example.org
state_dir: {{state}}
log: {{{{level: debug}}}}
platforms:
  - {{{{platform: telegram, bot: my_bot, token: "{token}", api_base: "{api}", mode: {mode}{more}}}}}
"""


@pytest.fixture
def sim():
    s = TelegramSim()
    s.bot(TOKEN, "my_bot")
    s.person(ANN, "Ann")
    s.group(GROUP, "Team")
    s.group(FORUM, "Forum", is_forum=True, topics=[4])
    s.chats[NEWS] = {"id": NEWS, "type": "channel", "title": "News", "messages": {}}
    yield s
    s.close()


def config(sim, mode="polling", more=""):
    return CONFIG.format(api=sim.url, token=TOKEN, mode=mode, more=more)


@pytest.fixture
def rig(sim, make_bellhop, dial):
    """A server that polls the simulator, and a gateway that gets everything of the bot."""
    class Rig:
        pass

    r = Rig()
    r.sim, r.server = sim, make_bellhop(config(sim))
    r.credential = r.server.add(platform="telegram", bot="my_bot")
    r.dial = lambda **more: dial(r.server, r.credential, hello=("telegram", "my_bot"), **more)
    r.gateway = r.dial()
    yield r
    assert TOKEN not in r.server.log() and TOKEN.split(":")[1] not in r.server.log()


def status(server):
    return next(p for p in json.loads(server.cli("status", "--json").stdout)["platforms"] if p["platform"] == "telegram")


def send(gateway, chat, content, **metadata):
    return gateway.act(op="send", chat_id=str(chat), content=content, reply_to=metadata.pop("reply_to", None),
                       metadata=metadata)


# ---- in ----


def test_what_telegram_invents_later_is_not_dropped(rig):
    rig.sim.say(ANN, hologram={"title": "A cube", "layers": [{"text": "top"}]})
    assert rig.gateway.hear("[hologram]\nA cube\ntop")["event"]["message_type"] == "text"
    rig.sim.say(ANN, rich_message={"blocks": [{"type": "paragraph", "text": ["so ", {"type": "bold", "text": "rich"}]}]})
    rig.gateway.hear("[rich message]\nso rich")
    rig.sim.say(ANN, "after", future={"a": [1]}, is_ephemeral=True)
    rig.gateway.hear("after")


def test_a_person_writes_and_sees_the_answer(rig):
    said = rig.sim.say(ANN, "hello")
    event = rig.gateway.hear("hello")["event"]
    source = event["source"]
    assert (source["platform"], source["chat_id"], source["chat_type"]) == ("telegram", "5", "dm")
    assert (source["user_id"], source["user_name"], event["message_id"]) == ("5", "Ann Lee", str(said))
    result = send(rig.gateway, ANN, "**hi** there", reply_to=event["message_id"])
    assert result["success"], result
    answer, = rig.sim.sent(ANN)
    assert result["message_id"] == str(answer["message_id"])
    assert answer["text"] == "hi there"
    assert answer["entities"] == [{"type": "bold", "offset": 0, "length": 2}]
    assert answer["reply_to_message"]["message_id"] == said
    assert rig.gateway.descriptor["max_message_length"] == 4096
    assert not rig.sim.called("sendRichMessage")  # only with rich: true
    assert (rig.gateway.descriptor["len_unit"], rig.gateway.descriptor["markdown_dialect"]) == ("utf16", "markdown_v2")


def test_groups_topics_channels_and_media(rig):
    s, g = rig.sim, rig.gateway
    s.say(GROUP, "/help@my_bot now")
    event = g.hear("/help now")["event"]
    assert event["message_type"] == "command" and event["source"]["chat_type"] == "group"
    s.say(GROUP, "/help@other_bot now")
    s.say(FORUM, "in a topic", message_thread_id=4, is_topic_message=True)
    source = g.hear("in a topic")["event"]["source"]
    assert (source["chat_type"], source["thread_id"]) == ("forum", "4")
    s.say(NEWS, "read all about it", kind="channel_post")
    assert g.hear("read all about it")["event"]["source"]["chat_type"] == "channel"
    s.say(ANN, caption="look", photo=[{"file_id": "A", "width": 1}, {"file_id": s.file(b"the picture"), "width": 2}])
    event = g.hear("look")["event"]
    assert event["message_type"] == "photo" and len(event["media_urls"]) == 1
    s.say(ANN, "fixed", kind="edited_message", edit_date=7)
    g.hear("[edited] fixed")


@pytest.mark.parametrize("place", ["4", f"{FORUM}:4", str(FORUM)])
def test_a_policy_may_free_a_single_topic(rig, place):
    s, g = rig.sim, rig.gateway
    policy = {"platform": "telegram", "requireAddress": True, "freeResponseScopes": [place]}
    assert rig.server.post("/relay/policy", policy, headers={"Authorization": f"Bearer {rig.credential.token()}"}).status == 200
    s.say(GROUP, "not for you")
    if place != str(FORUM):
        s.say(FORUM, "nor this")
    s.say(FORUM, "in a topic", message_thread_id=4, is_topic_message=True)
    g.hear("in a topic")
    s.say(GROUP, "@my_bot but this")
    g.hear("@my_bot but this")


def test_a_topic_is_renamed_under_a_guard_once_its_name_was_told(rig):
    s, g = rig.sim, rig.gateway
    s.say(FORUM, "in a topic", message_thread_id=4, is_topic_message=True)
    g.hear("in a topic")
    rename = dict(op="thread_rename", chat_id=str(FORUM), message_id="4", metadata={})
    names = s.chats[FORUM].setdefault("topic_names", {})
    assert "has not told" in g.act(**rename, thread_name="x", only_if_current_name="plans")["error"]
    s.say(FORUM, forum_topic_edited={"name": "plans"}, message_thread_id=4, is_topic_message=True)
    s.say(FORUM, forum_topic_edited={"icon_custom_emoji_id": "1"}, message_thread_id=4, is_topic_message=True)
    s.say(FORUM, "renamed", message_thread_id=4, is_topic_message=True)
    g.hear("renamed")
    assert "another name" in g.act(**rename, thread_name="x", only_if_current_name="dinner")["error"]
    assert "bellhop gave" in g.act(**rename, thread_name="x", only_if_connector_created=True)["error"]
    assert names == {}
    assert g.act(**rename, thread_name="party", only_if_current_name="plans")["success"] and names == {4: "party"}
    assert g.act(**rename, thread_name="feast", only_if_connector_created=True)["success"] and names == {4: "feast"}
    s.say(FORUM, forum_topic_edited={"name": "ours now"}, message_thread_id=4, is_topic_message=True)
    s.say(FORUM, "and again", message_thread_id=4, is_topic_message=True)
    g.hear("and again")
    assert not g.act(**rename, thread_name="x", only_if_connector_created=True)["success"] and names == {4: "feast"}
    made = g.act(op="thread_create", chat_id=str(FORUM), thread_name="mine", metadata={})["thread_id"]
    again = {**rename, "message_id": made, "only_if_connector_created": True, "only_if_current_name": "mine"}
    assert g.act(**again, thread_name="still mine")["success"] and names[int(made)] == "still mine"
    assert "not the number" in send(g, FORUM, "where?", thread_id="my topic")["error"] and s.texts(FORUM) == []


def test_order_is_kept_and_repeated_updates_are_heard_once(rig):
    rig.sim.shuffle = True
    for i in range(120):
        rig.sim.say(ANN if i % 2 else GROUP, f"m{i}")
    wait_for(lambda: len(rig.gateway.seen) == 120, 20)
    for parity in (0, 1):
        ours = [t for t in rig.gateway.seen if int(t[1:]) % 2 == parity]
        assert ours == sorted(ours, key=lambda t: int(t[1:]))
    again = {"message_id": 100, "date": 1, "chat": {"id": 5, "type": "private"}, "from": {"id": 5}, "text": "twice"}
    first = rig.sim.update("message", again)
    rig.sim.update("message", again)
    rig.sim.update("message", {**again, "message_id": 101, "text": "last"}, update_id=first["update_id"] + 5)
    wait_for(lambda: rig.gateway.seen[-1] == "last")
    assert rig.gateway.seen[120:] == ["twice", "last"]


def test_nothing_is_lost_or_repeated_across_restarts(rig, dial):
    s = rig.sim
    for i in range(5):
        s.say(ANN, f"a{i}")
    wait_for(lambda: len(rig.gateway.seen) == 5)
    rig.gateway.close()
    s.say(ANN, "while away")
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 1)
    rig.server.kill()
    s.say(ANN, "while down")
    rig.server.start()
    gateway = rig.dial()
    gateway.hear("while away")
    gateway.hear("while down")
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 0)  # both acks were read
    assert rig.server.stop() == 0
    s.say(ANN, "later")
    rig.server.start()
    gateway = rig.dial()
    gateway.hear("later")
    assert gateway.quiet()


def test_the_agent_sleeps_and_finds_its_letters(rig):
    rig.gateway.sleep()
    for i in range(3):
        rig.sim.say(ANN, f"letter {i}")
    wait_for(lambda: rig.server.instance(rig.credential.id)["entries"] == 3)
    assert rig.sim.called("getUpdates")[-1].get("offset", 0) > 0  # confirmed: they are on disk
    gateway = rig.dial()
    for i in range(3):
        gateway.hear(f"letter {i}")


def test_somebody_else_polls_and_it_shows(rig):
    wait_for(lambda: rig.sim.called("getUpdates"))
    assert http("POST", f"{rig.sim.url}/bot{TOKEN}/getUpdates", {"timeout": 0}).status == 200
    rig.sim.trouble("getUpdates", 409, "Conflict: terminated by other getUpdates request; make sure that only one bot "
                                       "instance is running", times=3)
    problem = wait_for(lambda: status(rig.server)["problem"])
    assert "Another program polls" in problem
    assert "platform_up{platform=\"telegram\",bot=\"my_bot\"} 0" in rig.server.get("/metrics").text
    assert rig.server.cli("doctor", check=False).returncode == 1
    rig.sim.say(ANN, "still here")
    rig.gateway.hear("still here", 30)
    wait_for(lambda: status(rig.server)["problem"] is None)


def test_a_revoked_token_is_named(sim, make_bellhop):
    sim.bots.clear()
    server = make_bellhop(config(sim))
    assert "Telegram does not know this token" in wait_for(lambda: status(server)["problem"])
    assert TOKEN not in server.log()


def test_telegram_goes_away_and_comes_back(rig):
    rig.sim.say(ANN, "before")
    rig.gateway.hear("before")
    rig.sim.down()
    wait_for(lambda: status(rig.server)["problem"], 20)
    rig.sim.say(ANN, "meanwhile")
    rig.sim.up()
    rig.gateway.hear("meanwhile", 20)
    wait_for(lambda: status(rig.server)["problem"] is None)


# ---- out ----


def test_every_markdown_is_accepted(rig):
    rig.sim.say(ANN, "hi")
    rig.gateway.hear("hi")
    texts = ["a_b*c[d]e(f)~g`h>i#j+k-l=m|n{o}p.q!r\\s", "# T\n- a **b** `c`\n> q [l](https://x.org)\n```py\nx\n```",
             "*unclosed **bold", "1 < 2 & 3 > 2", "\U0001F600 **\U0001F600**"]
    for text in texts:
        assert send(rig.gateway, ANN, text)["success"]
    assert rig.sim.texts(ANN)[0] == "a_b*c[d]e(f)~g`h>i#j+k-l=m|n{o}p.q!r\\s"
    assert all("parse_mode" not in p for p in rig.sim.called("sendMessage"))


def test_refused_entities_are_sent_again_as_plain_text(rig):
    rig.sim.say(ANN, "hi")
    rig.gateway.hear("hi")
    rig.sim.trouble("sendMessage", 400, "Bad Request: can't parse entities: character '.' is reserved")
    assert send(rig.gateway, ANN, "**x** y")["success"]
    answer, = rig.sim.sent(ANN)
    assert answer["text"] == "x y" and answer["entities"] == []


def test_long_texts_are_split_in_utf16_units(rig):
    rig.sim.say(ANN, "hi")
    rig.gateway.hear("hi")
    words = "\U0001F600 word " * 2000  # 16000 units
    result = send(rig.gateway, ANN, f"**{words.strip()}**")
    assert result["success"]
    parts = rig.sim.sent(ANN)
    assert len(parts) == 4 and all(units(p["text"]) <= 4096 for p in parts)
    assert " ".join(p["text"] for p in parts) == words.strip()
    assert all(p["entities"][0]["length"] == units(p["text"]) for p in parts)
    assert result["message_id"] == str(parts[0]["message_id"])


def test_a_limited_chat_waits_and_others_do_not(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hi"), s.say(GROUP, "ho")
    g.hear("hi"), g.hear("ho")
    s.limit(ANN, retry_after=3)
    began = time.monotonic()
    for i in range(3):
        g.send({"type": "outbound", "requestId": f"r{i}",
                "action": {"op": "send", "chat_id": "5", "content": f"n{i}", "metadata": {}}})
    assert send(g, GROUP, "at once")["success"]
    assert time.monotonic() - began < 2.5
    wait_for(lambda: s.texts(ANN) == ["n0", "n1", "n2"])
    assert time.monotonic() - began >= 2.95
    assert len(s.called("sendMessage")) == 5  # nothing was tried before the time was over


def test_failures_say_what_to_do(rig):
    s, g = rig.sim, rig.gateway
    s.say(ANN, "hi"), s.say(GROUP, "ho")
    g.hear("hi"), g.hear("ho")
    s.chats[ANN]["gone"] = "bot was blocked by the user"
    result = send(g, ANN, "x")
    assert not result["success"] and "blocked this bot" in result["error"] and "network" not in result["error"]
    s.chats[GROUP]["gone"] = "bot was kicked from the supergroup chat"
    assert "removed from this chat" in send(g, GROUP, "x")["error"]
    del s.chats[ANN]["gone"]
    s.trouble("sendMessage", 502, times=2)  # Telegram was not reached: tried until it is
    assert send(g, ANN, "x")["success"]
    s.trouble("sendMessage", None)
    assert send(g, ANN, "once")["error"].startswith("timed out: ")
    assert s.texts(ANN) == ["x", "once"]
    s.trouble("sendMessage", 503)
    assert send(g, ANN, "after a hiccup")["success"]
    assert send(g, 424242, "x")["error"]  # never delivered there: not ours to write to


def test_edit_typing_and_info(rig):
    s, g = rig.sim, rig.gateway
    s.say(FORUM, "hi", message_thread_id=4, is_topic_message=True)
    g.hear("hi")
    sent = send(g, FORUM, "draft", thread_id="4")
    assert s.sent(FORUM)[0]["message_thread_id"] == 4
    assert send(g, FORUM, "general", thread_id="1")["success"]
    assert "message_thread_id" not in s.sent(FORUM)[1]
    assert "no longer exists" in send(g, FORUM, "lost", thread_id="9")["error"]
    for _ in range(2):  # the second changes nothing
        edit = g.act(op="edit", chat_id=str(FORUM), message_id=sent["message_id"], content="*final*", metadata={})
        assert edit["success"], edit
    assert s.texts(FORUM)[0] == "final"
    for _ in range(3):
        assert g.act(op="typing", chat_id=str(FORUM), metadata={"thread_id": "4"})["success"]
    assert s.called("sendChatAction") == [{"chat_id": FORUM, "message_thread_id": 4, "action": "typing"}]
    info = g.act(op="get_chat_info", chat_id=str(FORUM))
    assert info["chat_info"] == {"name": "Forum", "type": "forum"}


def test_a_group_that_moved_is_followed(rig):
    s, g = rig.sim, rig.gateway
    s.chats[-7] = {"id": -7, "type": "group", "title": "Small", "messages": {}}
    s.group(-1007, "Small")
    s.say(-7, "hi")
    g.hear("hi")
    s.chats[-7]["moved"] = -1007
    assert send(g, -7, "still here")["success"]
    assert s.texts(-1007) == ["still here"]
    rig.server.restart()
    g = rig.dial()
    assert send(g, -7, "remembered")["success"]
    assert s.texts(-1007) == ["still here", "remembered"]
    assert len([p for p in s.called("sendMessage") if p["chat_id"] == -7]) == 1


def test_what_was_being_sent_at_a_crash_is_not_sent_blindly(rig):
    rig.sim.say(ANN, "hi")
    rig.gateway.hear("hi")
    rig.sim.trouble("sendMessage", 500, delay=30)
    rig.gateway.send({"type": "outbound", "requestId": "r",
                      "action": {"op": "send", "chat_id": "5", "content": "maybe", "metadata": {}}})
    wait_for(lambda: rig.sim.called("sendMessage"))
    rig.server.kill()
    rig.sim.troubles.clear()
    rig.server.start()
    gateway = rig.dial()
    assert send(gateway, ANN, "maybe")["error"].startswith("timed out: ")
    assert send(gateway, ANN, "maybe")["success"]
    assert rig.sim.texts(ANN) == ["maybe"]
    assert status(rig.server)["cutOffAtStart"] == 1


# ---- lives ----


def test_killed_again_and_again_nothing_is_lost_or_out_of_order(rig):
    """Repeated may only be what was heard in the last moments before a kill, its ack not yet on disk."""
    chance = random.Random(3)
    rig.gateway.close()
    rig.gateway = rig.dial(ack=False)
    heard, killed = {}, 0.0  # message_id -> (text, when)

    def listen(gateway, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                frame = gateway.next("inbound", left)
            except AssertionError:
                return
            event = frame["event"]
            if event["message_id"] in heard:
                text, when = heard[event["message_id"]]
                assert text == event["text"] and when > killed - 0.5
            else:
                heard[event["message_id"]] = (event["text"], time.monotonic())
            gateway.acknowledge(frame)

    said = 0
    for _ in range(5):
        for _ in range(20):
            rig.sim.say(ANN, f"m{said}")
            said += 1
        listen(rig.gateway, chance.choice([0, 0.01, 0.05, 0.4, 1.5]))
        killed = time.monotonic()
        rig.server.kill()
        rig.server.start()
        rig.gateway = rig.dial(ack=False)
    end = time.monotonic() + 20
    while len(heard) < said and time.monotonic() < end:
        listen(rig.gateway, 0.3)
    listen(rig.gateway, 0.5)
    assert [text for text, _ in heard.values()] == [f"m{i}" for i in range(said)]


def test_the_example_agent_answers(sim, make_bellhop):
    server = make_bellhop(config(sim))
    c = server.add(platform="telegram", bot="my_bot")
    env = {**os.environ, "GATEWAY_RELAY_URL": server.url, "GATEWAY_RELAY_ID": c.id, "GATEWAY_RELAY_SECRET": c.secret}
    agent = subprocess.Popen([BUILD / "echo", "--platform", "telegram=my_bot", "--idle", "0"], env=env)
    try:
        sim.say(ANN, "good morning")
        wait_for(lambda: any("good morning" in t for t in sim.texts(ANN)), 20)
    finally:
        agent.terminate()
        assert agent.wait(20) == 0


def test_two_platforms_share_one_socket(sim, make_bellhop, dial):
    server = make_bellhop(config(sim) + "  - {{platform: web, bot: lobby}}\n")
    c = server.add(platform="telegram", bot="my_bot")
    server.cli("route", "add", "--platform", "web", "--key", "lobby", "--tenant", "t")
    gateway = dial(server, c, hello=("telegram", "my_bot"))
    gateway.send({"type": "hello", "platform": "web", "botId": "lobby"})
    assert gateway.next("descriptor")["descriptor"]["platform"] == "web"
    sim.say(ANN, "from telegram")
    gateway.hear("from telegram")
    server.write("from the page")
    page = gateway.hear("from the page")["event"]["source"]["chat_id"]
    assert gateway.act(platform="telegram", bot="my_bot", op="send", chat_id="5", content="to telegram",
                       metadata={})["success"]
    assert gateway.act(platform="web", bot="lobby", op="send", chat_id=page, content="to the page",
                       metadata={})["success"]
    assert sim.texts(ANN) == ["to telegram"]


# ---- webhooks ----


def test_webhook_mode(sim, make_bellhop, dial):
    server = make_bellhop(config(sim, "webhook", f", webhook_secret: {SECRET}"))
    sim.webhook_to = server.url
    credential = server.add(platform="telegram", bot="my_bot")
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    wait_for(lambda: sim.bots[TOKEN]["webhook"])
    assert sim.bots[TOKEN]["webhook"]["url"] == "https://relay.example.org/webhooks/telegram/my_bot"
    sim.say(ANN, "by webhook")
    gateway.hear("by webhook")
    gateway.sleep()
    sim.say(ANN, "asleep")
    wait_for(lambda: server.instance(credential.id)["entries"] == 1)
    wait_for(lambda: not sim.bots[TOKEN]["updates"])
    gateway = dial(server, credential, hello=("telegram", "my_bot"))
    gateway.hear("asleep")
    assert send(gateway, ANN, "answer")["success"] and sim.texts(ANN) == ["answer"]
    assert not sim.called("getUpdates")


def test_strangers_learn_nothing_from_webhooks(sim, make_bellhop):
    server = make_bellhop(config(sim, "webhook", f", webhook_secret: {SECRET}"))
    update = {"update_id": 1, "message": {}}
    header = "X-Telegram-Bot-Api-Secret-Token"
    wrong = server.post("/webhooks/telegram/my_bot", update, headers={header: "wrong"})
    none = server.post("/webhooks/telegram/my_bot", update)
    unknown = server.post("/webhooks/telegram/no_bot", update, headers={header: SECRET})
    assert (wrong.status, wrong.text) == (none.status, none.text) == (unknown.status, unknown.text)
    assert wrong.status == 401
    right = server.post("/webhooks/telegram/my_bot", update, headers={header: SECRET})
    assert right.status == 200
    assert server.post("/webhooks/telegram/my_bot", [], headers={header: SECRET}).status == 400


def test_polling_takes_the_webhook_away(sim, make_bellhop, dial):
    sim.bots[TOKEN]["webhook"] = {"url": "https://elsewhere.example.org"}
    server = make_bellhop(config(sim))
    gateway = dial(server, server.add(platform="telegram", bot="my_bot"), hello=("telegram", "my_bot"))
    sim.say(ANN, "hello")
    gateway.hear("hello")


# ---- rich messages ----

TABLE = "# Plan\n\n| who | what |\n|---|---|\n| Ann | **cake** |\n\n$a^2$ and `code`"


@pytest.fixture
def rich(sim, make_bellhop, dial):
    """A gateway at a bot with rich: true, which has heard Ann and the forum."""
    server = make_bellhop(config(sim, more=", rich: true"))
    gateway = dial(server, server.add(platform="telegram", bot="my_bot"), hello=("telegram", "my_bot"))
    gateway.server, gateway.said = server, sim.say(ANN, "hi")
    gateway.hear("hi")
    sim.say(FORUM, "ho", message_thread_id=4, is_topic_message=True)
    gateway.hear("ho")
    return gateway


def test_rich_messages_are_the_markdown_itself(sim, rich):
    assert rich.descriptor["max_message_length"] == 4096 and "tables" in rich.descriptor["platform_hint"]
    result = send(rich, ANN, TABLE, reply_to=str(rich.said))
    answer, = sim.sent(ANN)
    assert answer["rich_message"] and sim.texts(ANN) == [TABLE] and result["message_id"] == str(answer["message_id"])
    assert answer["reply_to_message"]["message_id"] == rich.said
    assert send(rich, FORUM, TABLE, thread_id="4")["success"] and sim.sent(FORUM)[0]["message_thread_id"] == 4
    edit = rich.act(op="edit", chat_id="5", message_id=result["message_id"], content="## Done", metadata={})
    assert edit["success"] and sim.texts(ANN) == ["## Done"] and "rich_message" in sim.sent(ANN)[0]
    longer = TABLE + "\n\n" + "word " * 4000
    assert send(rich, FORUM, longer, thread_id="4")["success"] and sim.texts(FORUM) == [TABLE, longer]  # not split
    too_long = "\U0001F600 word " * 5000  # more than a rich message takes
    assert send(rich, FORUM, too_long, thread_id="4")["success"]
    assert len(sim.called("sendMessage")) == len(sim.sent(FORUM)) - 2 > 1
    asked = rich.act(op="prompt", chat_id="5", content="**Well?**", prompt_id="q", metadata={},
                     options=[{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}])
    assert asked["success"] and "rich_message" in sim.sent(ANN)[-1]
    keys = sim.sent(ANN)[-1]["reply_markup"]["inline_keyboard"]
    sim.press(ANN, int(asked["message_id"]), [b for row in keys for b in row if b["text"] == "No"][0]["callback_data"])
    rich.hear("/no")
    sim.say(ANN, "which?", reply_to_message=sim.sent(ANN)[0])
    assert "## Done" in rich.hear("which?")["event"]["reply_to"]["text"]


def test_a_refused_rich_message_falls_back_once(sim, rich):
    sim.trouble("sendRichMessage", 400, "Bad Request: RICH_MESSAGE_INVALID")
    words = ("word " * 2000).strip()
    result = send(rich, ANN, f"**{words}**")
    assert result["success"] and len(sim.called("sendRichMessage")) == 1
    parts = sim.sent(ANN)
    assert len(parts) == 3 and " ".join(sim.texts(ANN)) == words and all(p["entities"] for p in parts)
    assert send(rich, ANN, "**again**")["success"] and sim.texts(ANN)[-1] == "**again**"
    sim.trouble("sendRichMessage", 503)
    assert send(rich, ANN, "after a hiccup")["success"]
    sim.trouble("sendRichMessage", None)  # it arrived, but bellhop cannot know
    assert send(rich, ANN, "once")["error"].startswith("timed out: ")
    assert sim.texts(ANN)[3:] == ["**again**", "after a hiccup", "once"]
    assert len(sim.called("sendMessage")) == 3


def test_an_older_api_server_is_asked_for_rich_messages_once(sim, rich):
    sim.rich = False
    assert status(rich.server)["rich"]
    sent = [send(rich, ANN, f"**n{i}**") for i in range(3)]
    assert all(r["success"] for r in sent) and sim.texts(ANN) == ["n0", "n1", "n2"]
    assert len(sim.called("sendRichMessage")) == 1 and not status(rich.server)["rich"]
    edit = rich.act(op="edit", chat_id="5", message_id=sent[0]["message_id"], content="*new*", metadata={})
    assert edit["success"] and sim.texts(ANN)[0] == "new"


def test_rich_answers_stream(sim, rich):
    for text in ("# He", "# Hello", "# Hello Ann"):
        assert rich.act(op="draft", chat_id="5", draft_id=7, content=text, metadata={})["success"]
    wait_for(lambda: sim.drafts and sim.drafts[-1][2] == "# Hello Ann")
    done = rich.act(op="draft", chat_id="5", draft_id=7, content="# Hello Ann.", final=True, metadata={})
    assert done["success"] and sim.texts(ANN) == ["# Hello Ann."] and not sim.called("sendMessageDraft")
    first = send(rich, FORUM, "# One", thread_id="4")
    for i in range(5):
        assert rich.act(op="edit", chat_id=str(FORUM), message_id=first["message_id"], content=f"# One {i}",
                        metadata={})["success"]
    wait_for(lambda: sim.texts(FORUM) == ["# One 4"], 30)
    assert "rich_message" in sim.sent(FORUM)[0]


def test_a_crash_during_a_rich_send_does_not_double_it(sim, rich, dial):
    sim.trouble("sendRichMessage", 503, times=1000, delay=30)
    rich.send({"type": "outbound", "requestId": "r1",
               "action": {"op": "send", "chat_id": "5", "content": "# maybe", "metadata": {}}})
    wait_for(lambda: sim.called("sendRichMessage"))
    rich.server.kill()
    sim.troubles.clear()
    rich.server.start()
    wait_for(lambda: status(rich.server)["sendsUnknown"] + status(rich.server)["cutOffAtStart"] == 1)
    assert len(sim.called("sendRichMessage")) == 1 and not sim.called("sendMessage")


# ---- the simulator itself ----


@pytest.mark.parametrize("method, body, part", [
    ("sendRichMessage", {"chat_id": ANN}, "CONTENT_REQUIRED"),
    ("sendRichMessage", {"chat_id": ANN, "rich_message": {"markdown": " "}}, "CONTENT_REQUIRED"),
    ("sendRichMessage", {"chat_id": ANN, "rich_message": {"text": "x"}}, "can't parse"),
    ("sendRichMessage", {"chat_id": ANN, "rich_message": {"markdown": "x" * 32769}}, "too long"),
    ("sendRichMessage", {"chat_id": ANN, "text": "x", "rich_message": {"markdown": "x"}}, "unknown parameters"),
    ("sendRichMessage", {"chat_id": FORUM, "message_thread_id": 9, "rich_message": {"markdown": "x"}}, "thread not found"),
    ("sendRichMessageDraft", {"chat_id": GROUP, "draft_id": 1, "rich_message": {"markdown": "x"}}, "private chats only"),
    ("sendRichMessageDraft", {"chat_id": ANN, "draft_id": 0, "rich_message": {"markdown": "x"}}, "non-zero"),
    ("editMessageText", {"chat_id": ANN, "message_id": 1, "text": "x", "rich_message": {"markdown": "x"}}, "are given"),
])
def test_the_simulator_is_strict_with_rich_messages(sim, method, body, part):
    answer = http("POST", f"{sim.url}/bot{TOKEN}/{method}", body)
    assert answer.status == 400 and part in answer.json["description"]
    longest = {"chat_id": ANN, "rich_message": {"markdown": "x" * 32768}}
    assert http("POST", f"{sim.url}/bot{TOKEN}/sendRichMessage", longest).status == 200


@pytest.mark.parametrize("body, part", [
    ({"text": "a.b", "parse_mode": "MarkdownV2"}, "reserved"),
    ({"text": "*a", "parse_mode": "MarkdownV2"}, "can't find end"),
    ({"text": "x" * 4097}, "too long"),
    ({"text": "\U0001F600" * 2049}, "too long"),
    ({"text": "ab", "entities": [{"type": "bold", "offset": 0, "length": 3}]}, "not inside"),
    ({"text": "abc", "entities": [{"type": "bold", "offset": 0, "length": 2},
                                  {"type": "italic", "offset": 1, "length": 2}]}, "overlap"),
    ({"text": "ab", "entities": [{"type": "bold", "offset": 0, "length": 2},
                                 {"type": "code", "offset": 0, "length": 2}]}, "inside of bold"),
    ({"text": "ab", "unknown": 1}, "unknown parameters"),
    ({"text": " "}, "empty"),
])
def test_the_simulator_is_strict(sim, body, part):
    answer = http("POST", f"{sim.url}/bot{TOKEN}/sendMessage", {"chat_id": ANN, **body})
    assert answer.status == 400 and part in answer.json["description"]
    good = http("POST", f"{sim.url}/bot{TOKEN}/sendMessage",
                {"chat_id": ANN, "text": "*a* \\. `x`", "parse_mode": "MarkdownV2"})
    assert good.status == 200 and sim.texts(ANN) == ["a . x"]

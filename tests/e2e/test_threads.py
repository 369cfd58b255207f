"""Threads that answers open, posts in forums, voice messages and people's reactions on Discord."""
import base64
import os
import struct

import pytest

import test_discord
from conftest import wait_for
from test_discord import ANN, BOT, DM, FORUM, GENERAL, POST, THREAD, DiscordSim, send
from test_rich import react, reference, send_media

BOB = "430000000000000043"
MENTION = {"mentions": [{"id": BOT, "username": "bellhop"}]}


@pytest.fixture
def sim():
    made = DiscordSim(test_discord.TOKEN)
    made.people[BOB] = {"id": BOB, "username": "bob", "global_name": "Bob"}
    yield made
    made.close()


@pytest.fixture
def rig(sim, make_bellhop, dial):
    r = test_discord.Rig(sim, make_bellhop, dial, ", auto_thread: true, reactions: true, context: 0")
    yield r
    r.check()


def ask(rig, text, channel=GENERAL):
    said = rig.sim.say(channel, f"<@{BOT}> {text}", **MENTION)
    return said["id"], rig.gateway.hear(text)["event"]


def test_an_answer_opens_a_thread_and_the_conversation_goes_on_there(rig):
    s, g = rig.sim, rig.gateway
    said, event = ask(rig, "plan a  party\nfor Bob")
    source = event["source"]
    assert (source["chat_id"], source["chat_type"], source["thread_id"]) == (GENERAL, "group", None)
    assert source["prospective_thread_id"] == said and "auto_thread_created" not in source
    result = send(g, GENERAL, "gladly", reply_to=said, user_id=ANN)
    assert (result["thread_id"], result["auto_thread_name"]) == (said, "plan a party for Bob")
    assert s.texts(said) == ["gladly"] and s.texts(GENERAL) == []
    assert s.channels[said]["name"] == "plan a party for Bob"
    # What follows without saying what it answers belongs to it, and so does what is done to it.
    assert send(g, GENERAL, "with cake", user_id=ANN)["thread_id"] == said
    assert s.texts(said) == ["gladly", "with cake"]
    edit = dict(op="edit", chat_id=GENERAL, message_id=result["message_id"], content="of course", metadata={})
    assert g.act(**edit)["success"] and s.texts(said) == ["of course", "with cake"]
    inside, event = ask(rig, "in the garden", said)
    source = event["source"]
    assert (source["chat_id"], source["chat_type"], source["thread_id"]) == (GENERAL, "thread", said)
    assert (source["auto_thread_created"], source["auto_thread_initial_name"]) == (True, "plan a party for Bob")
    assert "prospective_thread_id" not in source
    assert react(g, GENERAL, inside, "\U0001F440")["success"]  # newer gateways name no thread here
    assert s.messages[said][-1]["mine"] == ["\U0001F440"]
    assert send(g, GENERAL, "noted", reply_to=inside, thread_id=said)["success"]
    assert s.texts(said)[-1] == "noted" and s.texts(GENERAL) == []
    assert len(s.called("POST", "/threads")) == 1
    # Its agent may rename it, as long as it has the name that it was given.
    rename = dict(op="thread_rename", chat_id=GENERAL, message_id=said, only_if_connector_created=True, metadata={})
    assert g.act(**rename, thread_name="Bob's party")["success"]
    wait_for(lambda: not g.act(**rename, thread_name="x")["success"])
    assert s.channels[said]["name"] == "Bob's party"
    # Whoever knows the thread by its own id alone means the same.
    assert g.act(**{**rename, "chat_id": said}, thread_name="x")["error"].startswith("the name of this thread is not")
    assert g.act(op="thread_rename", chat_id=said, message_id=said, only_if_current_name="Bob's party", thread_name="y",
                 metadata={})["success"]
    assert send(g, said, "by its id")["success"] and s.texts(said)[-1] == "by its id"
    rig.server.restart()
    rig.gateway = rig.dial()
    rig.live()
    _, event = ask(rig, "still there?", said)
    assert event["source"]["auto_thread_initial_name"] == "plan a party for Bob"
    assert send(rig.gateway, GENERAL, "yes", thread_id=said)["success"] and s.texts(said)[-1] == "yes"


def test_a_thread_is_not_named_after_numbers(rig):
    said = rig.sim.say(GENERAL, f"could you <@{BOT}> meet <@{BOB}>, in <#{GENERAL}> ?", **MENTION)["id"]
    rig.gateway.next("inbound")
    assert send(rig.gateway, GENERAL, "gladly", reply_to=said, user_id=ANN)["auto_thread_name"] == "could you meet in ?"


def test_several_conversations_of_a_channel_keep_apart(rig):
    first, _ = ask(rig, "one")
    second, _ = ask(rig, "two")
    assert send(rig.gateway, GENERAL, "to two", reply_to=second)["thread_id"] == second
    assert send(rig.gateway, GENERAL, "to one", reply_to=first)["thread_id"] == first
    assert (rig.sim.texts(first), rig.sim.texts(second)) == (["to one"], ["to two"])
    _, event = ask(rig, "in a post", POST)
    assert (event["source"]["chat_id"], event["source"]["thread_id"]) == (FORUM, POST)
    assert send(rig.gateway, FORUM, "answered", thread_id=POST)["success"] and rig.sim.texts(POST) == ["answered"]
    _, event = ask(rig, "psst", DM)
    assert "prospective_thread_id" not in event["source"]
    assert "thread_id" not in send(rig.gateway, DM, "yes?", reply_to=event["message_id"])
    assert send(rig.gateway, DM, "late", reply_to="12345")["success"]  # the question was deleted


def test_where_no_thread_can_be_opened_the_channel_gets_the_answer(rig):
    rig.sim.threadless.add(GENERAL)
    said, _ = ask(rig, "hello")
    result = send(rig.gateway, GENERAL, "hi", reply_to=said, user_id=ANN)
    assert result["success"] and "thread_id" not in result
    assert send(rig.gateway, GENERAL, "and more", user_id=ANN)["success"]
    assert rig.sim.texts(GENERAL) == ["hi", "and more"]


def test_an_answer_for_a_private_thread_never_appears_in_public(rig):
    s, private = rig.sim, "230000000000000230"
    s.private_thread(private, GENERAL)
    said, event = ask(rig, "between us", private)
    assert (event["source"]["chat_id"], event["source"]["thread_id"]) == (GENERAL, private)
    s.archive(private)
    s.archive(POST)
    rig.server.restart()  # forgets them
    rig.gateway = g = rig.dial()
    rig.live()
    # Nothing that names the thread, or a message in it, is for the channel.
    forgotten = s.say(private, "what now?", unseen=True)["id"]
    assert "name its thread" in send(g, GENERAL, "a secret", reply_to=forgotten)["error"]
    assert not g.act(op="typing", chat_id=GENERAL, metadata={"thread_id": private})["success"] and s.typed == []
    options = [{"id": "yes", "label": "Yes"}]
    result = send(g, GENERAL, "a secret", thread_id=private)
    assert result["success"] and s.texts(private) == ["a secret"], result
    assert send(g, GENERAL, "and more", reply_to=said, thread_id=private)["success"]
    assert len(s.called("GET", f"/channels/{private}")) == 1  # known from then on
    for wrong in (POST, "240000000000000240", GENERAL + "0", "my thread"):  # another chat's, none, no id
        for op in ("send", "prompt"):
            result = g.act(op=op, chat_id=GENERAL, content="a secret", prompt_id="0a1b2c3d", prompt_kind="choice", options=options,
                           metadata={"thread_id": wrong})
            assert not result["success"] and "network" not in result["error"], (wrong, result)
    del s.channels[private]
    assert not send(g, GENERAL, "a secret", thread_id=private)["success"]
    assert not send(g, GENERAL, "a secret", reply_to=said)["success"]
    assert not send(g, GENERAL, "a secret", reply_to=forgotten)["success"]
    assert s.texts(GENERAL) == [] and s.texts(POST) == []


def test_a_thread_bellhop_made_is_known_at_once(rig):
    s, g = rig.sim, rig.gateway
    s.untold.add("THREAD_CREATE")
    said, _ = ask(rig, "hello")
    made = g.act(op="thread_create", chat_id=GENERAL, thread_name="a secret", metadata={})["thread_id"]
    assert send(g, GENERAL, "by its channel", thread_id=made)["success"]
    assert send(g, made, "by its id")["success"]
    assert s.texts(made) == ["by its channel", "by its id"]
    opened = send(g, GENERAL, "hi", reply_to=said)["thread_id"]  # and one that an answer opened
    assert send(g, GENERAL, "there", thread_id=opened)["success"] and send(g, opened, "too")["success"]
    assert s.texts(opened) == ["hi", "there", "too"] and s.texts(GENERAL) == []


def test_a_crash_between_thread_and_answer_doubles_neither(rig):
    said, _ = ask(rig, "hello")
    rig.sim.trouble("POST", f"/channels/{said}/messages", 500, times=1000)
    act = dict(op="send", chat_id=GENERAL, content="hi", reply_to=said, metadata={})
    rig.gateway.send({"type": "outbound", "requestId": "r1", "action": act})
    wait_for(lambda: rig.sim.called("POST", f"/channels/{said}/messages"))
    rig.server.kill()
    rig.sim.troubles.clear()
    rig.server.start()
    wait_for(lambda: rig.sim.texts(said) == ["hi"], 20)
    assert len(rig.sim.channels) == len(set(rig.sim.channels)) and rig.sim.texts(GENERAL) == []
    rig.gateway = rig.dial()
    rig.live()


def test_a_restart_forgets_neither_a_threads_name_nor_where_an_answer_lies(rig):
    said, _ = ask(rig, "plan a party")
    first = send(rig.gateway, GENERAL, "gladly", reply_to=said)["message_id"]
    other, _ = ask(rig, "and a wedding")
    assert send(rig.gateway, GENERAL, "sure", reply_to=other)["success"]
    late, _ = ask(rig, "and a funeral")  # answered after the restart
    rig.server.kill()
    rig.server.start()
    rig.gateway = rig.dial()
    rig.live()
    edit = dict(op="edit", chat_id=GENERAL, message_id=first, content="of course", metadata={})
    assert rig.gateway.act(**edit)["success"]  # answered before Discord has it
    wait_for(lambda: rig.sim.texts(said) == ["of course"])
    result = send(rig.gateway, GENERAL, "well", reply_to=late)
    assert (result["thread_id"], result["auto_thread_name"]) == (late, "and a funeral")
    assert rig.sim.channels[late]["name"] == "and a funeral" and rig.sim.texts(late) == ["well"]
    asked = len(rig.sim.called("PATCH", "/messages/"))
    assert rig.gateway.act(**{**edit, "content": "yes"})["success"]
    wait_for(lambda: rig.sim.texts(said) == ["yes"])
    assert len(rig.sim.called("PATCH", "/messages/")) == asked + 1  # it is known by now
    assert not rig.gateway.act(**{**edit, "message_id": "1"})["success"]


def test_threads_stay_what_they_were_where_answers_open_none(sim, make_bellhop, dial):
    r = test_discord.Rig(sim, make_bellhop, dial)
    said, event = ask(r, "hello")
    assert "prospective_thread_id" not in event["source"]
    assert "thread_id" not in send(r.gateway, GENERAL, "hi", reply_to=said)
    _, event = ask(r, "inside", THREAD)
    assert event["source"]["chat_id"] == THREAD
    made = r.gateway.act(op="thread_create", chat_id=FORUM, thread_name="a question", metadata={})
    assert not made["success"]  # nobody wrote to it from there
    ask(r, "in a post", POST)
    r.check()


def test_a_post_is_made_in_a_forum(rig):
    ask(rig, "in a post", POST)  # in the parent's shape the forum is known
    made = rig.gateway.act(op="thread_create", chat_id=FORUM, thread_name="a question", metadata={})
    assert made["success"], made
    thread = rig.sim.channels[made["thread_id"]]
    assert (thread["parent_id"], thread["name"]) == (FORUM, "a question")
    assert rig.sim.texts(made["thread_id"]) == ["a question"]
    wait_for(lambda: send(rig.gateway, FORUM, "who knows?", thread_id=made["thread_id"])["success"])
    assert rig.sim.texts(made["thread_id"])[-1] == "who knows?"


def test_a_question_in_a_thread_is_answered_in_its_session(rig):
    said, _ = ask(rig, "may I?")
    options = [{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}]
    asked = rig.gateway.act(op="prompt", chat_id=GENERAL, content="sure?", prompt_kind="choice", prompt_id="0a1b2c3d",
                            options=options, reply_to=said, metadata={})
    assert asked["thread_id"] == said, asked
    button = rig.sim.sent(said)[-1]["components"][0]["components"][0]
    rig.sim.interaction("tok")
    rig.sim.tell("INTERACTION_CREATE", {
        "id": "700000000000000700", "application_id": "app1", "token": "tok", "type": 3, "version": 1, "guild_id": rig.sim.channels[said]["guild_id"],
        "channel_id": said, "channel": {"id": said, "type": 11, "parent_id": GENERAL}, "message": {"id": asked["message_id"]},
        "member": {"user": rig.sim.people[ANN], "roles": []}, "data": {"component_type": 2, "custom_id": button["custom_id"]}})
    event = rig.gateway.hear("/yes")["event"]
    assert event["prompt_response"]["option_id"] == "yes"
    assert (event["source"]["chat_id"], event["source"]["thread_id"]) == (GENERAL, said)
    rig.sim.threadless.add(GENERAL)
    said, _ = ask(rig, "and now?")
    assert not rig.gateway.act(op="prompt", chat_id=GENERAL, content="sure?", prompt_kind="choice", prompt_id="1a1b2c3d",
                               options=options, reply_to=said, metadata={})["success"]


# ---- voice ----


def page(samples, body, number):
    segments = [255] * (len(body) // 255) + [len(body) % 255]
    return b"OggS\0\0" + struct.pack("<qIII", samples, 1, number, 0) + bytes([len(segments)]) + bytes(segments) + body


def ogg(seconds, loud=40):
    """Opus in Ogg, as far as anybody looks who does not decode it."""
    pages = [page(0, b"OpusHead\1\1" + struct.pack("<HIhB", 312, 48000, 0, 0), 0), page(0, b"OpusTags" + bytes(8), 1)]
    for n in range(1, seconds + 1):
        pages.append(page(312 + n * 48000, b"x" * (loud if n % 2 else loud * 4), n + 1))
    return b"".join(pages)


def test_a_voice_note_is_played_in_place(rig):
    said, _ = ask(rig, "sing")
    result = send_media(rig.gateway, GENERAL, reference(rig, ogg(6), type="audio/ogg"), "voice")
    assert result["success"], result
    call = rig.sim.called("POST", "/messages")[-1][2]
    file, = call["attachments"]
    assert call["flags"] == 1 << 13 and "content" not in call and file["duration_secs"] == 6
    wave = base64.b64decode(file["waveform"])
    assert len(wave) == 64 and max(wave) == 255 and min(wave) < 128  # loud and low
    # A caption cannot go with it, so it follows.
    rig.sim.messages[GENERAL].clear()
    assert send_media(rig.gateway, GENERAL, reference(rig, ogg(2), type="audio/ogg"), "voice", "my song")["success"]
    assert [m["content"] for m in rig.sim.sent(GENERAL)[-2:]] == ["", "my song"]
    # What is no Opus is a file with sound, as is a voice note that was sent as such.
    assert send_media(rig.gateway, GENERAL, reference(rig, b"ID3" + b"x" * 99, type="audio/mpeg"), "voice", "mp3")["success"]
    assert send_media(rig.gateway, GENERAL, reference(rig, ogg(2), type="audio/ogg"), "audio")["success"]
    assert all("flags" not in c[2] for c in rig.sim.called("POST", "/messages")[-2:])


def test_a_voice_note_is_read_beside_everything_else(rig):
    """Its file is on a disk that does not answer: only this chat waits, and what is said there keeps its order."""
    ask(rig, "sing")
    address = reference(rig, ogg(3), type="audio/ogg")
    path, = [p for p in (rig.server.state / "media").rglob("*") if p.is_file() and p.name in address]
    path.rename(path.with_name("aside"))
    os.mkfifo(path)
    for n, action in enumerate(({"op": "send_media", "chat_id": GENERAL, "media_kind": "voice", "source_url": address, "metadata": {}},
                                {"op": "send", "chat_id": GENERAL, "content": "and?", "metadata": {}})):
        rig.gateway.send({"type": "outbound", "requestId": f"v{n}", "action": action})
    with open(path, "wb") as slow:  # somebody reads it by now
        path.with_name("aside").rename(path)
        for _ in range(3):
            assert rig.gateway.act(op="get_chat_info", chat_id=GENERAL)["success"]
        assert rig.sim.called("POST", "/messages") == []
        slow.write(ogg(3))
    assert [rig.gateway.next("outbound_result")["result"]["success"] for _ in range(2)] == [True, True]
    voice, text = [c[2] for c in rig.sim.called("POST", "/messages")]
    assert voice["attachments"][0]["duration_secs"] == 3 and text["content"] == "and?"
    # It says that it is one, and is none.
    assert send_media(rig.gateway, GENERAL, reference(rig, b"OggS" + b"x" * 99, type="audio/ogg"), "voice", "hm")["success"]
    assert ["flags" in c[2] for c in rig.sim.called("POST", "/messages")[-2:]] == [False, False]


def test_where_voice_messages_are_not_allowed_it_is_a_file(rig):
    ask(rig, "sing")
    rig.sim.voiceless.add(GENERAL)
    assert send_media(rig.gateway, GENERAL, reference(rig, ogg(2), type="audio/ogg"), "voice", "my song")["success"]
    assert [m["content"] for m in rig.sim.sent(GENERAL)] == ["", "my song"]
    assert "flags" not in rig.sim.called("POST", "/messages")[-1][2]


def test_a_voice_message_comes_in_as_one(rig):
    rig.sim.say(GENERAL, "", flags=1 << 13, attachments=[{
        "id": "1", "url": "https://cdn.discordapp.com/v.ogg", "content_type": "audio/ogg", "filename": "voice-message.ogg",
        "duration_secs": 3.2, "waveform": "AAAA", "size": 9}])
    event = rig.gateway.hear("")["event"]
    assert (event["message_type"], event["media"][0]["kind"]) == ("voice", "voice")


# ---- reactions ----


def test_a_reaction_to_what_the_agent_said_reaches_it(rig):
    s, g = rig.sim, rig.gateway
    said, _ = ask(rig, "hello")
    sent = send(g, GENERAL, "shall I?", reply_to=said)
    thread = sent["thread_id"]
    s.react(thread, sent["message_id"], {"id": None, "name": "\U0001F44D"})
    event = g.hear("reaction:added:\U0001F44D")["event"]
    assert (event["message_id"], event["reply_to_message_id"]) == (sent["message_id"],) * 2
    assert event["reply_to"]["is_own"] is True
    source = event["source"]
    assert (source["user_id"], source["user_name"], source["chat_id"], source["thread_id"]) == (ANN, "Annie", GENERAL, thread)
    s.react(thread, sent["message_id"], {"id": None, "name": "\U0001F44D"}, removed=True)
    g.hear("reaction:removed:\U0001F44D")
    s.react(thread, sent["message_id"], {"id": None, "name": "\U0001F44D"})  # and again
    g.hear("reaction:added:\U0001F44D")
    s.react(thread, sent["message_id"], {"id": "900", "name": "party"}, user=BOB)
    assert g.hear("reaction:added::party:")["event"]["source"]["user_name"] == "Bob"
    s.react(GENERAL, said, {"id": None, "name": "\U0001F44D"}, user=BOB)  # to what Ann said
    s.react(GENERAL, said, {"id": None, "name": "\U0001F44D"}, user=BOB, removed=True)
    assert react(g, GENERAL, said, "\u2705")["success"]  # the bot's own
    assert g.quiet()
    rig.server.cli("principal", "set", "--instance", rig.credential.id, "--mode", "owner-only")
    s.react(thread, sent["message_id"], {"id": None, "name": "\U0001F44E"}, user=BOB)
    assert g.quiet()  # the gate is asked as for anything people say


def test_reactions_are_nobodys_business_unless_an_operator_says_so(sim, make_bellhop, dial):
    r = test_discord.Rig(sim, make_bellhop, dial)
    said, _ = ask(r, "hello")
    sent = send(r.gateway, GENERAL, "hi", reply_to=said)
    sim.react(GENERAL, sent["message_id"], {"id": None, "name": "x"})
    assert r.gateway.quiet() and not any(s.intents & (1 << 10) for s in sim.sessions.values())
    r.check()

"""Answers that stream: many chats at once against the platforms' real limits, through the program as it is."""
import json
import os
import time

import pytest

from stream_rig import CONFIG, TOKEN, Discord, Streamer, Telegram, begin, meet, stream, wait_for

LONG = bool(os.environ.get("BELLHOP_LONG"))
CHATS, SECONDS = (200, int(os.environ.get("BELLHOP_STREAM_SECONDS", 130))) if LONG else (16, 3)


@pytest.fixture(params=[Telegram, Discord], ids=["telegram", "discord"])
def world(request, make_bellhop):
    w = request.param(CHATS)
    w.server = make_bellhop(CONFIG.format(platform=w.name, token=TOKEN, api=w.sim.url))
    credential = w.server.add(platform=w.name, bot="my_bot")
    w.gateway = Streamer(w.server.url, credential.id, credential.secret, (w.name, "my_bot"))
    if w.name == "discord":
        wait_for(lambda: json.loads(w.server.cli("status", "--json").stdout)["platforms"][0]["state"] == "live")
    meet(w, w.gateway)
    yield w
    w.sim.close()


def test_everybody_streams_and_nobody_is_limited(world):
    """Each chat gets many updates a second. The platform refuses nothing, the last text is right everywhere, a message to
    another chat does not wait, and what was merged does not count against limits.instance_actions."""
    r = stream(world, world.gateway, begin(world, world.gateway), SECONDS)
    print("\n", world.name, json.dumps(r))
    assert r["refused_late" if LONG else "refused"] == 0
    assert r["busy_ms"] - r["calm_ms"] < 100
    assert r["shown"] < r["updates"] / 5


@pytest.mark.parametrize("world", [Telegram], ids=["telegram"], indirect=True)
def test_a_platform_stricter_than_we_think_is_learned(world):
    """Telegram without any burst: a few chats are refused once, then none."""
    w, g = world, world.gateway
    w.sim.real_limits(strict=True)
    for i, chat in enumerate(w.chats[:3]):
        first = g.act(f"s{i}", op="send", chat_id=str(chat), content="...", metadata={})
        for k in range(4):
            result = g.act(f"x{i}.{k}", op="edit", chat_id=str(chat), message_id=first["message_id"], content=f"text {k}", metadata={})
            assert result["success"], result
    wait_for(lambda: all(w.shown(chat) == "text 3" for chat in w.chats[:3]), 40)
    assert len(w.sim.refused) <= 4, w.sim.refused


def test_drafts_are_previews_and_a_final_one_is_a_message(world):
    w, g = world, world.gateway
    chat = str(w.chats[0])
    draft = lambda request, text, **more: g.act(request, op="draft", chat_id=chat, draft_id=7, content=text, metadata={}, **more)  # noqa: E731
    if w.name == "discord":
        assert "unsupported op: draft" in draft("d0", "He")["error"]
        assert draft("d1", "He", message=True) == {"success": True, "queued": True}
        done = draft("d2", "Hello.", message=True, final=True)
        assert done["success"] and w.shown(chat) == "Hello."
        assert draft("d3", "Hello.", message=True, final=True)["message_id"] == done["message_id"]
        assert w.sim.texts(chat) == ["Hello."]
        return
    for k, text in enumerate(["He", "Hell", "Hello **th"]):
        assert draft(f"d{k}", text) == {"success": True, "queued": True}
    wait_for(lambda: w.sim.drafts and w.sim.drafts[-1][2] == "Hello th")
    assert len({d[1] for d in w.sim.drafts}) == 1 and w.sim.drafts[0][2] == "He"
    done = draft("d8", "Hello there.", final=True)
    assert done["success"] and w.sim.texts(w.chats[0]) == ["Hello there."]
    assert draft("d9", "Hello there.", final=True)["message_id"] == done["message_id"]


@pytest.mark.parametrize("world", [Telegram], ids=["telegram"], indirect=True)
def test_a_newer_op_that_bellhop_lacks_is_refused_by_name(world):
    w, g = world, world.gateway
    for op in ("task_card", "delete", "status_text"):
        result = g.act(op, op=op, chat_id=str(w.chats[0]), card_id="turn:1", chunks=[], metadata={})
        assert result == {"success": False, "error": f"unsupported op: {op}"}


@pytest.mark.parametrize("world", [Telegram], ids=["telegram"], indirect=True)
def test_a_crash_leaves_no_cursor_and_finishes_the_last_text(world):
    """bellhop and the gateway die in the middle of an answer: the next start shows the newest text that was kept, as it was."""
    w, g = world, world.gateway
    chat, other = w.chats[0], w.chats[1]
    ids = [g.act(f"s{c}", op="send", chat_id=str(c), content="Let me ▉", metadata={})["message_id"] for c in (chat, other)]
    edit = lambda request, c, text: g.act(request, op="edit", chat_id=str(c), message_id=ids[c - chat], content=text, metadata={})  # noqa: E731
    for k in range(30):
        assert edit(f"x{k}", chat, f"Let me think {k} ▉")["success"]
    wait_for(lambda: w.shown(chat) == "Let me think 29 ▉")  # shown, and the message of the other chat never changed
    w.sim.trouble("editMessageText", 500, times=3)
    assert edit("y", chat, "Let me think about it ▉")["queued"]
    time.sleep(1.6)  # a second without a newer text
    w.server.kill()
    w.server.start()
    wait_for(lambda: (w.shown(chat), w.shown(other)) == ("Let me think about it", "Let me"), 30)


@pytest.mark.parametrize("world", [Telegram], ids=["telegram"], indirect=True)
def test_a_part_that_may_have_arrived_is_not_sent_again(world):
    """The text outgrows its message, and the line is cut behind the send of the second one: nobody knows whether it arrived."""
    w, g = world, world.gateway
    chat, text = w.chats[0], " ".join(f"word{n}" for n in range(800))
    first = g.act("s", op="send", chat_id=str(chat), content="Let me ▉", metadata={})["message_id"]
    for method in ("sendMessage", "sendRichMessage"):
        w.sim.trouble(method, None)
    assert g.act("x", op="edit", chat_id=str(chat), message_id=first, content=text, metadata={})["success"]
    wait_for(lambda: len(w.sim.texts(chat)) > 1)
    time.sleep(4)
    assert " ".join(w.sim.texts(chat)) == text
    assert g.act("y", op="edit", chat_id=str(chat), message_id=first, content=text + " and more", metadata={})["success"]
    wait_for(lambda: w.shown(chat).endswith("word799 and more"))  # newer text is shown, at the price of a repeat


@pytest.mark.parametrize("world", [Telegram], ids=["telegram"], indirect=True)
def test_an_edit_that_is_refused_after_it_was_called_queued_becomes_a_message(world):
    """Telegram takes its time to refuse. Meanwhile the gateway was told "queued", and sends no further edit."""
    w, g = world, world.gateway
    chat, other = w.chats[0], w.chats[1]
    for i, c in enumerate((chat, other)):
        first = g.act(f"s{i}", op="send", chat_id=str(c), content="Let me", metadata={})["message_id"]
        w.sim.trouble("editMessageText", 400, "Bad Request: message can't be edited", delay=2)
        assert g.act(f"x{i}", op="edit", chat_id=str(c), message_id=first, content="The answer", metadata={})["queued"]
    time.sleep(1.5)
    assert not g.act("y", op="edit", chat_id=str(other), message_id=first, content="The answer.", metadata={})["success"]
    wait_for(lambda: w.sim.texts(chat) == ["Let me", "The answer"])
    time.sleep(3)
    assert w.sim.texts(chat) == ["Let me", "The answer"] and w.sim.texts(other) == ["Let me"]


@pytest.mark.parametrize("world", [Telegram], ids=["telegram"], indirect=True)
def test_an_edit_that_needs_too_many_messages_is_refused_at_once(world):
    w, g = world, world.gateway
    chat = w.chats[0]
    first = g.act("s", op="send", chat_id=str(chat), content="Let me", metadata={})["message_id"]
    edit = lambda request, text: g.act(request, op="edit", chat_id=str(chat), message_id=first, content=text, metadata={})  # noqa: E731
    start = time.monotonic()
    assert "too long" in edit("x", "word " * 40000)["error"]
    w.sim.trouble("editMessageText", 500, delay=1)
    assert edit("y", "The answer")["success"]
    assert "too long" in edit("z", "word " * 40000)["error"]  # also while another text is on its way
    assert time.monotonic() - start < 10
    wait_for(lambda: w.sim.texts(chat) == ["The answer"])

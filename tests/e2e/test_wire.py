"""Frames as strangers send them: split, merged, unknown, broken; interrupts; actions that are refused."""
import json
import time

import pytest

from conftest import wait_for
from relay import Gateway, Over


def hello(platform="web", bot="lobby", **more):
    return {"type": "hello", "platform": platform, "botId": bot, **more}


@pytest.fixture
def gateway(bellhop, dial):
    return dial(bellhop, bellhop.add())


def chat_of(bellhop, gateway, text="hello"):
    bellhop.write(text)
    return gateway.hear(text)["event"]["source"]["chat_id"]


# ---- framing ----


def test_several_frames_in_one_message(gateway):
    line = json.dumps(hello()) + "\n"
    gateway.send_raw(line * 3)
    for _ in range(3):
        gateway.next("descriptor")


def test_a_frame_split_across_messages(gateway):
    line = json.dumps(hello()) + "\n"
    for i in range(0, len(line), 5):
        gateway.send_raw(line[i:i + 5])
    gateway.next("descriptor")
    assert gateway.quiet("descriptor")


def test_a_frame_without_its_newline_waits_for_it(gateway):
    gateway.send_raw(json.dumps(hello()))
    assert gateway.quiet("descriptor")
    gateway.send_raw("\n")
    gateway.next("descriptor")


def test_binary_messages_carry_the_same_stream(gateway):
    gateway.send_raw((json.dumps(hello()) + "\n").encode())
    gateway.next("descriptor")


def test_unknown_types_and_fields_are_ignored(bellhop, gateway):
    gateway.send({"type": "from_the_future", "x": [1, 2, {"y": None}]})
    gateway.send({"no": "type"})
    gateway.send(hello(command_manifest={"a": 1}, extra="field"))
    gateway.next("descriptor")
    assert bellhop.metric("frames_unknown_total") >= 1
    assert bellhop.metric("frames_malformed_total") == 0


@pytest.mark.parametrize("junk", ["{", "[" * 200 + "]" * 200, "not json", '{"type": }', "\x00\x01", b"\xff\xfe\xfa"])
def test_one_broken_frame_is_forgiven_and_counted(bellhop, gateway, junk):
    gateway.send_raw(junk + (b"\n" if isinstance(junk, bytes) else "\n"))
    gateway.send(hello())
    gateway.next("descriptor")
    assert bellhop.metric("frames_malformed_total") >= 1


def test_endless_garbage_is_closed_with_1008(gateway):
    gateway.send_raw("garbage\n" * 2000)
    assert gateway.wait_closed()[0] == 1008


def test_an_endless_line_is_closed_with_1009(bellhop, gateway):
    try:
        for _ in range(20):
            gateway.send_raw("x" * 100_000)
    except Over:
        pass
    assert gateway.wait_closed()[0] == 1009
    with pytest.raises(Over):
        gateway.send_raw("x")
    assert bellhop.metric("resident_bytes") < 400 << 20


# ---- handshake ----


def test_every_hello_gets_a_descriptor_for_the_platform_it_names(gateway):
    gateway.send(hello("web", "attic"))
    assert gateway.next("descriptor")["descriptor"]["platform"] == "web"
    gateway.send(hello("carrier-pigeon", "x"))
    assert gateway.next("descriptor")["descriptor"]["platform"] == "relay"


def test_a_descriptor_has_the_nine_keys(gateway):
    assert {"contract_version", "platform", "label", "max_message_length", "supports_draft_streaming", "supports_edit",
            "supports_threads", "markdown_dialect", "len_unit"} <= set(gateway.descriptor)


def test_nothing_is_delivered_before_the_handshake(bellhop):
    c = bellhop.add()
    bellhop.write("early")
    g = Gateway(bellhop.url, c.id, c.secret, hello=None)
    assert g.quiet()
    g.send(hello())
    g.next("descriptor")
    g.hear("early")
    g.close()


# ---- actions ----


def test_an_unknown_op_is_refused_in_words(bellhop, gateway):
    chat = chat_of(bellhop, gateway)
    result = gateway.act(op="levitate", chat_id=chat)
    assert result["success"] is False and "levitate" in result["error"]


def test_a_chat_nobody_wrote_from_is_refused(bellhop, gateway):
    chat_of(bellhop, gateway)
    result = gateway.act(op="send", chat_id="some-other-chat", content="psst", metadata={})
    assert result["success"] is False and "not routed" in result["error"]
    assert bellhop.metric("actions_refused_total") >= 1


def test_a_text_that_was_cut_inside_an_emoji_is_sent(bellhop, gateway):
    """Python writes half a surrogate pair as it is."""
    chat = chat_of(bellhop, gateway)
    assert gateway.act(op="send", chat_id=chat, content="cut \ud83d", metadata={})["success"]


@pytest.mark.parametrize("action", [{}, {"op": "send"}, {"op": None, "chat_id": "c"}, {"op": "send", "chat_id": 7},
                                    {"op": "edit", "chat_id": "x"}, {"op": "send", "chat_id": "", "content": "x"}])
def test_every_request_gets_exactly_one_result(gateway, action):
    result = gateway.act(**action)
    assert result["success"] is False and result["error"]
    assert gateway.quiet("outbound_result")


def test_a_granted_chat_stays_granted_across_a_restart(bellhop, dial):
    c = bellhop.add()
    chat = chat_of(bellhop, dial(bellhop, c))
    bellhop.restart()
    assert dial(bellhop, c).act(op="send", chat_id=chat, content="still here", metadata={})["success"]


# ---- interrupts ----


def test_stop_from_a_person_is_an_interrupt_and_then_a_message(bellhop, gateway):
    chat = chat_of(bellhop, gateway)
    bellhop.write("/stop")
    frame = gateway.next("interrupt_inbound")
    assert frame["chat_id"] == chat and chat in frame["session_key"]
    gateway.hear("/stop")
    bellhop.write("/stop it")
    gateway.hear("/stop it")


def test_a_stop_holds_back_its_own_chat_only(bellhop, gateway):
    chat_of(bellhop, gateway)
    begin = time.monotonic()
    bellhop.write("/stop")
    gateway.next("interrupt_inbound")
    bellhop.write("somebody else", visitor="e2e-visitor-000001")
    gateway.hear("somebody else")
    assert time.monotonic() - begin < 1.0
    bellhop.write("after it")
    gateway.hear("/stop")
    assert time.monotonic() - begin > 1.9
    gateway.hear("after it")


def test_an_interrupt_reaches_the_instance_that_runs_the_session(bellhop, dial):
    a = bellhop.add()
    b = bellhop.add(bot="attic")
    stranger = bellhop.add(tenant="stranger", bot="attic")
    ga, gb, gs = dial(bellhop, a), dial(bellhop, b, hello=("web", "attic")), dial(bellhop, stranger)
    chat_of(bellhop, ga)
    bellhop.write("/stop")
    key = ga.next("interrupt_inbound")["session_key"]
    gb.send({"type": "interrupt", "session_key": key})
    assert ga.next("interrupt_inbound")["session_key"] == key
    gs.send({"type": "interrupt", "session_key": key})
    gs.send({"type": "interrupt", "session_key": "agent:main:nobody:ever"})
    assert ga.quiet("interrupt_inbound")
    assert not gs.over.is_set()

"""A W3C trace goes from a platform's webhook to the agent, and from its answer to the platform's API and to `why`."""
import json

import pytest

from conftest import wait_for
from test_hook import make_rig, send  # noqa: F401

TRACE, SPAN, OTHER = (f"00-{trace * 32}-{span * 16}-01" for trace, span in (("a", "b"), ("a", "c"), ("d", "e")))


@pytest.fixture
def rig(make_rig):  # noqa: F811
    return make_rig()


def said(rig, text, **headers):
    assert rig.sim.post(rig.sim.message(text), more=headers) == 200
    return rig.gateway.hear(text)["event"]


def test_a_trace_goes_from_a_webhook_to_the_agent_and_to_the_answer(rig):
    first = said(rig, "one", traceparent=TRACE)
    assert first["traceparent"] == TRACE
    assert send(rig.gateway, "answer")["success"]
    plain = said(rig, "two")
    bad = said(rig, "three", traceparent=TRACE.upper())
    assert "traceparent" not in plain and "traceparent" not in bad
    assert send(rig.gateway, "to the newest, which has none")["success"]
    assert send(rig.gateway, "to the first", reply_to=first["message_id"])["success"]
    assert send(rig.gateway, "in a span of the agent's own", metadata={"traceparent": SPAN})["success"]
    assert send(rig.gateway, "forged", metadata={"traceparent": "x\r\nX-Evil: 1"})["success"]
    assert rig.sim.traces == [TRACE, None, TRACE, SPAN, None]

    def why(*words):
        told = json.loads(rig.server.cli("why", *words, "--json", "--all").stdout)
        return [d["traceparent"] for d in told["decisions"]], [a["traceparent"] for a in told["actions"]]

    wait_for(lambda: why("--trace", TRACE) == ([TRACE], [SPAN, TRACE, TRACE]))
    assert why("--trace", "a" * 32) == ([TRACE], [SPAN, TRACE, TRACE]) and why("--trace", OTHER) == ([], [])
    assert f"  trace {TRACE}\n" in rig.server.cli("why", "--trace", TRACE).stdout
    rig.server.restart()
    assert why("--trace", TRACE) == ([TRACE], [SPAN, TRACE, TRACE])


def test_a_name_that_reverses_a_line_is_shown_as_it_is(rig):
    who = "u\u202e1"
    assert rig.sim.post(rig.sim.message("hi", who=who)) == 200
    source = rig.gateway.hear("hi")["event"]["source"]
    assert source["user_id"].endswith(who) and source["user_name"] == who.upper()  # agents get what was said
    shown = wait_for(lambda: rig.server.cli("why", "--chat", "desk/c1").stdout)
    assert "u\\u202e1" in shown and "\u202e" not in shown


def test_a_trace_waits_with_its_message_and_with_its_answer(rig):
    rig.gateway.close()
    assert rig.sim.post(rig.sim.message("while you were out"), more={"traceparent": OTHER}) == 200
    rig.server.kill()
    rig.gateway = rig.start()
    assert rig.gateway.hear("while you were out")["event"]["traceparent"] == OTHER
    said(rig, "now", traceparent=SPAN)
    rig.sim.troubles += [(503, {}, {})] * 100
    action = {"op": "send", "chat_id": "desk/c1", "content": "later", "metadata": {}}
    rig.gateway.send({"type": "outbound", "requestId": "r1", "action": action})
    wait_for(lambda: [e["state"] for e in json.loads(rig.server.cli("outbox", "list", "--json").stdout) if e["attempts"]] == ["waiting"])
    rig.server.kill()
    rig.sim.troubles.clear()
    rig.start()
    wait_for(lambda: rig.sim.traces == [SPAN])

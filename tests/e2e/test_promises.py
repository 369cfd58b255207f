"""Promises that survive kill -9: one test for each that needs no hundred kills (test_crash.py has those)."""
import time

from conftest import wait_for
from test_delivery import wake  # noqa: F401

CHAT = "visitor-0000000000"


def key_of(gateway, text):
    """The session key of a message on the web page, and its chat."""
    event = gateway.hear(text)["event"]
    chat = event["source"]["chat_id"]
    return f"agent:main:relay:dm:{chat}", chat


def test_interrupt_routing_survives_a_restart(bellhop, dial):
    """Which of two instances runs a session is known from what is on disk."""
    a, b = bellhop.add(id="a", bot="lobby"), bellhop.add(id="b", bot="attic")
    one, two = dial(bellhop, a), dial(bellhop, b, hello=("web", "attic"))
    assert bellhop.write("work", bot="attic", visitor=CHAT) == 200
    key, chat = key_of(two, "work")
    bellhop.kill()
    bellhop.start()
    one, two = dial(bellhop, a), dial(bellhop, b, hello=("web", "attic"))
    wait_for(lambda: bellhop.instance("b")["state"] == "live" and bellhop.instance("a")["state"] == "live")
    one.send({"type": "interrupt", "session_key": key, "reason": None})
    stopped = two.next("interrupt_inbound")
    assert (stopped["session_key"], stopped["chat_id"]) == (key, chat)
    assert one.quiet("interrupt_inbound", 0.2)


def test_when_an_instance_was_last_busy_survives_a_crash(bellhop, dial):
    c = bellhop.add(id="a")
    gateway = dial(bellhop, c)
    assert bellhop.write("hello", visitor=CHAT) == 200
    _, chat = key_of(gateway, "hello")
    assert gateway.act(op="send", chat_id=chat, content="hi")["success"]
    before = bellhop.instance("a")
    assert before["lastInboundAt"] > 1e12 and before["lastOutboundAt"] >= before["lastInboundAt"]
    time.sleep(0.25)  # the promise
    bellhop.kill()
    bellhop.start()
    after = bellhop.instance("a")
    assert after["lastInboundAt"] == before["lastInboundAt"]
    assert after["lastOutboundAt"] == before["lastOutboundAt"]


def test_a_sleeper_with_mail_is_poked_after_a_restart(bellhop, dial, wake):  # noqa: F811
    """Whether the crash came before the first poke or after it."""
    c = bellhop.add(wake_url=wake.url)
    dial(bellhop, c).sleep()
    for n in range(3):
        assert bellhop.write(f"m{n}") == 200
        bellhop.kill()
        before = len(wake.rings)
        bellhop.start()
        wait_for(lambda: len(wake.rings) > before, 10)
    again = dial(bellhop, c)
    for n in range(3):
        again.hear(f"m{n}")

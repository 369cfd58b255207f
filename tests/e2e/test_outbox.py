"""The outbox: what an agent said is on disk before it is tried, and goes on until it is done or nobody can know."""
import json
import os
import pathlib
import queue
import sqlite3
import sys
import threading
import time

import pytest

from conftest import wait_for
from relay import Gateway, Refused
from test_media import PNG, ask, download, files, kept, upload

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim"))
from telegram import TelegramSim  # noqa: E402

TOKEN = "777000:AAsecret-token_of-the-bot"
ANN, BOB = 5, 6
SENDS = int(os.environ.get("BELLHOP_OUTBOX_SENDS", "400"))
UPLOADS = int(os.environ.get("BELLHOP_OUTBOX_UPLOADS", "40"))
PER_GATEWAY = 200  # of the 256 that a socket may have under way
PER_CHAT = 50  # of the 64 that may wait in one

CONFIG = """\
listen: 127.0.0.1:0
state_dir: {{state}}
limits: {{{{instance_actions: 0, tenant_actions: 0}}}}
platforms:
  - {{{{platform: telegram, bot: my_bot, token: "{token}", api_base: "{api}", mode: polling}}}}
"""


class Rig:
    def __init__(self, sim, make_bellhop, dial, more=""):
        self.sim, self.n = sim, 0
        self.server = make_bellhop(CONFIG.format(api=sim.url, token=TOKEN) + more + "\n")
        self.credential = self.server.add(platform="telegram", bot="my_bot")
        self.dial = lambda: dial(self.server, self.credential, hello=("telegram", "my_bot"))
        self.gateway = self.dial()
        for chat in (ANN, BOB):
            self.sim.say(chat, f"I am {chat}", user={"id": chat, "is_bot": False, "first_name": "P"})
            self.gateway.hear(f"I am {chat}")

    def ask(self, chat, text, op="send", **more):
        """Asked for, and not waited for: the request's id."""
        self.n += 1
        self.gateway.send({"type": "outbound", "requestId": f"r{self.n}",
                           "action": {"op": op, "chat_id": str(chat), "content": text, "metadata": {}, **more}})
        return f"r{self.n}"

    def result(self, request, timeout=10):
        frame = self.gateway.next("outbound_result", timeout)
        assert frame["requestId"] == request, frame
        return frame["result"]

    def list(self):
        return json.loads(self.server.cli("outbox", "list", "--json").stdout)

    def records(self):
        return records(self.server, "outgoing")


def records(server, ns):
    with sqlite3.connect(f"file:{server.state}/bellhop.db?mode=ro", uri=True) as db:
        return [json.loads(bytes(v)) for v, in db.execute("SELECT v FROM kv WHERE ns = ? ORDER BY k", (ns,))]


@pytest.fixture
def sim():
    s = TelegramSim()
    s.bot(TOKEN, "my_bot")
    s.person(ANN, "Ann")
    s.person(BOB, "Bob")
    yield s
    s.close()


@pytest.fixture
def rig(sim, make_bellhop, dial, request):
    return Rig(sim, make_bellhop, dial, getattr(request, "param", ""))


def test_what_takes_longer_is_queued_and_can_be_edited(rig):
    """A gateway waits 30 s: after 25 it is told that its message is on disk, as a success with a name for it."""
    rig.sim.limit(ANN, 27)
    first, second = rig.ask(ANN, "one"), rig.ask(ANN, "two")
    assert rig.result(rig.ask(BOB, "elsewhere"))["success"]  # nobody else waits
    one, two = rig.result(first, 30), rig.result(second)
    for result in (one, two):
        assert result["success"] is True and result["queued"] is True
        assert result["message_id"].startswith("queued:")
    assert rig.result(rig.ask(ANN, "one, better", "edit", message_id=one["message_id"]))["success"]
    answered = rig.ask(ANN, "three", reply_to=two["message_id"])
    wait_for(lambda: rig.sim.texts(ANN) == ["one, better", "two", "three"], 20)
    assert rig.result(answered)["success"]
    last = rig.result(rig.ask(ANN, "two, better", "edit", message_id=two["message_id"]))
    assert last["success"] and not last["message_id"].startswith("queued:")
    assert rig.sim.texts(ANN) == ["one, better", "two, better", "three"]
    other = rig.result(rig.ask(BOB, "not yours", "edit", message_id=two["message_id"]))
    assert not other["success"]
    metric = lambda name: rig.server.metric(f'outbox_{name}{{platform="telegram",bot="my_bot"}}')  # noqa: E731
    assert metric("queued_total") == 2 and metric("waiting") == 0 and metric("done_total") >= 4
    why = json.loads(rig.server.cli("why", "--action", first, "--json").stdout)
    assert [(a["ended"], a["queued"], a["attempts"]) for a in why] == [("done", True, 2)]
    assert "its gateway was told that it is queued" in rig.server.cli("why", "--action", one["message_id"]).stdout


def test_a_kill_goes_on_with_what_waited_in_order(rig):
    rig.sim.limit(ANN, 3)
    asked = [rig.ask(ANN, text) for text in ("one", "two", "three")]
    wait_for(lambda: len(rig.records()) == 3 and len(rig.sim.called("sendMessage")) == 1)
    wait_for(lambda: all(r["state"] == "waiting" for r in rig.records()))
    rig.server.kill()
    rig.server.start()
    rig.gateway = rig.dial()
    results = {}
    for _ in asked:
        frame = rig.gateway.next("outbound_result")
        results[frame["requestId"]] = frame["result"]
    assert sorted(results) == sorted(asked) and all(r["success"] for r in results.values())
    assert rig.sim.texts(ANN) == ["one", "two", "three"]
    wait_for(lambda: rig.records() == [])
    assert rig.server.metric('outbox_revived_total{platform="telegram",bot="my_bot"}') == 3


def frame_of(request, text):
    return json.dumps({"type": "outbound", "requestId": request,
                       "action": {"op": "send", "chat_id": str(ANN), "content": text, "metadata": {}}}) + "\n"


def repeat_at_once(rig, request, text):
    """Dials and says it, before anything can have been read."""
    rig.gateway = Gateway(rig.server.url, rig.credential.id, rig.credential.secret, hello=None)
    hello = json.dumps({"type": "hello", "platform": "telegram", "botId": "my_bot"}) + "\n"
    rig.gateway.send_raw(hello + frame_of(request, text))
    rig.gateway.next("descriptor")


@pytest.mark.parametrize("again", ["same", "new"])
@pytest.mark.parametrize("when", ["answered", "under way"])
def test_what_is_said_again_before_its_result_was_read_is_sent_once(rig, again, when):
    """The socket is lost; the message has arrived when the gateway comes back, or arrives then."""
    rig.sim.limit(ANN, 1)
    request = rig.ask(ANN, "one")
    rig.gateway.cut()
    wait_for(lambda: rig.server.instance(rig.credential.id)["state"] != "live")
    if when == "answered":
        wait_for(lambda: rig.sim.texts(ANN) == ["one"] and rig.records() == [])
    repeat_at_once(rig, request if again == "same" else "another", "one")
    frames = [rig.gateway.next("outbound_result")]
    if again == "new" and when == "answered":
        frames.append(rig.gateway.next("outbound_result"))
    assert all(f["result"]["success"] for f in frames)
    assert {f["requestId"] for f in frames} >= {request if again == "same" else "another"}
    assert len({f["result"]["message_id"] for f in frames}) == 1
    assert rig.gateway.quiet("outbound_result", 1)
    rig.gateway.send_raw(frame_of("later", "one"))  # it has read the result: it means another message
    assert rig.gateway.next("outbound_result")["requestId"] == "later"
    assert rig.sim.texts(ANN) == ["one", "one"]
    rig.gateway.close()


@pytest.mark.parametrize("again", ["same", "new"])
def test_what_is_said_again_on_a_new_socket_while_the_old_one_seems_open_is_sent_once(rig, again):
    """The gateway knows that its socket is lost; bellhop does not yet."""
    rig.sim.limit(ANN, 2)
    request, half_open = rig.ask(ANN, "one"), rig.gateway
    wait_for(lambda: all(r["state"] == "waiting" for r in rig.records()) and rig.records())
    rig.gateway = rig.dial()
    rig.gateway.send_raw(frame_of(request if again == "same" else "another", "one"))
    frame = rig.gateway.next("outbound_result")
    assert frame["requestId"] == (request if again == "same" else "another") and frame["result"]["success"]
    assert rig.gateway.quiet("outbound_result", 1) and rig.sim.texts(ANN) == ["one"]
    half_open.close()


def test_two_gateways_of_an_instance_may_say_the_same(rig, dial):
    other = rig.server.add("--instance", rig.credential.id, platform=None)
    rig.sim.limit(ANN, 2)
    rig.ask(ANN, "one")
    wait_for(lambda: all(r["state"] == "waiting" for r in rig.records()) and rig.records())
    second = dial(rig.server, other, hello=("telegram", "my_bot"))
    second.send_raw(frame_of("another", "one"))
    assert second.next("outbound_result")["result"]["success"]
    wait_for(lambda: rig.sim.texts(ANN) == ["one", "one"])


def test_operators_see_what_waits_and_decide(rig):
    rig.sim.limit(ANN, 60)
    rig.ask(ANN, "one")
    second = rig.ask(ANN, "two")
    wait_for(lambda: len(rig.sim.called("sendMessage")) == 1 and len(rig.list()) == 2)
    one, two = rig.list()
    assert set(one) == {"id", "tenant", "instance", "platform", "bot", "chat_id", "op", "state", "attempts", "since",
                        "next_try", "last_error"}
    wait_for(lambda: rig.list()[0]["next_try"])
    one = rig.list()[0]
    assert (one["state"], one["op"], one["chat_id"], one["attempts"]) == ("waiting", "send", str(ANN), 1)
    assert one["next_try"] > time.time() * 1000 + 30000 and "asks to wait" in one["last_error"]
    shown = json.loads(rig.server.cli("outbox", "show", one["id"], "--json").stdout)
    assert shown["action"]["content"] == "one"
    table = rig.server.cli("outbox", "list").stdout
    assert f"telegram/{ANN}" in table and "one" not in table.split("LAST ERROR")[1].split()
    assert "part 1 of 1" in rig.server.cli("outbox", "show", one["id"]).stdout
    assert rig.server.cli("outbox", "drop", two["id"]).stderr == f"{two['id']} is dropped.\n"
    result = rig.result(second)
    assert not result["success"] and "operator" in result["error"] and "network" not in result["error"]
    assert [e["id"] for e in rig.list()] == [one["id"]]
    for verb in ("show", "drop", "retry"):
        assert rig.server.cli("outbox", verb, "77", check=False).returncode == 1
    assert rig.server.cli("outbox", "burn", "77", check=False).returncode == 2
    assert "refused, an operator" in rig.server.cli("why", "--action", second).stdout
    assert rig.server.cli("why", "--action", "nobody", check=False).returncode == 1


def test_what_nobody_knows_is_kept_for_operators(rig):
    rig.sim.trouble("sendMessage", None)
    assert rig.result(rig.ask(ANN, "maybe"))["error"].startswith("timed out: ")
    assert rig.sim.texts(ANN) == ["maybe"]
    entry, = rig.list()
    assert entry["state"] == "unknown" and "may have been delivered" in entry["last_error"]
    rig.server.restart()
    assert [e["id"] for e in rig.list()] == [entry["id"]]
    rig.gateway = rig.dial()
    assert rig.server.cli("outbox", "retry", entry["id"]).stderr == f"{entry['id']} is tried again.\n"
    wait_for(lambda: rig.sim.texts(ANN) == ["maybe", "maybe"])  # the operator's word
    wait_for(lambda: rig.list() == [] and rig.records() == [])


def test_what_a_kill_cut_off_can_be_asked_about(rig):
    rig.sim.trouble("sendMessage", 500, delay=30)
    request = rig.ask(ANN, "maybe")
    wait_for(lambda: [e["state"] for e in rig.list()] == ["trying"])
    rig.server.kill()
    rig.server.start()
    told, = json.loads(rig.server.cli("why", "--action", request, "--json").stdout)
    assert (told["ended"], told["attempts"]) == ("unknown", 1) and "restarted" in told["reason"]
    assert [(e["state"], e["attempts"]) for e in rig.list()] == [("unknown", 1)]
    rig.server.restart()
    told, = json.loads(rig.server.cli("why", "--action", request, "--json").stdout)
    assert told["ended"] == "unknown" and "restarted" in told["reason"]


def test_whoever_is_forgotten_leaves_nothing_in_the_outbox(rig):
    rig.sim.limit(ANN, 60)
    rig.sim.limit(BOB, 60)
    rig.ask(ANN, "to ann")
    rig.ask(BOB, "to bob")
    wait_for(lambda: len(rig.records()) == 2 and len(rig.sim.called("sendMessage")) == 2)
    rig.server.cli("erase", "--person", f"telegram:{ANN}", "--yes")
    wait_for(lambda: [e["chat_id"] for e in rig.list()] == [str(BOB)])
    wait_for(lambda: len(rig.records()) == 1)


def test_a_deprovisioned_instance_leaves_nothing_in_the_outbox(rig):
    """Neither its words nor its files go out after it is gone, not even after a restart."""
    rig.sim.limit(ANN, 5)
    rig.ask(ANN, "never mind")
    id = kept(rig.server, rig.credential)
    rig.ask(ANN, "look", op="send_media", media_kind="image", source_url=f"{rig.server.url}/relay/media/{id}")
    wait_for(lambda: len(rig.records()) == 2 and len(rig.sim.called("sendMessage")) == 1)
    other = rig.server.add(id="other", platform="telegram", bot="my_bot")  # the same tenant has another one
    answer = ask(rig.server, "POST", "/manage/deprovision", rig.credential.token(), "{}", Content_Type="application/json")
    assert answer.status == 200, answer.content
    wait_for(lambda: rig.records() == [] and rig.list() == [])
    rig.server.restart()
    assert rig.records() == [] and rig.list() == []
    time.sleep(6)  # Telegram would take it by now
    assert rig.sim.texts(ANN) == [] and rig.sim.called("sendPhoto") == []
    assert download(rig.server, id, other.token()).content == PNG  # it is the tenant's, until media.ttl


@pytest.mark.parametrize("rig", ["media: {{ttl: 2s}}"], indirect=True)
def test_after_a_while_no_file_is_kept_that_nobody_refers_to(rig):
    """Uploads, files that went out, that wait to go out, that came in, and half a one of an earlier process."""
    rig.sim.limit(BOB, 12)
    loose, sent, queued = (kept(rig.server, rig.credential) for _ in range(3))
    url = f"{rig.server.url}/relay/media/"
    assert rig.result(rig.ask(ANN, "now", op="send_media", media_kind="image", source_url=url + sent))["success"]
    rig.ask(BOB, "later", op="send_media", media_kind="image", source_url=url + queued)
    rig.sim.say(ANN, photo=[{"file_id": rig.sim.file(PNG), "file_size": len(PNG)}])
    event = rig.gateway.next("inbound")["event"]  # and is acknowledged
    assert len(event["media_urls"]) == 1
    wait_for(lambda: files(rig.server) == [queued])  # what waits to go out keeps its file
    (rig.server.state / "media" / ("0" * 32 + ".part")).write_bytes(b"half")
    rig.server.restart()
    assert files(rig.server) == [queued]
    wait_for(lambda: rig.sim.sent(BOB))
    wait_for(lambda: files(rig.server) == [] and records(rig.server, "media") == [], 60)
    assert len(rig.sim.sent(ANN)) == len(rig.sim.sent(BOB)) == 1 and loose not in files(rig.server)


# ---- the crash ----


class Asker:
    """A gateway that asks for many sends at once, and keeps what it was told."""

    def __init__(self, rig, number):
        self.rig, self.number, self.told = rig, number, {}
        self.chats = [1000 + number * 100 + i for i in range(PER_GATEWAY // PER_CHAT)]
        self.texts = [f"{number}/{i}" for i in range(PER_GATEWAY)]

    def run(self):
        try:
            gateway = Gateway(self.rig.server.url, self.rig.credential.id, self.rig.credential.secret,
                              hello=("telegram", "my_bot"))
        except (OSError, Refused, AssertionError):
            return
        try:
            for i, text in enumerate(self.texts):
                chat = self.chats[i % len(self.chats)]
                gateway.send({"type": "outbound", "requestId": text,
                              "action": {"op": "send", "chat_id": str(chat), "content": text, "metadata": {}}})
        except Exception:  # noqa: BLE001 - it was killed
            pass
        gateway.over.wait(60)
        self.keep(gateway)

    def keep(self, gateway):
        while True:
            try:
                frame = gateway._queue("outbound_result").get_nowait()
            except queue.Empty:
                return
            self.told.setdefault(frame["requestId"], frame["result"])


def push(rig, whole, n, done, lock):
    for i in range(n):
        try:
            answer = upload(rig.server, rig.credential, whole)
            if answer.status == 200:
                with lock:
                    done.add(json.loads(answer.content)["id"])
        except Exception:  # noqa: BLE001 - it was killed
            return


def wait_or_tell(rig, stage, what, done):
    """As long as it goes on, however slowly; says how far it came when it does not."""
    def now():
        return len(rig.sim.called("sendMessage")), len(done)

    came, end = now(), time.monotonic() + 60
    while not what():
        if now() != came:
            came, end = now(), time.monotonic() + 60
        if time.monotonic() > end:
            states = [e["state"] for e in rig.list()]
            raise AssertionError(f"{stage}: calls={came[0]} uploads={came[1]} "
                                 f"outbox={ {s: states.count(s) for s in states} } first={rig.list()[:2]}\n"
                                 f"{rig.server.log()[-2000:]}")
        time.sleep(0.2)


def test_a_kill_while_much_is_sent_and_uploaded(rig):
    """Each send is done once, or reported unknown with the reason; no file is torn; none is left that nobody knows."""
    askers = [Asker(rig, i) for i in range((SENDS + PER_GATEWAY - 1) // PER_GATEWAY)]
    chats = [chat for a in askers for chat in a.chats]
    for chat in chats:
        rig.sim.person(chat, f"P{chat}")
        rig.sim.say(chat, "hello")
    for _ in chats:
        rig.gateway.hear("hello")
    whole, done, lock = os.urandom(300_000), set(), threading.Lock()
    threads = [threading.Thread(target=a.run) for a in askers]
    threads += [threading.Thread(target=push, args=(rig, whole, max(UPLOADS // 8, 1), done, lock)) for _ in range(8)]
    for t in threads:
        t.start()
    wanted = SENDS // 8
    wait_or_tell(rig, "before the kill", lambda: len(rig.sim.called("sendMessage")) >= wanted and len(done) > 0, done)
    rig.server.kill()
    for t in threads:
        t.join()
    before = sum(len(rig.sim.texts(chat)) for chat in chats)
    left = len(rig.records())
    rig.server.start()
    gateway = rig.dial()
    told = {}
    for a in askers:
        told.update(a.told)

    def settled():
        while True:
            try:
                frame = gateway._queue("outbound_result").get_nowait()
            except queue.Empty:
                break
            told.setdefault(frame["requestId"], frame["result"])
        return all(e["state"] == "unknown" for e in rig.list()) and \
            all(r["state"] in ("unknown", "sent") for r in rig.records())  # sent: it was told to be queued, and has a name

    wait_or_tell(rig, "after the kill", settled, done)
    time.sleep(0.5)
    settled()
    unknown = {r["action"]["content"] for r in rig.records() if r["state"] == "unknown"}
    for chat in chats:
        texts = rig.sim.texts(chat)
        assert len(texts) == len(set(texts)), "a message was sent twice"
        numbers = [int(t.split("/")[1]) for t in texts]
        assert numbers == sorted(numbers), "a chat lost its order"
        for text in texts:
            if text in told:
                assert told[text]["success"] or told[text]["error"].startswith("timed out: "), (text, told[text])
    everything = {t for chat in chats for t in rig.sim.texts(chat)}
    for text, result in told.items():
        if result["success"]:
            assert text in everything, (text, result)
        elif result["error"] == "timed out: the platform did not answer":
            continue  # its gateway's time was up before anything was known, on a machine that slow
        elif result["error"].startswith("timed out: "):
            assert text in unknown and "may have been delivered" in result["error"], (text, result)
        else:
            raise AssertionError((text, result))
    print(f"sent before the kill: {before}, on disk at the kill: {left}, sent in all: {len(everything)}, "
          f"unknown: {len(unknown)}")
    assert left > 0 and len(everything) > before  # it did go on

    with sqlite3.connect(f"file:{rig.server.state}/bellhop.db?mode=ro", uri=True) as db:
        known = {bytes(k).decode() for k, in db.execute("SELECT k FROM kv WHERE ns = 'media'")}
    assert set(files(rig.server)) == known
    assert done <= set(files(rig.server))
    for id in files(rig.server):
        assert (rig.server.state / "media" / id).read_bytes() == whole

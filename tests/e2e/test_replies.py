"""Answers from every substrate: POST /v1/replies with the agent's key, and meta.reply_url."""
import json
import os
import re
import threading

import pytest

from conftest import wait_for
from dispatch_rig import Sender, augment, config
from relay import http as call
from test_dispatch_substrates import Receiver, needs_tmux, pane, program  # noqa: F401 (pane is a fixture)
from v1 import Program, make_key


class Asking:
    """A request in a thread of its own."""

    def __init__(self, sender, agent, name, timeout_ms=15000, **headers):
        self.answer = None
        self.thread = threading.Thread(target=self.ask, args=(sender, agent, name, timeout_ms, headers), daemon=True)
        self.thread.start()

    def ask(self, sender, agent, name, timeout_ms, headers):
        try:
            self.wait(sender, agent, name, timeout_ms, headers)
        except OSError:  # the server was killed meanwhile
            pass

    def wait(self, sender, agent, name, timeout_ms, headers):
        self.answer = sender.request(agent, augment("what?", name, correlation_id="c-" + name), timeout_ms, **headers)

    def done(self):
        self.thread.join(20)
        assert self.answer is not None
        return self.answer


def dropped(folder, name):
    return wait_for(lambda: (folder / f"{name}.json").exists() and json.loads((folder / f"{name}.json").read_text()))


@pytest.fixture
def house(make_bellhop, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "fifo")
    return make_bellhop(config(f"id: a, substrate: file, dir: {tmp_path}/a", f"id: b, substrate: file, dir: {tmp_path}/b",
                               f"id: p, substrate: pipe, path: {tmp_path}/fifo", "id: n, substrate: none"))


def test_a_drop_directory_answers_at_its_url_and_the_parts_are_joined_until_the_final_one(house, tmp_path):
    sender = Sender(house)
    asked = Asking(sender, "a", "q1")
    body = dropped(tmp_path / "a", "q1")
    url = body["meta"]["reply_url"]
    assert re.fullmatch(re.escape(house.url) + r"/v1/replies/[0-9a-f]{48}", url) and body["content"] == "what?"
    first = call("POST", url, {"content": "one", "correlation_id": "c-q1"})
    assert first.status == 200 and first.json["taken"] is True
    assert call("POST", url, {"content": "two", "final": True}).status == 200
    answer = asked.done()
    assert (answer.status, answer.json["content"], answer.json["correlation_id"], answer.json["agent_id"]) == (
        200, "one\ntwo", "c-q1", "a")
    over = call("POST", url, {"content": "three"})
    assert (over.status, over.json["code"]) == (404, "not_found")
    kept = sender.replies("a").json["replies"]
    assert [r["content"] for r in kept] == ["one", "two"] and kept[0]["cursor"] == first.json["cursor"]
    assert {r["correlation_id"] for r in kept} == {"c-q1"} and {r["dispatch_id"] for r in kept} == {"q1"}


def test_without_a_final_part_silence_ends_the_answer(house, tmp_path):
    asked = Asking(Sender(house), "a", "q1")
    assert call("POST", dropped(tmp_path / "a", "q1")["meta"]["reply_url"], {"content": "quiet"}).status == 200
    assert asked.done().json["content"] == "quiet"


def test_a_reply_url_cannot_be_guessed_and_takes_nothing_malformed(house, tmp_path):
    asked = Asking(Sender(house), "a", "q1")
    url = dropped(tmp_path / "a", "q1")["meta"]["reply_url"]
    other = url[:-1] + ("0" if url[-1] != "0" else "1")
    number = url.rsplit("/", 1)[1][:16]
    for bad in (other, url[:-1], url + "0", url[:-48] + "0" * 48, url[:-48], f"{url[:-48]}{number}{'0' * 32}"):
        assert call("POST", bad, {"content": "x", "final": True}).status in (404, 405), bad
    assert call("POST", url, b"no json").status == 400
    assert call("POST", url, {"content": 5}).status == 400
    assert call("POST", url, {}).status == 400
    assert call("POST", url, {"content": "x", "correlation_id": "c-other"}).status == 400
    assert call("POST", url, {"content": "x" * (512 * 1024 + 1)}).status in (400, 413)
    assert call("GET", url).status == 405
    assert call("POST", url, {"content": "right", "final": True}).status == 200
    assert asked.done().json["content"] == "right"


def test_only_the_agents_own_key_answers_for_it(house, tmp_path):
    sender = Sender(house)
    asked = Asking(sender, "a", "q1")
    dropped(tmp_path / "a", "q1")
    says = lambda who, **more: who.ask("POST", "/v1/replies", {"correlation_id": "c-q1", "content": "x", **more})
    stranger, other = Program(house, tenant="u"), Program(house, make_key(house, "t", agent="b"))
    bound = Program(house, make_key(house, "t", instance="somebody"))
    assert says(stranger).status == 404 and says(bound).status == 404
    assert says(other, agent_id="a").status == 404
    aside = says(other)  # its own reply, and not the answer
    assert aside.status == 200 and aside.json["taken"] is False
    assert [r["content"] for r in sender.replies("b").json["replies"]] == ["x"]
    own = Program(house, make_key(house, "t", agent="a"))
    assert call("POST", house.url + "/v1/replies", {"correlation_id": "c-q1", "content": "x"}).status == 401
    assert says(own, content="mine", final=True).json["taken"] is True
    assert asked.done().json["content"] == "mine"
    late = says(own, content="and more", delivery_id="q1")
    assert late.status == 200 and late.json["taken"] is False
    assert sender.replies("a").json["replies"][-1]["dispatch_id"] == "q1"
    assert says(sender, content="whose?").status == 404
    assert says(sender, content="mine", agent_id="a").status == 200


def test_a_reply_repeated_under_its_key_is_one_part(house, tmp_path):
    asked = Asking(Sender(house), "a", "q1")
    url = dropped(tmp_path / "a", "q1")["meta"]["reply_url"]
    twice = [call("POST", url, {"content": "once"}, {"Idempotency-Key": "k1"}) for _ in range(2)]
    assert twice[0].json == twice[1].json and twice[0].status == 200
    assert call("POST", url, {"content": "end", "final": True}).status == 200
    assert asked.done().json["content"] == "once\nend"


def test_a_late_answer_is_kept_as_a_reply(house, tmp_path):
    sender = Sender(house)
    asked = Asking(sender, "a", "q1", timeout_ms=300)
    url = dropped(tmp_path / "a", "q1")["meta"]["reply_url"]
    assert (asked.done().status, asked.done().json["class"]) == (504, "TimeoutError")
    late = call("POST", url, {"content": "sorry", "final": True})
    assert late.status == 200 and late.json["taken"] is False
    assert wait_for(lambda: call("POST", url, {"content": "x"}).status == 404)
    assert [(r["content"], r["correlation_id"]) for r in sender.replies("a").json["replies"]] == [("sorry", "c-q1")]


def test_a_pipe_and_a_pane_answer_too_and_an_agent_without_a_substrate_does_not(house, tmp_path):
    sender = Sender(house)
    asked = Asking(sender, "p", "q1")
    with open(tmp_path / "fifo") as reader:
        url = json.loads(reader.readline())["meta"]["reply_url"]
    assert call("POST", url, {"content": "through the pipe", "final": True}).status == 200
    assert asked.done().json["content"] == "through the pipe"
    assert sender.request("n", augment("x", correlation_id="c")).status == 501


@needs_tmux
def test_a_pane_is_told_where_its_answer_goes(make_bellhop, pane):  # noqa: F811
    socket, typed, _ = pane
    server = make_bellhop(config(f"id: mux, substrate: tmux, target: work, socket: {socket}"))
    asked = Asking(Sender(server), "mux", "q1")
    text = wait_for(lambda: "what?" in typed.read_text() and typed.read_text())
    url = re.search(r"\[question from .* to (http://\S+/v1/replies/[0-9a-f]{48})\]\n", text)[1]
    assert call("POST", url, {"content": "typed", "final": True}).status == 200
    assert asked.done().json["content"] == "typed"


def test_a_webhook_that_accepts_and_a_program_that_says_nothing_answer_later(make_bellhop, tmp_path):
    receiver = Receiver()
    prog = program(tmp_path / "later", "d = json.load(sys.stdin); open(sys.argv[1], 'w').write(d['meta']['reply_url'])")
    talker = program(tmp_path / "both", "import urllib.request; d = json.load(sys.stdin); urllib.request.urlopen("
                     "urllib.request.Request(d['meta']['reply_url'], json.dumps({'content': 'posted'}).encode(), "
                     "{'Content-Type': 'application/json'})); print('printed', end='')")
    server = make_bellhop(config(f"id: hook, substrate: webhook, url: {receiver.url}/in",
                                 f"id: prog, substrate: exec, command: [{prog}, {tmp_path}/url]",
                                 f"id: both, substrate: exec, command: [{talker}]"))
    sender = Sender(server)
    receiver.status = [202]
    asked = Asking(sender, "hook", "q1")
    url = wait_for(lambda: receiver.bodies())[0]["meta"]["reply_url"]
    assert call("POST", url, {"content": "from the hook", "final": True}).status == 200
    assert asked.done().json["content"] == "from the hook"
    asked = Asking(sender, "prog", "q2")
    url = wait_for(lambda: (tmp_path / "url").exists() and (tmp_path / "url").read_text())
    assert call("POST", url, {"content": "afterwards", "final": True}).status == 200
    assert asked.done().json["content"] == "afterwards"
    assert Asking(sender, "both", "q3").done().json["content"] == "posted\nprinted"


def test_an_answered_reply_survives_a_kill(house, tmp_path):
    sender, own = Sender(house), Program(house, make_key(house, "t", agent="a"))
    Asking(sender, "a", "q1")
    url = dropped(tmp_path / "a", "q1")["meta"]["reply_url"]
    kept = [call("POST", url, {"content": "first"}).json["cursor"]]
    kept += [own.ask("POST", "/v1/replies", {"correlation_id": "c-q1", "content": str(i)}).json["cursor"] for i in range(20)]
    house.kill()
    house.start()
    assert [r["cursor"] for r in sender.replies("a").json["replies"]] == kept
    again = own.ask("POST", "/v1/replies", {"correlation_id": "c-q1", "content": "after", "delivery_id": "q1"})
    assert again.json["taken"] is False and sender.replies("a").json["replies"][-1]["content"] == "after"


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_reply_url_is_good_across_a_restart(house, tmp_path, end):
    """Nobody waits any more, but the answer is kept as a reply, with the request's ids; the final one ends the URL for good."""
    sender = Sender(house)
    for name in ("q1", "q2"):
        Asking(sender, "a", name)
    urls = [dropped(tmp_path / "a", name)["meta"]["reply_url"].rsplit("/", 1)[1] for name in ("q1", "q2")]
    assert call("POST", f"{house.url}/v1/replies/{urls[1]}", {"content": "early", "final": True}).status == 200
    for _ in range(2):  # and across the next one
        getattr(house, end)()
        house.start()
    here = f"{house.url}/v1/replies/{urls[0]}"
    assert call("POST", here[:-1] + ("0" if here[-1] != "0" else "1"), {"content": "x"}).status == 404
    assert call("POST", here, {"content": "x", "correlation_id": "c-other"}).status == 400
    part = call("POST", here, {"content": "half", "correlation_id": "c-q1"})
    assert part.status == 200 and part.json["taken"] is False
    assert call("POST", here, {"content": "whole", "final": True}).status == 200
    assert call("POST", here, {"content": "more"}).status == 404
    assert call("POST", f"{house.url}/v1/replies/{urls[1]}", {"content": "x"}).status == 404
    getattr(house, end)()
    house.start()
    assert call("POST", f"{house.url}/v1/replies/{urls[0]}", {"content": "more"}).status == 404
    kept = [(r["content"], r["correlation_id"], r["dispatch_id"]) for r in sender.replies("a").json["replies"]]
    assert kept == [("early", "c-q2", "q2"), ("half", "c-q1", "q1"), ("whole", "c-q1", "q1")]

"""The machine's clock jumps, forward a day and back an hour: nothing is lost, nothing is parked, tokens are judged by the
clock as it is now, and what counts time (patience, cooldowns, retries) does not notice."""
import glob
import http.server
import threading
import time

import pytest

import test_teams
from conftest import wait_for
from relay import Refused, mint

DAY, HOUR = 86400, 3600


def library(name):
    found = glob.glob(f"/usr/lib/*/{name}") or glob.glob(f"/usr/lib/gcc/*/*/{name}")
    assert found, f"{name} is missing"
    return found[0]


class Clock:
    """The wall clock of one server, as libfaketime makes it; the monotonic one is left alone."""

    def __init__(self, server):
        self.offset = 0
        server.state.mkdir(mode=0o700)
        self.file = server.state / "faketime"  # where a confined server may read
        self.set(0)
        server.env.update(FAKETIME_TIMESTAMP_FILE=str(self.file), FAKETIME_NO_CACHE="1", FAKETIME_DONT_FAKE_MONOTONIC="1",
                          LD_PRELOAD=library("faketime/libfaketimeMT.so.1"),
                          ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")

    def set(self, offset):
        self.offset = offset
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        new.rename(self.file)

    def jump(self, seconds):
        self.set(self.offset + seconds)

    def now(self):
        return int(time.time()) + self.offset


@pytest.fixture
def jumper(make_bellhop):
    server = make_bellhop(start=False)
    server.clock = Clock(server)
    return server.start()


class Ring:
    """A wake URL that counts."""

    def __init__(self):
        ring = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                ring.n += 1
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.n = 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/w"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def verdict(server, credential, dial, exp):
    """What a token that expires then is told: "in", an HTTP status, or a close code."""
    try:
        gateway = dial(server, credential, token=mint(credential.id, credential.secret, exp=exp), wait=False, hello=("web", "lobby"))
        gateway.wait_open()
    except Refused as e:
        return e.status
    gateway.close()
    return "in"


def judged_right(server, credential, dial):
    now = server.clock.now()
    assert verdict(server, credential, dial, now + 300) == "in"
    assert verdict(server, credential, dial, now - 60) == "in"  # within the skew
    assert verdict(server, credential, dial, now - 300) == 401  # never 4401, which would be for good
    assert verdict(server, credential, dial, 0) == "in"


@pytest.mark.parametrize("jump", [DAY, -HOUR], ids=["forward a day", "back an hour"])
def test_a_clock_that_jumps_loses_nothing_and_parks_nothing(jumper, dial, jump):
    ring = Ring()
    live, sleeper = jumper.add(id="live"), jumper.add(id="sleeper", wake_url=ring.url)
    gateway, asleep = dial(jumper, live), dial(jumper, sleeper)
    asleep.send({"type": "going_idle"})
    asleep.next("going_idle_ack")
    asleep.close()
    wrote = []

    def write(n):
        wrote.extend(f"{len(wrote) + i}" for i in range(n))
        for text in wrote[-n:]:
            assert jumper.write(text) == 200

    write(5)
    wait_for(lambda: gateway.seen == wrote)
    wait_for(lambda: ring.n >= 1)
    jumper.clock.jump(jump)
    rung = ring.n
    write(5)
    wait_for(lambda: gateway.seen == wrote)
    wait_for(lambda: ring.n > rung, 20)
    judged_right(jumper, live, dial)
    assert gateway.closed is None, "an open socket does not care what time it is"
    assert gateway.act(op="send", chat_id=chat_of(gateway), content="an answer", reply_to=None, metadata={})["success"]
    jumper.clock.jump(-jump)
    write(5)
    wait_for(lambda: gateway.seen == wrote)
    jumper.clock.jump(jump)
    jumper.kill()
    jumper.start()
    back = dial(jumper, sleeper, token=mint(sleeper.id, sleeper.secret, exp=jumper.clock.now() + 300))
    wait_for(lambda: len(back.seen) >= len(wrote))
    assert back.seen == wrote
    again = dial(jumper, live, token=mint(live.id, live.secret, exp=jumper.clock.now() + 300))
    write(5)
    wait_for(lambda: back.seen == wrote and len(again.seen) >= 5)
    assert again.seen[-5:] == wrote[-5:]
    wait_for(lambda: all(jumper.instance(i)["entries"] == 0 for i in ("live", "sleeper")))
    assert all(jumper.instance(i)["parked"] == 0 for i in ("live", "sleeper"))
    judged_right(jumper, live, dial)


def chat_of(gateway):
    return gateway.next("inbound")["event"]["source"]["chat_id"]


def test_teams_is_heard_and_answered_when_the_clock_jumps_an_hour_either_way(make_bellhop, dial):
    """Tokens of webhooks are judged by the clock as it is now; the bot's own token lives as long as Microsoft said."""
    sim = test_teams.TeamsSim(test_teams.PASSWORD)
    server = make_bellhop(test_teams.config(sim), start=False)
    clock = Clock(server)
    server.start()
    sim.request_url = f"{server.url}/webhooks/teams/{test_teams.BOT}"
    gateway = dial(server, server.add(platform="teams", bot=test_teams.BOT), hello=("teams", test_teams.BOT))
    chat = sim.people["Ann"]["chat"]
    for offset in (0, HOUR, -HOUR):
        clock.set(offset)
        assert sim.tell(sim.message("expired"), sim.token(offset=offset - DAY))[0] == 401
        assert sim.tell(sim.message("early"), sim.token(offset=offset + HOUR))[0] == 401
        assert sim.tell(sim.message(f"at {offset}"), sim.token(offset=offset))[0] == 200
        gateway.hear(f"at {offset}")
        assert test_teams.send(gateway, chat, f"re {offset}")["success"]
    assert [m["text"] for m in sim.sent(chat)] == ["re 0", f"re {HOUR}", f"re {-HOUR}"]
    assert sim.logins <= 4 and sim.violations == [] and sim.limited == 0
    sim.close()

"""bellhop agent: any program as a gateway, and the examples that show how."""
import base64
import json
import os
import subprocess
import textwrap
import threading
import time
from collections import namedtuple
from signal import SIGKILL, SIGTERM

import pytest

from conftest import PROGRAM, ROOT, wait_for
from fake_connector import FakeConnector, inbound

Credential = namedtuple("Credential", "id secret")  # for a connector that asks nobody
VISITOR = "e2e-visitor-000000"
EXAMPLES = ROOT / "examples"


class Agent:
    """`bellhop agent` around a program, as a newcomer starts it."""

    def __init__(self, server, credential, program, *options, env=None, platform="web=lobby"):
        self.process = subprocess.Popen(
            [PROGRAM, "agent", "--platform", platform, "--log", "info", *options, "--", *program], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "GATEWAY_RELAY_URL": server.url, "GATEWAY_RELAY_ID": credential.id,
                 "GATEWAY_RELAY_SECRET": credential.secret, **(env or {})})
        self.lines, self.errors = [], []
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in
                        ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()
        self.said("ready")

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def said(self, text, times=1, timeout=20):
        wait_for(lambda: sum(text in line for line in self.lines) >= times, timeout)

    def warned(self, text, timeout=20):
        wait_for(lambda: any(text in line for line in self.errors), timeout)

    def end(self, number=SIGTERM, timeout=30):
        if self.process.poll() is None and number:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        for reader in self.readers:
            reader.join(5)
        self.process.stdout.close()
        self.process.stderr.close()
        assert not [e for e in self.errors if "Sanitizer" in e or "runtime error" in e], self.errors
        return code


@pytest.fixture
def start_agent():
    made = []

    def start(server, credential, program, *options, **more):
        made.append(Agent(server, credential, program, *options, **more))
        return made[-1]

    yield start
    for agent in made:
        if agent.process.returncode is None:
            assert agent.end() == 0, agent.errors


@pytest.fixture
def script(tmp_path):
    """script(body) -> a command that runs @body in Python with json, os, sys and time at hand."""
    def make(body, name="agent.py"):
        path = tmp_path / name
        path.write_text("import json, os, signal, sys, time\n"
                        "def say(**o): print(json.dumps(o), flush=True)\n" + textwrap.dedent(body))
        return ["/usr/bin/python3", str(path)]
    return make


ECHO = """
for line in sys.stdin:
    m = json.loads(line)
    if m["type"] == "message":
        print("echo " + m["text"], flush=True)
"""


def history(server, visitor=VISITOR):
    got = server.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": visitor}).json
    return [m["text"] for m in got["messages"]]


def answered(server, *texts, visitor=VISITOR, timeout=20):
    """The history is exactly this, and stays so for a moment."""
    wait_for(lambda: len(history(server, visitor)) >= len(texts), timeout)
    wait_for(lambda: history(server, visitor) == list(texts), 5)


# ---- lines ----


def test_a_line_of_text_is_an_answer(bellhop, start_agent, script):
    agent = start_agent(bellhop, bellhop.add(), script(ECHO))
    bellhop.write("one")
    answered(bellhop, "one", "echo one")
    bellhop.write("two")
    answered(bellhop, "one", "echo one", "two", "echo two")
    wait_for(lambda: bellhop.metric("deliveries_acked_total") == 2)
    assert agent.end() == 0
    assert "agent: left: the connector keeps new messages" in agent.lines


def test_a_message_arrives_with_who_and_where(bellhop, start_agent, script, tmp_path):
    seen = tmp_path / "seen"
    start_agent(bellhop, bellhop.add(), script(f"""
        line = sys.stdin.readline()
        open({str(seen)!r} + ".tmp", "w").write(line)
        os.rename({str(seen)!r} + ".tmp", {str(seen)!r})
        print("", flush=True)
        sys.stdin.readline()
        """))
    bellhop.write('quotes " and \n newlines')
    m = json.loads(wait_for(lambda: seen.exists() and seen.read_text()))
    assert m["type"] == "message" and m["text"] == 'quotes " and \n newlines'
    assert m["platform"] == "web" and m["chat_type"] == "dm" and m["attempt"] == 1
    assert m["id"] and m["session_key"] and m["chat_id"] and m["message_id"] and m["user_id"]
    assert m["media"] == [] and m["reply_to"] is None and m["thread_id"] is None
    assert "user_name" in m


def test_orders_send_edit_and_say_done(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script("""
        for line in sys.stdin:
            m = json.loads(line)
            say(op="typing")
            say(op="send", content="a")
            say(op="edit", content="b")
            say(op="send", content="{not an order}")
            say(op="done")
        """))
    bellhop.write("go")
    answered(bellhop, "go", "b", "{not an order}")


def test_an_order_with_a_ref_is_told_its_result(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script("""
        sys.stdin.readline()
        say(op="send", content="first", ref="r1")
        r = json.loads(sys.stdin.readline())
        assert r["type"] == "result" and r["ref"] == "r1" and r["success"], r
        say(op="edit", message_id=r["message_id"], content="first, changed", done=True)
        sys.stdin.readline()
        """))
    bellhop.write("go")
    answered(bellhop, "go", "first, changed")


def test_two_chats_in_one_process_never_mix(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script("""
        for line in sys.stdin:
            time.sleep(0.05)
            print("to " + json.loads(line)["text"], flush=True)
        """))
    visitors = [f"e2e-visitor-{i:06}" for i in range(6)]
    for i in range(3):
        for v in visitors:
            bellhop.write(f"{v} {i}", visitor=v)
    for v in visitors:
        wait_for(lambda v=v: len(history(bellhop, v)) == 6)
        assert sorted(history(bellhop, v)) == sorted([f"{v} {i}" for i in range(3)] + [f"to {v} {i}" for i in range(3)])


def test_with_a_window_an_order_names_its_chat(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script("""
        held = [json.loads(sys.stdin.readline()) for _ in range(2)]
        print("whose am I?", flush=True)
        for m in reversed(held):
            say(op="send", session_key=m["session_key"], content="yours: " + m["text"], done=True)
        sys.stdin.readline()
        """), "--window", "2")
    bellhop.write("a", visitor="e2e-visitor-00000a")
    bellhop.write("b", visitor="e2e-visitor-00000b")
    answered(bellhop, "a", "yours: a", visitor="e2e-visitor-00000a")
    answered(bellhop, "b", "yours: b", visitor="e2e-visitor-00000b")


def test_the_credential_is_not_in_the_programs_environment(bellhop, start_agent, script):
    c = bellhop.add()
    start_agent(bellhop, c, script("""
        sys.stdin.readline()
        print(sorted(k for k, v in os.environ.items() if k.startswith("GATEWAY_")), flush=True)
        sys.stdin.readline()
        """))
    bellhop.write("show")
    answered(bellhop, "show", "['GATEWAY_RELAY_ID', 'GATEWAY_RELAY_URL']")


# ---- dying ----


def test_a_message_is_redelivered_when_the_program_dies_over_it(bellhop, start_agent, script, tmp_path):
    flag = tmp_path / "died"
    agent = start_agent(bellhop, bellhop.add(), script(f"""
        for line in sys.stdin:
            m = json.loads(line)
            if not os.path.exists({str(flag)!r}):
                open({str(flag)!r}, "w").write(m["id"])
                sys.exit(3)
            same = open({str(flag)!r}).read() == m["id"]
            print(f"attempt {{m['attempt']}} same {{same}}", flush=True)
        """))
    bellhop.write("go")
    answered(bellhop, "go", "attempt 2 same True")
    agent.warned("exit status 3")


def test_a_message_that_was_answered_is_not_answered_again(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script("""
        for line in sys.stdin:
            say(op="send", content="got " + json.loads(line)["text"])
            sys.exit(1)
        """))
    bellhop.write("one")
    wait_for(lambda: history(bellhop) == ["one", "got one"])
    bellhop.write("two")
    answered(bellhop, "one", "got one", "two", "got two")


def test_one_bad_message_does_not_keep_the_others_waiting(bellhop, start_agent, script):
    agent = start_agent(bellhop, bellhop.add(), script("""
        for line in sys.stdin:
            m = json.loads(line)
            if m["text"] == "bad":
                os.kill(os.getpid(), signal.SIGKILL)
            print("fine", flush=True)
        """))
    bellhop.write("bad")
    bellhop.write("good")
    answered(bellhop, "bad", "good", "fine")
    agent.warned("died 3 times")


def test_a_program_that_answers_once_and_exits_is_started_for_every_message(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script('print("once " + json.loads(sys.stdin.readline())["text"])'))
    for i in range(4):
        bellhop.write(str(i))
    wait_for(lambda: len(history(bellhop)) == 8)
    assert sorted(history(bellhop)) == sorted([str(i) for i in range(4)] + [f"once {i}" for i in range(4)])


def test_ack_on_reply_keeps_the_message_with_the_connector(make_bellhop, start_agent, script):
    server = make_bellhop()
    c = server.add()
    slow = script("""
        for line in sys.stdin:
            time.sleep(30)
        """, "slow.py")
    agent = start_agent(server, c, slow, "--ack-on-reply")
    server.write("important")
    wait_for(lambda: server.instance(c.id)["unacked"] == 1)
    time.sleep(0.3)
    assert server.metric("deliveries_acked_total") == 0
    agent.end(SIGKILL)
    start_agent(server, c, script(ECHO), "--ack-on-reply")
    answered(server, "important", "echo important")
    wait_for(lambda: server.metric("deliveries_acked_total") == 1)


def test_what_a_program_never_read_is_not_acknowledged(bellhop, start_agent, script):
    c = bellhop.add()
    agent = start_agent(bellhop, c, script("time.sleep(60)"))
    bellhop.write("unread")
    wait_for(lambda: bellhop.instance(c.id)["unacked"] == 1)
    time.sleep(0.3)
    assert bellhop.metric("deliveries_acked_total") == 0
    agent.end(SIGKILL)
    start_agent(bellhop, c, script(ECHO))
    answered(bellhop, "unread", "echo unread")


@pytest.fixture
def fake():
    connector = FakeConnector()
    yield connector
    connector.stop()


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_an_event_that_comes_again_under_its_id_acts_once(fake, start_agent, script, tmp_path):
    """Across a reconnect, and across kill -9 of the agent between its ack and the connector's commit."""
    heard = tmp_path / "heard"
    program = script(f"""
        for line in sys.stdin:
            open({str(heard)!r}, "a").write(line)
            print("ok", flush=True)
        """)
    c = Credential("gw-1", "secret")
    agent = start_agent(fake, c, program, "--state", str(tmp_path / "state"))
    fake.send(inbound("one", "b1"), inbound("two", "b2"))
    assert fake.acks(2) == ["b1", "b2"]
    fake.cut()
    agent.said("ready", 2)
    fake.send(inbound("one", "b1"), inbound("three", "b3"))
    assert fake.acks(2) == ["b1", "b3"]
    agent.end(SIGKILL)
    again = start_agent(fake, c, program, "--state", str(tmp_path / "state"))
    fake.send(inbound("one", "b1"), inbound("two", "b2"), inbound("three", "b3"), inbound("four", "b4"))
    assert fake.acks(4) == ["b1", "b2", "b3", "b4"]
    wait_for(lambda: len(lines_of(heard)) >= 4)
    assert [m["text"] for m in lines_of(heard)] == ["one", "two", "three", "four"]
    assert again.end() == 0
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["agent-gw-1.seen"]


def test_the_state_is_kept_where_the_system_says(fake, start_agent, script, tmp_path):
    c, (a, b, d) = Credential("gw/1", "secret"), (tmp_path / n for n in "abd")
    for env, where in (({"STATE_DIRECTORY": f"{a}:{b}", "HOME": str(d)}, a), ({"XDG_STATE_HOME": str(b), "HOME": str(d)}, b / "bellhop"),
                       ({"HOME": str(d)}, d / ".local/state/bellhop")):
        assert start_agent(fake, c, script(ECHO), env=env).end() == 0
        assert len(list(where.glob("agent-gw*1.seen"))) == 1
    assert start_agent(fake, c, script(ECHO)).end() == 0  # no HOME: it does without


# ---- webhooks ----


def forward(buffer_id, body, platform="discord"):
    return {"type": "passthrough_forward", "bufferId": buffer_id, "forward": {
        "platform": platform, "botId": "app", "method": "POST", "path": "/webhooks/x",
        "headers": [["content-type", "application/json"]], "bodyB64": base64.b64encode(body).decode()}}


INTERACTION = json.dumps({"id": "i1", "type": 2, "channel_id": "c9", "guild_id": "g1", "data": {"name": "ask"},
                          "member": {"user": {"id": "u1", "username": "ann"}}}).encode()


@pytest.mark.parametrize("options", [[], ["--per-chat"]])
def test_a_passthrough_forward_is_a_line_and_not_a_turn(fake, start_agent, script, tmp_path, options):
    heard = tmp_path / "heard"
    start_agent(fake, Credential("gw-1", "secret"), script(f"""
        for line in sys.stdin:
            open({str(heard)!r}, "a").write(line)
            m = json.loads(line)
            if m["type"] == "passthrough" and m["chat_id"]:
                say(op="follow_up", session_key=m["session_key"], kind="discord.interaction_token", content="done")
            elif m["type"] == "message":
                print("heard " + m["text"], flush=True)
        """), *options)
    fake.send(forward("f1", INTERACTION), forward("f2", b"\xff\x00", "twilio"), inbound("hello", "b1"))
    assert sorted(fake.acks(3)) == ["b1", "f1", "f2"]
    wait_for(lambda: len(lines_of(heard)) == 3)
    first, second = [m for m in sorted(lines_of(heard), key=lambda m: m["id"]) if m["type"] == "passthrough"]
    assert json.loads(first["body"])["data"] == {"name": "ask"} and first["platform"] == "discord"
    assert (first["chat_id"], first["user_id"], first["id"]) == ("c9", "u1", "f1")
    assert (second["body"], second["body_b64"], second["chat_id"]) == (None, "/wA=", "")

    def said():
        actions = [json.loads(line)["action"] for m in fake.messages for line in m.splitlines() if '"outbound"' in line]
        return sorted((a for a in actions if a["op"] != "typing"), key=lambda a: a["op"])

    wait_for(lambda: len(said()) == 2)
    follow, answer = said()
    assert follow["session_key"] == "agent:main:relay:channel:c9:u1" and follow["content"] == "done"
    assert answer["content"] == "heard hello" and answer["chat_id"] == "c1"


def test_a_forward_the_program_never_read_is_told_to_the_next(fake, start_agent, script, tmp_path):
    heard, once = tmp_path / "heard", tmp_path / "once"
    start_agent(fake, Credential("gw-1", "secret"), script(f"""
        if not os.path.exists({str(once)!r}):
            open({str(once)!r}, "w")
            time.sleep(0.5)
            sys.exit(1)
        for line in sys.stdin:
            open({str(heard)!r}, "a").write(line)
        """))
    fake.send(forward("f1", INTERACTION))
    assert fake.acks(1, timeout=30) == ["f1"]
    assert [m["id"] for m in lines_of(heard)] == ["f1"]


# ---- the policy ----


def test_the_policy_is_declared_when_it_connects(make_bellhop, start_agent, script):
    server = make_bellhop()
    c = server.add()
    policies = lambda: {p["platform"]: p for p in json.loads(server.cli("policy", "list", "--json").stdout)}
    agent = start_agent(server, c, script(ECHO), "--require-address", "--free", "c1,c2", platform="web=lobby,relay,telegram=b")
    got = wait_for(lambda: len(policies()) == 2 and policies())
    assert set(got) == {"web", "telegram"}
    for p in got.values():
        assert (p["requireAddress"], sorted(p["freeResponseScopes"]), p["allowOtherBots"]) == (True, ["c1", "c2"], False)
    assert agent.end() == 0
    assert start_agent(server, c, script(ECHO)).end() == 0  # says nothing, changes nothing
    assert policies()["web"]["requireAddress"]
    start_agent(server, c, script(ECHO), "--allow-bots")
    wait_for(lambda: (policies()["web"]["requireAddress"], policies()["web"]["allowOtherBots"]) == (False, True))


def test_a_policy_nobody_takes_is_a_warning_and_does_not_stop_it(fake, start_agent, script):
    agent = start_agent(fake, Credential("gw-1", "secret"), script(ECHO), "--require-address")
    agent.warned("the relevance policy for web was not taken")
    fake.send(inbound("hello", "b1"))
    assert fake.acks(1) == ["b1"]


def test_a_program_that_prints_without_end_has_to_wait(start_agent, script, tmp_path):
    """Its lines are messages; what the connector has not taken is not kept without a bound."""
    connector = FakeConnector(lambda conn, frame: [] if frame["type"] == "outbound" else connector.answer(frame))
    printed = tmp_path / "printed"
    agent = start_agent(connector, Credential("gw-1", "secret"), script(f"""
        sys.stdin.readline()
        for n in range(10 ** 9):
            print("x" * 1000, flush=True)
            if n % 1000 == 0:
                open("{printed}", "w").write(str(n))
        """))
    connector.send(inbound("go", "b1"))
    wait_for(lambda: printed.exists() and printed.read_text() not in ("", "0"))
    time.sleep(2)
    before = printed.read_text()
    time.sleep(1)
    assert printed.read_text() == before and int(before) < 20000
    agent.end(SIGKILL)
    connector.stop()


# ---- leaving ----


def test_sigterm_finishes_the_turn_under_way(bellhop, start_agent, script):
    c = bellhop.add()
    agent = start_agent(bellhop, c, script("""
        for line in sys.stdin:
            time.sleep(1)
            print("finished", flush=True)
        """))
    bellhop.write("go")
    wait_for(lambda: bellhop.metric("deliveries_acked_total") == 1)
    bellhop.write("too late")
    assert agent.end() == 0
    answered(bellhop, "go", "too late", "finished")
    wait_for(lambda: bellhop.instance(c.id)["state"] == "asleep")
    start_agent(bellhop, c, script(ECHO))
    answered(bellhop, "go", "too late", "finished", "echo too late")


def test_a_program_that_ignores_the_end_of_its_input_is_ended(bellhop, start_agent, script):
    agent = start_agent(bellhop, bellhop.add(), script("signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(99)"))
    time.sleep(0.5)
    began = time.monotonic()
    assert agent.end() == 0
    assert 5 < time.monotonic() - began < 15


def test_a_revoked_agent_ends_with_status_3(bellhop, start_agent, script):
    c = bellhop.add()
    agent = start_agent(bellhop, c, script(ECHO))
    bellhop.cli("gateway", "revoke", c.id)
    assert agent.end(None) == 3


# ---- interrupts ----


def test_an_interrupt_is_a_line_and_a_signal(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script("""
        got = []
        signal.signal(signal.SIGINT, lambda *_: got.append("signal"))
        key = json.loads(sys.stdin.readline())["session_key"]
        say(op="send", content="working")
        line = json.loads(sys.stdin.readline())
        while not got:
            time.sleep(0.01)
        assert line["type"] == "interrupt" and line["session_key"] == key, line
        say(op="send", content="stopped by line and " + got[0], done=True)
        sys.stdin.readline()
        """), "--until-done")
    bellhop.write("work")
    wait_for(lambda: history(bellhop)[-1] == "working")
    bellhop.write("/stop")
    wait_for(lambda: history(bellhop)[-1] == "stopped by line and signal")


def test_a_program_killed_by_an_interrupt_is_not_handed_the_message_again(bellhop, start_agent, script):
    start_agent(bellhop, bellhop.add(), script("""
        for line in sys.stdin:
            m = json.loads(line)
            if m["type"] == "message" and m["text"] == "long":
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                say(op="typing")
                time.sleep(60)
            elif m["type"] == "message":
                print("short", flush=True)
        """))
    bellhop.write("long")
    wait_for(lambda: bellhop.metric("deliveries_acked_total") == 1)
    time.sleep(0.3)
    bellhop.write("/stop")
    bellhop.write("next")
    wait_for(lambda: history(bellhop)[-1] == "short")
    assert history(bellhop).count("short") == 1


# ---- one program per chat ----


def test_per_chat_programs_are_bounded(bellhop, start_agent, script, tmp_path):
    start_agent(bellhop, bellhop.add(), script(f"""
        open({str(tmp_path)!r} + f"/pid-{{os.getpid()}}", "w").close()
        n = 0
        for line in sys.stdin:
            n += 1
            print(f"{{n}} for {{json.loads(line)['text']}}", flush=True)
        os.unlink({str(tmp_path)!r} + f"/pid-{{os.getpid()}}")
        """), "--per-chat", "--max-programs", "2")
    most = 0
    visitors = [f"e2e-visitor-{i:06}" for i in range(5)]
    for v in visitors:
        bellhop.write(v, visitor=v)
    for v in visitors:
        wait_for(lambda v=v: history(bellhop, v) == [v, f"1 for {v}"])
        most = max(most, len(list(tmp_path.glob("pid-*"))))
    assert most <= 2
    bellhop.write("again", visitor=visitors[-1])
    wait_for(lambda: history(bellhop, visitors[-1])[-1] == "2 for again")


# ---- misuse ----


def test_agent_says_how_it_is_used(bellhop):
    run = lambda *words, **env: subprocess.run([PROGRAM, "agent", *words], capture_output=True, text=True,
                                               env={"PATH": os.environ["PATH"], **env})
    assert "--per-chat" in run("--help").stdout
    assert run().returncode == 2
    assert "GATEWAY_RELAY_URL" in run("--", "cat").stderr
    where = {"GATEWAY_RELAY_URL": bellhop.url, "GATEWAY_RELAY_ID": "x", "GATEWAY_RELAY_SECRET": "y"}
    gone = run("--", "no-such-program-here", **where)
    assert gone.returncode == 1 and "there is no program" in gone.stderr
    assert run("--window", "0", "--", "cat", **where).returncode == 2
    assert "put -- before" in run("cat", **where).stderr
    assert "need --platform" in run("--free", "c", "--", "cat", **where).stderr
    assert "--state" in run("--state", "/dev/null/x", "--", "cat", **where).stderr


# ---- the examples ----


def test_the_shell_example(bellhop, start_agent):
    start_agent(bellhop, bellhop.add(), [EXAMPLES / "agents" / "clock.sh"])
    bellhop.write('say "hi" \\ $(date)')
    wait_for(lambda: history(bellhop)[-1] == 'You said: say "hi" \\ $(date)')
    bellhop.write("/date")
    wait_for(lambda: str(time.gmtime().tm_year) in history(bellhop)[-1])


def test_the_python_example(bellhop, start_agent):
    start_agent(bellhop, bellhop.add(), ["/usr/bin/python3", EXAMPLES / "agents" / "dice.py"], "--until-done")
    bellhop.write("/roll 3d6")
    total = wait_for(lambda: "=" in history(bellhop)[-1] and history(bellhop)[-1])
    dice, total = total.split(" = ")
    assert sum(map(int, dice.split(" + "))) == int(total)
    bellhop.write("hello")
    wait_for(lambda: "and I roll" in history(bellhop)[-1])


def test_the_javascript_example(bellhop, start_agent):
    start_agent(bellhop, bellhop.add(), ["/usr/bin/node", EXAMPLES / "agents" / "count.js"], "--per-chat", "--until-done")
    bellhop.write("/count 3")
    wait_for(lambda: history(bellhop) == ["/count 3", "1 2 3", "That was 3."])
    bellhop.write("/count 99")
    wait_for(lambda: "1 2" in history(bellhop)[-1])
    bellhop.write("/stop")
    wait_for(lambda: history(bellhop)[-1] == "As you wish.")


def test_the_c_example(bellhop, start_agent, tmp_path):
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "shout", EXAMPLES / "agents" / "shout.c"],
                   check=True)
    start_agent(bellhop, bellhop.add(), [tmp_path / "shout"])
    bellhop.write('so "quiet"\nhere')
    wait_for(lambda: history(bellhop)[-1] == 'SO "QUIET"\nHERE!')


@pytest.mark.parametrize("name", ["clock.sh", "dice.py", "count.js", "shout.c"])
def test_every_example_is_short(name):
    assert len((EXAMPLES / "agents" / name).read_text().splitlines()) < 40


def test_the_notes_agent_remembers_per_chat(bellhop, start_agent, tmp_path):
    start = lambda: start_agent(bellhop, c, ["/usr/bin/python3", EXAMPLES / "notes-agent" / "notes_agent.py", "--file",
                                             tmp_path / "notes.db"])
    say = lambda text, visitor=VISITOR: (bellhop.write(text, visitor=visitor), wait_for(
        lambda: history(bellhop, visitor)[-1] != text and history(bellhop, visitor)[-2] == text),
        history(bellhop, visitor)[-1])[-1]
    c = bellhop.add()
    agent = start()
    assert "/find WORD" in say("/help")
    assert say("milk and bread") == "Noted (1)."
    assert say("call the plumber") == "Noted (2)."
    assert say("/notes", "e2e-visitor-other0") == "There are no notes here yet. Write something."
    assert agent.end() == 0
    start()
    assert say("/find PLUMB").startswith("2. call the plumber")
    assert say("/forget 1") == "Forgotten: milk and bread"
    assert say("/notes").startswith("1. call the plumber")
    assert say("/forget x").startswith("Forget which?")
    assert say("/forget all") == "Forgotten: 1 note."

"""bellhop agent --acp: agents that speak the Agent Client Protocol, by others and scripted."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest

import test_telegram
import test_web_files
from conftest import CONFIG, PROGRAM, ROOT, wait_for
from fake_connector import FakeConnector, inbound
from test_agent import Credential as FakeCredential
from test_agent import VISITOR, Agent, history, start_agent  # noqa: F401 - a fixture
from test_telegram import sim as telegram_sim  # noqa: F401 - a fixture

long = pytest.mark.skipif("BELLHOP_LONG" not in os.environ, reason="./dev agents runs it")
NPM = ROOT / "build/npm"
EXAMPLE = NPM / "node_modules/@agentclientprotocol/sdk/dist/examples/agent.js"
NODE = shutil.which("node")
HELLO = "I'll help you with that. Let me start by reading some files to understand the current situation."
UNDERSTOOD = " Now I understand the project structure. I need to make some changes to improve it."
CHANGED = " Perfect! I've successfully updated the configuration. The changes have been applied."
SKIPPED = " I understand you prefer not to make that change. I'll skip the configuration update."


@pytest.fixture
def example(bellhop, start_agent, tmp_path):  # noqa: F811
    """The example agent of the SDK behind the web chat; its person is an owner."""
    def start(*options, owner=True, **more):
        credential = bellhop.add("--id", "mine")
        if owner:
            link(bellhop)
        return start_agent(bellhop, credential, [NODE, str(EXAMPLE)], "--acp", "--state", str(tmp_path / "state"), *options, **more)
    return start


class Scripted:
    def __init__(self, bellhop, start, files, credential):
        self.bellhop, self.start_one, self.files, self.credential = bellhop, start, files, credential
        (files / "acp").mkdir(exist_ok=True)

    platform = "web=lobby"

    def start(self, *options, can=None, env=None, before=""):
        program = [NODE, str(ROOT / "tests/e2e/acp_agent.cjs")]
        if before:
            program = ["/bin/sh", "-c", f"{before}; exec {' '.join(program)}"]
        more = {"ACP_NPM": str(NPM), "ACP_FILES": str(self.files / "acp"), "ACP_CAN": json.dumps(can or {}), **(env or {})}
        return self.start_one(self.bellhop, self.credential, program, "--acp", "--state", str(self.files / "state"), *options,
                              env=more, platform=self.platform)

    def log(self, method=None):
        path = self.files / "acp/log"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        assert not [line for line in lines if "invalid" in line], lines
        return [line for line in lines if method is None or line.get("method") == method]


@pytest.fixture
def scripted(bellhop, start_agent, tmp_path):  # noqa: F811
    return Scripted(bellhop, start_agent, tmp_path, bellhop.add("--id", "mine"))


def link(server, visitor=VISITOR, instance="mine"):
    code = server.cli("link", "--instance", instance).stdout.split()[0]
    before = len(history(server, visitor))
    server.write(f"/link {code}", visitor=visitor)
    wait_for(lambda: len(history(server, visitor)) > before)


def says(server, text, visitor=VISITOR, timeout=30):
    """The newest message of the chat is @text."""
    def newest():
        return (history(server, visitor) or [None])[-1] == text
    try:
        wait_for(newest, timeout)
    except AssertionError:
        raise AssertionError(history(server, visitor))


def told(server, text, visitor=VISITOR, timeout=30):
    wait_for(lambda: any(text in m for m in history(server, visitor)), timeout)


def question(server, visitor=VISITOR):
    """The newest message of the page that has buttons."""
    got = server.get("/chat/lobby/api/history", headers={"X-Bellhop-Visitor": visitor}).json
    asked = [m for m in got["messages"] if m.get("prompt")]
    return asked[-1] if asked else None


def press(server, message, label, visitor=VISITOR):
    option = next(o for o in message["prompt"]["options"] if o["label"] == label)
    return server.post("/chat/lobby/api/press", {"prompt": message["prompt"]["id"], "option": option["id"]},
                       headers={"X-Bellhop-Visitor": visitor})


# ---- an agent that others wrote ----


def test_the_example_agent_streams_asks_and_goes_on(bellhop, example):
    example()
    bellhop.write("improve my project")
    told(bellhop, HELLO)  # while it still works
    asked = wait_for(lambda: question(bellhop))
    assert asked["text"].startswith("The agent asks for permission: Modifying critical configuration file")
    assert press(bellhop, asked, "Allow this change").status == 200
    told(bellhop, HELLO + UNDERSTOOD + CHANGED)
    wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)
    assert len([m for m in history(bellhop) if HELLO in m]) == 1, "one message grew"


@long
def test_nobody_but_an_owner_permits_and_the_default_is_no(bellhop, example):
    example("--permission-timeout", "2s", owner=False)
    bellhop.write("improve my project")
    asked = wait_for(lambda: question(bellhop))
    assert press(bellhop, asked, "Allow this change").status == 403
    told(bellhop, HELLO + UNDERSTOOD + SKIPPED)
    told(bellhop, "No owner of this agent decided in time: the answer is no.")


@long
def test_stop_cancels_the_example_agent(bellhop, example):
    agent = example()
    bellhop.write("improve my project")
    told(bellhop, HELLO)
    bellhop.write("/stop")
    wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)
    time.sleep(1.5)
    assert not [m for m in history(bellhop) if UNDERSTOOD in m]
    bellhop.write("again")  # the session goes on
    wait_for(lambda: len([m for m in history(bellhop) if m == HELLO]) == 2)
    bellhop.write("/stop")
    assert agent.end() == 0
    assert not [e for e in agent.errors if "ended" in e], agent.errors


def child_of(agent):
    return int(open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read().split()[0])


@long
def test_the_example_agent_dies_in_the_middle(bellhop, example):
    agent = example()
    bellhop.write("improve my project")
    told(bellhop, HELLO)
    os.kill(child_of(agent), signal.SIGKILL)
    told(bellhop, HELLO + "\n\n[The agent broke off: signal 9]")
    bellhop.write("again")
    wait_for(lambda: len([m for m in history(bellhop) if m.startswith(HELLO)]) == 2)
    assert len([m for m in history(bellhop) if "new session" in m]) == 0, "no prompt had ended in the old one"
    bellhop.write("/stop")


@long
def test_fifty_chats_at_once(bellhop, example):
    agent = example("--permission-timeout", "1s", owner=False)
    visitors = [f"acp-visitor-{n:06}" for n in range(50)]
    for v in visitors:
        bellhop.write("improve my project", visitor=v)
    for v in visitors:
        told(bellhop, HELLO + UNDERSTOOD + SKIPPED, visitor=v, timeout=60)
    pids = open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read().split()
    assert len(pids) == 4, "16 sessions each"


# ---- a scripted agent, checked against the published schema ----


def test_a_session_remembers_and_is_loaded_after_a_restart(bellhop, scripted):
    agent = scripted.start(can={"loadSession": True})
    bellhop.write("one")
    says(bellhop, "heard one")
    bellhop.write("said")
    says(bellhop, "1 before: one")
    assert agent.end() == 0
    bellhop.write("said")  # waits in the mailbox
    scripted.start(can={"loadSession": True})
    says(bellhop, "2 before: one, said")
    assert not [m for m in history(bellhop) if "REPLAYED" in m or "new session" in m], history(bellhop)
    assert len(scripted.log("session/new")) == 1 and len(scripted.log("session/load")) == 1


def test_who_was_erased_has_a_new_session(make_bellhop, tmp_path):
    """Of an agent that the server runs, at once and after a restart; others keep theirs."""
    (tmp_path / "acp").mkdir()
    server = make_bellhop(CONFIG + f"""agents:
  - {{{{id: mine, tenant: home, substrate: acp, command: [{NODE}, {ROOT}/tests/e2e/acp_agent.cjs], platform: web, bot: lobby, open: true}}}}
""", env={"ACP_NPM": str(NPM), "ACP_FILES": str(tmp_path / "acp"), "ACP_CAN": json.dumps({"loadSession": True})})
    wait_for(lambda: (server.instance("mine") or {}).get("state") == "live")
    other = "other-0123456789abcdef"
    for visitor in (VISITOR, other):
        server.write("one", visitor=visitor)
        says(server, "heard one", visitor=visitor)
    theirs, mine = (r["userId"] for r in json.loads(server.cli("why", "--platform", "web", "--json").stdout))
    server.cli("erase", "--person", f"web:{mine}", "--yes")
    for before in (0, 1):
        server.write("said")
        told(server, f"{before} before")
        server.write("said", visitor=other)
        told(server, f"{before + 1} before", visitor=other)
        server.restart()


def test_a_session_is_resumed_where_that_is_offered(bellhop, scripted):
    can = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
    agent = scripted.start(can=can)
    bellhop.write("one")
    says(bellhop, "heard one")
    wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)
    agent.end(signal.SIGKILL)  # bellhop agent dies, and its program with it
    scripted.start(can=can)
    bellhop.write("said")
    says(bellhop, "1 before: one")
    assert len(scripted.log("session/resume")) == 1 and not scripted.log("session/load")


def test_a_session_that_cannot_go_on_is_told_in_a_line(bellhop, scripted):
    agent = scripted.start()
    bellhop.write("one")
    says(bellhop, "heard one")
    assert agent.end() == 0
    scripted.start()
    bellhop.write("said")
    says(bellhop, "0 before:")
    assert history(bellhop)[-2] == NEW_SESSION


@long
def test_a_session_that_the_agent_lost_is_told_too(bellhop, scripted):
    agent = scripted.start(can={"loadSession": True})
    bellhop.write("one")
    says(bellhop, "heard one")
    assert agent.end() == 0
    for f in (scripted.files / "acp").glob("session-*"):
        f.unlink()
    scripted.start(can={"loadSession": True})
    bellhop.write("said")
    says(bellhop, "0 before:")
    assert "new session" in history(bellhop)[-2]


NEW_SESSION = "[This is a new session: the agent does not remember what was said before.]"


def test_a_session_that_is_resumed_in_name_only_begins_anew(bellhop, scripted):
    """Hermes resumes what it does not know, and refuses every prompt of it."""
    can = {"sessionCapabilities": {"resume": {}}}
    agent = scripted.start(can=can, env={"ACP_FORGETS": "1"})
    bellhop.write("one")
    says(bellhop, "heard one")
    assert agent.end() == 0
    for f in (scripted.files / "acp").glob("session-*"):
        f.unlink()
    scripted.start(can=can, env={"ACP_FORGETS": "1"})
    bellhop.write("two")
    says(bellhop, "heard two")
    assert history(bellhop)[-2:] == [NEW_SESSION, "heard two"] and "refuses" not in "".join(history(bellhop))
    bellhop.write("said")
    says(bellhop, "1 before: two")
    assert len(scripted.log("session/new")) == 2


def test_a_session_that_the_agent_forgets_while_it_runs_begins_anew(bellhop, scripted):
    scripted.start()
    bellhop.write("one")
    says(bellhop, "heard one")
    bellhop.write("forget")
    says(bellhop, "forgotten")
    bellhop.write("said")
    says(bellhop, "0 before:")
    assert history(bellhop)[-2] == NEW_SESSION


def test_a_prompt_is_repeated_if_nothing_was_said(bellhop, scripted):
    agent = scripted.start(can={"loadSession": True})
    bellhop.write("one")
    says(bellhop, "heard one")
    bellhop.write("die-once upon a time")
    says(bellhop, "heard die-once upon a time")
    bellhop.write("said")
    says(bellhop, "2 before: one, die-once upon a time")
    assert [e for e in agent.errors if "the program ended: exit status 3" in e]


@long
def test_a_prompt_that_always_kills_is_given_up_and_told(bellhop, scripted):
    scripted.start()
    bellhop.write("die")
    told(bellhop, "[The agent broke off: exit status 3]")
    assert len(scripted.log("session/prompt")) == 3
    bellhop.write("hello")
    says(bellhop, "heard hello")
    wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)


def test_a_prompt_is_not_repeated_once_something_was_said(bellhop, scripted):
    scripted.start()
    bellhop.write("say-then-die")
    told(bellhop, "half an\n\n[The agent broke off: exit status 4]")
    assert len(scripted.log("session/prompt")) == 1
    wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)


def test_a_message_is_acknowledged_when_its_prompt_has_ended(bellhop, scripted):
    agent = scripted.start()
    bellhop.write("wait")
    wait_for(lambda: scripted.log("session/prompt"))
    bellhop.write("second")
    time.sleep(0.5)
    assert bellhop.instance("mine")["unacked"] == 2 and len(scripted.log("session/prompt")) == 1
    agent.end(signal.SIGKILL)
    scripted.start()
    wait_for(lambda: len(scripted.log("session/prompt")) == 2)  # the same prompt, again
    bellhop.write("/stop")
    says(bellhop, "heard second")
    assert "Stopped." in history(bellhop)
    wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)


def test_long_turns_hold_nothing_back_and_are_not_taken_for_a_dead_agent(make_bellhop, start_agent, tmp_path):  # noqa: F811
    server = make_bellhop(CONFIG + "delivery: {{ack_patience: 1s}}\n")
    scripted = Scripted(server, start_agent, tmp_path, server.add("--id", "mine"))
    link(server)
    agent = scripted.start()
    visitors = [f"acp-visitor-{n:06}" for n in range(10)]
    for v in visitors:
        server.write("late-and-wait busy", visitor=v)
    for v in visitors:
        told(server, "busy", visitor=v)
    server.write("permit")
    asked = wait_for(lambda: question(server))
    time.sleep(4)  # three times the patience for acks, and more
    assert press(server, asked, "Yes").status == 200
    told(server, "outcome selected y")
    assert server.instance("mine")["state"] == "live" and server.instance("mine")["unacked"] == len(visitors)
    agent.end(signal.SIGKILL)
    scripted.start()
    wait_for(lambda: len(scripted.log("session/prompt")) == 2 * len(visitors) + 1)  # none was lost
    for v in visitors:
        server.write("/stop", visitor=v)
    wait_for(lambda: server.instance("mine")["unacked"] == 0)


def test_what_was_said_is_finished_when_the_time_to_leave_is_over(bellhop, scripted):
    agent = scripted.start("--grace", "1s")
    bellhop.write("hang")
    told(bellhop, "busy")
    time.sleep(1)  # nothing is on its way
    assert agent.end() == 0
    says(bellhop, "busy\n\n[The agent broke off: exit status 0]")
    wait_for(lambda: bellhop.instance("mine")["entries"] == 0)


def test_a_program_that_dies_while_its_agent_rests_gets_the_message_later(bellhop, scripted):
    agent = scripted.start()
    bellhop.write("wait")
    wait_for(lambda: scripted.log("session/prompt"))
    agent.process.send_signal(signal.SIGUSR1)
    agent.said("resting")
    os.kill(child_of(agent), signal.SIGKILL)
    agent.said("back")
    wait_for(lambda: len(scripted.log("session/prompt")) == 2)
    bellhop.write("/stop")
    says(bellhop, "Stopped.")


def test_what_came_during_a_turn_is_one_prompt_with_merge(bellhop, scripted):
    scripted.start("--merge", env={"ACP_SLOW": "500"})
    bellhop.write("one")
    wait_for(lambda: scripted.log("session/prompt"))
    bellhop.write("two")
    bellhop.write("three")
    says(bellhop, "heard two|three")
    assert len(scripted.log("session/prompt")) == 2
    wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)


@long
def test_an_agent_that_ignores_a_cancellation_is_ended(bellhop, scripted):
    agent = scripted.start(can={"loadSession": True})
    bellhop.write("hang")
    told(bellhop, "busy")
    first = child_of(agent)
    bellhop.write("/stop")
    wait_for(lambda: not os.path.exists(f"/proc/{first}"), 30)
    bellhop.write("hello")
    says(bellhop, "heard hello")
    assert len(scripted.log("session/cancel")) == 1


def test_text_streams_and_the_last_text_is_right(bellhop, scripted):
    scripted.start()
    bellhop.write("stream 40")
    seen = set()

    def ended():
        seen.add(history(bellhop)[-1])
        return history(bellhop)[-1].endswith("38 39")
    wait_for(ended)
    assert len(seen) > 2, "it grew"
    assert history(bellhop)[-1] == " ".join(str(i) for i in range(40)) and len(history(bellhop)) == 2


def test_a_long_answer_is_several_messages(bellhop, scripted):
    scripted.start()
    bellhop.write("long 2000")
    wait_for(lambda: "line 1999 of a long answer" in history(bellhop)[-1])
    parts = history(bellhop)[1:]
    assert len(parts) > 1
    assert "\n".join(parts) == "\n".join(f"line {i} of a long answer" for i in range(2000))


@long
def test_progress_is_shown_and_gone_at_the_end(bellhop, scripted):
    scripted.start("--progress")
    bellhop.write("tools")
    told(bellhop, "\u2026 Plan 1/2: Think")
    says(bellhop, "read it")
    assert len(history(bellhop)) == 2


def test_permission_without_a_reject_option_is_cancelled(bellhop, scripted):
    scripted.start("--permission-timeout", "1s")
    bellhop.write("permit hard")
    assert press(bellhop, wait_for(lambda: question(bellhop)), "Always").status == 403  # not an owner
    told(bellhop, "outcome cancelled -")
    bellhop.write("permit")
    told(bellhop, "outcome selected n")


def test_the_option_that_rejects_is_found_among_many(bellhop, scripted):
    scripted.start("--permission-timeout", "1s")
    bellhop.write("permit many")
    labels = [o["label"] for o in wait_for(lambda: question(bellhop))["prompt"]["options"]]
    assert len(labels) == 8 and labels[0] == "Allow a" and labels[-1] == "No"
    told(bellhop, "outcome selected n")


def test_a_question_shows_the_command_that_a_long_title_hides(bellhop, scripted):
    scripted.start("--permission-timeout", "1s")
    bellhop.write("permit hidden")
    lines = wait_for(lambda: question(bellhop))["text"].split("\n")
    assert lines[0].startswith("The agent asks for permission: List")  # what the agent says is on one line
    assert lines[1] == "command: " + "a" * 400 + "; rm -rf /"
    told(bellhop, "outcome selected n")


@pytest.mark.parametrize("what, shown", [
    ("markdown", "[List] (http://x/)\ncommand:\n```\necho \"[a](b$(rm -rf ~))\"\n```"),
    ("words", "Shell\ncommand:\n```\n[\"bash\",\"-lc\",\"rm -rf *\"]\n```"),
])
def test_a_question_hides_nothing_behind_markdown(bellhop, scripted, what, shown):
    scripted.start("--permission-timeout", "1s")
    bellhop.write(f"permit {what}")
    assert wait_for(lambda: question(bellhop))["text"] == "The agent asks for permission: " + shown
    told(bellhop, "outcome selected n")


def test_a_stop_answers_an_open_permission_request(bellhop, scripted):
    link(bellhop)
    scripted.start()
    bellhop.write("permit")
    wait_for(lambda: question(bellhop))
    bellhop.write("/stop")
    told(bellhop, "outcome cancelled -")
    bellhop.write("permit")
    wait_for(lambda: len(scripted.log("session/prompt")) == 2 and question(bellhop)["text"])
    asked = wait_for(lambda: question(bellhop) if len([m for m in history(bellhop) if "asks for permission" in m]) == 2 else None)
    assert "Delete everything\ncommand: rm -rf /" in asked["text"]
    press(bellhop, asked, "Yes")
    told(bellhop, "outcome selected y")


def test_a_second_signal_ends_it_with_a_question_open(bellhop, scripted):
    agent = scripted.start()
    bellhop.write("permit")
    wait_for(lambda: question(bellhop))
    agent.process.send_signal(signal.SIGTERM)
    agent.said("leaving")
    assert agent.end() == 0 and agent.errors


def test_methods_that_are_not_offered_are_refused(bellhop, scripted):
    scripted.start()
    bellhop.write("fs")
    says(bellhop, "refused -32601")
    got = scripted.log("initialize")[0]["params"]
    assert got["clientCapabilities"] == {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


def test_messages_noise_and_errors(bellhop, scripted):
    agent = scripted.start()
    bellhop.write("messages")
    says(bellhop, "first part\n\nsecond")
    bellhop.write("noise")
    says(bellhop, "still here")
    assert [e for e in agent.errors if "the program says: a word on stderr" in e]
    assert [e for e in agent.errors if "ignored a line of the program" in e]
    bellhop.write("refuse")
    says(bellhop, "[The agent could not answer: the model is out of order]")
    bellhop.write("tokens")
    says(bellhop, "so far\n\n[The agent stopped: the limit of tokens is reached.]")


def test_standard_error_is_logged_bounded(bellhop, scripted):
    """A program that floods it, in short lines, in one endless line and in bytes that are no text, still answers."""
    agent = scripted.start(before="yes complaint | head -n 5000 >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2; printf '\\377\\033[31m\\n' >&2")
    bellhop.write("messages")
    says(bellhop, "first part\n\nsecond")
    assert sum("the program says: complaint" in e for e in agent.errors) <= 200
    assert [e for e in agent.errors if "writes too much on standard error" in e]
    assert sum(len(e) for e in agent.errors) < 200000 and not [e for e in agent.errors if "\033" in e]


def test_an_agent_that_wants_a_login_says_so_in_the_chat(bellhop, scripted):
    scripted.start(env={"ACP_LOGIN": "1"})
    bellhop.write("hello")
    says(bellhop, "[The agent could not answer: it wants to be logged in on its machine first: Log in (run `agent login`)]")


def test_a_session_that_wants_a_login_gives_its_place_to_the_next(bellhop, scripted):
    agent = scripted.start(can={"loadSession": True})
    bellhop.write("one")
    says(bellhop, "heard one")
    agent.end()
    bellhop.write("two")
    bellhop.write("another", visitor="acp-visitor-000001")
    scripted.start("--sessions", "1", "--max-programs", "1", can={"loadSession": True}, env={"ACP_LOGIN": "1"})
    for v in (VISITOR, "acp-visitor-000001"):
        told(bellhop, "it wants to be logged in on its machine first", visitor=v)


def test_a_login_that_is_asked_for_is_done_first(bellhop, scripted):
    scripted.start("--login", "x", env={"ACP_LOGIN": "1"})
    bellhop.write("hello")
    says(bellhop, "heard hello")


def test_a_login_that_is_refused_is_told(bellhop, scripted):
    agent = scripted.start("--login", "wrong", env={"ACP_LOGIN": "1"})
    bellhop.write("hello")
    told(bellhop, "[The agent could not answer: it refused --login wrong: no such method to log in]")
    agent.warned("it refused --login wrong")
    assert not scripted.log("session/new")


@long
def test_another_protocol_version_is_refused(bellhop, scripted):
    agent = scripted.start(env={"ACP_VERSION": "2"})
    agent.warned("it speaks version 2 of the Agent Client Protocol, bellhop version 1")
    bellhop.write("hello")
    told(bellhop, "it speaks version 2 of the Agent Client Protocol, bellhop version 1")


def test_modes_and_models_are_chosen_by_owners(bellhop, scripted):
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask first"}, {"id": "code", "name": "Code"}]}
    options = [{"id": "m", "name": "Model", "category": "model", "type": "select", "currentValue": "small",
                "options": [{"value": "small", "name": "Small"}, {"value": "big", "name": "The Big One"}]}]
    scripted.start(can={"sessions": {"modes": modes, "configOptions": options}})
    bellhop.write("/mode")
    says(bellhop, "Choose with /mode NAME:\n\u2022 ask (Ask first)\n- code")
    bellhop.write("/mode code")
    says(bellhop, "Only an owner of this agent can change its mode.")
    link(bellhop)
    bellhop.write("/mode code")
    says(bellhop, "The mode is now code.")
    assert scripted.log("session/set_mode")[0]["params"]["modeId"] == "code"
    bellhop.write("/model the big one")
    says(bellhop, "The model is now big.")
    assert scripted.log("session/set_config_option")[0]["params"]["value"] == "big"
    bellhop.write("/model huge")
    told(bellhop, "There is no such name. Choose with /model NAME:\n- small\n\u2022 big (The Big One)")
    bellhop.write("/help me")  # the agent's own commands are text
    says(bellhop, "heard /help me")


def test_a_command_that_the_agent_dies_of_is_not_repeated(bellhop, scripted):
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask first"}, {"id": "die", "name": "Die"}]}
    scripted.start(can={"loadSession": True, "sessions": {"modes": modes}})
    bellhop.write("one")
    says(bellhop, "heard one")
    link(bellhop)
    bellhop.write("/mode die")
    says(bellhop, "The agent ended before it answered the command.")
    bellhop.write("two")
    says(bellhop, "heard two")
    assert len(scripted.log("session/set_mode")) == 1


@long
def test_a_command_for_a_session_that_does_not_open_is_told(bellhop, scripted):
    scripted.start(env={"ACP_OPENS": "600000"})
    bellhop.write("/mode")
    says(bellhop, "The agent did not answer the command.", timeout=140)


def test_the_mode_that_is_told_is_the_one_of_a_new_session(bellhop, scripted):
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask first"}, {"id": "code", "name": "Code"}]}
    scripted.start(can={"sessions": {"modes": modes}})
    link(bellhop)
    bellhop.write("/mode code")
    says(bellhop, "The mode is now code.")
    bellhop.write("die-once")
    says(bellhop, "heard die-once")
    bellhop.write("/mode")
    says(bellhop, "Choose with /mode NAME:\n\u2022 ask (Ask first)\n- code")


@pytest.mark.parametrize("slow", [{"before": "sleep 2"}, {"env": {"ACP_OPENS": "2000"}}], ids=["program", "session"])
def test_who_stops_before_the_session_is_open_leaves_a_place(bellhop, scripted, slow):
    scripted.start("--sessions", "1", "--max-programs", "1", can={"loadSession": True}, **slow)
    bellhop.write("one")
    if "env" in slow:
        wait_for(lambda: scripted.log("session/new"))
    else:
        wait_for(lambda: bellhop.instance("mine")["unacked"] == 1)
    bellhop.write("/stop")
    says(bellhop, "Stopped.")
    bellhop.write("two", visitor="acp-visitor-000002")
    says(bellhop, "heard two", visitor="acp-visitor-000002")


@long
def test_a_program_each_and_no_more_than_allowed(bellhop, scripted):
    scripted.start("--sessions", "1", "--max-programs", "2", can={"loadSession": True})
    visitors = [f"acp-visitor-{n:06}" for n in range(5)]
    for v in visitors:
        bellhop.write(f"hello {v}", visitor=v)
    for v in visitors:
        says(bellhop, f"heard hello {v}", visitor=v, timeout=60)
    for v in visitors:
        bellhop.write("said", visitor=v)
        says(bellhop, f"1 before: hello {v}", visitor=v, timeout=60)
    per_pid = {}
    for line in scripted.log("session/new") + scripted.log("session/load"):
        per_pid.setdefault(line["pid"], 0)
        per_pid[line["pid"]] += 1
    assert set(per_pid.values()) == {1}, per_pid


# ---- how answers are shown ----


@pytest.fixture
def shown(start_agent, tmp_path):  # noqa: F811
    """shown(prompt, descriptor, refuses) -> the actions that a connector gets for it, but for typing.

    fails(action) -> the error of its result, or None; no_ids: results name no message."""
    def show(prompt, descriptor=None, refuses=(), fails=lambda action: None, no_ids=False):
        def react(conn, frame):
            replies = connector.answer(frame)
            for reply in replies:
                reply.get("descriptor", {}).update(descriptor or {})
                if reply["type"] == "outbound_result" and frame["action"]["op"] in refuses:
                    reply["result"] = {"success": False, "error": "it is too old"}
                elif reply["type"] == "outbound_result" and fails(frame["action"]):
                    reply["result"] = {"success": False, "error": fails(frame["action"])}
                elif no_ids and reply["type"] == "outbound_result":
                    time.sleep(0.3)  # the text grows meanwhile
                    reply["result"].pop("message_id")
            return replies
        connector = FakeConnector(react)
        scripted = Scripted(connector, start_agent, tmp_path, FakeCredential("g", "s"))
        scripted.start()
        connector.send(inbound(prompt, "b-1"))
        actions, acked = [], False
        while not acked:
            _, frame = connector.frames.get(timeout=20)
            acked = frame["type"] == "inbound_ack"
            if frame["type"] == "outbound" and frame["action"]["op"] != "typing":
                actions.append(frame["action"])
        connector.stop()
        return actions
    return show


WHOLE = " ".join(str(i) for i in range(30))


def test_drafts_where_the_descriptor_has_them(shown):
    ops = ["send", "edit", "typing", "follow_up", "draft"]
    actions = shown("stream 30", {"supports_draft_streaming": True, "supported_ops": ops})
    assert {a["op"] for a in actions} == {"draft"} and len({a["draft_id"] for a in actions}) == 1
    assert [a["final"] for a in actions] == [False] * (len(actions) - 1) + [True] and len(actions) > 1
    assert all(WHOLE.startswith(a["content"]) and a["message"] is True for a in actions)
    assert actions[-1]["content"] == WHOLE and actions[-1]["metadata"]["notify"] is True


def test_a_refused_draft_is_a_message(shown):
    actions = shown("stream 30", {"supports_draft_streaming": True, "supported_ops": ["draft"]}, refuses=("draft",))
    assert [a["op"] for a in actions][:2] == ["draft", "send"] and actions[-1]["content"] == WHOLE


def test_a_message_that_cannot_be_edited_any_more(shown):
    actions = shown("stream 30", refuses=("edit",))
    assert actions[0]["op"] == "send" and WHOLE.startswith(actions[0]["content"])
    assert actions[-1]["op"] == "send" and actions[-1]["content"] == WHOLE and actions[-2]["op"] == "edit"


def test_a_message_without_an_id_loses_no_text(shown):
    actions = shown("stream 30", no_ids=True)
    assert [a["op"] for a in actions] == ["send", "send"]
    assert " ".join(a["content"] for a in actions) == WHOLE


def test_a_message_without_an_id_that_was_all_is_the_end(shown):
    actions = shown("late hello", no_ids=True)
    assert [a["content"] for a in actions] == ["hello"]


def test_a_block_of_code_is_opened_once_when_its_message_cannot_be_edited(shown):
    actions = shown("code 60", {"max_message_length": 300}, refuses=("edit",))
    texts = [a["content"] for a in actions if a["op"] == "send"][1:]  # the first was shown before it grew
    assert texts[0].startswith("start\n```python\nx = 0\n") and texts[-1].endswith("end")
    assert all(t.count("```") == 2 for t in texts) and all(t.startswith("```python\nx = ") for t in texts[1:])


UNKNOWN = "timed out: bellhop was stopped; it may have been delivered"


def once(op):
    """Fails the first final action of this op."""
    failed = []

    def fails(action):
        if action["op"] != op or not action["metadata"].get("notify") or failed and failed[0] is not action:
            return None
        failed[:] = [action]
        return UNKNOWN
    return fails


def test_an_edit_that_may_have_been_shown_is_repeated_and_no_new_message(shown):
    actions = shown("stream 30", fails=once("edit"))
    assert [a["op"] for a in actions].count("send") == 1
    assert actions[-1] == actions[-2] and actions[-1]["op"] == "edit" and actions[-1]["content"] == WHOLE


DRAFTS = {"supports_draft_streaming": True, "supported_ops": ["send", "edit", "draft"]}


def test_a_final_draft_that_may_have_been_delivered_is_repeated(shown):
    actions = shown("stream 30", DRAFTS, fails=once("draft"))
    assert {a["op"] for a in actions} == {"draft"} and actions[-1] == actions[-2] and actions[-1]["final"]


def test_a_final_draft_whose_fate_stays_unknown_is_not_sent_again(shown):
    actions = shown("stream 30", DRAFTS, fails=lambda a: UNKNOWN if a.get("final") else None)
    assert {a["op"] for a in actions} == {"draft"} and [a["final"] for a in actions].count(True) == 2


def test_nothing_before_the_end_where_nothing_can_be_edited(shown):
    actions = shown("stream 30", {"supports_edit": False})
    assert [(a["op"], a["content"]) for a in actions] == [("send", WHOLE)]


# ---- groups, and files ----


@pytest.mark.parametrize("options, sessions", [((), 2), (("--shared-groups",), 1)])
def test_in_groups_each_person_has_a_session_or_all_share_one(telegram_sim, make_bellhop, start_agent, tmp_path, options, sessions):  # noqa: F811
    server = make_bellhop(test_telegram.config(telegram_sim))
    scripted = Scripted(server, start_agent, tmp_path, server.add("--id", "mine", platform="telegram", bot="my_bot"))
    scripted.platform = "telegram=my_bot"
    scripted.start(*options)
    code = server.cli("link", "--instance", "mine").stdout.split()[0]
    telegram_sim.say(test_telegram.ANN, f"/link {code}")
    wait_for(lambda: telegram_sim.texts(test_telegram.ANN))
    bob = {"id": 6, "is_bot": False, "first_name": "Bob"}
    group = test_telegram.GROUP
    telegram_sim.say(group, "one @my_bot")
    wait_for(lambda: telegram_sim.texts(group))
    telegram_sim.say(group, "two @my_bot", user=bob)
    wait_for(lambda: len(telegram_sim.texts(group)) == 2)
    assert telegram_sim.texts(group) == (
        ["heard one @my_bot", "heard two @my_bot"] if sessions == 2 else ["heard Ann Lee: one @my_bot", "heard Bob: two @my_bot"])
    assert len(scripted.log("session/new")) == sessions
    if sessions == 1:
        return
    telegram_sim.say(group, "permit @my_bot", user=bob)
    asked = wait_for(lambda: next((m for m in telegram_sim.sent(group) if m.get("reply_markup")), None))
    data = asked["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    telegram_sim.press(group, asked["message_id"], data, user=bob)
    wait_for(lambda: telegram_sim.called("answerCallbackQuery"))
    assert telegram_sim.called("answerCallbackQuery")[-1]["text"] == "This question is not for you."
    telegram_sim.press(group, asked["message_id"], data)  # Ann is an owner
    wait_for(lambda: "outcome selected y" in telegram_sim.texts(group))


def test_a_stop_in_a_shared_group_is_for_its_own_topic(telegram_sim, make_bellhop, start_agent, tmp_path):  # noqa: F811
    server = make_bellhop(test_telegram.config(telegram_sim))
    scripted = Scripted(server, start_agent, tmp_path, server.add("--id", "mine", platform="telegram", bot="my_bot"))
    scripted.platform = "telegram=my_bot"
    scripted.start("--shared-groups", env={"ACP_SLOW": "6000"})
    code = server.cli("link", "--instance", "mine").stdout.split()[0]
    telegram_sim.say(test_telegram.ANN, f"/link {code}")
    wait_for(lambda: telegram_sim.texts(test_telegram.ANN))
    forum = test_telegram.FORUM
    telegram_sim.group(forum, "Forum", is_forum=True, topics=[4, 5])
    for n, topic in enumerate([4, 5], 1):
        telegram_sim.say(forum, f"in topic {topic} @my_bot", message_thread_id=topic, is_topic_message=True)
        wait_for(lambda: len(scripted.log("session/prompt")) == n)
    telegram_sim.say(forum, "/stop@my_bot", message_thread_id=4, is_topic_message=True)
    wait_for(lambda: scripted.log("session/cancel"))
    first = next(line["params"] for line in scripted.log("session/prompt") if "in topic 4" in line["params"]["prompt"][0]["text"])
    assert [line["params"]["sessionId"] for line in scripted.log("session/cancel")] == [first["sessionId"]]
    wait_for(lambda: any("in topic 5" in text for text in telegram_sim.texts(forum)))


def test_images_and_files_go_where_the_agent_takes_them(bellhop, scripted):
    scripted.start(can={"promptCapabilities": {"image": True, "embeddedContext": True}})

    def upload(data, type, name):
        request = urllib.request.Request(f"{bellhop.url}/chat/lobby/api/file", data, {"X-Bellhop-Visitor": VISITOR, "Content-Type": type, "X-File-Name": name})
        return json.load(urllib.request.urlopen(request, timeout=10))
    files = [upload(test_web_files.png(), "image/png", "cat.png"), upload(b"some notes", "text/plain", "notes.txt")]
    got = bellhop.post("/chat/lobby/api/message", {"text": "blocks", "files": files}, headers={"X-Bellhop-Visitor": VISITOR})
    assert got.status == 200, got.text
    told(bellhop, "text image:image/png resource:some notes")


# ---- one command ----


def test_the_demonstration_needs_nothing_else(tmp_path):
    """A connector, its chat page and the agent, and nothing stays, also where another server has its state."""
    mine = tmp_path / "mine"
    process = subprocess.Popen([PROGRAM, "agent", "--demo", "--acp", "--", NODE, str(EXAMPLE)], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "HOME": str(tmp_path),
                                                           "BELLHOP_STATE_DIR": str(mine), "BELLHOP_LISTEN": "127.0.0.1:1"})
    url = re.match(r"Open (http://127.0.0.1:\d+)/chat and write to your agent.\n", process.stdout.readline()).group(1)
    code = re.match(r"Send (/link \w+) there to decide what the agent may do.\n", process.stdout.readline()).group(1)
    assert process.stdout.readline() == "agent: ready\n"

    class Page:
        @staticmethod
        def call(path, body=None):
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(url + path, data, {"X-Bellhop-Visitor": VISITOR, "Content-Type": "application/json"})
            return json.load(urllib.request.urlopen(request, timeout=10))

        def texts(self):
            return [m["text"] for m in self.call("/chat/lobby/api/history")["messages"]]

    page = Page()
    for text in (code, "improve my project"):
        page.call("/chat/lobby/api/message", {"text": text})
    wait_for(lambda: any(HELLO in t for t in page.texts()))
    assert any("Linked" in t for t in page.texts())
    page.call("/chat/lobby/api/message", {"text": "/stop"})
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert not list(tmp_path.glob("bellhop-demo-*")) and not mine.exists()


def test_the_demonstration_names_a_missing_program_at_once(tmp_path):
    run = subprocess.run([PROGRAM, "agent", "--demo", "--acp", "--", "npx", "agent"], capture_output=True, text=True,
                         env={"PATH": str(tmp_path)})
    assert run.returncode == 1 and not run.stdout, "no page to open"
    assert 'there is no program "npx": install it, or give its path (npx comes with Node)' in run.stderr


# ---- agents for daily use; none of them can log in here ----

REAL = {"claude-agent-acp": [], "claude-code-acp": [], "codex-acp": [], "gemini": ["--acp"]}


@long
@pytest.mark.parametrize("name", REAL)
def test_a_real_agent_starts_answers_for_itself_and_dies(bellhop, start_agent, tmp_path, name):  # noqa: F811
    program = NPM / "node_modules/.bin" / name
    if not program.exists():
        pytest.skip(f"{name} is not installed: ./dev agents installs it")
    (tmp_path / "home").mkdir()
    agent = start_agent(bellhop, bellhop.add("--id", "mine"), [str(program), *REAL[name]], "--acp", "--state", str(tmp_path / "state"),
                        env={"HOME": str(tmp_path / "home"), "IS_SANDBOX": "1"})  # Claude refuses root elsewhere
    agent.warned("the agent is ready", timeout=60)
    for _ in range(2):
        before = len(history(bellhop))
        bellhop.write("hello")
        wait_for(lambda: len(history(bellhop)) > before + 1, 120)
        assert "log" in history(bellhop)[-1].lower(), history(bellhop)  # "log in", "/login"
        wait_for(lambda: bellhop.instance("mine")["unacked"] == 0)
        os.killpg(child_of(agent), signal.SIGKILL)
        agent.warned("the program ended: signal 9")

"""bellhop agent --responses and --chat: models behind an OpenAI-style server, simulated strictly; `openai` proves the simulator."""
import json
import shutil
import socket
import subprocess
import sys
import time

import pytest

from conftest import CONFIG, ROOT, wait_for
from test_agent import VISITOR, answered, history, start_agent  # noqa: F401 - a fixture
from test_clock import Clock

sys.path.insert(0, str(ROOT / "tests/sim"))
from models import ModelSim  # noqa: E402

BOTH = pytest.mark.parametrize("api", ["responses", "chat"])


@pytest.fixture
def sim():
    s = ModelSim(key="sk-secret")
    yield s
    s.close()
    assert not s.violations


@pytest.fixture
def model(bellhop, start_agent, sim, tmp_path):  # noqa: F811
    credential = bellhop.add("--id", "mine", "--platform", "web", "--bot", "lobby", "--open")

    def start(api, *options, url=None, key="sk-secret"):
        return start_agent(bellhop, credential, [], f"--{api}", url or sim.url, "--model", "small", "--state", str(tmp_path / "state"),
                           *options, env={"BELLHOP_MODEL_KEY": key})
    return start


def last(server):
    return (history(server) or [""])[-1]


def says(server, *texts):
    answered(server, *[t for pair in texts for t in pair])


@BOTH
def test_a_model_answers_and_remembers_across_a_restart(bellhop, model, sim, api):
    agent = model(api)
    bellhop.write("good morning")
    says(bellhop, ("good morning", "You said: good morning"))
    bellhop.write("whole")
    says(bellhop, ("good morning", "You said: good morning"), ("whole", "You said: whole"))
    assert agent.end() == 0
    model(api)
    bellhop.write("how many")
    wait_for(lambda: last(bellhop) == ("2 before" if api == "responses" else "4 before"), 20)
    assert len({r["user"] for r in sim.requests}) == 1
    assert all(VISITOR not in json.dumps(r) for r in sim.requests)
    bellhop.write("/new")
    wait_for(lambda: last(bellhop) == "A new conversation begins.", 20)
    bellhop.write("how many")
    wait_for(lambda: last(bellhop) == "0 before", 20)


@BOTH
def test_one_retry_before_any_text_and_none_later(bellhop, model, sim, api):
    model(api)
    bellhop.write("refuse 503 1")
    wait_for(lambda: last(bellhop) == "You said: refuse 503 1", 20)
    bellhop.write("refuse 500 1 always")
    wait_for(lambda: last(bellhop) == "[The agent could not answer: the model's server answered with the status 500]", 20)
    bellhop.write("refuse 429 90 always")
    wait_for(lambda: "too much to do; try again in 90 s" in last(bellhop), 20)
    bellhop.write("cut")
    wait_for(lambda: last(bellhop) == "You said: \n\n[The agent broke off: the connection to the model broke off]", 20)
    bellhop.write("cut early")
    wait_for(lambda: last(bellhop) == "You said: cut early", 20)
    bellhop.write("limit")
    wait_for(lambda: "You said: limit\n\n[The agent broke off: the model ended the answer early (" in last(bellhop), 20)
    asked = [r["said"][-1]["content"] for r in sim.requests]
    assert [asked.count(t) for t in ("refuse 503 1", "refuse 500 1 always", "refuse 429 90 always", "cut", "cut early", "limit")] == [2, 2, 1, 1, 2, 1]


@BOTH
def test_the_time_that_a_busy_server_asks_for_is_no_silence(bellhop, model, sim, api):
    model(api, "--timeout", "2s")
    bellhop.write("refuse 429 5")
    wait_for(lambda: len(history(bellhop)) == 2, 20)
    assert last(bellhop) == "You said: refuse 429 5"


def test_two_agents_of_one_server_have_no_conversation_in_common(bellhop, model, start_agent, sim, tmp_path):  # noqa: F811
    agent = model("responses")
    bellhop.write("one")
    says(bellhop, ("one", "You said: one"))
    assert agent.end() == 0
    bellhop.cli("gateway", "revoke", "mine")
    other = bellhop.add("--id", "other", tenant="other")  # another tenant's agent in the same chat
    start_agent(bellhop, other, [], "--responses", sim.url, "--model", "small", "--state", str(tmp_path / "other"),
                env={"BELLHOP_MODEL_KEY": "sk-secret"})
    bellhop.write("two")
    wait_for(lambda: len(sim.requests) == 2, 20)
    assert len({r["user"] for r in sim.requests}) == len({r["headers"]["x-openclaw-session-key"] for r in sim.requests}) == 2


@BOTH
def test_silence_ends_a_turn_and_stop_ends_it_at_once(bellhop, model, sim, api):
    model(api, "--timeout", "2s")
    bellhop.write("stall")
    wait_for(lambda: "silent for too long" in last(bellhop), 20)
    bellhop.write("hold")
    wait_for(lambda: "You said:" in last(bellhop), 20)
    bellhop.write("/stop")
    wait_for(lambda: any(m.endswith("[Stopped.]") and m.startswith("You said:") for m in history(bellhop)), 20)
    sim.release.set()
    bellhop.write("and now")
    wait_for(lambda: last(bellhop) == "You said: and now", 20)


@BOTH
def test_what_was_said_is_finished_when_the_time_to_leave_is_over(bellhop, model, sim, api):
    agent = model(api, "--grace", "1s")
    bellhop.write("hold")
    wait_for(lambda: "You said:" in last(bellhop), 20)
    time.sleep(1)  # nothing is on its way
    assert agent.end() == 0
    assert last(bellhop).startswith("You said:") and last(bellhop).endswith("\n\n[The agent broke off: it was shut down]")
    wait_for(lambda: bellhop.instance("mine")["entries"] == 0)
    sim.release.set()


@pytest.mark.parametrize("lost", [None, (404, "Response with id '{}' not found.")], ids=["openai", "vllm"])
def test_what_the_server_forgot_is_told(bellhop, model, sim, lost):
    sim.lost = lost or sim.lost
    model("responses")
    bellhop.write("one")
    wait_for(lambda: last(bellhop) == "You said: one", 20)
    sim.responses.clear()
    bellhop.write("two")
    wait_for(lambda: history(bellhop)[-2:] == ["(The model has forgotten what was said before and begins anew.)", "You said: two"], 20)


def test_a_history_is_bounded(bellhop, model, sim):
    model("chat", "--history", "3")
    for i in range(4):
        bellhop.write(f"number {i}")
        wait_for(lambda: last(bellhop) == f"You said: number {i}", 20)
    bellhop.write("how many")
    wait_for(lambda: last(bellhop) == "2 before", 20)


def test_a_wrong_key_is_told_without_the_server_s_words(bellhop, model, sim):
    agent = model("chat", key="sk-other")
    bellhop.write("hello")
    wait_for(lambda: last(bellhop) == "[The agent could not answer: the model's server answered with the status 401]", 20)
    agent.warned("Incorrect API key provided")
    assert not any("sk-other" in line for line in agent.errors)


def test_a_server_that_is_away_is_waited_for(bellhop, model):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agent = model("chat", url=f"http://127.0.0.1:{port}/v1")
    bellhop.write("hello")
    agent.warned("cannot be reached")
    late = ModelSim(key="sk-secret", port=port)
    wait_for(lambda: last(bellhop) == "You said: hello", 20)
    late.close()


@pytest.mark.parametrize("substrate", ["responses", "chat"])
def test_a_model_is_an_agent_in_three_lines_of_yaml(make_bellhop, sim, substrate):
    server = make_bellhop(CONFIG + f"""agents:
  - {{{{id: local, tenant: home, substrate: {substrate}, url: '{sim.url}', model: small, key: sk-secret, platform: web, bot: lobby, open: true}}}}
""")
    wait_for(lambda: " connected: " in server.log(), 30)
    server.write("good morning")
    wait_for(lambda: last(server) == "You said: good morning", 30)


def test_what_is_written_before_the_agent_is_there_is_answered(make_bellhop, sim):
    """The first start of all: the server is ready, and the agent's gateway is not on disk yet."""
    for _ in range(8):
        server = hosted(make_bellhop, sim, "chat")
        wait_for(lambda: server.write("at once") == 200)  # else the page sends it again
        wait_for(lambda: last(server) == "You said: at once", 20)
        assert server.stop() == 0


def hosted(make_bellhop, sim, substrate, more="", start=True):
    return make_bellhop(CONFIG + more + f"""agents:
  - {{{{id: mine, tenant: home, substrate: {substrate}, url: '{sim.url}', model: small, key: sk-secret, platform: web, bot: lobby, open: true}}}}
""", start=start)


def talk(server, visitor, text, answer=None):
    wait_for(lambda: (server.instance("mine") or {}).get("state") == "live", 30)
    assert server.write(text, visitor=visitor) == 200
    wait_for(lambda: (history(server, visitor) or [""])[-1] == (answer or f"You said: {text}"), 30)


def left_of(server, text):
    return [str(f) for f in (server.state / "agents").rglob("*") if f.is_file() and text.encode() in f.read_bytes()]


@BOTH
def test_an_erased_person_is_forgotten_by_the_models_that_bellhop_runs(make_bellhop, sim, api):
    server = hosted(make_bellhop, sim, api)
    people = {}
    for visitor in ("ada-0123456789abcdef", "bob-0123456789abcdef"):
        talk(server, visitor, f"secret of {visitor}")
        people[visitor] = json.loads(server.cli("why", "--platform", "web", "--json").stdout)[0]["userId"]
    (ada, ada_id), (bob, _) = people.items()

    def left(visitor):
        return left_of(server, f"secret of {visitor}") + left_of(server, people[visitor])

    server.cli("erase", "--person", f"web:{ada_id}", "--dry-run")
    assert left(ada) and left(bob)
    server.cli("erase", "--person", f"web:{ada_id}", "--yes")
    assert not left(ada) and left(bob)
    talk(server, ada, "how many", "0 before")  # not only on disk
    talk(server, bob, "how many", "2 before" if api == "chat" else "1 before")
    server.restart()
    talk(server, ada, "how many", "2 before" if api == "chat" else "1 before")
    talk(server, bob, "how many", "4 before" if api == "chat" else "2 before")
    server.cli("erase", "--tenant", "home", "--yes")
    assert not left(ada) and not left(bob)


@BOTH
def test_who_is_erased_while_the_model_answers_is_forgotten(make_bellhop, sim, api):
    server = hosted(make_bellhop, sim, api)
    ada = "ada-0123456789abcdef"
    talk(server, ada, "a secret")
    ada_id = json.loads(server.cli("why", "--platform", "web", "--json").stdout)[0]["userId"]
    server.write("hold", visitor=ada)
    wait_for(lambda: len(sim.requests) == 2)
    server.cli("erase", "--person", f"web:{ada_id}", "--yes")
    sim.release.set()
    wait_for(lambda: server.instance("mine")["unacked"] == 0)
    talk(server, ada, "how many", "0 before")


def test_the_retention_counts_for_histories_too(make_bellhop, sim):
    server = hosted(make_bellhop, sim, "chat", "retention: 5d\n", start=False)
    clock = Clock(server)
    server.start()
    talk(server, VISITOR, "long ago")
    assert server.stop() == 0
    clock.jump(3 * 86400)
    server.start()
    talk(server, VISITOR, "newer")
    assert server.stop() == 0
    clock.jump(3 * 86400)
    server.start()
    wait_for(lambda: left_of(server, "long ago") == [])
    assert left_of(server, "newer")
    talk(server, VISITOR, "how many", "2 before")


def test_the_openai_package_is_content_with_the_simulator():
    sim = ModelSim(key="sk-secret", lenient=True)
    script = """
const OpenAI = require('openai'); const ai = new OpenAI({apiKey: 'sk-secret', baseURL: process.argv[1], maxRetries: 0});
(async () => {
  const out = {};
  let text = '', id;
  for await (const e of await ai.responses.create({model: 'small', input: 'hi there', stream: true})) {
    if (e.type === 'response.output_text.delta') text += e.delta; if (e.type === 'response.completed') id = e.response.id; }
  out.streamed = text;
  const next = await ai.responses.create({model: 'small', input: 'how many', previous_response_id: id});
  out.next = next.output_text;
  text = '';
  for await (const c of await ai.chat.completions.create({model: 'small', messages: [{role: 'user', content: 'hi there'}], stream: true}))
    text += c.choices[0].delta.content || '';
  out.chat = text;
  out.whole = (await ai.chat.completions.create({model: 'small', messages: [{role: 'user', content: 'limit'}]})).choices[0].finish_reason;
  try { await ai.responses.create({model: 'small', input: 'x', previous_response_id: 'resp_no'}); } catch (e) { out.status = e.status; }
  console.log(JSON.stringify(out));
})();
"""
    try:
        done = subprocess.run([shutil.which("node"), "-e", script, sim.url], cwd=ROOT / "build/npm", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"streamed": "You said: hi there", "next": "1 before", "chat": "You said: hi there", "whole": "length", "status": 400}
        assert not sim.violations
    finally:
        sim.close()

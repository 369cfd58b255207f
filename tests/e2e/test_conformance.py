"""bellhop conformance: bellhop and its own gateways keep the contract, and stand-ins that break it are found out, each fault by its name."""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

import pytest

import broken_connector
from conftest import BUILD, PROGRAM, ROOT
from test_ephemeral import ephemeral  # noqa: F401 - a fixture

HERE = ROOT / "tests" / "e2e"
PROBE = (ROOT / "build" / "asan" if BUILD.name == "release" else BUILD) / "tests" / "sdk" / "gateway-probe"  # a release has none
long = pytest.mark.skipif("BELLHOP_LONG" not in os.environ, reason="takes minutes: ./dev conformance")
# A person of the stand-in, cheaper than a client: port, fault, text.
PERSON = ["/bin/bash", "-c", 'exec 3<>/dev/tcp/127.0.0.1/$0; n=$(printf %s "$2" | wc -c); '
          'printf "POST /%s/say HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n%s" "$1" "$n" "$2" >&3; read -r _ status _ <&3; [ "$status" = 200 ]']


def conformance(*words, **more):
    done = subprocess.run([PROGRAM, "conformance", *map(str, words)], text=True, capture_output=True, timeout=240, **more)
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
    return done


def report(*words, **more):
    """The exit status, and the obligations by their names."""
    done = conformance("--json", *words, **more)
    assert done.returncode in (0, 1), done.stderr
    doc = json.loads(done.stdout)
    results = [o["result"] for o in doc["obligations"]]
    assert [doc[r] for r in ("met", "broken", "skipped")] == [results.count(r) for r in ("met", "broken", "skipped")]
    return done.returncode, {o["name"]: o for o in doc["obligations"]}


def broken(obligations):
    return {name: o["came"] for name, o in obligations.items() if o["result"] == "broken"}


def skipped(obligations):
    return {name for name, o in obligations.items() if o["result"] == "skipped"}


# ---- the tables ----


def test_every_obligation_has_a_name_of_its_own_and_a_section_of_the_page():
    headings = set(re.findall(r"^#+ (.*)$", (ROOT / "docs" / "contract.md").read_text(), re.M))
    lists = [json.loads(conformance("--list", *which, "--json").stdout) for which in ((), ("--listen", "x"))]
    for obligations in lists:
        names = [o["name"] for o in obligations]
        assert len(names) == len(set(names)) and {o["section"] for o in obligations} <= headings
        assert all(o["expected"] for o in obligations)
    assert len(lists[0]) > 80 and len(lists[1]) > 35
    assert set(broken_connector.FAULTS.values()) <= {o["name"] for o in lists[0]}
    never = {"provision-again", "scope", "thread", "files", "forward-form"}
    assert {o["name"] for o in lists[0]} - set(broken_connector.FAULTS.values()) == never, "each obligation has a fault"


# ---- bellhop itself ----


def test_bellhop_keeps_every_obligation_of_a_connector(ephemeral, tmp_path):  # noqa: F811
    e = ephemeral()
    (tmp_path / "line").write_text(json.dumps(e.line))
    status, all_of_them = report(e.url, "--key-file", tmp_path / "line")
    assert status == 0 and broken(all_of_them) == {}
    assert skipped(all_of_them) == {"provision-again", "forward-form"}


def test_without_a_person_what_needs_one_is_skipped_and_says_why(ephemeral, tmp_path):  # noqa: F811
    e = ephemeral()
    (tmp_path / "env").write_text(f"export GATEWAY_RELAY_ID={e.line['gateway_id']}\nGATEWAY_RELAY_SECRET=\"{e.line['secret']}\"\n")
    status, found = report(e.url, "--key-file", tmp_path / "env", "--only", "delivered", "--only", "upgrade", "--only", "scope")
    assert status == 0 and skipped(found) == {"delivered", "scope"} and "--control" in found["delivered"]["came"]
    (tmp_path / "pair").write_text(f"{e.line['gateway_id']}:{e.line['secret']}\n")
    done = conformance(e.url, "--key-file", tmp_path / "pair", "--control", e.control, "--only", "delivered", "--only", "text-unchanged")
    assert done.returncode == 0 and "2 met, 0 broken, 0 skipped" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["RESULT", "OBLIGATION", "SECTION", "EXPECTED", "CAME"] and lines[1].startswith("ok ")


def test_a_bearer_provisions_the_gateway_that_checks(ephemeral, tmp_path):  # noqa: F811
    e = ephemeral()
    (tmp_path / "bearer").write_text(e.cli("token", "provision", "--tenant", "test"))
    status, found = report(e.url, "--key-file", tmp_path / "bearer", "--only", "upgrade", "--only", "provision-again")
    assert status == 0 and skipped(found) == set()
    (tmp_path / "bearer").write_text(e.line["key"])  # of the instance that people write to
    status, found = report(e.url, "--key-file", tmp_path / "bearer", "--control", e.control, "--only", "delivered", "--only", "answer")
    assert status == 0 and skipped(found) == set()


def test_what_cannot_be_checked_is_told_with_status_2(ephemeral, tmp_path):  # noqa: F811
    e = ephemeral()
    (tmp_path / "key").write_text("a:b")
    (tmp_path / "none").write_text("nothing to see\nhere\n")
    for words, said in (((), "needs the URL"), ((e.url,), "--key-file"), ((e.url, "--key-file", tmp_path / "none"), "names no gateway"),
                        (("ftp://x", "--key-file", tmp_path / "key"), "ftp://x"),
                        (("http://127.0.0.1:1", "--key-file", tmp_path / "key"), "cannot be reached"),
                        ((e.url, "--key-file", tmp_path / "key", "--only", "nonsense"), "no obligation"),
                        (("--listen", "127.0.0.1:99999"), "99999"), (("--listen", "127.0.0.1:0", "--", "/no/such/program"), "No such file")):
        done = conformance(*words)
        assert done.returncode == 2 and said in done.stderr and done.stdout == "", (words, done.stderr)


def test_the_gateway_library_keeps_every_obligation_of_a_gateway():
    status, found = report("--listen", "127.0.0.1:0", "--timeout", "20s", "--", sys.executable, HERE / "probe_gateway.py", env={**os.environ, "PROBE": str(PROBE)})
    assert (status, broken(found), skipped(found)) == (0, {}, set())


@long
def test_the_examples_and_bellhop_agent_keep_every_obligation_of_a_gateway(tmp_path):
    (tmp_path / "echo.sh").write_text("while read -r line; do echo yes; done\n")
    for program in ([BUILD / "echo"], [sys.executable, ROOT / "examples" / "gateway-test" / "echo_gateway.py"],
                    [PROGRAM, "agent", "--", "/bin/sh", tmp_path / "echo.sh"]):
        status, found = report("--listen", "127.0.0.1:0", "--", *program)
        assert status == 0 and broken(found) == {}, (program, broken(found))


# ---- stand-ins ----


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    process = subprocess.Popen([sys.executable, HERE / "broken_connector.py"], text=True, stdout=subprocess.PIPE)
    url = json.loads(process.stdout.readline())["url"]
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text(f"{broken_connector.GATEWAY}:{broken_connector.SECRET}")

    def check(fault, *only):
        words = [w for name in only for w in ("--only", name)]
        return report(f"{url}/{fault}", "--key-file", key, "--timeout", "5s" if fault == "none" else "700ms", *words, "--", *PERSON,
                      url.rsplit(":", 1)[1], fault)

    yield check
    process.kill()
    process.wait()
    process.stdout.close()


FAULTS = list(broken_connector.FAULTS)
# Obligations about the form of frames need some that run, to see frames.
FORMS = {"lines", "complete-lines", "utf8", "message-size", "descriptor-fields", "descriptor-types", "max-message-length", "len-unit",
         "contract-version", "supported-ops", "result-form", "result-error", "result-asked", "event-object", "event-text", "message-type",
         "media-urls", "reply-to", "source-object", "source-nulls", "source-ids", "chat-type", "scope-names", "buffer-id", "interrupt-form"}


def missed(faults, found):
    """The faults that were not found under their names."""
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        return [fault for fault, there in zip(faults, pool.map(found, faults)) if not there]


def find_faults_of_connectors(stand_in, faults):
    def found(fault):
        if fault == "none":
            status, obligations = stand_in(fault)
            return status == 0 and skipped(obligations) == {"provision-again", "scope", "thread", "files", "forward-form"}
        name = broken_connector.FAULTS[fault]
        status, obligations = stand_in(fault, name, *(("answer", "interrupt", "foreign-chat") if name in FORMS else ()))
        return status == 1 and name in broken(obligations)

    assert missed(["none", *faults], found) == []


def test_faults_of_a_connector_are_found_under_their_names_and_a_good_one_has_none(stand_in):
    assert len(FAULTS[::2]) > 45
    find_faults_of_connectors(stand_in, FAULTS[::2])


@long
def test_each_fault_of_a_connector_is_found_under_its_name(stand_in):
    find_faults_of_connectors(stand_in, FAULTS)


@long
def test_each_fault_is_found_in_a_whole_run_too(stand_in):
    def found(fault):
        status, obligations = stand_in(fault)
        return status == 1 and broken_connector.FAULTS[fault] in broken(obligations)

    assert missed(FAULTS, found) == []


def faults_of_gateways():
    text = (HERE / "broken_gateway.py").read_text()
    return eval(text[text.index("FAULTS = {") + 9:text.index("}\n", text.index("FAULTS = {")) + 1])  # importing would run it


def find_faults_of_gateways(faults):
    def found(fault):
        name = faults[fault]
        only = ("acks-all", "answer") if name.endswith("-form") or name in ("lines", "hello-first", "request-id") else \
            ("redials-restart", "acks-all") if name == "complete-lines" else ("dials",)
        _, obligations = report("--listen", "127.0.0.1:0", "--timeout", "400ms", *(w for n in (name, *only) for w in ("--only", n)), "--",
                                sys.executable, HERE / "broken_gateway.py", fault)
        return name in broken(obligations)

    assert missed(list(faults), found) == []


def test_faults_of_a_gateway_are_found_under_their_names():
    quick = ("expired-token", "never-acks", "message-is-frame", "unknown-dies", "threadless", "leaves-early", "hello-number", "no-chat")
    find_faults_of_gateways({fault: name for fault, name in faults_of_gateways().items() if fault in quick})


@long
def test_each_fault_of_a_gateway_is_found_under_its_name():
    assert len(faults_of_gateways()) > 30
    find_faults_of_gateways(faults_of_gateways())


@long
def test_a_good_gateway_of_somebody_else_has_no_fault():
    status, found = report("--listen", "127.0.0.1:0", "--", sys.executable, HERE / "broken_gateway.py")
    assert status == 0 and broken(found) == {} and skipped(found) == set()

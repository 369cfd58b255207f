"""adapters/skillscript: BellhopAgentConnector from Node against the real server."""
from conftest import ROOT
from dispatch_rig import config
from test_adapter import CATEGORIES
from v1 import make_key, node_json

ANSWERS = """
import sys, time
text = sys.stdin.read()
if '"slow"' in text:
    time.sleep(5)
if '"very slow"' in text:
    time.sleep(6)
sys.stdout.write(text)
"""


def test_the_connector_keeps_its_contract_in_all_five_categories(make_bellhop, tmp_path):
    drop = tmp_path / "drop"
    drop.mkdir()
    program = tmp_path / "answers.py"
    program.write_text(ANSWERS)
    server = make_bellhop(config(f"id: filer, substrate: file, dir: {drop}", "id: nobody, substrate: none, sessions: [s1, s2]",
                                 "id: ann@work, substrate: none",
                                 f"id: runner, substrate: exec, command: [/usr/bin/python3, {program}]"))
    told = node_json("connector.mjs", server.url, make_key(server, "acme"))
    assert {t["category"] for t in told} == CATEGORIES
    failed = [f"{t['category']}: {t['name']}\n{t['error']}" for t in told if "error" in t]
    assert not failed, "\n\n".join(failed)


def test_the_package_lists_every_file_it_needs():
    folder = ROOT / "adapters/skillscript"
    imported = {line.split('"./')[1].split('"')[0] for f in folder.glob("*.js") for line in f.read_text().splitlines()
                if 'from "./' in line}
    assert imported <= {p.name for p in folder.glob("*.js")}

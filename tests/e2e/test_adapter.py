"""adapters/skillscript: its classes from Node against the real server."""
import pathlib
import subprocess

from conftest import ROOT
from v1 import make_key, node_json

CATEGORIES = {"method-existence", "return-type", "error-contract", "static-capabilities", "feature-behavior"}


def test_the_stores_keep_their_contract_in_all_five_categories(bellhop):
    told = node_json("adapter.mjs", bellhop.url, make_key(bellhop, identity="plain"),
                     make_key(bellhop, "acme", "--attest", identity="runtime"))
    assert {t["category"] for t in told} == CATEGORIES
    failed = [f"{t['category']}: {t['name']}\n{t['error']}" for t in told if "error" in t]
    assert not failed, "\n\n".join(failed)


def test_the_runtimes_own_error_classes_are_used_where_there_is_one(bellhop, tmp_path):
    runtime = tmp_path / "node_modules" / "skillscript-runtime"
    runtime.mkdir(parents=True)
    (runtime / "package.json").write_text('{"name": "skillscript-runtime", "type": "module", "exports": '
                                          '{"./errors": {"import": "./e.js"}, "./package.json": "./package.json"}}')
    (runtime / "e.js").write_text("""
export class ConnectorError extends Error {}
export class SkillNotFoundError extends ConnectorError {
  constructor(name, who) { super(name); this.seen = [name, who]; }
}""")
    (tmp_path / "main.mjs").write_text(f"""
import {{ BellhopSkillStore }} from "{(ROOT / 'adapters/skillscript/index.js').as_uri()}";
import {{ SkillNotFoundError }} from "skillscript-runtime/errors";
const s = new BellhopSkillStore({{ url: "{bellhop.url}", key: "{make_key(bellhop)}" }});
await s.load("x").catch((e) => console.log(e instanceof SkillNotFoundError, e.seen.join()));
""")
    for where in (tmp_path, pathlib.Path("/")):  # from its own folder, and by its path alone
        done = subprocess.run(["node", tmp_path / "main.mjs"], cwd=where, text=True, capture_output=True, timeout=60)
        assert done.stdout == "true x,BellhopSkillStore\n", done.stderr

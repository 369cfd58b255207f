"""What the pages tell people to write, asked of the real program: configurations, metrics, command lines."""
import os
import re
import shlex
import subprocess

import pytest

from conftest import PROGRAM, ROOT

PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
COMMON = {"-c", "--config", "--state-dir", "--json", "--help", "--"}


def blocks(page):
    """The code blocks of a page, fenced or indented, as (line, language, text)."""
    text = page.read_text()
    for m in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.S | re.M):
        yield text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2)
    for m in re.finditer(r"(?:^    .*\n)+", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M):
        yield 0, "", re.sub(r"^    ", "", m.group(), flags=re.M)


def named(page, line):
    return f"{page.relative_to(ROOT)}:{line}"


CONFIGS = [pytest.param(text, id=named(page, line)) for page in PAGES for line, language, text in blocks(page)
           if language == "yaml" or text.startswith("platforms:")]

# A placeholder ("AC…") stands for something long enough and of the right kind.
FILLED = {"AC…": "AC" + "0" * 32, "ww…": "ww0000000000000000"}
SECRETS = {"bot_token": "xoxb-1", "app_token": "xapp-1", "encoding_aes_key": "A" * 43, "public_key": "a" * 64, "as_token": "another"}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_configuration_on_a_page_is_accepted(text, tmp_path):
    for short, whole in FILLED.items():
        text = text.replace(short, whole)
    for key, value in SECRETS.items():
        text = re.sub(rf"{key}: \"?\$\{{\w+\}}\"?", f"{key}: {value}", text)
    names = re.findall(r"\$\{(\w+)\}", text)
    (tmp_path / "bellhop.yaml").write_text(text)
    nobody = {"https_proxy": "http://127.0.0.1:9"}  # doctor asks platforms, and not the real ones from here
    done = subprocess.run([PROGRAM, "doctor", "-c", tmp_path / "bellhop.yaml"], text=True, capture_output=True, timeout=60,
                          env={**os.environ, **nobody, "BELLHOP_STATE_DIR": str(tmp_path / "state"), **dict.fromkeys(names, "secret")})
    assert "ok    config" in done.stdout, done.stdout + done.stderr


def test_every_metric_on_a_page_is_served(bellhop):
    served = bellhop.get("/metrics").text
    wanted = {m for page in PAGES for m in re.findall(r"`(bellhop_[a-z_]+)", page.read_text()) if "visitor" not in m}
    wanted -= {m for m in wanted if m.startswith("bellhop_node_")}  # only on PostgreSQL: test_postgres.py looks for them
    assert wanted
    assert {m for m in wanted if f"\n# TYPE {m} " not in served} == set()


def test_every_setting_that_is_a_limit_is_on_the_page_about_security():
    """By its name, or those of limits. as a row of the table there (test_limits.py)."""
    settings = re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "docs" / "configuration.md").read_text(), re.M)
    bounds = [re.sub(r"^(limits\..+)_per_\w+$", r"\1", s) for s in settings if s.startswith("limits.") or
              re.search(r"max_|per_|\.total$|\.ttl$|window|reserve|strangers|retention|cooldown|allow_private", s)]
    page = (ROOT / "docs" / "security.md").read_text()
    missing = [s for s in bounds if f"`{s}`" not in page and f"| `{s.removeprefix('limits.')}` |" not in page]
    assert len(bounds) > 40 and missing == []


def test_every_fixed_limit_on_the_page_is_the_one_in_the_source():
    rows = re.findall(r"^\| `([a-z_/]+\.[ch])` `([A-Z_]+)` \| (\d+) ", (ROOT / "docs" / "security.md").read_text(), re.M)
    assert len(rows) > 15
    for file, name, value in rows:
        found = re.search(rf"#define {name} (.+?)(?: */\*.*)?$", (ROOT / "src" / file).read_text(), re.M)
        assert found, (file, name)
        number = re.sub(r"\((?:size_t|u?int\w*_t)\)|(?<=\d)u", "", found[1])
        assert eval(number, {"__builtins__": {}}) == int(value), (name, found[1])


def command_lines():
    """(where, words) of every `bellhop COMMAND ...` that a block shows."""
    for page in PAGES:
        for line, language, text in blocks(page):
            for row in text.replace("\\\n", " ").splitlines():
                m = re.match(r"(?:\$ +)?(?:[A-Z_]+=\S+ +)*(?:\S*/)?bellhop ([a-z][a-z-]*)(.*)", row.strip())
                if m and language in ("", "sh"):
                    yield named(page, line), m.group(1), m.group(2)


@pytest.mark.parametrize("where, command, rest", [pytest.param(*c, id=f"{c[0]} {c[1]}") for c in command_lines()])
def test_a_command_line_on_a_page_uses_options_that_its_help_has(where, command, rest):
    told = subprocess.run([PROGRAM, "help", command], text=True, capture_output=True, timeout=30)
    assert told.returncode == 0, f"{where}: there is no command {command}"
    try:
        words = shlex.split(rest, comments=True)
    except ValueError:
        words = rest.split()
    words = words[:words.index("--")] if "--" in words else words
    unknown = {w.split("=")[0] for w in words if w.startswith("--")} - COMMON
    assert {o for o in unknown if not re.search(rf"(?<![\w-]){o}(?![\w-])", told.stdout)} == set(), where


# Commands that ask a running server and do nothing by themselves: without one they fail, and misused ones say so first.
ASKS = {"gateway", "token", "route", "link", "scope", "principal", "policy", "dm-default", "why", "mailbox", "outbox", "status", "skill", "data",
        "dispatch", "node"}
FORM = re.compile(r"[|<>…\[{]|\.\.\.|\$\(")  # the line shows a form, or belongs to a script


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_the_commands_of_a_page_are_taken_as_they_stand(page, tmp_path):
    ran = 0
    for where, command, rest in command_lines():
        rest = re.sub(r" +(?:2?>|&).*", "", rest)
        if not where.startswith(f"{page.relative_to(ROOT)}:") or command not in ASKS or FORM.search(rest):
            continue
        words = shlex.split(rest, comments=True)
        done = subprocess.run([PROGRAM, command, *words, "--state-dir", tmp_path / "none"], text=True, capture_output=True, timeout=30,
                              cwd=tmp_path, stdin=subprocess.DEVNULL)
        assert done.returncode != 2, f"{where}: bellhop {command} {rest}: {done.stderr}"
        ran += 1
    if page.name in ("tenancy.md", "discord.md", "README.md") and page.parent.name in ("docs", "platforms", ROOT.name):
        assert ran > 0, "this page has commands"

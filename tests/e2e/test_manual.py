"""Man pages and shell completions, made of the table of commands: the real shells ask, the real formatter reads."""
import re
import shutil
import subprocess

import pytest

from conftest import PROGRAM, ROOT

COMMANDS = subprocess.run([PROGRAM, "help", "man"], text=True, capture_output=True, check=True).stdout.split()


def bellhop(*words):
    done = subprocess.run([PROGRAM, *words], text=True, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What packaging/manual.sh writes."""
    folder = tmp_path_factory.mktemp("manual")
    subprocess.run(["sh", ROOT / "packaging" / "manual.sh", PROGRAM, folder], check=True, timeout=120)
    return folder


def test_every_command_has_a_man_page_that_formats_cleanly(made):
    pages = sorted((made / "man").iterdir())
    assert [p.name for p in pages] == sorted(f"bellhop-{c}.1" for c in COMMANDS) and len(COMMANDS) > 25
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", *pages], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    for page in pages:
        text = page.read_text().replace("\\-", "-")
        assert all(f".SH {head}\n" in text for head in ("NAME", "SYNOPSIS", "EXIT STATUS")), page
        assert not re.search(r"^(?![.\\]).{110,}", text, re.M), f"{page}: a line is too long for a terminal"


def bash(made, *words):
    """What bash offers behind these words; the last one is being typed."""
    line = " ".join(words)
    script = f"""source {made}/completions/bellhop
COMP_WORDS=({' '.join(repr(w) for w in words)}) COMP_CWORD={len(words) - 1} COMP_LINE={line!r}
_bellhop; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=30)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.split()


def test_bash_completes_commands_verbs_options_and_values(made):
    assert bash(made, "bellhop", "") == COMMANDS
    assert bash(made, "bellhop", "dis") == ["dispatch"]
    assert bash(made, "bellhop", "gateway", "re") == ["revoke"]
    assert set(bash(made, "bellhop", "gateway", "add", "--wake")) == {"--wake-url"}
    assert bash(made, "bellhop", "setup", "--who", "") == ["linked", "everybody"]
    assert "--tenant" in bash(made, "bellhop", "skill", "list", "--t")  # an option of /v1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_the_help_is_completed(made, command):
    offered = set(bash(made, "bellhop", command, "x", "-"))
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", bellhop("help", command).split("\n\n")[0]))
    assert told <= offered | {"--"}, told - offered


def test_fish_and_zsh_take_their_files(made):
    """As far as the shells are installed; the words are those that bash offers."""
    fish, zsh = (made / "completions" / "bellhop.fish").read_text(), (made / "completions" / "_bellhop").read_text()
    for c in COMMANDS:
        assert f"-a {c} -d '" in fish and re.search(rf"^        '{c}:", zsh, re.M)
    for shell, file in (("fish", "bellhop.fish"), ("zsh", "_bellhop")):
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", made / "completions" / file], text=True, capture_output=True, timeout=30)
            assert done.returncode == 0, done.stderr


def test_a_topic_that_is_not_there_is_told():
    for words in (("help", "completion", "tcsh"), ("help", "completion"), ("help", "man", "fax")):
        done = subprocess.run([PROGRAM, *words], text=True, capture_output=True, timeout=30)
        assert done.returncode == 2 and done.stdout == "", words

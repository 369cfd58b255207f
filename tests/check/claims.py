"""claims.py - what the pages name exists: metrics, settings, commands, options, files."""
import os
import re

from names import CALL, FILE, SNAKE, Files, foreign_words, is_variable, settings_of, words_of
from tree import Problem

PAGES = (".md", ".1")
METRIC = re.compile(r"\bbellhop_[a-z_]+")
VARIABLE = re.compile(r"\bBELLHOP_[A-Z_]+")
COMMAND = re.compile(r"^(?:\$ +|[a-z/]*/)?bellhop ([a-z][a-z-]*)", re.M)
KEY = re.compile(r"`([a-z_]+\.[a-z_]+)[:`]")
DEV = re.compile(r"\./dev ([a-z]+)")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
PICTURE = re.compile(r"[─│┌┐└┘├┤┬┴┼]|--+>|<--+|\^--|--'|----")
FOLDER = re.compile(r"`((?:src|tests|docs|sdk|web|examples|packaging)/[\w./-]*)`")


def page_text(tree, page):
    text = tree.text(page)
    if not page.endswith(".1"):
        return text
    text = re.sub(r"\\f[BIR]", "", text)
    return text.replace("\\-", "-").replace("\\_", "_")


def spans(page, text):
    """The parts of a page that quote (backquoted, indented or fenced; the bold lines of a man page), without pictures."""
    if page.endswith(".1"):
        return "\n".join(line[3:] for line in text.splitlines() if line.startswith(".B "))
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.S | re.M)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    indented = re.findall(r"^    +(.*)$", rest, re.M)
    lines = "\n".join(fenced + indented + re.findall(r"`([^`\n]+)`", rest)).splitlines()
    return "\n".join(re.sub(r"\$\{[^}]*\}|(?:^| )# .*", "", line) for line in lines if not PICTURE.search(line))


def is_place(tree, name, page):
    """Whether @name is a file, a folder or a file without its ending, seen from the root or from @page."""
    for at in (name.rstrip("/"), os.path.normpath(os.path.join(os.path.dirname(page), name))):
        if at in tree.set or any(f.startswith((at + "/", at + ".")) for f in tree.files):
            return True
    return False


class Truth:
    """What there is, read from the code."""

    def __init__(self, tree, data):
        c = "\n".join(tree.code(f) for f in tree.match("src", "sdk", "tests", ext=("c", "h", "cc")))
        rest = "\n".join(tree.text(f) for f in tree.files
                         if not f.endswith((".c", ".h", ".cc", *PAGES)) and not f.startswith("tests/check/"))
        self.code = c + rest
        self.words = words_of(tree)
        self.options = set(OPTION.findall(self.code))
        self.files = Files(tree)
        self.foreign = foreign_words(data)
        cli = "\n".join(tree.code(f) for f in tree.match("src/cli"))
        self.commands = set(re.findall(r'\bcmd_\w+ = \{\s*(?:\.name = )?"([\w-]+)"', cli))
        dev = tree.text("dev") if "dev" in tree.set else ""
        self.dev = set(re.findall(r"^cmd_(\w+)\(", dev, re.M)) | {"help"}
        self.keys = settings_of(tree)
        self.sections = {k.split(".")[0] for k in self.keys if "." in k}

    def metric(self, name):
        short = name[len("bellhop_"):]
        return name in self.words or f'"{short}"' in self.code or \
            (short.endswith("_total") and f'"{short[:-len("_total")]}"' in self.code)

    def variable(self, name):
        return name in self.code or is_variable(self.keys, name)



def claims(tree, data):
    """A page names only metrics, settings, commands, options, functions and files that exist."""
    truth = Truth(tree, data)
    for page in (f for f in tree.files if f.endswith(PAGES)):
        text = page_text(tree, page)
        quoted = spans(page, text)
        wrong = {(m, "metric") for m in METRIC.findall(text) if not truth.metric(m)}
        wrong |= {(m, "setting") for m in VARIABLE.findall(text) if not truth.variable(m)}
        wrong |= {(m, "setting") for m in KEY.findall(text) if m.split(".")[0] in truth.sections and m not in truth.keys
                  and not FILE.fullmatch(m)}
        wrong |= {("bellhop " + m, "command") for m in COMMAND.findall(quoted) if m not in truth.commands}
        wrong |= {("./dev " + m, "command") for m in DEV.findall(text) if m not in truth.dev}
        wrong |= {("--" + m, "option") for m in OPTION.findall(quoted) if m not in truth.options}
        wrong |= {(m, "name") for m in SNAKE.findall(quoted) + CALL.findall(quoted) if m not in truth.words and not m.startswith("bellhop_")
                  and not m.startswith("BELLHOP_")}
        wrong |= {(m, "file") for m in FILE.findall(text) if not truth.files.has(m, page)}
        wrong |= {(m, "folder") for m in FOLDER.findall(text) if not is_place(tree, m, page)}
        for name, kind in sorted(wrong):
            if name not in truth.foreign:
                yield Problem(f"{page} {name}", f"{page} names the {kind} {name}, which does not exist: say what is there "
                                                "now (a name of somebody else's goes into tests/check/foreign.txt)")


PRIVATE = {"--ask"}  # how the sleeper asks its questions: not for people


def manual(tree, data):
    """Every command is in the man page, every option in a help text and on a page."""
    if "docs/bellhop.1" not in tree.set:
        return
    truth = Truth(tree, data)
    man = page_text(tree, "docs/bellhop.1")
    pages = man + "\n".join(tree.text(f) for f in tree.match("docs", ext=("md",)))
    for command in sorted(truth.commands):
        if not re.search(rf"(?<![\w-]){re.escape(command)}(?![\w-])", man):
            yield Problem(command, f"docs/bellhop.1 does not have the command {command}: add a line under COMMANDS")
    for path in tree.match("src/cli"):
        code = tree.code(path)
        for option in sorted(set(re.findall(r'\{"(--[\w-]+)"', code)) - PRIVATE):
            word = re.compile(rf"(?<![\w-]){re.escape(option)}(?![\w-])")
            if path != "src/cli/cli.c" and not word.search(re.sub(r'"--[\w-]+"', "", code)):
                yield Problem(f"{path} {option}", f"{path} takes {option}, but its help text does not say so")
            if not word.search(pages):
                yield Problem(f"{path} {option}", f"{path} takes {option}, but neither docs/bellhop.1 nor a page of docs/ has it")

"""names.py - a comment names only what exists."""
import os
import re

from tree import Problem, data_lines

CALL = re.compile(r"(?<![\w./-])([A-Za-z_]\w*)\(\)")
FILE = re.compile(r"(?<![\w/])((?:[\w.-]+/)*[\w-]+\.(?:c|h|cc|py|md|js|yaml))\b(?!\.\w)")
SNAKE = re.compile(r"(?<![\w/.-])([a-z][a-z0-9]*(?:_[a-z0-9]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b(?!\.(?:c|h|cc|py|js|md)\b)")
TICKED = re.compile(r"`([A-Za-z_]\w*)(?:\(\))?`")
PARAMETER = re.compile(r"(?<![\w@.`<])@([a-z]\w*)")
SYSTEM = re.compile(r"#\s*include\s*<([^>]+)>")
QUOTED_FILE = re.compile(r'["/]([\w-]+\.\w+)"')
CODE = ("c", "h", "cc", "py", "js", "cjs", "html", "json", "build", "yaml", "service", "sh")


def words_of(tree):
    """Every word of the tree's code; the comments of C are left out, since they are what is judged."""
    if "words" in tree.kept:
        return tree.kept["words"]
    words = tree.kept["words"] = set()
    for path in tree.files:
        if path.endswith((".c", ".h", ".cc")):
            words.update(re.findall(r"\w+", tree.code(path)))
        elif path.endswith(tuple("." + e for e in CODE)) and not path.startswith("tests/check/"):
            words.update(re.findall(r"\w+", tree.text(path)))
    return words


def foreign_words(data):
    """Names of other people's things, which our comments may mention: foreign.txt."""
    return {w for _, words in data_lines(os.path.join(data, "foreign.txt")) for w in words}


def settings_of(tree):
    """The settings, from the tables of docs/configuration.md, which a unit test holds against the program's own."""
    page = tree.text("docs/configuration.md") if "docs/configuration.md" in tree.set else ""
    return set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.M))


def is_variable(settings, name):
    """Whether @name is BELLHOP_ and one of the settings, with dots as underscores."""
    return name.startswith("BELLHOP_") and name[len("BELLHOP_"):].lower() in {s.replace(".", "_") for s in settings}


def foreign(tree, data):
    """foreign.txt lists nothing twice, nothing that is ours by now, and nothing that nobody mentions."""
    said = "\n".join([t for f in tree.match("src", "sdk", "tests", "examples", ext=("c", "h", "cc")) for _, t in tree.comments(f)]
                     + [tree.text(f).replace("\\-", "-") for f in tree.files if f.endswith((".md", ".1"))])
    seen = set()
    for number, words in data_lines(os.path.join(data, "foreign.txt")):
        for word in words:
            if word in seen or word not in said or word in words_of(tree):
                yield Problem(word, f"foreign.txt:{number}: {word} is not needed (any more): delete it")
            seen.add(word)


class Files:
    """Which file names mean something: files of the tree, headers of the system, files the code opens."""

    def __init__(self, tree):
        self.tree = tree
        self.ends = {e for f in tree.files for e in endings(f)}
        for path in tree.match("src", "sdk", "tests", ext=("c", "h", "cc")):
            self.ends.update(e for h in SYSTEM.findall(tree.code(path)) for e in endings(h))
            self.ends.update(QUOTED_FILE.findall(tree.code(path)))

    def has(self, name, near):
        """Whether @name, as somebody writes it in the file @near, is one of them."""
        return name in self.ends or os.path.normpath(name) in self.ends or \
            os.path.normpath(os.path.join(os.path.dirname(near), name)) in self.tree.set


def endings(path):
    """a/b/c.h: itself, b/c.h, c.h."""
    parts = path.split("/")
    return ["/".join(parts[i:]) for i in range(len(parts))]


def names(tree, data):
    """Functions, fields, constants and files named in comments exist; `@name` is in the same file's code."""
    words, foreign, files = words_of(tree), foreign_words(data), Files(tree)
    settings = settings_of(tree)
    short = {w.split("_", 1)[1] for w in words if w.isupper() and "_" in w}  # pictures say WS_CLOSING for CONN_WS_CLOSING
    for path in tree.match("src", "sdk", "tests", "examples", ext=("c", "h", "cc")):
        own = set(re.findall(r"\w+", tree.code(path)))
        for line, comment in tree.comments(path):
            found = {m for rule in (CALL, SNAKE, TICKED) for m in rule.findall(comment) if m not in words and m not in short}
            found |= {"@" + m for m in PARAMETER.findall(comment) if m not in own}
            found |= {m for m in FILE.findall(comment) if not files.has(m, path)}
            for name in sorted(n for n in found - foreign if not is_variable(settings, n)):
                yield Problem(f"{path} {name}", f"{path}:{line}: the comment names {name}, which does not exist: say what "
                                                "is there now (a name of somebody else's goes into tests/check/foreign.txt)")

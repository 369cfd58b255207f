"""shape.py - one tag one struct, files and functions of a size one can read."""
import re

from tree import Problem

TAG = re.compile(r"^(struct|enum|union)\s+(\w+)\s*\{", re.M)
LONG_FILE, LONG_FUNCTION, WIDE = 900, 120, 100
REASON = "Long because"
WORD = re.compile(r"[A-Za-z_]\w+")
RIDDLES = {"elsewhere", "hands", "desk", "aside", "company", "tend", "ground"}
WIRING, WIRING_LINES = "src/host", 900


def tags(tree, data):
    """A tag is defined once in all of the tree, in a header or in a .c file, so that a name means one thing."""
    homes = {}
    for path in tree.match("src", "sdk"):
        for m in TAG.finditer(tree.code(path)):
            homes.setdefault(f"{m.group(1)} {m.group(2)}", []).append(path)
    for tag, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield Problem(tag, f"{tag} is defined in {' and in '.join(paths)}: name one of them after what it is")


def plain(tree, data):
    """No name in the code has a part that stands in for the word of the field."""
    for path in tree.match("src", "sdk"):
        code = re.sub(r'"(?:\\.|[^"\\\n])*"', "", tree.code(path))
        for name in sorted({w for w in WORD.findall(code) if RIDDLES & set(w.lower().split("_"))}):
            yield Problem(f"{path} {name}", f"{path} has the name {name}: use the word that the field has for it")


def sizes(tree, data):
    """A file of over 900 lines says in its first comment why it is one thing."""
    for path in tree.match("src", ext=("c", "h", "cc")):
        n = len(tree.lines(path))
        first = tree.comments(path)[:1]
        if n > LONG_FILE and not (first and first[0][0] == 1 and REASON in first[0][1]):
            yield Problem(path, f"{path} has {n} lines: split it, or say in its first comment \"{REASON} ...\"")


def wiring(tree, data):
    """host/ only connects the platforms and the relay: it has under 900 lines in all."""
    n = sum(len(tree.lines(path)) for path in tree.match(WIRING))
    if n >= WIRING_LINES:
        yield Problem(WIRING, f"{WIRING} has {n} lines: under {WIRING_LINES} in all, so move what is not wiring out of it")


def functions(tree, data):
    """No function is over 120 lines."""
    for path in tree.match("src", "sdk"):
        start = None
        for number, line in enumerate(tree.code(path).splitlines(), 1):
            if line == "{":
                start = number
            elif line == "}" and start:
                if number - start - 1 > LONG_FUNCTION:
                    name = function_name(tree.lines(path), start)
                    yield Problem(f"{path} {name}", f"{path}:{start}: {name}() has {number - start - 1} lines: "
                                                    f"at most {LONG_FUNCTION}, so give its parts names")
                start = None


def columns(tree, data):
    """No line of C is over 100 columns; clang-format leaves comments to us."""
    for path in tree.match("src", "sdk", "tests"):
        wide = [n for n, line in enumerate(tree.lines(path), 1) if len(line) > WIDE]
        if wide:
            yield Problem(path, f"{path}:{wide[0]} is over {WIDE} columns: run ./dev fmt, and break by hand what it leaves")


def pictures(tree, data):
    """A picture or a table in a comment is not cut: after its last line stands a blank one."""
    for path in tree.match("src", "sdk", "tests", "examples", ext=("c", "h", "cc")):
        for first, comment in tree.comments(path):
            before = 0
            for number, line in enumerate(comment.splitlines()[1:], first + 1):
                m = re.match(r"\s*\*( *)[^\s/]", line)
                if m and len(m.group(1)) == 1 and before >= 3:
                    yield Problem(path, f"{path}:{number}: this line was cut off the picture or table above: draw it "
                                        "again, or leave a blank line below it")
                before = len(m.group(1)) if m else 0


def function_name(lines, brace):
    """The name before the last parenthesis that opens in column 0's declaration above line @brace."""
    head = []
    for line in reversed(lines[:brace - 1]):
        head.insert(0, line)
        if line and not line[0].isspace():
            break
    m = re.search(r"(\w+)\(", " ".join(head))
    return m.group(1) if m else "?"

#!/usr/bin/env python3
"""wrap.py FILE... - break the prose of comments that is wider than 100 columns; part of ./dev fmt.

clang-format would reflow pictures and tables as well, so it leaves comments alone. Here only a paragraph is touched,
and only one with a line that is too wide: lines that start one space behind the star (or behind the opening of the
comment), up to a blank line, an indented one, or the end. Everything else is drawn by hand.
"""
import re
import sys

WIDE = 100
PROSE = re.compile(r"^(?P<indent>[ \t]*)(?P<star>/\*| \*) (?P<text>[^\s/].*)$")


def is_prose(line):
    m = PROSE.match(line)
    return m is not None and "*/" not in m.group("text")[:-2]


def paragraph(lines, at):
    """(first, last) of the paragraph around the line @at."""
    first = last = at
    while PROSE.match(lines[first]).group("star") != "/*" and first > 0 and is_prose(lines[first - 1]) \
            and not lines[first - 1].endswith("*/"):
        first -= 1
    while not lines[last].endswith("*/") and last + 1 < len(lines) and is_prose(lines[last + 1]) \
            and PROSE.match(lines[last + 1]).group("star") == " *":
        last += 1
    return first, last


def broken(text, width):
    """@text in lines of at most @width; two spaces behind a sentence stay."""
    lines, line = [], ""
    for word in re.findall(r"\S+ *", text):
        if line and len((line + word).rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += word
    return [*lines, line.rstrip()]


def wrap(lines):
    """The lines again, with wide paragraphs broken."""
    lines, at = list(lines), 0
    while at < len(lines):
        if len(lines[at]) <= WIDE or not is_prose(lines[at]):
            at += 1
            continue
        first, last = paragraph(lines, at)
        head = PROSE.match(lines[first])
        text = " ".join(PROSE.match(line).group("text") for line in lines[first:last + 1])
        ends = text.endswith("*/")
        text = text[:-2].rstrip() if ends else text
        room = WIDE - len(head.group("indent")) - 3
        new = broken(text, room - (3 if ends else 0))
        if ends and len(new) > 1 and len(new[-1].split()) < 3:  # a word alone looks lost
            new = broken(text, room - 8)
        new = [head.group("indent") + (head.group("star") if i == 0 else " *") + " " + t for i, t in enumerate(new)]
        if ends:
            new[-1] += " */"
        lines[first:last + 1] = new
        at = first + len(new)
    return lines


def main(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        new = "\n".join(wrap(text.split("\n")))
        if new != text:
            with open(path, "w", encoding="utf-8") as f:
                f.write(new)


if __name__ == "__main__":
    main(sys.argv[1:])

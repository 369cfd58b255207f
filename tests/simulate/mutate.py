#!/usr/bin/python3
"""One line of a C file made wrong, to see whether the simulator notices.

    mutate.py SOURCE RESULT FROM TO

FROM must be there exactly once: a mutant of code that has changed is a mistake.
"""
import sys


def main(source, result, old, new):
    with open(source, encoding="utf-8") as f:
        text = f.read()
    if text.count(old) != 1:
        sys.exit(f"{source}: {text.count(old)} times, not once: {old!r}")
    with open(result, "w", encoding="utf-8") as f:
        f.write(f'#line 1 "{source}"\n' + text.replace(old, new))


if __name__ == "__main__":
    main(*sys.argv[1:])

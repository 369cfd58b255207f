#!/usr/bin/env python3
"""check.py [RULE...] - what ./dev check runs: the rules of the house.

Prints one line per rule and, for what is broken, a sentence that says what to do. known.txt lists what is broken
today and will be mended: it can only shrink, because an entry that is no longer needed is a failure too.
"""
import argparse
import os
import sys
import time
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import callgraph  # noqa: E402
import claims  # noqa: E402
import layers  # noqa: E402
import names  # noqa: E402
import pages  # noqa: E402
import shape  # noqa: E402
import tools  # noqa: E402
from tree import Problem, Tree, data_lines  # noqa: E402

RULES = [layers.layers, layers.doors, layers.face, shape.tags, shape.plain, shape.sizes, shape.wiring, shape.functions, shape.columns,
         shape.pictures, callgraph.recursion, names.names, names.foreign, claims.claims, claims.manual, pages.pages,
         pages.readmes, tools.formatting, tools.cppcheck]


def known_problems(data):
    """{(rule, key): line} of known.txt; each line is `DATE RULE KEY...`."""
    known = {}
    for number, words in data_lines(os.path.join(data, "known.txt")):
        known[(words[1], " ".join(words[2:]))] = number
    return known


def judge(rule, tree, data, known):
    """The problems of @rule that known.txt does not excuse, and how many it does."""
    problems, excused = [], set()
    for p in rule(tree, data):
        if (rule.__name__, p.key) in known:
            excused.add(p.key)
        else:
            problems.append(p)
    for (name, key), line in sorted(known.items()):
        if name == rule.__name__ and key not in excused:
            problems.append(Problem(key, f"known.txt:{line}: \"{name} {key}\" is mended: delete the line"))
    return problems, len(excused)


def main(argv):
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--root", default=os.path.dirname(os.path.dirname(HERE)))
    args.add_argument("--data", default=HERE)
    args.add_argument("--junit", help="write the result of each rule here, as a test")
    args.add_argument("rules", nargs="*", metavar="RULE", help="only these: " + " ".join(r.__name__ for r in RULES))
    args = args.parse_args(argv)
    tree, known, bad = Tree(args.root), known_problems(args.data), 0
    chosen = [r for r in RULES if not args.rules or r.__name__ in args.rules]
    for name, key in known:
        if name not in {r.__name__ for r in RULES}:
            print(f"known.txt:{known[(name, key)]}: there is no rule \"{name}\"")
            bad += 1
    suite = xml.Element("testsuite", name="check", tests=str(len(chosen)), skipped="0", errors="0")
    for rule in chosen:
        start = time.monotonic()
        problems, excused = judge(rule, tree, args.data, known)
        state = f"{len(problems)} broken" if problems else "ok"
        state += f", {excused} known" if excused else ""
        print(f"{rule.__name__:11} {state:22} {rule.__doc__.splitlines()[0]} ({time.monotonic() - start:.1f} s)")
        for p in problems:
            print(f"    {p.sentence}")
        bad += len(problems)
        case = xml.SubElement(suite, "testcase", classname="check", name=rule.__name__)
        if problems:
            xml.SubElement(case, "failure", message=problems[0].sentence)
    suite.set("failures", str(len(suite.findall(".//failure"))))
    if args.junit:
        xml.ElementTree(suite).write(args.junit)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

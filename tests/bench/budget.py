#!/usr/bin/env python3
"""What one event costs, and what one thing holds: counted, so that a busy machine does not matter.

    tests/bench/budget.py [--build build/release] [--write] [--junit FILE]

Runs tests/bench/budget: its loads under callgrind, its memory as it is. Prints each figure beside the one in budget.json and
fails when one is more than 5 % above it. --write keeps today's figures instead: after something was made cheaper, or when a
promise is worth what it costs, with the reason in the commit.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

LOADS = ("live", "accept", "drain", "send")
GROWTH = 1.05
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "budget.json")


def instructions(program, load):
    """Per event, of what runs inside measured()."""
    with tempfile.TemporaryDirectory() as where:
        out = os.path.join(where, "out")
        done = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=measured", f"--callgrind-out-file={out}",
                               program, load], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"budget {load} failed:\n{done.stderr}")
        with open(out, encoding="utf-8") as f:
            total = re.search(r"^(?:summary|totals): (\d+)", f.read(), re.M)
    count = int(total.group(1)) if total else 0
    if count == 0:
        sys.exit(f"budget {load}: callgrind counted nothing; is measured() still a function of its own?")
    return round(count / json.loads(done.stdout)["events"])


def measure(program):
    figures = {f"instructions_per_{load}": instructions(program, load) for load in LOADS}
    memory = subprocess.run([program, "memory"], check=True, stdout=subprocess.PIPE, text=True)
    figures.update(json.loads(memory.stdout))
    return figures


def problem(name, is_now, kept):
    if name not in kept:
        return "is not in budget.json"
    if is_now > kept[name] * GROWTH:
        return f"was {kept[name]:,}, is {is_now:,}: {is_now / kept[name] - 1:+.1%}"
    return None


def report(path, problems):
    suite = xml.Element("testsuite", name="budget", tests=str(len(problems)),
                        failures=str(sum(1 for wrong in problems.values() if wrong)))
    for name, wrong in problems.items():
        case = xml.SubElement(suite, "testcase", classname="budget", name=name)
        if wrong:
            xml.SubElement(case, "failure", message=wrong)
    xml.ElementTree(suite).write(path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build/release")
    p.add_argument("--write", action="store_true")
    p.add_argument("--junit")
    o = p.parse_args()
    figures = measure(os.path.join(o.build, "tests", "bench", "budget"))
    kept = {}
    if os.path.exists(KEPT):
        with open(KEPT, encoding="utf-8") as f:
            kept = json.load(f)
    for name, value in figures.items():
        print(f"{name:24} {value:10,}   budget {kept.get(name, 0):10,}")
    if o.write:
        with open(KEPT, "w", encoding="utf-8") as f:
            json.dump(figures, f, indent=2)
            f.write("\n")
        return 0
    problems = {name: problem(name, value, kept) for name, value in figures.items()}
    if o.junit:
        report(o.junit, problems)
    for name, wrong in problems.items():
        if wrong:
            print(f"{name} {wrong}", file=sys.stderr)
    return any(problems.values())


if __name__ == "__main__":
    sys.exit(main())

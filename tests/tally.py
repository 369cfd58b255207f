#!/usr/bin/env python3
"""tally.py REPORT... - the last lines of ./dev test: what failed, by name, then `N passed, N failed`, counting every single test.

A report is a log of meson (.json) or JUnit's XML. A cmocka program counts as the tests it reports, any other meson test
as one. A report that is missing or unreadable counts as one failure, so that a step that never ran cannot look like success.
"""
import json
import re
import sys
import xml.etree.ElementTree as xml

GOOD = {"OK", "EXPECTEDFAIL", "SKIP"}


def of_meson(path):
    passed, failed = 0, []
    with open(path, encoding="utf-8") as f:
        for line in f:
            test = json.loads(line)
            said = (test.get("stdout") or "") + (test.get("stderr") or "")
            good = re.search(r"^\[  PASSED  \] (\d+) test\(s\)", said, re.M)
            bad = re.search(r"^\[  FAILED  \] (\d+) test\(s\)", said, re.M)
            if good:
                passed += int(good.group(1))
            elif test["result"] in GOOD and not bad:
                passed += 1
            if bad:
                names = dict.fromkeys(re.findall(r"^\[  FAILED  \] (\S+)$", said, re.M))  # each is told twice
                failed += [f"{test['name']}: {n}" for n in names] + [test["name"]] * (int(bad.group(1)) - len(names))
            elif test["result"] not in GOOD:
                failed.append(test["name"])  # also where all its tests passed, then something else went wrong: a leak, say
    return passed, failed


def of_pytest(path):
    passed, failed = 0, []
    for suite in xml.parse(path).iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        names = [f"{c.get('classname')}: {c.get('name')}" for c in suite.iter("testcase")
                 if c.find("failure") is not None or c.find("error") is not None]
        failed += names + ["a test without a name"] * (bad - len(names))
        passed += int(suite.get("tests", 0)) - bad - int(suite.get("skipped", 0))
    return passed, failed


def main(*reports):
    passed, failed = 0, []
    for path in reports:
        try:
            good, bad = of_meson(path) if path.endswith(".json") else of_pytest(path)
        except (OSError, ValueError, xml.ParseError) as e:
            good, bad = 0, [f"{path}: {e}"]
        passed, failed = passed + good, failed + bad
    for name in failed:
        print("failed:", name)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

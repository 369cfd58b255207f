#!/usr/bin/env python3
"""tally.py REPORT... - the last line of ./dev test: `N passed, N failed`, counting every single test.

A report is a log of meson (.json) or JUnit's XML. A cmocka program counts as the tests it reports, any other meson test
as one. A report that is missing or unreadable counts as one failure, so that a step that never ran cannot look like success.
"""
import json
import re
import sys
import xml.etree.ElementTree as xml

GOOD = {"OK", "EXPECTEDFAIL", "SKIP"}


def of_meson(path):
    passed = failed = 0
    with open(path, encoding="utf-8") as f:
        for line in f:
            test = json.loads(line)
            said = (test.get("stdout") or "") + (test.get("stderr") or "")
            good = re.search(r"^\[  PASSED  \] (\d+) test\(s\)", said, re.M)
            bad = re.search(r"^\[  FAILED  \] (\d+) test\(s\)", said, re.M)
            if good or bad:
                passed += int(good.group(1)) if good else 0
                failed += int(bad.group(1)) if bad else 0
                if test["result"] not in GOOD and not bad:
                    failed += 1  # all tests passed, then something else went wrong: a leak, say
            elif test["result"] in GOOD:
                passed += 1
            else:
                failed += 1
    return passed, failed


def of_pytest(path):
    passed = failed = 0
    for suite in xml.parse(path).iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        failed += bad
        passed += int(suite.get("tests", 0)) - bad - int(suite.get("skipped", 0))
    return passed, failed


def main(*reports):
    passed = failed = 0
    for path in reports:
        try:
            good, bad = of_meson(path) if path.endswith(".json") else of_pytest(path)
        except (OSError, ValueError, xml.ParseError) as e:
            print(f"{path}: {e}", file=sys.stderr)
            good, bad = 0, 1
        passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

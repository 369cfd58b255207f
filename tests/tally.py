#!/usr/bin/env python3
"""tally.py TESTLOG.json REPORT.xml... - the last line of ./dev test: `N passed, N failed`, counting every single test.
tally.py --failed REPORT.xml           - what failed there, as pytest takes it, if it may be tried again (status 0)
tally.py --again REPORT.xml AGAIN.xml  - strikes from REPORT.xml what passed in AGAIN.xml, and names it

End-to-end tests run four at a time on a machine that others use too. What failed is tried once more, alone: that tells
a slow machine from a fault. Not what promises something across a crash or between machines (HARD): a run of those is a throw of
dice, and one bad throw is a fault. Nor more than FEW: then it is not the machine.

A cmocka program counts as the tests it reports, any other meson test as one. A log that is missing or
unreadable counts as one failure, so that a step that never ran cannot look like success.
"""
import json
import re
import sys
import xml.etree.ElementTree as xml

GOOD = {"OK", "EXPECTEDFAIL", "SKIP"}
HARD = re.compile(r"crash|cluster|promises|isolation")
FEW = 4


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


def bad_cases(tree):
    return [case for case in tree.iter("testcase") if case.find("failure") is not None or case.find("error") is not None]


def name(case):
    return case.get("classname").replace(".", "/") + ".py::" + case.get("name")


def failed(report):
    names = sorted({name(case) for case in bad_cases(xml.parse(report))})
    if not 0 < len(names) <= FEW or any(HARD.search(n) for n in names):
        return 1
    print("\n".join(names))
    return 0


def again(report, second):
    tree, retried = xml.parse(report), xml.parse(second)
    bad = {name(case) for case in bad_cases(retried)}
    good = {name(case) for case in retried.iter("testcase")} - bad
    for suite in tree.iter("testsuite"):
        for case in bad_cases(suite):
            if name(case) not in good:
                continue
            for kind, count in (("failure", "failures"), ("error", "errors")):
                for found in case.findall(kind):
                    case.remove(found)
                    suite.set(count, str(int(suite.get(count)) - 1))
            print(f"passed only when it ran again, alone: {name(case)}", file=sys.stderr)
    tree.write(report)
    return 1 if bad_cases(tree) else 0


def main(meson_log, *reports):
    passed = failed = 0
    for reader, path in ((of_meson, meson_log), *((of_pytest, r) for r in reports)):
        try:
            good, bad = reader(path)
        except (OSError, ValueError, xml.ParseError) as e:
            print(f"{path}: {e}", file=sys.stderr)
            good, bad = 0, 1
        passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    modes = {"--failed": failed, "--again": again}
    mode = modes.get(sys.argv[1])
    sys.exit(mode(*sys.argv[2:]) if mode else main(*sys.argv[1:]))

"""tools.py - what clang-format and cppcheck say."""
import os
import re
import subprocess

from tree import Problem

CPPCHECK = ["cppcheck", "--quiet", "--std=c17", "--language=c", "--enable=warning,portability", "--inline-suppr",
            "--suppress=missingIncludeSystem", "--suppress=unknownMacro", "--suppress=internalAstError",
            "-Isrc", "-Isdk/include", "-D_GNU_SOURCE", '-DBELLHOP_VERSION="0"',
            "--template={file}:{line}: {message} [{id}]"]
WARNING = re.compile(r"^([^:\s][^:]*):(\d+):\d+: (?:warning|error): .*clang-format", re.M)
FINDING = re.compile(r"^(\S+):(\d+): (.*) \[(\w+)\]$")


def pieces(items, n):
    return [p for p in (items[i::n] for i in range(n)) if p]


def formatting(tree, data):
    """`./dev fmt` would change nothing."""
    files = tree.match("src", "sdk", "tests")
    runs = [subprocess.Popen(["clang-format", "--dry-run", *part], cwd=tree.root, stderr=subprocess.PIPE, text=True)
            for part in pieces(files, os.cpu_count() or 1)]
    seen = {}
    for run in runs:
        for m in WARNING.finditer(run.communicate()[1]):
            seen.setdefault(m.group(1), m.group(2))
        if run.returncode:
            yield Problem("clang-format", f"clang-format ended with {run.returncode}: is it installed?")
    for path, line in sorted(seen.items()):
        yield Problem(path, f"{path}:{line} is not formatted: run ./dev fmt")


def cppcheck(tree, data):
    """cppcheck finds nothing; what it found last time is kept in build/."""
    cache = os.path.join(tree.root, "build", "cppcheck")
    os.makedirs(cache, exist_ok=True)
    run = subprocess.run([*CPPCHECK, "-j", str(os.cpu_count() or 1), f"--cppcheck-build-dir={cache}",
                          *tree.match("src", "sdk", ext=("c",))], cwd=tree.root, capture_output=True, text=True)
    for line in run.stderr.splitlines():
        m = FINDING.match(line)
        if m:
            path, number, what, kind = m.groups()
            yield Problem(f"{path} {kind}", f"{path}:{number}: {what}: mend it, or explain it with a "
                                            f"`cppcheck-suppress {kind}` comment above the line")
        elif line.strip():
            yield Problem("cppcheck", f"cppcheck: {line}")
    if run.returncode:
        yield Problem("cppcheck", f"cppcheck ended with {run.returncode}: {run.stdout.strip() or 'see above'}")

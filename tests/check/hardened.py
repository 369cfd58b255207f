#!/usr/bin/env python3
"""hardened.py PROGRAM - what the compiler and the linker must have put into a release, seen in the finished program.

Prints one line per thing; ends with 1 when one is missing. ./dev build release runs it.
"""
import re
import subprocess
import sys


def readelf(program, *options):
    return subprocess.run(["readelf", "-W", *options, program], capture_output=True, text=True, check=True).stdout


def looks(program):
    """[(what, whether it is there, whether every build has it)] of one ELF program."""
    head, segments, dynamic = readelf(program, "-h"), readelf(program, "-l"), readelf(program, "-d")
    symbols = readelf(program, "--dyn-syms")
    stack = re.search(r"GNU_STACK.*", segments)
    writable_code = re.findall(r"LOAD .* (?:RWE|R?WE) ", segments)
    things = [
        ("position independent", "DYN (" in head and "INTERP" in segments, False),  # not with sanitizers: ./dev
        ("relocations read-only", "GNU_RELRO" in segments, True),
        ("all symbols bound at start", bool(re.search(r"BIND_NOW|FLAGS.*NOW", dynamic)), True),
        ("stack not executable", stack is not None and "RWE" not in stack.group(), True),
        ("no memory both writable and executable", not writable_code, True),
        ("stack protector", "__stack_chk_fail" in symbols, False),
        ("fortified library calls", bool(re.search(r"__\w+_chk@", symbols.replace("__stack_chk_fail", ""))), False),
    ]
    if "X86-64" in head:  # the C library's own start code may lack it, so the program has no note that says so
        code = subprocess.run(["objdump", "-d", "--disassemble=main", program], capture_output=True, text=True, check=True)
        things.append(("landing pads for indirect calls", "endbr64" in code.stdout, False))
    return things


def main(argv):
    missing = 0
    for what, there, _ in looks(argv[0]):
        print(f"{'ok  ' if there else 'MISSING'} {what}")
        missing += not there
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""layers.py - includes point down: the table is layers.txt."""
import os
import re

from tree import Problem, data_lines

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
ARROW = "->"


class Table:
    def __init__(self, path):
        self.floor, self.beside, self.only, self.inside, self.header = {}, {}, {}, {}, {}
        rows = 0
        for number, (kind, *words) in data_lines(path):
            if kind == "row":
                self.floor.update((w, rows) for w in words)
                rows += 1
                continue
            if kind not in ("beside", "only", "inside", "header") or ARROW not in words:
                raise ValueError(f"{path}:{number}: not a line of this table")
            at = words.index(ARROW)
            for left in words[:at]:
                getattr(self, kind)[left] = words[at + 1:]


def within(path, places):
    return any(path == p or path.startswith(p + "/") for p in places)


def why_not(table, path, target):
    """Why src/@path may not include "@target"; None when it may."""
    here, there = path.split("/")[0], target.split("/")[0]
    for part, friends in table.inside.items():
        if part.endswith("/*"):  # each folder of that folder
            part = "/".join(target.split("/")[:part.count("/") + 1]) if within(target, [part[:-2]]) and target.count("/") > part.count("/") else part
        if within(target, [part]) and not within(path, [part, *friends]):
            return f"{part}/ is an implementation: ask through the interface header beside it"
    if here == there or here not in table.floor:
        return None
    if here in table.only:
        if there in table.only[here]:
            return None
        return f"{here}/ includes nothing but {', '.join(table.only[here])}"
    if there not in table.floor:
        return None
    if table.floor[there] < table.floor[here]:
        return f"{there}/ stands above {here}/: hand it in as a callback, or move what both need down to core/"
    if table.floor[there] == table.floor[here] and there not in table.beside.get(here, []):
        return f"{here}/ and {there}/ are neighbours that do not know each other: let a folder above join them"
    return None


def library_problem(table, path, target):
    """Why the file @path may not include <@target>."""
    names = [h for h in table.header if target == h or (h.endswith("/") and target.startswith(h))]
    if not names:
        return None
    places = table.header[max(names, key=len)]
    return None if within(path, places) else f"only {', '.join(places)} may: use what their headers offer"


def layers(tree, data):
    """Includes point down, an implementation is private, a library has one home."""
    table = Table(os.path.join(data, "layers.txt"))
    for path in tree.match("src", "sdk", ext=("c", "h", "cc")):
        inner = path[len("src/"):] if path.startswith("src/") else path
        top = inner.split("/")[0]
        if path.startswith("src/") and "/" in inner and top not in table.floor:
            yield Problem(f"{top}/", f"{path}: src/{top}/ has no floor: add it to a row of tests/check/layers.txt")
        for m in INCLUDE.finditer(tree.code(path)):
            target = m.group(2)
            why = library_problem(table, inner, target) if m.group(1) == "<" else why_not(table, inner, target)
            if why:
                yield Problem(f"{path} {target}", f'{path} includes {target}, but {why}')


MAY = re.compile(r"^May include: (.*)\.$", re.M)


def doors(tree, data):
    """A folder's README has a line `May include: ...` with the folders that its files include and layers.txt allows."""
    table, used = Table(os.path.join(data, "layers.txt")), {}
    for path in tree.match("src", ext=("c", "h", "cc")):
        inner = path[len("src/"):]
        for m in INCLUDE.finditer(tree.code(path)):
            here, there = inner.split("/")[0], m.group(2).split("/")[0]
            if m.group(1) == '"' and "/" in inner and "/" in m.group(2) and here != there:
                used.setdefault(here, {}).setdefault(there, path)
    for folder in sorted(table.floor):
        page = f"src/{folder}/README.md"
        if page not in tree.set:
            continue
        line = MAY.search(tree.text(page))
        if not line:
            yield Problem(page, f"{page} has no line \"May include: `base`, `core`.\" (or \"May include: nothing of ours.\")")
            continue
        said = re.findall(r"`([\w-]+)/?`", line.group(1))
        for there in said:
            why = why_not(table, folder + "/x.c", there + "/x.h")
            if why:
                yield Problem(f"{page} {there}", f"{page} says that {folder}/ may include {there}/, but {why}")
            elif there not in used.get(folder, {}):
                yield Problem(f"{page} {there}", f"{page} says that {folder}/ may include {there}/, which no file there does: delete it")
        for there, path in sorted(used.get(folder, {}).items()):
            if there not in said:
                yield Problem(f"{page} {there}", f"{path} includes {there}/, and {page} does not say that it may: add it, or do without")


def face(tree, data):
    """The heart asks platforms through its face; it never opens one."""
    for path in tree.match("src/relay"):
        for number, line in enumerate(tree.code(path).splitlines(), 1):
            if "p->ops" in line:
                yield Problem(path, f"{path}:{number}: the heart dereferences p->ops: ask through the face it is handed")

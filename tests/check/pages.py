"""pages.py - every page is listed, every link leads somewhere, every folder's README lists what is there."""
import fnmatch
import os
import re

from tree import Problem

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s#]+)(?:#[^)]*)?\)")
ANY_LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)]*)?\)")
CODE_EXT = (".c", ".h", ".cc", ".py", ".cjs")
SITE = ("docs/", "examples/", "adapters/")
# Folders that mirror another one: their parent's README explains them all at once.
MIRRORS = ("tests/unit/",)


def links_of(tree, page, rule=ANY_LINK):
    """The files of this tree that @page links to, as often as it does."""
    for target in rule.findall(re.sub(r"```.*?```", "", tree.text(page), flags=re.S)):
        if not re.match(r"[a-z]+:", target):
            yield os.path.normpath(os.path.join(os.path.dirname(page), target))


def pages(tree, data):
    """README.md lists every page of docs/ once; no link is dead, and none leaves what the site has."""
    listed = list(links_of(tree, "README.md", LINK)) if "README.md" in tree.set else []
    for page in tree.match("docs", ext=("md",)):
        rows = sum(1 for line in tree.lines("README.md") if line.startswith("|") and f"]({page})" in line.split("|")[1])
        if page not in listed or rows == 0:
            yield Problem(page, f"README.md does not list {page}: add a row to its table of pages")
        elif rows > 1:
            yield Problem(page, f"README.md lists {page} {rows} times: once is enough")
        if "docs/site.yml" in tree.set and not re.search(rf"[ :]{re.escape(page[len('docs/'):])}$", tree.text("docs/site.yml"), re.M):
            yield Problem(page, f"docs/site.yml does not list {page}: add it to the navigation")
    for page in (f for f in tree.files if f.endswith(".md")):
        for target in links_of(tree, page):
            if target not in tree.set and not any(f.startswith(target + "/") for f in tree.files):
                yield Problem(f"{page} {target}", f"{page} links to {target}, which is not there: mend the link")
            elif page.startswith("docs/") and not target.startswith(SITE):
                yield Problem(f"{page} {target}", f"{page} links to {target}, which `./dev docs` leaves out: name it in backquotes instead")


def ticked(text):
    """What a README has between backquotes, cut into words, and what it links to."""
    words = set(ANY_LINK.findall(text))
    for span in re.findall(r"`([^`\n]+)`", text):
        words.update(re.findall(r"[\w./*-]+", span))
    return words


def is_listed(words, folder, path):
    """Whether @words of the README of @folder name the file @path; `a.h` or `a` lists a.c as well."""
    stem = os.path.splitext(path[len(folder) + 1:])[0]
    names = [s + e for s in (stem, os.path.basename(stem)) for e in ("", *CODE_EXT)]
    return any(n in words for n in names) or any(fnmatch.fnmatch(n, w) for w in words if "*" in w for n in names)


def readmes(tree, data):
    """Every folder with code is explained by a README, its own or the one above, which names each file, and architecture.md has it."""
    folders = {}
    for path in tree.match("src", "sdk", "tests", "examples", ext=[e[1:] for e in CODE_EXT]):
        if not path.startswith(MIRRORS):
            folders.setdefault(os.path.dirname(path), []).append(path)
    for folder, files in sorted(folders.items()):
        home = folder
        while home and home + "/README.md" not in tree.set:
            home = os.path.dirname(home)
        if not home or folder.count("/") - home.count("/") > 2:
            yield Problem(f"{folder}/", f"{folder}/ has no README.md: say what lives there, what it may include, "
                                        "which file to read first")
            continue
        words = ticked(tree.text(home + "/README.md"))
        for path in files:
            if not is_listed(words, home, path):
                yield Problem(path, f"{home}/README.md does not list {path}: one line on what it is for")
    if "docs/architecture.md" in tree.set:
        for folder in sorted({"/".join(f.split("/")[:2]) + "/" for f in folders if f.startswith("src/")}):
            if f"    {folder} " not in tree.text("docs/architecture.md"):
                yield Problem(folder, f"docs/architecture.md does not list {folder}: add it to the house")

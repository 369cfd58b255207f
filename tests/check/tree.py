"""tree.py - the files of the tree, read once, and C taken apart into code and comments."""
import os
import re
import subprocess

SKIPPED = {".git", "build", "build-dir", "bench-out", "bellhop-data", "__pycache__", ".pytest_cache", "node_modules"}

# A piece of C: a comment, a text, a character, or one character of anything else.
PIECE = re.compile(r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])+'""", re.S)


class Problem:
    """One thing that is wrong: @key is what known.txt calls it, @sentence says what to do."""

    def __init__(self, key, sentence):
        self.key, self.sentence = key, sentence


class Tree:
    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.files = sorted(self._list())
        self.set = set(self.files)
        self._text, self._split, self.kept = {}, {}, {}

    def _list(self):
        """What git knows and what it has not been told of yet; all files where there is no git."""
        if os.path.exists(os.path.join(self.root, ".git")):
            said = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=self.root,
                                  capture_output=True, text=True, check=True).stdout
            return [f for f in said.split("\0") if f and os.path.isfile(os.path.join(self.root, f))]
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders if f not in SKIPPED]
            found += [os.path.relpath(os.path.join(folder, n), self.root) for n in names]
        return found

    def match(self, *tops, ext=("c", "h")):
        """The files below the folders @tops that end in one of @ext."""
        ends = tuple("." + e for e in ext)
        return [f for f in self.files if f.endswith(ends) and any(f.startswith(t + "/") for t in tops)]

    def text(self, path):
        if path not in self._text:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as f:
                self._text[path] = f.read()
        return self._text[path]

    def lines(self, path):
        return self.text(path).splitlines()

    def split(self, path):
        """(code, comments): @code is the text with comments blanked, @comments a list of (line, text)."""
        if path not in self._split:
            text, comments, code, at = self.text(path), [], [], 0
            for m in PIECE.finditer(text):
                if m.group("comment") is None:
                    continue
                comments.append((text.count("\n", 0, m.start()) + 1, m.group()))
                code += [text[at:m.start()], re.sub(r"[^\n]", " ", m.group())]
                at = m.end()
            self._split[path] = ("".join(code) + text[at:], comments)
        return self._split[path]

    def code(self, path):
        return self.split(path)[0]

    def comments(self, path):
        return self.split(path)[1]


def data_lines(path):
    """The lines of a data file without comments and blank lines, as (number, words)."""
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            words = line.split("#", 1)[0].split()
            if words:
                yield number, words

#!/usr/bin/env python3
"""Turn files into one C source with a table of struct asset.

    embed.py SYMBOL HEADER OUT FILE...

Each file becomes an array of bytes with its content type and a strong ETag made of its content. @VERSION@ in a file becomes a hash
of all files; the last entry, which has no name, has that version as its ETag.
"""
import hashlib
import pathlib
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


def rows(data):
    """The bytes as lines of decimal numbers, short enough for any compiler."""
    for at in range(0, len(data), 24):
        yield "    " + ",".join(str(b) for b in data[at : at + 24]) + ","


def main(symbol, header, out, *names):
    files = [pathlib.Path(n) for n in names]
    version = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12].encode()
    contents = [f.read_bytes().replace(b"@VERSION@", version) for f in files]
    lines = ["/* Made by web/embed.py. */", f'#include "{header}"', ""]
    for i, data in enumerate(contents):
        lines += [f"static const unsigned char file_{i}[] = {{", *rows(data), "};"]
    lines += ["", f"const struct asset {symbol}[] = {{"]
    for i, f in enumerate(files):
        etag = hashlib.sha256(contents[i]).hexdigest()[:20]
        lines.append(f'    {{"{f.name}", "{TYPES[f.suffix]}", "\\"{etag}\\"",')
        lines.append(f"     {{(const char *)file_{i}, sizeof file_{i}}}}},")
    lines += [f'    {{.etag = "{version.decode()}"}},', "};", ""]
    pathlib.Path(out).write_text("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])

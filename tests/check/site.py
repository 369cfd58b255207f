"""site.py FOLDER PAGES - a finished site: no dead link, no dead anchor, nothing fetched from elsewhere, every page can be found.

Not a rule of the tree: ./dev docs runs it on what it has built. PAGES is the folder of the Markdown that the site was made of.
"""
import json
import pathlib
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.code = set(), [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.ids |= {a[k] for k in ("id", "name") if a.get(k)}
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if tag in LOADS and a.get(LOADS[tag]) and a.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(a[LOADS[tag]])
        self.code += tag == "pre"


def problems(site, source):
    pages = {p: Page(p.read_text()) for p in site.rglob("*.html")}
    for path, page in pages.items():
        where = path.relative_to(site)
        for url in page.loads:
            if urlsplit(url).netloc:
                yield f"{where} loads {url} from elsewhere"
        for url in page.links + page.loads:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.path.startswith("/") and where.name == "404.html":
                continue  # the page for a server that has lost something: its links are those of the server
            if not target.exists():
                yield f"{where} links to {url}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids | {"__skip", "__search", "__drawer"}:
                yield f"{where} links to {url}, whose anchor is not there"
    index = {d["location"].split("#")[0] for d in json.loads((site / "search" / "search_index.json").read_text())["docs"]}
    for md in source.rglob("*.md"):
        made = str(md.relative_to(source).with_suffix(".html"))
        if made.replace("README.html", "index.html") not in index:
            yield f"the search does not know {made}"
    if not any(page.code for page in pages.values()) or "clipboard" not in "".join(p.read_text() for p in site.rglob("bundle*.js")):
        yield "code has no button that copies it"


def main(site, source):
    found = sorted(set(problems(pathlib.Path(site).resolve(), pathlib.Path(source).resolve())))
    print("\n".join(found) or f"{len(list(pathlib.Path(site).rglob('*.html')))} pages: every link leads somewhere, nothing comes from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

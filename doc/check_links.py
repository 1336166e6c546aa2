"""Check built pages without a browser.

    python doc/check_links.py FOLDER

Every link within the pages must lead to an existing file and an existing place in it.
Pages may not load scripts, styles, fonts or pictures from other sites. Links to other
sites are not checked.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes by which a page loads something, rather than offers to go there.
LOADING = {("link", "href"), ("script", "src"), ("img", "src"), ("img", "srcset")}
LOADING |= {("source", "srcset"), ("iframe", "src"), ("object", "data")}

# Relations of <link> that load nothing.
NOT_LOADED = {"author", "canonical", "copyright", "index", "next", "prev", "search"}

CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """Names of places in a page, and what it links to and loads."""

    def __init__(self, path):
        super().__init__()
        self.places, self.links, self.loaded = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.places.update(values[key] for key in ("id", "name") if values.get(key))
        if tag == "link" and NOT_LOADED & set((values.get("rel") or "").split()):
            return
        for key, value in attributes:
            if not value:
                continue
            if (tag, key) in LOADING:
                self.loaded += [part.split()[0] for part in value.split(",")]
            elif key == "href":
                self.links.append(value)
            elif key == "style":
                self.loaded += css_urls(value)


def css_urls(text):
    """Return the addresses that a style sheet loads, without embedded data."""
    urls = [first or second for first, second in CSS_URL.findall(text)]
    return [url for url in urls if not url.startswith(("data:", "#"))]


def find_faults(folder):
    """Yield sentences that each name a fault."""
    folder = Path(folder).resolve()
    # The .html files that the theme ships next to its scripts are not pages.
    paths = set(folder.rglob("*.html")) - set((folder / "_static").rglob("*"))
    pages = {path: Page(path) for path in sorted(paths)}
    if not pages:
        yield f"{folder} holds no pages"
    for path, page in pages.items():
        name = path.relative_to(folder)
        for url in page.loaded:
            if urlsplit(url).scheme != "data":
                yield from _find_fault(f"{name} loads {url}", url, path, pages)
        for url in page.links:
            if not urlsplit(url).scheme and not url.startswith("//"):
                yield from _find_fault(f"{name} links to {url}", url, path, pages)
    for path in sorted(folder.rglob("*.css")):
        name = path.relative_to(folder)
        for url in css_urls(path.read_text(encoding="utf-8")):
            yield from _find_fault(f"{name} loads {url}", url, path, pages)


def _find_fault(what, url, base, pages):
    """Return a list with one sentence about a fault, or an empty list."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return [f"{what}, which is outside"]
    target = (base.parent / unquote(parts.path)).resolve() if parts.path else base
    if not target.is_file():
        return [f"{what}, which is not there"]
    place = unquote(parts.fragment)
    if place and target in pages and place not in pages[target].places:
        return [f"{what}, a place that is not there"]
    return []


if __name__ == "__main__":
    faults = list(find_faults(sys.argv[1]))
    print(*faults, sep="\n")
    sys.exit(f"{len(faults)} faults" if faults else 0)

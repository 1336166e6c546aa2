"""Open built pages in Chromium, narrow and wide, light and dark, without a network.

    python doc/check_pages.py FOLDER [PAGE ...] [--screenshots FOLDER]

FOLDER holds the built documentation. A further PAGE, such as a report, is a path. These
and some pages of the documentation are opened in all views, the others in one view. A
fault is an error on the console, a request to the network, overlapping text, text that
is cut off, a formula that is not set, a page that scrolls sideways, or a serious
finding of axe-core, which checks accessibility. On a wide page, code, tables and
formulas must not scroll sideways either. Without Chromium, the check fails.

Chromium is controlled through the pipe of its DevTools protocol, which needs no
package. axe-core comes from the package axe-core-python.
"""

import argparse
import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (390, 1440)
SCHEMES = ("light", "dark")
NARROW = 1000  # pixels; on narrower pages, code, tables and formulas may scroll
PAGES = (
    "index.html",
    "quick_start.html",
    "choose.html",
    "user_guide/index.html",
    "user_guide/learning.html",
    "user_guide/search_text.html",
    "learners/oasis.html",
    "reproductions/index.html",
    "reproductions/kuang.html",
    "api/index.html",
    "generated/sklearn_simlearn.OASIS.html",
    "notebooks/search_text.html",
    "auto_examples/index.html",
    "auto_examples/first_steps/plot_first_search.html",
)
# Opened in one view.
OTHER_PAGES = ("[ciqw]*.html", "user_guide/*.html", "learners/*.html", "api/*.html")
OTHER_PAGES += ("notebooks/*.html", "reproductions/*.html", "whats_new/*.html")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    # No host name is resolved, so that nothing is loaded from outside.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

PATIENCE = 60  # seconds for an answer of the browser

# Serious findings of axe-core, as one line each. The contrast of colours that are still
# changing cannot be measured. Lists of references of docutils and thumbnails of
# Sphinx-Gallery are not checked.
AXE = """
(async () => {
  const still = document.createElement("style");
  still.textContent = "* { transition: none !important; }";
  document.head.append(still);
  const result = await axe.run(
    {exclude: [[".citation-list"], [".sphx-glr-thumbcontainer"]]},
    {resultTypes: ["violations"]});
  return result.violations
    .filter(rule => ["serious", "critical"].includes(rule.impact))
    .map(rule => `${rule.id}: ${rule.help} (${rule.nodes[0].target})`);
})()
"""

# Visible lines of text, with those of folded parts: lines that overlap, and lines that
# are cut off although nothing scrolls; and the width of the page. Of formulas, whose
# text is for screen readers, only the box counts.
LOOK = """
(async () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  await document.fonts.ready;
  if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
  const seen = [], cut = [];
  // Code, tables and formulas may scroll, the page as a whole may not.
  const mayScroll = (box, style) => ["auto", "scroll"].includes(style.overflowX)
    && !box.querySelector("h1") && !box.closest("h1");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest("mjx-container, script, style, svg"))
      continue;
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true}))
      continue;
    let [left, top, right, bottom] = [-Infinity, -Infinity, Infinity, Infinity];
    let scrolls = false;
    for (let box = element; box && box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (style.overflowX !== "visible" || style.overflowY !== "visible") {
        const r = box.getBoundingClientRect();
        left = Math.max(left, r.left); right = Math.min(right, r.right);
        top = Math.max(top, r.top); bottom = Math.min(bottom, r.bottom);
        // An ellipsis marks text that continues.
        scrolls ||= mayScroll(box, style) || style.textOverflow === "ellipsis";
      }
      if (style.position === "fixed") break;
    }
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      const line = {
        left: Math.max(left, r.left), right: Math.min(right, r.right),
        // Letters do not fill their line: neighbouring lines may overlap a little.
        top: Math.max(top, r.top + 0.2 * r.height),
        bottom: Math.min(bottom, r.bottom - 0.2 * r.height),
        text: node.data.trim().slice(0, 40), node: node,
      };
      if (line.right - line.left <= 2 || line.bottom - line.top <= 2) continue;
      seen.push(line);
      if (!scrolls && r.right > Math.min(right, innerWidth) + 1) cut.push(line.text);
    }
  }
  for (const formula of document.querySelectorAll("mjx-container")) {
    let box = formula;
    while (box && !mayScroll(box, getComputedStyle(box))) box = box.parentElement;
    if (!box && formula.getBoundingClientRect().right > innerWidth + 1)
      cut.push("a formula");
  }
  // Code, tables and formulas of the text that are wider than their place.
  const wide = [...document.querySelectorAll("article *, main *")].filter(box =>
    box.scrollWidth > box.clientWidth + 1 && box.clientWidth > 0
    && ["auto", "scroll"].includes(getComputedStyle(box).overflowX)
    && !box.closest("mjx-assistive-mml, nav, .bd-sidebar-secondary"));
  seen.sort((a, b) => a.top - b.top);
  const overlaps = [];
  seen.forEach((a, i) => {
    for (let j = i + 1; j < seen.length && seen[j].top < a.bottom - 1; j++) {
      const b = seen[j];
      const shared = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      if (a.node !== b.node && shared > 2)
        overlaps.push(`"${a.text}" and "${b.text}"`);
    }
  });
  const root = document.documentElement;
  return {
    overlaps: overlaps.slice(0, 5),
    cut: cut.slice(0, 5),
    wide: wide.slice(0, 5).map(box => `${box.scrollWidth - box.clientWidth} pixels, `
      + box.textContent.trim().slice(0, 40)),
    width: Math.max(root.scrollWidth, document.body.scrollWidth),
    height: root.scrollHeight,
    unfinished: document.querySelectorAll("span.math, div.math").length > 0
      && !document.querySelector("mjx-container"),
  };
})()
"""


class Browser:
    """Client of Chromium's DevTools protocol, by pipe."""

    def __init__(self, write, read):
        self._write, self._read = write, read
        self._numbers = itertools.count(1)
        self._pending = b""
        self.session = None
        self.events = []

    def call(self, method, **params):
        """Call a method and wait for its result; keep the events until then."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while (answer := self._receive(deadline)).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait_for(self, event):
        """Wait until an event has happened."""
        deadline = time.monotonic() + PATIENCE
        while not any(known.get("method") == event for known in self.events):
            self.events.append(self._receive(deadline))

    def _receive(self, deadline):
        while b"\0" not in self._pending:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer from the browser in {PATIENCE} s")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._pending += part
        message, self._pending = self._pending.split(b"\0", 1)
        return json.loads(message)


@contextmanager
def open_browser(program):
    """Start the browser with one empty page, and end it."""
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()

    def connect():  # the browser reads from descriptor 3 and writes to 4
        first, second = os.dup(to_browser), os.dup(from_browser)
        os.dup2(first, 3)
        os.dup2(second, 4)

    # Processes of the browser that are still ending may write to the profile.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            browser = Browser(write, read)
            target = browser.call("Target.createTarget", url="about:blank")
            browser.session = browser.call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
            yield browser
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)
            os.close(write)
            os.close(read)


def check_page(browser, path, width, scheme, picture=None):
    """Open a page and return its faults."""
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    browser.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    browser.events.clear()
    browser.call("Page.navigate", url=path.resolve().as_uri())
    browser.wait_for("Page.loadEventFired")
    seen = _evaluate(browser, LOOK)
    _evaluate(browser, read_axe())
    faults = [fault for event in browser.events for fault in _read_event(event)]
    faults += [f"text over text: {pair}" for pair in seen["overlaps"]]
    faults += [f"text is cut off: {text}" for text in seen["cut"]]
    if width > NARROW:
        faults += [f"it is too wide by {text}" for text in seen["wide"]]
    if seen["width"] > width:
        faults.append(f"it scrolls sideways: {seen['width']} pixels wide")
    if seen["unfinished"]:
        faults.append("formulas are not set")
    faults += [f"accessibility: {finding}" for finding in _evaluate(browser, AXE)]
    if picture is not None:
        _photograph(browser, width, seen["height"], picture)
    return faults


def _evaluate(browser, expression):
    """Return the value of an expression of JavaScript."""
    result = browser.call(
        "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
    )
    if "exceptionDetails" in result:
        raise RuntimeError(f"{expression[:80]}: {result['exceptionDetails']}")
    return result["result"].get("value")


@cache
def read_axe():
    """Return the source of axe-core; its own value is not returned to Python."""
    import axe_core_python

    source = Path(axe_core_python.__file__).with_name("axe.min.js")
    return source.read_text(encoding="utf-8") + ";0"


def _read_event(event):
    """Yield the faults that an event reports."""
    params = event.get("params", {})
    match event.get("method"):
        case "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            yield f"script: {details.get('exception', {}).get('description', details)}"
        case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
            yield f"console: {[part.get('value') for part in params['args']]}"
        case "Log.entryAdded" if params["entry"]["level"] == "error":
            yield f"console: {params['entry']['text']} {params['entry'].get('url', '')}"
        case "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:", "about:")):
                yield f"network: {url}"


def _photograph(browser, width, height, picture):
    height = min(height, 4000)
    result = browser.call(
        "Page.captureScreenshot",
        captureBeyondViewport=True,
        clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
    )
    picture.write_bytes(base64.b64decode(result["data"]))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the built documentation")
    parser.add_argument("pages", type=Path, nargs="*", help="further pages")
    parser.add_argument("--screenshots", type=Path, help="a folder for pictures")
    options = parser.parse_args(arguments)
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"No pages were opened: none of {', '.join(BROWSERS)} is installed.")
    pages = [options.folder / page for page in PAGES] + options.pages
    if options.screenshots is not None:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    missing = [str(page) for page in pages if not page.is_file()]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}")
    others = {path for name in OTHER_PAGES for path in options.folder.glob(name)}
    views = [
        *itertools.product(pages, WIDTHS, SCHEMES),
        *((page, max(WIDTHS), "light") for page in sorted(others.difference(pages))),
    ]
    n_faults = 0
    with open_browser(program) as browser:
        for page, width, scheme in views:
            picture = None
            if options.screenshots is not None:
                name = f"{page.parent.name}_{page.stem}_{width}_{scheme}.png"
                picture = options.screenshots / name
            for fault in check_page(browser, page, width, scheme, picture):
                n_faults += 1
                print(f"{page} at {width} pixels, {scheme}: {fault}")
    n_pages = len({page for page, _, _ in views})
    print(f"{n_pages} pages opened in {len(views)} views: {n_faults} faults")
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Page in Chromium that tests use by clicks and keys."""

import base64
import importlib.util
import json
import os
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "doc" / "check_pages.py"
if not SCRIPT.is_file():
    pytest.skip("needs the folder doc", allow_module_level=True)
spec = importlib.util.spec_from_file_location("check_pages", SCRIPT)
check_pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_pages)

# Folder for screenshots, to inspect them after a run.
PICTURES = os.environ.get("SIMLEARN_SCREENSHOTS")

KEYS = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "/": 191}


class Page:
    """Page in a browser, which tests use by clicks and keys."""

    def __init__(self, browser, url):
        self.browser = browser
        browser.call("DOM.enable")
        self.resize(1000)
        browser.events.clear()
        browser.call("Page.navigate", url=url)
        browser.wait_for("Page.loadEventFired")
        self.wait("document.body.dataset.ready === 'true'")

    def resize(self, width, scheme="light"):
        self.width = width
        self.browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.call("Emulation.setEmulatedMedia", features=features)

    def ask(self, expression):
        """Return the value of an expression in JavaScript."""
        result = self.browser.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + 60
        while not self.ask(expression):
            assert time.monotonic() < deadline, (
                expression,
                self.ask("document.body.innerText"),
            )
            time.sleep(0.05)

    def click(self, selector):
        """Press the mouse in the middle of an element that is in view."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{element}.scrollIntoView({{block: 'center'}})")
        x, y = self.ask(
            f"(() => {{ const r = {element}.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                clickCount=1,
            )

    def type(self, text):
        self.browser.call("Input.insertText", text=text)

    def press(self, key):
        params = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"Enter": "\r", "/": "/"}.get(key)
        self.browser.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            **params,
            **({"text": text} if text else {}),
        )
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def choose(self, selector, value):
        """Set the value of the first field that matches, as a user does."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{field}.focus()")
        self.ask(f"{field}.value = {json.dumps(value)}")
        self.ask(f"{field}.dispatchEvent(new Event('change'))")

    def upload(self, selector, *paths):
        document = self.browser.call("DOM.getDocument")["root"]["nodeId"]
        node = self.browser.call(
            "DOM.querySelector", nodeId=document, selector=selector
        )
        self.browser.call(
            "DOM.setFileInputFiles", files=list(map(str, paths)), nodeId=node["nodeId"]
        )

    def drop(self, *paths):
        data = {"items": [], "files": list(map(str, paths)), "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.browser.call(
                "Input.dispatchDragEvent", type=kind, x=300, y=300, data=data
            )

    def ids(self):
        return self.ask(
            "[...document.querySelectorAll('#results .head b')].map(e => e.innerText)"
        )

    def wait_for_results(self, condition="true"):
        self.wait(
            "document.body.ariaBusy === 'false' && "
            f"document.querySelectorAll('#results > li').length > 0 && {condition}"
        )

    def search(self, text):
        self.type(text)
        self.press("Enter")
        self.wait_for_results()

    def faults(self):
        """Return errors on the console, text that is cut off, barriers to access."""
        seen = self.ask(check_pages.LOOK)
        faults = [
            fault
            for event in self.browser.events
            for fault in check_pages._read_event(event)
            if not fault.startswith("network: http://127.0.0.1:")
        ]
        faults += seen["overlaps"] + seen["cut"]
        n_events = len(self.browser.events)
        self.ask(check_pages.read_axe())
        faults += self.ask(check_pages.AXE)
        # The policy of the page forbids the style that this check adds.
        del self.browser.events[n_events:]
        if seen["width"] > self.width:
            faults.append(f"the page is {seen['width']} pixels wide")
        return faults

    def photograph(self, name):
        if PICTURES is None:
            return
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        picture = self.browser.call("Page.captureScreenshot")
        Path(PICTURES, f"{name}.png").write_bytes(base64.b64decode(picture["data"]))

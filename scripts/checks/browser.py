# A headless browser for scripts: Chromium by WebDriver, which Debian's chromium-driver speaks. Standard library only.
#
#   with Browser(1600, 900) as browser:
#       browser.open(path)
#       browser.run("return document.title")
#       browser.move_to("svg rect.span")       hover
#       browser.keys("svg", "+", Browser.RIGHT)
#       browser.console()                      what it complained about since the last call
#
# SPDX-License-Identifier: Apache-2.0
import base64
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # of the W3C's WebDriver


class BrowserError(Exception):
    pass


def missing():
    """Why there is no browser here, or an empty string."""
    names = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(names)} here (scripts/setup.sh --browser)" if names else ""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Browser:
    RIGHT, LEFT, UP, DOWN, ESCAPE, TAB = "\ue014", "\ue012", "\ue013", "\ue015", "\ue00c", "\ue004"

    def __init__(self, width, height):
        self.home = tempfile.TemporaryDirectory(prefix="dovetail-browser-")
        self.port = free_port()
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={self.port}", "--log-level=OFF"], env={**os.environ, "HOME": self.home.name},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.session = self._begin(width, height)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if getattr(self, "session", None):
            try:
                self._call("DELETE", "")
            except (BrowserError, OSError):
                pass
        self.driver.terminate()
        self.driver.wait(10)
        self.home.cleanup()

    def _request(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise BrowserError(json.load(error)["value"]["message"].splitlines()[0]) from error

    def _call(self, method, path, body=None):
        return self._request(method, f"/session/{self.session}{path}", body)

    def _begin(self, width, height):
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                     f"--window-size={width},{height}", f"--user-data-dir={self.home.name}/profile"]
        wanted = {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": arguments}}}}
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._request("POST", "/session", wanted)["sessionId"]
            except OSError:
                if time.monotonic() > deadline or self.driver.poll() is not None:
                    raise BrowserError("chromedriver does not answer") from None
                time.sleep(0.1)

    def devtools(self, command, **parameters):
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show_as(self, width, height, scheme="light", media=""):
        """Size of the page, the reader's colour scheme, and "print" for what a printer gets."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.devtools("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def has_touch(self, fingers=2):
        """From the next page on there is a touch screen."""
        self.devtools("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=fingers)

    def open(self, path):
        self._call("POST", "/url", {"url": pathlib.Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, seconds=10):
        """Until the script returns something true."""
        deadline = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > deadline:
                raise BrowserError(f"still not true after {seconds} s: {script}")
            time.sleep(0.05)

    def find(self, selector):
        return self._call("POST", "/element", {"using": "css selector", "value": selector})

    def click(self, selector):
        self._call("POST", f"/element/{self.find(selector)[ELEMENT]}/click", {})

    def keys(self, selector, *keys):
        """Focuses the element, which may be an SVG, and types."""
        self.run("document.querySelector(arguments[0]).focus()", selector)
        actions = [action for key in keys for action in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def middle_of(self, selector):
        """Of an element, which is scrolled into view: where it is in the window."""
        return self.run("const node = document.querySelector(arguments[0]); node.scrollIntoView({block: 'center'}); "
                        "const box = node.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]", selector)

    def drag(self, selector, right):
        """The mouse, pressed, from the middle of an element so many pixels to the right."""
        x, y = self.middle_of(selector)
        for kind, at, buttons in (("mouseMoved", x, 0), ("mousePressed", x, 1), ("mouseMoved", x + right / 2, 1),
                                  ("mouseMoved", x + right, 1), ("mouseReleased", x + right, 0)):
            self.devtools("Input.dispatchMouseEvent", type=kind, x=at, y=y, buttons=buttons, clickCount=1,
                          button="none" if kind == "mouseMoved" and buttons == 0 else "left")

    def touch(self, selector, *places):
        """Fingers on an element: each place is a list with how far right of its middle each finger is."""
        x, y = self.middle_of(selector)
        for index, fingers in enumerate(places):
            self.devtools("Input.dispatchTouchEvent", type="touchMove" if index else "touchStart",
                          touchPoints=[{"x": x + right, "y": y, "id": finger} for finger, right in enumerate(fingers)])
        self.devtools("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def move_to(self, selector):
        """The pointer to the middle of an element, which is scrolled into view."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        origin = self.find(selector)
        self._call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
            {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin}]}]})

    def console(self):
        return [f"{entry['level']}: {entry['message']}" for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path, clip=None):
        """PNG of the whole page, or of a part of it (x, y, width, height)."""
        options = {"captureBeyondViewport": True}
        if clip:
            options["clip"] = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        pathlib.Path(path).write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", **options)["data"]))

    def pdf(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.devtools("Page.printToPDF", printBackground=True)["data"]))

"""A headless Chromium, driven over a pipe by its own protocol; needs no driver and no network."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)

# Becomes the browser, which reads from its file 3 and writes to its file 4.
START = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(file), fcntl.F_DUPFD, 10) for file in sys.argv[1:3])
os.dup2(reads, 3), os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One tab. ``problems`` collects what its console complains of, ``loaded`` what it fetches."""

    def __init__(self):
        self.problems, self.loaded, self._ids = [], [], itertools.count(1)
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (reads, self._write), (self._read, writes) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(reads), str(writes), PROGRAM,
             "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--hide-scrollbars", f"--user-data-dir={self._folder.name}",
             "--remote-debugging-pipe", "about:blank"],
            pass_fds=(reads, writes), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(reads)
        os.close(writes)
        self._rest, self._session = b"", None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)  # the browser ends when nobody speaks to it any more
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._folder.cleanup()

    def call(self, method, **params):
        """Calls a method of the protocol and returns its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def open(self, path, *, width=1200, height=900, dark=False, phone=False):
        """Opens a file, and waits until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        for _ in range(100):
            time.sleep(0.05)
            if self.run("document.readyState === 'complete' && location.protocol === 'file:'"):
                return
        raise TimeoutError(path)

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move(self, x, y):
        """Moves the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        """Presses a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path, *, whole=True):
        """Writes a PNG file."""
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"captureBeyondViewport": True, "clip": size | {"x": 0, "y": 0, "scale": 1}}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **clip)["data"]))

    def pdf(self):
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _receive(self):
        """The next message; events are noted on the way."""
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], 60)[0], "the browser says nothing"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser has ended"
            self._rest += chunk
        first, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(first)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"])
        elif method == "Network.requestWillBeSent":
            self.loaded.append(params["request"]["url"])
        return message

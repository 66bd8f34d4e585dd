"""A real browser without a window: Chromium, driven through chromedriver by the W3C WebDriver protocol, JSON over HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGES = "chromium and chromium-driver"
MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1320,1500"),
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window of a browser."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        """Load a page."""
        _call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns."""
        return _call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        """Click what a CSS selector finds first, as a mouse would; something in front of it makes this fail."""
        found = _call("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        _call("POST", f"{self._session}/element/{found[_ELEMENT]}/click", {})

    def text(self, selector: str) -> str:
        """The text of what a CSS selector finds first; empty where there is nothing."""
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def wait(self, holds: Callable[[], Any], seconds: float = 30.0) -> Any:
        """What a function returns once that is true."""
        until = time.monotonic() + seconds
        while not (value := holds()):
            assert time.monotonic() < until, f"not within {seconds:g} s; the page says: {self.text('body')[:2_000]}"
            time.sleep(0.1)
        return value

    def console(self) -> list[str]:
        """What was logged since this was asked last: errors of scripts, refused loads, warnings."""
        return [entry["message"] for entry in _call("POST", f"{self._session}/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        """Write the window as a PNG."""
        path.write_bytes(base64.b64decode(_call("GET", f"{self._session}/screenshot")))


@contextmanager
def chromium(*more_flags: str) -> Iterator[Browser]:
    """A browser of its own, with an empty profile, for as long as the block runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    root = f"http://127.0.0.1:{port}"
    session = ""
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-browser-", ignore_cleanup_errors=True) as profile:
            _until_ready(root)
            options = {"args": [*FLAGS, f"--user-data-dir={profile}", *more_flags]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = _call("POST", f"{root}/session", {"capabilities": {"alwaysMatch": wanted}})
            session = f"{root}/session/{made['sessionId']}"
            yield Browser(session)
            _call("DELETE", session)
    finally:
        driver.terminate()
        driver.wait()


def _until_ready(root: str) -> None:
    for _ in range(300):
        try:
            if _call("GET", f"{root}/status")["ready"]:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("chromedriver did not start within 30 s")


def _call(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"the browser refused {url}: {error.read().decode()[:1_000]}") from None

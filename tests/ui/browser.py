"""Chromium without a window, driven by the W3C WebDriver protocol: a few requests to chromedriver, and no package for it."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion", "--disable-features=OptimizationHints,MediaRouter",
)  # fmt: skip
TAB, ENTER, SPACE = "\ue004", "\ue007", " "


class Browser:
    """One window; `close` ends it and its processes."""

    def __init__(self, profile: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._process = subprocess.Popen([str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._root = f"http://127.0.0.1:{port}"
        wait_for(self._is_ready, "chromedriver")
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._root += f"/session/{made['sessionId']}"

    def _is_ready(self) -> bool:
        try:
            return self._ask("GET", "/status")["ready"]
        except OSError:
            return False

    def _ask(self, method: str, path: str, value: Any = None) -> Any:
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(f"{self._root}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"]) from None

    def open(self, address: str) -> None:
        self._ask("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *arguments: Any) -> Any:
        """Wait until a script returns something true, and return that."""
        return wait_for(lambda: self.run(script, *arguments), script)

    def press(self, *keys: str) -> None:
        actions = [action for key in keys for action in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def drag(self, selector: str, start: float, end: float) -> None:
        """Drag over an element from one share of its width to another, halfway down."""
        box = self.run(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]",
            selector,
        )
        at = [
            {"type": "pointerMove", "duration": 50, "x": int(box[0] + box[2] * share), "y": int(box[1] + box[3] / 2)}
            for share in (start, end)
        ]
        moves = [at[0], {"type": "pointerDown", "button": 0}, at[1], {"type": "pointerUp", "button": 0}]
        self._ask(
            "POST",
            "/actions",
            {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}]},
        )

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.devtools("Emulation.setEmulatedMedia", {"features": scheme})

    def devtools(self, command: str, values: dict[str, Any]) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": values})

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def requested(self) -> list[str]:
        """Return every address that was asked for since the last call."""
        entries = [json.loads(entry["message"])["message"] for entry in self._ask("POST", "/se/log", {"type": "performance"})]
        return [each["params"]["request"]["url"] for each in entries if each["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Return what pages said on the console at the level of errors since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]

    def close(self) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._process.terminate()
            self._process.wait()


def wait_for(met: Callable[[], Any], what: str, longest_s: float = 90.0) -> Any:
    deadline = time.monotonic() + longest_s
    while True:
        value = met()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)

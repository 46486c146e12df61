"""A real browser for tests, over the DevTools protocol on Chromium's own pipe: no driver, no dependency, no port."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
]
TIMEOUT = 30.0
EVENTS = ("Network.requestWillBeSent", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
"""What a page must not do unseen: ask the network, write to the console, throw, be reported."""
FITS = "document.scrollingElement.scrollWidth <= innerWidth"
"""Whether the page is no wider than its window."""
CONTRASTS = """(() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const light = (c) => { const u = c / 255; return u <= 0.03928 ? u / 12.92 : ((u + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const paper = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest("script, style") || !element.checkVisibility()) continue;
    const [a, b] = [parse(getComputedStyle(element).color), paper(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([element.tagName, element.className, element.textContent.slice(0, 30), ratio]);
  }
  return low;
})()"""
"""The elements with text of their own whose contrast with their background is below 4.5, the least of WCAG's AA."""


class Page:
    """One tab. `events` keeps what it did, by the names of EVENTS."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._buffer, self._id = commands, answers, b"", 0
        self._session: str | None = None
        self.events: dict[str, list[Any]] = {name: [] for name in EVENTS}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools method."""
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda read: read.get("id") == self._id)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _until(self, wanted: Any) -> dict[str, Any]:
        """Read on to the message that is wanted; events on the way are kept."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
                data = os.read(self._answers, 1 << 20) if ready else b""
                assert data, "Chromium ended or did not answer in time"
                self._buffer += data
            line, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(line)
            if message.get("method") in self.events:
                self.events[message["method"]].append(message["params"])
            if wanted(message):
                return message

    def open(self, file: Path, width: int, height: int = 900, script: bool = True) -> None:
        """Show a file in a window of this size, with or without its script."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=file.resolve().as_uri())
        self._until(lambda read: read.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Scroll to an element and press the mouse in its middle, as a person would."""
        box = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{box}.scrollIntoView({{block: 'center', inline: 'center'}})")
        x, y = self.evaluate(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({box}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key of the keyboard, by name and number; `text` is what it types."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, file: Path) -> None:
        """The whole page as a PNG file."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A tab in a Chromium of its own, which ends with the block."""
    assert BINARY, "no chromium"
    ours = {name: os.pipe() for name in ("commands", "answers")}
    # Chromium reads from 3 and writes to 4; the copies stay clear of these two numbers.
    reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (ours["commands"][0], ours["answers"][1]))
    silent = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, silent, 1), (os.POSIX_SPAWN_DUP2, silent, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, reads, 3), (os.POSIX_SPAWN_DUP2, writes, 4)]
    command = [BINARY, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = os.posix_spawn(BINARY, command, os.environ, file_actions=actions, setpgroup=0)
    for fd in (reads, writes, ours["commands"][0], ours["answers"][1], silent):
        os.close(fd)
    try:
        yield Page(ours["commands"][1], ours["answers"][0])
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(ours["commands"][1])
        os.close(ours["answers"][0])


def scheme(tab: Page, name: str) -> None:
    """Make the reader's system ask for `light` or `dark`; empty: for nothing."""
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

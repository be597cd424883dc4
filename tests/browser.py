"""A headless Chromium that a test opens pages in, and looks at what they show.

It is spoken to by its developer tools' protocol over two pipes: no port is open, and no package is
needed. What it writes lies in a folder of its own, which is removed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_LIMIT = 60  # seconds for an answer, on a machine that is busy


def find() -> str | None:
    """The path of a browser; None where none is installed."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page at a time.

    Attributes:
        folder: of all that the browser writes. Its name is short, for a socket lies there.
        errors: what was written to the console as an error, and exceptions that nobody caught.
        requests: the addresses of all that was asked for.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="browser."))
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._numbers = iter(range(1, 1 << 30))
        self._answers: dict[int, dict] = {}
        self._read = b""
        commands, self._to = map(_moved_up, os.pipe())
        self._from, answers = map(_moved_up, os.pipe())
        path = find()
        assert path is not None
        # The protocol has descriptors 3 and 4, whatever the pipes' own numbers are.
        words = [path, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"]
        words += ["--no-first-run", "--disable-dev-shm-usage", f"--user-data-dir={self.folder}"]
        words += ["--disable-background-networking", "--disable-crash-reporter", "about:blank"]
        script = f'exec "$@" 3<&{commands} 4>&{answers}'
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script, "browser", *words],
                pass_fds=(commands, answers),
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HOME": str(self.folder), "TMPDIR": str(self.folder)},
            )
        os.close(commands)
        os.close(answers)
        self._session = None

    def __enter__(self) -> Browser:
        try:
            self._attach()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, method: str, **params: object) -> dict:
        """Sends a command, and returns the result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _LIMIT
        while number not in self._answers:
            self._receive(deadline)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, path: Path) -> None:
        """Opens a file, and waits until its script is done."""
        url = path.resolve().as_uri()
        self.ask("Page.navigate", url=url)
        deadline = time.monotonic() + _LIMIT
        is_done = "document.body && document.body.dataset.ready"
        while not self.js(f"location.href === {json.dumps(url)} && {is_done}"):
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, "the page's script does not come to its end"
            time.sleep(0.02)

    def js(self, expression: str) -> object:
        """Returns the value of an expression in the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """What a person reads of an element."""
        return str(self.js(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Clicks at a place of an element, by default its middle, as a mouse does."""
        place = json.loads(
            str(
                self.js(
                    f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
                    "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); "
                    f"return JSON.stringify([r.x + {x} * r.width, r.y + {y} * r.height]); }})()"
                )
            )
        )
        at = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, **at)

    def resize(self, width: int, height: int) -> None:
        """Gives the window a size."""
        size = {"width": width, "height": height}
        self.ask("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Asks pages for light or dark colours."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, path: Path) -> None:
        """Writes the whole page as a PNG, to be looked at."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """Ends all of its processes, and removes what it has written."""
        self._session = None
        with contextlib.suppress(OSError, AssertionError):
            self.ask("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        deadline = time.monotonic() + 10
        while left := processes_of(self.folder):  # its crash handler has a session of its own
            for pid in left if time.monotonic() > deadline - 5 else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline, f"processes of the browser are left: {left}"
            time.sleep(0.02)
        shutil.rmtree(self.folder)

    def _attach(self) -> None:
        """Makes the page, and asks to be told of what it does."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.resize(1200, 900)

    def _receive(self, deadline: float) -> None:
        """Reads what has come, and keeps what tests ask for."""
        ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"the browser does not answer within {_LIMIT} s"
        got = os.read(self._from, 1 << 20)
        assert got, f"the browser has ended: {(self.folder / 'log').read_text()[-2000:]}"
        *messages, self._read = (self._read + got).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
                continue
            params, method = message["params"], message["method"]
            if method == "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            elif method == "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                self.errors.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                self.errors.append(str(params["args"]))


def _moved_up(descriptor: int) -> int:
    """The same file at a number that is neither 3 nor 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


def processes_of(folder: Path) -> list[int]:
    """The processes that were told of a profile's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in path.read_bytes():
                found.append(int(path.parent.name))
    return found

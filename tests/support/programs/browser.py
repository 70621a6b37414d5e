"""Headless Chromium over its pipe: no driver, no port, no other process to mind."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

PATIENCE_SECONDS = 30.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One page of one browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._session, self._buffer = 0, "", b""
        self.complaints: list[str] = []
        """Errors of the console, exceptions of scripts, and requests that failed."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command and its answer; what the browser tells meanwhile is noted."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._from, 1 << 16)
            assert chunk, "the browser ended"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method", ""), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning"}:
            self.complaints.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(str(parameters["entry"]))
        elif method == "Network.loadingFailed" and not parameters.get("canceled"):
            self.complaints.append(str(parameters))

    def open(self, url: str) -> None:
        """Go there, and wait until the page is loaded."""
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Return once the expression is true in the page."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.ask(script):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.02)

    def resize(self, width: int, height: int, theme: str = "light") -> None:
        """The window's size and the reader's taste."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """A fresh browser with a fresh profile, gone at the end of the block.

    A missing Chromium fails the test: whoever runs these asked for a browser.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program is not None, "no Chromium on the PATH; on Debian: apt-get install chromium"
    child_reads, we_write = os.pipe()
    we_read, child_writes = os.pipe()
    with tempfile.TemporaryDirectory(prefix="na-browser-", ignore_cleanup_errors=True) as profile:
        # The browser wants its pipe as descriptors 3 and 4.
        command = f'exec 3<&{child_reads} 4>&{child_writes}; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", command, "browser", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(child_reads, child_writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(child_reads)
        os.close(child_writes)
        try:
            yield Browser(we_write, we_read)
        finally:
            os.close(we_write)
            os.close(we_read)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)

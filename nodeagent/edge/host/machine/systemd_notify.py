"""Reports the agent's state to systemd: ready, reloading, stopping, alive.

Owns the notification socket's protocol, a few lines of text in one datagram.
Refuses to be a reason to stop: without a service manager every call does nothing, and an unreachable manager is
reported by the return value and `last_error`, never raised.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping

STATUS_LIMIT = 1000
"""Longest status sent, in characters: systemd shows one line of the status."""

_UNSAFE = {number: f"\\x{number:02x}" for number in (*range(32), 127)} | {10: "\\n", 13: "\\r", 9: "\\t"}


class SystemdNotifier:
    """The connection of one service to its manager."""

    def __init__(
        self,
        address: str = "",
        *,
        watchdog_seconds: float | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.watchdog_seconds = watchdog_seconds
        """Time after which systemd kills a silent service; notify at half the time. `None` without a watchdog."""
        self.last_error = ""
        """Why the newest message did not arrive; empty after success."""
        self._monotonic_ns = monotonic_ns
        self._address = "\0" + address[1:] if address.startswith("@") else address
        if address and address[0] not in "/@":
            self._address = ""
            self.last_error = f"NOTIFY_SOCKET {address!r} is neither an absolute path nor an abstract name"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, pid: int | None = None) -> "SystemdNotifier":
        """Build the notifier that systemd asked for; an inactive notifier without a request."""
        own_pid = os.getpid() if pid is None else pid
        return cls(environ.get("NOTIFY_SOCKET", ""), watchdog_seconds=parse_watchdog_seconds(environ, own_pid))

    @property
    def active(self) -> bool:
        """Whether a service manager listens."""
        return bool(self._address)

    def ready(self, status: str = "") -> bool:
        """The service works, or works again after a reload."""
        return self._send("READY=1", *_render_status(status))

    def reloading(self, status: str = "") -> bool:
        """A reload has begun; `ready` ends it."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={self._monotonic_ns() // 1000}", *_render_status(status))

    def stopping(self, status: str = "") -> bool:
        """The service has begun to stop."""
        return self._send("STOPPING=1", *_render_status(status))

    def watchdog(self) -> bool:
        """The event loop is alive."""
        return self._send("WATCHDOG=1")

    def status(self, text: str) -> bool:
        """Set the one line that `systemctl status` shows."""
        return self._send(*_render_status(text or " "))

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return False
        message = "\n".join(lines).encode("utf-8", "backslashreplace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # Never waits: a manager with a full queue must not stall the event loop.
                sender.settimeout(0)
                sender.sendto(message, self._address)
        except OSError as error:
            self.last_error = f"cannot notify systemd at {self._address!r}: {error.strerror or error}"
            return False
        self.last_error = ""
        return True


def parse_watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """How long systemd tolerates silence from this process; `None` without a watchdog for this process."""
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        return None
    return int(text) / 1_000_000


def _render_status(text: str) -> tuple[str, ...]:
    # A newline would begin a second assignment, so that a GPU's name could say STOPPING=1.
    return (f"STATUS={text[:STATUS_LIMIT].translate(_UNSAFE)}",) if text else ()

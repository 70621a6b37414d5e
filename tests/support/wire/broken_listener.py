"""A listener that fails as often as its test says."""

import os
import socket


class BrokenListener:
    def __init__(self, listener: socket.socket, code: int, failures: int = 0) -> None:
        self._listener, self._code, self.failures = listener, code, failures
        self.attempts = 0

    def fileno(self) -> int:
        return self._listener.fileno()

    def settimeout(self, seconds: float) -> None:
        self._listener.settimeout(seconds)

    def accept(self) -> tuple[socket.socket, object]:
        self.attempts += 1
        if self.failures:
            self.failures -= 1
            raise OSError(self._code, os.strerror(self._code))
        return self._listener.accept()

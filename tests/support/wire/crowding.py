"""An attacker that holds as many connections as it gets, and opens new ones for those that are closed."""

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

ROUND_SECONDS = 0.01
AT_ONCE = 16
_UNDER_WAY = {0, errno.EINPROGRESS}


class Crowd:
    """What it has done so far; belongs to its thread until that has ended."""

    def __init__(self, port: int, count: int, said: bytes) -> None:
        self._port, self._count, self._said = port, count, said
        self._selector = selectors.DefaultSelector()
        self._open: set[socket.socket] = set()
        self._stop = threading.Event()
        self.opened = 0

    def run(self) -> None:
        while not self._stop.is_set():
            for _ in range(min(self._count - len(self._open), AT_ONCE)):
                self._connect()
            for key, events in self._selector.select(ROUND_SECONDS):
                assert isinstance(key.fileobj, socket.socket)
                self._look(key.fileobj, events)
            time.sleep(ROUND_SECONDS)
        for connected in tuple(self._open):
            self._close(connected)
        self._selector.close()

    def stop(self) -> None:
        self._stop.set()

    def _connect(self) -> None:
        connected = socket.socket()
        connected.setblocking(False)
        self._open.add(connected)
        self.opened += 1
        if connected.connect_ex(("127.0.0.1", self._port)) not in _UNDER_WAY:
            self._open.discard(connected)
            connected.close()
            return
        self._selector.register(connected, selectors.EVENT_WRITE)

    def _look(self, connected: socket.socket, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._selector.modify(connected, selectors.EVENT_READ)
                connected.send(self._said)
            elif not connected.recv(65536):
                self._close(connected)
        except OSError:
            self._close(connected)

    def _close(self, connected: socket.socket) -> None:
        self._open.discard(connected)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connected)
        connected.close()


@contextmanager
def crowding(port: int, count: int, said: bytes = b"") -> Iterator[Crowd]:
    """So many connections that say just this, for as long as the block lasts."""
    crowd = Crowd(port, count, said)
    thread = threading.Thread(target=crowd.run, name="crowd")
    thread.start()
    try:
        yield crowd
    finally:
        crowd.stop()
        thread.join()

"""Waits for a GPU on a node without GPUs, with next to nothing loaded, and then becomes the given command.

Started as a program, by its path: `python -I -S gpu_arrival.py PUBLIC ADMIN SECONDS PCI DEV... -- COMMAND`.
The first two are listening sockets, by their descriptors. Clients there learn that the node has no GPU: probes are
content, a scrape is empty, and every other request is refused with the reason.
Imports nothing but Python's standard library: each node without GPUs pays for imports in memory.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from types import FrameType
from typing import Final

NVIDIA_VENDOR: Final = 0x10DE
_DISPLAY_CLASS: Final = 0x03
"""The class by which the driver's probe finds GPUs, too."""
_CONNECTIONS: Final = 32
_CONNECTION_SECONDS: Final = 5.0
_REQUEST_BYTES: Final = 8192
_DETAIL: Final = "this node has no NVIDIA GPU; its agent looks for one every so often, and does nothing else until then"
_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
_PROBES: Final = (b"/livez", b"/readyz")


def has_gpu(pci_devices: str, dev_directories: tuple[str, ...]) -> bool:
    """Whether the bus has a GPU of NVIDIA's, or one of the directories has a device node of the driver."""
    functions = (f"{pci_devices}/{name}" for name in _list_names(pci_devices))
    if any(
        _read_number(f"{each}/vendor") == NVIDIA_VENDOR and _read_number(f"{each}/class") >> 16 == _DISPLAY_CLASS
        for each in functions
    ):
        return True
    return any(_is_gpu_node(name) for directory in dev_directories for name in _list_names(directory))


def _list_names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - pathlib would be half of this process's memory
    except OSError:
        return []


def _read_number(path: str) -> int:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            return int(file.read(32), 0)
    except (OSError, ValueError):
        return 0


def _is_gpu_node(name: str) -> bool:
    return name.startswith("nvidia") and (name[6:].isdigit() or name[6:] == "ctl")


class _Answers:
    """Connections at the two sockets, and the answers to them."""

    def __init__(self, listeners: tuple[socket.socket, ...]) -> None:
        self._poll = select.poll()
        self._listeners = {each.fileno(): each for each in listeners}
        self._asking: dict[int, tuple[socket.socket, float, bytes]] = {}
        for number, listener in self._listeners.items():
            listener.settimeout(0)
            self._poll.register(number, select.POLLIN)

    def serve(self, until: float) -> None:
        """Answer requests until the given time."""
        while (left := until - time.monotonic()) > 0:
            wait = min(left, _CONNECTION_SECONDS) if self._asking else left
            for number, _ in self._poll.poll(wait * 1000):
                if number in self._listeners:
                    self._accept(self._listeners[number])
                elif number in self._asking:
                    self._read(number)
            now = time.monotonic()
            for number in [number for number, (_, end, _) in self._asking.items() if end < now]:
                self._close(number)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client has left
        connection.settimeout(0)
        if len(self._asking) >= _CONNECTIONS:
            self._close(next(iter(self._asking)))  # the oldest connection
        self._asking[connection.fileno()] = connection, time.monotonic() + _CONNECTION_SECONDS, b""
        self._poll.register(connection.fileno(), select.POLLIN)

    def _read(self, number: int) -> None:
        connection, end, said = self._asking[number]
        try:
            more = connection.recv(_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        said += more
        if more and b"\r\n\r\n" not in said and len(said) < _REQUEST_BYTES:
            self._asking[number] = connection, end, said
            return
        if more:
            with contextlib.suppress(OSError):  # the client has left
                connection.send(_answer(said))
        self._close(number)

    def _close(self, number: int) -> None:
        self._poll.unregister(number)
        self._asking.pop(number)[0].close()


def _answer(request: bytes) -> bytes:
    words = request.split(b" ", 2)
    path = words[1].partition(b"?")[0] if len(words) > 1 else b""
    if path == b"/metrics":
        return _render("200 OK", _PLAIN, "")
    if path in _PROBES:
        return _render("200 OK", _PLAIN, f"{_DETAIL}\n")
    problem = f'{{"title": "no GPU on this node", "status": 503, "detail": "{_DETAIL}"}}'
    return _render("503 Service Unavailable", "application/problem+json", problem)


def _render(status: str, kind: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nServer: nodeagent\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


class _StartOver(Exception):
    """SIGHUP has come: the configuration is to be read anew."""


def _start_over(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough, and a second signal would not be caught
    raise _StartOver


def _stop(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def main(words: list[str]) -> None:
    """Wait, and become the command."""
    rest = words.index("--")
    public, admin, seconds, pci_devices, *dev_directories = words[:rest]
    listeners = tuple(socket.socket(fileno=int(number)) for number in (public, admin))
    places = tuple(dev_directories)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    answers = _Answers(listeners)
    try:
        signal.signal(signal.SIGHUP, _start_over)
        while not has_gpu(pci_devices, places):
            answers.serve(time.monotonic() + float(seconds))
    except _StartOver:
        pass
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for listener in listeners:
        listener.close()
    command = words[rest + 1 :]
    os.execv(command[0], command)  # noqa: S606 - the agent's own command, from before the wait


if __name__ == "__main__":
    main(sys.argv[1:])

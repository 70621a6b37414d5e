"""Opens the sockets for a server, before the server exists.

Separate from the server because an unusable port must be refused at once, and the server's library takes a quarter of
the agent's start to load.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeagent.edge.http.errors import ListenFailed

BACKLOG = 1024
"""A connection waiting in the kernel costs no descriptor; a probe at a full queue retries a second later."""


def open_tcp_listener(host: str, port: int, *, key: str, ports: int = 1) -> socket.socket:
    """A bound TCP socket, on the first free port of the given number of ports.

    Raises:
        ListenFailed: the address cannot be used; with a remedy and the setting to change.
    """
    for candidate in range(port, port + ports - 1):
        try:
            return _open_tcp(host, candidate, key)
        except ListenFailed as error:
            if not error.is_taken:
                raise
    return _open_tcp(host, port + ports - 1, key)


def _open_tcp(host: str, port: int, key: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    remedy = "free the port (`ss -ltnp` names its owner) or set another address"
    with _listening(listener, key, f"{host}:{port}", remedy):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host or "0.0.0.0", port))  # noqa: S104 - only where the setting says every interface
    return listener


def open_unix_listener(path: Path, *, key: str, mode: int) -> socket.socket:
    """A bound unix socket with `mode`; a stale file of a dead process is replaced, a living process's file is not.

    Raises:
        ListenFailed: the path cannot be used.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _listening(
        listener, key, str(path), "stop the other agent, or set another directory that this user may write"
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        # The umask sets the mode at bind time: between bind and chmod any user could connect.
        before = os.umask(0o777 & ~mode)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
    return listener


@contextmanager
def _listening(listener: socket.socket, key: str, where: str, remedy: str) -> Iterator[None]:
    """Listen on the socket bound by the block; on a failure of either, close the socket and suggest a remedy."""
    try:
        yield
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        is_taken = error.errno == errno.EADDRINUSE
        reason = (error.strerror or str(error)).lower()
        raise ListenFailed(key, where, reason, _suggest(error) or remedy, is_taken=is_taken) from error


def _suggest(error: OSError) -> str:
    """The remedy where the error names the address's fault; empty for other errors."""
    if isinstance(error, socket.gaierror):
        return "set an address of this machine, or a name that leads to one"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has that address: set one that `ip address` lists"
    return ""


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(17, "a file that is no socket is in the way")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            pass  # a listener too busy to accept: taken
    raise OSError(98, "another process listens there")

"""Opens directories, lock and sockets before any component is started.

A port in use or a missing permission is then a single line and exit code 2, not a crash loop.
"""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from nodeagent.app.errors import AgentAlreadyRuns, DirectoryUnusable
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import FileNotWritten, StateLocked, describe_os_error, suggest_remedy
from nodeagent.edge.host.files.state_lock import StateLock
from nodeagent.edge.http.access import Access, open_access
from nodeagent.edge.http.listeners import open_tcp_listener, open_unix_listener

ADMIN_SOCKET = "admin.sock"
LOCK = "agent.lock"
DIRECTORY_MODE = 0o755
RETRY_SECONDS = 0.1
PORTS_TRIED = 100


Wait: TypeAlias = Callable[[StateLock, StateLocked, socket.socket, Access | None], None]
"""Waits for the lock of another agent, and answers at the public address until then."""


class Listeners(Struct, frozen=True):
    """Sockets that stay open for the life of the process."""

    public: socket.socket
    admin: socket.socket
    admin_path: Path
    access: Access | None = None
    taken: str = ""
    """The wanted address, where another had to do."""
    usage: socket.socket | None = None
    """The listener for the use of fractions in gpu-manager's form."""
    usage_access: Access | None = None

    @property
    def url(self) -> str:
        """Where people point their browser."""
        host, port = self.public.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - shown, not bound
        scheme = "https" if self.access is not None and self.access.context is not None else "http"
        return f"{scheme}://[{shown}]:{port}/" if ":" in shown else f"{scheme}://{shown}:{port}/"


@contextlib.contextmanager
def open_endpoints(
    settings: Settings, *, patience_seconds: float = 0.0, may_move: bool = False, wait: Wait | None = None
) -> Iterator[Listeners]:
    """All endpoints or none; `patience_seconds` is for another agent that may be about to leave.

    With `may_move` the next free port will do. Where another agent has the lock, `wait` returns with the lock held.

    Raises:
        DirectoryUnusable: A directory cannot be made or written.
        AgentAlreadyRuns: Another agent has this state directory, and kept it.
        ListenFailed: A socket cannot be bound.
        WebConfigInvalid: TLS or passwords are asked for and cannot be had.
    """
    end = time.monotonic() + patience_seconds
    has_told = False
    while True:
        with contextlib.ExitStack() as stack:
            try:
                listeners = _open_all(settings, stack, PORTS_TRIED if may_move else 1, wait)
            except AgentAlreadyRuns as error:
                if time.monotonic() >= end:
                    raise
                if not has_told:
                    get_logger(component="agent").warning("start_waits", reason=str(error), seconds=patience_seconds)
                has_told = True
            else:
                yield listeners
                return
        time.sleep(RETRY_SECONDS)


def _open_all(settings: Settings, stack: contextlib.ExitStack, ports: int, wait: Wait | None) -> Listeners:
    access = _open_access(settings.http.web_config_file)
    address = settings.http.listen
    # The port first: it is the likeliest to be refused, and a refusal leaves no file behind.
    public = stack.enter_context(open_tcp_listener(address.host, address.port, key="http.listen", ports=ports))
    usage = _open_usage(settings, stack)
    for key, path in (("node.state_dir", settings.node.state_dir), ("node.run_dir", settings.node.run_dir)):
        prepare_directory(key, path)
    wait_here = partial(_wait_at, wait, public, access) if wait is not None else None
    # What follows is the node's alone: opened after the lock, and closed before the lock is let go.
    stack.enter_context(_hold_lock(settings.node.state_dir, wait_here))
    admin_path = settings.node.run_dir / ADMIN_SOCKET
    admin = stack.enter_context(open_unix_listener(admin_path, key="node.run_dir", mode=0o600))
    stack.callback(admin_path.unlink, missing_ok=True)
    is_moved = address.port != 0 and public.getsockname()[1] != address.port
    return Listeners(
        public,
        admin,
        admin_path,
        access,
        taken=str(address) if is_moved else "",
        usage=usage,
        # Not shared: each server ends its own access.
        usage_access=_open_access(settings.http.web_config_file) if usage is not None else None,
    )


def _open_usage(settings: Settings, stack: contextlib.ExitStack) -> socket.socket | None:
    address = settings.fractions.usage_listen
    if address is None or not settings.fractions.enabled:
        return None
    return stack.enter_context(open_tcp_listener(address.host, address.port, key="fractions.usage_listen"))


def _open_access(path: Path | None) -> Access | None:
    if path is None:
        return None
    log = get_logger(component="http")
    return open_access(path, on_error=lambda reason: log.error("certificates_not_replaced", reason=reason))


def prepare_directory(key: str, path: Path) -> None:
    """Make a missing directory, and see that it can be written.

    Raises:
        DirectoryUnusable: The directory cannot be made or written.
    """
    try:
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        # The kernel answers for the effective user, and reports a read-only file system to root, too.
        refusal = None if os.access(path, os.W_OK | os.X_OK) else _find_refusal(path)
    except OSError as error:
        refusal = error
    if refusal is not None:
        remedy = suggest_remedy(refusal, path)
        raise DirectoryUnusable(key, str(path), f"{describe_os_error(refusal)}; {remedy}") from refusal


def _wait_at(wait: Wait, public: socket.socket, access: Access | None, lock: StateLock, refusal: StateLocked) -> None:
    wait(lock, refusal, public, access)


def _find_refusal(path: Path) -> OSError:
    """Why the directory cannot be written."""
    is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    number = errno.EROFS if is_read_only else errno.EACCES
    return OSError(number, os.strerror(number))


@contextlib.contextmanager
def _hold_lock(state_dir: Path, wait: Callable[[StateLock, StateLocked], None] | None) -> Iterator[None]:
    """Hold the lock for the block; where another agent has the lock, `wait` returns with the lock held."""
    lock = StateLock(state_dir / LOCK)
    try:
        try:
            lock.acquire()
        except StateLocked as error:
            if wait is None:
                raise AgentAlreadyRuns("node.state_dir", str(state_dir), str(error)) from error
            wait(lock, error)
    except FileNotWritten as error:
        raise DirectoryUnusable("node.state_dir", str(state_dir), str(error)) from error
    try:
        yield
    finally:
        lock.release()

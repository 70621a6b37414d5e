"""A standby: ready beside the agent at work, without its lock, journal and sockets, until the lock is free.

A DaemonSet with `maxSurge` ends the old pod only once the new pod is ready, so a pod must be ready before it has the
lock. Owns the answers of that time: probes are content, a scrape is empty, and all else is refused with the reason.
"""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED, CancelScope
from anyio.abc import TaskStatus

from nodeagent.app.errors import JournalTooNew
from nodeagent.components.allocations.journal_format import parse_journal
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import FileNotWritten, FileTooLarge, FileUnreadable, StateLocked
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.files.journal_disk import JOURNAL_NAME
from nodeagent.edge.host.files.state_lock import StateLock
from nodeagent.edge.http.access import Access
from nodeagent.edge.http.hosts import AllowedHosts
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response
from nodeagent.edge.http.routes import Match, Route, Routes, render_problem
from nodeagent.edge.http.server import HttpServer

PROBES: Final = ("/livez", "/healthz", "/readyz")
STOPS: Final = (signal.SIGTERM, signal.SIGINT)

_log = get_logger(component="agent")


def describe_wait(refusal: StateLocked, waited_seconds: float, patience_seconds: float) -> str:
    """What a standby waits for, and the remedy once the wait is longer than the patience."""
    words = (
        f"{refusal.holder} held {refusal.path} when this agent started, which has waited {waited_seconds:.0f} s since"
    )
    if waited_seconds < patience_seconds:
        return words
    return f"{words}, longer than it should: stop the nodeagent that has the lock, or this one if that one is to stay"


class Standby:
    """The wait of one agent for the lock of another agent."""

    def __init__(self, settings: Settings, patience_seconds: float) -> None:
        """After the patience the standby says that the wait is long, and goes on waiting."""
        names = (settings.node.name or os.uname().nodename, os.uname().nodename)
        self._hosts = AllowedHosts(names, settings.http.allowed_hosts)
        self._state_dir, self._patience_seconds = settings.node.state_dir, patience_seconds
        self._began = time.monotonic()

    def wait(self, lock: StateLock, refusal: StateLocked, public: socket.socket, access: Access | None) -> None:
        """Answer at `public` until the lock is held; a signal to stop ends the process with status 0.

        Raises:
            JournalTooNew: After taking over, this version could not go on from the journal.
            FileNotWritten: The lock file cannot be locked or written.
        """
        self._check_journal()
        handlers = {number: signal.getsignal(number) for number in STOPS}
        try:
            is_held = anyio.run(self._wait, lock, refusal, public, access)
        finally:
            # Without a handler of its own the first process of a container would hear no signal until the agent runs.
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if not is_held:
            _log.info("standby_stopped")
            sys.exit(0)
        _log.info("standby_took_over", waited_seconds=round(self._waited_seconds(), 1))

    def _check_journal(self) -> None:
        """Refuse before being ready: afterwards the agent at work would be ended for nothing."""
        path = self._state_dir / JOURNAL_NAME
        # A journal that cannot be read now is the start's to judge, as without a standby.
        with contextlib.suppress(FileUnreadable, FileTooLarge):
            reason = parse_journal(read_bounded(path)).refusal
            if reason:
                raise JournalTooNew(str(path), reason)

    async def _wait(self, lock: StateLock, refusal: StateLocked, public: socket.socket, access: Access | None) -> bool:
        """Whether the lock is held; a signal to stop ends the wait without the lock."""

        def describe() -> str:
            return describe_wait(refusal, self._waited_seconds(), self._patience_seconds)

        server = HttpServer(
            _StandbyRoutes(describe),
            on_error=lambda request, error: _log.exception("request_failed", error, request=request),
            on_exhausted=lambda error: _log.error("connection_not_taken", error=error),
            hosts=lambda: self._hosts,
            access=access,
        )
        is_held, failure = False, None
        async with server.serving(public), anyio.create_task_group() as tasks:
            await tasks.start(_cancel_at_signal, tasks.cancel_scope)
            host, port = public.getsockname()[:2]
            _log.info("standby_began", listen=f"{host}:{port}", reason=describe())
            tasks.start_soon(self._tell_long_wait, describe)
            try:
                await lock.acquire_when_free()
                is_held = True
            except FileNotWritten as error:
                failure = error  # raised outside the task group, which would wrap the error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return is_held

    async def _tell_long_wait(self, describe: Callable[[], str]) -> None:
        await anyio.sleep(max(0.0, self._patience_seconds - self._waited_seconds()))
        _log.warning("standby_waited_long", reason=describe())

    def _waited_seconds(self) -> float:
        return time.monotonic() - self._began


async def _cancel_at_signal(scope: CancelScope, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
    with anyio.open_signal_receiver(*STOPS) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()


class _StandbyRoutes(Routes):
    """Content probes and an empty scrape; whatever else there is at an agent's address is refused with the reason."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe
        super().__init__(
            [*(Route("GET", path, self._answer_probe) for path in PROBES), Route("GET", "/metrics", _answer_scrape)]
        )

    def find(self, method: str, path: str) -> Match | Response:
        """The match, or the refusal."""
        match = super().find(method, path)
        return match if isinstance(match, Match) else render_problem(503, "this agent is a standby", self._describe())

    async def _answer_probe(self, _request: Request) -> Answer:
        return Response(f"standby: {self._describe()}\n".encode(), content_type=TEXT)


async def _answer_scrape(_request: Request) -> Answer:
    # The agent at work has all metrics of the node; a second set of the same series would be counted twice.
    return Response(b"", content_type=TEXT)

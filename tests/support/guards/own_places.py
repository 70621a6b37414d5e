"""Fails a test that uses a place which an agent of the person at this machine may have, or another run of these tests.

That is the port 9400, the default directories of the agent, and the directory of this user's simulations. What a test
itself opens is seen when it does so; an agent that it starts is judged by its command line and environment.
"""

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import pytest

from nodeagent.config.schema import Settings

PORT: Final = Settings().http.listen.port
PLACES: Final = (
    f"{Settings().node.run_dir}/",
    f"{Settings().node.state_dir}/",
    f"{tempfile.gettempdir()}/nodeagent-simulations-{os.geteuid()}/",
)
NOWHERE: Final = "/dev/null/tests-name-a-directory-of-their-own"
"""Where simulations of a test go that names none: it cannot be made, and its name says what to do."""

LISTENING: Final = frozenset({"run", "simulate"})
ASKING: Final = frozenset(
    {"simulate", "status", "doctor", "allocations", "events", "top", "gpu", "labels", "reload", "release", "resume"}
)
REMEDY: Final = "see tests/support/programs/agent_process.py"


class SharedPlaceUsed(AssertionError):
    """A test used what another run, or the person's own agent, may have."""


@pytest.fixture(autouse=True)
def _own_places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.node.get_closest_marker("e2e") or request.node.get_closest_marker("browser"):
        yield  # programs of others, which have a use for the runtime directory
        return
    monkeypatch.setenv("XDG_RUNTIME_DIR", NOWHERE)
    with forbid_shared_places():
        yield


@contextmanager
def forbid_shared_places() -> Iterator[None]:
    """Have every use refused, and the block fail also where the refusal is swallowed."""
    used: list[str] = []
    with (
        mock.patch.object(socket.socket, "bind", _guard_address(socket.socket.bind, used), create=True),
        mock.patch.object(socket.socket, "connect", _guard_address(socket.socket.connect, used), create=True),
        mock.patch.object(subprocess.Popen, "__init__", _guard_command(subprocess.Popen.__init__, used)),
    ):
        yield
    if used:
        raise SharedPlaceUsed("; ".join(used))


def _guard_address(call: Callable[..., Any], used: list[str]) -> Callable[..., Any]:
    def guarded(self: socket.socket, address: object) -> Any:
        _refuse(find_shared_address(address), used)
        return call(self, address)

    return guarded


def _guard_command(call: Callable[..., None], used: list[str]) -> Callable[..., None]:
    def guarded(self: object, args: Any, *rest: Any, **options: Any) -> None:
        words = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
        environment = options.get("env")
        _refuse(find_careless_start([os.fsdecode(word) for word in words], environment or os.environ), used)
        call(self, args, *rest, **options)

    return guarded


def _refuse(problem: str, used: list[str]) -> None:
    if problem:
        used.append(problem)
        raise SharedPlaceUsed(problem)


def find_shared_address(address: object) -> str:
    """What is wrong with using this address in a test; empty when nothing is."""
    match address:
        case (_, int(port), *_) if port == PORT:
            return f"port {port} is the one that an agent of this machine has; {REMEDY}"
        case str(path) if path.startswith(PLACES):
            return f"{path} belongs to an agent of this machine; {REMEDY}"
    return ""


def find_careless_start(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """What is wrong with this command in a test; empty when nothing is, or when it is no agent's."""
    at = next((at for at, word in enumerate(words) if word == "nodeagent" or word.endswith("/nodeagent")), None)
    verbs = set(words[at + 1 : at + 2]) if at is not None else set()
    chosen = " ".join(words)
    if verbs & ASKING and not (environment.get("XDG_RUNTIME_DIR") or environment.get("TMPDIR")):
        return f"{chosen}: without TMPDIR it speaks of the person's own simulations; {REMEDY}"
    is_withdrawn = "http.listen=" in chosen or "--config" in words or "NODEAGENT_HTTP__LISTEN" in environment
    if verbs & LISTENING and not is_withdrawn:
        return f"{chosen}: without http.listen it takes port {PORT}; {REMEDY}"
    return ""

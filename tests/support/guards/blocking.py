"""Fails a test in which code of the package blocks the event loop.

A call counts when it is made in a thread that runs an event loop and the nearest caller outside the standard library
is a file of `nodeagent/`. Tests themselves may block; what the package may is listed below, call by call.
"""

import asyncio
import builtins
import io
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest import mock

import nodeagent

ALLOWED: Final[dict[tuple[str, str], str]] = {
    (
        "edge/host/machine/kmsg.py",
        "__enter__",
    ): "the kernel log is a device that is opened non-blocking and never waits",
    (
        "core/children/incarnation.py",
        "read_step",
    ): "the name of a child is in memory, under no lock that a sleeping child holds",
    (
        "core/introspect.py",
        "read_resident_bytes",
    ): "a file of /proc/self is made from memory and never waits for a disk",
    ("nodeagent_sim/kubelet/kubelet.py", "_write_checkpoint"): "a few kilobytes without sync, in the simulation only",
    ("nodeagent_sim/kubelet/kubelet.py", "_read_checkpoint"): "a few kilobytes once, in the simulation only",
}
"""Which function of which file of the agent, or of the simulator, may, and why."""

_WATCHED: Final[tuple[tuple[Any, str], ...]] = (
    (time, "sleep"),
    (builtins, "open"),
    (io, "open"),
    (os, "open"),
    (os, "fsync"),
    (os, "fdatasync"),
    (socket, "getaddrinfo"),
    (socket, "create_connection"),
    (subprocess.Popen, "wait"),
    (subprocess.Popen, "communicate"),
)

_ROOT: Final = str(Path(nodeagent.__file__).parents[1]) + "/"
_PACKAGES: Final = (f"{_ROOT}nodeagent/", f"{_ROOT}nodeagent_sim/")
_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib") + "/"
_SITE_PACKAGES: Final = sysconfig.get_path("purelib") + "/"


class LoopBlockedError(AssertionError):
    """Code of the package made a blocking call on the event loop."""


@contextmanager
def forbid_blocking() -> Iterator[None]:
    """Have every watched call refuse to be made by the package on a running loop."""
    patches = [mock.patch.object(owner, name, _guarded(name, getattr(owner, name))) for owner, name in _WATCHED]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def _guarded(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        is_wrapping = name == "open" and args and isinstance(args[0], int)  # a descriptor that is open already
        if not is_wrapping and asyncio._get_running_loop() is not None and (culprit := _find_culprit(sys._getframe(1))):
            raise LoopBlockedError(f"{name} blocks the event loop, called by {culprit}; move it to a worker thread")
        return call(*args, **kwargs)

    return guarded


def _find_culprit(frame: FrameType | None) -> str | None:
    while frame is not None and _is_standard_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.startswith(_PACKAGES):
        return None
    place = (frame.f_code.co_filename.removeprefix(_PACKAGES[0]).removeprefix(_ROOT), frame.f_code.co_name)
    return None if place in ALLOWED else f"{place[0]}:{frame.f_lineno} {place[1]}"


def _is_standard_library(filename: str) -> bool:
    if filename.startswith("<frozen"):
        return True
    return filename.startswith(_STANDARD_LIBRARY) and not filename.startswith(_SITE_PACKAGES)

"""For a test this machine has no GPU, driver, CDI specification or containerd, whatever it has: none of it is found.

Who has a GPU would otherwise see other answers than continuous integration. A test that needs such a thing makes it
below a root of its own. What a test starts is another process and sees the machine as it is; `make shake` tries those
on a machine that has everything (`tests/shake/gpu_machine.py`). Tests with real neighbours and those of `tests/gpu` see
all.
"""

import builtins
import ctypes
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self
from unittest import mock

import pytest

HIDDEN: Final = (
    "/dev/nvidia",
    "/dev/infiniband",
    "/proc/driver/nvidia",
    "/sys/bus/pci",
    "/sys/class/infiniband",
    "/etc/cdi",
    "/etc/containerd",
    "/etc/ld.so.cache",
    "/run/cdi",
    "/var/run/cdi",
)
"""Beginnings of paths; `/dev/nvidia` is every device node of the driver."""
LIBRARIES: Final = ("libnvidia-", "libcuda.")
"""Beginnings of names that the loader would look for by itself."""
_PARENTS: Final = frozenset(os.path.dirname(path) for path in HIDDEN)  # noqa: PTH120  as the calls have it
_ASKING: Final = (
    *((os, name) for name in ("stat", "lstat", "open", "access", "readlink")),
    (builtins, "open"),
    (io, "open"),
)
_LISTING: Final = ("listdir", "scandir")
_SEEING: Final = frozenset({"e2e", "gpu"})
"""Marks of tests that are about this machine."""


@pytest.fixture(autouse=True)
def _bare_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    if any(request.node.get_closest_marker(name) for name in _SEEING):
        yield
        return
    with hidden_machine():
        yield


@contextmanager
def hidden_machine() -> Iterator[None]:
    """Have nothing of it found in the block."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _ASKING:
            patch.setattr(owner, name, _asking(name, getattr(owner, name)))
        for name in _LISTING:
            patch.setattr(os, name, _listing(getattr(os, name)))
        with mock.patch.object(ctypes.CDLL, "__init__", _loading(ctypes.CDLL.__init__)):
            yield


def is_hidden(path: object) -> bool:
    """Whether a test is not to see what has this path; one relative to a directory is the test's own."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or not path.startswith("/"):
        return False
    return path.startswith(HIDDEN) or (("/." in path or "//" in path) and os.path.normpath(path).startswith(HIDDEN))


def _asking(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def asking(path: Any, *args: Any, **kwargs: Any) -> Any:
        if is_hidden(path):
            if name == "access":
                return False
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        return call(path, *args, **kwargs)

    return asking


def _listing(call: Callable[..., Any]) -> Callable[..., Any]:
    def listing(path: Any = ".", *args: Any) -> Any:
        if is_hidden(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        found = call(path, *args)
        place = "" if isinstance(path, int) else os.path.normpath(os.fsdecode(path))
        if place not in _PARENTS:
            return found
        if isinstance(found, list):
            return [name for name in found if not is_hidden(f"{place}/{os.fsdecode(name)}")]
        return _Scan(found, place)

    return listing


class _Scan:
    """What `os.scandir` gives, without what is hidden."""

    def __init__(self, found: Any, place: str) -> None:
        self._found, self._place = found, place

    def __iter__(self) -> Iterator["os.DirEntry[Any]"]:
        return (entry for entry in self._found if not is_hidden(f"{self._place}/{os.fsdecode(entry.name)}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._found.close()


def _loading(call: Callable[..., None]) -> Callable[..., None]:
    def loading(self: object, name: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(name, str) and name.startswith(LIBRARIES):
            try:
                # only the one that the test itself has loaded, by its path
                call(self, name, *args, **{**kwargs, "mode": os.RTLD_NOLOAD})
            except OSError:
                raise OSError(f"{name}: cannot open shared object file: No such file or directory") from None
            return
        call(self, name, *args, **kwargs)

    return loading

"""Which process is the daemon of which directory: told by its own environment, which nobody can mistake.

A process id in a file may be another's by now, so each is looked at; the file only says where to look first.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PID_FILE: Final = "nvidia-cuda-mps-control.pid"
_GPUS: Final = b"CUDA_VISIBLE_DEVICES="
_NAME: Final = b"nvidia-cuda-mps-control"


def find_daemon(pipes: Path) -> int | None:
    """The daemon that was started with this pipe directory."""
    return next((pid for pid in _list_candidates(pipes) if _is_of(pid, pipes)), None)


def is_daemon(pid: int) -> bool:
    """Whether this process is a control daemon at all."""
    words = _read(pid, "cmdline").split(b"\0")
    return any(word.rpartition(b"/")[2] == _NAME for word in words) and b"-d" in words


def list_family(pid: int) -> tuple[int, ...]:
    """A daemon's servers and it itself, in the order in which they are to end; none where it is no daemon."""
    if not is_daemon(pid):
        return ()
    return (*_list_servers(pid), pid)


def list_processes(pid: int, clients: Iterable[int]) -> frozenset[int]:
    """The servers that a daemon has, and those of these clients of theirs that live."""
    return frozenset((*_list_servers(pid), *(one for one in clients if not _has_ended(one))))


def read_gpus(pid: int) -> tuple[str, ...]:
    """The GPUs that a daemon was started for."""
    words = _read(pid, "environ").split(b"\0")
    told = next((word for word in words if word.startswith(_GPUS)), b"")
    return tuple(uuid for uuid in told.removeprefix(_GPUS).decode("ascii", "replace").split(",") if uuid)


def _list_servers(pid: int) -> tuple[int, ...]:
    return tuple(map(int, _read(pid, f"task/{pid}/children").split()))


def _list_candidates(pipes: Path) -> Iterator[int]:
    # Older daemons write none, and one that was killed while writing has left half of it.
    with suppress(OSError, ValueError):
        yield int((pipes / _PID_FILE).read_text())
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _is_of(pid: int, pipes: Path) -> bool:
    wanted = b"CUDA_MPS_PIPE_DIRECTORY=" + os.fsencode(pipes)
    return is_daemon(pid) and wanted in _read(pid, "environ").split(b"\0") and not _has_ended(pid)


def _has_ended(pid: int) -> bool:
    """Whether it waits for a parent that has yet to take note of its end."""
    return _read(pid, "stat").rpartition(b") ")[2][:1] in (b"Z", b"")


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""

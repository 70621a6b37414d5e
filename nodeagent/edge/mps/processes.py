"""Which process is the daemon of which directory, by the process's own environment, which cannot mislead.

A process id in a file may belong to another process by now, so each candidate is checked; the file is only a hint.
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
    """The daemon started with the pipe directory."""
    return next((pid for pid in _list_candidates(pipes) if _is_of(pid, pipes)), None)


def is_daemon(pid: int) -> bool:
    """Whether the process is a control daemon at all."""
    words = _read(pid, "cmdline").split(b"\0")
    return any(word.rpartition(b"/")[2] == _NAME for word in words) and b"-d" in words


def list_family(pid: int) -> tuple[int, ...]:
    """A daemon's servers, then the daemon, in the order for ending; empty for a process that is no daemon."""
    if not is_daemon(pid):
        return ()
    return (*_list_servers(pid), pid)


def list_processes(pid: int, clients: Iterable[int]) -> frozenset[int]:
    """The servers of a daemon, and the living processes among the clients."""
    return frozenset((*_list_servers(pid), *(one for one in clients if not _has_ended(one))))


def read_gpus(pid: int) -> tuple[str, ...]:
    """The GPUs of a daemon."""
    words = _read(pid, "environ").split(b"\0")
    told = next((word for word in words if word.startswith(_GPUS)), b"")
    return tuple(uuid for uuid in told.removeprefix(_GPUS).decode("ascii", "replace").split(",") if uuid)


def _list_servers(pid: int) -> tuple[int, ...]:
    return tuple(map(int, _read(pid, f"task/{pid}/children").split()))


def _list_candidates(pipes: Path) -> Iterator[int]:
    # Older daemons write no file, and a daemon killed while writing leaves half a file.
    with suppress(OSError, ValueError):
        yield int((pipes / _PID_FILE).read_text())
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _is_of(pid: int, pipes: Path) -> bool:
    wanted = b"CUDA_MPS_PIPE_DIRECTORY=" + os.fsencode(pipes)
    return is_daemon(pid) and wanted in _read(pid, "environ").split(b"\0") and not _has_ended(pid)


def _has_ended(pid: int) -> bool:
    """Whether the process is gone, or a zombie that waits for the parent."""
    return _read(pid, "stat").rpartition(b") ")[2][:1] in (b"Z", b"")


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""

"""The usage file of a container: made here, filled by the library in its processes, read here.

Refuses to trust the file: any process of the container may write any bytes, so each value is bounded, and impossible
values make the file invalid rather than a number on a page.
"""

import os
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from nodeagent.edge.host.errors import FileUnreadable, VgpuFileInvalid
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically
from nodeagent.edge.host.vgpu import layout
from nodeagent.edge.host.vgpu.ended_processes import forget_ended, list_held, read_living
from nodeagent.edge.host.vgpu.layout import PROCESS, SHARE, USAGE_BYTES, USAGE_HEADER
from nodeagent.edge.host.vgpu.shared_file import cut, open_written

_MODE: Final = 0o666
"""For every user of the container's processes."""
_BYTES_MOST: Final = 1 << 50
_STARTS_MOST: Final = 1 << 53
_CHECKSUM_AT: Final = USAGE_HEADER.offsets["checksum"]


class Status(IntEnum):
    """The library's state in a process."""

    STARTING = 0
    LIMITING = 1
    PASSING = 2
    REFUSING = 3


class Reason(IntEnum):
    """Why the library does not limit, or not by the present file."""

    FINE = 0
    LIMITS_MISSING = 1
    LIMITS_OLDER = 2
    LIMITS_NEWER = 3
    LIMITS_DAMAGED = 4
    USAGE_UNUSABLE = 5
    NO_SLOT = 6


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process's use of one device."""

    used_bytes: int
    refusals: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process with the library."""

    pid: int
    """Process number in the container's namespace."""
    start_ticks: int
    """Start since the boot, as in /proc; the container's namespace may have moved the start."""
    pid_namespace: int
    heartbeat_ns: int
    """Monotonic time of the last allocation or release of memory; 0 before the first."""
    status: Status
    reason: Reason
    shares: tuple[ProcessUse, ...]
    """One for each slot of the limits file."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The content of a usage file."""

    processes: tuple[Process, ...]
    passing_starts: int
    """Number of processes that ever began to pass all calls through."""
    refusing_starts: int
    last_reason: Reason

    def sum_used(self, slot: int) -> int:
        """Bytes in use by all processes on the device in a slot."""
        return sum(process.shares[slot].used_bytes for process in self.processes)


@cache
def render_head() -> bytes:
    """The beginning of a file without processes; the rest of the file is zeros."""
    fields = {
        "magic": layout.USAGE_MAGIC,
        "version": layout.VERSION,
        "header_bytes": USAGE_HEADER.size,
        "process_bytes": PROCESS.size,
        "processes": layout.PROCESSES,
        "devices": layout.DEVICES,
    }
    checksum = layout.compute_checksum(USAGE_HEADER.pack(**fields)[:_CHECKSUM_AT])
    return USAGE_HEADER.pack(**fields, checksum=checksum)


def parse_usage(content: bytes) -> Usage:
    """The usage in a file's content.

    Raises:
        ValueError: The content is no usage file of this version, or has impossible values.
    """
    if len(content) != USAGE_BYTES:
        raise ValueError(f"it has {len(content)} bytes, not {USAGE_BYTES}")
    if content[: _CHECKSUM_AT + 8] != render_head()[: _CHECKSUM_AT + 8]:
        raise ValueError(f"its head is not that of a usage file of version {layout.VERSION}")
    header = USAGE_HEADER.unpack(content)
    if header["high_water"] > layout.PROCESSES:
        raise ValueError(f"it speaks of {header['high_water']} processes")
    places = (USAGE_HEADER.size + number * PROCESS.size for number in range(header["high_water"]))
    processes = (_parse_process(content, place) for place in places)
    return Usage(
        processes=tuple(each for each in processes if each is not None),
        passing_starts=_bound("starts", header["passing_starts"], _STARTS_MOST),
        refusing_starts=_bound("starts", header["refusing_starts"], _STARTS_MOST),
        last_reason=Reason(header["last_reason"]),
    )


def create_usage(path: Path) -> None:
    """Put a new file in place before the container starts; after a power cut the file is made anew."""
    write_atomically(path, render_head(), mode=_MODE, durable=False, size_bytes=USAGE_BYTES)


def read_usage(path: Path) -> Usage:
    """The usage in a file.

    Raises:
        FileTooLarge: The file is no usage file.
        VgpuFileInvalid: The file is no usage file, or has impossible values.
    """
    try:
        return parse_usage(read_bounded(path, limit_bytes=USAGE_BYTES, follow_symlink=False))
    except ValueError as error:
        raise VgpuFileInvalid(path, str(error)) from error


def bound_usage(path: Path) -> int | None:
    """Truncate a file that a container has enlarged; the enlarged size, 0 for no change, `None` without a file.

    The library's own mapping stays whole: the kernel kills a process whose file is shorter than its mapping.
    Slots of ended processes of the former library are freed, too.
    """
    descriptor = open_written(path)
    if descriptor is None:
        return None
    try:
        size = cut(path, descriptor, USAGE_BYTES)
        slots = list_held(descriptor)
        living = read_living() if any(slot.wants_host for slot in slots) else None
        if living is not None:
            forget_ended(path, descriptor, slots, living)
    except OSError as error:
        raise FileUnreadable(path, error) from error
    finally:
        os.close(descriptor)
    return size


def _parse_process(content: bytes, place: int) -> Process | None:
    """The process in a slot; `None` for a slot that is free, or is being freed after a process's death."""
    fields = PROCESS.unpack(content, place)
    owner = fields["owner"]
    state = owner >> 62
    if not owner or state == layout.OWNER_RECLAIMED:
        return None
    if state != layout.OWNER_HELD:
        raise ValueError(f"a process's slot has the unknown state {state}")
    return Process(
        pid=owner >> layout.PID_SHIFT & layout.PID_MASK,
        start_ticks=owner & layout.START_MASK,
        pid_namespace=fields["pid_namespace"],
        heartbeat_ns=fields["heartbeat_ns"],
        status=Status(fields["status"]),
        reason=Reason(fields["reason"]),
        shares=tuple(_parse_share(fields["shares"], number * SHARE.size) for number in range(layout.DEVICES)),
    )


def _parse_share(content: bytes, place: int) -> ProcessUse:
    fields: dict[str, Any] = SHARE.unpack(content, place)
    used = _bound("bytes in use", fields["used"], _BYTES_MOST)
    return ProcessUse(used, _bound("refusals", fields["refusals"], _STARTS_MOST))


def _bound(what: str, value: int, most: int) -> int:
    if value > most:
        raise ValueError(f"it speaks of {value} {what}")
    return value

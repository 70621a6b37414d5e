"""The usage file of a container: made here, filled by the library in its processes, read here.

Refuses to trust it: any process of the container may write into it whatever it likes, so each value is bounded, and
what cannot be true makes the file invalid rather than a number on somebody's page.
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
from nodeagent.edge.host.vgpu.shared_file import cut

_MODE: Final = 0o666
"""Whoever the container's processes run as."""
_BYTES_MOST: Final = 1 << 50
_STARTS_MOST: Final = 1 << 53
_CHECKSUM_AT: Final = USAGE_HEADER.offsets["checksum"]


class Status(IntEnum):
    """What the library does in a process."""

    STARTING = 0
    LIMITING = 1
    PASSING = 2
    REFUSING = 3


class Reason(IntEnum):
    """Why it does not limit, or not by the file as it lies there."""

    FINE = 0
    LIMITS_MISSING = 1
    LIMITS_OLDER = 2
    LIMITS_NEWER = 3
    LIMITS_DAMAGED = 4
    USAGE_UNUSABLE = 5
    NO_SLOT = 6


@dataclass(frozen=True, slots=True)
class Share:
    """What one process has of one device."""

    used_bytes: int
    refusals: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process that the library is in."""

    pid: int
    """In the namespace of the container."""
    start_ticks: int
    """Since the boot, as its line in /proc has it; the namespace of the container may have moved it."""
    pid_namespace: int
    heartbeat_ns: int
    """On the monotonic clock, when it last asked for memory or gave some back; 0 before it ever did."""
    status: Status
    reason: Reason
    shares: tuple[Share, ...]
    """One for each slot of the limits file."""


@dataclass(frozen=True, slots=True)
class Usage:
    """All that a usage file says."""

    processes: tuple[Process, ...]
    passing_starts: int
    """How many processes ever began to pass everything through."""
    refusing_starts: int
    last_reason: Reason

    def sum_used(self, slot: int) -> int:
        """What all processes have of the device in a slot, in bytes."""
        return sum(process.shares[slot].used_bytes for process in self.processes)


@cache
def render_head() -> bytes:
    """The beginning of a file that no process has written into; the rest of it is zeros."""
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
    """What a file says.

    Raises:
        ValueError: it is no usage file of this version, or something in it cannot be true.
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
    """Put a new file in place, before any container has it; after a power cut it is made anew.

    Raises:
        FileNotWritten: it could not be written.
    """
    write_atomically(path, render_head(), mode=_MODE, durable=False, size_bytes=USAGE_BYTES)


def read_usage(path: Path) -> Usage:
    """What the file says.

    Raises:
        FileUnreadable: it cannot be read.
        FileTooLarge: it is no usage file.
        VgpuFileInvalid: likewise, or something in it cannot be true.
    """
    try:
        return parse_usage(read_bounded(path, limit_bytes=USAGE_BYTES, follow_symlink=False))
    except ValueError as error:
        raise VgpuFileInvalid(path, str(error)) from error


def bound_usage(path: Path) -> int | None:
    """Take away what a container has added to its file; what size that was, 0 for none, nothing without a file.

    Nothing is cut that the library maps: a process whose file is shorter than its mapping is killed by the kernel.
    What processes of the former library had goes too, once they have ended.

    Raises:
        FileUnreadable: it cannot be opened or read.
        FileNotWritten: it cannot be cut or changed.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileUnreadable(path, error) from error
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
    """The process in a slot; None for one that is free, or that is being taken back from a dead process."""
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


def _parse_share(content: bytes, place: int) -> Share:
    fields: dict[str, Any] = SHARE.unpack(content, place)
    used = _bound("bytes in use", fields["used"], _BYTES_MOST)
    return Share(used, _bound("refusals", fields["refusals"], _STARTS_MOST))


def _bound(what: str, value: int, most: int) -> int:
    if value > most:
        raise ValueError(f"it speaks of {value} {what}")
    return value

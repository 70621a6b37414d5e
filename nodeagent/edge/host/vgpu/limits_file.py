"""The limits file of a container: the limits on each GPU, changed in place while the container runs.

Owns the order of writing: the sequence counter is odd while the content changes, and the checksum covers all of the
content, so that the library in the container never acts on half a change.
Refuses to give a slot to another GPU: the ledger in the usage file counts by slot.
"""

import os
import uuid
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, VgpuFileInvalid
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically
from nodeagent.edge.host.vgpu import layout
from nodeagent.edge.host.vgpu.layout import LIMIT, LIMITS_BYTES, LIMITS_HEADER, MEASURED, MEASURED_AT

_MODE: Final = 0o644
_MEMORY_MOST: Final = 1 << 50
_CORES_MOST: Final = 100
_WHOLE: Final = 10_000
_SEQUENCE_AT: Final = LIMITS_HEADER.offsets["sequence"]
_PREFIXES: Final = ("GPU-", "MIG-")


class FailMode(IntEnum):
    """The library's behaviour with unusable files."""

    PASS = 0
    REFUSE = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """Utilization of a device for some tenths of a second, in 1/10000."""

    number: int
    """A new number for each measurement."""
    own: int
    """Utilization by the container."""
    total: int
    """Total utilization of the device."""


class _Flag(IntFlag):
    MEMORY = 1
    CORES = 2
    SOFT = 4
    MIG = 8


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """A container's limits on one GPU or MIG device."""

    uuid: str
    """The driver's spelling, with `GPU-` or `MIG-` in front."""
    memory_bytes: int | None = None
    """`None` for all memory."""
    core_percent: int | None = None
    soft: bool = False
    """Whether the container may use idle time of other containers beyond the limit."""
    context_bytes: int = 0
    """Memory of each CUDA context by itself; the library cannot measure contexts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The content of a limits file."""

    devices: tuple[DeviceLimit, ...]
    fail_mode: FailMode = FailMode.PASS


def render_limits(limits: Limits, sequence: int = 0) -> bytes:
    """The file with this content.

    Raises:
        ValueError: Too many devices, or values beyond the format.
    """
    if len(limits.devices) > layout.DEVICES:
        raise ValueError(f"{len(limits.devices)} devices, and {layout.DEVICES} is the most for one container")
    used = [_render_device(device) for device in limits.devices]
    if len({each[:16] for each in used}) < len(used):
        raise ValueError("a device is there twice")
    slots = b"".join(used).ljust(MEASURED_AT - LIMITS_HEADER.size, b"\0")
    fields = {
        "magic": layout.LIMITS_MAGIC,
        "version": layout.VERSION,
        "fail_mode": limits.fail_mode,
        "header_bytes": LIMITS_HEADER.size,
        "slot_bytes": LIMIT.size,
        "slots": len(used),
        "sequence": sequence,
    }
    checksum = layout.compute_checksum(LIMITS_HEADER.pack(**fields)[:_SEQUENCE_AT], slots)
    return LIMITS_HEADER.pack(**fields, checksum=checksum) + slots + bytes(LIMITS_BYTES - MEASURED_AT)


def parse_limits(content: bytes) -> Limits:
    """The limits in a file's content.

    Raises:
        ValueError: The content is no limits file of this version, damaged, or half written.
    """
    if len(content) != LIMITS_BYTES:
        raise ValueError(f"it has {len(content)} bytes, not {LIMITS_BYTES}")
    header = LIMITS_HEADER.unpack(content)
    if header["magic"] != layout.LIMITS_MAGIC or header["version"] != layout.VERSION:
        raise ValueError(f"it is no limits file of version {layout.VERSION}")
    if header["sequence"] % 2:
        raise ValueError("it is half written")
    slots = content[LIMITS_HEADER.size : MEASURED_AT]
    if header["checksum"] != layout.compute_checksum(content[:_SEQUENCE_AT], slots):
        raise ValueError("its checksum is not that of its content")
    if (header["header_bytes"], header["slot_bytes"]) != (LIMITS_HEADER.size, LIMIT.size):
        raise ValueError("its parts are not of the size that this version has")
    if header["slots"] > layout.DEVICES:
        raise ValueError(f"it speaks of {header['slots']} devices")
    devices = tuple(_parse_device(slots, number * LIMIT.size) for number in range(header["slots"]))
    return Limits(devices, FailMode(header["fail_mode"]))


def create_limits(path: Path, limits: Limits) -> None:
    """Put a new file in place before the container starts; after a power cut the file is made anew.

    Raises:
        ValueError: The format cannot hold the limits.
    """
    write_atomically(path, render_limits(limits), mode=_MODE, durable=False)


def read_limits(path: Path) -> Limits:
    """The limits in a file.

    Raises:
        FileTooLarge: The file is no limits file.
        VgpuFileInvalid: The file is no limits file, or is damaged.
    """
    try:
        return parse_limits(read_bounded(path, limit_bytes=LIMITS_BYTES, follow_symlink=False))
    except ValueError as error:
        raise VgpuFileInvalid(path, str(error)) from error


def change_limits(path: Path, limits: Limits) -> None:
    """Change a file that a container has mapped, in place; the container sees the change at its next allocation.

    A half-written or damaged file is made whole: the devices of its slots cannot be known.

    Raises:
        FileNotWritten: The disk refused; the file may be half written, and its readers notice.
        VgpuFileInvalid: The file is for other devices, or is no limits file.
        ValueError: The format cannot hold the limits.
    """
    render_limits(limits)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise FileUnreadable(path, error) from error
    try:
        sequence = _check_place(path, os.pread(descriptor, LIMITS_BYTES + 1, 0), limits)
        _write_in_place(descriptor, limits, sequence)
    except OSError as error:
        raise FileNotWritten(path, "write the limits in place", error, replaced=False) from error
    finally:
        os.close(descriptor)


def write_measured(path: Path, slot: int, measured: Measured) -> None:
    """Write a device's utilization for a running container: one write of eight bytes, seen whole by its processes.

    Raises:
        ValueError: No such slot, or figures beyond the format.
    """
    if not 0 <= slot < layout.DEVICES or not 0 <= measured.own <= measured.total <= _WHOLE:
        raise ValueError(f"slot {slot} cannot have {measured}")
    content = MEASURED.pack(measured.own, measured.total, measured.number & 0xFFFFFFFF)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise FileUnreadable(path, error) from error
    try:
        os.pwrite(descriptor, content, MEASURED_AT + slot * MEASURED.size)
    except OSError as error:
        raise FileNotWritten(path, "write a measurement in place", error, replaced=False) from error
    finally:
        os.close(descriptor)


def _check_place(path: Path, content: bytes, limits: Limits) -> int:
    """The present sequence of a file that may have these limits; other files are refused."""
    header = LIMITS_HEADER.unpack(content) if len(content) == LIMITS_BYTES else {}
    if header.get("magic") != layout.LIMITS_MAGIC or header["version"] != layout.VERSION:
        raise VgpuFileInvalid(path, f"it is no limits file of version {layout.VERSION}")
    try:
        before = parse_limits(content)
    except ValueError:
        return int(header["sequence"])
    wanted = [_parse_uuid(device.uuid) for device in limits.devices]
    if [_parse_uuid(device.uuid) for device in before.devices] != wanted[: len(before.devices)]:
        raise VgpuFileInvalid(path, "its slots are for other devices, and a slot stays with its device")
    return int(header["sequence"])


def _write_in_place(descriptor: int, limits: Limits, sequence: int) -> None:
    writing = (sequence | 1) & (1 << 64) - 1
    content = render_limits(limits, writing)
    after = (writing + 1) & (1 << 64) - 1
    # Each call is one step for processes with the file mapped: odd, content, even.
    for part, place in (
        (content[_SEQUENCE_AT : _SEQUENCE_AT + 8], _SEQUENCE_AT),
        (content[:MEASURED_AT], 0),
        (after.to_bytes(8, "little"), _SEQUENCE_AT),
    ):
        if os.pwrite(descriptor, part, place) != len(part):
            raise OSError("the write was cut short")
    os.fsync(descriptor)


def _render_device(device: DeviceLimit) -> bytes:
    memory, cores = device.memory_bytes, device.core_percent
    if memory is not None and not 0 <= memory <= _MEMORY_MOST:
        raise ValueError(f"{memory} bytes is no memory limit")
    if not 0 <= device.context_bytes <= _MEMORY_MOST:
        raise ValueError(f"{device.context_bytes} bytes is nothing that a context takes")
    if cores is not None and not 1 <= cores <= _CORES_MOST:
        raise ValueError(f"{cores} percent is no core limit")
    flags = _Flag(0)
    flags |= _Flag.MEMORY if memory is not None else _Flag(0)
    flags |= _Flag.CORES if cores is not None else _Flag(0)
    flags |= _Flag.SOFT if device.soft else _Flag(0)
    flags |= _Flag.MIG if device.uuid.startswith("MIG-") else _Flag(0)
    return LIMIT.pack(
        uuid=_parse_uuid(device.uuid),
        memory_bytes=memory or 0,
        core_percent=cores or 0,
        flags=flags,
        context_bytes=device.context_bytes,
    )


def _parse_device(slots: bytes, offset: int) -> DeviceLimit:
    fields = LIMIT.unpack(slots, offset)
    flags = _Flag(fields["flags"])
    return DeviceLimit(
        uuid=f"{'MIG' if flags & _Flag.MIG else 'GPU'}-{uuid.UUID(bytes=fields['uuid'])}",
        memory_bytes=fields["memory_bytes"] if flags & _Flag.MEMORY else None,
        core_percent=fields["core_percent"] if flags & _Flag.CORES else None,
        soft=bool(flags & _Flag.SOFT),
        context_bytes=fields["context_bytes"],
    )


def _parse_uuid(text: str) -> bytes:
    """The bytes of a device's UUID as CUDA returns them, without the kind of device."""
    if not text.startswith(_PREFIXES):
        raise ValueError(f"{text!r} is no UUID of a GPU or MIG device")
    return uuid.UUID(text[4:]).bytes

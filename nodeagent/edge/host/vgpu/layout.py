"""The files between agent and vGPU library byte by byte, equal to `native/include/vgpu_files.h`; a test compares them.

Refuses to know the meaning of values: the other modules of this folder own the meaning.
"""

import struct
from typing import Any, Final

LIMITS_MAGIC: Final = int.from_bytes(b"vgpulim1", "little")
USAGE_MAGIC: Final = int.from_bytes(b"vgpuuse1", "little")
VERSION: Final = 1
DEVICES: Final = 16
PROCESSES: Final = 256
_CHECKSUM_START: Final = 0xCBF29CE484222325
_CHECKSUM_PRIME: Final = 0x100000001B3
_WORD: Final = (1 << 64) - 1

OWNER_HELD: Final = 1
OWNER_RECLAIMED: Final = 2
"""The two upper bits of a process's `owner`."""
PID_SHIFT: Final = 40
PID_MASK: Final = 0x3FFFFF
START_MASK: Final = (1 << PID_SHIFT) - 1


class Record:
    """A C structure: its fields by name, in order, little-endian and without padding beyond the named fields."""

    def __init__(self, name: str, **fields: str) -> None:
        self.name = name
        self._names = tuple(fields)
        self._struct = struct.Struct("<" + "".join(fields.values()))
        self.size: Final = self._struct.size
        self.offsets: Final[dict[str, int]] = {}
        before = "<"
        for field, code in fields.items():
            self.offsets[field] = struct.calcsize(before)
            before += code

    def pack(self, **values: Any) -> bytes:
        """The structure with these values; fields not given are zero."""
        return self._struct.pack(*(values.get(name, b"" if name == "uuid" else 0) for name in self._names))

    def unpack(self, content: bytes, offset: int = 0) -> dict[str, Any]:
        """The values by name; the caller has checked the length of the content."""
        return dict(zip(self._names, self._struct.unpack_from(content, offset), strict=True))


def _list_spare(count: int) -> dict[str, str]:
    return {f"more{number}": "Q" for number in range(count)}


LIMITS_HEADER: Final = Record(
    "vgpu_limits_header",
    magic="Q",
    version="I",
    fail_mode="I",
    header_bytes="I",
    slot_bytes="I",
    slots="I",
    reserved="I",
    sequence="Q",
    checksum="Q",
    **_list_spare(2),
)
LIMIT: Final = Record(
    "vgpu_limit", uuid="16s", memory_bytes="Q", core_percent="I", flags="I", context_bytes="Q", **_list_spare(3)
)
USAGE_HEADER: Final = Record(
    "vgpu_usage_header",
    magic="Q",
    version="I",
    header_bytes="I",
    process_bytes="I",
    processes="I",
    devices="I",
    reserved="I",
    checksum="Q",
    high_water="I",
    last_reason="I",
    passing_starts="Q",
    refusing_starts="Q",
    **_list_spare(8),
)
SHARE: Final = Record("vgpu_share", used="Q", pending="Q", refusals="Q", more="Q")
PROCESS: Final = Record(
    "vgpu_process",
    owner="Q",
    pid_namespace="Q",
    heartbeat_ns="Q",
    status="I",
    reason="I",
    locked_by="Q",
    **_list_spare(3),
    shares=f"{DEVICES * SHARE.size}s",
)
BUCKET: Final = Record(
    "vgpu_bucket",
    due_ns="Q",
    control="Q",
    waited_ns="Q",
    seen_waited_ns="Q",
    gathered="Q",
    since_ns="Q",
    longest_ns="Q",
    more="Q",
)
SHARED: Final = Record("vgpu_shared", due_ns=f"{DEVICES * 8}s")
RECORDS: Final = (LIMITS_HEADER, LIMIT, USAGE_HEADER, SHARE, PROCESS, BUCKET, SHARED)
MEASURED: Final = struct.Struct("<HHI")
"""Utilization of a device by the container, and in total, in 1/10000, and the number of the measurement."""
MEASURED_AT: Final = LIMITS_HEADER.size + DEVICES * LIMIT.size
LIMITS_BYTES: Final = MEASURED_AT + DEVICES * MEASURED.size
USAGE_BYTES: Final = USAGE_HEADER.size + PROCESSES * PROCESS.size + DEVICES * BUCKET.size


def compute_checksum(*parts: bytes) -> int:
    """FNV-1a with 64 bits: finds damage, and keeps no attacker out."""
    content = b"".join(parts)
    said = content.rstrip(b"\0")
    value = _CHECKSUM_START
    for byte in said:
        value = (value ^ byte) * _CHECKSUM_PRIME & _WORD
    # The zeros are most of the content, and a zero only multiplies.
    return value * pow(_CHECKSUM_PRIME, len(content) - len(said), _WORD + 1) & _WORD

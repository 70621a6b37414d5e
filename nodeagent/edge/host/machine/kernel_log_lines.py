"""Parses the NVIDIA driver's lines in the kernel log.

Owns the record format of /dev/kmsg and the line formats of the driver (`NVRM:` and `nvidia-nvswitchN:`). Pure.
Refuses to judge: the severity of an XID is the business of health, so unknown numbers and words are kept.
"""

import re
from collections.abc import Callable

from nodeagent.model.ids import PciAddress, parse_pci_address
from nodeagent.model.values import Value

_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
# Priority, sequence and time, each of at most the digits of a 64-bit number, and fields of later kernels.
_HEAD = re.compile(rb"([0-9]{1,20}),([0-9]{1,20}),([0-9]{1,20})(?:,[^;]*)?;")
_LEVELS = 8


class KernelRecord(Value, frozen=True):
    """One record of the kernel log."""

    sequence: int
    """Grows by one within a boot."""
    monotonic_usec: int
    """Time since boot without suspend."""
    level: int
    facility: int
    """0 for the kernel itself; user space can write records too, but never with 0."""
    text: str
    lost_before: int = 0
    """Number of records that the kernel dropped unread just before this record; filled in by the reader."""


class XidLine(Value, frozen=True):
    """The driver reports an XID of a GPU, or of a MIG instance on the GPU."""

    address: PciAddress | None
    """`None` for an unreadable address: the XID is real all the same."""
    xid: int | None
    """`None` for an unreadable number."""
    message: str = ""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


class SxidLine(Value, frozen=True):
    """The driver reports an error of an NVSwitch."""

    address: PciAddress
    switch: int
    sxid: int
    fatal: bool | None = None
    """`None` on follow-up lines, which repeat the number with details."""
    link: int | None = None
    message: str = ""


class LostGpuLine(Value, frozen=True):
    """A card answers on the bus no longer."""

    address: PciAddress | None
    """`None` for a line without a card's address."""
    message: str = ""


class InitFailureLine(Value, frozen=True):
    """A card could not be brought up."""

    address: PciAddress
    message: str = ""


DriverLine = XidLine | SxidLine | LostGpuLine | InitFailureLine


def parse_record(raw: bytes) -> KernelRecord | None:
    """Parse one record; `None` for a malformed record."""
    head = _HEAD.match(raw)
    if head is None:
        return None
    text = raw[head.end() :].partition(b"\n")[0]
    priority = int(head[1])
    return KernelRecord(
        sequence=int(head[2]),
        monotonic_usec=int(head[3]),
        level=priority % _LEVELS,
        facility=priority // _LEVELS,
        text=_unescape(text),
    )


def parse_driver_line(text: str) -> DriverLine | None:
    """The NVIDIA driver's report in a line; `None` for other writers' lines, or for lines of no consequence."""
    if not text.startswith(_SPEAKERS):
        return None  # nearly all of thousands of lines, and pods wait for their parsing at a start
    for pattern, build in _LINES:
        if match := pattern.match(text):
            try:
                return build(match)
            except ValueError:
                # The head looks right but holds no PCI address: the line names no device.
                return None
    return None


def _unescape(raw: bytes) -> str:
    if b"\\x" not in raw:
        return raw.decode("utf-8", "replace")
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw).decode("utf-8", "replace")


def _build_xid(match: re.Match[str]) -> XidLine:
    words = match["place"].split()
    instances = {
        name: int(number) for name, found, number in (w.partition(":") for w in words[1:]) if number.isdecimal()
    }
    number, _, rest = match["rest"].partition(",")
    message = rest.removeprefix(" ")
    if process := _PROCESS.match(message):
        message = process["message"] or ""
    return XidLine(
        address=_find_address(words),
        xid=int(number) if _XID_NUMBER.fullmatch(number.strip()) else None,
        message=message,
        gpu_instance_id=instances.get("GPU-I"),
        compute_instance_id=instances.get("GPU-CI"),
    )


def _build_sxid(match: re.Match[str]) -> SxidLine:
    message = match["message"] or ""
    link = _LINK.search(message)
    severity = message.partition(",")[0].strip().lower()
    return SxidLine(
        address=_parse_address(match["address"]),
        switch=int(match["switch"]),
        sxid=int(match["number"]),
        fatal={"fatal": True, "non-fatal": False}.get(severity),
        link=int(link[1]) if link else None,
        message=message,
    )


def _build_lost(match: re.Match[str]) -> LostGpuLine:
    address = match["address"]
    return LostGpuLine(address=_parse_address(address) if address else None, message=match["message"])


def _build_init_failure(match: re.Match[str]) -> InitFailureLine:
    return InitFailureLine(address=_parse_address(match["address"]), message=match["message"])


def _find_address(words: list[str]) -> PciAddress | None:
    try:
        return _parse_address(words[0] if words else "")
    except ValueError:
        return None


def _parse_address(text: str) -> PciAddress:
    address = text.strip().removeprefix("PCI:")
    if not _ADDRESS.fullmatch(address):
        raise ValueError(f"{address!r} is no PCI address")
    # XID lines leave the function out; every GPU's function is 0.
    return parse_pci_address(address if "." in address else f"{address}.0")


_ADDRESS = re.compile(r"(?:[0-9A-Fa-f]{1,8}:)?[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2}(?:\.[0-7])?")
_XID_NUMBER = re.compile(r"[0-9]{1,5}")
# The name is the user's choice, at most 15 characters, and may contain the very separators.
_PROCESS = re.compile(r"pid=(?:[0-9]+|'[^']*'|[^,]*)(?:, name=.{0,15}?)?(?:, (?P<message>.*))?$", re.DOTALL)
_LINK = re.compile(r"\bLink (\d{1,4})\b")
_SPEAKERS = ("NVRM: ", "nvidia-nvswitch")
"""Prefixes of all the lines below."""
_PLACE = r"(?:PCI:)?(?P<address>[0-9A-Fa-f:.]+)"

_LINES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], DriverLine]], ...] = (
    (re.compile(r"NVRM: Xid \((?P<place>[^)]*)\):(?P<rest>.*)", re.DOTALL), _build_xid),
    (
        re.compile(
            r"nvidia-nvswitch(?P<switch>\d{1,4}): SXid \((?:PCI:)?(?P<address>[^)]*)\): (?P<number>\d{1,6})"
            r"(?:, (?P<message>.*))?",
            re.DOTALL,
        ),
        _build_sxid,
    ),
    (re.compile(rf"NVRM: GPU {_PLACE}: (?P<message>GPU has fallen off the bus.*)"), _build_lost),
    (re.compile(rf"NVRM: GPU {_PLACE}: (?P<message>RmInitAdapter failed.*)"), _build_init_failure),
    (
        re.compile(
            # One record of three lines, or three records, of which only the last names the failure.
            r"NVRM: (?P<message>(?:The NVIDIA GPU (?P<address>[0-9A-Fa-f:.]+)\b.*)?"
            r"fallen off the bus and is not responding to commands.*)",
            re.DOTALL,
        ),
        _build_lost,
    ),
)

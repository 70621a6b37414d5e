"""The journal's file format, by which any damage is noticed.

One record is one line: checksum, length, JSON. The checksum covers length and text and goes on from the checksum of
the record before it, so that a flipped bit, a lost, doubled or moved line and a cut within a line are all found.
A file that ends between two records looks like a shorter history; `reconcile` finds the missing allocations.

Format 1 knew grants alone, written before the kubelet's Allocate and withdrawn by the next line where no Allocate
came: both are read. A line of a later version differs from damage by its sound checksum, as lines are sealed alike in
all formats.

Owns the format.
Refuses to mend: everything from the first damage on is left out. Refuses to take a later version's records for damage.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from nodeagent.components.allocations.ledger import FORMAT, Opened, Record
from nodeagent.components.allocations.roles.grants import Granted, GrantRecord
from nodeagent.model.values import Value


class Withdrawn(Value, frozen=True, tag="withdrawn"):
    """The grant of the line before was never asked for; read, and no longer written."""

    number: int


Line = Record | Withdrawn

_ENCODER: Final = msgspec.json.Encoder()
_FORMAT_1: Final[msgspec.json.Decoder[Line]] = msgspec.json.Decoder(Opened | GrantRecord | Withdrawn)
_FORMAT_2: Final[msgspec.json.Decoder[Line]] = msgspec.json.Decoder(Record)
_HEAD_BYTES: Final = len("00000000 00000000 ")
_REMEDY: Final = "upgrade the agent, or move the file away"


class _Head(Value, frozen=True):
    """The fields of the first record in any version."""

    type: str
    format: int


_HEAD: Final = msgspec.json.Decoder(_Head)


class Parsed(Value, frozen=True):
    """The contents of a journal file."""

    records: tuple[Record, ...]
    seal: int = 0
    """Checksum of the last record, from which the next one goes on."""
    damage: str = ""
    """The damage after these records, including an unfinished last line; empty for a sound file."""
    refusal: str = ""
    """Why the file must be left untouched: a later version wrote records unreadable for the present version."""


def encode_records(records: Sequence[Line], seal: int) -> tuple[bytes, int]:
    """The lines for the records after a line with checksum `seal`, and the last line's checksum."""
    lines: list[bytes] = []
    for record in records:
        line, seal = _encode(_ENCODER.encode(record), seal)
        lines.append(line)
    return b"".join(lines), seal


def _encode(text: bytes, seal: int) -> tuple[bytes, int]:
    sealed = b"%08x %s\n" % (len(text), text)
    checksum = zlib.crc32(sealed, seal)
    return b"%08x %s" % (checksum, sealed), checksum


class _Unusable(Exception):
    """An unusable line, by damage or from a later version."""

    def __init__(self, problem: str, *, is_newer: bool = False) -> None:
        super().__init__(problem)
        self.is_newer = is_newer


def parse_journal(content: bytes) -> Parsed:
    """The records up to the first damage, or to the first record of a later version."""
    format_read = _read_format(content)
    if format_read > FORMAT:
        return Parsed(records=(), refusal=_describe_newer(format_read))
    if not content:
        return Parsed(records=(), damage="record 1 at byte 0: it has no beginning")
    decoder = _FORMAT_2 if format_read == FORMAT else _FORMAT_1
    records: list[Record] = []
    count = position = seal = 0
    try:
        for count, line in enumerate(_lines(content), 1):
            record, checksum = _read_line(line, seal, decoder, first=count == 1)
            if not isinstance(record, Withdrawn):
                records.append(record)
            elif isinstance(records[-1], Granted) and records[-1].entry.allocation.number == record.number:
                records.pop()
            seal = checksum
            position += len(line)
    except _Unusable as unusable:
        where = f"record {count} at byte {position}: {unusable}"
        damage, refusal = ("", where) if unusable.is_newer else (where, "")
        return Parsed(records=tuple(records), seal=seal, damage=damage, refusal=refusal)
    return Parsed(records=tuple(records), seal=seal)


def _read_line(line: bytes, seal: int, decoder: msgspec.json.Decoder[Line], *, first: bool) -> tuple[Line, int]:
    """The record and checksum of a line after a line with checksum `seal`."""
    if not line.endswith(b"\n"):
        raise _Unusable("it was never finished")
    text, checksum = _unseal(line, seal)
    if text is None:
        raise _Unusable("its checksum or length is wrong")
    try:
        record = decoder.decode(text)
    except msgspec.DecodeError as error:
        if decoder is _FORMAT_1:
            raise _Unusable(f"it makes no sense: {error}") from error
        raise _Unusable(f"this version does not know it ({error}): {_REMEDY}", is_newer=True) from error
    if isinstance(record, Opened) is not first:
        raise _Unusable("it does not belong there")
    return record, checksum


def refuse_newer(content: bytes) -> str:
    """Why a journal must be left untouched, as far as the first record says; empty for a readable journal."""
    format_read = _read_format(content)
    return _describe_newer(format_read) if format_read > FORMAT else ""


def _describe_newer(format_read: int) -> str:
    return f"it has format {format_read}, and this version reads formats 1 to {FORMAT}: {_REMEDY}"


def _read_format(content: bytes) -> int:
    """The format in the first record; 0 for an unreadable record."""
    text, _ = _unseal(next(_lines(content), b""), 0)
    if text is None:
        return 0
    try:
        head = _HEAD.decode(text)
    except msgspec.DecodeError:
        return 0
    return head.format if head.type == "opened" else 0


def _unseal(line: bytes, seal: int) -> tuple[bytes | None, int]:
    """The text of a line and its checksum; no text where the line is damaged."""
    text = line[_HEAD_BYTES:-1]
    expected, checksum = _encode(text, seal)
    return (text if line == expected else None), checksum


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines with their ends, split at line feeds alone."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start) + 1 or len(content)
        yield content[start:end]
        start = end

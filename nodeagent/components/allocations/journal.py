"""How records are written down, so that any damage is noticed.

One record is one line: checksum, length, JSON. The checksum covers length and text and goes on from the checksum of
the record before it, so that a flipped bit, a lost, doubled or moved line and a cut within a line are all found.
A file that ends between two records cannot be told from a shorter history; what it lacks is found by `reconcile`.

An earlier version wrote grants before they were asked for, and withdrew by the next line what was not: that is read.

Owns the format.
Refuses to mend: everything from the first damage on is left out.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from nodeagent.components.allocations.ledger import FORMAT, Granted, Opened, Record
from nodeagent.model.values import Value


class Withdrawn(Value, frozen=True, tag="withdrawn"):
    """The grant of the line before was never asked for; read, and no longer written."""

    number: int


Line = Record | Withdrawn

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Line)
_HEAD_BYTES: Final = len("00000000 00000000 ")


class Parsed(Value, frozen=True):
    """What a journal file holds."""

    records: tuple[Record, ...]
    seal: int = 0
    """Checksum of the last record, from which the next one goes on."""
    damage: str = ""
    """What is wrong with the rest of it, a last line that was never finished included; empty for a sound file."""


def encode_records(records: Sequence[Line], seal: int) -> tuple[bytes, int]:
    """The lines for these records after one with this checksum, and the checksum of the last."""
    lines: list[bytes] = []
    for record in records:
        line, seal = _encode(_ENCODER.encode(record), seal)
        lines.append(line)
    return b"".join(lines), seal


def _encode(text: bytes, seal: int) -> tuple[bytes, int]:
    sealed = b"%08x %s\n" % (len(text), text)
    checksum = zlib.crc32(sealed, seal)
    return b"%08x %s" % (checksum, sealed), checksum


def parse_journal(content: bytes) -> Parsed:
    """The records up to the first damage."""
    records: list[Record] = []
    seal = 0
    position = 0
    for count, line in enumerate(_lines(content), 1):
        if not line.endswith(b"\n"):
            return _damaged(records, count, seal, position, "it was never finished")
        text = line[_HEAD_BYTES:-1]
        expected, checksum = _encode(text, seal)
        if line != expected:
            return _damaged(records, count, seal, position, "its checksum or length is wrong")
        try:
            record = _DECODER.decode(text)
        except msgspec.DecodeError as error:
            return _damaged(records, count, seal, position, f"it makes no sense: {error}")
        problem = _find_misplaced(record, first=count == 1)
        if problem:
            return _damaged(records, count, seal, position, problem)
        if not isinstance(record, Withdrawn):
            records.append(record)
        elif isinstance(records[-1], Granted) and records[-1].entry.allocation.number == record.number:
            records.pop()
        seal = checksum
        position += len(line)
    if not records:
        return _damaged(records, 1, seal, 0, "it has no beginning")
    return Parsed(records=tuple(records), seal=seal)


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines with their ends, split at line feeds alone."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start) + 1 or len(content)
        yield content[start:end]
        start = end


def _find_misplaced(record: Line, *, first: bool) -> str:
    if isinstance(record, Opened) is not first:
        return "it does not belong there"
    if isinstance(record, Opened) and record.format > FORMAT:
        return f"format {record.format} is newer than {FORMAT}, the newest known here"
    return ""


def _damaged(records: Sequence[Record], count: int, seal: int, position: int, problem: str) -> Parsed:
    damage = f"record {count} at byte {position}: {problem}"
    return Parsed(records=tuple(records), seal=seal, damage=damage)

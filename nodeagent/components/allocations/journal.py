"""How records are written down, so that any damage is noticed.

One record is one line: checksum, length, JSON. The checksum covers length and text and goes on from the checksum of
the record before it, so that a flipped bit, a lost, doubled or moved line and a cut within a line are all found.
A file that ends between two records cannot be told from a shorter history; what it lacks is found by `reconcile`.

Owns the format.
Refuses to mend: everything from the first damage on is left out.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from nodeagent.components.allocations.ledger import FORMAT, Opened, Record
from nodeagent.model.values import Value

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Record)
_HEAD_BYTES: Final = len("00000000 00000000 ")


class Parsed(Value, frozen=True):
    """What a journal file holds."""

    records: tuple[Record, ...]
    seal: int = 0
    """Checksum of the last record, from which the next one goes on."""
    damage: str = ""
    """What is wrong with the rest of it, a last line that was never finished included; empty for a sound file."""


def encode_records(records: Sequence[Record], seal: int) -> tuple[bytes, int]:
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
    for line in _lines(content):
        if not line.endswith(b"\n"):
            return _damaged(records, seal, position, "it was never finished")
        text = line[_HEAD_BYTES:-1]
        expected, checksum = _encode(text, seal)
        if line != expected:
            return _damaged(records, seal, position, "its checksum or length is wrong")
        try:
            record = _DECODER.decode(text)
        except msgspec.DecodeError as error:
            return _damaged(records, seal, position, f"it makes no sense: {error}")
        problem = _find_misplaced(record, first=not records)
        if problem:
            return _damaged(records, seal, position, problem)
        records.append(record)
        seal = checksum
        position += len(line)
    if not records:
        return _damaged(records, seal, 0, "it has no beginning")
    return Parsed(records=tuple(records), seal=seal)


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines with their ends, split at line feeds alone."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start) + 1 or len(content)
        yield content[start:end]
        start = end


def _find_misplaced(record: Record, *, first: bool) -> str:
    if isinstance(record, Opened) is not first:
        return "it does not belong there"
    if isinstance(record, Opened) and record.format > FORMAT:
        return f"format {record.format} is newer than {FORMAT}, the newest known here"
    return ""


def _damaged(records: Sequence[Record], seal: int, position: int, problem: str) -> Parsed:
    damage = f"record {len(records) + 1} at byte {position}: {problem}"
    return Parsed(records=tuple(records), seal=seal, damage=damage)

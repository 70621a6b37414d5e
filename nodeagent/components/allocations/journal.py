"""How records are written down, so that any damage is noticed.

One record is one line: checksum, length, JSON. The checksum covers length and text and goes on from the checksum of
the record before it, so that a flipped bit, a lost, doubled or moved line and a cut within a line are all found.
A file that ends between two records cannot be told from a shorter history; what it lacks is found by `reconcile`.

Owns the format.
Refuses to mend: everything from the first damage on is left out.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from nodeagent.components.allocations.ledger import FORMAT, Granted, Opened, Record
from nodeagent.model.values import Value


class Withdrawn(Value, frozen=True, tag="withdrawn"):
    """Nobody asked for what the line before granted: it was given to nobody, and who held the devices holds them."""

    number: int


Line = Record | Withdrawn
"""What may stand in a line."""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Line)
_HEAD_BYTES: Final = len("00000000 00000000 ")


class Parsed(Value, frozen=True):
    """What a journal file holds."""

    records: tuple[Record, ...]
    """What its lines come to."""
    seal: int = 0
    """Checksum of the last record, from which the next one goes on."""
    damage: str = ""
    """What is wrong with the rest of it, a last line that was never finished included; empty for a sound file."""


def settle(lines: Iterable[Line]) -> Iterator[Record]:
    """What lines come to. A grant that ends its journal stands: the kubelet may have been answered."""
    granted: Granted | None = None
    for line in lines:
        if granted is not None and line != Withdrawn(number=granted.entry.allocation.number):
            yield granted
        granted = line if isinstance(line, Granted) else None
        if not isinstance(line, Granted | Withdrawn):
            yield line
    if granted is not None:
        yield granted


def encode_lines(lines: Sequence[Line], seal: int) -> tuple[bytes, int]:
    """How these are written down after a line with this checksum, and the checksum of the last."""
    written: list[bytes] = []
    for line in lines:
        text, seal = _encode(_ENCODER.encode(line), seal)
        written.append(text)
    return b"".join(written), seal


def _encode(text: bytes, seal: int) -> tuple[bytes, int]:
    sealed = b"%08x %s\n" % (len(text), text)
    checksum = zlib.crc32(sealed, seal)
    return b"%08x %s" % (checksum, sealed), checksum


def parse_journal(content: bytes) -> Parsed:
    """What it holds up to the first damage."""
    read: list[Line] = []
    seal = 0
    position = 0
    for line in _lines(content):
        if not line.endswith(b"\n"):
            return _damaged(read, seal, position, "it was never finished")
        text = line[_HEAD_BYTES:-1]
        expected, checksum = _encode(text, seal)
        if line != expected:
            return _damaged(read, seal, position, "its checksum or length is wrong")
        try:
            record = _DECODER.decode(text)
        except msgspec.DecodeError as error:
            return _damaged(read, seal, position, f"it makes no sense: {error}")
        problem = _find_misplaced(record, first=not read)
        if problem:
            return _damaged(read, seal, position, problem)
        read.append(record)
        seal = checksum
        position += len(line)
    if not read:
        return _damaged(read, seal, 0, "it has no beginning")
    return Parsed(records=tuple(settle(read)), seal=seal)


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


def _damaged(read: Sequence[Line], seal: int, position: int, problem: str) -> Parsed:
    damage = f"record {len(read) + 1} at byte {position}: {problem}"
    return Parsed(records=tuple(settle(read)), seal=seal, damage=damage)

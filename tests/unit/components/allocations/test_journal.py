"""How records are written, and what damage does."""

import zlib

import pytest

from nodeagent.components.allocations.journal_format import (
    Line,
    Withdrawn,
    encode_records,
    parse_journal,
    refuse_newer,
)
from nodeagent.components.allocations.ledger import Opened, Record
from nodeagent.components.allocations.roles.grants import Forgotten, Freed
from tests.support.allocations import granted

RECORDS: list[Record] = [
    Opened(machine="m", boot="b"),
    granted(1, "ab"),
    Freed(number=1, at_seconds=2.5, why="given back"),
    granted(2, "c"),
]

FIRST = Opened(format=1)
"""What the version before began a journal with."""


def lines(records: list[Record]) -> list[bytes]:
    return encode_records(records, 0)[0].splitlines(keepends=True)


def test_what_is_written_is_read() -> None:
    """The records come back with the checksum that the next one goes on from."""
    content, seal = encode_records(RECORDS, 0)
    parsed = parse_journal(content)
    assert (list(parsed.records), parsed.seal, parsed.damage) == (RECORDS, seal, "")


def test_appending_goes_on_from_the_last_checksum() -> None:
    """Writing in two steps gives the same bytes as writing at once."""
    first, seal = encode_records(RECORDS[:2], 0)
    second, _ = encode_records(RECORDS[2:], seal)
    assert first + second == encode_records(RECORDS, 0)[0]


def test_every_cut_is_noticed_or_is_an_earlier_state() -> None:
    """However many bytes are missing at the end, whole records before the cut are used, and half ones are damage."""
    content = encode_records(RECORDS, 0)[0]
    ends = [0]
    for line in lines(RECORDS):
        ends.append(ends[-1] + len(line))
    for length in range(len(content)):
        parsed = parse_journal(content[:length])
        whole = sum(end <= length for end in ends) - 1
        assert list(parsed.records) == RECORDS[:whole]
        assert bool(parsed.damage) == (length not in ends[1:])


def test_every_flipped_bit_is_noticed() -> None:
    """No single flipped bit is read as a record; the records before it are used."""
    content = encode_records(RECORDS, 0)[0]
    for position in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            parsed = parse_journal(bytes(flipped))
            assert parsed.damage
            assert list(parsed.records) == RECORDS[: content[:position].count(b"\n")]


@pytest.mark.parametrize(
    ("change", "intact"),
    [
        (lambda found: [found[0], found[2], found[3]], 1),
        (lambda found: [found[0], found[1], found[1], found[2]], 2),
        (lambda found: [found[0], found[2], found[1], found[3]], 1),
        (lambda found: [found[1], found[0]], 0),
        (lambda found: [*found, b"\n"], 4),
        (lambda found: [*found, b"\0" * 512], 4),
        (lambda found: [*found, *found], 4),
        (lambda found: [], 0),
    ],
)
def test_lost_doubled_and_moved_records_are_noticed(change: object, intact: int) -> None:
    """Each record is sealed to the one before it, so that whole lines cannot go missing or move unseen."""
    assert callable(change)
    parsed = parse_journal(b"".join(change(lines(RECORDS))))
    assert parsed.damage
    assert list(parsed.records) == RECORDS[:intact]


def sealed(text: bytes, seal: int = 0) -> bytes:
    body = b"%08x %s\n" % (len(text), text)
    return b"%08x %s" % (zlib.crc32(body, seal), body)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (encode_records([Forgotten(number=1)], 0)[0], "does not belong there"),
        (encode_records([Opened(), Opened()], 0)[0], "record 2 at byte"),
        (sealed(b'{"type":"opened","format":"x"}'), "makes no sense"),
        (sealed(b'{"type":"renamed"}'), "makes no sense"),
        (b"", "no beginning"),
    ],
)
def test_what_makes_no_sense_is_damage(content: bytes, words: str) -> None:
    """A sound line that this version cannot use is named, not guessed at."""
    assert words in parse_journal(content).damage


@pytest.mark.parametrize(
    ("read", "records"),
    [
        ([granted(1, "a")], [granted(1, "a")]),
        ([granted(1, "a"), Withdrawn(number=1)], []),
        ([granted(1, "a"), Withdrawn(number=1), granted(1, "b")], [granted(1, "b")]),
        ([granted(1, "a"), granted(2, "b"), Withdrawn(number=2)], [granted(1, "a")]),
        ([granted(1, "a"), Forgotten(number=1), Withdrawn(number=1)], [granted(1, "a"), Forgotten(number=1)]),
        ([granted(1, "a"), Withdrawn(number=2)], [granted(1, "a")]),
        ([Withdrawn(number=1)], []),
    ],
    ids=["stands", "withdrawn", "another instead", "the last only", "too late", "of another number", "of nothing"],
)
def test_a_grant_that_an_earlier_version_withdrew_never_was(read: list[Line], records: list[Record]) -> None:
    """That version wrote grants before they were asked for; what the next line does not take back stands."""
    content, seal = encode_records([FIRST, *read], 0)
    parsed = parse_journal(content)
    assert (list(parsed.records), parsed.seal, parsed.damage) == ([FIRST, *records], seal, "")


def test_damage_after_a_withdrawn_grant_is_named_by_its_line() -> None:
    """Lines are counted as they are in the file."""
    content, _ = encode_records([FIRST, granted(1, "a"), Withdrawn(number=1)], 0)
    parsed = parse_journal(content + b"torn")
    assert parsed.records == (FIRST,)
    assert "record 4 at byte" in parsed.damage


def test_fields_of_a_later_version_are_ignored() -> None:
    """A record with more fields than known here is read for those that are."""
    text = b'{"type":"opened","format":2,"machine":"m","colour":"green"}'
    assert parse_journal(sealed(text)).records == (Opened(machine="m"),)


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"opened","format":3}',
        b'{"type":"opened","format":3,"entries":"elsewhere","machine":7}',
        b'{"format":1000,"type":"opened"}',
    ],
)
def test_a_newer_format_is_refused_whatever_else_it_says(text: bytes) -> None:
    """It is no damage: only what every version understands of the first record is looked at."""
    parsed = parse_journal(sealed(text) + b"and what this version knows nothing of\n")
    assert (parsed.records, parsed.damage) == ((), "")
    number = 1000 if b"1000" in text else 3
    remedy = "upgrade the agent, or move the file away"
    assert parsed.refusal == f"it has format {number}, and this version reads formats 1 to 2: {remedy}"
    assert refuse_newer(sealed(text)) == parsed.refusal


@pytest.mark.parametrize("content", [b"", b"garbage\n", sealed(b"[]"), *lines(RECORDS)[:2], lines([FIRST])[0]])
def test_what_is_not_newer_is_not_refused(content: bytes) -> None:
    """Where the first record cannot be trusted the journal is damaged, and that is told by `parse_journal`."""
    assert refuse_newer(content) == ""


@pytest.mark.parametrize("record", [b'{"type":"renamed"}', b'{"type":"reserved"}', b'{"type":"withdrawn","number":1}'])
def test_a_sound_record_that_is_not_known_is_refused(record: bytes) -> None:
    """A disk does not make sound lines: another version wrote it, and it may not be thrown away as damage."""
    content, seal = encode_records(RECORDS, 0)
    parsed = parse_journal(content + sealed(record, seal) + b"torn")
    assert (list(parsed.records), parsed.damage) == (RECORDS, "")
    assert parsed.refusal.startswith(f"record 5 at byte {len(content)}: this version does not know it (")
    assert parsed.refusal.endswith("): upgrade the agent, or move the file away")


@pytest.mark.parametrize(
    "record", [b'{"type":"renamed"}', b'{"type":"settled","number":1,"at_seconds":0,"outcome":""}']
)
def test_the_old_format_has_no_new_records(record: bytes) -> None:
    """No version ever wrote such a journal."""
    content, seal = encode_records([FIRST], 0)
    parsed = parse_journal(content + sealed(record, seal))
    assert parsed.refusal == ""
    assert "record 2 at byte" in parsed.damage
    assert "makes no sense" in parsed.damage

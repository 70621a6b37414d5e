"""A damaged journal at the start of an agent, in every way a file can be damaged a little."""

import random

import pytest

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Ledger, Opened, Record, replay
from nodeagent.components.allocations.recovery import Found, recover_ledger
from nodeagent.components.allocations.roles.grants import Freed, Identified
from tests.support.allocations import granted, pod_named

RECORDS: list[Record] = [
    Opened(machine="machine", boot="boot"),
    granted(1, "ab"),
    Identified(number=1, pod=pod_named("train"), container="main", seen_by="now"),
    granted(2, "c"),
    Freed(number=1, at_seconds=3.0, why="given back"),
    granted(3, "ad"),
]
PREVIOUS = encode_records([Opened(machine="machine", boot="boot"), granted(9, "z")], 0)[0]
STATES = [replay(RECORDS[:length], 10) for length in range(len(RECORDS) + 1)]
CONTENT = encode_records(RECORDS, 0)[0]


def recover(content: bytes) -> tuple[Ledger, bool]:
    recovered = recover_ledger(Found(current=content, previous=PREVIOUS), "machine", "boot", 10)
    assert recovered.set_aside is bool(recovered.damage)
    return recovered.ledger, bool(recovered.damage)


def states_before(position: int) -> Ledger:
    """The state of the records that end before this byte; of the journal before where there are none."""
    whole = CONTENT[:position].count(b"\n")
    return STATES[whole] if whole else replay([Opened(machine="machine", boot="boot"), granted(9, "z")], 10)


def test_every_length_gives_the_state_before_the_cut() -> None:
    """However much of the end is missing, the records before it count, and half a record is noticed."""
    for length in range(len(CONTENT)):
        ledger, damaged = recover(CONTENT[:length])
        assert ledger == states_before(length)
        assert damaged == (length == 0 or not CONTENT[:length].endswith(b"\n"))


def test_every_flipped_bit_gives_the_state_before_it() -> None:
    """Whichever bit of the file is wrong, the records before it count, and the damage is noticed."""
    for position in range(len(CONTENT)):
        for bit in range(8):
            flipped = bytearray(CONTENT)
            flipped[position] ^= 1 << bit
            assert recover(bytes(flipped)) == (states_before(position), True)


def mutate(chance: random.Random) -> bytes:
    """Some bytes changed, removed, doubled or zeroed somewhere."""
    content = bytearray(CONTENT)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(content))
        end = min(len(content), start + chance.randint(1, 64))
        match chance.randrange(4):
            case 0:
                content[start:end] = chance.randbytes(end - start)
            case 1:
                del content[start:end]
            case 2:
                content[start:start] = content[start:end]
            case _:
                content[start:end] = bytes(end - start)
        if not content:
            break
    return bytes(content)


def check_mutations(count: int) -> None:
    chance = random.Random(count)
    before = states_before(0)
    for _ in range(count):
        ledger, _ = recover(mutate(chance))
        assert ledger in STATES[1:] or ledger == before


def test_random_damage_never_invents_a_state() -> None:
    """Whatever happened to the file, what is used is a state that once was."""
    check_mutations(3_000)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_much_random_damage_never_invents_a_state() -> None:
    check_mutations(100_000)

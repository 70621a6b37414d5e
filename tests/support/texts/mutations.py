"""Damage for fuzzing: good inputs cut, spliced and overwritten at random, a thousand times cheaper than by strategies.

The same seed gives the same inputs, so that a failure is repeated by its number.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random

_NUMBERS = (0, 1, 7, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_MOST_MUTATIONS = 4
_LONGEST = 8192


def list_mutations(seeds: Sequence[bytes], words: Sequence[bytes], *, count: int, seed: int) -> Iterator[bytes]:
    """So many damaged inputs, made of good ones and of words that mean something to who reads them."""
    random = Random(seed)
    for _ in range(count):
        content = random.choice(seeds)
        for _ in range(random.randint(1, _MOST_MUTATIONS)):
            content = random.choice(_MUTATIONS)(content, random, seeds, words)
        yield content[:_LONGEST]


def _cut(content: bytes, random: Random, _seeds: Sequence[bytes], _words: Sequence[bytes]) -> bytes:
    return content[: random.randint(0, len(content))]


def _flip(content: bytes, random: Random, _seeds: Sequence[bytes], _words: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(content))
    return content[:at] + bytes([random.randrange(256)]) + content[at + 1 :]


def _put_number(content: bytes, random: Random, _seeds: Sequence[bytes], _words: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(content)) // 4 * 4
    return content[:at] + struct.pack("<I", random.choice(_NUMBERS)) + content[at + 4 :]


def _insert(content: bytes, random: Random, _seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(content))
    return content[:at] + random.choice(words) + content[at:]


def _drop_line(content: bytes, random: Random, _seeds: Sequence[bytes], _words: Sequence[bytes]) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[random.randrange(len(lines) + 1) : random.randrange(len(lines) + 1)]
    return b"".join(lines)


def _insert_line(content: bytes, random: Random, _seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    lines = content.splitlines(keepends=True)
    lines.insert(random.randint(0, len(lines)), random.choice(words) + b"\n")
    return b"".join(lines)


def _swap_lines(content: bytes, random: Random, _seeds: Sequence[bytes], _words: Sequence[bytes]) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _splice(content: bytes, random: Random, seeds: Sequence[bytes], _words: Sequence[bytes]) -> bytes:
    other = random.choice(seeds)
    return content[: random.randint(0, len(content))] + other[random.randint(0, len(other)) :]


_MUTATIONS: Sequence[Callable[[bytes, Random, Sequence[bytes], Sequence[bytes]], bytes]] = (
    _cut,
    _flip,
    _put_number,
    _insert,
    # Whole lines oftener: what is no document any more is refused at once, and tries little.
    *(_drop_line, _insert_line, _swap_lines) * 3,
    _splice,
)

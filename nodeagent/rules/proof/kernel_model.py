"""The right results of the prover's kernels, computed by the CPU.

Owns the arithmetic of `edge/cuda/kernels.ptx`, in integers alone, so that the results are the same on every GPU.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

from nodeagent.model.values import Value

THREADS: Final = 128
"""The threads of a block of the checksum."""
_LANES: Final = 32
_FACTOR: Final = 0x9E3779B97F4A7C15
_FIRST_FACTOR, _SECOND_FACTOR = 0x9E3779B1, 0x85EBCA77
_MULTIPLIER, _INCREMENT = 1664525, 1013904223
_LOW: Final = (1 << 32) - 1
_ALL: Final = (1 << 64) - 1


class BlockSums(Value, frozen=True):
    """The sums of a block of the checksum; all blocks have the same."""

    plain: int
    weighted: int
    """Each round's sum times the number of the round, so that two errors do not cancel out."""
    tensor: int
    """The products of the tensor cores."""


def compute_word(index: int, seed: int, mask: int) -> int:
    """The word of the pattern at an index."""
    word = (index + seed) * _FACTOR & _ALL
    return word ^ word >> 32 ^ mask


@cache
def compute_sums(turns: int, rounds: int, seed: int) -> BlockSums:
    """The sums of a block."""
    one = sum(_compute_thread(thread + seed & _LOW, turns) for thread in range(THREADS))
    tensor = sum(
        rounds * product & _LOW
        for first in range(0, THREADS, _LANES)
        for product in _multiply(range(first + seed, first + seed + _LANES))
    )
    return BlockSums(
        plain=one * rounds & _ALL,
        weighted=one * (rounds * (rounds + 1) // 2) & _ALL,
        tensor=tensor & _ALL,
    )


def _compute_thread(x: int, turns: int) -> int:
    y = 0
    for _ in range(turns):
        x = x * _MULTIPLIER + _INCREMENT & _LOW
        y = (y << 5 | y >> 27) & _LOW ^ x
    return x << 32 | y


def _multiply(lanes: Sequence[int]) -> list[int]:
    """The products of a warp: row r by column c, of the bytes of four lanes each, with sign."""
    rows = _join([lane * _FIRST_FACTOR & _LOW for lane in lanes])
    columns = _join([lane * _SECOND_FACTOR & _LOW for lane in lanes])
    return [sum(left * right for left, right in zip(row, column, strict=True)) for row in rows for column in columns]


def _join(words: Sequence[int]) -> list[list[int]]:
    """Eight vectors of 16 bytes with sign: four lanes side by side hold one."""
    signed = [list(memoryview(word.to_bytes(4, "little")).cast("b")) for word in words]
    return [[byte for word in signed[first : first + 4] for byte in word] for first in range(0, _LANES, 4)]

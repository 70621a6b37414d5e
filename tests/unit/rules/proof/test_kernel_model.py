"""The CPU's model of the kernels, and the kernels' own text, run step by step."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.edge.cuda.device import KERNELS
from nodeagent.rules.proof.kernel_model import THREADS, compute_sums, compute_word
from tests.support.examples import examples
from tests.unit.rules.proof.ptx_machine import Machine

TEXT = Path(KERNELS).read_text()
ALL = (1 << 64) - 1
BASE, FOUND = 0x10000, 0x100


@pytest.mark.parametrize("mask", [0, ALL])
def test_the_pattern_is_written_and_compared_as_the_model_says(mask: int) -> None:
    """By few threads and by more than there are words."""
    for blocks, threads in ((2, 3), (4, 32)):
        machine = Machine(TEXT)
        machine.launch("fill_pattern", blocks, threads, BASE, 20, 7, mask)
        assert machine.memory == {BASE + 8 * at: compute_word(at, 7, mask) for at in range(40)}
        machine.memory |= {FOUND: 0, FOUND + 8: ALL}
        machine.launch("check_pattern", blocks, threads, BASE, 20, 7, mask, FOUND)
        assert (machine.memory[FOUND], machine.memory[FOUND + 8]) == (0, ALL)
        for wrong in (13, 30, 38):
            machine.memory[BASE + 8 * wrong] ^= 1 << 40
        machine.launch("check_pattern", blocks, threads, BASE, 20, 7, mask, FOUND)
        assert (machine.memory[FOUND], machine.memory[FOUND + 8]) == (3, 13)


def test_each_block_leaves_the_sums_of_the_model() -> None:
    """With the multiprocessor first, and clocks and nanoseconds last."""
    machine = Machine(TEXT, sm=5)
    machine.launch("checksum", 2, THREADS, BASE, 3, 4, 9)
    sums = compute_sums(3, 4, 9)
    for block in range(2):
        words = [machine.memory[BASE + 48 * block + 8 * at] for at in range(6)]
        assert words[:4] == [5, sums.plain, sums.weighted, sums.tensor]
        assert all(word > 0 for word in words[4:])


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 32))
@settings(max_examples=examples(50))
def test_neighbouring_words_differ_in_many_bits(index: int, seed: int) -> None:
    """A word in a neighbour's place is seen, and the inverse differs in every bit."""
    word = compute_word(index, seed, 0)
    assert (word ^ compute_word(index + 1, seed, 0)).bit_count() > 8
    assert word ^ compute_word(index, seed, ALL) == ALL


def test_rounds_and_seeds_change_the_sums() -> None:
    """And products wrap at 32 bits, as the tensor cores' do."""
    one, two = compute_sums(3, 1, 9), compute_sums(3, 2, 9)
    assert (two.plain, two.weighted) == (one.plain * 2 & ALL, one.plain * 3 & ALL)
    assert two.tensor != one.tensor
    assert compute_sums(3, 1, 10) != one
    assert compute_sums(4, 1, 9).plain != one.plain

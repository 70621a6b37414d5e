"""What a client may use, of a share and of a claim."""

import pytest
from msgspec.structs import replace

from nodeagent.model.errors import MpsRefused
from nodeagent.model.mps import MpsLimits
from nodeagent.rules.mps.limits import MIB, find_most_replicas, resolve_limits
from tests.support.gpus import gpu_uuid, make_gpu

A, B = gpu_uuid(0), gpu_uuid(1)


@pytest.mark.parametrize(("capability", "most"), [((7, 0), 16), ((7, 5), 48), ((9, 0), 48), (None, 48)])
def test_boards_before_turing_serve_fewer_clients(capability: tuple[int, int] | None, most: int) -> None:
    """Of a board that does not tell, nobody can say that it is old."""
    assert find_most_replicas(replace(make_gpu(0), compute_capability=capability)) == most


def test_a_claim_that_asks_for_nothing_has_no_limits() -> None:
    """The daemon's own defaults hold then."""
    assert resolve_limits((A, B)) == MpsLimits()


def test_limits_of_one_gpu_outrank_those_of_all() -> None:
    """Named by UUID, or by place among the sorted UUIDs, whatever the order in which they came."""
    resolved = resolve_limits((B, A), 50, 10 * MIB + 7, {"0": 20 * MIB})
    assert resolved == MpsLimits(thread_percentage=50, memory_mib={A: 20, B: 10})
    assert resolve_limits((A, B), None, None, {B: 5 * MIB}) == MpsLimits(memory_mib={B: 5})


@pytest.mark.parametrize(
    ("percentage", "memory", "by_gpu", "said"),
    [
        (101, None, None, "give 0 to 100"),
        (-1, None, None, "give 0 to 100"),
        (None, MIB - 1, None, "give 1Mi at least"),
        (None, None, {"1": 7}, r"defaultPerDevicePinnedMemoryLimit\[1\] is 7 bytes"),
        (None, None, {"2": MIB}, "from 0 to 1"),
        (None, None, {"GPU-other": MIB}, "GPU-other"),
        (None, None, {"²": MIB}, "²"),
        (None, None, {"9" * 5000: MIB}, "names '9{60}': give"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_name(
    percentage: int | None, memory: int | None, by_gpu: dict[str, int] | None, said: str
) -> None:
    """Each says what to write instead."""
    with pytest.raises(MpsRefused, match=said):
        resolve_limits((A, B), percentage, memory, by_gpu)

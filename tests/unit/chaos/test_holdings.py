"""Who has what of which GPU: what must not be is found, and what is allowed is not taken for it."""

import pytest

from tests.chaos.holdings import Holding, Holdings, find_part_faults
from tests.chaos.truth import Violated

ALL = 1000


def test_a_gpu_behind_two_doors_is_a_violation() -> None:
    """Whoever came first; by one door there may be several."""
    held = Holdings(ALL)
    held.take("a", Holding("fractions", 4, cores=30, memory_bytes=300))
    held.take("b", Holding("fractions", 4, cores=30, memory_bytes=300))
    with pytest.raises(Violated, match=r"GPU 4 was given to c \(claims\), and a has it \(fractions\)"):
        held.take("c", Holding("claims", 4, device="gpu-4"))
    assert held.list_of(4) == ("a", "b")


@pytest.mark.parametrize(("cores", "memory_bytes"), [(71, 1), (1, 701)])
def test_more_than_a_gpu_has_is_a_violation(cores: int, memory_bytes: int) -> None:
    held = Holdings(ALL)
    held.take("a", Holding("fractions", 4, cores=30, memory_bytes=300))
    with pytest.raises(Violated, match="of GPU 4 are given"):
        held.take("b", Holding("fractions", 4, cores=cores, memory_bytes=memory_bytes))


@pytest.mark.parametrize("mine", [Holding("claims", 6, device="gpu-6"), Holding("claims", 6, cores=1, memory_bytes=1)])
def test_a_gpu_that_a_claim_has_is_nobody_elses(mine: Holding) -> None:
    """Neither all of it nor a share; the same claim may be asked for again, and what was given back is free."""
    held = Holdings(ALL)
    first = Holding("claims", 6, device="gpu-6")
    held.take("a", first)
    held.take("a", first)
    with pytest.raises(Violated, match="of GPU 6, which a has"):
        held.take("b", mine)
    held = Holdings(ALL)
    held.take("a", first)
    held.give_back("a")
    held.take("b", mine)
    assert list(held.all()) == ["b"]


def test_devices_of_one_gpu_may_have_different_holders() -> None:
    held = Holdings(ALL)
    held.take("a", Holding("whole", 0, device="MIG-1"))
    held.take("b", Holding("whole", 0, device="MIG-2"))
    with pytest.raises(Violated, match="c was given MIG-1 of GPU 0, which a has"):
        held.take("c", Holding("whole", 0, device="MIG-1"))


def bind(uid: str, gpu: str, cores: int, memory_bytes: int) -> dict[str, object]:
    return {"pod": {"uid": uid}, "parts": [{"gpu": gpu, "cores": cores, "memory_bytes": memory_bytes}]}


def test_parts_that_the_agent_has_lost_doubled_or_promised_twice_are_found() -> None:
    """And those of a pod that is gone are no fault yet."""
    held = {"u": Holding("fractions", 4, cores=30, memory_bytes=300)}
    uuids = {4: "GPU-4"}
    right = bind("u", "GPU-4", 30, 300)
    assert find_part_faults([right, bind("gone", "GPU-4", 10, 10)], held, uuids, ALL) == []
    for wrong in ([], [right, right], [bind("u", "GPU-5", 30, 300)], [bind("u", "GPU-4", 31, 300)]):
        (fault,) = find_part_faults(wrong, held, uuids, ALL)
        assert fault.startswith("pod u has Holding")
    (fault,) = find_part_faults([right, bind("x", "GPU-4", 71, 1)], held, uuids, ALL)
    assert fault == "GPU-4 is promised 101 cores and 301 bytes"

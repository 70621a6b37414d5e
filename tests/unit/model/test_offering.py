"""The state of doors, as people and parts read it."""

import pytest

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder, Offering
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.samples import make_address


def holder(name: str, container: str = "c") -> ModeHolder:
    return ModeHolder(
        door=AllocationMode.WHOLE, name="allocation 1", pod=PodIdentity(namespace="ns", name=name), container=container
    )


def door(
    index: int, *waits_for: ModeHolder, is_open: bool = True, now: AllocationMode = AllocationMode.WHOLE
) -> GpuAllocationMode:
    return GpuAllocationMode(
        gpu=gpu_uuid(index),
        index=index,
        address=make_address(index),
        door=now,
        wanted=AllocationMode.FRACTIONS if waits_for else now,
        reason="the default",
        is_open=is_open,
        waits_for=waits_for,
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (door(3), "GPU 3: door whole (the default)"),
        (door(3, holder("a")), "GPU 3: door whole until ns/a (c) is gone, then fractions (the default)"),
        (
            door(3, holder("a"), holder("b", ""), is_open=False),
            (
                "GPU 3: door whole until ns/a (c) and ns/b are gone, then fractions (the default);"
                " nobody new gets it until then"
            ),
        ),
        (
            door(3, *(holder(name) for name in "abcdef")),
            (
                "GPU 3: door whole until ns/a (c), ns/b (c), ns/c (c), ns/d (c) and 2 more are gone,"
                " then fractions (the default)"
            ),
        ),
        (door(3, holder("a"), holder("a")), "GPU 3: door whole until ns/a (c) is gone, then fractions (the default)"),
        (
            door(3, ModeHolder(door=AllocationMode.WHOLE, name="allocation 12")),
            "GPU 3: door whole until allocation 12 is gone, then fractions (the default)",
        ),
    ],
)
def test_a_door_is_told_in_a_sentence(state: GpuAllocationMode, expected: str) -> None:
    assert state.describe() == expected


def test_parts_ask_for_the_gpus_of_their_door() -> None:
    """Those that somebody new can get, and those whose users are theirs."""
    offering = Offering(doors=(door(0), door(1, is_open=False), door(2, now=AllocationMode.FRACTIONS)))
    assert offering.list_open(AllocationMode.WHOLE) == {gpu_uuid(0)}
    assert offering.list_behind(AllocationMode.WHOLE) == {gpu_uuid(0), gpu_uuid(1)}
    assert offering.list_behind(AllocationMode.CLAIMS) == frozenset()


def test_what_is_not_open_is_closed_for_a_reason() -> None:
    """Of those of other doors, of those that wait, and of those of which nothing is known yet."""
    offering = Offering(
        doors=(door(0), door(1, holder("a"), is_open=False), door(2, now=AllocationMode.NONE, is_open=False))
    )
    closed = offering.list_closed([make_gpu(index) for index in range(4)], AllocationMode.WHOLE)
    assert closed == {
        gpu_uuid(1): "door whole until ns/a (c) is gone, then fractions (the default); nobody new gets it until then",
        gpu_uuid(2): "door none (the default)",
        gpu_uuid(3): "its door is not known yet",
    }
    assert offering.list_waiting() == {gpu_uuid(1)}

"""Laws of the brake, for any course of starts, ends, faults and refusals."""

from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.ids import GpuUuid
from nodeagent.rules.brake import PAUSE_LIMIT_SECONDS, find_pause
from nodeagent.rules.signals import CRITICAL_XIDS
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid
from tests.unit.rules.test_brake import SETTINGS, WITHIN, Story, half_open

GPUS = st.integers(0, 3).map(gpu_uuid)
INNOCENT = (None, *(number for number in range(1, 200) if number not in CRITICAL_XIDS))
Step: TypeAlias = tuple[str, GpuUuid, int, int]
STEPS = st.tuples(
    st.sampled_from(["start", "end", "fault", "refuse", "wait"]),
    GPUS,
    st.sampled_from(sorted(CRITICAL_XIDS)),
    st.integers(0, 400),
)


def take(story: Story, step: Step, number: int) -> None:
    kind, gpu, xid, amount = step
    if kind == "start":
        story.start(f"p{number}", gpu)
    elif kind == "end" and story.present:
        story.end(list(story.present)[amount % len(story.present)])
    elif kind == "fault":
        story.fault(xid, gpu)
    elif kind == "refuse":
        story.refuse(gpu)
    else:
        story.wait_for(amount)


@pytest.mark.slow
@settings(max_examples=examples(2))
@given(st.randoms(use_true_random=False))
def test_a_thousand_programs_that_end_by_themselves_close_nothing(chance: Random) -> None:
    """With the XIDs of programs, with XIDs that blame nobody, and without one."""
    story = Story()
    for number in range(1000):
        xid, gpu = chance.choice(INNOCENT), gpu_uuid(chance.randrange(4))
        story.start(f"p{number}", gpu)
        if xid is not None:
            story.fault(xid, gpu)
        story.now += 1
        story.end(f"p{number}")
    assert story.closed == []


@settings(max_examples=examples(60))
@given(st.lists(STEPS, max_size=60))
def test_a_closed_gpu_is_closed_until_its_pause_is_over(steps: list[Step]) -> None:
    """Whatever happens meanwhile; it opens by a start that began afterwards, and the next pause is no shorter."""
    story = Story()
    for number, step in enumerate(steps):
        before = {each.gpu: each for each in story.cordons}
        opened, closed = len(story.opened), len(story.closed)
        take(story, step, number)
        for gpu in story.opened[opened:]:
            assert story.now > (before[gpu].until_seconds or 0.0)
        for cordon in story.closed[closed:]:
            assert cordon.until_seconds is not None
            assert cordon.until_seconds >= story.now + find_pause(SETTINGS.brake_pause_seconds, cordon.closings)
            if (old := before.get(cordon.gpu)) is not None:
                assert story.now >= (old.until_seconds or 0.0)
                assert cordon.closings == old.closings + 1
        kept = {each.gpu for each in story.cordons}
        assert kept == {*story.in_force(), *story.trials()}
        assert not {*story.in_force()} & {*story.trials()}


@settings(max_examples=examples(30))
@given(st.integers(1, 200))
def test_pauses_never_shrink_and_never_pass_the_limit(closings: int) -> None:
    pause = find_pause(SETTINGS.brake_pause_seconds, closings)
    assert pause <= find_pause(SETTINGS.brake_pause_seconds, closings + 1) <= PAUSE_LIMIT_SECONDS


@settings(max_examples=examples(20))
@given(st.integers(1, 6))
def test_each_trial_costs_one_pod(trials: int) -> None:
    """A GPU on which every pod dies takes one for each pause, and pauses grow."""
    story = half_open()
    for number in range(trials):
        story.lose(f"trial {number}")
        assert story.in_force() == [gpu_uuid(0)]
        assert story.cordons[0].closings == number + 2
        story.wait_for(find_pause(SETTINGS.brake_pause_seconds, number + 2) - 1)
        assert story.trials() == []
        story.wait_for(1)
        assert story.trials() == [gpu_uuid(0)]
    story.start("at last")
    story.wait_for(WITHIN + 1)
    assert story.cordons == ()

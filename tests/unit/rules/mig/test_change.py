"""A change as the journal holds it."""

import pytest

from nodeagent.model.journal import Change, Step
from nodeagent.model.mig import Write, WriteKind
from nodeagent.rules.mig.change import (
    OWNER,
    ChangeUnreadable,
    Intent,
    back_step,
    begin_step,
    read_progress,
    write_step,
)
from nodeagent.rules.mig.steps import Goal
from tests.support.gpus import gpu_uuid
from tests.support.mig import cut, request

BEFORE = cut("h100-sxm5-80gb", "3g.40gb 1c.2g.20gb")
INTENT = Intent(layout="all-1g.10gb", wanted=request("1g.10gb 1g.10gb"), before=BEFORE)


def change(*steps: Step) -> Change:
    return Change(number=1, owner=OWNER, gpu=gpu_uuid(0), steps=steps)


def test_progress_is_what_was_written_down() -> None:
    """What it is for, which calls were begun, and which way it goes."""
    reset, gone = Write(kind=WriteKind.RESET), Write(kind=WriteKind.DESTROY, instance=3, profile="3g.40gb")
    begun = read_progress(change(begin_step(INTENT, 1.0)))
    assert begun.intent.wanted == INTENT.wanted
    assert begun.goal == Goal(wanted=INTENT.wanted)
    assert (begun.has_written, begun.is_going_back) == (False, False)
    on_the_way = read_progress(change(begin_step(INTENT, 1.0), write_step([reset], 2.0), write_step([gone, gone], 3.0)))
    assert on_the_way.writes == (reset, gone, gone)
    assert on_the_way.has_written
    back = read_progress(change(begin_step(INTENT, 1.0), write_step([reset], 2.0), back_step("it failed", 3.0)))
    assert (back.has_written, back.writes, back.is_going_back, back.reason) == (True, (), True, "it failed")
    assert back.goal.before is not None
    assert back.goal.is_reached(BEFORE)


def test_a_call_that_was_written_down_by_itself_is_read() -> None:
    alone = Step(name="write", at_seconds=2.0, payload='{"kind":"destroy","instance":3}')
    assert read_progress(change(begin_step(INTENT, 1.0), alone)).writes == (Write(kind=WriteKind.DESTROY, instance=3),)


def test_the_first_step_holds_no_tables() -> None:
    """Profiles are read anew; a journal is small."""
    step = begin_step(INTENT, 1.0)
    assert "profiles" in step.payload
    assert len(step.payload) < 600
    assert read_progress(change(step)).intent.before.profiles == ()


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (Step(name="begin", at_seconds=1.0, payload="{"),),
        (Step(name="begin", at_seconds=1.0, payload='{"layout": 3}'),),
        (begin_step(INTENT, 1.0), Step(name="write", at_seconds=1.0, payload='{"kind": "melt"}')),
    ],
)
def test_what_a_later_version_has_begun_is_told(steps: tuple[Step, ...]) -> None:
    """Nobody guesses how far it has come."""
    with pytest.raises(ChangeUnreadable, match=r"^change 1 of GPU-00000000.* cannot be read: "):
        read_progress(change(*steps))

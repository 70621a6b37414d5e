"""Changes of GPUs in several steps stand in the journal before they are taken, and outlive the agent."""

import anyio
import pytest

from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.journal import Step
from tests.component.allocations.harness import World
from tests.component.allocations.test_later_journal import NEWER
from tests.support.allocations import GPU, device_ids
from tests.support.journals import gpu
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


def step(name: str) -> Step:
    return Step(name=name, at_seconds=1.0, payload="what")


async def test_a_change_is_found_again_until_it_is_settled(world: World, clock: FakeClock) -> None:
    """By the part that made it, in the next life of the agent too."""
    keeper = world.journal
    async with world.running():
        number = await keeper.begin_change("mig", gpu("a"), step("begin"))
        other = await keeper.begin_change("mps", gpu("b"), step("begin"))
        await keeper.step_change(number, step("write"))
        await world.journal.record(GPU, device_ids("c"))
        assert number != other
    again = World(clock)
    again.store.current = world.store.current
    async with again.running():
        (change,) = again.journal.changes("mig") or ()
        assert (change.number, change.gpu) == (number, gpu("a"))
        assert [one.name for one in change.steps] == ["begin", "write"]
        await again.journal.settle_change(number, "done")
        assert again.journal.changes("mig") == ()
        assert [one.number for one in again.journal.changes("mps") or ()] == [other]


async def test_what_cannot_be_written_must_not_be_done(world: World) -> None:
    """Neither without a journal, nor a step of a change that nobody knows."""
    assert world.journal.changes("mig") is None
    with pytest.raises(JournalUnavailable):
        await world.journal.begin_change("mig", gpu("a"), step("begin"))
    with pytest.raises(JournalUnavailable):
        await world.journal.step_change(1, step("write"))
    with pytest.raises(JournalUnavailable):
        await world.journal.settle_change(1, "done")
    async with world.running():
        with pytest.raises(JournalUnavailable, match="it knows of no change 99"):
            await world.journal.step_change(99, step("write"))


async def test_nobody_knows_before_the_journal_was_read(world: World) -> None:
    """Unreadable is not empty."""
    world.store.current = NEWER
    async with world.running():
        await anyio.sleep(1)
        assert world.journal.changes("mig") is None

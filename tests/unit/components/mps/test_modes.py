"""Many who set modes at once share one session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from nodeagent.components.mps.modes import ComputeModes
from nodeagent.model.errors import DriverError
from nodeagent.model.ports import PartitionSession
from nodeagent_sim.gpus.source import SimulatedGpus
from tests.component.mig.harness import PROFILES
from tests.support.virtual_time import FakeClock


class Counting:
    """Sessions over simulated GPUs, counted; `trouble` lets none begin, and `end_seconds` is how long an end takes."""

    def __init__(self) -> None:
        self._gpus = SimulatedGpus(PROFILES["a100-40gb"], clock=FakeClock(), deadline_seconds=5.0)
        self.begun = self.ended = 0
        self.trouble = ""
        self.end_seconds = 0.0

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[PartitionSession]:
        if self.trouble:
            raise DriverError(self.trouble)
        self.begun += 1
        async with self._gpus.begin() as session:
            yield session
        await anyio.sleep(self.end_seconds)
        self.ended += 1


def make_desk(counting: Counting, turn: anyio.Lock) -> ComputeModes:
    return ComputeModes(counting, turn, partial(anyio.CancelScope, shield=True))


@pytest.mark.virtual_time
async def test_the_last_who_needs_the_session_ends_it() -> None:
    """Who comes while it is open is given the same; who comes afterwards another."""
    counting = Counting()
    desk = make_desk(counting, anyio.Lock())
    async with desk.open() as first:
        async with desk.open() as second:
            assert second is first
        assert (counting.begun, counting.ended) == (1, 0)
    assert (counting.begun, counting.ended) == (1, 1)
    async with desk.open() as third:
        assert third is not first
    assert (counting.begun, counting.ended) == (2, 2)


@pytest.mark.virtual_time
async def test_no_session_begins_while_another_one_ends() -> None:
    """Its process has the right to change GPUs until it is gone."""
    counting = Counting()
    counting.end_seconds = 1.0
    desk = make_desk(counting, anyio.Lock())

    async def leave() -> None:
        async with desk.open():
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
        await anyio.sleep(0.5)
        assert (counting.begun, counting.ended) == (1, 0)
        async with desk.open():
            assert (counting.begun, counting.ended) == (2, 1)
    assert (counting.begun, counting.ended) == (2, 2)


@pytest.mark.virtual_time
async def test_one_who_comes_while_the_last_waits_to_end_it_keeps_it() -> None:
    """The turn was somebody else's: it is not ended under the hands of who came meanwhile."""
    counting, turn, left = Counting(), anyio.Lock(), anyio.Event()
    desk = make_desk(counting, turn)

    async def use(seconds: float) -> None:
        async with desk.open():
            await anyio.sleep(seconds)
            assert counting.ended == 0
        left.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use, 1.0)
        await anyio.sleep(0.5)
        async with turn:
            tasks.start_soon(use, 1.0)
            await anyio.sleep(1.0)
            assert not left.is_set()
    assert (counting.begun, counting.ended) == (1, 1)


@pytest.mark.virtual_time
async def test_a_session_ends_also_when_its_user_is_cancelled() -> None:
    """However long its end takes."""
    counting = Counting()
    counting.end_seconds = 1.0
    desk = make_desk(counting, anyio.Lock())
    with anyio.move_on_after(0.5):
        async with desk.open():
            await anyio.sleep_forever()
    assert (counting.begun, counting.ended) == (1, 1)


@pytest.mark.virtual_time
async def test_a_session_that_cannot_begin_is_begun_anew_by_the_next() -> None:
    counting = Counting()
    desk = make_desk(counting, anyio.Lock())
    counting.trouble = "no answer"
    with pytest.raises(DriverError, match="no answer"):
        async with desk.open():
            raise AssertionError
    counting.trouble = ""
    async with desk.open():
        assert (counting.begun, counting.ended) == (1, 0)
    assert (counting.begun, counting.ended) == (1, 1)

"""One sleeper, woken by whatever it looks at."""

from dataclasses import dataclass

import anyio
import pytest

from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


@dataclass(frozen=True)
class Said:
    what: str


async def test_each_change_wakes_and_nothing_is_listened_to_after_the_end(clock: FakeClock) -> None:
    """Who is woken looks by itself; cancelled, the waker has left the bus."""
    bus, waker = Bus(clock), Waker()
    woken = 0

    async def sleep_and_count() -> None:
        nonlocal woken
        while True:
            await waker.wait()
            woken += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waker.follow, bus.listen(Said, client="a part"))
        tasks.start_soon(sleep_and_count)
        await anyio.sleep(1)
        assert woken == 0
        bus.publish_fact(Said("once"), source="test")
        await anyio.sleep(1)
        bus.publish_fact(Said("again"), source="test")
        await anyio.sleep(1)
        assert woken == 2
        assert [each.client for each in bus.statistics().listeners] == ["a part"]
        tasks.cancel_scope.cancel()
    assert bus.statistics().listeners == ()


async def test_a_wake_up_that_comes_before_the_sleep_is_remembered() -> None:
    waker = Waker()
    waker.wake()
    waker.wake()
    await waker.wait()
    with anyio.move_on_after(1) as waiting:
        await waker.wait()
    assert waiting.cancelled_caught

"""What follows from what in the list of conditions: of one cause one thing is told."""

import anyio
import pytest

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.values import ActiveConditions
from nodeagent.model.conditions import CATALOGUE
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("cause", "follows"),
    [("claims-without-api", "slices-not-written"), ("api-unreachable", "slices-not-written")],
)
async def test_what_follows_is_not_told_beside_its_cause(clock: FakeClock, cause: str, follows: str) -> None:
    """Whose remedy would be the wrong one."""
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)
    async with anyio.create_task_group() as tasks:
        await tasks.start(conditions.run)
        for code in (cause, follows):
            conditions.set(code, detail="why")
        await anyio.sleep(3600)
        told = bus.latest(ActiveConditions)
        assert told is not None
        assert [each.code for each in told.value.conditions] == [cause]
        tasks.cancel_scope.cancel()

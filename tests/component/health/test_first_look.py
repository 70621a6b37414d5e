"""When the agent may say that health is known: with the first look, or when none comes."""

from pathlib import Path

import pytest

from nodeagent.components.health.component import FIRST_LOOK_SECONDS
from nodeagent.model.health import Verdict
from tests.component.health.surroundings import Node

pytestmark = pytest.mark.virtual_time


async def test_health_is_known_with_the_first_look(tmp_path: Path) -> None:
    """The first list that a kubelet gets would otherwise have no healthy device, and refuse the pods that come."""
    async with Node(tmp_path).running() as node:
        assert set(node.verdicts) == {Verdict.HEALTHY}
        assert node.clock.monotonic() < FIRST_LOOK_SECONDS


async def test_a_look_that_does_not_come_holds_nobody_up_for_long(tmp_path: Path) -> None:
    """The rest of the agent serves what it has, every device unhealthy and the reason said."""
    node = Node(tmp_path)
    await node.break_it("hang", "sample", "forever")
    async with node.running():
        assert set(node.verdicts) == {Verdict.UNKNOWN}
        assert node.clock.monotonic() < 2 * FIRST_LOOK_SECONDS

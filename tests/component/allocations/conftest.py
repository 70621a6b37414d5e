"""What the tests of the keeper begin with."""

import pytest

from tests.component.allocations.harness import World
from tests.support.virtual_time import FakeClock


@pytest.fixture(params=[None, 0.001], ids=["fast disk", "slow disk"])
def world(clock: FakeClock, request: pytest.FixtureRequest) -> World:
    world = World(clock)
    world.store.append_seconds = request.param
    return world

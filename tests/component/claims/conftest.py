"""What the tests on virtual time begin with."""

import pytest

from tests.component.claims.harness import World
from tests.support.virtual_time import FakeClock


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock)

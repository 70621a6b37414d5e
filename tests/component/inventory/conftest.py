"""What the tests of the component begin with."""

from pathlib import Path

import pytest

from tests.component.inventory.harness import Stage
from tests.support.virtual_time import FakeClock


@pytest.fixture
def stage(clock: FakeClock, tmp_path: Path) -> Stage:
    return Stage(clock, tmp_path)

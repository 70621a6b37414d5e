"""A container's files, and a driver, for each test."""

from pathlib import Path

import pytest

from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path)

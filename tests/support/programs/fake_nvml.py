"""The stand-in for NVML as agents in processes of their own load it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml.control import FakeNvml


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeNvml]:
    """Eight H100 behind NVML's real ABI."""
    driver = FakeNvml(tmp_path, "dgx-h100")
    yield driver
    driver.clear()
    driver.close()

"""The libraries, for each test that is to hold of all of them."""

import pytest

from tests.component.edge_nvml.conftest import load_in_process, make_fake
from tests.contract.nvml.libraries import NAMES, Library, open_library
from tests.originals.packages import DRIVERS

__all__ = ["load_in_process", "make_fake"]


@pytest.fixture(params=NAMES)
def library(request: pytest.FixtureRequest) -> Library:
    """The fake without a driver, or NVIDIA's own."""
    return open_library(request.param)


@pytest.fixture(params=DRIVERS)
def original(request: pytest.FixtureRequest) -> Library:
    """NVIDIA's own."""
    return open_library(request.param)

"""The libraries, for each test that is to hold of all of them."""

from pathlib import Path

import pytest

from tests.component.edge_nvml.conftest import load_in_process, make_fake
from tests.contract.libraries import NAMES, Library, open_library
from tests.fakes.nvml.build import SONAME, build_library
from tests.originals.packages import DRIVERS

__all__ = ["load_in_process", "make_fake"]


def open_nvml(name: str) -> Library:
    return open_library(name, SONAME, Path(__file__).with_name("say.py"), lambda: build_library() / SONAME)


@pytest.fixture(params=NAMES)
def library(request: pytest.FixtureRequest) -> Library:
    """The fake without a driver, or NVIDIA's own."""
    return open_nvml(request.param)


@pytest.fixture(params=DRIVERS)
def original(request: pytest.FixtureRequest) -> Library:
    return open_nvml(request.param)

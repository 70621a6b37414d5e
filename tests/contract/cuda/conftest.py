"""The libraries, for each test that is to hold of all of them."""

from pathlib import Path

import pytest

from tests.component.vgpu.place import Place
from tests.contract.libraries import NAMES, Library, open_library
from tests.fakes.cuda.driver import SONAME, FakeDriver, build_driver
from tests.originals.packages import DRIVERS

FAKE_VERSION = 13050
"""One in which the fake has everything that it knows."""


def open_cuda(name: str, path: Path) -> Library:
    environ = FakeDriver(path, memory=(), version=FAKE_VERSION).environ()
    return open_library(name, SONAME, Path(__file__).with_name("say.py"), build_driver, **environ)


@pytest.fixture(params=NAMES)
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Library:
    """The fake without a device, or NVIDIA's own."""
    return open_cuda(request.param, tmp_path)


@pytest.fixture(params=DRIVERS)
def original(request: pytest.FixtureRequest, tmp_path: Path) -> Library:
    return open_cuda(request.param, tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A container's files."""
    place = Place(tmp_path)
    place.create(1 << 20)
    return place

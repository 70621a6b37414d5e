"""Programs with the library in front of the driver, as in a container."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.component.vgpu.build import build_library
from tests.component.vgpu.cuda_talk import Caller, call_driver
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver


def list_environ(place: Place, driver: FakeDriver, **more: str) -> dict[str, str]:
    """For any program that is to be limited."""
    return {**driver.environ(), **place.environ(LD_PRELOAD=str(build_library())), **more}


@contextmanager
def limit(place: Place, driver: FakeDriver, **more: str) -> Iterator[Caller]:
    """One that is asked call by call, with the first device's primary context current."""
    with call_driver(driver, list_environ(place, driver, **more)) as caller:
        caller.start()
        yield caller

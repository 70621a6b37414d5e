"""Processes that are killed at any instruction: never more than the limit, and the ledger says what the driver says."""

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.component.vgpu.build import build_program
from tests.component.vgpu.cuda_talk import OUT
from tests.component.vgpu.limited import limit, list_environ
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 1 << 20


def hammer(place: Place, driver: FakeDriver, *, processes: int, threads: int, seconds: float) -> int:
    """How many were killed; each that ends by itself has found nothing wrong."""
    environ = list_environ(place, driver)
    words = [str(build_program("race")), str(threads), "400", str(LIMIT // 8)]
    chance = random.Random(processes)
    running: list[subprocess.Popen[bytes]] = []
    killed = 0
    until = time.monotonic() + seconds
    while running or time.monotonic() < until:
        while len(running) < processes and time.monotonic() < until:
            running.append(subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL))
        one = running.pop(chance.randrange(len(running)))
        try:
            assert one.wait(chance.choice([0.01, 0.05, 0.1, 2])) == 0
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
            killed += 1
    return killed


def check(place: Place, driver: FakeDriver) -> None:
    """To the last byte, as a new process finds it."""
    assert 0 < driver.read().most[0] <= LIMIT
    assert driver.read().sum_used() == 0
    with limit(place, driver) as one:
        assert one.call("cuMemAlloc_v2", OUT, LIMIT)[0] == 0
        assert place.read().sum_used(0) == driver.read().sum_used() == LIMIT


@pytest.mark.slow
def test_killed_at_random(place: Place, tmp_path: Path) -> None:
    place.create(LIMIT)
    driver = FakeDriver(tmp_path)
    assert hammer(place, driver, processes=4, threads=4, seconds=2) > 0
    check(place, driver)


@pytest.mark.nightly
def test_a_minute_of_it(place: Place, tmp_path: Path) -> None:
    """With as many threads as a large program has."""
    place.create(LIMIT)
    driver = FakeDriver(tmp_path)
    hammer(place, driver, processes=4, threads=64, seconds=60)
    check(place, driver)

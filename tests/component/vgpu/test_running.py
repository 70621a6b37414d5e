"""Limits that change, files that break, and what the agent sees of it, while a program runs."""

import shutil
import time

import pytest

from nodeagent.edge.host.vgpu.limits_file import FailMode
from nodeagent.edge.host.vgpu.usage_file import Reason, Status
from tests.component.vgpu.cuda_talk import OUT
from tests.component.vgpu.limited import limit
from tests.component.vgpu.memory.test_classes import describe, describe_on
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 8192
OUT_OF_MEMORY = 2
ASKS = {
    "cuMemAlloc_v2": (OUT, 100),
    "cuMemAllocAsync": (OUT, 100, 0),
    "cuArrayCreate_v2": (OUT, describe(100)),
    "cuMemCreate": (OUT, 100, describe_on(0), 0),
}


def test_a_new_limit_counts_from_the_next_call(place: Place, driver: FakeDriver) -> None:
    """Below what is in use nothing is taken away, and nothing more is given."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        code, at = one.call("cuMemAlloc_v2", OUT, LIMIT)
        assert code == 0
        place.change(LIMIT + 100)
        assert one.call("cuMemAlloc_v2", OUT, 101)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAlloc_v2", OUT, 100)[0] == 0
        place.change(500)
        for symbol, arguments in ASKS.items():
            assert one.call(symbol, *arguments)[0] == OUT_OF_MEMORY
        assert one.call("cuMemGetInfo_v2", OUT, OUT) == (0, 0, 500)
        assert one.call("cuMemFree_v2", at) == (0,)
        assert one.call("cuMemAlloc_v2", OUT, 400)[0] == 0
        assert place.read().sum_used(0) == driver.read().sum_used() == 500
        place.change(None)
        assert one.call("cuMemAlloc_v2", OUT, 1 << 30)[0] == 0


@pytest.mark.parametrize("symbol", ASKS)
@pytest.mark.parametrize("mode", FailMode)
def test_files_of_no_use_are_what_the_fail_mode_says(
    place: Place, driver: FakeDriver, mode: FailMode, symbol: str
) -> None:
    """In every class, and the agent reads which it was and why."""
    place.create(LIMIT, fail_mode=mode)
    place.overwrite(8, b"\2")
    with limit(place, driver) as one:
        refuses = mode is FailMode.REFUSE
        assert one.call(symbol, *ASKS[symbol])[0] == (OUT_OF_MEMORY if refuses else 0)
        usage = place.read()
        assert (usage.last_reason, usage.sum_used(0)) == (Reason.LIMITS_NEWER, 0)
        assert (usage.passing_starts, usage.refusing_starts) == ((0, 1) if refuses else (1, 0))
        (process,) = usage.processes
        assert process.status is (Status.REFUSING if refuses else Status.PASSING)


def test_a_program_is_seen_from_the_start_of_the_driver(place: Place, driver: FakeDriver) -> None:
    """Before it asks for anything; its heart beats with each call for memory."""
    place.create(LIMIT)
    before = time.monotonic_ns()
    with limit(place, driver) as one:
        (process,) = place.read().processes
        assert process.status is Status.LIMITING
        assert process.heartbeat_ns > before - 1_000_000_000
        first = process.heartbeat_ns
        while place.read().processes[0].heartbeat_ns == first:  # the clock that is read has ticks of milliseconds
            _, at = one.call("cuMemAlloc_v2", OUT, 1)
            one.call("cuMemFree_v2", at)

"""Linear memory: granted to the limit and not a byte past it, rolled back, freed, and freed again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.edge.host.vgpu.limits_file import FailMode
from tests.component.vgpu.cuda_talk import OUT, Caller
from tests.component.vgpu.limited import limit
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 8192
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT = 1, 2, 201
ALLOCATIONS: dict[str, Callable[[int], tuple[int | str, ...]]] = {
    "cuMemAlloc": lambda size: (OUT, size),
    "cuMemAlloc_v2": lambda size: (OUT, size),
    "cuMemAllocManaged": lambda size: (OUT, size, 1),
    "cuMemAllocPitch": lambda size: (OUT, OUT, 512, size // 512, 4),
    "cuMemAllocPitch_v2": lambda size: (OUT, OUT, 512, size // 512, 4),
}
FREES = {"cuMemAlloc": "cuMemFree", "cuMemAllocPitch": "cuMemFree"}


def allocate(one: Caller, symbol: str, size: int) -> tuple[int, ...]:
    return one.call(symbol, *ALLOCATIONS[symbol](size))


@pytest.mark.parametrize("symbol", ALLOCATIONS)
def test_to_the_limit_and_not_past_it(place: Place, driver: FakeDriver, symbol: str) -> None:
    """The driver, which counts for itself, never had more; free, double free and foreign addresses are the driver's."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        free = FREES.get(symbol, "cuMemFree_v2")
        assert allocate(one, symbol, LIMIT + 512)[0] == OUT_OF_MEMORY
        code, first, *_ = allocate(one, symbol, LIMIT - 512)
        assert code == 0
        assert allocate(one, symbol, 1024)[0] == OUT_OF_MEMORY
        assert allocate(one, symbol, 512)[0] == 0
        assert one.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert (place.read().sum_used(0), driver.read().sum_used()) == (LIMIT, LIMIT)
        assert one.call(free, first) == (0,)
        assert one.call(free, first) == (INVALID_VALUE,)
        assert one.call(free, 77) == (INVALID_VALUE,)
        assert one.call(free, 0) == (0,)
        assert (place.read().sum_used(0), driver.read().sum_used()) == (512, 512)
        assert allocate(one, symbol, LIMIT - 512)[0] == 0
        assert driver.read().most[0] == LIMIT


@pytest.mark.parametrize("symbol", ALLOCATIONS)
def test_what_the_driver_refuses_is_rolled_back(place: Place, tmp_path: Path, symbol: str) -> None:
    """With the driver's own code."""
    place.create(LIMIT)
    with limit(place, FakeDriver(tmp_path, fail={symbol: "700@1"})) as one:
        assert allocate(one, symbol, LIMIT)[0] == 700
        assert place.read().sum_used(0) == 0
        assert allocate(one, symbol, LIMIT)[0] == 0
        assert allocate(one, symbol, 0)[0] == INVALID_VALUE


def test_a_free_that_failed_is_charged_on(place: Place, tmp_path: Path) -> None:
    place.create(LIMIT)
    with limit(place, FakeDriver(tmp_path, fail={"cuMemFree_v2": "700@1"})) as one:
        _, at = one.call("cuMemAlloc_v2", OUT, 100)
        assert one.call("cuMemFree_v2", at) == (700,)
        assert place.read().sum_used(0) == 100
        assert one.call("cuMemFree_v2", at) == (0,)
        assert place.read().sum_used(0) == 0


def test_rows_are_counted_as_the_driver_lays_them(place: Place, driver: FakeDriver) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        assert one.call("cuMemAllocPitch_v2", OUT, OUT, 1, 17, 4)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAllocPitch_v2", OUT, OUT, 1, 16, 4)[::2] == (0, 512)
        assert (place.read().sum_used(0), driver.read().most[0]) == (LIMIT, LIMIT)
        assert one.call("cuMemAllocPitch_v2", OUT, OUT, (1 << 64) - 1, 2, 4)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAllocPitch_v2", OUT, OUT, 1 << 40, 1 << 40, 4)[0] == OUT_OF_MEMORY


@pytest.mark.parametrize("pitch", [128, 1024])
def test_rows_laid_otherwise_than_thought_are_counted_right(place: Place, tmp_path: Path, pitch: int) -> None:
    """What proves too much only when the driver has laid it is given back at once."""
    place.create(LIMIT)
    driver = FakeDriver(tmp_path, pitch=pitch)
    with limit(place, driver) as one:
        assert one.call("cuMemAllocPitch_v2", OUT, OUT, 1, 6, 4)[::2] == (0, pitch)
        assert (place.read().sum_used(0), driver.read().sum_used()) == (6 * pitch, 6 * pitch)
        rest = one.call("cuMemAllocPitch_v2", OUT, OUT, 1, 3, 4)[0]
        assert rest == (OUT_OF_MEMORY if pitch == 1024 else 0)
        held = 6 * pitch if rest else 9 * pitch
        assert (place.read().sum_used(0), driver.read().sum_used()) == (held, held)


def test_without_a_context_the_driver_says_so(place: Place, driver: FakeDriver) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        one.call("cuCtxSetCurrent", 0)
        assert one.call("cuMemAlloc_v2", OUT, 2 * LIMIT)[0] == INVALID_CONTEXT
        assert one.call("cuMemGetInfo_v2", OUT, OUT)[0] == INVALID_CONTEXT
        assert place.read().sum_used(0) == 0


def test_each_device_has_its_own_limit(place: Place, driver: FakeDriver) -> None:
    """Found by UUID; a device without one is not held."""
    place.create(None, LIMIT)
    with limit(place, driver) as one:
        assert one.call("cuMemAlloc_v2", OUT, 1 << 30)[0] == 0
        one.start(1)
        assert one.call("cuMemAlloc_v2", OUT, LIMIT + 1)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAlloc_v2", OUT, LIMIT)[0] == 0
        assert (place.read().sum_used(0), place.read().sum_used(1)) == (1 << 30, LIMIT)
        assert one.call("cuDeviceTotalMem_v2", OUT, 0) == (0, 16 << 30)
        assert one.call("cuDeviceTotalMem_v2", OUT, 1) == (0, LIMIT)


def test_a_program_sees_its_fraction(place: Place, driver: FakeDriver) -> None:
    """In both ABIs, what other processes of the container have included; never more than the driver has left."""
    place.create(LIMIT)
    with limit(place, driver) as one, limit(place, driver) as other:
        assert other.call("cuMemAlloc_v2", OUT, 100)[0] == 0
        for symbol in ("cuMemGetInfo", "cuMemGetInfo_v2"):
            assert one.call(symbol, OUT, OUT) == (0, LIMIT - 100, LIMIT)
        for symbol in ("cuDeviceTotalMem", "cuDeviceTotalMem_v2"):
            assert one.call(symbol, OUT, 0) == (0, LIMIT)
        place.change(50)
        assert one.call("cuMemGetInfo_v2", OUT, OUT) == (0, 0, 50)
        place.change(1 << 45)
        assert one.call("cuMemGetInfo_v2", OUT, OUT) == (0, (16 << 30) - 100, 16 << 30)


@pytest.mark.parametrize("mode", FailMode)
def test_without_limits_the_fail_mode_rules(place: Place, driver: FakeDriver, mode: FailMode) -> None:
    """Refused is out of memory; passed through is what the driver has, and frees work as ever."""
    place.create(LIMIT, fail_mode=mode)
    place.overwrite(8, b"\2")
    with limit(place, driver) as one:
        code, at = one.call("cuMemAlloc_v2", OUT, 2 * LIMIT)
        assert code == (OUT_OF_MEMORY if mode is FailMode.REFUSE else 0)
        assert one.call("cuMemFree_v2", at) == (0,)
        assert one.call("cuDeviceTotalMem_v2", OUT, 0) == (0, 16 << 30)
        assert driver.read().sum_used() == 0

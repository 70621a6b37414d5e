"""Pools are charged with what the driver has reserved for them, whatever of it is in use."""

import shutil
from pathlib import Path

import pytest

from tests.component.vgpu.compute.test_launches import load
from tests.component.vgpu.cuda_talk import LATEST, OUT, Caller
from tests.component.vgpu.limited import limit
from tests.component.vgpu.memory.test_classes import describe_on
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 8192
INVALID_VALUE, OUT_OF_MEMORY = 1, 2
THRESHOLD = 4
FROM_POOL = ["cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"]


def create(one: Caller, device: int = 0) -> int:
    code, pool = one.call("cuMemPoolCreate", OUT, describe_on(device))
    assert code == 0
    return pool


def keep_all(one: Caller, pool: int) -> None:
    """As programs do that want to be fast."""
    assert one.call("cuMemPoolSetAttribute", pool, THRESHOLD, f"@q{1 << 60}") == (0,)


def check(place: Place, driver: FakeDriver, reserved: int, device: int = 0) -> None:
    assert (place.read().sum_used(device), driver.read().sum_used(device)) == (reserved, reserved)


@pytest.mark.parametrize("symbol", FROM_POOL)
def test_to_the_limit_and_not_past_it(place: Place, tmp_path: Path, symbol: str) -> None:
    """From a pool of the program's own; what the driver refuses is rolled back."""
    place.create(LIMIT)
    driver = FakeDriver(tmp_path, fail={symbol: "700@1"})
    with limit(place, driver) as one:
        pool = create(one)
        assert one.call(symbol, OUT, LIMIT, pool, 0)[0] == 700
        check(place, driver, 0)
        assert one.call(symbol, OUT, LIMIT + 1, pool, 0)[0] == OUT_OF_MEMORY
        code, at = one.call(symbol, OUT, LIMIT, pool, 0)
        assert code == 0
        assert one.call(symbol, OUT, 1, pool, 0)[0] == OUT_OF_MEMORY
        assert one.call("cuMemFreeAsync", at, 0) == (0,)
        assert one.call("cuMemFreeAsync", at, 0) == (INVALID_VALUE,)
        assert one.call(symbol, OUT, 1, 0, 0)[0] == INVALID_VALUE
        check(place, driver, LIMIT)


@pytest.mark.parametrize(
    "wait", ["cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuCtxSynchronize", "cuCtxSynchronize_v2", "event"]
)
def test_what_is_freed_is_kept_until_the_program_waits(place: Place, driver: FakeDriver, wait: str) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        _, at = one.call("cuMemAllocAsync", OUT, 5000, 0)
        assert one.call("cuMemFreeAsync", at, 0) == (0,)
        check(place, driver, 5000)
        if wait == "event":
            _, event = one.call("cuEventCreate", OUT, 0)
            assert one.call("cuEventSynchronize", event) == (0,)
        else:
            assert one.call(wait, 0) == (0,)
        check(place, driver, 0)


def test_what_is_kept_is_used_again_and_given_back_before_anything_is_refused(place: Place, driver: FakeDriver) -> None:
    """To the pool itself, to another one, and to any other kind of memory; what is in use stays."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        _, pool = one.call("cuDeviceGetDefaultMemPool", OUT, 0)
        keep_all(one, pool)
        _, held = one.call("cuMemAllocAsync", OUT, 2000, 0)
        for _ in range(3):
            _, at = one.call("cuMemAllocAsync", OUT, 5000, 0)
            assert one.call("cuMemFreeAsync", at, 0) == (0,)
            one.call("cuCtxSynchronize")
            check(place, driver, 7000)
        assert one.call("cuMemAllocAsync", OUT, 6193, 0)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAllocAsync", OUT, 6192, 0)[0] == 0
        check(place, driver, LIMIT)
        one.call("cuMemFreeAsync", held, 0)
        other = create(one)
        assert one.call("cuMemAllocFromPoolAsync", OUT, 1500, other, 0)[0] == 0
        assert one.call("cuMemAlloc_v2", OUT, 501)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAlloc_v2", OUT, 500)[0] == 0
        check(place, driver, LIMIT)
        assert driver.read().most[0] == LIMIT


def test_a_pool_that_grows_by_more_than_was_asked_for(place: Place, tmp_path: Path) -> None:
    """What the first growth shows is reckoned with from then on; that one, if it was too much, goes back at once."""
    place.create(LIMIT)
    driver = FakeDriver(tmp_path, pool_step=1024)
    with limit(place, driver) as one:
        assert one.call("cuMemAllocAsync", OUT, 1, 0)[0] == 0
        check(place, driver, 1024)
        assert one.call("cuMemAllocAsync", OUT, 1024, 0)[0] == 0
        check(place, driver, 2048)
        pool = create(one)
        assert one.call("cuMemAllocFromPoolAsync", OUT, LIMIT - 3000, pool, 0)[0] == 0
        check(place, driver, 2048 + 6144)
        assert one.call("cuMemAllocFromPoolAsync", OUT, 953, pool, 0)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAllocFromPoolAsync", OUT, 952, pool, 0)[0] == 0
        check(place, driver, LIMIT)
        assert driver.read().most[0] == LIMIT
    place.change(1000)
    with limit(place, driver) as one:
        assert one.call("cuMemAllocAsync", OUT, 1, 0)[0] == OUT_OF_MEMORY
        check(place, driver, 0)


def test_a_pool_that_was_destroyed_is_there_until_all_of_it_is_freed(place: Place, driver: FakeDriver) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        pool = create(one)
        keep_all(one, pool)
        (_, first), (_, second) = (one.call("cuMemAllocFromPoolAsync", OUT, 1000, pool, 0) for _ in range(2))
        assert one.call("cuMemPoolDestroy", pool) == (0,)
        assert one.call("cuMemPoolDestroy", pool) == (INVALID_VALUE,)
        check(place, driver, 2000)
        assert one.call("cuMemFree_v2", first) == (0,)
        assert one.call("cuMemFreeAsync", second, 0) == (0,)
        check(place, driver, 0)
        again = create(one)
        keep_all(one, again)
        _, at = one.call("cuMemAllocFromPoolAsync", OUT, LIMIT, again, 0)
        one.call("cuMemFreeAsync", at, 0)
        check(place, driver, LIMIT)
        assert one.call("cuMemPoolDestroy", again) == (0,)
        check(place, driver, 0)


def test_a_destruction_that_fails_leaves_the_pool(place: Place, tmp_path: Path) -> None:
    place.create(LIMIT)
    driver = FakeDriver(tmp_path, fail={"cuMemPoolDestroy": "700@1"})
    with limit(place, driver) as one:
        pool = create(one)
        assert one.call("cuMemAllocFromPoolAsync", OUT, 1000, pool, 0)[0] == 0
        assert one.call("cuMemPoolDestroy", pool) == (700,)
        assert one.call("cuMemAllocFromPoolAsync", OUT, LIMIT - 999, pool, 0)[0] == OUT_OF_MEMORY
        check(place, driver, 1000)


def test_a_trimmed_pool_is_charged_with_the_rest(place: Place, driver: FakeDriver) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        pool = create(one)
        keep_all(one, pool)
        _, at = one.call("cuMemAllocFromPoolAsync", OUT, 5000, pool, 0)
        one.call("cuMemFreeAsync", at, 0)
        assert one.call("cuMemPoolTrimTo", pool, 3000) == (0,)
        check(place, driver, 3000)
        assert one.call("cuMemPoolTrimTo", 77, 0) == (INVALID_VALUE,)


@pytest.mark.parametrize("symbol", ["cuMemGetDefaultMemPool", "cuMemGetMemPool"])
def test_pools_by_the_place_of_their_memory(place: Place, tmp_path: Path, symbol: str) -> None:
    """As CUDA 13 names them."""
    place.create(None, LIMIT)
    driver = FakeDriver(tmp_path, version=13000)
    with limit(place, driver) as one:
        code, pool = one.call(symbol, OUT, "@i1,i1", 1)
        assert code == 0
        assert one.call("cuMemAllocFromPoolAsync", OUT, LIMIT + 1, pool, 0)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAllocFromPoolAsync", OUT, LIMIT, pool, 0)[0] == 0
        check(place, driver, LIMIT, device=1)
        assert one.call(symbol, OUT, "@i2,i0", 1)[0] == INVALID_VALUE


def test_the_device_is_that_of_the_stream_or_the_pool(place: Place, driver: FakeDriver) -> None:
    """Not that of the current context, which stays current."""
    place.create(LIMIT, 1000)
    with limit(place, driver) as one:
        current = one.start(1)
        _, stream = one.call("cuStreamCreate", OUT, 0)
        first = one.start(0)
        assert first != current
        assert one.call("cuMemAllocAsync", OUT, 1001, stream)[0] == OUT_OF_MEMORY
        assert one.call("cuCtxGetCurrent", OUT) == (0, first)
        pool = create(one, device=1)
        assert one.call("cuMemAllocFromPoolAsync", OUT, 1001, pool, 0)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAllocFromPoolAsync", OUT, 1000, pool, 0)[0] == 0
        check(place, driver, 1000, device=1)


def test_pools_of_others_are_theirs(place: Place, driver: FakeDriver) -> None:
    """The owner pays: nothing is charged here, and the driver says what may be done with them."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        code, pool = one.call("cuMemPoolImportFromShareableHandle", OUT, 0, 1, 0)
        assert code == 0
        assert one.call("cuMemAllocFromPoolAsync", OUT, 100, pool, 0)[0] == INVALID_VALUE
        assert one.call("cuMemPoolDestroy", pool) == (0,)
        assert place.read().sum_used(0) == 0
        for name in ("cuMemPoolImportPointer", "cuIpcOpenMemHandle", "cuImportExternalMemory"):
            assert "nodeagent" not in one.where(LATEST, name)


def keep_busy(one: Caller) -> None:
    """A kernel that everything after it waits for: what is freed behind it, no driver can trim."""
    assert one.call("cuLaunchKernel", load(one, b"us_150000"), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) == (0,)


@pytest.mark.parametrize("size", [LIMIT * 3 // 4, LIMIT])
@pytest.mark.parametrize("symbol", ["cuMemAllocAsync", "cuMemAllocAsync_ptsz"])
def test_what_its_stream_has_still_to_free_is_used_again(
    place: Place, driver: FakeDriver, symbol: str, size: int
) -> None:
    """Without a wait, as by a driver without limits: the pool has it, and grows by the rest alone."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        keep_busy(one)
        _, at = one.call(symbol, OUT, LIMIT * 3 // 4, 0)
        for _ in range(3):
            assert one.call("cuMemFreeAsync", at, 0) == (0,)
            code, at = one.call(symbol, OUT, size, 0)
            assert code == 0
        check(place, driver, size)
        assert one.call(symbol, OUT, LIMIT // 2, 0)[0] == OUT_OF_MEMORY
        assert driver.read().most[0] == size


@pytest.mark.parametrize("symbol", [*FROM_POOL, "cuMemAlloc_v2", "cuMemCreate"])
def test_what_a_stream_has_still_to_free_is_waited_for_before_anything_is_refused(
    place: Place, driver: FakeDriver, symbol: str
) -> None:
    """By another pool, and by any other kind of memory."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        other = create(one)
        more = {"cuMemAlloc_v2": (), "cuMemCreate": (describe_on(0), 0)}.get(symbol, (other, 0))
        keep_busy(one)
        _, at = one.call("cuMemAllocAsync", OUT, LIMIT * 3 // 4, 0)
        assert one.call("cuMemFreeAsync", at, 0) == (0,)
        assert one.call(symbol, OUT, LIMIT + 1, *more)[0] == OUT_OF_MEMORY
        keep_busy(one)
        _, at = one.call("cuMemAllocAsync", OUT, LIMIT * 3 // 4, 0)
        assert one.call("cuMemFreeAsync", at, 0) == (0,)
        assert one.call(symbol, OUT, LIMIT // 2, *more)[0] == 0
        check(place, driver, LIMIT // 2)
        assert driver.read().most[0] <= LIMIT

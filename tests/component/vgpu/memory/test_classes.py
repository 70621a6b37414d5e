"""Every other class of memory: granted to the limit and not a byte past it, rolled back, freed, and freed again."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.component.vgpu.cuda_talk import OUT
from tests.component.vgpu.limited import limit
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 8192
INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE = 1, 2, 400
FLOAT = 0x20
ON_DEVICE, IN_HOST = 1, 2


@dataclass(frozen=True)
class Class:
    """One way to memory, and the way back."""

    take: str
    arguments: Callable[[int], tuple[int | str, ...]]
    """For so many bytes."""
    give: str
    foreign: int = INVALID_VALUE
    """What the driver says of what is not its own."""
    after: tuple[int, ...] = ()
    """Arguments behind the handle where it is freed."""


def describe(size: int) -> str:
    """A one-dimensional array, as the second version of CUDA has it."""
    return f"@q{size // 4},q0,i{FLOAT},i1"


def describe_narrow(size: int) -> str:
    return f"@i{size // 4},i0,i{FLOAT},i1"


def describe_solid(size: int, flags: int = 0) -> str:
    return f"@q{size // 4},q0,q0,i{FLOAT},i1,i{flags}"


def describe_on(device: int, kind: int = ON_DEVICE) -> str:
    """What memory that is made and mapped apart, and pools, begin with."""
    return f"@i1,i0,i{kind},i{device}"


CLASSES = [
    Class("cuArrayCreate", lambda size: (OUT, describe_narrow(size)), "cuArrayDestroy", INVALID_HANDLE),
    Class("cuArrayCreate_v2", lambda size: (OUT, describe(size)), "cuArrayDestroy", INVALID_HANDLE),
    Class(
        "cuArray3DCreate", lambda size: (OUT, f"@i{size // 4},i0,i0,i{FLOAT},i1,i0"), "cuArrayDestroy", INVALID_HANDLE
    ),
    Class("cuArray3DCreate_v2", lambda size: (OUT, describe_solid(size)), "cuArrayDestroy", INVALID_HANDLE),
    Class(
        "cuMipmappedArrayCreate", lambda size: (OUT, describe_solid(size), 1), "cuMipmappedArrayDestroy", INVALID_HANDLE
    ),
    Class("cuMemAllocAsync", lambda size: (OUT, size, 0), "cuMemFreeAsync", after=(0,)),
    Class("cuMemAllocAsync_ptsz", lambda size: (OUT, size, 0), "cuMemFreeAsync_ptsz", after=(0,)),
    Class("cuMemAllocAsync", lambda size: (OUT, size, 0), "cuMemFree_v2"),
    Class("cuMemAlloc_v2", lambda size: (OUT, size), "cuMemFreeAsync", after=(0,)),
    Class("cuMemCreate", lambda size: (OUT, size, describe_on(0), 0), "cuMemRelease"),
]


@pytest.mark.long
@pytest.mark.parametrize("one_class", CLASSES, ids=lambda one: f"{one.take}-{one.give}")
def test_to_the_limit_and_not_past_it(place: Place, driver: FakeDriver, one_class: Class) -> None:
    """The driver, which counts for itself, never had more; free, double free and foreign handles are the driver's."""
    place.create(LIMIT)
    with limit(place, driver) as one:

        def take(size: int) -> tuple[int, ...]:
            return one.call(one_class.take, *one_class.arguments(size))

        def give(handle: int) -> tuple[int, ...]:
            code = one.call(one_class.give, handle, *one_class.after)
            assert one.call("cuCtxSynchronize") == (0,)
            return code

        assert take(LIMIT + 4)[0] == OUT_OF_MEMORY
        code, first = take(LIMIT - 512)
        assert code == 0
        assert take(1024)[0] == OUT_OF_MEMORY
        assert take(512)[0] == 0
        assert one.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert (place.read().sum_used(0), driver.read().sum_used()) == (LIMIT, LIMIT)
        assert give(first) == (0,)
        assert give(first) == (one_class.foreign,)
        assert give(77) == (one_class.foreign,)
        assert (place.read().sum_used(0), driver.read().sum_used()) == (512, 512)
        assert take(LIMIT - 512)[0] == 0
        assert driver.read().most[0] == LIMIT


@pytest.mark.parametrize("one_class", CLASSES, ids=lambda one: f"{one.take}-{one.give}")
def test_what_the_driver_refuses_is_rolled_back(place: Place, tmp_path: Path, one_class: Class) -> None:
    """Making with the driver's own code, and freeing: what it did not free is charged on."""
    place.create(LIMIT)
    driver = FakeDriver(tmp_path, fail={one_class.take: "700@1", one_class.give: "701@1"})
    with limit(place, driver) as one:
        assert one.call(one_class.take, *one_class.arguments(LIMIT))[0] == 700
        assert place.read().sum_used(0) == 0
        code, handle = one.call(one_class.take, *one_class.arguments(LIMIT))
        assert code == 0
        assert one.call(one_class.give, handle, *one_class.after) == (701,)
        assert place.read().sum_used(0) == LIMIT
        assert one.call(one_class.give, handle, *one_class.after) == (0,)
        one.call("cuCtxSynchronize")
        assert place.read().sum_used(0) == driver.read().sum_used() == 0


@pytest.mark.parametrize(
    ("symbol", "wanted", "bytes_used"),
    [
        ("cuArrayCreate_v2", "@q100,q3,i1,i4", 1200),
        ("cuArrayCreate_v2", "@q100,q0,i16,i2", 400),
        ("cuArrayCreate_v2", f"@q10,q10,i{0x91},i4", 12 * 12 // 2),
        ("cuArrayCreate_v2", f"@q8,q8,i{0x93},i4", 64),
        ("cuArrayCreate_v2", f"@q16,q16,i{0xB0},i3", 384),
        ("cuArrayCreate_v2", f"@q10,q10,i{0xC5},i4", 800),
        ("cuArray3DCreate_v2", "@q10,q10,q10,i1,i1,i0", 1000),
        ("cuArray3DCreate_v2", "@q10,q0,q10,i1,i1,i1", 100),
        ("cuArray3DCreate_v2", "@q100,q100,q100,i1,i1,i64", 0),
        ("cuArray3DCreate_v2", "@q100,q100,q100,i1,i1,i128", 0),
    ],
)
def test_arrays_are_counted_by_their_elements(
    place: Place, driver: FakeDriver, symbol: str, wanted: str, bytes_used: int
) -> None:
    """Heights and depths of 0 are one; formats have their own sizes; what gets its memory later has none."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        code, array = one.call(symbol, OUT, wanted)
        assert code == 0
        assert place.read().sum_used(0) == driver.read().sum_used() == bytes_used
        assert one.call("cuArrayDestroy", array) == (0,)
        assert place.read().sum_used(0) == 0


@pytest.mark.parametrize(
    ("wanted", "levels", "bytes_used"),
    [
        ("@q64,q64,q0,i1,i1,i0", 1, 4096),
        ("@q64,q64,q0,i1,i1,i0", 3, 4096 + 1024 + 256),
        ("@q64,q0,q0,i1,i1,i0", 99, 127),
        ("@q16,q16,q16,i1,i1,i0", 2, 4096 + 512),
        ("@q16,q16,q16,i1,i1,i1", 2, 4096 + 1024),
        ("@q64,q4,q0,i1,i1,i0", 99, 256 + 64 + 16 + 8 + 4 + 2 + 1),
    ],
)
def test_levels_of_mipmaps_are_halves(
    place: Place, driver: FakeDriver, wanted: str, levels: int, bytes_used: int
) -> None:
    """In every dimension but that of layers."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        assert one.call("cuMipmappedArrayCreate", OUT, wanted, levels)[0] == 0
        assert place.read().sum_used(0) == driver.read().sum_used() == bytes_used


def test_what_no_account_could_hold_is_refused(place: Place, driver: FakeDriver) -> None:
    """And what is no description at all is the driver's to refuse."""
    place.create(LIMIT)
    huge = 1 << 63
    with limit(place, driver) as one:
        assert one.call("cuArray3DCreate_v2", OUT, f"@q{huge},q{huge},q3,i1,i1,i0")[0] == OUT_OF_MEMORY
        assert one.call("cuArrayCreate_v2", OUT, f"@q{1 << 40},q1,i{0x77},i1")[0] == OUT_OF_MEMORY
        assert one.call("cuMipmappedArrayCreate", OUT, f"@q{huge},q{huge},q0,i1,i1,i0", 3)[0] == OUT_OF_MEMORY
        for symbol in ("cuArrayCreate", "cuArrayCreate_v2", "cuArray3DCreate", "cuArray3DCreate_v2"):
            assert one.call(symbol, OUT, 0)[0] == INVALID_VALUE
        assert one.call("cuMipmappedArrayCreate", OUT, 0, 1)[0] == INVALID_VALUE
        assert one.call("cuMemCreate", OUT, 100, 0, 0)[0] == INVALID_VALUE
        assert one.call("cuMemAllocAsync", OUT, 0, 0)[0] == INVALID_VALUE
        assert place.read().sum_used(0) == 0


class TestMadeApart:
    """Memory that is made, mapped and released apart."""

    def test_what_is_mapped_is_there_without_its_handle(self, place: Place, driver: FakeDriver) -> None:
        """And goes with the last mapping; a range may cover several."""
        place.create(LIMIT)
        with limit(place, driver) as one:
            _, start = one.call("cuMemAddressReserve", OUT, 4096, 0, 0, 0)
            for number in range(2):
                _, handle = one.call("cuMemCreate", OUT, 2048, describe_on(0), 0)
                assert one.call("cuMemMap", start + number * 2048, 2048, 0, handle, 0) == (0,)
                assert one.call("cuMemRelease", handle) == (0,)
                assert one.call("cuMemRelease", handle) == (INVALID_VALUE,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 4096
            assert one.call("cuMemUnmap", start, 4096) == (0,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 0
            assert one.call("cuMemUnmap", start, 4096) == (INVALID_VALUE,)

    def test_every_reference_holds_it(self, place: Place, driver: FakeDriver) -> None:
        place.create(LIMIT)
        with limit(place, driver) as one:
            _, start = one.call("cuMemAddressReserve", OUT, 8192, 0, 0, 0)
            _, handle = one.call("cuMemCreate", OUT, 2048, describe_on(0), 0)
            for number in range(2):
                assert one.call("cuMemMap", start + number * 4096, 2048, 0, handle, 0) == (0,)
            assert one.call("cuMemRetainAllocationHandle", OUT, start) == (0, handle)
            steps = {"cuMemRelease": (handle,), "cuMemUnmap": (start, 2048)}
            for step in ("cuMemRelease", "cuMemUnmap", "cuMemRelease"):
                assert one.call(step, *steps[step]) == (0,)
                assert place.read().sum_used(0) == driver.read().sum_used() == 2048
            assert one.call("cuMemUnmap", start, 8192) == (0,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 0

    def test_the_owner_pays(self, place: Place, driver: FakeDriver) -> None:
        """Neither what comes from another process nor the host's memory is charged, mapped or not."""
        place.create(LIMIT)
        with limit(place, driver) as one:
            _, start = one.call("cuMemAddressReserve", OUT, 1 << 20, 0, 0, 0)
            made = [
                one.call("cuMemImportFromShareableHandle", OUT, 0, 1),
                one.call("cuMemCreate", OUT, 1 << 20, describe_on(0, IN_HOST), 0),
            ]
            for code, handle in made:
                assert code == 0
                assert one.call("cuMemMap", start, 4096, 0, handle, 0) == (0,)
                assert one.call("cuMemUnmap", start, 4096) == (0,)
                assert one.call("cuMemRelease", handle) == (0,)
            assert place.read().sum_used(0) == 0
            assert one.call("cuMemMap", start, 4096, 0, 77, 0) == (INVALID_VALUE,)
            assert one.call("cuMemRetainAllocationHandle", OUT, start)[0] == INVALID_VALUE

    def test_charged_to_the_device_it_lies_on(self, place: Place, driver: FakeDriver) -> None:
        """Whichever context is current, also none."""
        place.create(LIMIT, 4096)
        with limit(place, driver) as one:
            one.call("cuCtxSetCurrent", 0)
            assert one.call("cuMemCreate", OUT, 4097, describe_on(1), 0)[0] == OUT_OF_MEMORY
            assert one.call("cuMemCreate", OUT, 4096, describe_on(1), 0)[0] == 0
            assert (place.read().sum_used(0), place.read().sum_used(1)) == (0, 4096)


class TestContexts:
    """What contexts take, and take with them."""

    @pytest.mark.parametrize(
        ("symbol", "arguments"),
        [
            ("cuCtxCreate", (0, 0)),
            ("cuCtxCreate_v2", (0, 0)),
            ("cuCtxCreate_v3", (0, 0, 0, 0)),
            ("cuCtxCreate_v4", (0, 0, 0)),
        ],
    )
    @pytest.mark.parametrize("destroy", ["cuCtxDestroy", "cuCtxDestroy_v2"])
    def test_made_and_destroyed(
        self, place: Place, tmp_path: Path, symbol: str, arguments: tuple[int, ...], destroy: str
    ) -> None:
        """With all that was in them, of every kind; a destruction that fails leaves all as it was."""
        place.create(LIMIT, context_bytes=3000)
        driver = FakeDriver(tmp_path, context_bytes=3000, fail={symbol: "700@1", destroy: "701@1"})
        with limit(place, driver) as one:
            assert place.read().sum_used(0) == driver.read().sum_used() == 3000
            assert one.call(symbol, OUT, *arguments)[0] == 700
            assert place.read().sum_used(0) == 3000
            code, context = one.call(symbol, OUT, *arguments)
            assert code == 0
            _, at = one.call("cuMemAlloc_v2", OUT, 1000)
            assert one.call("cuArrayCreate_v2", OUT, describe(100))[0] == 0
            assert one.call(symbol, OUT, *arguments)[0] == OUT_OF_MEMORY
            assert one.call(destroy, context) == (701,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 7100
            assert one.call("cuMemFree_v2", at) == (0,)
            assert one.call(destroy, context) == (0,)
            assert one.call(destroy, context)[0] != 0
            assert place.read().sum_used(0) == driver.read().sum_used() == 3000

    @pytest.mark.parametrize("version", ["", "_v2"])
    def test_a_device_s_own_is_there_until_nobody_retains_it(self, place: Place, tmp_path: Path, version: str) -> None:
        """Or until it is reset; it begins anew with the next who retains it."""
        place.create(LIMIT, context_bytes=3000)
        driver = FakeDriver(tmp_path, context_bytes=3000)
        with limit(place, driver) as one:
            assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == 0
            assert one.call("cuMemAlloc_v2", OUT, 1000)[0] == 0
            assert one.call(f"cuDevicePrimaryCtxRelease{version}", 0) == (0,)
            assert place.read().sum_used(0) == 4000
            assert one.call(f"cuDevicePrimaryCtxRelease{version}", 0) == (0,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 0
            one.start()
            assert one.call("cuMemAlloc_v2", OUT, 1000)[0] == 0
            assert one.call(f"cuDevicePrimaryCtxReset{version}", 0) == (0,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 0
            place.change(2999, context_bytes=3000)
            assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == OUT_OF_MEMORY
            assert driver.read().sum_used() == 0

    def test_memory_made_apart_and_pools_outlive_them(self, place: Place, driver: FakeDriver) -> None:
        place.create(LIMIT)
        with limit(place, driver) as one:
            _, context = one.call("cuCtxCreate_v2", OUT, 0, 0)
            assert one.call("cuMemCreate", OUT, 1000, describe_on(0), 0)[0] == 0
            assert one.call("cuMemAllocAsync", OUT, 500, 0)[0] == 0
            assert one.call("cuCtxDestroy_v2", context) == (0,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 1500

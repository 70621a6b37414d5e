"""What a process's first context takes is measured and counted where the limits file says nothing of it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.component.vgpu.build import HERE
from tests.component.vgpu.cuda_talk import OUT, Caller, call_driver
from tests.component.vgpu.limited import list_environ
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver
from tests.support.programs.compiled import compile_once

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

MIB = 1 << 20
GIB = 1 << 30
CONTEXT = 300 * MIB
OUT_OF_MEMORY = 2
NVML = "libnvidia-ml.so.1"


def build_nvml() -> Path:
    """Of this driver's account."""
    source = Path(__file__).with_name("nvml_of_account.c")
    return compile_once(HERE / "build", NVML, [source], ("-shared", "-fPIC", "-O1", f"-Wl,-soname,{NVML}"))


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path, context_bytes=CONTEXT)


@contextmanager
def limit(place: Place, driver: FakeDriver, **more: str) -> Iterator[Caller]:
    """A program that is asked call by call, with NVML beside its driver, and no context yet."""
    environ = list_environ(place, driver, **more)
    environ["LD_LIBRARY_PATH"] += f":{build_nvml().parent}"
    with call_driver(driver, environ) as one:
        assert one.call("cuInit", 0) == (0,)
        yield one


@pytest.mark.parametrize(
    ("symbol", "arguments"),
    [("cuDevicePrimaryCtxRetain", (OUT, 0)), ("cuCtxCreate_v2", (OUT, 0, 0)), ("cuCtxCreate_v4", (OUT, 0, 0, 0))],
)
@pytest.mark.parametrize("more", [{"NVML_UUID": "GPU-"}, {"NVML_UUID": "MIG-"}], ids=["gpu", "mig"])
def test_the_first_is_measured(
    place: Place, driver: FakeDriver, symbol: str, arguments: tuple[int | str, ...], more: dict[str, str]
) -> None:
    """In every way to make one, on a GPU and on a MIG device; a second one is not; memory has the rest."""
    place.create(GIB)
    with limit(place, driver, **more) as one:
        assert place.read().sum_used(0) == 0
        code, context = one.call(symbol, *arguments)
        assert code == 0
        assert place.read().sum_used(0) == CONTEXT
        assert one.call("cuCtxSetCurrent", context) == (0,)
        assert one.call("cuMemGetInfo_v2", OUT, OUT) == (0, GIB - CONTEXT, GIB)
        assert one.call("cuCtxCreate_v2", OUT, 0, 0)[0] == 0
        assert place.read().sum_used(0) == CONTEXT
        assert one.call("cuMemAlloc_v2", OUT, GIB - CONTEXT + 1)[0] == OUT_OF_MEMORY
        assert one.call("cuMemAlloc_v2", OUT, GIB - CONTEXT)[0] == 0


def test_destroyed_it_is_given_back_and_the_next_is_measured(place: Place, driver: FakeDriver) -> None:
    place.create(GIB)
    with limit(place, driver) as one:
        for _ in range(2):
            _, context = one.call("cuCtxCreate_v2", OUT, 0, 0)
            assert place.read().sum_used(0) == driver.read().sum_used() == CONTEXT
            assert one.call("cuCtxDestroy_v2", context) == (0,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 0
        for end in ("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"):
            assert [one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] for _ in range(2)] == [0, 0]
            assert place.read().sum_used(0) == CONTEXT
            assert one.call(end, 0) == (0,)
            assert one.call("cuDevicePrimaryCtxReset_v2", 0) == (0,)
            assert place.read().sum_used(0) == driver.read().sum_used() == 0


def test_what_does_not_fit_goes_back(place: Place, driver: FakeDriver) -> None:
    """As CUDA's own error, and nothing of it stays."""
    place.create(CONTEXT - 1)
    with limit(place, driver) as one:
        assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == OUT_OF_MEMORY
        assert one.call("cuCtxCreate_v2", OUT, 0, 0)[0] == OUT_OF_MEMORY
        assert place.read().sum_used(0) == driver.read().sum_used() == 0
        place.change(CONTEXT)
        assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == 0
        assert place.read().sum_used(0) == driver.read().sum_used() == CONTEXT


def test_each_process_has_its_own(place: Place, driver: FakeDriver) -> None:
    """And what is killed has none; what fails is not counted."""
    place.create(GIB)
    failing = FakeDriver(place.path, context_bytes=CONTEXT, fail={"cuDevicePrimaryCtxRetain": "700@1"})
    with limit(place, failing) as one:
        assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == 700
        assert place.read().sum_used(0) == 0
        assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == 0
        with limit(place, driver) as other:
            assert other.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == 0
            assert place.read().sum_used(0) == 2 * CONTEXT
            other.kill()
        with limit(place, driver) as third:
            third.start()
            assert third.call("cuMemAlloc_v2", OUT, GIB - 2 * CONTEXT)[0] == 0


@pytest.mark.parametrize(
    ("more", "counted"),
    [
        ({"NVML_STRANGER": str(GIB)}, CONTEXT),
        ({"NVML_STRANGER": str(100 * MIB)}, 100 * MIB),
        ({"NVML_NO_LISTS": "1"}, CONTEXT),
        ({"NVML_STRANGER": str(5 * GIB), "NVML_NO_LISTS": "1"}, 0),
    ],
    ids=["larger", "smaller", "no list", "absurd"],
)
def test_who_starts_at_the_same_moment_is_not_counted_in(
    place: Place, driver: FakeDriver, more: dict[str, str], counted: int
) -> None:
    """Of two that are new the least counts; without a list what the device has less, up to what a context can be."""
    place.create(8 * GIB)
    with limit(place, driver, **more) as one:
        one.start()
        assert place.read().sum_used(0) == counted


@pytest.mark.parametrize(
    ("memory_bytes", "context_bytes", "more", "counted"),
    [(GIB, 100 * MIB, {}, 100 * MIB), (None, 0, {}, 0), (GIB, 0, {"NVML_UUID": "none"}, 0)],
    ids=["said", "no limit", "another device"],
)
def test_nothing_is_measured_where_it_is_said_or_cannot_be(
    place: Place, driver: FakeDriver, memory_bytes: int | None, context_bytes: int, more: dict[str, str], counted: int
) -> None:
    place.create(memory_bytes, context_bytes=context_bytes)
    with limit(place, driver, **more) as one:
        one.start()
        assert place.read().sum_used(0) == counted


def test_without_nvml_nothing_is_counted(place: Place, driver: FakeDriver) -> None:
    place.create(GIB)
    with call_driver(driver, list_environ(place, driver)) as one:
        one.start()
        assert place.read().sum_used(0) == 0


def test_a_program_that_looks_for_nvml_does_not_find_it_by_this(place: Place, driver: FakeDriver) -> None:
    place.create(GIB)
    with limit(place, driver) as one:
        before = one.where("default", "nvmlDeviceGetMemoryInfo")
        one.start()
        assert one.where("default", "nvmlDeviceGetMemoryInfo") == before == "nowhere"


def test_the_child_of_a_fork_has_a_first_one_of_its_own(place: Place, driver: FakeDriver) -> None:
    """The lock that its parent may have held is free in it; the driver starts in no child."""
    place.create(GIB)
    with limit(place, driver) as one:
        one.start()
        assert one.ask("fork") == "child"
        assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] != 0
        assert place.read().sum_used(0) == CONTEXT

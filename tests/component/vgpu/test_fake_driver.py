"""The driver that judges the library: it counts for itself, and answers as CUDA's does."""

import shutil
from pathlib import Path

import pytest

from tests.component.vgpu.cuda_talk import LATEST, OUT, call_driver
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the driver is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT = 1, 2, 3, 100, 101, 201


def test_devices(tmp_path: Path) -> None:
    with call_driver(FakeDriver(tmp_path, memory=(1000, 8 << 30))) as one:
        assert one.call("cuDeviceGetCount", OUT) == (NOT_INITIALIZED, 0)
        assert one.call("cuInit", 0) == (0,)
        assert one.call("cuDeviceGetCount", OUT) == (0, 2)
        assert one.call("cuDeviceGet", OUT, 2) == (INVALID_DEVICE, 0)
        assert one.call("cuDeviceTotalMem_v2", OUT, 0) == (0, 1000)
        assert one.call("cuDeviceTotalMem_v2", OUT, 1) == (0, 8 << 30)
        assert one.call("cuDeviceTotalMem", OUT, 1) == (0, (1 << 32) - 1)
    with call_driver(FakeDriver(tmp_path, memory=())) as one:
        assert one.call("cuInit", 0) == (NO_DEVICE,)


def test_memory_of_every_kind_is_counted_until_it_is_freed(tmp_path: Path) -> None:
    """By all of it that the device has, and not a byte more."""
    driver = FakeDriver(tmp_path, memory=(4096,))
    with call_driver(driver) as one:
        one.call("cuInit", 0)
        assert one.call("cuMemAlloc_v2", OUT, 1) == (INVALID_CONTEXT, 0)
        one.start()
        made = [
            one.call("cuMemAlloc_v2", OUT, 100),
            one.call("cuMemAlloc", OUT, 100),
            one.call("cuMemAllocManaged", OUT, 100, 1),
            one.call("cuMemAllocAsync_ptsz", OUT, 100, 0),
            one.call("cuMemAllocPitch_v2", OUT, OUT, 100, 2, 4),
        ]
        assert [code for code, *_ in made] == [0] * 5
        assert made[4][2] == 512
        assert made[1][1] < 1 << 32 < made[0][1]
        assert driver.read().sum_used() == 400 + 1024
        assert one.call("cuMemGetInfo_v2", OUT, OUT) == (0, 4096 - 1424, 4096)
        assert one.call("cuMemAlloc_v2", OUT, 4096 - 1424 + 1) == (OUT_OF_MEMORY, 0)
        assert one.call("cuMemAlloc_v2", OUT, 4096 - 1424)[0] == 0
        assert one.call("cuMemAlloc_v2", OUT, 0)[0] == INVALID_VALUE
        for _, at, *_ in made:
            assert one.call("cuMemFree_v2", at) == (0,)
            assert one.call("cuMemFree_v2", at) == (INVALID_VALUE,)
        assert one.call("cuMemFree_v2", 0) == (0,)
        assert driver.read().sum_used() == 4096 - 1424 + 100
        assert one.call("cuCtxSynchronize") == (0,)
        account = driver.read()
        assert (account.sum_used(), account.most[0]) == (4096 - 1424, 4096)


def test_contexts_cost_and_take_their_memory_with_them(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, memory=(1000,), context_bytes=300)
    with call_driver(driver) as one:
        one.start()
        assert one.call("cuMemAlloc_v2", OUT, 100)[0] == 0
        assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == 0
        code, made = one.call("cuCtxCreate_v2", OUT, 0, 0)
        assert (code, one.call("cuCtxGetCurrent", OUT)) == (0, (0, made))
        assert one.call("cuMemAlloc_v2", OUT, 100)[0] == 0
        assert one.call("cuCtxCreate_v2", OUT, 0, 0)[0] == OUT_OF_MEMORY
        assert driver.read().sum_used() == 800
        assert one.call("cuCtxDestroy_v2", made) == (0,)
        assert one.call("cuCtxDestroy_v2", made) == (INVALID_CONTEXT,)
        assert driver.read().sum_used() == 400
        assert one.call("cuDevicePrimaryCtxRelease_v2", 0) == (0,)
        assert driver.read().sum_used() == 400
        assert one.call("cuDevicePrimaryCtxRelease_v2", 0) == (0,)
        assert driver.read().sum_used() == 0
        assert one.call("cuMemAlloc_v2", OUT, 1)[0] == INVALID_CONTEXT


def test_processes_share_a_device_and_the_dead_have_nothing(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, memory=(1000,))
    with call_driver(driver) as one:
        one.start()
        with call_driver(driver) as other:
            other.start()
            assert other.call("cuMemAlloc_v2", OUT, 600)[0] == 0
            assert one.call("cuMemAlloc_v2", OUT, 401)[0] == OUT_OF_MEMORY
            assert len(driver.read().used) == 2
        assert driver.read().sum_used() == 0
        assert one.call("cuMemAlloc_v2", OUT, 1000)[0] == 0
        assert driver.read().most[0] == 1000


def test_a_child_cannot_use_its_parents_driver(tmp_path: Path) -> None:
    with call_driver(FakeDriver(tmp_path)) as one:
        one.start()
        assert one.ask("fork") == "child"
        assert one.call("cuInit", 0) == (NOT_INITIALIZED,)
        assert one.call("cuMemAlloc_v2", OUT, 1)[0] == NOT_INITIALIZED


def test_fails_where_it_is_told_to(tmp_path: Path) -> None:
    """Nothing is counted for a call that failed."""
    driver = FakeDriver(tmp_path, fail={"cuMemAlloc_v2": "700@2", "cuMemFree_v2": "999"})
    with call_driver(driver) as one:
        one.start()
        assert [one.call("cuMemAlloc_v2", OUT, 10)[0] for _ in range(3)] == [0, 700, 0]
        assert one.call("cuMemFree_v2", 0) == (999,)
        assert driver.read().sum_used() == 20


@pytest.mark.parametrize(
    ("route", "base", "symbol"),
    [
        ("2000:0", "cuMemAlloc", "cuMemAlloc"),
        ("3010:0", "cuMemAlloc", "cuMemAlloc"),
        ("3020:0", "cuMemAlloc", "cuMemAlloc_v2"),
        (LATEST, "cuMemAlloc", "cuMemAlloc_v2"),
        ("12080:2", "cuMemAlloc", "cuMemAlloc_v2"),
        ("12080:1", "cuMemAllocAsync", "cuMemAllocAsync"),
        ("12080:2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz"),
        ("12080:2", "cuMemsetD8", "cuMemsetD8_v2_ptds"),
        ("6050:2", "cuMemsetD8", None),
        ("11030:0", "cuCtxCreate", "cuCtxCreate_v2"),
        ("11040:0", "cuCtxCreate", "cuCtxCreate_v3"),
        (LATEST, "cuCtxCreate", "cuCtxCreate_v4"),
        ("11030:0", "cuGetProcAddress", "cuGetProcAddress"),
        (LATEST, "cuGetProcAddress", "cuGetProcAddress_v2"),
        (LATEST, "cuMemAlloc_v2", None),
        ("5000:0", "cuMemAllocManaged", None),
        ("12090:0", "cuMemAlloc", "cuMemAlloc_v2"),
    ],
)
def test_a_base_name_leads_to_the_abi_of_the_version_asked_for(
    tmp_path: Path, route: str, base: str, symbol: str | None
) -> None:
    """And to the address that the dynamic loader has for that symbol; each symbol has an address of its own."""
    with call_driver(FakeDriver(tmp_path)) as one:
        where = one.where(route, base)
        assert where == (f"libcuda.so.1 {symbol}" if symbol else "nowhere")
        assert not symbol or where == one.where("dlsym", symbol)


def test_an_older_driver_lacks_what_came_later(tmp_path: Path) -> None:
    with call_driver(FakeDriver(tmp_path, version=11040)) as one:
        assert one.where("11040:0", "cuCtxCreate") == "libcuda.so.1 cuCtxCreate_v3"
        assert one.where("12050:0", "cuCtxCreate") == "libcuda.so.1 cuCtxCreate_v3"

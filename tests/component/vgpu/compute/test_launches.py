"""The time of a device: every way to launch is held to its part of it, by what the kernels took."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from nodeagent.edge.host.vgpu.layout import BUCKET, PROCESS, PROCESSES, USAGE_HEADER
from nodeagent.edge.host.vgpu.limits_file import (
    DeviceLimit,
    Limits,
    Measured,
    change_limits,
    create_limits,
    write_measured,
)
from nodeagent.edge.host.vgpu.usage_file import create_usage
from tests.component.vgpu.build import build_program
from tests.component.vgpu.cuda_talk import OUT, Caller
from tests.component.vgpu.limited import limit, list_environ
from tests.component.vgpu.place import UUIDS, Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

INVALID_VALUE, INVALID_HANDLE = 1, 400
ENTRIES = [
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuLaunch",
    "cuLaunchGrid",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
]


def say(cores: int | None, *, soft: bool = False) -> Limits:
    return Limits((DeviceLimit(UUIDS[0], core_percent=cores, soft=soft),))


def create(place: Place, cores: int | None, *, soft: bool = False) -> None:
    create_limits(place.limits_path, say(cores, soft=soft))
    create_usage(place.usage_path)


def start(place: Place, driver: FakeDriver, entry: str, microseconds: int, milliseconds: int) -> subprocess.Popen[str]:
    command = [str(build_program("spin")), entry, str(microseconds), str(milliseconds)]
    environ = list_environ(place, driver)
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def load(one: Caller, name: bytes) -> int:
    _, module = one.call("cuModuleLoadData", OUT, "@q1")
    words = "".join(
        f"q{int.from_bytes(name[at : at + 8].ljust(8, bytes(1)), 'little')}," for at in range(0, len(name) + 1, 8)
    )
    code, function = one.call("cuModuleGetFunction", OUT, module, "@" + words.rstrip(","))
    assert code == 0
    return function


def launch(one: Caller, function: int) -> tuple[int, ...]:
    return one.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)


def finish(process: subprocess.Popen[str], microseconds: int) -> float:
    """The part of the time that the device was busy with it."""
    stdout, stderr = process.communicate()
    assert (process.returncode, stderr) == (0, "")
    launched, elapsed = map(int, stdout.split())
    return launched * microseconds / elapsed


def hold(part: float, wanted: float, *, over: float = 0.07) -> None:
    """Never more than a few points over it; under it where this machine is busy with other things."""
    assert wanted / 2 <= part <= wanted + over


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_way_to_launch_pays(place: Place, driver: FakeDriver, entry: str) -> None:
    """What it took before; nothing waits while a stream is captured. The fake's kernels are one after another."""
    create(place, 25)
    hold(finish(start(place, driver, entry, 1000, 900), 1000), 0.25)


@pytest.mark.parametrize(("cores", "microseconds"), [(10, 200), (50, 5000), (80, 20000), (30, 100000), (30, 300000)])
def test_parts_are_kept_by_time_whatever_the_kernels_are(
    place: Place, driver: FakeDriver, cores: int, microseconds: int
) -> None:
    """Long kernels pay when they are through: the next one waits."""
    create(place, cores)
    part = finish(start(place, driver, "cuLaunchKernel", microseconds, 1500), microseconds)
    hold(part, cores / 100, over=0.12 if microseconds > 50000 else 0.07)


@pytest.mark.parametrize("cores", [None, 100])
def test_without_a_limit_nothing_waits(place: Place, driver: FakeDriver, cores: int | None) -> None:
    create(place, cores)
    assert finish(start(place, driver, "cuLaunchKernel", 2000, 300), 2000) > 0.5


def test_processes_of_a_container_share_its_part(place: Place, driver: FakeDriver) -> None:
    create(place, 40)
    running = [start(place, driver, "cuLaunchKernel", 2000, 1200) for _ in range(3)]
    parts = [finish(each, 2000) for each in running]
    hold(sum(parts), 0.4, over=0.1)
    assert min(parts) > 0.02


def wait_busy(driver: FakeDriver, nanoseconds: int = 1) -> None:
    """Until kernels of so long together have begun."""
    deadline = time.monotonic() + 20
    while sum(driver.read().busy_ns.values()) < nanoseconds:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_wait_ends_where_the_limit_does(place: Place, driver: FakeDriver) -> None:
    """A kernel of a fifth of a second at one percent would be waited for for twenty seconds."""
    create(place, 1)
    with start(place, driver, "cuLaunchKernel", 200_000, 60_000) as process:
        wait_busy(driver)
        began = time.monotonic()
        change_limits(place.limits_path, say(None))
        wait_busy(driver, 2 * 200_000_000)
        process.kill()
    assert time.monotonic() - began < 5


def test_what_is_paid_far_ahead_is_waited_for(place: Place, driver: FakeDriver) -> None:
    """A kernel of 0.4 s at one percent, a sixteenth of it left: the next one would wait for more than ten minutes."""
    create(place, 1)
    with place.usage_path.open("r+b") as file:
        file.seek(USAGE_HEADER.size + PROCESSES * PROCESS.size + BUCKET.offsets["control"])
        file.write((65536 // 16).to_bytes(8, "little"))
    with start(place, driver, "cuLaunchKernel", 400_000, 60_000) as process:
        try:
            wait_busy(driver)
            time.sleep(1)  # in which it would begin the next, and more
            busy = sum(driver.read().busy_ns.values())
        finally:
            process.kill()
    assert busy == 400_000_000


def measure(place: Place, process: subprocess.Popen[str], own: int, total: int) -> None:
    """As the agent tells every tenth of a second, as long as it runs."""
    number = 0
    while process.poll() is None:
        number += 1
        write_measured(place.limits_path, 0, Measured(number, own, total))
        time.sleep(0.05)


def test_what_is_measured_corrects_what_is_reckoned(place: Place, driver: FakeDriver) -> None:
    """Told that it has less than its part, it is given more, and the other way round."""
    create(place, 20)
    parts = []
    for own, total in ((500, 10000), (10000, 10000)):
        process = start(place, driver, "cuLaunchKernel", 1000, 1500)
        measure(place, process, own, total)
        parts.append(finish(process, 1000))
    assert parts[0] > 0.25
    assert parts[1] < 0.8 * parts[0]


def test_in_soft_mode_what_is_idle_may_be_used(place: Place, driver: FakeDriver) -> None:
    """And no longer where all have the device busy."""
    create(place, 20, soft=True)
    process = start(place, driver, "cuLaunchKernel", 1000, 2000)
    measure(place, process, 2000, 4000)
    assert finish(process, 1000) > 0.35
    parts = []
    for _ in range(2):
        process = start(place, driver, "cuLaunchKernel", 1000, 2000)
        measure(place, process, 6000, 10000)
        parts.append(finish(process, 1000))
    # The first still has what was given before, until it is told: how long that takes is a matter of this machine.
    assert parts[1] < 0.3, parts


def test_what_is_wrong_is_the_drivers_to_say(place: Place, driver: FakeDriver) -> None:
    create(place, 50)
    with limit(place, driver) as one:
        for symbol in ("cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"):
            assert one.call(symbol, 0, 0, 0, 0) == (INVALID_VALUE,)
        assert one.call("cuLaunchCooperativeKernelMultiDevice", 0, 0, 0) == (INVALID_VALUE,)
        assert one.call("cuLaunchKernel", 77, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) == (INVALID_HANDLE,)
        assert one.call("cuLaunchGridAsync", 77, 1, 1, 0) == (INVALID_HANDLE,)
        _, module = one.call("cuModuleLoadData", OUT, "@q1")
        assert module


@pytest.mark.parametrize("symbol", ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2", "cuCtxDestroy_v2"])
def test_what_ended_with_its_context_is_not_asked_for(place: Place, driver: FakeDriver, symbol: str) -> None:
    """Launches whose end nobody has seen yet: their events are the context's."""
    create(place, 50)
    with limit(place, driver) as one:
        context = 0
        if symbol == "cuCtxDestroy_v2":
            _, context = one.call("cuCtxCreate_v2", OUT, 0, 0)
        function = load(one, b"us_50000")
        assert launch(one, function) == (0,)
        assert one.call(symbol, context) == (0,)
        one.start()
        assert [launch(one, function) for _ in range(3)] == [(0,)] * 3


def test_a_context_that_others_have_retained_keeps_what_was_seen(place: Place, driver: FakeDriver) -> None:
    """Giving it back in between is no way to pay for nothing."""
    create(place, 10)
    with limit(place, driver) as one:
        function = load(one, b"us_20000")
        one.start()
        began = time.monotonic()
        for _ in range(4):
            assert launch(one, function) == (0,)
            assert one.call("cuDevicePrimaryCtxRetain", OUT, 0)[0] == 0
            assert one.call("cuDevicePrimaryCtxRelease_v2", 0) == (0,)
            assert one.call("cuStreamSynchronize", 0) == (0,)
        assert time.monotonic() - began > 0.4


def test_whatever_was_launched_before_a_function_pays(place: Place, driver: FakeDriver) -> None:
    """A program that lives long, and makes its graphs anew for each step of its work."""
    create(place, 10)
    with limit(place, driver) as one:
        short, long = load(one, b"us_1"), load(one, b"us_20000")
        _, stream = one.call("cuStreamCreate", OUT, 0)
        assert one.call("cuStreamBeginCapture_v2", stream, 0) == (0,)
        assert one.call("cuLaunchKernel", short, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0) == (0,)
        _, graph = one.call("cuStreamEndCapture", stream, OUT)
        for _ in range(6000):
            _, made = one.call("cuGraphInstantiateWithFlags", OUT, graph, 0)
            assert one.call("cuGraphLaunch", made, 0) == (0,)
        began = time.monotonic()
        for _ in range(8):
            assert launch(one, long) == (0,)
            assert one.call("cuStreamSynchronize", 0) == (0,)
        assert time.monotonic() - began > 1


def test_a_graph_pays_for_the_device_of_its_stream(place: Place, driver: FakeDriver) -> None:
    """Whichever context is the thread's meanwhile: it is the stream that says where."""
    devices = (DeviceLimit(UUIDS[0], memory_bytes=1 << 30), DeviceLimit(UUIDS[1], core_percent=10))
    create_limits(place.limits_path, Limits(devices))
    create_usage(place.usage_path)
    with limit(place, driver) as one:
        _, first = one.call("cuCtxGetCurrent", OUT)
        one.start(1)
        function = load(one, b"us_20000")
        _, stream = one.call("cuStreamCreate", OUT, 0)
        assert one.call("cuStreamBeginCapture_v2", stream, 0) == (0,)
        assert one.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0) == (0,)
        _, graph = one.call("cuStreamEndCapture", stream, OUT)
        _, made = one.call("cuGraphInstantiateWithFlags", OUT, graph, 0)
        assert one.call("cuCtxSetCurrent", first) == (0,)
        began = time.monotonic()
        for _ in range(8):
            assert one.call("cuGraphLaunch", made, stream) == (0,)
            assert one.call("cuStreamSynchronize", stream) == (0,)
        assert time.monotonic() - began > 1
        assert one.call("cuCtxGetCurrent", OUT) == (0, first)


def test_no_more_goes_unpaid_than_is_watched(place: Place, driver: FakeDriver) -> None:
    """Kernels of forty functions, 0.4 s together, of none of which anything is known when it is launched."""
    create(place, 25)
    with limit(place, driver) as one:
        functions = [load(one, f"us_{5000 + number}".encode()) for number in range(40)]
        began = time.monotonic()
        for function in functions * 2:
            assert launch(one, function) == (0,)
        assert time.monotonic() - began > 0.5


def test_a_launch_that_failed_says_nothing_of_its_function(place: Place, tmp_path: Path) -> None:
    """Else a function that was called wrongly at first would be taken for one that costs nothing."""
    create(place, 10)
    driver = FakeDriver(tmp_path, fail={"cuLaunchKernel": "1@1"})
    with limit(place, driver) as one:
        function = load(one, b"us_100000")
        assert launch(one, function) == (INVALID_VALUE,)
        began = time.monotonic()
        assert [launch(one, function) for _ in range(6)] == [(0,)] * 6
        assert time.monotonic() - began > 1

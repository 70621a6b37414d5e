"""The vGPU library before NVIDIA's own driver: run by `make gpu` where a GPU is idle."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

from nodeagent.edge.host.vgpu.limits_file import (
    DeviceLimit,
    Limits,
    Measured,
    change_limits,
    create_limits,
    write_measured,
)
from nodeagent.edge.host.vgpu.usage_file import create_usage
from tests.component.vgpu.build import LIBRARY, build_library, build_program
from tests.component.vgpu.cuda_talk import OUT, Caller, call_driver
from tests.component.vgpu.front.test_cuda_headers import list_hooks
from tests.component.vgpu.memory.test_classes import FLOAT, describe_on
from tests.component.vgpu.place import Place

pytestmark = [pytest.mark.gpu, pytest.mark.may_block("nothing here runs on an event loop")]

MIB = 1 << 20
LIMIT = 4096 * MIB
"""Several times what a context takes."""
OUT_OF_MEMORY = 2
TAKES: dict[str, Callable[[int], tuple[int | str, ...]]] = {
    "cuMemAlloc_v2": lambda size: (OUT, size),
    "cuMemAllocManaged": lambda size: (OUT, size, 1),
    "cuMemAllocAsync": lambda size: (OUT, size, 0),
    "cuMemCreate": lambda size: (OUT, size, describe_on(0), 0),
    "cuArrayCreate_v2": lambda size: (OUT, f"@q32768,q{size // 4 // 32768},i{FLOAT},i1"),
}


PTX = Path(__file__).with_name("kernels.ptx")
KERNEL_SECONDS = 0.002
SPLIT_SECONDS = 60
WORKLOAD_SECONDS = 15
LAUNCHES = 1_000_000


def find_uuid() -> str:
    command = ["nvidia-smi", "--id=0", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def say(memory_bytes: int | None, cores: int | None = None) -> Limits:
    return Limits((DeviceLimit(find_uuid(), memory_bytes=memory_bytes, core_percent=cores),))


def make_place(path: Path, *, memory_bytes: int | None = None, cores: int | None = None) -> Place:
    path.mkdir(exist_ok=True)
    made = Place(path)
    create_limits(made.limits_path, say(memory_bytes, cores))
    create_usage(made.usage_path)
    return made


def list_environ(place: Place) -> dict[str, str]:
    return place.environ(LD_PRELOAD=str(build_library()), CUDA_VISIBLE_DEVICES="0")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path, memory_bytes=LIMIT)


@contextmanager
def limit(place: Place) -> Iterator[Caller]:
    with call_driver(None, list_environ(place)) as caller:
        caller.start()
        yield caller


@pytest.mark.parametrize("symbol", TAKES)
def test_each_class_to_the_limit_and_beyond(place: Place, symbol: str) -> None:
    """Up to what a real driver pads: the last piece is as large as it leaves room for."""
    with limit(place) as one:
        assert one.call(symbol, *TAKES[symbol](LIMIT + 64 * MIB))[0] == OUT_OF_MEMORY
        assert one.call(symbol, *TAKES[symbol](LIMIT // 2))[0] == 0
        assert one.call(symbol, *TAKES[symbol](LIMIT // 2 + 64 * MIB))[0] == OUT_OF_MEMORY
        assert LIMIT // 2 <= place.read().sum_used(0) <= LIMIT


def test_a_program_sees_its_fraction_and_its_limit_change(place: Place) -> None:
    with limit(place) as one:
        assert one.call("cuDeviceTotalMem_v2", OUT, 0) == (0, LIMIT)
        code, spare, total = one.call("cuMemGetInfo_v2", OUT, OUT)
        assert (code, total) == (0, LIMIT)
        assert spare <= LIMIT
        change_limits(place.limits_path, say(2 * LIMIT))
        assert one.call("cuMemGetInfo_v2", OUT, OUT)[2] == 2 * LIMIT


def read_used_by(pid: int) -> int:
    """Bytes that NVML says this process has of the first device."""
    pynvml.nvmlInit()
    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(find_uuid())
        return sum(
            each.usedGpuMemory or 0 for each in pynvml.nvmlDeviceGetComputeRunningProcesses(device) if each.pid == pid
        )
    finally:
        pynvml.nvmlShutdown()


def test_the_first_context_is_counted(place: Place, record_property: Callable[[str, object], None]) -> None:
    """As many bytes as NVML says of the process, within a twentieth; two that start at once have theirs each."""
    with limit(place), limit(place):
        counted = {each.pid: each.shares[0].used_bytes for each in place.read().processes}
        said = {pid: read_used_by(pid) for pid in counted}
    record_property("counted", counted)
    record_property("nvml", said)
    assert len(counted) == 2
    for pid, size in counted.items():
        assert size == pytest.approx(said[pid], rel=0.05)


def test_every_entry_point_is_routed_by_its_address(place: Place) -> None:
    """By its symbol and by base name, version and flags: the hook of what the driver itself leads to."""
    hooks = list_hooks()
    with call_driver(None) as plain, limit(place) as one:
        for symbol, row in hooks.items():
            where = plain.where("dlsym", symbol)
            assert one.where("dlsym", symbol) == (where if where == "nowhere" else f"{LIBRARY} {symbol}")
            if row is None or where == "nowhere":
                continue
            base, since, per_thread = row
            route = f"{since}:{2 if per_thread else 0}"
            name = plain.where(route, base).rpartition(" ")[2]
            if name in hooks:
                assert one.where(route, base) == f"{LIBRARY} {name}"


def spin(turns: int, seconds: float, environ: dict[str, str], entry: str = "cuLaunchKernel") -> subprocess.Popen[str]:
    command = [str(build_program("spin")), entry, str(turns), str(int(seconds * 1000)), str(PTX)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def read_spin(process: subprocess.Popen[str]) -> tuple[int, float]:
    """How many kernels it launched, and in how many seconds."""
    said, _ = process.communicate()
    assert process.returncode == 0
    count, microseconds = said.split()
    return int(count), int(microseconds) / 1e6


def find_turns(environ: dict[str, str]) -> tuple[int, float]:
    """How many turns take about as long as a kernel is to take, and how long they do when nobody else is there."""
    turns = 100_000
    for _ in range(3):
        count, seconds = read_spin(spin(turns, 1.0, environ))
        turns = max(1, int(turns * KERNEL_SECONDS / (seconds / count)))
    count, seconds = read_spin(spin(turns, 2.0, environ))
    return turns, seconds / count


def tell_measured(places: dict[int, Place], until: float) -> None:
    """As the agent does: once a second each is told how busy it and all had the device, by NVML's own count."""
    pynvml.nvmlInit()
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        seen, number = 0, 0
        while time.monotonic() < until:
            time.sleep(1)
            try:
                found = pynvml.nvmlDeviceGetProcessUtilization(device, seen)
            except pynvml.NVMLError_NotFound:
                continue
            newest: dict[int, int] = {}
            for each in sorted(found, key=lambda one: int(one.timeStamp)):
                newest[each.pid], seen = each.smUtil, max(seen, each.timeStamp)
            number, total = number + 1, min(100, sum(newest.values()))
            for pid, place in places.items():
                own = min(total, newest.get(pid, 0))
                write_measured(place.limits_path, 0, Measured(number=number, own=own * 100, total=total * 100))
    finally:
        pynvml.nvmlShutdown()


def test_two_programs_at_thirty_and_seventy(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Kernels of known length, told once a second what was measured: each has its part, within five points."""
    plain = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "0"}
    turns, alone_seconds = find_turns(plain)
    wanted = (30, 70)
    places = [make_place(tmp_path / str(cores), cores=cores) for cores in wanted]
    programs = [spin(turns, SPLIT_SECONDS, list_environ(place)) for place in places]
    began = time.monotonic()
    of = {process.pid: place for process, place in zip(programs, places, strict=True)}
    tell_measured(of, began + SPLIT_SECONDS)
    parts = [count * alone_seconds / seconds for count, seconds in map(read_spin, programs)]
    record_property("kernel_milliseconds", alone_seconds * 1000)
    record_property("parts", parts)
    for part, cores in zip(parts, wanted, strict=True):
        assert part == pytest.approx(cores / 100, abs=0.05)


@pytest.fixture(scope="module")
def known_turns() -> tuple[int, float]:
    return find_turns({"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "0"})


@pytest.mark.parametrize(
    ("entry", "factor"),
    [
        ("cuLaunchKernel", 0.1),
        ("cuLaunchKernel", 1.0),
        ("cuLaunchKernel", 10.0),
        ("cuLaunchKernel", 150.0),
        ("cuLaunchKernelEx", 1.0),
        ("cuLaunchCooperativeKernel", 1.0),
        ("cuGraphLaunch", 1.0),
    ],
)
def test_thirty_percent(
    tmp_path: Path,
    known_turns: tuple[int, float],
    entry: str,
    factor: float,
    record_property: Callable[[str, object], None],
) -> None:
    """Of kernels from 0.2 ms to 0.3 s, launched as far ahead as the driver lets a program, in each way to launch."""
    turns, seconds = known_turns
    place = make_place(tmp_path / "place", cores=30)
    program = spin(max(1, int(turns * factor)), WORKLOAD_SECONDS, list_environ(place), entry)
    tell_measured({program.pid: place}, time.monotonic() + WORKLOAD_SECONDS)
    count, elapsed = read_spin(program)
    part = count * seconds * factor / elapsed
    record_property("part", round(part, 3))
    assert part == pytest.approx(0.30, abs=0.05)


@pytest.mark.parametrize(
    ("what", "count", "cores", "added_ns"),
    [
        ("launch", LAUNCHES, None, 60),
        ("launch", LAUNCHES, 99, 120),
        ("allocate", LAUNCHES // 100, None, 250),
        ("info", LAUNCHES // 100, None, 1000),
        ("find", LAUNCHES // 10, None, 100),
    ],
)
def test_overhead(
    tmp_path: Path,
    what: str,
    count: int,
    cores: int | None,
    added_ns: int,
    record_property: Callable[[str, object], None],
) -> None:
    """Of a kernel that does nothing, and of other calls, with the library and without, in turns."""
    place = make_place(tmp_path / "place", memory_bytes=LIMIT, cores=cores)
    plain = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "0"}

    def measure(environ: dict[str, str]) -> float:
        command = [str(build_program("cost")), what, str(count), str(PTX)]
        return float(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)

    turns = [(measure(plain), measure(list_environ(place))) for _ in range(5)]
    without, within = (sorted(each)[2] for each in zip(*turns, strict=True))
    record_property("nanoseconds_without", without)
    record_property("nanoseconds_with", within)
    # A twentieth for what a real device's own calls vary by.
    assert within <= without * 1.05 + added_ns

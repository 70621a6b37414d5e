"""What the vGPU library adds to a program's calls: one with it and without it, in turns, on the fake driver."""

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nodeagent.edge.host.vgpu.limits_file import DeviceLimit, Limits, create_limits
from nodeagent.edge.host.vgpu.shared_file import create_shared
from nodeagent.edge.host.vgpu.usage_file import create_usage
from tests.bench.rows import Row
from tests.component.vgpu.build import build_library, build_program
from tests.component.vgpu.place import UUIDS, Place
from tests.fakes.cuda.driver import GIB, FakeDriver

ROUNDS = 15


@dataclass(frozen=True, slots=True)
class _Cost:
    name: str
    what: str
    turns: int
    limit_ns: float
    cores: int | None = None
    shares: bool = False
    """Whether the container has a claim that others may have too."""


_COSTS = (
    _Cost("vgpu: allocate and free, added", "allocate", 100_000, 250),
    _Cost("vgpu: launch, added", "launch", 200_000, 60),
    _Cost("vgpu: launch with a compute limit, added", "launch", 200_000, 120, cores=99),
    _Cost("vgpu: allocate and free with a claim, added", "allocate", 20_000, 10_000, shares=True),
    _Cost("vgpu: launch with a claim's compute limit, added", "launch", 200_000, 300, cores=99, shares=True),
    _Cost("vgpu: cuMemGetInfo, added", "info", 100_000, 1000),
    _Cost("vgpu: dlsym, added", "find", 100_000, 100),
    _Cost("vgpu: start of a program, added", "start", 50, 300_000),
)


def measure() -> list[Row]:
    """Every number of this part; none without a C compiler."""
    if shutil.which("cc") is None:
        return []
    return [_measure(cost) for cost in _COSTS]


def measure_ratios() -> list[Row]:
    """What the longest way of the library takes, in times of one that every program goes: the same on any machine.

    The limit is that of their limits in nanoseconds, which hold for the machine that those rows were taken on.
    """
    if shutil.which("cc") is None:
        return []
    usual, long = (next(cost for cost in _COSTS if cost.what == what) for what in ("allocate", "info"))
    added = _measure(usual).percentile(0.5)
    times = [each / added for each in _measure(long).samples]
    return [Row(f"{long.name}, times allocate and free, added", "x", times, long.limit_ns / usual.limit_ns)]


def _measure(cost: _Cost) -> Row:
    with tempfile.TemporaryDirectory(prefix="nodeagent-bench-") as directory:
        place, driver = Place(Path(directory)), FakeDriver(Path(directory))
        limits = DeviceLimit(UUIDS[0], memory_bytes=8 * GIB, core_percent=cost.cores)
        create_limits(place.limits_path, Limits((limits,)))
        if cost.shares:
            create_shared(place.path / "shared")
            (place.path / "own").mkdir()
        else:
            create_usage(place.usage_path)
        # Without an account that processes share, the driver's own calls are fast and alike.
        environ = {**driver.environ(), **place.environ()}
        del environ["FAKE_CUDA_ACCOUNT"]
        before = {**environ, "LD_PRELOAD": str(build_library())}
        added = [_run(cost, before) - _run(cost, environ) for _ in range(ROUNDS)]
    is_long = cost.what == "start"
    scale = 1000 if is_long else 1
    return Row(cost.name, "us" if is_long else "ns", [each / scale for each in added], limit=cost.limit_ns / scale)


def _run(cost: _Cost, environ: dict[str, str]) -> float:
    command = [str(build_program("cost")), cost.what, str(cost.turns)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return float(done.stdout)

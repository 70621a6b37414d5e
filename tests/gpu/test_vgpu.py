"""The vGPU library before NVIDIA's own driver: run with `pytest -m gpu tests/gpu` where a GPU is idle."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.edge.host.vgpu.limits_file import DeviceLimit, Limits, change_limits, create_limits
from nodeagent.edge.host.vgpu.usage_file import create_usage
from tests.component.vgpu.build import LIBRARY, build_library
from tests.component.vgpu.cuda_talk import OUT, Caller, call_driver
from tests.component.vgpu.place import Place
from tests.component.vgpu.test_classes import FLOAT, describe_on
from tests.component.vgpu.test_cuda_headers import list_hooks

pytestmark = [pytest.mark.gpu, pytest.mark.may_block("nothing here runs on an event loop")]

MIB = 1 << 20
LIMIT = 1024 * MIB
OUT_OF_MEMORY = 2
TAKES: dict[str, Callable[[int], tuple[int | str, ...]]] = {
    "cuMemAlloc_v2": lambda size: (OUT, size),
    "cuMemAllocManaged": lambda size: (OUT, size, 1),
    "cuMemAllocAsync": lambda size: (OUT, size, 0),
    "cuMemCreate": lambda size: (OUT, size, describe_on(0), 0),
    "cuArrayCreate_v2": lambda size: (OUT, f"@q4096,q{size // 4 // 4096},i{FLOAT},i1"),
}


def say(memory_bytes: int | None) -> Limits:
    command = ["nvidia-smi", "--id=0", "--query-gpu=uuid", "--format=csv,noheader"]
    uuid = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return Limits((DeviceLimit(uuid, memory_bytes=memory_bytes),))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    create_limits(made.limits_path, say(LIMIT))
    create_usage(made.usage_path)
    return made


@contextmanager
def limit(place: Place) -> Iterator[Caller]:
    with call_driver(None, place.environ(LD_PRELOAD=str(build_library()), CUDA_VISIBLE_DEVICES="0")) as caller:
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

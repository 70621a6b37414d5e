"""Graphs whose nodes allocate: charged with what the driver has reserved for them, and held to the limit by that."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.component.vgpu.cuda_talk import OUT, Caller, call_driver
from tests.component.vgpu.limited import limit
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 8192
INVALID_VALUE, OUT_OF_MEMORY = 1, 2
ON_DEVICE = 1
USED, RESERVED, RESERVED_HIGH = 0, 2, 3
AUTO_FREE, UPLOAD = 1, 2
INSTANTIATE: dict[str, tuple[int | str, ...]] = {
    "cuGraphInstantiate": (0, 0, 0),
    "cuGraphInstantiate_v2": (0, 0, 0),
    "cuGraphInstantiateWithFlags": (0,),
    "cuGraphInstantiateWithParams": (0,),
    "cuGraphInstantiateWithParams_ptsz": (0,),
}


def add(one: Caller, graph: int, size: int, device: int = 0) -> None:
    wanted = f"@i1,i0,i{ON_DEVICE},i{device},z72,q0,q0,q{size},q0"
    assert one.call("cuGraphAddMemAllocNode", OUT, graph, 0, 0, wanted)[0] == 0


def capture(one: Caller, *sizes: int, is_freed: bool = True, kernel: int | None = None) -> tuple[int, Sequence[int]]:
    """A graph that allocates this much after one another, each freed before the next; its addresses."""
    _, stream = one.call("cuStreamCreate", OUT, 0)
    assert one.call("cuStreamBeginCapture_v2", stream, 0) == (0,)
    places = []
    for size in sizes:
        code, at = one.call("cuMemAllocAsync", OUT, size, stream)
        assert code == 0
        places.append(at)
        if kernel is not None:
            assert one.call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0) == (0,)
        if is_freed:
            assert one.call("cuMemFreeAsync", at, stream) == (0,)
    code, graph = one.call("cuStreamEndCapture", stream, OUT)
    assert code == 0
    return graph, places


def instantiate(one: Caller, graph: int, flags: int = 0) -> int:
    code, made = one.call("cuGraphInstantiateWithFlags", OUT, graph, flags)
    assert code == 0
    return made


def make(one: Caller, *sizes: int, is_freed: bool = True, flags: int = 0) -> int:
    return instantiate(one, capture(one, *sizes, is_freed=is_freed)[0], flags)


def find_kernel(one: Caller, milliseconds: int) -> int:
    _, module = one.call("cuModuleLoadData", OUT, 1)
    name = f"us_{milliseconds * 1000}".encode().ljust(16, b"\0")
    words = ",".join(f"q{int.from_bytes(half, 'little')}" for half in (name[:8], name[8:]))
    code, function = one.call("cuModuleGetFunction", OUT, module, f"@{words}")
    assert code == 0
    return function


def create_stream(one: Caller) -> int:
    code, stream = one.call("cuStreamCreate", OUT, 1)
    assert code == 0
    return stream


def read(place: Place, driver: FakeDriver, device: int = 0) -> tuple[int, int]:
    return place.read().sum_used(device), driver.read().sum_used(device)


class TestTheFake:
    """It answers as CUDA's manual and NVIDIA's sample graphMemoryFootprint say."""

    def test_addresses_are_used_again_and_so_is_memory(self, tmp_path: Path) -> None:
        """Nothing is reserved when a graph is made; graphs share within a stream alone; trims give back."""
        driver = FakeDriver(tmp_path)
        with call_driver(driver) as one:
            one.start()
            graph, places = capture(one, 3000, 2000)
            assert places[0] == places[1]
            made, other = instantiate(one, graph), make(one, 1000)
            first, second = create_stream(one), create_stream(one)
            assert driver.read().sum_used() == 0
            seen = []
            for launched, stream in ((made, first), (made, first), (other, first), (other, second)):
                assert one.call("cuGraphLaunch", launched, stream) == (0,)
                seen.append(one.call("cuDeviceGetGraphMemAttribute", 0, RESERVED, OUT))
            assert seen == [(0, 3000), (0, 3000), (0, 3000), (0, 4000)]
            assert one.call("cuGraphExecDestroy", made) == (0,)
            assert driver.read().sum_used() == 4000
            assert one.call("cuDeviceGraphMemTrim", 0) == (0,)
            assert one.call("cuDeviceGetGraphMemAttribute", 0, RESERVED, OUT) == (0, 0)
            assert one.call("cuDeviceGetGraphMemAttribute", 0, RESERVED_HIGH, OUT) == (0, 4000)
            assert driver.read().sum_used() == 0

    def test_what_no_node_frees_stays_until_the_program_frees_it(self, tmp_path: Path) -> None:
        """Until then it cannot be launched again, unless launches free it."""
        driver = FakeDriver(tmp_path)
        with call_driver(driver) as one:
            one.start()
            stream = create_stream(one)
            graph, (at,) = capture(one, 3000, is_freed=False)
            made = instantiate(one, graph)
            assert one.call("cuGraphLaunch", made, stream) == (0,)
            assert one.call("cuGraphLaunch", made, stream) == (INVALID_VALUE,)
            assert one.call("cuDeviceGraphMemTrim", 0) == (0,)
            assert one.call("cuDeviceGetGraphMemAttribute", 0, USED, OUT) == (0, 3000)
            assert one.call("cuMemFree_v2", at) == (0,)
            assert one.call("cuMemFree_v2", at) == (INVALID_VALUE,)
            assert one.call("cuDeviceGraphMemTrim", 0) == (0,)
            assert driver.read().sum_used() == 0
            again = make(one, 3000, is_freed=False, flags=AUTO_FREE)
            assert [one.call("cuGraphLaunch", again, stream) for _ in range(2)] == [(0,), (0,)]
            assert driver.read().sum_used() == 3000

    def test_what_runs_is_not_trimmed(self, tmp_path: Path) -> None:
        with call_driver(FakeDriver(tmp_path)) as one:
            one.start()
            stream = create_stream(one)
            made = instantiate(one, capture(one, 3000, kernel=find_kernel(one, 500))[0])
            assert one.call("cuGraphLaunch", made, stream) == (0,)
            assert one.call("cuDeviceGraphMemTrim", 0) == (0,)
            assert one.call("cuDeviceGetGraphMemAttribute", 0, RESERVED, OUT) == (0, 3000)
            assert one.call("cuStreamSynchronize", stream) == (0,)
            assert one.call("cuDeviceGraphMemTrim", 0) == (0,)
            assert one.call("cuDeviceGetGraphMemAttribute", 0, RESERVED, OUT) == (0, 0)


@pytest.mark.parametrize("symbol", INSTANTIATE)
@pytest.mark.parametrize("launch", ["cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz"])
def test_charged_when_the_driver_reserves(place: Place, tmp_path: Path, symbol: str, launch: str) -> None:
    """With graphs within them, on each device; refused past the limit, rolled back where the driver refuses."""
    place.create(LIMIT, 1000)
    driver = FakeDriver(tmp_path, fail={symbol: "700@1", launch: "702@1"})
    with limit(place, driver) as one:
        (_, inner), (_, graph) = one.call("cuGraphCreate", OUT, 0), one.call("cuGraphCreate", OUT, 0)
        add(one, inner, 3000)
        add(one, graph, 3000)
        add(one, graph, 400, device=1)
        one.call("cuGraphAddEmptyNode", OUT, graph, 0, 0)
        assert one.call("cuGraphAddChildGraphNode", OUT, graph, 0, 0, inner)[0] == 0
        assert one.call(symbol, OUT, graph, *INSTANTIATE[symbol])[0] == 700
        code, made = one.call(symbol, OUT, graph, *INSTANTIATE[symbol])
        assert code == 0
        assert (read(place, driver), read(place, driver, 1)) == ((0, 0), (0, 0))
        assert one.call(launch, made, 0) == (702,)
        assert (read(place, driver), read(place, driver, 1)) == ((0, 0), (0, 0))
        assert one.call(launch, made, 0) == (0,)
        assert (read(place, driver), read(place, driver, 1)) == ((6000, 6000), (400, 400))
        add(one, graph, 601, device=1)
        _, wider = one.call(symbol, OUT, graph, *INSTANTIATE[symbol])
        place.change(1 << 20, 1000)
        assert one.call("cuGraphLaunch", wider, create_stream(one)) == (OUT_OF_MEMORY,)
        # On the device that had no room, what the first left allocated is all that stays.
        left = 400 if launch.startswith("cuGraphLaunch") else 0
        assert (read(place, driver), read(place, driver, 1)) == ((6000, 6000), (left, left))


def test_nodes_that_share_addresses_are_charged_once(place: Place, driver: FakeDriver) -> None:
    """Eight times 6000 bytes after one another are 6000 bytes, which fit."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        made, stream = make(one, *[6000] * 8), create_stream(one)
        for _ in range(3):
            assert one.call("cuGraphLaunch", made, stream) == (0,)
        assert read(place, driver) == (6000, 6000)
        assert driver.read().most[0] == 6000


def test_graphs_of_a_stream_share_and_are_launched_to_the_limit(place: Place, driver: FakeDriver) -> None:
    """None of them is refused for what the others have, and nothing is given back in between.

    A graph in another stream finds no room until these have ended.
    """
    place.create(LIMIT)
    with limit(place, driver) as one:
        graphs, stream = [make(one, size) for size in (6000, 5000, 4000)], create_stream(one)
        for made in graphs * 2:
            assert one.call("cuGraphLaunch", made, stream) == (0,)
            assert read(place, driver) == (6000, 6000)
        other = create_stream(one)
        assert one.call("cuGraphLaunch", graphs[1], other) == (0,)
        assert read(place, driver) == (5000, 5000)
        assert driver.read().most[0] == 6000


def test_what_graphs_keep_is_there_for_others(place: Place, driver: FakeDriver) -> None:
    """Destroyed, they keep it for graphs to come, as the driver does; memory of other kinds gets it all the same."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        for symbol in ("cuMemAlloc_v2", "cuMemAllocAsync"):
            made, stream = make(one, 6000), create_stream(one)
            assert one.call("cuGraphLaunch", made, stream) == (0,)
            assert one.call("cuGraphExecDestroy", made) == (0,)
            assert read(place, driver) == (6000, 6000)
            code, at = one.call(symbol, OUT, 8000, 0)
            assert code == 0
            assert read(place, driver) == (8000, 8000)
            assert one.call("cuMemFree_v2", at) == (0,)
            one.call("cuCtxSynchronize")
        assert driver.read().most[0] <= LIMIT


def test_a_trim_by_the_program_gives_back(place: Place, driver: FakeDriver) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        made, stream = make(one, 6000), create_stream(one)
        assert one.call("cuDeviceGraphMemTrim", 0) == (0,)
        assert one.call("cuGraphLaunch", made, stream) == (0,)
        assert one.call("cuDeviceGraphMemTrim", 0) == (0,)
        assert read(place, driver) == (0, 0)
        assert one.call("cuGraphLaunch", made, stream) == (0,)
        assert read(place, driver) == (6000, 6000)


def test_a_graph_that_runs_is_waited_for_before_another_is_refused(place: Place, driver: FakeDriver) -> None:
    """The driver cannot give back what runs; what a graph leaves allocated, nobody can."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        running = instantiate(one, capture(one, 6000, kernel=find_kernel(one, 100))[0])
        assert one.call("cuGraphLaunch", running, create_stream(one)) == (0,)
        assert one.call("cuGraphLaunch", make(one, 7000), create_stream(one)) == (0,)
        assert read(place, driver) == (7000, 7000)
        left = make(one, 6000, is_freed=False)
        assert one.call("cuGraphLaunch", left, create_stream(one)) == (0,)
        assert one.call("cuGraphLaunch", make(one, 7000), create_stream(one)) == (OUT_OF_MEMORY,)
        assert read(place, driver) == (6000, 6000)
        assert driver.read().most[0] == 7000


def test_what_a_launch_frees_by_itself_is_its_own_again(place: Place, driver: FakeDriver) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        made, stream = make(one, 6000, is_freed=False, flags=AUTO_FREE), create_stream(one)
        for _ in range(3):
            assert one.call("cuGraphLaunch", made, stream) == (0,)
        assert one.call("cuGraphLaunch", make(one, 3000), stream) == (OUT_OF_MEMORY,)
        assert read(place, driver) == (6000, 6000)


@pytest.mark.parametrize("symbol", ["cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"])
def test_one_that_is_uploaded_as_it_is_made(place: Place, driver: FakeDriver, symbol: str) -> None:
    """Is charged then, and not made past the limit."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        stream = create_stream(one)
        wanted = f"@q{UPLOAD},q{stream},q0,i0,i0"
        assert one.call(symbol, OUT, capture(one, LIMIT + 1)[0], wanted)[0] == OUT_OF_MEMORY
        assert read(place, driver) == (0, 0)
        code, made = one.call(symbol, OUT, capture(one, 6000)[0], wanted)
        assert code == 0
        assert read(place, driver) == (6000, 6000)
        assert one.call("cuGraphLaunch", made, stream) == (0,)
        assert read(place, driver) == (6000, 6000)


def test_what_is_captured_is_charged_with_the_graph(place: Place, driver: FakeDriver) -> None:
    """And not as it is captured: nothing is allocated then."""
    place.create(LIMIT)
    with limit(place, driver) as one:
        graph, _ = capture(one, LIMIT + 1, 1)
        made, stream = instantiate(one, graph), create_stream(one)
        assert one.call("cuGraphLaunch", made, stream) == (OUT_OF_MEMORY,)
        assert read(place, driver) == (0, 0)
        place.change(LIMIT + 2)
        assert one.call("cuGraphLaunch", made, stream) == (0,)
        assert place.read().sum_used(0) == LIMIT + 1


def test_a_driver_without_the_attribute_has_what_the_nodes_take(place: Place, tmp_path: Path) -> None:
    place.create(LIMIT)
    driver = FakeDriver(tmp_path, fail={"cuDeviceGetGraphMemAttribute": "801"})
    with limit(place, driver) as one:
        made, stream = make(one, 5000, 5000), create_stream(one)
        for _ in range(2):
            assert one.call("cuGraphLaunch", made, stream) == (0,)
            assert place.read().sum_used(0) == 5000


def test_the_child_of_a_fork_has_nothing_of_it(place: Place, driver: FakeDriver) -> None:
    place.create(LIMIT)
    with limit(place, driver) as one:
        assert one.call("cuGraphLaunch", make(one, 6000), create_stream(one)) == (0,)
        assert one.ask("fork") == "child"
        assert one.call("cuGraphExecDestroy", 0)[0] != 0
        assert place.read().sum_used(0) == 6000

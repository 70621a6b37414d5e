"""Every layout that a board knows by name can be had on it: each profile alone as often as it fits, and the balance.

What is wished comes from the tables of the boards, what there is from the driver: neither plans the calls.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodeagent.model.mig import GpuPartitions
from nodeagent.rules.mig.named import BALANCED, DISABLED, ENABLED, name_layouts
from nodeagent.rules.mig.wanted import Wanted
from nodeagent_sim.gpus.mig_geometry import GEOMETRIES, list_shapes
from nodeagent_sim.gpus.profile import load_profile
from tests.component.edge_nvml.test_partitioning import cutting, find_gpu, reach
from tests.component.mig.harness import PROFILES, World
from tests.fakes.nvml.control import FakeNvml
from tests.support.mig import MIG_MODELS, find_model, is_allowed, make_mig_gpu
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.long

BALANCES = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""By the slices of a board: how many instances of each size."""


@pytest.fixture(params=MIG_MODELS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A model, and a node that has two of it, under the name that the harness knows it by."""
    model: str = request.param
    path = tmp_path / f"two-{model}.yaml"
    path.write_text(
        f"summary: two boards\ndriver: {{version: 575.57.08, cuda: [12, 9]}}\n"
        f'gpus:\n  - {{model: {model}, addresses: ["1b:00.0", "43:00.0"]}}\n'
    )
    PROFILES[str(path)] = load_profile(str(path))
    find_model(model)  # read before there is a loop that reading would block
    yield model, str(path)
    del PROFILES[str(path)]


def list_requests(model: str) -> Mapping[str, Counter[str]]:
    """By the name of the layout what a board is cut into then."""
    found = find_model(model)
    assert found.mig is not None
    shapes = list_shapes(found)
    requests = {f"all-{one.name.replace('+', '.')}": Counter({one.name: one.shape.instances}) for one in shapes}
    plain = [one for one in shapes if not one.shape.suffix]
    smallest = {
        slices: min((one for one in plain if one.shape.slices == slices), key=lambda one: one.shape.size)
        for slices in {one.shape.slices for one in plain}
    }
    balance = BALANCES[GEOMETRIES[found.mig.geometry].slices]
    requests[BALANCED] = Counter({smallest[slices].name: count for slices, count in balance.items()})
    return requests | {ENABLED: Counter()}


def count_instances(partitions: GpuPartitions) -> Counter[str]:
    """What there is, which the rules of the board allow, each instance with the one device that fills it."""
    profiles = {one.profile_id: one for one in partitions.profiles}
    assert is_allowed([(profiles[one.profile_id], one.start) for one in partitions.instances])
    for one in partitions.instances:
        assert [compute.slices for compute in one.computes] == [profiles[one.profile_id].slice_count]
    return Counter(profiles[one.profile_id].name for one in partitions.instances)


def test_every_board_has_a_layout_for_each_of_its_profiles() -> None:
    """By name, and besides no other than on, off and the balance."""
    for model in MIG_MODELS:
        named = name_layouts([make_mig_gpu(0, model)])
        assert {name: Counter(parts[0].profiles) for name, parts in named.items() if name != DISABLED} == list_requests(
            model
        )


@pytest.mark.may_block("the fake library is made before the test's calls")
async def test_the_driver_makes_each_of_them(board: tuple[str, str], tmp_path: Path) -> None:
    """Through NVML's real ABI, one after the other, each from the one before; the board beside it is left alone."""
    model, path = board
    fake = FakeNvml(tmp_path, path)
    gpu = find_gpu(fake, 1)
    try:
        fake.cut(1, ())  # a board from before Hopper would be reset for the mode, which the fake's tool does not do
        async with cutting(fake, tmp_path) as session:
            for name, requested in list_requests(model).items():
                wanted = Wanted(enabled=True, profiles=requested)
                await reach(session, gpu, wanted)
                assert count_instances(await session.read(gpu)) == requested, name
                assert await reach(session, gpu, wanted) == 0, name
        assert not fake.gpu(0).mig_mode
    finally:
        fake.clear()
        fake.close()


@pytest.mark.virtual_time
async def test_the_agent_has_each_of_them_in_place(board: tuple[str, str], clock: FakeClock) -> None:
    """By the node's label on simulated boards: said to be in place, and so; asked for again, nothing is written."""
    model, path = board
    world = World(clock, path)
    async with world.running():
        for name, requested in list_requests(model).items():
            world.ask(name)
            await world.until(lambda state, name=name: (state.layout, state.standing) == (name, "success"))  # type: ignore[misc]
            assert await world.profiles() == [sorted(requested.elements())] * 2, name
            changes = len(world.book.ended)
            world.ask("")
            await world.until(lambda state: not state.layout)
            world.ask(name)
            await world.until(lambda state, name=name: (state.layout, state.standing) == (name, "success"))  # type: ignore[misc]
            assert len(world.book.ended) == changes, name
        world.ask(DISABLED)
        await world.until(lambda state: (state.layout, state.standing) == (DISABLED, "success"))
        assert await world.profiles() == [["whole"]] * 2
        assert set(world.book.ended) == {"done"}

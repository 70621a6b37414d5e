"""Doors between the bus, the journal and a person."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.offering.component import OfferingComponent
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.allocation_modes import AllocationModeRule, AllocationModeSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.cordons import Cordon, CordonSource, CordonTable
from nodeagent.model.errors import ControlRefused, JournalUnavailable
from nodeagent.model.events import AllocationModeChanged, AllocationModeChosen, ConfigurationReloaded
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import ChosenAllocationModes
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.orders import SET_DOOR, AllocationModeCommand, OrderedMode
from tests.support.fractions import make_bound, make_settings, make_table, part
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

TWO = make_inventory([make_gpu(0), make_gpu(1)])


class Memory:
    """The journal's part: remembers and tells, or refuses."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.chosen, self.broken = bus, dict[GpuUuid, AllocationMode](), False

    async def set_allocation_mode(self, gpu: GpuUuid, door: AllocationMode | None) -> None:
        if self.broken:
            raise JournalUnavailable("/state/journal", "no space left on device")
        if door is None:
            self.chosen.pop(gpu, None)
        else:
            self.chosen[gpu] = door
        self._bus.publish_state(ChosenAllocationModes(doors=dict(self.chosen)), source="allocations")

    def doors(self) -> Mapping[GpuUuid, AllocationMode] | None:
        return self.chosen

    async def keep_cordons(self, source: CordonSource, cordons: tuple[Cordon, ...]) -> None:
        raise AssertionError("no test here cordons a GPU")

    def cordons(self) -> CordonTable | None:
        return None


class World:
    def __init__(self, **doors: Any) -> None:
        clock = self.clock = FakeClock()
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings(doors=AllocationModeSettings(**doors)))
        self.memory, self.orders = Memory(self.bus), OrderHandlers()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        component = OfferingComponent(self.bus, self.conditions, self.clock, self.live, self.memory, self.orders)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    def tell(self, *holders: int) -> None:
        rows = tuple(
            Allocation(
                number=index,
                resource=ResourceName("nvidia.com/gpu"),
                devices=(DeviceId(gpu_uuid(index)),),
                since_seconds=0.0,
                pod=PodIdentity(namespace="ns", name=f"train-{index}"),
                container="main",
            )
            for index in holders
        )
        self.bus.publish_state(AllocationTable(allocations=rows), source="allocations")

    def door(self, index: int) -> GpuAllocationMode:
        envelope = self.bus.latest(Offering)
        assert envelope is not None
        return envelope.value.doors[index]

    async def choose(self, gpu: str, door: OrderedMode) -> str:
        return await self.orders.give(SET_DOOR, AllocationModeCommand(gpu=gpu, door=door, who="me"))

    def codes(self) -> set[str]:
        return {condition.code for condition in self.conditions.all_set()}


@asynccontextmanager
async def open_world(*holders: int, **doors: Any) -> AsyncIterator[World]:
    world = World(**doors)
    world.bus.publish_state(TWO, source="inventory")
    world.tell(*holders)
    async with world.running():
        yield world


async def test_nothing_is_said_before_gpus_and_holders_are_known() -> None:
    """A door that is told too early would be opened for what somebody has already."""
    world = World()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: _enter(world))
        await anyio.sleep(1)
        assert world.bus.latest(Offering) is None
        world.bus.publish_state(TWO, source="inventory")
        await anyio.sleep(1)
        assert world.bus.latest(Offering) is None
        with pytest.raises(ControlRefused, match="no GPU 7"):
            await world.choose("7", "none")
        world.tell()
        await anyio.sleep(1)
        assert world.door(0).door is AllocationMode.WHOLE
        tasks.cancel_scope.cancel()


async def _enter(world: World) -> None:
    async with world.running():
        await anyio.sleep_forever()


async def test_a_free_gpu_changes_its_door_at_once_and_back() -> None:
    """Who chose is told first, then what came of it."""
    async with open_world() as world:
        with world.bus.listen(AllocationModeChosen, AllocationModeChanged, client="test") as facts:
            assert await world.choose("1", "none") == "GPU 1: door none (set by a person)"
            chosen, changed = await anext(facts), await anext(facts)
        assert chosen.value == AllocationModeChosen(gpu=gpu_uuid(1), door="none", who="me")
        assert changed.value == AllocationModeChanged(
            gpu=gpu_uuid(1), before=AllocationMode.WHOLE, after=AllocationMode.NONE, reason="set by a person"
        )
        assert world.memory.chosen == {gpu_uuid(1): AllocationMode.NONE}
        assert await world.choose(gpu_uuid(1), "configured") == "GPU 1: door whole (the default)"
        assert world.memory.chosen == {}


async def test_a_gpu_that_somebody_has_changes_when_nobody_has_it() -> None:
    async with open_world(1) as world:
        said = await world.choose("1", "none")
        assert said == (
            "GPU 1: door whole until ns/train-1 (main) is gone, then none (set by a person);"
            " nobody new gets it until then"
        )
        assert "door-waits" in world.codes()
        world.tell()
        await anyio.sleep(1)
        assert (world.door(1).door, world.door(1).is_settled) == (AllocationMode.NONE, True)
        assert "door-waits" not in world.codes()


async def test_a_choice_that_cannot_be_remembered_changes_nothing() -> None:
    """After a restart the GPU would be given out again."""
    async with open_world() as world:
        world.memory.broken = True
        with pytest.raises(ControlRefused, match=r"the door stays as it was: .*no space left"):
            await world.choose("1", "none")
        assert world.door(1).door is AllocationMode.WHOLE


async def test_what_nobody_serves_is_refused() -> None:
    """A GPU behind it could be had by nobody."""
    async with open_world() as world:
        with pytest.raises(
            ControlRefused,
            match="nobody here serves the door fractions; choose none or whole, or set",
        ):
            await world.choose("1", "fractions")


async def test_rules_that_change_while_the_agent_runs_change_doors() -> None:
    async with open_world(rules=(AllocationModeRule(gpus=("0",), door="none"),)) as world:
        assert [world.door(0).door, world.door(1).door] == [AllocationMode.NONE, AllocationMode.WHOLE]
        world.live.replace(
            replace(world.live.now, doors=AllocationModeSettings(rules=(AllocationModeRule(gpus=("1",), door="none"),)))
        )
        world.bus.publish_fact(ConfigurationReloaded(changed=("doors.rules",)), source="control")
        await anyio.sleep(1)
        assert [world.door(0).door, world.door(1).door] == [AllocationMode.WHOLE, AllocationMode.NONE]


async def test_nobody_can_choose_while_nobody_looks_after_the_doors() -> None:
    """The part is starting, or has failed."""
    with pytest.raises(ControlRefused, match="the doors are not known yet"):
        await World().choose("0", "none")


async def test_what_changes_no_door_is_not_told_again() -> None:
    async with open_world() as world:
        before = world.bus.latest(Offering)
        world.tell(0)
        await anyio.sleep(1)
        assert world.bus.latest(Offering) is before


async def test_whoever_has_a_part_is_waited_for_and_the_door_is_served_where_it_is_on() -> None:
    """By the journal's word on parts; without the switch the refusal says what to set."""
    async with open_world() as world:
        with pytest.raises(ControlRefused, match=r"nobody here serves the door fractions; .*set `fractions\.enabled`"):
            await world.choose("1", "fractions")
        with pytest.raises(ControlRefused) as caught:
            await world.choose("1", "claims")
        assert "fractions.enabled" not in str(caught.value)
        world.live.replace(make_settings(1))
        world.bus.publish_fact(ConfigurationReloaded(changed=("fractions",)), source="test")
        await anyio.sleep(1)
        assert (world.door(1).door, world.door(1).is_open) == (AllocationMode.FRACTIONS, True)
        world.bus.publish_state(make_table(bindings=[make_bound(7, [1], part(1, 30, 8))]), source="allocations")
        said = await world.choose("1", "whole")
        assert "door fractions until ns/a (main) is gone, then whole" in said
        world.bus.publish_state(make_table(), source="allocations")
        await anyio.sleep(1)
        assert world.door(1).door is AllocationMode.WHOLE


async def test_a_pod_on_a_gpu_that_is_gone_is_a_condition_whatever_the_count_says() -> None:
    """All GPUs were swapped for as many others: the node has as many as before, and the pod has none that works."""
    async with open_world(0) as world:
        assert "gpu-held-gone" not in world.codes()
        world.bus.publish_state(make_inventory([make_gpu(2), make_gpu(3)]), source="inventory")
        await anyio.sleep(60)
        (told,) = [one for one in world.conditions.all_set() if one.code == "gpu-held-gone"]
        assert told.detail == f"ns/train-0 (main) holds {gpu_uuid(0)}"
        world.tell()
        await anyio.sleep(60)
        assert "gpu-held-gone" not in world.codes()

"""Cordons between the node's annotations, a person, the clock and the journal."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.offering.component import OfferingComponent
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import KubernetesSettings
from nodeagent.config.sections.hardware import DriverSettings, RepairsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.subscription import Listen
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cluster import NodeRequests
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.cordons import (
    CORDON_ANNOTATION,
    HAMI_CORDON_ANNOTATION,
    Cordon,
    CordonSource,
    CordonTable,
    render_until,
)
from nodeagent.model.errors import ControlRefused, JournalUnavailable
from nodeagent.model.events import ConfigurationReloaded, GpuCordoned, GpuUncordoned, NodeRequestRefused
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.orders import CORDON_GPU, UNCORDON_GPU, CordonCommand, UncordonCommand
from nodeagent.model.repairs import RepairState
from nodeagent.model.upgrades import UpgradeState
from nodeagent.rules.cordons import plan_repairs
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

TWO = make_inventory([make_gpu(0), make_gpu(1)])
HOUR = 3600.0


class Memory:
    """The journal's part: survives the component, tells, or refuses."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.kept, self.broken = bus, dict[CordonSource, tuple[Cordon, ...]](), False
        self.is_read = True

    async def set_allocation_mode(self, gpu: GpuUuid, door: AllocationMode | None) -> None:
        raise AssertionError("no test here sets a mode")

    def doors(self) -> Mapping[GpuUuid, AllocationMode] | None:
        return {}

    async def keep_cordons(self, source: CordonSource, cordons: tuple[Cordon, ...]) -> None:
        if self.broken:
            raise JournalUnavailable("/state/journal", "no space left on device")
        self.kept = {**self.kept, source: cordons}
        self._bus.publish_state(CordonTable(by_source=self.kept), source="allocations")

    def cordons(self) -> CordonTable | None:
        return CordonTable(by_source=self.kept) if self.is_read else None


class World:
    def __init__(self, *, hami: bool = False) -> None:
        self.clock = FakeClock()
        self.bus = Bus(self.clock)
        self.conditions = Conditions(self.bus, self.clock, CATALOGUE)
        self.live = LiveSettings(Settings(kubernetes=KubernetesSettings(hami_cordon=hami)))
        self.memory, self.orders = Memory(self.bus), OrderHandlers()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        component = OfferingComponent(self.bus, self.conditions, self.clock, self.live, self.memory, self.orders)
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            await anyio.sleep(1)
            yield self
            tasks.cancel_scope.cancel()

    async def annotate(self, *entries: dict[str, object], hami: str = "") -> None:
        await self.write(json.dumps(entries) if entries else "", hami)

    async def write(self, text: str, hami: str = "") -> None:
        self.bus.publish_state(NodeRequests(gpu_cordon=text, hami_cordon=hami), source="cluster")
        await anyio.sleep(1)

    def door(self, index: int) -> GpuAllocationMode:
        offering = self.bus.read(Offering)
        assert offering is not None
        return offering.doors[index]

    def is_open(self) -> tuple[bool, ...]:
        offering = self.bus.read(Offering)
        assert offering is not None
        return tuple(each.is_open for each in offering.doors)

    def details(self, code: str) -> list[str]:
        return [one.detail for one in self.conditions.all_set() if one.code == code]

    async def cordon(self, gpu: str, until: str = "") -> str:
        done = await self.orders.give(CORDON_GPU, CordonCommand(gpu=gpu, reason="fan", until=until, who="ann"))
        await anyio.sleep(1)
        return done

    async def uncordon(self, gpu: str) -> str:
        done = await self.orders.give(UNCORDON_GPU, UncordonCommand(gpu=gpu, who="ann"))
        await anyio.sleep(1)
        return done

    def until(self, seconds: float) -> str:
        return render_until(self.clock.wall() + seconds)


@asynccontextmanager
async def open_world(*, hami: bool = False) -> AsyncIterator[World]:
    world = World(hami=hami)
    world.bus.publish_state(TWO, source="inventory")
    row = Allocation(
        number=1,
        resource=ResourceName("nvidia.com/gpu"),
        devices=(DeviceId(gpu_uuid(0)),),
        since_seconds=0.0,
        pod=PodIdentity(namespace="ns", name="train"),
        container="main",
    )
    world.bus.publish_state(AllocationTable(allocations=(row,)), source="allocations")
    async with world.running():
        yield world


async def check_nothing(facts: Listen[Any]) -> None:
    with anyio.move_on_after(1) as waited:
        await anext(facts)
    assert waited.cancelled_caught


async def test_the_annotation_cordons_and_its_absence_lifts() -> None:
    """The pod that has the GPU is waited for, by name."""
    async with open_world() as world:
        with world.bus.listen(GpuCordoned, GpuUncordoned, client="test") as facts:
            await world.annotate({"gpu": 0, "reason": "fan"})
            assert world.is_open() == (False, True)
            by = f"by the annotation {CORDON_ANNOTATION}: fan"
            assert world.details("gpu-cordoned") == [f"GPU 0: cordoned {by}, which waits for ns/train (main)"]
            await world.annotate()
            assert world.is_open() == (True, True)
            assert world.details("gpu-cordoned") == []
            came, went = await anext(facts), await anext(facts)
        assert came.value == GpuCordoned(gpu=gpu_uuid(0), source=CordonSource.ANNOTATION, detail=by)
        assert went.value == GpuUncordoned(
            gpu=gpu_uuid(0), source=CordonSource.ANNOTATION, reason="taken out of the annotation"
        )


async def test_a_person_cordons_and_takes_it_back() -> None:
    """The same again for another reason or time is told; each refusal names its remedy."""
    async with open_world() as world:
        assert await world.cordon("1") == "GPU 1: cordoned by ann: fan; pods that have the GPU keep it"
        assert world.is_open() == (True, False)
        with pytest.raises(ControlRefused, match="no GPU '7' on this node"):
            await world.cordon("7")
        with pytest.raises(ControlRefused, match="is past"):
            await world.cordon("1", world.until(-1))
        with pytest.raises(ControlRefused, match="neither a person nor the brake has cordoned a GPU 0"):
            await world.uncordon("0")
        assert await world.uncordon("1") == "GPU 1: the cordon is taken back"
        assert world.is_open() == (True, True)


async def test_each_source_lifts_its_own_cordon_alone() -> None:
    async with open_world() as world:
        await world.annotate({"gpu": "1", "reason": "board"})
        await world.cordon("1")
        assert len(world.door(1).cordons) == 2
        still = "the GPU stays cordoned by the annotation nodeagent.io/gpu-cordon: board: take the entry out there"
        assert await world.uncordon("1") == f"GPU 1: the cordon is taken back; {still}"
        assert world.is_open() == (True, False)
        with pytest.raises(ControlRefused, match="stays cordoned by the annotation"):
            await world.uncordon("1")
        await world.cordon("1")
        await world.annotate()
        assert world.is_open() == (True, False)
        assert [one.source for one in world.door(1).cordons] == [CordonSource.COMMAND]


async def test_the_time_opens_the_gpu() -> None:
    """Not before; the annotation that still names the time is no fault."""
    async with open_world() as world:
        with world.bus.listen(NodeRequestRefused, GpuUncordoned, client="test") as facts:
            await world.annotate({"gpu": 1, "reason": "fan", "until": world.until(HOUR)})
            assert world.is_open() == (True, False)
            await anyio.sleep(HOUR - 3)
            assert world.is_open() == (True, False)
            await anyio.sleep(3)
            assert world.is_open() == (True, True)
            assert world.memory.kept[CordonSource.ANNOTATION] == ()
            lifted = await anext(facts)
            assert lifted.value == GpuUncordoned(
                gpu=gpu_uuid(1), source=CordonSource.ANNOTATION, reason="its time is over"
            )
            await check_nothing(facts)


async def test_a_restart_without_the_api_server_keeps_the_cordon() -> None:
    """The journal knows; until the node is read again no annotation is taken for absent."""
    world = World()
    world.bus.publish_state(TWO, source="inventory")
    world.bus.publish_state(AllocationTable(), source="allocations")
    async with world.running():
        await world.annotate({"gpu": 1, "reason": "fan", "until": world.until(HOUR)})
    world.bus.retract_state(NodeRequests, source="cluster")
    async with world.running():
        assert world.is_open() == (True, False)
        await anyio.sleep(HOUR)
        assert world.is_open() == (True, True)


async def test_a_misspelt_annotation_changes_nothing_and_is_told_once() -> None:
    """As a fact, from which the event on the node is made, and as a condition until it is mended."""
    async with open_world() as world:
        await world.annotate({"gpu": 1, "reason": "fan"})
        with world.bus.listen(NodeRequestRefused, client="test") as facts:
            await world.write('[{"gpu": 1, "raeson": "fan"}]')
            world.bus.publish_state(replace(TWO, generation=9), source="inventory")
            await anyio.sleep(1)
            assert world.is_open() == (True, False)
            refused = (await anext(facts)).value
            await check_nothing(facts)
        assert isinstance(refused, NodeRequestRefused)
        assert refused.label == CORDON_ANNOTATION
        assert "unknown field `raeson`" in refused.reason
        assert world.details("cordon-refused") == [f"{CORDON_ANNOTATION}: {refused.reason}"]
        await world.annotate({"gpu": 0, "reason": "fan"})
        assert world.details("cordon-refused") == []
        assert world.is_open() == (False, True)


async def test_unknown_gpus_and_past_times_are_told_in_one_sentence() -> None:
    """Many problems make one event; a time that is past when it is written is told, and is no condition."""
    async with open_world() as world:
        with world.bus.listen(NodeRequestRefused, client="test") as facts:
            await world.annotate(*({"gpu": index, "reason": "fan"} for index in range(2, 8)))
            told = (await anext(facts)).value
            await world.annotate({"gpu": 0, "reason": "fan", "until": world.until(-5)})
            past = (await anext(facts)).value
        assert isinstance(told, NodeRequestRefused)
        assert told.reason.count("no GPU") == 4
        assert told.reason.endswith("; and 2 more")
        assert isinstance(past, NodeRequestRefused)
        assert past.reason.endswith("is past, and cordons nothing")
        assert world.details("cordon-refused") == []
        assert world.is_open() == (True, True)


async def test_hamis_annotation_counts_where_a_setting_asks_for_it() -> None:
    """The setting counts at once when it changes."""
    async with open_world() as world:
        await world.annotate(hami=f"{gpu_uuid(1)},GPU-other")
        assert world.is_open() == (True, True)
        world.live.now = Settings(kubernetes=KubernetesSettings(hami_cordon=True))
        world.bus.publish_fact(ConfigurationReloaded(changed=("kubernetes.hami_cordon",)), source="agent")
        await anyio.sleep(1)
        assert world.is_open() == (True, False)
        (detail,) = world.details("cordon-refused")
        assert detail.startswith(f"{HAMI_CORDON_ANNOTATION}: no GPU 'GPU-other' on this node")


async def test_a_cordon_that_cannot_be_kept_is_told_and_tried_again() -> None:
    """A person is refused; the end of a cordon waits for no journal."""
    async with open_world() as world:
        await world.annotate({"gpu": 1, "reason": "fan", "until": world.until(60)})
        world.memory.broken = True
        with pytest.raises(ControlRefused, match="the cordons stay as they were"):
            await world.cordon("0")
        await anyio.sleep(60)
        assert world.is_open() == (True, True)
        assert world.details("cordon-refused") == [
            "it is not kept: cannot write the allocation journal /state/journal: no space left on device"
        ]
        world.memory.broken = False
        await anyio.sleep(6)
        assert world.details("cordon-refused") == []
        assert world.memory.kept[CordonSource.ANNOTATION] == ()


async def test_nobody_cordons_before_the_journal_is_read() -> None:
    async with open_world() as world:
        world.memory.is_read = False
        with pytest.raises(ControlRefused, match="the doors are not known yet"):
            await world.cordon("0")
        world.bus.publish_state(replace(TWO, generation=9), source="inventory")
        await anyio.sleep(1)
        assert world.is_open() == (True, True)


async def test_a_repair_closes_its_gpus_and_opens_them_at_its_end() -> None:
    """Kept with the time of the closing; a command of a person does not open the GPU."""
    async with open_world() as world:
        world.live.replace(Settings(repairs=RepairsSettings(mode="act")))
        world.memory.kept = {CordonSource.REPAIR: plan_repairs({gpu_uuid(0): "session 2"}, TWO, (), 5.0)}
        world.bus.publish_state(NodeRequests(), source="cluster")
        await anyio.sleep(1)
        # Before the findings of a started agent count, what was closed stays closed.
        assert len(world.memory.kept[CordonSource.REPAIR]) == 1
        world.bus.publish_state(RepairState(mode="act", unsettled="0 of 3 equal polls"), source="repairs")
        await anyio.sleep(1)
        assert len(world.memory.kept[CordonSource.REPAIR]) == 1
        closed = {gpu_uuid(0): "session 2", gpu_uuid(1): "session 2"}
        world.bus.publish_state(RepairState(mode="act", closed_gpus=closed), source="repairs")
        await anyio.sleep(1)
        assert world.is_open() == (False, False)
        first, second = world.memory.kept[CordonSource.REPAIR]
        assert (first.since_seconds, second.reason) == (5.0, "session 2")
        assert (second.since_seconds or 0) > 5.0
        with pytest.raises(ControlRefused, match="stays cordoned by a repair: session 2: a repair lifts its own"):
            await world.uncordon("1")
        world.bus.publish_state(RepairState(mode="act"), source="repairs")
        await anyio.sleep(1)
        assert world.is_open() == (True, True)


async def test_an_upgrade_of_the_driver_closes_all_gpus_and_opens_them_at_its_end() -> None:
    async with open_world() as world:
        world.live.replace(Settings(driver=DriverSettings(upgrade="act")))
        kept = plan_repairs({gpu_uuid(0): "upgrade"}, TWO, (), 5.0, CordonSource.DRIVER)
        world.memory.kept = {CordonSource.DRIVER: kept}
        world.bus.publish_state(NodeRequests(), source="cluster")
        await anyio.sleep(1)
        assert world.memory.kept[CordonSource.DRIVER] == kept
        closed = {gpu_uuid(0): "upgrade", gpu_uuid(1): "upgrade"}
        world.bus.publish_state(UpgradeState(closed_gpus=closed), source="upgrades")
        await anyio.sleep(1)
        assert world.is_open() == (False, False)
        with pytest.raises(ControlRefused, match="an upgrade of the driver lifts its own, `nodeagent driver abort`"):
            await world.uncordon("1")
        world.live.replace(Settings())
        world.bus.publish_state(UpgradeState(), source="upgrades")
        await anyio.sleep(1)
        assert world.is_open() == (True, True)


async def test_an_agent_that_repairs_nothing_opens_what_a_repair_had_closed() -> None:
    async with open_world() as world:
        kept = plan_repairs({gpu_uuid(1): "session 2", gpu_uuid(7): "session 2"}, TWO, (), 5.0)
        await world.memory.keep_cordons(CordonSource.REPAIR, kept)
        await anyio.sleep(1)
        assert world.memory.kept[CordonSource.REPAIR] == ()

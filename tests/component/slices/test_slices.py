"""Slices between the bus and the API server: there at once, kept, put back, and never written for nothing."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from nodeagent.components.slices.component import SliceNode, Slices
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import ClaimsSettings, SlicesSettings, TaintRule
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.devices.pcie_roots import HostPcieRoots
from nodeagent.edge.kube.errors import ApiInvalid
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import ConfigurationReloaded, SlicesWritten
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import Verdict
from nodeagent.model.ids import PciAddress
from nodeagent.model.slices import PublishedSlices, SliceContent, SliceDevice, SlicePool, StoredSlice, Version
from tests.fakes.slices import FakeSliceApi, SliceRefused
from tests.support.gpus import make_gpu, make_inventory
from tests.support.mig import make_mig_gpu
from tests.support.slices import DRIVER, make_doors, make_report
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

TWO = (make_gpu(0), make_gpu(1))
CUT = replace(make_mig_gpu(0, "h100-sxm5-80gb", enabled=True), compute_capability=(9, 0))
LOST = ("lost", Verdict.UNHEALTHY)


class Roots(HostPcieRoots):
    """The kernel's word on PCIe trees."""

    def __init__(self) -> None:
        self.asked = 0
        self.trouble: SliceRefused | None = None

    async def read_roots(self, addresses: Collection[PciAddress]) -> Mapping[PciAddress, str]:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return dict.fromkeys(addresses, "pci0000:00")


class World:
    def __init__(self, gpus: Sequence[Gpu] = TWO, **claims: Any) -> None:
        clock = FakeClock()
        self.gpus = tuple(gpus)
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings(claims=ClaimsSettings(enabled=True, **claims)))
        self.api, self.roots = FakeSliceApi(), Roots()
        self.pool = SlicePool(driver=DRIVER, node="node-1")
        self.noted: list[tuple[SliceContent, ...]] = []

    def tell(self, found: Mapping[str, Any] | None = None) -> None:
        inventory = make_inventory(self.gpus)
        self.bus.publish_state(inventory, source="inventory")
        self.bus.publish_state(make_report(inventory, found), source="health")
        self.bus.publish_state(make_doors(self.gpus), source="offering")

    def know_node(self) -> None:
        self.bus.publish_state(ClusterNode(name="node-1", uid="uid-of-node"), source="cluster")

    @asynccontextmanager
    async def running(
        self, wait_judged: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
    ) -> AsyncIterator["World"]:
        component = Slices(
            self.bus,
            self.conditions,
            FakeClock(),
            self.live,
            SliceNode(self.api, self.pool, self.roots),
            wait_judged=wait_judged,
            note_contents=self.noted.append,
            rng=Random(1),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def published(self) -> AsyncIterator["World"]:
        """Running, with all that it knows in the API server."""
        self.know_node()
        self.tell()
        async with self.running():
            await self.settle()
            self.api.writes.clear()
            yield self

    async def settle(self, seconds: float = 0.1) -> None:
        """Until nothing more is to be done, in no more than this."""
        await anyio.sleep(seconds)

    @property
    def devices(self) -> dict[str, SliceDevice]:
        contents = [one.content for one in self.api.stored.values()]
        return {one.name: one for content in contents if content is not None for one in content.devices}

    def taints(self) -> dict[str, list[tuple[str, str]]]:
        return {name: [(each.key, each.effect) for each in one.taints] for name, one in self.devices.items()}

    @property
    def summary(self) -> PublishedSlices:
        envelope = self.bus.latest(PublishedSlices)
        assert envelope is not None
        return envelope.value

    def active(self) -> set[str]:
        return {one.code for one in self.conditions.active()}


async def test_slices_are_there_as_soon_as_all_is_known() -> None:
    """GPUs, verdicts and doors; the node that they go with is asked for where nobody has told of it."""
    world = World()
    async with world.running():
        await world.settle()
        assert world.api.stored == {}
        world.tell()
        await world.settle()
        assert sorted(world.devices) == ["gpu-0", "gpu-1"]
        assert world.api.writes == ["create 0000"]
        assert world.summary == PublishedSlices(driver=DRIVER, pool="node-1", generation=1, slices=1, devices=2)
        assert [each.content for each in world.api.stored.values()] == list(world.noted[-1])


async def test_nothing_is_told_before_the_first_look() -> None:
    """Every device would be unfit for a moment."""
    world = World()
    judged = anyio.Event()
    world.tell()
    async with world.running(judged.wait):
        await world.settle()
        assert world.api.stored == {}
        judged.set()
        await world.settle()
        assert sorted(world.devices) == ["gpu-0", "gpu-1"]


async def test_nothing_is_written_and_nothing_asked_while_nothing_changes() -> None:
    """One list and one watch, for as long as it goes well."""
    async with World().published() as world:
        world.tell()
        world.know_node()
        await world.settle(3600)
        assert world.api.writes == []
        assert world.api.lists == 1
        assert world.roots.asked == 1


async def test_slices_of_an_earlier_run_stay_as_they_are() -> None:
    """A restart of the agent is no news to a scheduler."""
    world = World()
    async with world.published():
        pass
    world.api.writes.clear()
    async with world.running():
        await world.settle()
        assert world.api.writes == []
        assert world.summary.generation == 1


async def test_a_verdict_is_a_taint_at_once_and_goes_with_it() -> None:
    """One write there, one write back."""
    async with World().published() as world:
        world.tell({TWO[0].uuid: [LOST]})
        await world.settle()
        assert world.taints() == {"gpu-0": [("gpu.nvidia.com/lost", "NoSchedule")], "gpu-1": []}
        assert world.summary.tainted == ("gpu-0",)
        world.tell()
        await world.settle()
        assert world.taints() == {"gpu-0": [], "gpu-1": []}
        assert world.api.writes == ["update 0000", "update 0000"]
        assert world.summary.generation == 1


async def test_a_taint_is_tried_until_the_server_has_it() -> None:
    """A verdict that is told once and lost would send pods to a dead GPU."""
    async with World().published() as world:
        world.api.fail(SliceRefused("no"))
        world.tell({TWO[0].uuid: [LOST]})
        await world.settle(300)
        assert world.taints()["gpu-0"] == []
        assert "slices-not-written" in world.active()
        assert world.summary.problem == "no"
        world.api.fail(None)
        await world.settle(60)
        assert world.taints()["gpu-0"] == [("gpu.nvidia.com/lost", "NoSchedule")]
        assert "slices-not-written" not in world.active()
        assert world.summary.problem == ""


async def test_a_list_that_failed_is_not_told_for_longer_while_there_is_nothing_to_write() -> None:
    """A node whose driver is yet to come writes no slices; that none could be read once is over all the same."""
    world = World()
    world.api.fail(SliceRefused("no right"))
    async with world.running():
        await world.settle(20)
        assert "slices-not-written" in world.active()
        world.api.fail(None)
        await world.settle(60)
        assert world.api.lists == 1
        assert "slices-not-written" not in world.active()
        assert world.summary.problem == ""


async def test_a_write_that_is_refused_is_tried_again_while_the_watch_goes_on() -> None:
    """A conflict, a webhook, a quota: whatever it was, it may be over."""
    async with World().published() as world:
        world.api.refusals = 3
        world.tell({TWO[0].uuid: [LOST]})
        await world.settle(30)
        assert world.taints()["gpu-0"] == [("gpu.nvidia.com/lost", "NoSchedule")]
        assert world.api.lists == 1
        assert "slices-not-written" not in world.active()


async def test_what_the_settings_say_of_a_finding_counts_from_the_reload_on() -> None:
    """No restart for a taint."""
    async with World().published() as world:
        world.tell({TWO[0].uuid: [LOST]})
        await world.settle()
        rules = (TaintRule(finding="lost", effect="NoExecute"),)
        claims = ClaimsSettings(enabled=True, slices=SlicesSettings(taints=rules))
        world.live.replace(Settings(claims=claims))
        world.bus.publish_fact(ConfigurationReloaded(changed=("claims.slices.taints",)), source="control")
        await world.settle()
        assert world.taints()["gpu-0"] == [("gpu.nvidia.com/lost", "NoExecute")]


async def test_what_the_kubelet_wipes_is_put_back() -> None:
    """It wipes all slices of its node whenever it starts."""
    async with World().published() as world:
        world.api.wipe()
        await world.settle(1)
        assert sorted(world.devices) == ["gpu-0", "gpu-1"]
        assert world.summary.generation == 2


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_was_wiped_while_nobody_watched_is_put_back(*, is_late: bool) -> None:
    """A watch that broke while an answer was on its way told of neither the slice nor its end; the next list does."""

    class Slow(FakeSliceApi):
        gap, answer = anyio.Event(), anyio.Event()

        async def follow_slices(self) -> AsyncGenerator[Mapping[str, StoredSlice], None]:
            first = dict(self.stored)
            yield first
            await self.gap.wait()
            self.gap = anyio.Event()

        async def create(self, *arguments: Any) -> StoredSlice:
            made = await super().create(*arguments)
            await self.answer.wait()
            return made

    world, api = World(), Slow()
    world.api = api
    world.know_node()
    world.tell()
    async with world.running():
        await world.settle()
        api.gap.set()
        await world.settle()
        if not is_late:
            api.answer.set()
            await world.settle()
        api.wipe()
        await world.settle(60)
        api.answer.set()
        await world.settle(60)
        assert sorted(world.devices) == ["gpu-0", "gpu-1"]


async def test_what_somebody_writes_into_a_slice_is_written_over() -> None:
    """A person by hand, or another program of the same name."""
    async with World().published() as world:
        (name,) = world.api.stored
        world.api.spoil(name, SliceContent())
        await world.settle(1)
        assert sorted(world.devices) == ["gpu-0", "gpu-1"]


async def test_somebody_who_does_not_stop_is_answered_more_and_more_seldom() -> None:
    """Two programs that both want to be right would keep the API server busy."""
    async with World().published() as world:
        for _ in range(600):
            if world.api.stored:
                world.api.wipe()
            await world.settle(1)
        assert 8 < len(world.api.writes) < 40


async def test_a_taint_does_not_wait_for_a_quarrel() -> None:
    """Somebody wipes again and again; a GPU that dies is told all the same."""
    async with World().published() as world:
        for _ in range(60):
            if world.api.stored:
                world.api.wipe()
            await world.settle(1)
        world.tell({TWO[0].uuid: [LOST]})
        await world.settle()
        assert world.taints()["gpu-0"] == [("gpu.nvidia.com/lost", "NoSchedule")]


async def test_slices_of_another_program_under_our_name_are_taken_away() -> None:
    """Whoever served this driver on this node before."""
    world = World()
    async with world.published():
        pass
    (name,) = world.api.stored
    world.api.stored["left-behind"] = replace(world.api.stored[name], name="left-behind", generation=9)
    async with world.running():
        await world.settle()
        assert list(world.api.stored) == [name]
        assert world.summary.generation == 10


async def test_what_the_server_does_not_keep_is_said_and_not_written_for_ever() -> None:
    """A feature gate that is off drops it without a word; who is ill is then left out."""
    world = World()
    world.api.keep = lambda content: SliceContent(devices=tuple(replace(one, taints=()) for one in content.devices))
    async with world.published():
        world.tell({TWO[0].uuid: [LOST]})
        await world.settle(60)
        assert sorted(world.devices) == ["gpu-1"]
        assert world.api.writes == ["update 0000"]
        (told,) = [one for one in world.conditions.active() if one.code == "slices-not-kept"]
        assert "DRADeviceTaints" in told.detail


async def test_a_new_life_at_a_server_that_drops_fields_writes_nothing() -> None:
    """What the server does not keep is found by a dry run: the ill device is not on offer for a moment."""
    world = World()
    world.api.keep = lambda content: SliceContent(devices=tuple(replace(one, taints=()) for one in content.devices))
    world.know_node()
    world.tell({TWO[0].uuid: [LOST]})
    seen: list[list[str]] = []
    for _ in range(2):
        async with world.running():
            await world.settle(60)
            seen.append(sorted(world.devices))
    assert seen == [["gpu-1"], ["gpu-1"]]
    assert world.api.writes == ["create 0000"]
    assert world.api.rehearsals == ["0000", "0000"]


async def test_overlapping_devices_are_never_written_without_their_counters() -> None:
    """Neither at a server that drops them, nor at one that wants them elsewhere."""

    def refuse(content: SliceContent) -> SliceContent:
        if any(one.consumes is not None for one in content.devices):
            raise ApiInvalid("try slice 0001", 422, "spec.devices[0].consumesCounters[0].counterSet: Not found")
        return content

    for keep in (lambda content: replace(content, counter_sets=()), refuse):
        world = World([CUT], mig_on_demand=True)
        world.api.keep = keep
        async with world.published():
            assert world.api.stored
            assert all(one.content == SliceContent() for one in world.api.stored.values())
            await world.settle(60)
            (told,) = [one for one in world.conditions.active() if one.code == "slices-not-kept"]
            assert "DRAPartitionableDevices" in told.detail


async def test_a_server_that_takes_few_taints_is_told_the_worst() -> None:
    """Before Kubernetes 1.35 there are four taints of a device, and no effect `None`."""

    def refuse(content: SliceContent) -> SliceContent:
        if any(taint.effect == "None" for one in content.devices for taint in one.taints):
            raise ApiInvalid("try slice 0000", 422, 'spec.devices[0].taints[0].effect: Unsupported value: "None"')
        return content

    world = World(slices=SlicesSettings(taints=(TaintRule(finding="hot", effect="None"),)))
    world.api.keep = refuse
    async with world.published():
        world.tell({TWO[0].uuid: [LOST, ("hot", Verdict.SUSPECT)]})
        await world.settle(60)
        assert world.taints() == {"gpu-0": [("gpu.nvidia.com/lost", "NoSchedule")], "gpu-1": []}
        assert "more than four taints" in "".join(one.detail for one in world.conditions.active())


async def test_a_slice_refused_for_no_known_reason_is_tried_again() -> None:
    world = World()

    def refuse(content: SliceContent) -> SliceContent:
        raise ApiInvalid("try slice 0000", 422, "spec.pool.name: Invalid value")

    world.api.keep = refuse
    world.know_node()
    world.tell({TWO[0].uuid: [LOST]})
    async with world.running():
        await world.settle(60)
        assert "slices-not-written" in world.active()
        world.api.keep = lambda content: content
        await world.settle(60)
        assert "slices-not-written" not in world.active()
        assert sorted(world.devices) == ["gpu-0", "gpu-1"]


async def test_what_the_server_changes_otherwise_is_said_and_left() -> None:
    """Nobody knows why; writing it again would not help."""
    world = World()
    world.api.keep = lambda content: SliceContent(devices=content.devices[:1])
    async with world.published():
        await world.settle(600)
        assert world.api.writes == []
        assert "slices-not-kept" in world.active()
        world.api.keep = lambda content: content
        world.gpus = (*TWO, make_gpu(2))
        world.tell()
        await world.settle()
        assert sorted(world.devices) == ["gpu-0", "gpu-1", "gpu-2"]
        assert "slices-not-kept" not in world.active()


async def test_a_driver_that_is_away_for_a_while_is_no_other_one() -> None:
    """Its version stays as it was told, or every slice would be written twice for nothing."""
    async with World().published() as world:
        ready = DriverState(phase=DriverPhase.READY, driver_version="550.1.2", cuda_version=(12, 4))
        world.bus.publish_state(ready, source="driver")
        await world.settle()
        assert world.devices["gpu-0"].attributes["driverVersion"] == Version(text="550.1.2")
        world.api.writes.clear()
        world.bus.publish_state(DriverState(phase=DriverPhase.STUCK), source="driver")
        await world.settle()
        assert world.api.writes == []


async def test_the_tree_of_a_gpu_is_told_and_holds_nothing_up() -> None:
    """An attribute that may be missing."""
    world = World()
    world.roots.trouble = SliceRefused("sysfs hangs")
    async with world.published():
        assert "resource.kubernetes.io/pcieRoot" not in world.devices["gpu-0"].attributes
        world.roots.trouble = None
        world.tell({TWO[1].uuid: [LOST]})
        await world.settle()
        assert world.devices["gpu-0"].attributes["resource.kubernetes.io/pcieRoot"] == "pci0000:00"


async def test_all_that_was_written_is_told_with_its_cause() -> None:
    """So that a taint is found again from what the driver reported."""
    async with World().published() as world:
        with world.bus.listen(SlicesWritten, client="test") as facts:
            world.tell({TWO[0].uuid: [LOST]})
            fact = await anext(facts)
            assert fact.value.written == ("0000-gpu.nvidia.com-node-1",)
            assert fact.cause is not None

"""Slices between the bus and the API server: there at once, kept, put back, and never written for nothing."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import ClaimsSettings, SlicesSettings, TaintRule
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import ConfigurationReloaded, SlicesWritten
from nodeagent.model.slices import PublishedSlices, SliceContent, StoredSlice, Version
from tests.component.slices.harness import LOST, TWO, World
from tests.fakes.slices import FakeSliceApi, SliceRefused
from tests.support.slices import DRIVER

pytestmark = pytest.mark.virtual_time


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

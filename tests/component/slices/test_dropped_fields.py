"""An API server that drops or refuses fields of a slice: found by a dry run, said, and never offered."""

import pytest
from msgspec.structs import replace

from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.claims import SlicesSettings, TaintRule
from nodeagent.config.sections.hardware import ProofSettings
from nodeagent.edge.kube.errors import ApiInvalid
from nodeagent.model.health import Verdict
from nodeagent.model.proof import GpuProofs
from nodeagent.model.slices import SliceContent
from tests.component.slices.harness import LOST, TWO, World
from tests.support.gpus import make_gpu
from tests.support.mig import make_mig_gpu

pytestmark = pytest.mark.virtual_time

CUT = replace(make_mig_gpu(0, "h100-sxm5-80gb", enabled=True), compute_capability=(9, 0))


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


async def test_devices_are_offered_without_waiting_where_the_server_keeps_no_binding_conditions() -> None:
    """The condition names the gate, and pods are bound as before."""
    world = World()
    world.api.keep = lambda content: SliceContent(
        devices=tuple(replace(one, is_proven_first=False) for one in content.devices)
    )
    async with world.published():
        world.bus.publish_state(GpuProofs(is_before_binding=True), source="proof")
        await world.settle(60)
        assert not any(one.is_proven_first for one in world.devices.values())
        (told,) = [one for one in world.conditions.active() if one.code == "slices-not-kept"]
        assert "DRADeviceBindingConditions" in told.detail
        assert world.api.rehearsals == ["0000"]


async def test_no_slice_is_written_before_it_is_known_whether_somebody_proves() -> None:
    """Pods would be bound without a proof at each start of the agent."""
    world = World()
    world.live = LiveSettings(replace(world.live.now, proof=ProofSettings(before_binding="quick")))
    async with world.published():
        for proofs in (None, GpuProofs(proving=TWO[0].uuid)):
            if proofs is not None:
                world.bus.publish_state(proofs, source="proof")
            await world.settle()
            assert world.api.stored == {}
        world.bus.publish_state(GpuProofs(is_before_binding=True), source="proof")
        await world.settle()
        assert {one.is_proven_first for one in world.devices.values()} == {True}
        assert world.api.writes == ["create 0000"]


async def test_devices_ask_for_a_proof_while_somebody_proves() -> None:
    async with World().published() as world:
        for is_asking in (True, False):
            world.bus.publish_state(GpuProofs(is_before_binding=is_asking), source="proof")
            await world.settle()
            assert {one.is_proven_first for one in world.devices.values()} == {is_asking}


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

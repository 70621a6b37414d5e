"""Simulated GPUs are cut by the rules of the real ones, and refuse what those refuse."""

from random import Random

import pytest

from nodeagent.model.errors import PartitionRefused
from nodeagent.model.mig import Write, WriteKind
from nodeagent.rules.mig.partitions import is_met
from nodeagent.rules.mig.partitions import read_partitions as read_by_devices
from nodeagent.rules.mig.steps import Goal, plan_writes
from nodeagent.rules.mig.wanted import Wanted
from nodeagent_sim.gpus.faults import apply_fault
from nodeagent_sim.gpus.gpu_state import GpuState
from nodeagent_sim.gpus.partitions import apply_write, read_partitions
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.world import World
from tests.support.mig import request


def make_world(profile: str) -> World:
    world = World(load_profile(profile))
    world.set_holders({})
    world.advance(1)
    return world


def reach(world: World, gpu: GpuState, wanted: Wanted, *, most: int = 100) -> int:
    """Make the calls that a plan says, read anew where it ends; how many it took."""
    goal, made, newest = Goal(wanted=wanted), 0, -1
    while made < most:
        writes = plan_writes(goal, read_partitions(gpu))[: most - made]
        if not writes:
            break
        for write in writes:
            known = Write(**{name: getattr(write, name) for name in write.__struct_fields__} | {"instance": newest})
            number = apply_write(world, gpu, write if write.instance >= 0 else known)
            newest = number if write.kind is WriteKind.CREATE else newest
            made += 1
    return made


@pytest.mark.parametrize(
    ("profile", "layout", "switches"),
    [
        ("dgx-h100", "3g.40gb 2g.20gb 1g.10gb 1g.10gb", [WriteKind.MODE_ON]),
        ("dgx-a100", "1g.5gb " * 7, [WriteKind.MODE_ON, WriteKind.RESET]),
        ("dgx-h200", "1g.35gb 1g.35gb 1g.35gb 1g.35gb", [WriteKind.MODE_ON]),
        ("dgx-b200", "4g.90gb 3g.90gb", [WriteKind.MODE_ON]),
        ("gb200-nvl72-node", "7g.186gb", [WriteKind.MODE_ON]),
        ("rtx-pro-6000", "2g.48gb+gfx 1g.24gb-me 1g.24gb+me", [WriteKind.MODE_ON]),
        ("dgx-h100", "1c.3g.40gb 2c.3g.40gb 1g.10gb+me", [WriteKind.MODE_ON]),
    ],
)
def test_a_planned_layout_can_be_had(profile: str, layout: str, switches: list[WriteKind]) -> None:
    """By exactly the calls that are needed; what the reading side sees afterwards is what was asked for."""
    world = make_world(profile)
    gpu = world.gpus[0]
    calls = reach(world, gpu, request(layout))
    partitions = read_partitions(gpu)
    computes = sum(len(one.computes) for one in partitions.instances)
    assert calls == len(switches) + len(partitions.instances) + computes
    assert is_met(request(layout), partitions)
    assert is_met(request(layout), read_by_devices(render_readout(world).gpus[0]))
    assert not render_readout(world).gpus[1].mig_enabled
    reach(world, gpu, Wanted(enabled=False))
    assert render_readout(world).gpus[0].mig_devices == ()


def test_ampere_waits_for_a_reset() -> None:
    """Until then the mode is pending, and nothing can be made."""
    world = make_world("dgx-a100")
    gpu = world.gpus[0]
    apply_write(world, gpu, Write(kind=WriteKind.MODE_ON))
    mig = render_readout(world).gpus[0].mig
    assert mig is not None
    assert (mig.enabled, mig.pending) == (False, True)
    with pytest.raises(PartitionRefused, match="not supported"):
        apply_write(world, gpu, Write(kind=WriteKind.CREATE, profile_id=19))
    apply_write(world, gpu, Write(kind=WriteKind.MODE_OFF))
    assert not read_partitions(gpu).pending
    apply_write(world, gpu, Write(kind=WriteKind.RESET))
    assert not read_partitions(gpu).enabled


def test_nothing_is_taken_from_those_who_use_it() -> None:
    """A device with a job stays; the GPU's mode waits for all of them."""
    world = make_world("a100-80gb-mig")
    gpu, tenant = world.gpus[2], world.gpus[2].tenants[0]
    world.set_holders({tenant.uuid: "pod"})
    world.advance(10)
    assert tenant.instance is not None
    instance = tenant.instance.gpu_instance_id
    for write in (
        Write(kind=WriteKind.DESTROY_COMPUTE, instance=instance),
        Write(kind=WriteKind.DESTROY, instance=instance),
        Write(kind=WriteKind.MODE_OFF),
        Write(kind=WriteKind.RESET),
    ):
        with pytest.raises(PartitionRefused, match="the GPU is in use") as refused:
            apply_write(world, gpu, write)
        assert refused.value.in_use
    other = next(one for one in gpu.tenants if one is not tenant)
    assert other.instance is not None
    apply_write(world, gpu, Write(kind=WriteKind.DESTROY_COMPUTE, instance=other.instance.gpu_instance_id))
    assert len(gpu.tenants) == 1


def test_hopper_keeps_a_mode_pending_while_it_is_used() -> None:
    """The driver takes the wish, and does not carry it out."""
    world = World(load_profile("dgx-h100"))
    world.set_holders({world.gpus[0].uuid: "pod"})
    world.advance(10)
    apply_write(world, world.gpus[0], Write(kind=WriteKind.MODE_ON))
    partitions = read_partitions(world.gpus[0])
    assert (partitions.enabled, partitions.pending) == (False, True)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (Write(kind=WriteKind.CREATE, profile_id=9, start=1), "critical resource"),
        (Write(kind=WriteKind.CREATE, profile_id=9, start=0), "critical resource"),
        (Write(kind=WriteKind.CREATE, profile_id=77), "not supported"),
        (Write(kind=WriteKind.CREATE_COMPUTE, instance=77, slices=1), "not found"),
        (Write(kind=WriteKind.CREATE_COMPUTE, instance=1, slices=1), "critical resource"),
        (Write(kind=WriteKind.DESTROY, instance=77), "not found"),
        (Write(kind=WriteKind.DESTROY_COMPUTE, instance=1, compute=5), "not found"),
    ],
)
def test_what_cannot_be_is_refused(write: Write, reason: str) -> None:
    world = make_world("a100-80gb-mig")
    gpu = world.gpus[2]
    before = read_partitions(gpu)
    with pytest.raises(PartitionRefused, match=reason):
        apply_write(world, gpu, write)
    assert read_partitions(gpu) == before


def test_a_compute_instance_has_a_size_that_there_is() -> None:
    """Three slices cannot be had in an instance of four."""
    world = make_world("dgx-h100")
    gpu = world.gpus[0]
    reach(world, gpu, Wanted(enabled=True))
    number = apply_write(world, gpu, Write(kind=WriteKind.CREATE, profile_id=5, start=0))
    with pytest.raises(PartitionRefused, match="critical resource"):
        apply_write(world, gpu, Write(kind=WriteKind.CREATE_COMPUTE, instance=number, slices=3))
    apply_write(world, gpu, Write(kind=WriteKind.CREATE_COMPUTE, instance=number, slices=2))
    assert [device.profile for device in render_readout(world).gpus[0].mig_devices] == ["2c.4g.40gb"]


def test_a_gpu_without_mig_cannot_be_cut() -> None:
    world = make_world("t4")
    with pytest.raises(PartitionRefused, match="cannot switch MIG on: not supported by this GPU"):
        apply_write(world, world.gpus[0], Write(kind=WriteKind.MODE_ON))


@pytest.mark.parametrize("kind", list(WriteKind))
def test_each_call_fails_on_demand(kind: WriteKind) -> None:
    world = make_world("dgx-h100")
    assert apply_fault(world, "mig-refuse", [kind]).sentence == f"the driver refuses {kind} 1 time"
    with pytest.raises(PartitionRefused, match="unknown error"):
        apply_write(world, world.gpus[0], Write(kind=kind))
    assert world.driver.refused_writes[kind] == 0
    apply_fault(world, "mig-refuse", [kind, "2"])
    assert world.driver.refused_writes[kind] == 2


def test_from_any_layout_cut_short_anywhere_another_can_be_had() -> None:
    """The next one who comes reads what there is, and goes on from there or back."""
    random = Random(7)
    layouts = [
        "7g.80gb",
        "4g.40gb 3g.40gb",
        "3g.40gb 2g.20gb 1g.10gb 1g.10gb",
        "1g.10gb " * 7,
        "1c.3g.40gb 1g.20gb",
        "",
    ]
    world = make_world("dgx-h100")
    gpu = world.gpus[0]
    for _ in range(200):
        reach(world, gpu, request(random.choice(layouts)), most=random.randrange(12))
        last = request(random.choice(layouts))
        reach(world, gpu, last)
        assert is_met(last, read_partitions(gpu))

"""The world: deterministic, told the time, and alive in the way real nodes are."""

import msgspec
import pytest

from nodeagent.model.errors import GpuUnknown
from nodeagent_sim.gpus.gpu_state import REASON_IDLE, REASON_SOFTWARE_POWER_CAP
from nodeagent_sim.gpus.load import Phase
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World

DGX = load_profile("dgx-h100")
MIG = load_profile("a100-80gb-mig")


def test_same_seed_same_history() -> None:
    """Two worlds of one seed agree to the last digit; another seed gives another history."""
    worlds = [World(DGX, seed=seed) for seed in (7, 7, 8)]
    for world in worlds:
        world.advance(90)
    first, second, other = (render_sample(world, 0.0) for world in worlds)
    assert first == second
    assert first != other


def test_how_often_one_looks_changes_nothing() -> None:
    """What is seen at a moment does not depend on the looks before it."""
    seldom, often = World(DGX), World(DGX)
    seldom.advance(60)
    for tenths in range(601):
        often.advance(tenths / 10)
    assert render_sample(seldom, 0.0) == render_sample(often, 0.0)


def test_time_does_not_go_back() -> None:
    """A moment in the past changes nothing."""
    world = World(DGX)
    world.advance(30)
    before = render_sample(world, 0.0)
    world.advance(10)
    assert (world.now_seconds, render_sample(world, 0.0)) == (30, before)


def test_long_gap_is_bounded_work_with_whole_energy() -> None:
    """A week asleep is caught up in a bounded number of steps, and the meter has run all the while."""
    world = World(DGX)
    energy = world.gpus[0].energy_joules
    world.advance(7 * 86_400)
    used = world.gpus[0].energy_joules - energy
    model = DGX.seats[0].model.power
    assert model.idle_watts * 0.9 < used / (7 * 86_400) <= model.limit_watts


def test_gpus_of_a_profile_without_jobs_rest_until_pods_come() -> None:
    """From the first moment on, whole and cut, and again when nobody says any more who holds what."""
    world = World(msgspec.structs.replace(MIG, jobs=False))
    held = world.gpus[0].tenants[0]
    steps: list[dict[str, str] | None] = [None, {held.uuid: "team/train-0"}, None]
    for holders in steps:
        world.set_holders(holders)
        world.advance(world.now_seconds + 200)
        busy = {tenant.uuid for gpu in world.gpus for tenant in gpu.tenants if tenant.phase is not Phase.IDLE}
        assert busy == set(holders or ())


def test_held_gpus_work_and_others_rest() -> None:
    """Once told who holds what, exactly the held GPUs are busy, and idle ones are cold, cheap and empty."""
    world = World(DGX)
    world.set_holders({world.gpus[2].uuid: "team/train-0"})
    world.advance(200)
    for gpu in world.gpus:
        held = gpu.seat.index == 2
        assert (gpu.tenants[0].phase is not Phase.IDLE) is held
        assert (gpu.tenants[0].memory_used_mib > 0) is held
        assert (gpu.clock_event_reasons == REASON_IDLE) is not held
    idle, busy = world.gpus[0], world.gpus[2]
    assert busy.power_watts > 2 * idle.power_watts
    assert busy.temperature_celsius > idle.temperature_celsius


def test_released_gpu_is_idle_at_once_and_own_jobs_return() -> None:
    """A pod that goes takes its process along; with nobody to tell, the world makes up jobs again."""
    world = World(DGX)
    world.set_holders({gpu.uuid: "pod" for gpu in world.gpus})
    world.advance(60)
    assert all(gpu.tenants[0].pid for gpu in world.gpus)
    world.set_holders({})
    world.advance(61)
    assert not any(gpu.tenants[0].pid for gpu in world.gpus)
    world.set_holders(None)
    world.advance(400)
    assert any(gpu.tenants[0].pid for gpu in world.gpus)


def test_held_device_never_loses_its_job() -> None:
    """As long as a pod holds it, work goes on, whatever phase it is in."""
    world = World(DGX)
    world.set_holders({world.gpus[0].uuid: "pod"})
    world.advance(1)
    for second in range(2, 4000, 10):
        world.advance(second)
        assert world.gpus[0].tenants[0].phase is not Phase.IDLE


def test_full_load_meets_the_power_cap() -> None:
    """A training job draws the limit, says so as a reason, counts the time, and gives up clock for it."""
    world = World(DGX)
    gpu = world.gpus[0]
    world.set_holders({gpu.uuid: "pod"})
    gpu.tenants[0].training = True
    capped = False
    for second in range(1, 300):
        world.advance(second)
        if gpu.clock_event_reasons & REASON_SOFTWARE_POWER_CAP:
            capped = True
            assert gpu.sm_clock_mhz < gpu.seat.model.clocks.sm_mhz
    assert capped
    assert gpu.power_violation_seconds > 0


def test_mig_devices_are_held_one_by_one() -> None:
    """Holding one MIG device leaves its neighbours idle, and the GPU no busier than its share."""
    world = World(MIG)
    device = world.gpus[0].tenants[3]
    world.set_holders({device.uuid: "pod"})
    world.advance(120)
    assert [tenant.pid > 0 for tenant in world.gpus[0].tenants] == [False, False, False, True, False, False, False]
    assert world.gpus[0].activity <= device.share
    sample = render_sample(world, 0.0).gpus[0]
    assert sample.gpu_utilization_percent is None
    assert [bool(mig.processes) for mig in sample.mig] == [False, False, False, True, False, False, False]
    assert sample.processes == ()


def test_layout_change_renames_devices_and_going_back_does_not_revive_them() -> None:
    """A new layout has new UUIDs, also when it looks like an earlier one."""
    world = World(MIG)
    gpu = world.gpus[1]
    before = {tenant.uuid for tenant in gpu.tenants}
    layout = gpu.mig_layout
    world.change_layout(gpu, None)
    assert [tenant.uuid for tenant in gpu.tenants] == [gpu.uuid]
    world.change_layout(gpu, layout)
    assert len(gpu.tenants) == len(before)
    assert not before & {tenant.uuid for tenant in gpu.tenants}


def test_partitioned_ampere_gives_up_nvlink() -> None:
    """Links of a partitioned A100 are down at both ends; whole GPUs keep theirs."""
    links = {gpu.index: sum(link.active for link in gpu.nvlinks) for gpu in render_readout(World(MIG)).gpus}
    assert links == {0: 0, 1: 0, 2: 0, 3: 0}
    whole = World(MIG)
    for gpu in whole.gpus:
        whole.change_layout(gpu, None)
    assert all(sum(link.active for link in gpu.nvlinks) == 12 for gpu in render_readout(whole).gpus)


@pytest.mark.parametrize("name", ["3", "0000:61:00.0", "0000:61:00.0".upper()])
def test_gpu_is_found_by_every_name(name: str) -> None:
    """Slot, UUID and PCI address lead to the same GPU."""
    world = World(DGX)
    assert world.find_gpu(name) is world.gpus[3]
    assert world.find_gpu(world.gpus[3].uuid) is world.gpus[3]


def test_unknown_gpu_names_the_known() -> None:
    """A slot that does not exist is answered with those that do."""
    with pytest.raises(GpuUnknown, match="no GPU '8': known are 0, 1, 2, 3, 4, 5, 6, 7"):
        World(DGX).find_gpu("8")

"""Faults: what each one does to the readings, what the driver reports of it, and what people are told."""

from collections.abc import Callable

import pytest

from nodeagent.model.errors import FaultUnknown, GpuUnknown
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.gpu import FabricPhase
from nodeagent.model.telemetry import GpuSample
from nodeagent_sim.gpus.faults import FAULTS, apply_fault, list_faults
from nodeagent_sim.gpus.gpu_state import REASON_HARDWARE_THERMAL
from nodeagent_sim.gpus.profile import Profile, load_profile
from nodeagent_sim.gpus.readout import render_evidence, render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World
from nodeagent_sim.gpus.xid_effects import XID_EFFECTS

DGX = load_profile("dgx-h100")
MIG = load_profile("a100-80gb-mig")
OLD = load_profile("t4")
Look = Callable[[GpuSample], object]


@pytest.fixture
def world() -> World:
    world = World(DGX)
    world.advance(10)
    return world


def apply(world: World, line: str) -> str:
    name, *arguments = line.split()
    return apply_fault(world, name, arguments).sentence


def look(world: World, index: int) -> GpuSample:
    return render_sample(world, 0.0).gpus[index]


@pytest.mark.parametrize(
    ("line", "sentence", "read", "expected"),
    [
        ("lost 3", "GPU 3 no longer answers", lambda gpu: gpu.lost, "does not answer on the bus"),
        ("xid 79 on gpu 3", "reported XID 79 on GPU 3", lambda gpu: gpu.lost, "fell off the bus (XID 79)"),
        ("xid 48 3", "reported XID 48 on GPU 3", lambda gpu: gpu.recovery_action, 1),
        ("xid 48 3", "", lambda gpu: (gpu.ecc_uncorrected_volatile, gpu.remapped_rows_pending), (1, True)),
        ("xid 94 3", "", lambda gpu: (gpu.ecc_uncorrected_volatile, gpu.recovery_action), (1, 4)),
        ("xid 95 3", "", lambda gpu: (gpu.ecc_uncorrected_volatile, gpu.recovery_action), (1, 1)),
        ("xid 63 3", "", lambda gpu: (gpu.remapped_rows_uncorrectable, gpu.recovery_action), (1, 0)),
        ("xid 64 3", "", lambda gpu: (gpu.remapped_rows_failed, gpu.recovery_action), (True, 1)),
        ("xid 74 3", "", lambda gpu: (gpu.nvlinks_active, gpu.nvlink_recovery_count, gpu.recovery_action), (17, 1, 1)),
        ("xid 92 3", "", lambda gpu: gpu.ecc_corrected_volatile, 1000),
        ("xid 119 3", "", lambda gpu: gpu.recovery_action, 1),
        ("xid 13 3", "", lambda gpu: (gpu.processes, gpu.recovery_action), ((), 0)),
        ("xid 9999 3", "reported XID 9999 on GPU 3", lambda gpu: (gpu.lost, gpu.recovery_action), ("", 0)),
        ("ecc 3 corrected", "counted 1 corrected memory error on GPU 3", lambda gpu: gpu.ecc_corrected_volatile, 1),
        ("ecc 3 uncorrected 7", "counted 7 uncorrected", lambda gpu: gpu.ecc_uncorrected_aggregate, 7),
        ("row-remap 3 pending", "a row remap on GPU 3 is pending", lambda gpu: gpu.remapped_rows_pending, True),
        ("row-remap 3 failed", "a row remap on GPU 3 is failed", lambda gpu: gpu.remapped_rows_failed, True),
        ("thermal 3", "GPU 3 is at 89 C and slows down", lambda gpu: gpu.gpu_temperature_celsius, 89),
        ("thermal 3 on", "", lambda gpu: (gpu.slowdown_margin_celsius, gpu.clock_event_reasons), (-2, 0x48)),
        ("nvlink 3 down 5", "link 5 of GPU 3 went down", lambda gpu: gpu.nvlinks_active, 17),
        ("nvlink 3 down", "all 18 links of GPU 3 went down", lambda gpu: gpu.nvlinks_active, 0),
        ("nvlink 3 errors 9", "counted 9 NVLink errors", lambda gpu: gpu.nvlink_crc_flit_count, 9),
        ("nvlink 3 errors", "counted 1 NVLink error on", lambda gpu: gpu.nvlink_replay_count, 1),
        ("pcie-replay 3 40", "counted 40 PCIe replays on GPU 3", lambda gpu: gpu.pcie_replay_count, 40),
        ("mig 3 3g.40gb 4g.40gb", "GPU 3 has the MIG devices 3g.40gb, 4g.40gb", lambda gpu: len(gpu.mig), 2),
        ("mig 3 empty", "GPU 3 has MIG on, empty", lambda gpu: (len(gpu.mig), gpu.gpu_utilization_percent), (0, None)),
    ],
)
def test_fault_shows_in_the_readings(world: World, line: str, sentence: str, read: Look, expected: object) -> None:
    """Each fault changes exactly the level it is about, on the GPU it names."""
    others = [read(look(world, index)) for index in range(8) if index != 3]
    assert sentence in apply(world, line)
    assert read(look(world, 3)) == expected
    assert [read(look(world, index)) for index in range(8) if index != 3] == others


@pytest.mark.parametrize("number", sorted(XID_EFFECTS))
def test_clear_undoes_every_xid(world: World, number: int) -> None:
    """Whatever an XID did, afterwards all live levels are clean; lifetime counts and counters stay."""
    apply(world, f"xid {number} 3")
    apply(world, "clear")
    gpu = look(world, 3)
    assert (gpu.lost, gpu.recovery_action, gpu.ecc_uncorrected_volatile, gpu.nvlinks_active) == ("", 0, 0, 18)
    assert (gpu.remapped_rows_pending, gpu.remapped_rows_failed) == (False, False)
    assert gpu.ecc_uncorrected_aggregate == XID_EFFECTS[number].uncorrected


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("xid 31 1", ["xid 31"]),
        ("xid 48 1", ["xid 48", "xid 154", "recovery_action 1"]),
        ("xid 79 1", ["xid 79", "xid 154", "recovery_action 2", "gpu_lost 0"]),
        ("lost 1", ["gpu_lost 0"]),
        ("mig 1 off", ["mig_layout 0"]),
        ("unplug 1", ["unbind 0"]),
        ("ecc 1 corrected", []),
    ],
)
def test_fault_reports_what_the_driver_would(world: World, line: str, kinds: list[str]) -> None:
    """Events name the GPU; a changed recovery action is announced as XID 154 and as an event."""
    name, *arguments = line.split()
    events = apply_fault(world, name, arguments).events
    assert {event.gpu for event in events} <= {world.gpus[1].uuid}
    assert [
        f"xid {event.xid}" if isinstance(event, XidReported) else f"{event.kind} {event.data}" for event in events
    ] == kinds


def test_same_advice_is_not_announced_twice(world: World) -> None:
    """A second error that calls for the same action, or a lesser one, is an XID alone."""
    apply(world, "xid 94 1")
    outcome = apply_fault(world, "xid", ["95", "1"])
    assert [event for event in outcome.events if isinstance(event, GpuEventReported)] == []
    assert look(world, 1).recovery_action == 4


def test_old_driver_knows_no_recovery_action() -> None:
    """Before branch 565 there is neither the level nor the announcement."""
    world = World(OLD)
    outcome = apply_fault(world, "xid", ["48", "0"])
    assert outcome.events == (XidReported(gpu=world.gpus[0].uuid, xid=48),)
    sample = look(world, 0)
    assert sample.recovery_action is None
    assert (sample.retired_pages_double_bit, sample.retired_pages_pending) == (1, True)
    assert sample.remapped_rows_pending is None


def test_xid_on_a_mig_instance_hits_that_one_alone() -> None:
    """The event carries the instance, and only its job ends."""
    world = World(MIG)
    world.set_holders({tenant.uuid: "pod" for tenant in world.gpus[0].tenants})
    world.advance(60)
    outcome = apply_fault(world, "xid", ["13", "on", "0", "9", "0"])
    assert outcome.sentence == "reported XID 13 on GPU 0, GPU instance 9"
    assert outcome.events == (XidReported(gpu=world.gpus[0].uuid, xid=13, gpu_instance_id=9, compute_instance_id=0),)
    gone = [mig.gpu_instance_id for mig in look(world, 0).mig if not mig.processes]
    assert gone == [9]


def test_thermal_slowdown_lasts_until_the_air_is_back(world: World) -> None:
    """Heat stays below shutdown, clocks stay low and violation time grows; then the card cools and recovers."""
    world.set_holders({world.gpus[3].uuid: "pod"})
    apply(world, "thermal 3")
    world.advance(120)
    hot = look(world, 3)
    assert hot.gpu_temperature_celsius == 89
    assert hot.clock_event_reasons is not None
    assert hot.clock_event_reasons & REASON_HARDWARE_THERMAL
    assert hot.thermal_violation_nanoseconds == pytest.approx(110e9)
    assert hot.sm_clock_mhz is not None
    assert hot.sm_clock_mhz <= DGX.seats[0].model.clocks.sm_mhz / 2
    assert apply(world, "thermal 3 off") == "GPU 3 cools down"
    world.advance(500)
    cool = look(world, 3)
    assert cool.gpu_temperature_celsius is not None
    assert cool.gpu_temperature_celsius < 80
    assert cool.clock_event_reasons is not None
    assert not cool.clock_event_reasons & REASON_HARDWARE_THERMAL


def test_lost_gpu_stays_listed_and_comes_back_clean(world: World) -> None:
    """A lost GPU keeps its identity and its reason; power-cycling it mends every level."""
    apply(world, "xid 79 3")
    world.advance(20)
    gpus = render_readout(world).gpus
    assert len(gpus) == 8
    assert gpus[3].lost == "fell off the bus (XID 79)"
    assert look(world, 3) == GpuSample(uuid=gpus[3].uuid, lost="fell off the bus (XID 79)")
    assert "power-cycled" in apply(world, "back 3")
    assert look(world, 3).lost == ""
    assert look(world, 3).recovery_action == 0


def test_lost_gpu_is_missing_after_the_driver_was_reloaded(world: World) -> None:
    """A driver that starts anew does not list what it cannot reach; the bus still shows it."""
    apply(world, "lost 3")
    apply(world, "driver gone")
    apply(world, "driver back")
    readout = render_readout(world)
    assert [gpu.index for gpu in readout.gpus] == list(range(7))
    assert [(missing.address, missing.device_id) for missing in readout.missing] == [("0000:61:00.0", 0x2330)]
    assert len(render_evidence(world).pci_functions) == 8
    apply(world, "back 3")
    assert len(render_readout(world).gpus) == 8


def test_reset_clears_what_a_reset_clears(world: World) -> None:
    """Volatile counts, pending remaps, links and advice go; lifetime counts and a failed remap stay."""
    apply(world, "xid 48 3")
    apply(world, "row-remap 3 failed")
    apply(world, "nvlink 3 down 1")
    outcome = apply_fault(world, "reset", ["3"])
    assert [type(event) for event in outcome.events] == [XidReported, GpuEventReported]
    gpu = look(world, 3)
    assert (gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate) == (0, 1)
    assert (gpu.remapped_rows_pending, gpu.remapped_rows_failed) == (False, True)
    assert (gpu.nvlinks_active, gpu.recovery_action) == (18, 0)


def test_unplugged_gpu_is_gone_and_plugged_is_back(world: World) -> None:
    """Inventory, sample and bus agree that it is out; NVML counts on without a hole."""
    uuid = world.gpus[3].uuid
    assert apply(world, "unplug 3") == "took GPU 3 out"
    readout = render_readout(world)
    assert uuid not in {gpu.uuid for gpu in readout.gpus}
    assert [gpu.index for gpu in readout.gpus] == list(range(7))
    assert uuid not in {gpu.uuid for gpu in render_sample(world, 0.0).gpus}
    assert len(render_evidence(world).pci_functions) == 7
    world.advance(20)
    assert apply(world, "plug 3") == "put GPU 3 back"
    assert render_readout(world).gpus[3].uuid == uuid


def test_driver_gone_and_back_in_another_version(world: World) -> None:
    """Without the module NVML says so; the version that comes back is the one asked for."""
    energy = look(world, 0).energy_millijoules
    assert apply(world, "driver gone") == "unloaded the driver"
    evidence = render_evidence(world)
    assert not evidence.module_loaded
    assert evidence.library is not None
    assert evidence.library.code == 9
    assert apply(world, "driver back 580.105.08") == "loaded driver 580.105.08"
    evidence = render_evidence(world)
    assert (evidence.module_version, evidence.library_version) == ("580.105.08", "580.105.08")
    assert evidence.library is not None
    assert (evidence.library.code, evidence.library.driver_version) == (0, "580.105.08")
    assert energy is not None
    assert (look(world, 0).energy_millijoules or 0) < energy


@pytest.mark.parametrize(("line", "library"), [("driver mismatch", "570.172.09"), ("driver mismatch 580.1", "580.1")])
def test_replaced_library_does_not_fit_the_module(world: World, line: str, library: str) -> None:
    """A library of another version is what NVML calls a mismatch, until the driver is reloaded."""
    assert library in apply(world, line)
    evidence = render_evidence(world)
    assert (evidence.library_version, evidence.module_version) == (library, "570.172.08")
    assert evidence.library is not None
    assert evidence.library.code == 18
    apply(world, "driver back")
    evidence = render_evidence(world)
    assert evidence.library is not None
    assert evidence.library.code == 0


def test_fabric_waits_and_gets_ready(world: World) -> None:
    """A pending registration is on every GPU and in the evidence, until it is ready."""
    apply(world, "fabric pending")
    assert len(render_evidence(world).fabric_pending) == 8
    fabric = render_readout(world).gpus[0].fabric
    assert fabric is not None
    assert fabric.phase is FabricPhase.IN_PROGRESS
    apply(world, "fabric ready")
    assert render_evidence(world).fabric_pending == ()
    fabric = render_readout(world).gpus[0].fabric
    assert fabric is not None
    assert fabric.phase is FabricPhase.COMPLETED


def test_mig_off_on_a_whole_gpu_changes_nothing(world: World) -> None:
    """A GPU that is whole already keeps its job."""
    tenants = world.gpus[3].tenants
    assert apply(world, "mig 3 off") == "GPU 3 is whole"
    assert world.gpus[3].tenants is tenants


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("hang all", "every call into the driver hangs until cleared"),
        ("hang sample forever", "the call sample into the driver hangs until cleared"),
        ("hang sample for 10s", "the call sample into the driver hangs for 10 s"),
        ("slow 0.5", "every call into the driver takes 0.5 s longer"),
    ],
)
def test_hang_and_slow_say_what_and_how_long(world: World, line: str, sentence: str) -> None:
    """The sentence names the call and the time."""
    assert apply(world, line) == sentence


def test_hang_is_of_the_call_it_names(world: World) -> None:
    """One call hung leaves the others; `all` takes every one."""
    apply(world, "hang sample 10")
    assert world.find_hang_end("sample") == 20
    assert world.find_hang_end("inventory") == 0
    apply(world, "hang all 5")
    assert (world.find_hang_end("inventory"), world.find_hang_end("sample")) == (15, 20)


def test_clear_undoes_everything_at_once() -> None:
    """After any heap of faults the node is listed, cut and driven as the profile says."""
    world = World(MIG)
    before = render_readout(world)
    for line in ("unplug 3", "lost 2", "mig 0 off", "mig 1 empty", "hang all", "slow 9", "driver gone"):
        apply(world, line)
    outcome = apply_fault(world, "clear", [])
    kinds = {event.kind for event in outcome.events if isinstance(event, GpuEventReported)}
    assert kinds == {"bind", "gpu_back", "mig_layout"}
    after = render_readout(world)
    assert [gpu.uuid for gpu in after.gpus] == [gpu.uuid for gpu in before.gpus]
    assert [[device.profile for device in gpu.mig_devices] for gpu in after.gpus] == [
        [device.profile for device in gpu.mig_devices] for gpu in before.gpus
    ]
    assert not any(gpu.lost for gpu in after.gpus)
    evidence = render_evidence(world)
    assert evidence.library is not None
    assert evidence.library.code == 0
    assert (world.find_hang_end("sample"), world.driver.slow_seconds) == (0, 0)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("xid 79", "its form is: xid NUMBER GPU"),
        ("clear all", "its form is: clear"),
        ("xid soon 3", "'soon' is no XID: expected a whole number from 1 to 10000"),
        ("xid 0 3", "'0' is no XID"),
        ("xid 13 3 7", "GPU 3 has no MIG GPU instance 7"),
        ("ecc 3 some", "'some' is no kind of error: expected corrected, uncorrected"),
        ("ecc 3 corrected -1", "'-1' is no count"),
        ("hang nvml", "'nvml' is no call: expected evidence, inventory, sample, partition, reset, all"),
        ("hang all soon", "'soon' is no time"),
        ("slow -1", "'-1' is no time"),
        ("slow nan", "'nan' is no time"),
        ("driver up", "'up' is no driver"),
        ("driver back new", "'new' is no driver version"),
        ("driver back 580", "'580' is no driver version"),
        ("mig 3 1g.5gb", "no MIG profile '1g.5gb'"),
        ("mig 3 7g.80gb 1g.10gb", "does not fit on one"),
        ("nvlink 3 down 18", "'18' is no link: expected a whole number from 0 to 17"),
        ("nvlink 3 gone", "'gone' is no state"),
        ("thermal 3 cold", "'cold' is no thermal state"),
        ("back 3", "GPU 3 is not lost"),
        ("plug 3", "GPU 3 is in its slot"),
    ],
)
def test_senseless_argument_is_named_and_nothing_is_done(world: World, line: str, problem: str) -> None:
    """The message quotes the argument and says what was expected; the world stays as it was."""
    before = (render_readout(world), render_sample(world, 0.0), render_evidence(world))
    with pytest.raises(ValueError, match=problem):
        apply(world, line)
    assert (render_readout(world), render_sample(world, 0.0), render_evidence(world)) == before


@pytest.mark.parametrize(
    ("profile", "lines", "problem"),
    [
        (DGX, ["unplug 3", "xid 13 3"], "out of its slot: use plug 3"),
        (DGX, ["lost 3", "reset 3"], "a reset cannot reach it: use back 3"),
        (OLD, ["nvlink 0 down"], "has no NVLink"),
        (OLD, ["fabric pending"], "profile t4 has no NVLink fabric"),
        (OLD, ["mig 0 1g.5gb"], "Tesla T4 knows no MIG"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_fault_that_this_node_cannot_have_is_refused(profile: Profile, lines: list[str], problem: str) -> None:
    """What the hardware has not, or what is not there now, is said in so many words."""
    world = World(profile)
    for line in lines[:-1]:
        apply(world, line)
    with pytest.raises(ValueError, match=problem):
        apply(world, lines[-1])


def test_unknown_fault_and_gpu_name_what_is_known(world: World) -> None:
    """Both errors list the choices."""
    with pytest.raises(FaultUnknown, match="unknown fault 'explode': choose one of xid, lost"):
        apply(world, "explode 3")
    with pytest.raises(GpuUnknown, match="known are 0, 1"):
        apply(world, "lost 12")


def test_help_shows_every_fault_once() -> None:
    """Each line of help begins with the fault's own word."""
    lines = list_faults()
    assert [line.split()[0] for line in lines] == list(FAULTS)

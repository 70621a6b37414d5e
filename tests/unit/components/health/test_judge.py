"""The judge: which record an event or a look changes."""

import pytest
from msgspec.structs import replace

from nodeagent.components.health.evidence.findings import suspect
from nodeagent.components.health.judge import Judge, find_holder
from nodeagent.components.health.records import StoredVerdicts
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import XidReported
from nodeagent.model.gpu import Inventory, NvLink
from nodeagent.model.health import HealthReport, ReturnRule, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.remedies import Remedy
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.selectors import find_named
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node, mig_uuid
from tests.support.health import SETTINGS, make_sample, moment

READY = DriverState(phase=DriverPhase.READY, driver_version="580.65.06")


class Bench:
    """A judge of a small node, on five-second looks."""

    def __init__(self, inventory: Inventory | None = None) -> None:
        self.judge = Judge(StoredVerdicts(boot_id="boot"))
        self.inventory = inventory or make_node(2)
        self.at = 0.0
        self.judge.note_driver(READY)
        self.judge.note_inventory(self.inventory)

    def look(self, times: int = 1, **fields: object) -> None:
        for _ in range(times):
            self.at += 5
            gpus = tuple(make_sample(gpu.index, **fields) for gpu in self.inventory.gpus)
            self.judge.note_sample(NodeSample(time_seconds=self.at, gpus=gpus), moment(self.at), SETTINGS)

    def xid(self, number: int, gpu: int = 0, message: str = "", **settings: object) -> bool:
        reported = XidReported(gpu=gpu_uuid(gpu), xid=number, message=message)
        policy = HealthSettings(**settings)  # type: ignore[arg-type]  # rows of a table
        return self.judge.note_xid(reported, moment(self.at), policy)

    def report(self) -> HealthReport:
        return self.judge.report(unknown_after=3, watched=True, wall=moment(self.at).wall)

    @property
    def verdicts(self) -> list[Verdict]:
        return [device.verdict for device in self.report().devices]

    def keys(self, gpu: int = 0) -> list[str]:
        return sorted(fault.key for fault in self.judge.find_record(gpu_uuid(gpu)).faults)


BOTH: frozenset[str] = frozenset({gpu_uuid(0), gpu_uuid(1)})
HEALTHY, UNHEALTHY, UNKNOWN = Verdict.HEALTHY, Verdict.UNHEALTHY, Verdict.UNKNOWN


def test_xid_hits_its_gpu_and_no_other() -> None:
    bench = Bench()
    bench.look()
    assert bench.xid(48)
    assert bench.verdicts == [UNHEALTHY, HEALTHY]


def test_a_verdict_says_when_each_fault_was_reported_last_and_what_mends_it() -> None:
    """An older line of a log takes nothing from a newer report; a level is dated by its first poll, and is present."""
    bench = Bench()
    bench.look(2)
    bench.xid(119)
    bench.at -= 5
    bench.xid(119)
    bench.at += 5
    (fault,) = bench.report().devices[0].findings
    assert (fault.remedy, fault.seen_seconds, fault.is_present) == (Remedy.RESET_GPU, moment(10).wall, False)
    bench.look(2, recovery_action=2)
    faults = {fault.key: fault for fault in bench.report().devices[1].findings}
    level = faults["recovery-action"]
    assert (level.remedy, level.seen_seconds, level.is_present) == (Remedy.REBOOT_NODE, moment(15).wall, True)


def test_xid_of_an_unknown_gpu_is_said_to_be_unknown() -> None:
    """The caller logs it; nobody is marked."""
    bench = Bench()
    bench.look()
    assert not bench.xid(79, gpu=9)
    assert bench.verdicts == [HEALTHY, HEALTHY]


def test_ignored_xid_is_ignored_with_its_text() -> None:
    """Configuration is stronger than registers."""
    bench = Bench()
    bench.look()
    bench.xid(74, message="0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", disable_xids=("74",))
    assert bench.verdicts == [HEALTHY, HEALTHY]


def test_new_recovery_action_in_the_log_acts() -> None:
    """XID 154 itself is a note, the action it names is a level; an action that ends proves nothing yet."""
    bench = Bench()
    bench.look()
    bench.xid(154, message="from 0x0 (None) to 0x2 (Node Reboot Required)")
    bench.xid(154, gpu=1, message="from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert (bench.keys(0), bench.keys(1)) == (["recovery-action"], [])
    bench.look(2)
    assert bench.verdicts == [HEALTHY, HEALTHY]


def test_old_recovery_action_is_history() -> None:
    """What the driver wanted before anybody looked, it says again when asked."""
    bench = Bench()
    reported = XidReported(gpu=gpu_uuid(0), xid=154, message="0x0 (None) 0x1 (GPU Reset Required)")
    assert bench.judge.note_xid(reported, moment(0), SETTINGS, is_old=True)
    assert bench.keys() == []


def test_silence_is_missed_by_every_gpu() -> None:
    """Three looks without any sample, and nothing is known."""
    bench = Bench()
    bench.look()
    for _ in range(3):
        bench.judge.note_silence(moment(bench.at), SETTINGS)
    assert bench.verdicts == [UNKNOWN, UNKNOWN]


def test_one_gpu_that_is_not_sampled_hides_no_other() -> None:
    """A missing reading is that GPU's own."""
    bench = Bench()
    bench.look()
    for _ in range(3):
        sample = NodeSample(time_seconds=0, gpus=(make_sample(1),))
        bench.judge.note_sample(sample, moment(bench.at), SETTINGS)
    assert bench.verdicts == [UNKNOWN, HEALTHY]


def test_unloaded_driver_takes_all_and_proves_a_reset() -> None:
    """Reloaded, it gives back what needed a reset, after clean looks."""
    bench = Bench()
    bench.look(recovery_action=None)
    bench.xid(119)
    bench.judge.note_driver(DriverState(phase=DriverPhase.NOT_LOADED))
    assert (bench.verdicts, bench.judge.covered) == ([UNHEALTHY, UNHEALTHY], BOTH)
    bench.judge.note_driver(READY)
    bench.look(1, recovery_action=None)
    assert (bench.verdicts, bench.judge.covered) == ([UNHEALTHY, UNHEALTHY], BOTH)
    bench.look(1, recovery_action=None)
    assert (bench.verdicts, bench.judge.covered) == ([HEALTHY, HEALTHY], frozenset())


def test_other_driver_version_proves_a_reload() -> None:
    """Even if nobody saw the module go."""
    bench = Bench()
    bench.look(recovery_action=None)
    bench.xid(119)
    bench.judge.note_driver(replace(READY, driver_version="590.1"))
    bench.look(2, recovery_action=None)
    assert bench.verdicts == [HEALTHY, HEALTHY]


def test_same_driver_again_proves_nothing() -> None:
    """A state told twice is no reload."""
    bench = Bench()
    bench.xid(119)
    bench.judge.note_driver(READY)
    bench.look(5, recovery_action=None)
    assert bench.verdicts == [UNHEALTHY, HEALTHY]


def test_release_is_known() -> None:
    """Nothing is due while the driver is given up on purpose."""
    bench = Bench()
    assert not bench.judge.is_driver_released
    bench.judge.note_driver(DriverState(phase=DriverPhase.RELEASED))
    assert bench.judge.is_driver_released


@pytest.mark.parametrize(("version", "branch"), [("570.172.08", 570), ("", None), ("new", None)])
def test_branch_is_the_major_version(version: str, branch: int | None) -> None:
    """Registers are laid out by it."""
    bench = Bench()
    bench.judge.note_driver(replace(READY, driver_version=version))
    assert bench.judge.driver_branch == branch


def test_branch_is_unknown_without_a_driver() -> None:
    assert Judge(StoredVerdicts(boot_id="")).driver_branch is None


def test_gpu_that_left_the_bus_was_power_cycled() -> None:
    """It comes back with its faults and the proof that they may be over."""
    bench = Bench()
    bench.look(recovery_action=None)
    bench.xid(79)
    bench.judge.note_inventory(make_inventory([bench.inventory.gpus[1]]))
    assert bench.verdicts == [HEALTHY]
    bench.judge.note_inventory(bench.inventory)
    assert bench.verdicts == [UNHEALTHY, HEALTHY]
    bench.look(2, recovery_action=None)
    assert bench.verdicts == [HEALTHY, HEALTHY]


def test_gpu_of_which_somebody_says_that_it_was_power_cycled_comes_back() -> None:
    """As one that was gone, where its driver has no word for it; one that is not known changes nothing."""
    bench = Bench()
    bench.look(recovery_action=None)
    bench.xid(79)
    bench.look(2, recovery_action=None)
    assert bench.verdicts == [UNHEALTHY, HEALTHY]
    bench.judge.note_back(gpu_uuid(0))
    bench.judge.note_back(gpu_uuid(9))
    bench.look(2, recovery_action=None)
    assert bench.verdicts == [HEALTHY, HEALTHY]


def make_pair() -> Inventory:
    """Two GPUs that are joined directly."""
    gpus = make_gpu(0), make_gpu(1)
    links = (NvLink(link=0, active=True, remote=each.pci.address) for each in reversed(gpus))
    return make_inventory([replace(gpu, nvlinks=(link,)) for gpu, link in zip(gpus, links, strict=True)])


@pytest.mark.parametrize("way", ["lost", "lost by now", "gone", "in MIG mode"])
def test_links_to_a_gpu_that_cannot_have_any_are_no_fault_of_the_other(way: str) -> None:
    bench = Bench(make_pair())
    bench.look(nvlinks_active=1)
    mine, other = bench.inventory.gpus
    others = {
        "lost": (replace(other, lost="fell off"),),
        "lost by now": (other,),
        "gone": (),
        "in MIG mode": (make_gpu(1, mig=[]),),
    }
    mine = replace(mine, nvlinks=(NvLink(link=0, active=False),))
    bench.judge.note_inventory(make_inventory([mine, *others[way]]))
    samples = make_sample(0, nvlinks_active=0), make_sample(1, lost="fell off" if "lost" in way else "")
    bench.judge.note_sample(NodeSample(time_seconds=9, gpus=samples), moment(9), SETTINGS)
    assert bench.keys() == []


def test_links_to_a_gpu_that_answers_are_down_for_both() -> None:
    """Neither explains it: cable or board of one of them."""
    bench = Bench(make_pair())
    bench.look(nvlinks_active=1)
    bench.look(nvlinks_active=0)
    assert (bench.keys(0), bench.keys(1)) == (["nvlinks-down"], ["nvlinks-down"])


def test_lost_gpu_keeps_its_mig_devices_in_mind() -> None:
    """A card that does not answer lists no devices; their faults are not over."""
    gpu = make_gpu(0, mig=["1g.10gb"])
    bench = Bench(make_inventory([gpu]))
    reported = XidReported(gpu=gpu.uuid, xid=94, gpu_instance_id=7, compute_instance_id=0)
    bench.judge.note_xid(reported, moment(0), SETTINGS)
    bench.judge.note_inventory(make_inventory([make_gpu(0, lost="gone")]))
    assert [fault.device for fault in bench.judge.find_record(gpu.uuid).faults] == [mig_uuid(0, 0)]
    bench.judge.note_inventory(make_inventory([make_gpu(0)]))
    assert bench.judge.find_record(gpu.uuid).faults == ()


def test_records_of_gone_gpus_are_bounded() -> None:
    """Hot-plugging for years fills no file."""
    bench = Bench()
    for index in range(200):
        bench.judge.note_inventory(make_inventory([make_gpu(index)]))
        bench.xid(48, gpu=index)
    bench.judge.note_inventory(make_inventory([]))
    assert len(bench.judge.collect(0).records) == 64


def test_switch_error_marks_gpus_with_links() -> None:
    """A GPU without NVLink is none of the switch's business."""
    linked = replace(make_gpu(0), nvlinks=(NvLink(link=0, active=True),))
    bench = Bench(make_inventory([linked, make_gpu(1)]))
    bench.look()
    assert bench.judge.note_switch_error(23001, moment(bench.at), SETTINGS, is_fatal=True, is_old=False) is UNHEALTHY
    assert bench.verdicts == [UNHEALTHY, HEALTHY]
    bench.look(5)
    assert bench.verdicts == [UNHEALTHY, HEALTHY]


def test_old_switch_error_ends_with_clean_levels() -> None:
    """Whether the machine was mended since is not known."""
    linked = replace(make_gpu(0), nvlinks=(NvLink(link=0, active=True),))
    bench = Bench(make_inventory([linked]))
    bench.judge.note_switch_error(23001, moment(0), SETTINGS, is_fatal=True, is_old=True)
    bench.look(2)
    assert bench.verdicts == [HEALTHY]


def test_corrected_switch_error_changes_nothing() -> None:
    bench = Bench()
    before = bench.judge.fingerprint()
    assert bench.judge.note_switch_error(11012, moment(0), SETTINGS, is_fatal=False, is_old=False) is HEALTHY
    assert bench.judge.fingerprint() == before


def test_finding_about_an_unknown_gpu_is_nobodys() -> None:
    """An event may outlive its GPU."""
    bench = Bench()
    before = bench.judge.fingerprint()
    bench.judge.note_finding(gpu_uuid(9), suspect("x", "y", Remedy.WATCH, ReturnRule.RESET), moment(0))
    assert bench.judge.fingerprint() == before


def test_clearing_names_what_was_forgotten() -> None:
    """The person reads what they took the responsibility for."""
    bench = Bench()
    bench.look()
    bench.xid(48)
    bench.xid(79)
    gpu, cleared = bench.judge.clear("0", moment(bench.at), "ada", "why")
    assert (gpu.index, cleared) == (0, ("xid-48", "xid-79"))
    with pytest.raises(ControlRefused, match="nothing is held against GPU 0"):
        bench.judge.clear(gpu.uuid, moment(bench.at), "ada", "why")
    with pytest.raises(ControlRefused, match="no GPU 77"):
        bench.judge.clear("77", moment(bench.at), "ada", "why")
    assert bench.verdicts == [HEALTHY, HEALTHY]


def test_fingerprint_changes_with_what_must_be_written() -> None:
    """A new fault, a proof, a clearing; not another clean look."""
    bench = Bench()
    bench.look(2)
    bench.report()
    seen = [bench.judge.fingerprint()]
    bench.look(2)
    bench.report()
    assert bench.judge.fingerprint() == seen[0]
    for change in (
        lambda: bench.xid(48),
        bench.report,
        lambda: bench.judge.note_driver(replace(READY, driver_version="9")),
    ):
        change()
        assert bench.judge.fingerprint() not in seen
        seen.append(bench.judge.fingerprint())


def test_holder_is_the_pod_of_any_replica() -> None:
    """Shared devices are held by replica."""
    pod = PodIdentity(namespace="team", name="training")
    resource = ResourceName("nvidia.com/gpu")
    table = AllocationTable(
        allocations=(
            Allocation(number=1, resource=resource, devices=(DeviceId(f"{gpu_uuid(0)}::3"),), since_seconds=0, pod=pod),
            Allocation(number=2, resource=resource, devices=(DeviceId(gpu_uuid(1)),), since_seconds=0),
        )
    )
    assert [find_holder(table, gpu_uuid(index)) for index in (0, 1, 2)] == ["team/training", "", ""]
    assert find_holder(None, gpu_uuid(0)) == ""


def test_gpu_is_found_by_any_of_its_names() -> None:
    """Index, UUID, MIG UUID, PCI address."""
    node = make_inventory([make_gpu(0), make_gpu(1, mig=["1g.10gb"])])
    for name in ("1", gpu_uuid(1), mig_uuid(1, 0), node.gpus[1].pci.address):
        assert find_named(node, name) == node.gpus[1]
    assert find_named(node, "7") is None


def test_unknown_gpu_has_an_empty_record() -> None:
    """Asking makes nothing."""
    bench = Bench()
    assert bench.judge.find_record(GpuUuid("GPU-nobody")).faults == ()
    assert all(record.gpu != "GPU-nobody" for record in bench.judge.collect(0).records)


def test_passing_switch_errors_count_by_the_hour() -> None:
    """One by one they are notes; past ten in an hour every GPU with NVLink is suspect. Old lines are not counted."""
    bench = Bench()
    for _ in range(10):
        assert bench.judge.note_switch_error(20001, moment(bench.at), SETTINGS, is_fatal=False, is_old=True) is HEALTHY
        assert bench.judge.note_switch_error(20001, moment(bench.at), SETTINGS, is_fatal=False, is_old=False) is HEALTHY
    assert (
        bench.judge.note_switch_error(20009, moment(bench.at), SETTINGS, is_fatal=False, is_old=False)
        is Verdict.SUSPECT
    )


def test_the_log_is_read_again_from_in_front_of_the_oldest_line_that_is_held() -> None:
    """Where no position is known yet there is none to hold back."""
    judge = Judge(StoredVerdicts(boot_id="boot"))
    judge.hold_line("before any")
    assert judge.collect(0.0).kernel_log_sequence is None
    for sequence in (7, 9):
        judge.kernel_log_sequence = sequence
        judge.hold_line(f"line {sequence}")
        assert judge.collect(0.0).kernel_log_sequence == 6
    judge.release_line("line 7")
    assert judge.collect(0.0).kernel_log_sequence == 8
    judge.release_line("line 9")
    assert judge.collect(0.0).kernel_log_sequence == 9

"""The report: every device, the worst that is true of it, and words for the person who is paged."""

import pytest
from msgspec.structs import replace

from nodeagent.components.health.problems import decide_problems
from nodeagent.components.health.render import VerdictInputs, list_changes, list_reported, render_report
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import VerdictChanged
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, ReturnRule, Verdict
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, mig_uuid
from tests.support.health import Gpu0

MIG_NODE = make_inventory([make_gpu(0, mig=["1g.10gb", "1g.10gb"])])
WALL = 2_000_000_000.0


def render(
    gpu: Gpu0, inventory: Inventory | None = None, before: HealthReport | None = None, **around: object
) -> HealthReport:
    standings = {str(one.device): one for one in list_reported(before)} if before is not None else {}
    return render_report(
        inventory or make_inventory([gpu.gpu]),
        {gpu.gpu.uuid: gpu.record},
        standings,
        VerdictInputs(**around),  # type: ignore[arg-type]  # rows of a table
        wall=WALL,
    )


def first(report: HealthReport) -> DeviceHealth:
    return report.devices[0]


def looked_at(gpu: Gpu0) -> Gpu0:
    gpu.look()
    return gpu


def test_device_is_unknown_before_the_first_look() -> None:
    """No data yet is not healthy."""
    health = first(render(Gpu0()))
    assert (health.verdict, health.reason) == (Verdict.UNKNOWN, "not looked at yet")


def test_every_device_has_a_verdict() -> None:
    """GPUs and MIG devices, in index order, with the inventory's generation."""
    report = render(looked_at(Gpu0(MIG_NODE.gpus[0])), MIG_NODE)
    assert [device.device for device in report.devices] == [gpu_uuid(0), mig_uuid(0, 0), mig_uuid(0, 1)]
    assert {device.verdict for device in report.devices} == {Verdict.HEALTHY}
    assert report.generation == MIG_NODE.generation


def test_gpu_nobody_remembers_is_unknown() -> None:
    """A GPU that appeared a moment ago has to be looked at first."""
    report = render_report(make_inventory([make_gpu(5)]), {}, {}, VerdictInputs(), wall=WALL)
    assert first(report).verdict is Verdict.UNKNOWN


def test_missed_looks_turn_a_device_unknown() -> None:
    """One slow call is no fault; no answer for long is no health."""
    gpu = looked_at(Gpu0())
    for _ in range(2):
        gpu.see(None)
    assert first(render(gpu)).verdict is Verdict.HEALTHY
    gpu.see(None)
    health = first(render(gpu))
    assert (health.verdict, health.reason) == (Verdict.UNKNOWN, "no answer in 3 looks or more")


def test_known_fault_is_worse_than_silence() -> None:
    """A stored fault is told at once, before any look."""
    gpu = Gpu0()
    gpu.xid(48)
    health = first(render(gpu))
    assert (health.verdict, health.xid, health.return_rule) == (Verdict.UNHEALTHY, 48, ReturnRule.RESET)
    assert health.remedy.startswith("stop the work on it and reset the GPU")
    assert health.returns == "by itself, once a reset was seen and its levels are good"


def test_worst_fault_speaks_and_counts_the_others() -> None:
    """The hardest way back among the worst, with how often it was seen."""
    gpu = looked_at(Gpu0())
    for number in (92, 48, 79, 79):
        gpu.xid(number)
    assert first(render(gpu)).reason == "XID 79: the GPU fell off the bus (2 times), and 2 more"


def test_quiet_period_is_told_in_time() -> None:
    gpu = looked_at(Gpu0())
    gpu.xid(92)
    assert first(render(gpu)).returns == "by itself, after 1 d without a repeat"


def test_fault_of_a_gpu_is_a_fault_of_all_that_is_cut_from_it() -> None:
    """An unattributed event marks every MIG device, an attributed one only its own."""
    gpu = looked_at(Gpu0(MIG_NODE.gpus[0]))
    gpu.xid(94, device=mig_uuid(0, 1))
    assert [device.verdict for device in render(gpu, MIG_NODE).devices] == [
        Verdict.HEALTHY,
        Verdict.HEALTHY,
        Verdict.SUSPECT,
    ]
    gpu.xid(48)
    assert {device.verdict for device in render(gpu, MIG_NODE).devices} == {Verdict.UNHEALTHY}


@pytest.mark.parametrize(
    ("phase", "verdict"),
    [
        (DriverPhase.READY, Verdict.HEALTHY),
        (DriverPhase.RELEASED, Verdict.HEALTHY),
        (DriverPhase.STUCK, Verdict.HEALTHY),
        (DriverPhase.VERSION_MISMATCH, Verdict.HEALTHY),
        (DriverPhase.NO_PERMISSION, Verdict.HEALTHY),
        (DriverPhase.NOT_LOADED, Verdict.UNHEALTHY),
        (DriverPhase.NO_HARDWARE, Verdict.UNHEALTHY),
        (DriverPhase.WRONG_DRIVER, Verdict.UNHEALTHY),
        (DriverPhase.LIBRARY_MISSING, Verdict.UNHEALTHY),
        (DriverPhase.NODES_MISSING, Verdict.UNHEALTHY),
        (DriverPhase.FABRIC_NOT_READY, Verdict.UNHEALTHY),
        (DriverPhase.UNSUPPORTED, Verdict.UNHEALTHY),
        (DriverPhase.FAILED, Verdict.UNHEALTHY),
    ],
)
def test_driver_takes_devices_along_unless_it_is_only_silent(phase: DriverPhase, verdict: Verdict) -> None:
    """Released devices stay as they were; behind a stuck driver they turn unknown when it lasts."""
    driver = DriverState(phase=phase, detail="what happened", remedy="what to do")
    health = first(render(looked_at(Gpu0()), driver=driver))
    assert health.verdict is verdict
    if verdict is Verdict.UNHEALTHY:
        assert (health.reason, health.remedy) == ("the driver does not work: what happened", "what to do")


def test_driver_that_is_back_is_waited_for() -> None:
    """Devices return with clean looks, not with the first answer."""
    gpu = looked_at(Gpu0())
    gpu.record = replace(gpu.record, driver_was_down=True)
    health = first(render(gpu, driver=DriverState(phase=DriverPhase.READY)))
    assert (health.verdict, health.reason) == (Verdict.UNHEALTHY, "the driver is back, waiting for clean looks")


def test_a_driver_that_is_not_back_is_not_said_to_be() -> None:
    """The reason of a moment ago is no reason: a mismatch after a driver that was gone is no driver that is back."""
    gpu = looked_at(Gpu0())
    gpu.record = replace(gpu.record, driver_was_down=True)
    driver = DriverState(phase=DriverPhase.VERSION_MISMATCH, detail="library 2, module 1", remedy="reload the module")
    health = first(render(gpu, driver=driver))
    assert health.verdict is Verdict.UNHEALTHY
    assert (health.reason, health.remedy) == (
        "the driver went and has not come back: library 2, module 1",
        "reload the module",
    )


def test_since_is_kept_while_the_verdict_stands() -> None:
    """A new reason for the same verdict is not a new beginning."""
    gpu = looked_at(Gpu0())
    gpu.xid(48)
    before = replace(first(render(gpu)), since_seconds=5.0)
    gpu.xid(79)
    after = first(render(gpu, before=HealthReport(generation=1, devices=(before,))))
    assert (after.since_seconds, after.xid) == (5.0, 79)
    healthy = replace(before, verdict=Verdict.HEALTHY)
    assert first(render(gpu, before=HealthReport(generation=1, devices=(healthy,)))).since_seconds == WALL


def test_changes_are_facts_and_a_new_device_was_unknown() -> None:
    gpu = looked_at(Gpu0())
    healthy = render(gpu)
    assert [fact for fact, _ in list_changes(None, healthy)] == [
        VerdictChanged(device=gpu_uuid(0), before=Verdict.UNKNOWN, after=Verdict.HEALTHY)
    ]
    assert list_changes(healthy, healthy) == ()
    gpu.xid(48)
    assert [(fact.before, fact.after, fact.reason) for fact, _ in list_changes(healthy, render(gpu))] == [
        (Verdict.HEALTHY, Verdict.UNHEALTHY, "XID 48: uncorrectable memory error")
    ]


def test_conditions_name_each_device_once() -> None:
    """A MIG device is named only where its GPU is not named for the same."""
    gpu = looked_at(Gpu0(MIG_NODE.gpus[0]))
    gpu.xid(94, device=mig_uuid(0, 1))
    problems = decide_problems(render(gpu, MIG_NODE), MIG_NODE)
    assert list(problems["gpu-suspect"]) == [mig_uuid(0, 1)]
    assert problems["gpu-suspect"][mig_uuid(0, 1)].startswith("GPU 0:1 (1g.10gb): XID 94: contained memory error;")
    gpu.xid(48)
    problems = decide_problems(render(gpu, MIG_NODE), MIG_NODE)
    assert {code: list(details) for code, details in problems.items()} == {
        "gpu-unhealthy": [gpu_uuid(0)],
        "gpu-suspect": [],
        "gpu-health-unknown": [],
    }


def test_what_the_driver_explains_is_not_said_again() -> None:
    """Eight GPUs behind one missing driver are one condition."""
    gpu = Gpu0()
    gpu.xid(48)
    problems = decide_problems(render(gpu), make_inventory([gpu.gpu]), frozenset({gpu_uuid(0)}))
    assert not any(problems.values())


def test_device_that_left_the_inventory_is_named_as_it_is() -> None:
    gpu = Gpu0()
    gpu.xid(48)
    problems = decide_problems(render(gpu), Inventory(generation=2))
    assert problems["gpu-unhealthy"][gpu_uuid(0)].startswith(f"{gpu_uuid(0)}: XID 48")

"""Taints: by what was found, as the settings say, and none on what is well."""

import pytest
from msgspec.structs import replace

from nodeagent.components.slices.taints import decide_taints, explain_closed
from nodeagent.config.sections.claims import EffectWord, TaintRule
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.offering import AllocationMode, ModeHolder, Offering
from nodeagent.model.slices import DeviceTaint
from nodeagent.rules.claims.naming import NamedDevice, list_devices
from tests.support.fractions import make_offering
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.mig import make_mig_gpu
from tests.support.slices import DRIVER, make_report

GPU = NamedDevice(name="gpu-0", gpu=make_gpu(0))
NODE = make_inventory([GPU.gpu])
OPEN = make_offering(NODE, {0: (AllocationMode.CLAIMS, True)})


def decide(*found: tuple[str, Verdict], rules: tuple[TaintRule, ...] = ()) -> list[tuple[str, str, str]]:
    report = make_report(NODE, {GPU.gpu.uuid: found})
    return [(one.key, one.value, one.effect) for one in decide_taints(GPU, report, DRIVER, rules)]


def rule(finding: str, effect: EffectWord) -> TaintRule:
    return TaintRule(finding=finding, effect=effect)


def test_a_device_that_is_well_has_none() -> None:
    """The usual case, and all of a slice's brevity."""
    assert decide() == []


@pytest.mark.parametrize(
    ("verdict", "effect"),
    [(Verdict.UNHEALTHY, "NoSchedule"), (Verdict.UNKNOWN, "NoSchedule"), (Verdict.SUSPECT, "None")],
)
def test_without_a_rule_the_verdict_decides(verdict: Verdict, effect: str) -> None:
    """Nobody new on what may not work; who is there comes to an end by itself."""
    assert decide(("xid-79", verdict)) == [("gpu.nvidia.com/xid-79", verdict.value, effect)]


def test_each_finding_has_its_own_and_the_worst_is_first() -> None:
    """A claim may tolerate one and not the other."""
    found = (("hot", Verdict.SUSPECT), ("remap-failed", Verdict.UNHEALTHY))
    assert [(key, effect) for key, _, effect in decide(*found)] == [
        ("gpu.nvidia.com/remap-failed", "NoSchedule"),
        ("gpu.nvidia.com/hot", "None"),
    ]


def test_the_first_rule_that_fits_counts() -> None:
    """By name, by pattern, by verdict."""
    rules = (rule("xid-79", "NoExecute"), rule("xid-*", "NoSchedule"), rule("unhealthy", "None"))
    found = (("xid-79", Verdict.UNHEALTHY), ("xid-48", Verdict.UNHEALTHY), ("lost", Verdict.UNHEALTHY))
    assert {key.rpartition("/")[2]: effect for key, _, effect in decide(*found, rules=rules)} == {
        "xid-79": "NoExecute",
        "xid-48": "NoSchedule",
        "lost": "None",
    }


def test_a_verdict_without_findings_is_told_by_itself() -> None:
    report = make_report(NODE, {GPU.gpu.uuid: [("x", Verdict.UNHEALTHY)]})
    bare = HealthReport(generation=1, devices=(replace(report.devices[0], findings=()),))
    assert decide_taints(GPU, bare, DRIVER, ()) == (
        DeviceTaint(key="gpu.nvidia.com/unhealthy", value="unhealthy", effect="NoSchedule"),
    )


def test_who_has_no_verdict_gets_nobody() -> None:
    """Silence is not health."""
    (taint,) = decide_taints(GPU, HealthReport(generation=1), DRIVER, ())
    assert (taint.key, taint.effect) == ("gpu.nvidia.com/no-verdict", "NoSchedule")


def test_a_mig_device_has_those_of_its_own() -> None:
    """The one beside it may be well."""
    node = make_inventory([make_gpu(0, mig=["1g.10gb", "1g.10gb"])])
    first, second = list_devices(node, {gpu_uuid(0)}, on_demand=False)
    assert first.mig is not None
    report = make_report(node, {first.mig.uuid: [("xid-63", Verdict.UNHEALTHY)]})
    assert len(decide_taints(first, report, DRIVER, ())) == 1
    assert decide_taints(second, report, DRIVER, ()) == ()


def test_a_mig_device_that_was_just_made_has_those_of_its_gpu() -> None:
    """Its own verdict comes a moment later: a taint for that moment would be two writes for nothing."""
    node = make_inventory([make_gpu(0, mig=["1g.10gb"])])
    (device,) = list_devices(node, {gpu_uuid(0)}, on_demand=False)
    report = make_report(make_inventory([make_gpu(0)]), {gpu_uuid(0): [("hot", Verdict.SUSPECT)]})
    assert [one.key for one in decide_taints(device, report, DRIVER, ())] == ["gpu.nvidia.com/hot"]


def test_the_worst_come_first() -> None:
    """So that they stay where there are more than the API takes."""
    found = [(f"xid-{number}", Verdict.SUSPECT) for number in range(20)]
    taints = decide(*found, ("lost", Verdict.UNHEALTHY))
    assert taints[0][0] == "gpu.nvidia.com/lost"


def test_a_closed_door_gives_to_nobody_new() -> None:
    assert explain_closed(GPU, DRIVER, OPEN, mig=None) == ()
    shut = make_offering(NODE, {0: (AllocationMode.CLAIMS, False)})
    assert explain_closed(GPU, DRIVER, shut, mig=MigState()) == (
        DeviceTaint(key="gpu.nvidia.com/closed", value="", effect="NoSchedule"),
    )


def test_a_cordon_has_a_taint_of_its_own() -> None:
    """A cordon is told from an allocation mode that changes; a GPU may have both."""
    cordon = Cordon(gpu=gpu_uuid(0), source=CordonSource.COMMAND, named="0", reason="fan")
    (mode,) = OPEN.doors
    cordoned = replace(mode, is_open=False, cordons=(cordon,))
    taint = DeviceTaint(key="gpu.nvidia.com/cordoned", value="", effect="NoSchedule")
    assert explain_closed(GPU, DRIVER, Offering(doors=(cordoned,)), mig=None) == (taint,)
    holder = ModeHolder(door=AllocationMode.CLAIMS, name="claim a/b")
    waiting = Offering(doors=(replace(cordoned, waits_for=(holder,)),))
    assert [one.key for one in explain_closed(GPU, DRIVER, waiting, mig=None)] == [
        "gpu.nvidia.com/cordoned",
        "gpu.nvidia.com/closed",
    ]


def test_of_a_gpu_to_be_proved_one_device_is_free_of_the_taint() -> None:
    """The whole GPU and not a place on it; of a cut GPU the first MIG device."""
    cordon = Cordon(gpu=gpu_uuid(0), source=CordonSource.BRAKE, named="0", until_seconds=1.0)
    tried = Offering(doors=(replace(OPEN.doors[0], trial=cordon),))
    taint = DeviceTaint(key="gpu.nvidia.com/cordoned", value="", effect="NoSchedule")
    for gpu in (make_mig_gpu(0, "h100-sxm5-80gb"), make_gpu(0, mig=["1g.10gb", "1g.10gb"])):
        devices = list_devices(make_inventory([gpu]), [gpu.uuid], on_demand=True)
        free = [one for one in devices if not explain_closed(one, DRIVER, tried, mig=None)]
        assert len(devices) > 1
        assert [one.mig.uuid if one.mig is not None else gpu.uuid for one in free] == [
            gpu.mig_devices[0].uuid if gpu.mig_devices else gpu.uuid
        ]
        assert explain_closed(devices[-1], DRIVER, tried, mig=None) == (taint,)


def test_a_gpu_that_is_being_cut_gives_to_nobody_new() -> None:
    change = GpuChange(gpu=gpu_uuid(0), index=0, wanted="7 x 1g.10gb", doing="waits")
    assert explain_closed(GPU, DRIVER, OPEN, mig=MigState(changes=(change,))) == (
        DeviceTaint(key="gpu.nvidia.com/changing", value="", effect="NoSchedule"),
    )

"""What the cluster is told of this node, and what its wishes mean."""

import json
from typing import Any

import pytest

from nodeagent.components.cluster.kubernetes_events import TOLD, ReportedEvents, decide_reporting, render_event
from nodeagent.components.cluster.node_requests import (
    decide_mig_label,
    decide_taint,
    find_pause,
    parse_taint,
    read_node_requests,
)
from nodeagent.components.cluster.status import (
    NodeSight,
    decide_condition,
    decide_lost,
    is_hopeless,
    mark_lost,
    render_proofs,
)
from nodeagent.model.cluster import (
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    ClusterNode,
    NodeCondition,
    NodeEvent,
    NodeRequests,
    Taint,
)
from nodeagent.model.cordons import CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import (
    AllocationDiffered,
    ConfigurationRejected,
    DriverChanged,
    FaultInjected,
    GpuCordoned,
    GpuUncordoned,
    GpuVanished,
    LabelsContested,
    MigLayoutChanged,
    NodeRequestRefused,
    RuntimeConfigured,
    RuntimeRestarted,
    VerdictChanged,
)
from nodeagent.model.gpu import Inventory, StoredGpu
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid, PciAddress, ResourceName
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.plugin import AdvertisedResource, OfferSummary, PluginState
from nodeagent.model.proof import GpuProofs
from nodeagent.rules.ids import build_names
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.repairs import make_failed, make_passed

READY = DriverState(phase=DriverPhase.READY)
TWO = make_inventory([make_gpu(0), make_gpu(1)])


def judge(*verdicts: Verdict) -> HealthReport:
    devices = (
        DeviceHealth(device=gpu_uuid(index), gpu=gpu_uuid(index), verdict=verdict, since_seconds=0)
        for index, verdict in enumerate(verdicts)
    )
    return HealthReport(generation=1, devices=tuple(devices))


def offer(*, registered: bool) -> PluginState:
    resource = AdvertisedResource(name=ResourceName("nvidia.com/gpu"), socket="s", registered=registered)
    return PluginState(resources=(resource,))


@pytest.mark.parametrize(
    ("sight", "status", "reason"),
    [
        ({"driver": DriverState(phase=DriverPhase.NOT_LOADED)}, "False", "DriverNotLoaded"),
        ({"driver": DriverState(phase=DriverPhase.STUCK, detail="d", remedy="r")}, "False", "DriverStuck"),
        ({"driver": READY}, "Unknown", "GPUsNotKnown"),
        ({"driver": READY, "inventory": Inventory(generation=1)}, "False", "NoGPUs"),
        ({"driver": READY, "inventory": TWO}, "True", "GPUsReady"),
        ({"driver": READY, "inventory": TWO, "plugin": offer(registered=True)}, "True", "GPUsReady"),
        ({"driver": READY, "inventory": TWO, "plugin": offer(registered=False)}, "False", "PluginNotRegistered"),
        ({"driver": READY, "inventory": TWO, "health": HealthReport(generation=1)}, "True", "GPUsReady"),
        ({"driver": READY, "inventory": TWO, "health": judge(Verdict.HEALTHY, Verdict.SUSPECT)}, "True", "GPUsReady"),
        (
            {"driver": READY, "inventory": TWO, "health": judge(Verdict.HEALTHY, Verdict.UNHEALTHY)},
            "True",
            "SomeGPUsUnhealthy",
        ),
        (
            {"driver": READY, "inventory": TWO, "health": judge(Verdict.UNKNOWN, Verdict.UNKNOWN)},
            "False",
            "AllGPUsUnhealthy",
        ),
        (
            {"driver": READY, "inventory": TWO, "plugin": PluginState(account=OfferSummary(gpus=2, devices_offered=0))},
            "False",
            "NoGPUOffered",
        ),
        (
            {"driver": READY, "inventory": TWO, "plugin": PluginState(account=OfferSummary(gpus=2, devices_offered=2))},
            "True",
            "GPUsReady",
        ),
        (
            {"driver": READY, "inventory": TWO, "health": judge(Verdict.UNHEALTHY, Verdict.UNHEALTHY)},
            "False",
            "AllGPUsUnhealthy",
        ),
        ({"driver": READY, "inventory": TWO, "paused": "label=paused"}, "False", "Paused"),
    ],
)
def test_the_condition_gives_the_first_reason(sight: dict[str, Any], status: str, reason: str) -> None:
    """Ready means that a pod with a GPU can work here; every other answer has a reason and a sentence."""
    condition = decide_condition(NodeSight(**sight))
    assert (condition.status, condition.reason) == (status, reason)
    assert condition.message


def test_what_mends_itself_or_waits_for_people_is_not_hopeless() -> None:
    """A driver that nobody has installed yet is no case for replacing the node; one that is stuck is."""
    for phase, hopeless in ((DriverPhase.NOT_LOADED, False), (DriverPhase.STUCK, True), (DriverPhase.RELEASED, False)):
        driver = DriverState(phase=phase)
        assert is_hopeless(decide_condition(NodeSight(driver=driver)), driver) is hopeless
    ill = NodeSight(driver=READY, inventory=TWO, health=judge(Verdict.UNHEALTHY, Verdict.UNHEALTHY))
    assert is_hopeless(decide_condition(ill), READY)
    well = NodeSight(driver=READY, inventory=TWO)
    assert not is_hopeless(decide_condition(well), READY)


def test_a_node_is_given_up_after_bounded_attempts() -> None:
    """One attempt before the limit it is not; at it, the reason says what and how often."""
    condition = NodeCondition(status="False", reason="DriverStuck", message="nvmlInit")
    assert decide_lost(condition, 149, 30, 5) == ""
    lost = decide_lost(condition, 150, 30, 5)
    assert lost == "DriverStuck after 5 attempts: nvmlInit"
    assert mark_lost(condition, "") is condition
    assert mark_lost(condition, lost) == NodeCondition(status="False", reason="GPUsFailedForGood", message=lost)


@pytest.mark.parametrize(
    ("labels", "pause"),
    [
        ({}, ""),
        ({"nvidia.com/gpu.deploy.device-plugin": "true"}, ""),
        ({"nvidia.com/gpu.deploy.device-plugin": ""}, ""),
        ({"nvidia.com/gpu.deploy.mig-manager": "paused-for-mig-change"}, ""),
        (
            {"nvidia.com/gpu.deploy.dcgm": "paused-for-driver-upgrade"},
            "nvidia.com/gpu.deploy.dcgm=paused-for-driver-upgrade",
        ),
        (
            {"nvidia.com/gpu.deploy.client": "paused-for-mig-change"},
            "nvidia.com/gpu.deploy.client=paused-for-mig-change",
        ),
        (
            {"nvidia.com/gpu.deploy.dcgm": "custom_paused-for-driver-upgrade"},
            "nvidia.com/gpu.deploy.dcgm=custom_paused-for-driver-upgrade",
        ),
    ],
)
def test_a_pause_is_any_of_our_jobs_paused(labels: dict[str, str], pause: str) -> None:
    """Both writers' values count, also behind a value of the user's; false and other operands do not."""
    assert find_pause(labels) == pause


def test_the_agents_own_pause_of_others_pauses_not_the_agent() -> None:
    """The driver manager's own value does."""
    values = ("paused-for-nodeagent-upgrade", "paused-for-driver-upgrade")
    nodes = [labelled({"nvidia.com/gpu.deploy.dcgm": value}) for value in values]
    assert [bool(read_node_requests(node).pause) for node in nodes] == [False, True]


def labelled(labels: dict[str, str]) -> ClusterNode:
    return ClusterNode(name="a", uid="1", labels=labels)


def test_annotations_that_cordon_gpus_are_requests_too() -> None:
    """Each as it is written; the component that cordons GPUs reads them."""
    annotations = {"nodeagent.io/gpu-cordon": "[]", "hami.io/device-cordon": "GPU-1"}
    node = ClusterNode(name="a", uid="1", annotations=annotations)
    assert read_node_requests(node) == NodeRequests(gpu_cordon="[]", hami_cordon="GPU-1")


def test_a_pause_of_our_own_pauses_others_alone() -> None:
    """Where this agent changes MIG layouts; one on top of it counts."""
    label = "nvidia.com/gpu.deploy.dcgm-exporter"
    assert read_node_requests(labelled({label: "paused-for-mig-change"}), cuts=True).pause == ""
    assert read_node_requests(labelled({label: "paused-for-mig-change"})).pause == f"{label}=paused-for-mig-change"
    both = "paused-for-mig-change_paused-for-driver-upgrade"
    assert read_node_requests(labelled({label: both}), cuts=True).pause == f"{label}={both}"


def test_labels_are_read_as_wishes() -> None:
    """Each under its own key; what is not asked for is empty."""
    labels = {
        "nvidia.com/gpu.deploy.dcgm": "paused-for-x",
        "nvidia.com/device-plugin.config": "shared",
        "nvidia.com/mig.config": "all-1g.10gb",
        "nvidia.com/mig.config.state": "pending",
    }
    assert read_node_requests(labelled({})) == NodeRequests()
    assert read_node_requests(labelled(labels)) == NodeRequests(
        pause="nvidia.com/gpu.deploy.dcgm=paused-for-x",
        configuration="shared",
        mig_config="all-1g.10gb",
        mig_state="pending",
    )


def test_taints_are_read_as_kubectl_writes_them() -> None:
    assert parse_taint("a/b:NoSchedule") == Taint(key="a/b", effect="NoSchedule")
    assert parse_taint("a/b=c:NoExecute") == Taint(key="a/b", effect="NoExecute", value="c")


@pytest.mark.parametrize(
    ("present", "ready", "was_ready", "again", "wanted"),
    [
        (True, True, False, False, False),
        (True, False, True, True, None),
        (False, True, True, True, None),
        (False, False, True, True, True),
        (False, False, True, False, None),
        (False, False, False, True, None),
    ],
)
def test_the_startup_taint(present: bool, ready: bool, was_ready: bool, again: bool, wanted: bool | None) -> None:
    """Off once ready; on again only where that is asked for, and only after it was ready in this life."""
    assert decide_taint(present=present, ready=ready, was_ready=was_ready, put_again=again) is wanted


GPU = gpu_uuid(1)


def verdict(before: Verdict, after: Verdict) -> VerdictChanged:
    return VerdictChanged(device=GPU, before=before, after=after, reason="XID 79")


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (verdict(Verdict.HEALTHY, Verdict.UNHEALTHY), "GPUUnhealthy"),
        (verdict(Verdict.UNHEALTHY, Verdict.HEALTHY), "GPURecovered"),
        (verdict(Verdict.HEALTHY, Verdict.SUSPECT), None),
        (verdict(Verdict.UNHEALTHY, Verdict.UNKNOWN), None),
        (GpuVanished(gpu=GPU, generation=2), "GPULost"),
        (GpuVanished(gpu=GPU, generation=2, is_gone=True), "GPULost"),
        (DriverChanged(before=DriverPhase.STUCK, after=DriverPhase.READY), "GPUDriverReady"),
        (DriverChanged(before=DriverPhase.READY, after=DriverPhase.STUCK), "GPUDriverNotReady"),
        (MigLayoutChanged(gpu=GPU, generation=2), "MIGLayoutChanged"),
        (
            AllocationDiffered(kind="forgotten", resource=ResourceName("r"), devices=(DeviceId("d"),), detail="x"),
            "GPUAllocationConflict",
        ),
        (AllocationDiffered(kind="orphan", resource=ResourceName("r"), devices=(), detail="x"), None),
        (ConfigurationRejected(problems=("a", "b")), "ConfigurationRejected"),
        (RuntimeConfigured(paths=("/etc/x",)), "ContainerRuntimeConfigured"),
        (RuntimeRestarted(command="systemctl restart x"), "ContainerRuntimeRestarted"),
        (RuntimeRestarted(command="systemctl restart x", failure="no"), "ContainerRuntimeRestartFailed"),
        (LabelsContested(keys=("nvidia.com/gpu.count",)), "NodeLabelConflict"),
        (NodeRequestRefused(label="nvidia.com/mig.config", value="all-x", reason="r"), "MIGConfigNotApplied"),
        (NodeRequestRefused(label="nodeagent.io/gpu-cordon", value="x", reason="r"), "GPUCordonRefused"),
        (NodeRequestRefused(label="hami.io/device-cordon", value="x", reason="r"), "GPUCordonRefused"),
        (GpuCordoned(gpu=GPU, source=CordonSource.COMMAND, detail="by ann: fan"), "GPUCordoned"),
        (GpuCordoned(gpu=GPU, source=CordonSource.BRAKE, detail="by the brake: r"), "GPUBraked"),
        (GpuUncordoned(gpu=GPU, source=CordonSource.COMMAND, reason="r"), "GPUUncordoned"),
        (
            NodeRequestRefused(label="nvidia.com/device-plugin.config", value="x", reason="r"),
            "NamedConfigurationRefused",
        ),
        (FaultInjected(fault="xid"), None),
    ],
)
def test_people_are_told_what_they_must_know(fact: Any, reason: str | None) -> None:
    """An event for each, in words that tools can match; nothing for what nobody acts on."""
    event = render_event(fact, {})
    assert (event.reason if event is not None else None) == reason
    assert reason is None or type(fact) in TOLD


def test_the_event_of_a_braked_gpu_says_what_opens_it() -> None:
    """As a warning: nobody asked for the closing."""
    event = render_event(GpuCordoned(gpu=GPU, source=CordonSource.BRAKE, detail="by the brake: r, until t"), {})
    assert event is not None
    assert event.warning
    assert event.note == (
        f"{GPU} is cordoned by the brake: r, until t; then a single pod may try it."
        f" `nodeagent gpu uncordon {GPU}` on the node opens it at once"
    )


def test_devices_are_named_by_the_number_that_commands_take() -> None:
    """Beside the UUID, by which tools find them; a MIG device by that of its GPU, and one that is gone by its last."""
    cut = make_gpu(1, mig=["1g.10gb"])
    gone = StoredGpu(uuid=gpu_uuid(2), name="H100", index=2, address=PciAddress("0000:01:00.0"))
    names = build_names(Inventory(generation=1, gpus=(make_gpu(0), cut), vanished=(gone,)))
    mig = cut.mig_devices[0].uuid
    facts = (
        VerdictChanged(device=gpu_uuid(0), before=Verdict.HEALTHY, after=Verdict.UNHEALTHY, reason="XID 79"),
        VerdictChanged(device=mig, before=Verdict.UNHEALTHY, after=Verdict.HEALTHY, reason=""),
        GpuVanished(gpu=gpu_uuid(2), generation=2, is_gone=True),
    )
    assert [event.note for fact in facts if (event := render_event(fact, names)) is not None] == [
        f"GPU 0 ({gpu_uuid(0)}) is unhealthy: XID 79",
        f"GPU 1:0 (1g.10gb) ({mig}) is fit for work again",
        f"GPU 2 ({gpu_uuid(2)}) is gone: no reason known",
    ]


def test_a_gpu_that_does_not_answer_is_not_said_to_be_gone() -> None:
    """Whoever goes to the machine looks for a card that is there."""
    lost, gone = (render_event(GpuVanished(gpu=GPU, generation=2, is_gone=is_gone), {}) for is_gone in (False, True))
    assert lost is not None
    assert gone is not None
    assert (lost.note, gone.note) == (
        f"{GPU} does not answer: no reason known",
        f"{GPU} is gone: no reason known",
    )


def tell(*times: float, about: str = "a", told: ReportedEvents | None = None) -> tuple[ReportedEvents, list[int]]:
    counts, state = [], told or ReportedEvents()
    for now in times:
        state, count = decide_reporting(state, NodeEvent(reason="R", note="n", about=about), now)
        counts.append(count)
    return state, counts


def test_repetitions_are_counted_not_told() -> None:
    """Within a minute one event; the next one says how often it happened meanwhile."""
    assert tell(0, 1, 59, 60, 61, 7200)[1] == [1, 0, 0, 3, 0, 2]


def test_many_different_events_are_bounded() -> None:
    """Whatever fails all at once, the cluster's store gets so many events and no more."""
    told, counts = ReportedEvents(), []
    for number in range(30):
        told, count = tell(0, about=str(number), told=told)
        counts += count
    assert sum(counts) == 20
    assert tell(601, about="25", told=told)[1] == [2]


@pytest.mark.parametrize(
    ("state", "label", "layout", "expected"),
    [
        (None, "failed", "", {}),
        (None, "pending", "", {}),
        (MigState(), "", "", {}),
        (MigState(), "success", "", {}),
        (MigState(), "failed", "", {}),
        (MigState(), "pending", "", {MIG_STATE_LABEL: None}),
        (MigState(), "rebooting", "", {MIG_STATE_LABEL: None}),
        (MigState(), "pending", "x", {}),
        (MigState(changes=(GpuChange(gpu=GpuUuid("G"), index=0, wanted="", doing=""),)), "pending", "", {}),
        (MigState(layout="x", standing="pending"), "", "x", {MIG_STATE_LABEL: "pending"}),
        (MigState(layout="x", standing="pending"), "success", "", {MIG_STATE_LABEL: "pending"}),
        (MigState(layout="x", standing="success"), "success", "x", {}),
    ],
)
def test_the_label_of_mig_layouts_follows_what_is_told(
    state: MigState | None, label: str, layout: str, expected: dict[str, str | None]
) -> None:
    """Without a wish it keeps how the last one ended, and says no longer that one is under way."""
    labels = {MIG_STATE_LABEL: label, MIG_CONFIG_LABEL: layout}
    assert decide_mig_label(state, ClusterNode(name="n", uid="u", labels=labels)) == expected


def test_a_node_that_does_without_gpus_is_no_node_whose_gpus_failed() -> None:
    """A taint that waits for GPUs goes."""
    condition = decide_condition(NodeSight(driver=DriverState(phase=DriverPhase.NO_HARDWARE, is_needed=False)))
    assert (condition.status, condition.reason) == ("True", "NoGPUsNeeded")


def test_the_annotation_of_proofs_names_the_gpus_that_passed() -> None:
    """The same proofs have the same text, whatever their order, so that nothing is written anew."""
    passed = {gpu_uuid(1): make_passed(1e9), gpu_uuid(0): make_passed(1e9)}
    text = render_proofs(GpuProofs(gpus=passed | {gpu_uuid(2): make_failed()}, proving=gpu_uuid(3)))
    told = {"level": "quick", "proven": "2001-09-09T01:46:40Z"}
    assert json.loads(text) == {gpu_uuid(0): told, gpu_uuid(1): told}
    assert text == render_proofs(GpuProofs(gpus=dict(reversed(passed.items()))))
    assert render_proofs(None) == render_proofs(GpuProofs(gpus={gpu_uuid(2): make_failed()})) == ""

"""What happened, in words and in order."""

import pytest

from nodeagent.components.web.page.event_words import QUIET, WORDS, Teller, describe_event
from nodeagent.core.values import ActiveCondition, ActiveConditions, Envelope, name_type
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import ClusterLink
from nodeagent.model.cordons import CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import (
    FACTS,
    STATES,
    AllocationDiffered,
    AllocationRefused,
    CdiSpecsWritten,
    ConfigurationRejected,
    ConfigurationReloaded,
    DevicesAdvertised,
    DevicesFreed,
    DriverChanged,
    FractionBound,
    FractionProcessEnded,
    FractionRefused,
    GpuAppeared,
    GpuCleared,
    GpuCordoned,
    GpuEventReported,
    GpuUncordoned,
    GpuVanished,
    LabelsApplied,
    LabelsContested,
    MigLayoutChanged,
    NodeRequestRefused,
    RefusedPodDeleted,
    RuntimeConfigured,
    RuntimeRestarted,
    XidReported,
)
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Inventory, StoredGpu
from nodeagent.model.health import NOT_LOOKED_AT, DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import FractionTable
from nodeagent.model.telemetry import EventWatch, NodeSample
from nodeagent.rules.ids import build_names
from tests.support.nodes import make_envelope
from tests.support.samples import make_gpu, make_mig, make_uuid

RESOURCE = ResourceName("nvidia.com/gpu")
NAMES = build_names(Inventory(generation=1, gpus=(make_gpu(0, mig=make_mig(0, 1)), make_gpu(1, lost="gone"))))
DEVICES = (DeviceId(make_uuid(0)), DeviceId(f"{make_uuid(0)}::1"), DeviceId("GPU-other"))


def make_coded(code: str) -> ActiveCondition:
    return ActiveCondition(code, "", "error", "", "", "", 0.0, None)


class SomethingNew:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (XidReported(gpu=make_uuid(0), xid=48), "XID 48 on GPU 0"),
        (XidReported(gpu=make_uuid(7), xid=48), f"XID 48 on {make_uuid(7)}"),
        (GpuEventReported(gpu=make_uuid(0), kind="recovery_action", data=2), "recovery action 2 reported of GPU 0"),
        (GpuAppeared(gpu=make_uuid(0), generation=1), "GPU 0 appeared"),
        (GpuVanished(gpu=make_uuid(0), generation=1, reason="why"), "GPU 0 is lost: why"),
        (GpuVanished(gpu=make_uuid(0), generation=1, reason="why", is_gone=True), "GPU 0 is gone: why"),
        (MigLayoutChanged(gpu=make_uuid(0), generation=1), "MIG layout of GPU 0 changed"),
        (DriverChanged(before=DriverPhase.STUCK, after=DriverPhase.READY), "driver stuck → ready"),
        (DevicesAdvertised(resource=RESOURCE, healthy=7, total=8), "kubelet told: 7 of 8 nvidia.com/gpu healthy"),
        (DevicesFreed(resource=RESOURCE, devices=DEVICES, number=3), "allocation 3 ended: GPU 0, GPU-other free again"),
        (AllocationRefused(resource=RESOURCE, devices=DEVICES[:1], reason="no"), "refused GPU 0 as nvidia.com/gpu: no"),
        (
            AllocationDiffered(kind="orphan", resource=RESOURCE, devices=DEVICES[:1], detail="d"),
            "allocation orphan, GPU 0: d",
        ),
        (LabelsApplied(sink="node", changed=tuple("abcdefgh")), "labels changed (node): a, b, c, d, e, f …"),
        (
            LabelsApplied(sink="node", changed=("nvidia.com/gfd.timestamp", "nvidia.com/gpu.healthy.count")),
            "labels changed (node): gpu.healthy.count, gfd.timestamp",
        ),
        (LabelsContested(keys=("a", "b")), "labels written otherwise by somebody else: a, b"),
        (ConfigurationReloaded(changed=()), "configuration reloaded, changed: nothing"),
        (ConfigurationRejected(problems=("a", "b")), "configuration rejected: a; b"),
        (
            GpuCordoned(gpu=make_uuid(0), source=CordonSource.HAMI, detail="by the annotation x"),
            "GPU 0 cordoned by the annotation x",
        ),
        (
            GpuUncordoned(gpu=make_uuid(0), source=CordonSource.HAMI, reason="r"),
            "GPU 0 no longer cordoned by hami: r",
        ),
        (NodeRequestRefused(label="a/b", value="v", reason="r"), "a/b=v not followed: r"),
        (
            RefusedPodDeleted(pod=PodIdentity(namespace="ml", name="a"), controller="StatefulSet", reason="r"),
            "ml/a deleted, refused by this node: r",
        ),
        (DriverState(phase=DriverPhase.NOT_LOADED, detail="d"), "driver not loaded: d"),
        (Inventory(generation=2, gpus=(make_gpu(0), make_gpu(1, lost="x"))), "inventory 2: 2 GPUs, 1 lost"),
        (
            HealthReport(
                generation=1,
                devices=(
                    DeviceHealth(device=make_uuid(0), gpu=make_uuid(0), verdict=Verdict.UNHEALTHY, since_seconds=0),
                ),
            ),
            "health judged: 0 of 1 devices fit for work",
        ),
        (
            HealthReport(
                generation=1,
                devices=(
                    DeviceHealth(
                        device=make_uuid(0),
                        gpu=make_uuid(0),
                        verdict=Verdict.UNKNOWN,
                        since_seconds=0,
                        reason=NOT_LOOKED_AT,
                    ),
                ),
            ),
            "",
        ),
        (
            HealthReport(
                generation=1,
                devices=(
                    DeviceHealth(device=make_uuid(0), gpu=make_uuid(0), verdict=Verdict.UNKNOWN, since_seconds=0),
                ),
            ),
            "health judged: 0 of 1 devices fit for work",
        ),
        (EventWatch(watched=True), "GPU events are heard"),
        (EventWatch(watched=False, reason="r"), "GPU events are not heard: r"),
        (ClusterLink(reachable=True), "the API server answers"),
        (ClusterLink(reachable=False, detail="d"), "the API server is away: d"),
        (GpuCleared(gpu=make_uuid(0), who="me", reason="new card"), "GPU 0 taken back into service by me: new card"),
        (CdiSpecsWritten(written=("a",), removed=("b",), generation=1), "CDI specifications written: a, b"),
        (RuntimeConfigured(paths=("/c",)), "container runtime configured: /c"),
        (RuntimeRestarted(command="c"), "container runtime restarted"),
        (RuntimeRestarted(command="c", failure="f"), "container runtime restarted, rolled back: f"),
        (
            FractionBound(
                number=1,
                pod=PodIdentity(namespace="ns", name="p"),
                container="c",
                gpus=(GpuUuid(make_uuid(0)),),
                reason="r",
            ),
            "ns/p (c) got parts of GPU 0: r",
        ),
        (
            FractionProcessEnded(
                number=1,
                pod=PodIdentity(namespace="ns", name="p"),
                container="c",
                gpu=GpuUuid(make_uuid(0)),
                pid=7,
                memory_bytes=1 << 30,
                reason="r",
            ),
            "process 7 of ns/p (c) ended, which had 1 GiB of GPU 0: r",
        ),
        (FractionRefused(resource=RESOURCE, count=30, reason="r"), "refused 30 of nvidia.com/gpu: r"),
        (FractionOffers(resources=(RESOURCE,)), ""),
        (FractionTable(), ""),
        (SomethingNew(), "SomethingNew"),
        (NodeSample(time_seconds=1.0), ""),
    ],
)
def test_each_event_is_a_sentence(value: object, words: str) -> None:
    """Devices go by their short names, and an event nobody has words for goes by its own."""
    assert describe_event(value, NAMES) == words


def test_every_fact_has_words() -> None:
    """A fact that is added to the bus is told on the page in a sentence."""
    assert set(FACTS) <= set(WORDS)


def test_every_state_has_words_or_a_place_of_its_own() -> None:
    """None is told by its bare name."""
    assert [state for state in STATES if state not in WORDS and name_type(state) not in QUIET] == []


def test_mig_devices_are_named_with_their_profile() -> None:
    """By the number that commands take, which tells equal ones apart; nothing is named before the first inventory."""
    assert "GPU 0:0 (1g.10gb)" in NAMES.values()
    assert build_names(None) == {}


def test_a_gpu_that_is_gone_keeps_its_number_and_says_so() -> None:
    """The number may be another's now: the driver counts anew."""
    gone = StoredGpu(uuid=make_uuid(9), name="H100", index=0, address=make_gpu(9).pci.address)
    names = build_names(Inventory(generation=1, gpus=(make_gpu(0),), vanished=(gone,)))
    assert names == {make_uuid(0): "GPU 0", make_uuid(9): "GPU 0 (gone)"}
    assert describe_event(GpuVanished(gpu=gone.uuid, generation=2, is_gone=True), names) == "GPU 0 is gone"


def test_of_the_conditions_the_change_is_told() -> None:
    """What is raised and what is over; the first look tells all, and one that changes no code tells nothing."""
    teller = Teller(NAMES)
    looks: list[tuple[str, ...]] = [(), ("gpu-lost",), ("gpu-lost", "gpu-lost"), ("gpu-unhealthy",), ()]
    told = [
        teller.tell(make_envelope(1, ActiveConditions(tuple(make_coded(code) for code in codes)))) for codes in looks
    ]
    assert told == [
        "",
        "condition gpu-lost",
        "",
        "condition gpu-unhealthy, no longer gpu-lost",
        "no longer gpu-unhealthy",
    ]
    first = Teller(NAMES).tell(make_envelope(1, ActiveConditions((make_coded("gpu-lost"),))))
    assert first == "conditions: gpu-lost"


def test_what_repeated_itself_is_told_once_with_a_count() -> None:
    """The ring keeps the first and the newest; the newest says how many were between."""
    envelope: Envelope[XidReported] = Envelope(XidReported(gpu=make_uuid(0), xid=31), "", 9, 1.0, "test", repeats=3)
    assert Teller({make_uuid(0): "GPU 0"}).tell(envelope) == "XID 31 on GPU 0 (and 3 times before)"

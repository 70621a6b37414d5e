"""Who has the GPUs of a drain, and what is done about each holder."""

import pytest
from msgspec.structs import replace

from nodeagent.config.sections.repairers import DrainSettings
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cordons import Cordon, CordonSource, CordonTable
from nodeagent.model.drains import BoundPod, DeviceUser, DrainStep, GpuHolder, HolderStep
from nodeagent.model.ids import DeviceId
from nodeagent.rules.repair.domains import describe_gpu
from nodeagent.rules.repair.drain import (
    UNNAMED,
    Closing,
    decide_step,
    describe_steps,
    find_closed_since,
    list_dead,
    list_holders,
)
from nodeagent.rules.signals import Hold
from tests.support.allocations import GPU
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, mig_uuid
from tests.support.repairs import make_evidence

NODE = make_inventory([replace(make_gpu(0, mig=("1g.10gb",)), minor=4), replace(make_gpu(1), minor=5)])
DOMAIN = (describe_gpu(NODE.gpus[0]),)
POD = PodIdentity(namespace="team", name="train", uid="u")
OTHER = PodIdentity(namespace="team", name="other", uid="o")
HOLDER = GpuHolder(name="team/train", gpus=frozenset({gpu_uuid(0)}), pod=POD)
SEEN = BoundPod(pod=POD, version="7", controller="ReplicaSet")
SETTINGS = DrainSettings()
DEAD = frozenset({gpu_uuid(0)})


def make_user(*minors: int, pod_uid: str = "", command: str = "Xorg :0") -> DeviceUser:
    return DeviceUser(pid=4711, command=command, minors=frozenset(minors), pod_uid=pod_uid)


def list_names(
    *users: DeviceUser, holds: tuple[Hold, ...] = (), allocations: tuple[Allocation, ...] = ()
) -> dict[str, PodIdentity | None]:
    found = list_holders(DOMAIN, NODE, holds, AllocationTable(allocations=allocations), users)
    return {one.name: one.pod for one in found}


def test_holders_are_pods_of_the_journal_and_of_open_devices_and_no_others() -> None:
    """A MIG device counts for its GPU; who is on another GPU alone is left out."""
    holds = (Hold(pod=POD, device=mig_uuid(0, 0)), Hold(pod=OTHER, device=gpu_uuid(1)))
    assert list_names(make_user(5), holds=holds) == {"team/train": POD}
    assert list_names(make_user(4, 5, pod_uid="o"), holds=holds) == {"team/other": OTHER, "team/train": POD}
    assert list_names(make_user(4, pod_uid="u"), holds=holds) == {"team/train": POD}


def test_a_process_without_a_pod_of_the_journal_is_named() -> None:
    assert list_names(make_user(4)) == {"process 4711 (Xorg :0)": None}
    assert list_names(make_user(4, pod_uid="x")) == {"process 4711 (Xorg :0) of the pod x": None}


@pytest.mark.parametrize("command", ["/usr/bin/nvidia-persistenced --verbose", "nv-fabricmanager"])
def test_programs_of_the_driver_that_a_reset_works_with_hold_nothing(command: str) -> None:
    """But a pod's program of the same name does."""
    assert list_names(make_user(4, command=command)) == {}
    assert list(list_names(make_user(4, command=command, pod_uid="x")).values()) == [None]


def test_an_allocation_of_a_pod_without_a_name_holds_its_gpu() -> None:
    """Such a pod is about to start, and nobody could be asked."""
    nameless, elsewhere = (
        Allocation(number=index, resource=GPU, devices=(DeviceId(gpu_uuid(index)),), since_seconds=0.0)
        for index in (0, 1)
    )
    assert list_names(allocations=(nameless, elsewhere)) == {UNNAMED: None}
    named = replace(nameless, pod=POD)
    assert list_names(holds=(Hold(pod=POD, device=gpu_uuid(0)),), allocations=(named,)) == {"team/train": POD}
    assert list_holders(DOMAIN, NODE, (), None, ()) == ()


def test_a_gpu_that_is_gone_is_drained_by_the_journal() -> None:
    gone = make_inventory([make_gpu(1)])
    (holder,) = list_holders(DOMAIN, gone, [Hold(pod=POD, device=gpu_uuid(0))], None, (make_user(4),))
    assert holder == HOLDER


@pytest.mark.parametrize(
    ("since", "step"),
    [
        (None, DrainStep.WAIT),
        (59.0, DrainStep.WAIT),
        (60.0, DrainStep.EVICT),
        (1799.0, DrainStep.EVICT),
        (1800.0, DrainStep.LATE),
    ],
)
def test_a_pod_is_told_then_asked_and_after_the_deadline_asked_no_more(since: float | None, step: DrainStep) -> None:
    assert decide_step(HOLDER, SEEN, Closing(since_seconds=since), DEAD, SETTINGS).step is step


def test_a_pod_is_deleted_only_where_the_settings_say_so_and_its_gpu_is_dead() -> None:
    late, deletes = Closing(since_seconds=1800.0), replace(SETTINGS, after_deadline="delete_where_dead")
    assert decide_step(HOLDER, SEEN, late, DEAD, deletes).step is DrainStep.DELETE
    assert decide_step(HOLDER, SEEN, late, frozenset({gpu_uuid(1)}), deletes).step is DrainStep.LATE
    assert decide_step(HOLDER, SEEN, late, DEAD, SETTINGS).step is DrainStep.LATE


@pytest.mark.parametrize(
    ("holder", "seen", "why"),
    [
        (replace(HOLDER, pod=None, obstacle="a person has to end it"), None, "a person has to end it"),
        (HOLDER, replace(SEEN, is_static=True), "the node's kubelet makes it from a file: move the file away"),
        (HOLDER, replace(SEEN, controller="DaemonSet"), "its DaemonSet would make it again"),
        (replace(HOLDER, pod=replace(POD, namespace="kube-system")), SEEN, "the pods of kube-system are left alone"),
    ],
)
def test_who_cannot_be_asked_is_an_obstacle_with_a_reason(holder: GpuHolder, seen: BoundPod | None, why: str) -> None:
    told = Closing(since_seconds=9999.0, spared=frozenset({"kube-system"}))
    decided = decide_step(holder, seen, told, DEAD, replace(SETTINGS, after_deadline="delete_where_dead"))
    assert decided.step is DrainStep.LEAVE
    assert decided.why.startswith(why)


def test_a_pod_that_leaves_or_was_not_read_is_waited_for() -> None:
    told = Closing(since_seconds=100.0)
    assert decide_step(HOLDER, replace(SEEN, is_going=True), told, DEAD, SETTINGS).step is DrainStep.LEAVING
    assert decide_step(HOLDER, None, told, DEAD, SETTINGS).step is DrainStep.LOOK


def test_a_gpu_is_dead_by_its_own_fault_alone() -> None:
    evidence = [make_evidence(0, "xid-79"), make_evidence(1, "remap-pending")]
    assert list_dead(evidence) == frozenset({gpu_uuid(0)})


def test_the_drain_begins_when_the_last_gpu_is_closed() -> None:
    """By a repair: a cordon of another source is not of the drain. A clock that was put back begins anew."""
    domain = tuple(map(describe_gpu, NODE.gpus))

    def find(*cordons: Cordon, now: float = 100.0) -> float | None:
        by_source = {source: tuple(one for one in cordons if one.source is source) for source in CordonSource}
        return find_closed_since(domain, CordonTable(by_source=by_source), now)

    first, second = (
        Cordon(gpu=gpu_uuid(index), source=CordonSource.REPAIR, named=str(index), since_seconds=at)
        for index, at in ((0, 10.0), (1, 40.0))
    )
    assert find(first, second) == 60.0
    assert find(first, second, now=5.0) == 0.0
    assert find(first) is None
    assert find(first, replace(second, source=CordonSource.COMMAND)) is None
    assert find(first, replace(second, since_seconds=None)) is None
    assert find_closed_since(domain, None, 1.0) is None
    assert find_closed_since((), None, 1.0) is None


def test_one_line_names_the_holders_and_what_keeps_each() -> None:
    asked = HolderStep(holder=HOLDER, step=DrainStep.EVICT, why="the budget says no")
    other = GpuHolder(name="process 1 (x)", gpus=DEAD)
    process = HolderStep(holder=other, step=DrainStep.LEAVE, why="a person has to end it")
    assert describe_steps([asked, process]) == "team/train: the budget says no; process 1 (x): a person has to end it"
    assert describe_steps([process] * 6).endswith("; and 2 more")

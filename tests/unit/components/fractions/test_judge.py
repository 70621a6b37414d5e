"""What has become of promises and bindings, by what each source says or cannot say."""

import pytest

from nodeagent.components.fractions.decide import describe_binding
from nodeagent.components.fractions.judge import FractionPoll, judge_all
from nodeagent.components.fractions.recovery import Action
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.ids import ResourceName
from nodeagent.model.journal import FractionTable
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from tests.support.fractions import ids, make_bound, make_pod, make_promise, make_table, part
from tests.support.gpus import gpu_uuid
from tests.support.journals import CORE, MEMORY

POD = make_pod()
NAMED, NUMBERED = PodIdentity(namespace="ns", name="a"), PodIdentity(namespace="", name="", uid="uid-a")
OTHER = PodIdentity(namespace="ns", name="b")


def hold(pod: PodIdentity, devices: str = "abc", resource: ResourceName = CORE) -> ContainerDevices:
    return ContainerDevices(pod=pod, container="main", resource=resource, devices=ids(devices))


LISTED = PodListing(pods=(NAMED, OTHER), containers=(hold(NAMED),))
EMPTY = PodListing(pods=(OTHER,))
NOTED = KubeletCheckpoint(containers=(hold(NUMBERED),))
NOBODY = KubeletCheckpoint()
PROMISED = make_table([make_promise(1, "abc")])


def bound(pod: PodIdentity = POD) -> FractionTable:
    return make_table([make_promise(1, "abc"), make_promise(2, "m", MEMORY)],
                      [make_bound(3, (1, 2), part(0, 3, 8), pod=pod)])  # fmt: skip


def look(
    listing: PodListing | None = EMPTY,
    checkpoint: KubeletCheckpoint | None = NOBODY,
    *,
    containers: tuple[PodContainer, ...] | None = (),
    user: str | None = "",
) -> FractionPoll:
    """Long after a look that found all of it over; `user` is the pod whose process uses the GPU."""
    users = None if user is None else {gpu_uuid(0): frozenset({user} - {""})}
    return FractionPoll(listing, checkpoint, containers, users, 100.0)


def judge(table: FractionTable, seen: FractionPoll) -> list[Action]:
    judgement = judge_all(table, seen, {1: 0.0, 3: 0.0})
    return [finding.action for finding in judgement.findings.values()]


@pytest.mark.parametrize(
    ("listing", "checkpoint", "action"),
    [
        (LISTED, NOBODY, Action.KEEP),
        (EMPTY, NOTED, Action.KEEP),
        (LISTED, None, Action.KEEP),
        (EMPTY, NOBODY, Action.RELEASE),
        (None, NOTED, Action.KEEP),
        (EMPTY, None, Action.KEEP),
    ],
)
def test_a_promise_is_kept_while_anybody_has_its_ids(
    listing: PodListing | None, checkpoint: KubeletCheckpoint | None, action: Action
) -> None:
    """Init containers stand in the kubelet's notes alone: without those nobody can say that nobody has them."""
    assert judge(PROMISED, look(listing, checkpoint)) == [action]


@pytest.mark.parametrize(
    ("pod", "seen", "action"),
    [
        (POD, look(LISTED), Action.KEEP),
        (POD, look(PodListing(pods=(NAMED,)), NOTED), Action.KEEP),
        (POD, look(PodListing(pods=(NAMED,))), Action.RELEASE),
        (POD, look(), Action.RELEASE),
        (POD, look(EMPTY, NOTED), Action.RELEASE),
        (POD, look(None), Action.KEEP),
        (POD, look(user="uid-a"), Action.ORPHAN),
        (POD, look(user="uid-b"), Action.RELEASE),
        (POD, look(user=None), Action.KEEP),
        (POD, look(containers=None), Action.KEEP),
        (NAMED, look(LISTED, NOTED), Action.KEEP),
        (NUMBERED, look(LISTED, NOTED), Action.KEEP),
        (NUMBERED, look(EMPTY, NOTED), Action.RELEASE),
        (NUMBERED, look(EMPTY, NOTED, containers=None), Action.KEEP),
        (NUMBERED, look(LISTED), Action.RELEASE),
        (NUMBERED, look(LISTED, None), Action.KEEP),
    ],
)
def test_a_binding_ends_when_all_agree(pod: PodIdentity, seen: FractionPoll, action: Action) -> None:
    """Kubelet, processes and containers; who cannot be asked is not taken for one that says no."""
    assert judge(bound(pod), seen) == [action]


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (ContainerState.RUNNING, Action.ORPHAN),
        (ContainerState.UNKNOWN, Action.ORPHAN),
        (ContainerState.EXITED, Action.RELEASE),
    ],
)
def test_a_container_that_lives_keeps_its_part(state: ContainerState, action: Action) -> None:
    """Whatever the kubelet says; another container of the pod does not."""
    container = PodContainer(id="1", pod_uid="uid-a", name="main", state=state)
    assert judge(bound(), look(containers=(container,))) == [action]
    other = PodContainer(id="1", pod_uid="uid-a", name="side", state=state)
    assert judge(bound(), look(containers=(other,))) == [Action.RELEASE]


@pytest.mark.parametrize(("pod", "action"), [("a", Action.ORPHAN), ("b", Action.RELEASE)])
def test_a_container_is_found_by_its_pods_name_where_the_uid_never_came(pod: str, action: Action) -> None:
    """The kubelet may forget all that it noted before anybody could read a uid there; the runtime has both."""
    container = PodContainer(id="1", pod_uid="uid", name="main", state=ContainerState.RUNNING, namespace="ns", pod=pod)
    assert judge(bound(NAMED), look(PodListing(pods=(NAMED,)), containers=(container,))) == [action]


def test_one_look_decides_nothing() -> None:
    """What seems over is remembered with the time of the first look, and forgotten when it is seen again."""
    first = judge_all(bound(), look(), {})
    assert (first.over_since, first.list_ended(), first.list_orphans()) == ({3: 100.0}, {}, ())
    assert judge_all(bound(), look(LISTED), {3: 0.0}).over_since == {}
    second = judge_all(bound(), look(), {3: 0.0})
    assert second.list_ended().keys() == {3}
    assert judge_all(bound(), look(user="uid-a"), {}).list_orphans() == (3,)


def test_whose_a_binding_is_can_be_said() -> None:
    """By pod, container and number."""
    assert describe_binding(bound().bindings[3]).startswith("ns/a (main)")

"""Which pods count as refused by the node, and which of them are deleted when."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.cluster.refused_pods import (
    AGAIN_SECONDS,
    PERIOD_SECONDS,
    DeletionHistory,
    Refusal,
    describe_left,
    find_refusals,
    forget_old,
    plan_deletions,
)
from nodeagent.config.sections.cluster import RefusedPhase
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import UnstartedContainer, UnstartedPod

GPU, CORE, CARD = "nvidia.com/gpu", "tencent.com/vcuda-core", "example.com/card"
SERVED = (GPU, CORE)
BOTH: tuple[RefusedPhase, ...] = ("failed", "pending")
UNAVAILABLE = "Allocate failed due to requested number of devices unavailable for {}. Requested: 1, Available: 0"
CALL = "Allocate failed due to rpc error: code = Unknown desc = it is broken, which is unexpected"
AT_START = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unavailable desc = no room"


def make_failed(name: str = "a", *, asks: tuple[str, ...] = (GPU, "memory"), **changes: Any) -> UnstartedPod:
    pod = UnstartedPod(
        pod=PodIdentity(namespace="ml", name=name, uid=f"uid-{name}"),
        version="7",
        phase="Failed",
        reason="UnexpectedAdmissionError",
        message=UNAVAILABLE.format(GPU),
        controller="StatefulSet",
        containers=(UnstartedContainer(name="main", resources=frozenset(asks)),),
    )
    return replace(pod, **changes)


def make_pending(name: str = "p", *, asks: tuple[str, ...] = (CORE,), waiting: str = AT_START) -> UnstartedPod:
    containers = (
        UnstartedContainer(name="beside"),
        UnstartedContainer(name="main", resources=frozenset(asks), waiting=waiting),
    )
    return make_failed(name, phase="Pending", reason="", message="", containers=containers)


def is_refused(pod: UnstartedPod, wanted: tuple[RefusedPhase, ...] = BOTH) -> bool:
    return bool(find_refusals([pod], SERVED, wanted))


def refuse(*pods: UnstartedPod) -> dict[str, Refusal]:
    found = find_refusals(pods, SERVED, BOTH)
    assert len(found) == len(pods)
    return found


def names(refusals: tuple[Refusal, ...]) -> list[str]:
    return [each.pod.pod.name for each in refusals]


@pytest.mark.parametrize(("pod", "word"), [(make_failed(), "failed"), (make_pending(), "pending")])
def test_each_kind_of_refusal_counts_by_its_own_word(pod: UnstartedPod, word: RefusedPhase) -> None:
    """The kubelet's words are the reason."""
    (refusal,) = find_refusals([pod], SERVED, (word,)).values()
    assert (refusal.pod, refusal.is_final) == (pod, word == "failed")
    assert refusal.reason == (UNAVAILABLE.format(GPU) if word == "failed" else AT_START)
    (other,) = {*BOTH} - {word}
    assert not is_refused(pod, (other,))
    assert not is_refused(pod, ())


@pytest.mark.parametrize("make", [make_failed, make_pending])
@pytest.mark.parametrize(
    "changes",
    [
        {"controller": ""},
        {"controller": "DaemonSet"},
        {"controller": "Node"},
        {"controller": "Pod"},
        {"is_static": True},
        {"is_going": True},
        {"phase": "Unknown"},
        {"containers": (UnstartedContainer(name="main", resources=frozenset({GPU}), waiting=AT_START, has_run=True),)},
    ],
    ids=str,
)
def test_a_pod_stays_that_nobody_replaces_or_that_ran(make: Any, changes: dict[str, Any]) -> None:
    assert is_refused(make())
    assert not is_refused(replace(make(), **changes))


@pytest.mark.parametrize(
    ("message", "asks", "is_ours"),
    [
        (UNAVAILABLE.format(GPU), (GPU, CARD), True),
        (UNAVAILABLE.format(GPU), (CARD,), False),
        (UNAVAILABLE.format(CARD), (GPU, CARD), False),
        (UNAVAILABLE.format(f"{GPU}.shared"), (GPU, f"{GPU}.shared"), False),
        (f"cannot allocate unregistered device {GPU}, which is unexpected", (GPU,), True),
        (CALL, (GPU, "cpu"), True),
        (CALL, (GPU, CORE), True),
        (CALL, (GPU, CARD), False),
        (CALL.replace("it", GPU), (GPU, CARD), True),
        (CALL, (CARD,), False),
        (CALL, ("cpu",), False),
        ("Allocate failed due to not enough cpus available to satisfy request", (GPU,), False),
    ],
)
def test_a_refusal_is_the_agents_where_nobody_else_can_be_meant(
    message: str, asks: tuple[str, ...], is_ours: bool
) -> None:
    """By the resource's name; a failed call of a plugin names none, and is ours where no other plugin was asked."""
    assert is_refused(make_failed(message=message, asks=asks)) is is_ours


def test_only_the_refused_container_counts_at_its_start() -> None:
    """Another plugin's resource of another container does not matter, nor does another trouble of the container."""
    pod = make_pending()
    other = UnstartedContainer(name="other", resources=frozenset({CARD}))
    assert is_refused(replace(pod, containers=(other, *pod.containers)))
    assert not is_refused(make_pending(asks=(CORE, CARD)))
    assert not is_refused(make_pending(waiting='secret "x" not found'))
    assert not is_refused(make_failed(reason="OutOfnvidia.com/gpu"))


def test_a_pending_pod_has_its_time_and_a_failed_one_goes_at_once() -> None:
    """The time runs from the first look that saw the refusal; a refusal that is over begins anew."""
    refusals = refuse(make_failed(), make_pending())
    history = forget_old(DeletionHistory(), refusals, 100)
    plan = plan_deletions(refusals, history, 300, 10, 100)
    assert (names(plan.due), plan.left, plan.wait_seconds) == (["a"], (), 300)
    history = forget_old(history, refusals, 399)
    assert plan_deletions(refusals, history, 300, 10, 399).wait_seconds == 1
    plan = plan_deletions(refusals, history, 300, 10, 400)
    assert (names(plan.due), plan.wait_seconds) == (["a", "p"], None)
    history = forget_old(forget_old(history, {}, 400), refusals, 401)
    assert names(plan_deletions(refusals, history, 300, 10, 402).due) == ["a"]


def test_an_answer_counts_for_the_version_and_a_trouble_for_a_while() -> None:
    """A pod that changed is looked at again; a failed request is repeated later, and told meanwhile."""
    refusals = refuse(make_failed())
    history = forget_old(DeletionHistory(), refusals, 0).note_answer(refusals["uid-a"], is_deleted=False, now_seconds=0)
    assert plan_deletions(refusals, history, 300, 10, 1) == plan_deletions({}, history, 300, 10, 1)
    newer = refuse(make_failed(version="8"))
    assert names(plan_deletions(newer, history, 300, 10, 1).due) == ["a"]
    history = history.note_trouble(newer["uid-a"], "no answer", 1)
    assert describe_left((), history, 10) == "no answer"
    plan = plan_deletions(newer, history, 300, 10, 2)
    assert (plan.due, plan.wait_seconds) == ((), AGAIN_SECONDS - 1)
    assert names(plan_deletions(newer, history, 300, 10, 1 + AGAIN_SECONDS).due) == ["a"]
    assert forget_old(history, {}, 2) == DeletionHistory()


def test_deletions_are_limited_and_the_others_are_named() -> None:
    """The longest refused go first; there is room again once the first deletion is a period ago."""
    refusals = refuse(*(make_failed(name) for name in "abcdefgh"))
    history = forget_old(DeletionHistory(), refusals, 50)
    plan = plan_deletions(refusals, history, 300, 2, 50)
    assert (names(plan.due), names(plan.left), plan.wait_seconds) == (["a", "b"], list("cdefgh"), None)
    for each, at in zip(plan.due, (50, 60), strict=True):
        history = history.note_answer(each, is_deleted=True, now_seconds=at)
    plan = plan_deletions(refusals, history, 300, 2, 100)
    assert (plan.due, names(plan.left), plan.wait_seconds) == ((), list("cdefgh"), PERIOD_SECONDS - 50)
    told = describe_left(plan.left, history, 2)
    assert told.startswith("2 pods deleted in 10 minutes, more wait (kubernetes.refused_pods_max): ml/c (Allocate")
    assert told.endswith("and 1 more")
    assert "more" not in describe_left(plan.left[:1], history, 2).removeprefix("2 pods deleted in 10 minutes, more")
    history = forget_old(history, refusals, 50 + PERIOD_SECONDS)
    assert list(history.deleted) == [60]
    assert names(plan_deletions(refusals, history, 300, 2, 50 + PERIOD_SECONDS).due) == ["c"]


def test_a_lowered_limit_leaves_no_room_below_nothing() -> None:
    refusals = refuse(make_failed())
    history = replace(forget_old(DeletionHistory(), refusals, 0), deleted=(0.0, 0.0, 0.0))
    plan = plan_deletions(refusals, history, 300, 1, 1)
    assert (plan.due, names(plan.left)) == ((), ["a"])


def test_the_event_is_about_the_pod() -> None:
    (refusal,) = refuse(make_failed()).values()
    event = refusal.render_event()
    assert (event.reason, event.pod, event.warning) == ("RefusedPodDeleted", refusal.pod.pod, True)
    assert event.note.startswith("nodeagent deletes this pod, so that its StatefulSet makes another: Allocate failed")

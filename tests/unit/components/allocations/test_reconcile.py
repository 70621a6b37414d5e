"""What the kubelet's list changes in the ledger, race by race."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.allocations.ledger import Ledger, apply_record
from nodeagent.components.allocations.reconcile import (
    Absence,
    PodListPoll,
    Reconciliation,
    adopt_checkpoint,
    find_uids,
    lacks_uid,
    reconcile,
)
from nodeagent.components.allocations.refuse import KubeletRun
from nodeagent.components.allocations.roles.grants import Entry, Forgotten, Freed, Identified
from nodeagent.model.allocation import AllocationSource, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from tests.support.allocations import (
    GPU,
    OLD_RUN,
    RUN,
    device_ids,
    holding,
    listing,
    make_entry,
    make_ledger,
    pod_named,
)

UNNAMED = make_entry(1, "a")
UID_ALONE = replace(
    UNNAMED, allocation=replace(UNNAMED.allocation, pod=PodIdentity(namespace="", name="", uid="known by uid alone"))
)


def look(word: PodListing, now: float = 1000.0, **others: Any) -> PodListPoll:
    settings = {
        "listing": word,
        "run": RUN,
        "numbers_below": 100,
        "now_seconds": now,
        "monotonic_seconds": now,
        "free_after_seconds": 30.0,
    }
    return PodListPoll(**{**settings, **others})


def kinds(result: Reconciliation) -> list[str]:
    return [difference.kind for difference in result.differences]


def look_twice(entry: Entry, word: PodListing, *, apart: float = 30.0, **others: Any) -> Reconciliation:
    """Two lists in a row, the second so many seconds after the first."""
    ledger = make_ledger(entry)
    first = reconcile(ledger, look(word, **others), {})
    for record in first.records:
        ledger = apply_record(ledger, record, 10)
    return reconcile(ledger, look(word, 1000.0 + apart, **others), first.absences)


def test_a_listed_container_is_identified() -> None:
    """The kubelet's list gives the allocation its name and the kubelet's run as witness."""
    ledger = make_ledger(make_entry(1, "ab", seen_by=OLD_RUN.identity))
    result = reconcile(ledger, look(listing(holding("train", "ab"))), {})
    assert result == Reconciliation(
        records=(Identified(number=1, pod=pod_named("train"), container="main", seen_by="now"),)
    )


def test_what_is_known_is_not_written_again() -> None:
    """A list that says nothing new leaves the journal alone."""
    ledger = make_ledger(make_entry(1, "a", pod="train"))
    assert reconcile(ledger, look(listing(holding("train", "a"))), {}) == Reconciliation()


def test_uid_survives_a_list_without_uids() -> None:
    """The kubelet's list knows no uid; one learnt elsewhere stays with the same pod and goes with another."""
    ledger = make_ledger(make_entry(1, "a"))
    uid = PodIdentity(namespace="", name="", uid="u-1")
    ledger = apply_record(ledger, Identified(number=1, pod=uid, container="main", seen_by=""), 10)
    (record,) = reconcile(ledger, look(listing(holding("train", "a"))), {}).records
    assert isinstance(record, Identified)
    assert record.pod == PodIdentity(namespace="team", name="train", uid="u-1")
    ledger = apply_record(ledger, record, 10)
    (record,) = reconcile(ledger, look(listing(holding("other", "a"))), {}).records
    assert isinstance(record, Identified)
    assert record.pod == pod_named("other")


def test_uids_come_from_the_checkpoint() -> None:
    """What the list does not tell the kubelet's own notes do: by the devices, for known and for new entries."""
    notes = KubeletCheckpoint(
        containers=(
            ContainerDevices(
                pod=PodIdentity(namespace="", name="", uid="u-1"), container="main", resource=GPU,
                devices=device_ids("ab"),
            ),
        )
    )  # fmt: skip
    ledger = make_ledger(make_entry(1, "a", pod="train"))
    assert lacks_uid(ledger)
    assert lacks_uid(make_ledger(make_entry(1, "a")))
    seen = look(listing(holding("train", "a"), holding("train", "b", container="side")), uids=find_uids(notes))
    for record in reconcile(ledger, seen, {}).records:
        ledger = apply_record(ledger, record, 10)
    assert [entry.allocation.pod for entry in ledger.entries.values()] == [
        PodIdentity(namespace="team", name="train", uid="u-1")
    ] * 2
    assert not lacks_uid(ledger)


def test_an_allocation_younger_than_the_question_is_left_alone() -> None:
    """The list may have been made before the kubelet heard our answer."""
    ledger = make_ledger(make_entry(5, "a"))
    for word in (listing(), listing(holding("train", "a"))):
        asked_before = look(word, numbers_below=5)
        assert reconcile(ledger, asked_before, {5: Absence(since_seconds=0.0, lists=9)}) == Reconciliation()


@pytest.mark.parametrize(
    ("entry", "apart", "freed"),
    [
        (make_entry(1, "a", pod="train"), 30.0, True),
        (make_entry(1, "a", pod="train"), 29.0, False),
        (make_entry(1, "a"), 59.0, False),
        (make_entry(1, "a"), 60.0, True),
        (make_entry(1, "a", pod="train", since_seconds=9e9), 30.0, True),
    ],
)
def test_a_device_is_free_after_two_lists_without_it(entry: Entry, apart: float, *, freed: bool) -> None:
    """Two lists, far enough apart, and twice as far for one that never showed up; no clock of people has a say."""
    result = look_twice(entry, listing(), apart=apart)
    assert result.records == ((Freed(number=1, at_seconds=1000.0 + apart, why="given back"),) if freed else ())
    assert (1 in result.absences) is not freed


def test_one_list_frees_nothing() -> None:
    """A single list may be incomplete, however long ago the last sight was."""
    result = reconcile(make_ledger(make_entry(1, "a", pod="train")), look(listing()), {})
    assert result.records == ()
    assert result.absences == {1: Absence(since_seconds=1000.0)}


@pytest.mark.parametrize(
    ("entry", "living", "freed"),
    [
        (make_entry(1, "a", pod="train"), frozenset(), True),
        (make_entry(1, "a", pod="train"), frozenset({("team", "other")}), True),
        (make_entry(1, "a", pod="train"), frozenset({("team", "train")}), False),
        (make_entry(1, "a", pod="train"), None, False),
        (UID_ALONE, frozenset(), False),
        (make_entry(1, "a"), frozenset(), False),
    ],
)
def test_one_list_frees_what_the_kubelet_has_ended(
    entry: Entry, living: frozenset[tuple[str, str]] | None, *, freed: bool
) -> None:
    """Where its pod is known by name, is among no living ones, and no list has its device."""
    result = reconcile(make_ledger(entry), look(listing(), living=living), {})
    assert [type(record) for record in result.records] == ([Freed] if freed else [])


def test_a_list_with_it_starts_the_count_again() -> None:
    """Absences count only in a row."""
    ledger = make_ledger(make_entry(1, "a", pod="train"))
    result = reconcile(ledger, look(listing(holding("train", "a"))), {1: Absence(since_seconds=0.0, lists=9)})
    assert result.absences == {}


def test_a_kubelet_that_has_just_started_frees_nothing() -> None:
    """Its list is not whole yet."""
    young = KubeletRun(identity="now", since_seconds=1005.0)
    assert look_twice(make_entry(1, "a", pod="train"), listing(), run=young).records == ()


@pytest.mark.parametrize(
    ("word", "seen_by", "forgotten"),
    [
        (listing(pods=["train"]), "before", True),
        (listing(pods=["train"]), "now", False),
        (listing(pods=["train"]), "", False),
        (listing(pods=["other"]), "before", False),
        (listing(holding("train", "z")), "before", False),
        (listing(holding("train", "z", container="side")), "before", True),
    ],
)
def test_a_kubelet_that_restarted_may_have_forgotten(word: PodListing, seen_by: str, *, forgotten: bool) -> None:
    """Forgotten is what an earlier run showed and a living pod has no more; anything else is given back in time."""
    entry = make_entry(1, "a", pod="train", seen_by=seen_by)
    result = look_twice(entry, word)
    mine = [difference for difference in result.differences if difference.devices == device_ids("a")]
    assert bool(mine) is forgotten
    assert any(isinstance(record, Freed) for record in result.records) is not forgotten


def test_forgotten_is_written_once() -> None:
    """The first list that shows it is written down, the next ones only told."""
    entry = make_entry(1, "a", pod="train", seen_by="before")
    first = reconcile(make_ledger(entry), look(listing(pods=["train"])), {})
    assert first.records == (Forgotten(number=1),)
    later = look_twice(entry, listing(pods=["train"]))
    assert later.records == ()
    assert kinds(later) == ["forgotten"]


def test_what_nobody_wrote_down_is_taken_over() -> None:
    """A container that holds our devices without an entry gets one, and people are told."""
    foreign = ContainerDevices(
        pod=pod_named("net"), container="main", resource=ResourceName("rdma/hca"), devices=(DeviceId("mlx5_0"),)
    )
    result = reconcile(
        make_ledger(make_entry(3, "a", pod="old")),
        look(listing(holding("train", "bc"), holding("old", "a"), foreign)),
        {},
    )
    ledger = make_ledger(make_entry(3, "a", pod="old"))
    for record in result.records:
        ledger = apply_record(ledger, record, 10)
    adopted = ledger.entries[4]
    assert (adopted.allocation.devices, adopted.allocation.pod) == (device_ids("bc"), pod_named("train"))
    assert (adopted.allocation.source, adopted.seen_by) == (AllocationSource.POD_RESOURCES, "now")
    assert kinds(result) == ["missing"]
    assert len(ledger.entries) == 2


def test_a_device_on_two_containers_is_taken_over_once() -> None:
    """A list that names a device twice does not make two allocations of it."""
    result = reconcile(make_ledger(), look(listing(holding("train", "a"), holding("other", "a"))), {})
    assert len(result.records) == 1


@pytest.mark.parametrize(
    ("word", "detail"),
    [
        (listing(holding("other", "a")), "held by team/train, the kubelet lists it with team/other"),
        (listing(holding("train", "a"), holding("other", "a")), "team/train and team/other"),
    ],
)
def test_other_holders_than_written_down_are_a_conflict(word: PodListing, detail: str) -> None:
    """The kubelet's word is taken, and the difference told."""
    result = reconcile(make_ledger(make_entry(1, "a", pod="train")), look(word), {})
    assert kinds(result) == ["conflict"]
    assert detail in result.differences[0].detail


def test_orphans_are_told_at_recovery_alone() -> None:
    """Pods that end while the agent runs are everyday life; entries without a pod at its start are worth a word."""
    ledger = make_ledger(make_entry(1, "a", pod="train"))
    assert kinds(reconcile(ledger, look(listing(), recovering=True), {})) == ["orphan"]
    assert kinds(reconcile(ledger, look(listing()), {})) == []


def test_checkpoint_fills_in_what_the_ledger_lacks() -> None:
    """Without the kubelet's list its checkpoint says what is possibly held; it proves nothing."""
    written = KubeletCheckpoint(
        containers=tuple(
            ContainerDevices(
                pod=PodIdentity(namespace="", name="", uid="u-1"),
                container="main",
                resource=GPU,
                devices=device_ids(devices),
            )
            for devices in ("ab", "c")
        )
    )
    ledger = make_ledger(make_entry(1, "a"))
    result = adopt_checkpoint(ledger, written, 50.0)
    for record in result.records:
        ledger = apply_record(ledger, record, 10)
    assert [entry.devices for entry in ledger.entries.values()] == [
        device_ids("a"), device_ids("b"), device_ids("c"),
    ]  # fmt: skip
    assert ledger.entries[2].allocation.source is AllocationSource.CHECKPOINT
    assert ledger.entries[2].seen_by == ""
    assert kinds(result) == ["missing", "missing"]
    assert adopt_checkpoint(Ledger(), KubeletCheckpoint(), 50.0) == Reconciliation()

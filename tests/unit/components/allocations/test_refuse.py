"""When a device is refused because somebody holds it."""

import pytest

from nodeagent.components.allocations.refuse import KubeletRun, decide_refusal, find_doubtful, find_holders
from nodeagent.components.allocations.roles.grants import Entry
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.ports import PodListing
from tests.support.allocations import GPU, RUN, device_ids, holding, listing, make_entry, make_ledger

HELD_BEFORE = make_entry(1, "ab", pod="train", seen_by="before")
YOUNG = KubeletRun(identity="now", since_seconds=95.0)


@pytest.mark.parametrize(
    ("entry", "is_holder"),
    [
        (HELD_BEFORE, True),
        (make_entry(1, "ab", pod="train", seen_by="now"), False),
        (make_entry(1, "ab", pod="train", seen_by=""), False),
        (make_entry(1, "ab", seen_by="before"), False),
        (make_entry(1, "cd", pod="train", seen_by="before"), False),
    ],
)
def test_only_a_named_holder_of_an_earlier_run_counts(entry: Entry, *, is_holder: bool) -> None:
    """What this run of the kubelet has shown it knows; what no run has named a pod for is no proof."""
    assert bool(find_holders(make_ledger(entry), device_ids("a"), RUN)) is is_holder


@pytest.mark.parametrize(
    ("word", "run", "refused"),
    [
        (listing(pods=["train"]), RUN, True),
        (None, RUN, True),
        (listing(), RUN, False),
        (listing(), YOUNG, True),
        (listing(pods=["train"]), YOUNG, True),
        (listing(holding("train", "ab")), RUN, False),
        (listing(holding("train", "z")), RUN, True),
    ],
)
def test_a_holder_is_defended_while_it_may_live(word: PodListing | None, run: KubeletRun, *, refused: bool) -> None:
    """Refused while the pod is listed without its device, or cannot be shown to be gone."""
    refusal = decide_refusal([HELD_BEFORE], device_ids("bc"), word, run, 100.0, 30.0)
    assert (refusal is not None) is refused
    if refusal is not None:
        assert str(refusal) == "device GPU-b is held by team/train, the kubelet has forgotten it"


def test_a_holder_known_by_uid_is_named_by_it() -> None:
    allocation = Allocation(
        number=1, resource=GPU, devices=device_ids("a"), since_seconds=0.0,
        pod=PodIdentity(namespace="", name="", uid="u-1"),
    )  # fmt: skip
    refusal = decide_refusal([Entry(allocation=allocation, seen_by="before")], device_ids("a"), None, RUN, 100.0, 30.0)
    assert "pod u-1" in str(refusal)


def test_nobody_in_the_way_is_no_refusal() -> None:
    """Without holders there is nothing to decide."""
    assert decide_refusal([], device_ids("a"), None, RUN, 100.0, 30.0) is None


def test_doubtful_is_what_this_run_has_not_shown() -> None:
    """Devices of entries of an earlier run, or of none, had better not be preferred."""
    ledger = make_ledger(make_entry(1, "a"), make_entry(2, "b", seen_by="before"), make_entry(3, "c", seen_by=""))
    assert find_doubtful(ledger, RUN) == set(device_ids("bc"))
    assert find_doubtful(ledger, None) == set(device_ids("abc"))

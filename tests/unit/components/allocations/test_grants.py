"""What is granted, and what may be written before it is asked for."""

import pytest

from nodeagent.components.allocations.grants import fits, may_expect, plan_grant
from nodeagent.components.allocations.ledger import Entry
from nodeagent.components.allocations.reconcile import KubeletRun
from nodeagent.model.ids import ResourceName
from tests.support.allocations import GPU, OLD_RUN, RUN, device_ids, make_entry, make_ledger


def test_a_grant_is_of_this_run_and_has_the_next_number() -> None:
    """Whoever reads the journal later knows which kubelet asked."""
    ledger = make_ledger(make_entry(3, "a"))
    entry = plan_grant(ledger, GPU, device_ids("bc"), RUN, 12.5).entry
    assert (entry.allocation.number, entry.devices, entry.allocation.since_seconds) == (4, device_ids("bc"), 12.5)
    assert entry.seen_by == RUN.identity
    assert plan_grant(ledger, GPU, device_ids("b"), None, 0).entry.seen_by == ""


@pytest.mark.parametrize(
    ("holder", "run", "expected"),
    [
        (make_entry(1, "b", pod="train"), RUN, True),
        (make_entry(1, "a", pod="train"), RUN, True),
        (make_entry(1, "a", pod="train", seen_by=OLD_RUN.identity), RUN, False),
        (make_entry(1, "b", pod="train", seen_by=OLD_RUN.identity), RUN, True),
        (make_entry(1, "a", seen_by=""), RUN, False),
        (make_entry(1, "b", pod="train"), None, False),
    ],
    ids=["free", "handed on by this run", "of an earlier run", "another is", "of nobody knows", "no kubelet"],
)
def test_only_what_this_run_disposes_of_is_expected(holder: Entry, run: KubeletRun | None, *, expected: bool) -> None:
    """What may have to be defended is not written down as somebody else's before it is asked for."""
    assert may_expect(make_ledger(holder), device_ids("a"), run) is expected


@pytest.mark.parametrize(
    ("resource", "devices", "run", "expected"),
    [
        (GPU, "ab", RUN, True),
        (GPU, "ba", RUN, True),
        (GPU, "a", RUN, False),
        (GPU, "abc", RUN, False),
        (ResourceName("nvidia.com/other"), "ab", RUN, False),
        (GPU, "ab", OLD_RUN, False),
        (GPU, "ab", None, False),
    ],
)
def test_a_question_fits_its_expectation(
    resource: ResourceName, devices: str, run: KubeletRun | None, *, expected: bool
) -> None:
    """The same devices of the same resource, in whatever order, asked for by the same kubelet."""
    granted = plan_grant(make_ledger(), GPU, device_ids("ab"), RUN, 0)
    assert fits(granted, resource, device_ids(devices), run) is expected

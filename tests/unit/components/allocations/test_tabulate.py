"""Who holds what, as rows."""

from msgspec.structs import replace

from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.components.allocations.tabulate import tabulate_history, tabulate_living
from nodeagent.model.allocation import AllocationRow, AllocationTable, PodIdentity
from tests.support.allocations import make_entry


def test_living_allocations_are_rows_oldest_first() -> None:
    named = make_entry(2, "b", pod="train", since_seconds=1.0).allocation
    forgotten = make_entry(3, "c", pod="old", since_seconds=0.5, forgotten=True).allocation
    by_uid = replace(named, number=4, pod=PodIdentity(namespace="", name="", uid="u-1"), since_seconds=9.0)
    fresh = make_entry(1, "a", since_seconds=5.0).allocation
    rows = tabulate_living(AllocationTable(allocations=(fresh, named, forgotten, by_uid)))
    assert rows[1] == AllocationRow(
        number=2,
        resource="nvidia.com/gpu",
        devices=("GPU-b",),
        namespace="team",
        pod="train",
        container="main",
        since_seconds=1.0,
        until_seconds=None,
        state="held",
        source="journal",
    )
    assert [(row.pod, row.state) for row in rows] == [
        ("old", "forgotten by the kubelet"),
        ("train", "held"),
        ("", "handed out"),
        ("u-1", "held"),
    ]


def test_history_is_rows_newest_first() -> None:
    """What ended last is read first, with how it ended."""
    history = [
        Ended(allocation=make_entry(number, "a").allocation, until_seconds=10.0 * number, why="given back")
        for number in (1, 2)
    ]
    assert [(row.number, row.until_seconds, row.state) for row in tabulate_history(history)] == [
        (2, 20.0, "given back"),
        (1, 10.0, "given back"),
    ]

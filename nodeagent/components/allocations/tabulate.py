"""Allocations and their holders, as rows for people and programs.

Owns the words for an allocation's state.
"""

from collections.abc import Iterable

from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.model.allocation import Allocation, AllocationRow, AllocationTable


def tabulate_living(table: AllocationTable) -> tuple[AllocationRow, ...]:
    """The living allocations, the oldest first."""
    rows = (_row(allocation, None, _describe(allocation)) for allocation in table.allocations)
    return tuple(sorted(rows, key=lambda row: (row.since_seconds, row.number)))


def tabulate_history(history: Iterable[Ended]) -> tuple[AllocationRow, ...]:
    """Ended allocations, the newest first."""
    rows = (_row(ended.allocation, ended.until_seconds, ended.why) for ended in history)
    return tuple(sorted(rows, key=lambda row: (row.until_seconds or 0.0, row.number), reverse=True))


def _describe(allocation: Allocation) -> str:
    if allocation.forgotten:
        return "forgotten by the kubelet"
    return "held" if allocation.pod is not None else "handed out"


def _row(allocation: Allocation, until_seconds: float | None, state: str) -> AllocationRow:
    pod = allocation.pod
    return AllocationRow(
        number=allocation.number,
        resource=allocation.resource,
        devices=allocation.devices,
        namespace=pod.namespace if pod is not None else "",
        pod=(pod.name or pod.uid) if pod is not None else "",
        container=allocation.container,
        since_seconds=allocation.since_seconds,
        until_seconds=until_seconds,
        state=state,
        source=allocation.source,
    )

"""Allocations and their holders, and receipts of the past, as rows for people and programs.

Owns the words for an allocation's state.
"""

from collections.abc import Iterable
from heapq import nlargest
from typing import Final

import msgspec

from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.model.allocation import Allocation, AllocationRow, AllocationTable
from nodeagent.model.gpu import Inventory
from nodeagent.rules.ids import find_uuid, is_of_class
from nodeagent.rules.receipts import HeldGpu, Receipt, find_verdict

FAULTED_MAX: Final = 64
"""The page is made anew at each change, and no person reads more."""


def tabulate_living(table: AllocationTable) -> tuple[AllocationRow, ...]:
    """The living allocations, the oldest first."""
    rows = (_row(allocation, None, _describe(allocation)) for allocation in table.allocations)
    return tuple(sorted(rows, key=lambda row: (row.since_seconds, row.number)))


def tabulate_history(history: Iterable[Ended]) -> tuple[AllocationRow, ...]:
    """Ended allocations, the newest first."""
    rows = (_row(ended.allocation, ended.until_seconds, ended.why) for ended in history)
    return tuple(sorted(rows, key=lambda row: (row.until_seconds or 0.0, row.number), reverse=True))


def tabulate_receipts(history: Iterable[Ended], inventory: Inventory | None) -> tuple[Receipt, ...]:
    """The receipts of ended allocations, the newest first; `inventory` has the indices of GPUs."""
    receipts = (_write_receipt(ended, inventory) for ended in history)
    return tuple(sorted(receipts, key=lambda row: (row.until_seconds or 0.0, row.number), reverse=True))


def tabulate_faulted(history: Iterable[Ended], inventory: Inventory | None) -> tuple[Receipt, ...]:
    """The newest receipts with faults, `FAULTED_MAX` at most."""
    faulted = (ended for ended in history if ended.faults)
    return tabulate_receipts(nlargest(FAULTED_MAX, faulted, key=lambda ended: ended.until_seconds), inventory)


def _write_receipt(ended: Ended, inventory: Inventory | None) -> Receipt:
    pod = ended.allocation.pod
    row = _row(ended.allocation, ended.until_seconds, ended.why)
    return Receipt(
        **msgspec.structs.asdict(row),
        pod_uid=pod.uid if pod is not None else "",
        gpus=_list_gpus(ended, inventory),
        verdict=find_verdict(ended.faults),
        faults=ended.faults,
    )


def _list_gpus(ended: Ended, inventory: Inventory | None) -> tuple[HeldGpu, ...]:
    """The GPUs of the devices; what the node has no more is named as it was given out, with the index of its faults."""
    indices = {str(each.gpu): each.index for each in ended.faults if each.gpu}
    found = dict[str, int | None]()
    for device in map(find_uuid, ended.allocation.devices):
        gpu = inventory.find_gpu(device) if inventory is not None else None
        if gpu is not None:
            found[gpu.uuid] = gpu.index
        elif not is_of_class(device):
            found[device] = indices.get(device)
    return tuple(HeldGpu(uuid=uuid, index=index) for uuid, index in found.items())


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

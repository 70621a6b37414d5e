"""The allocation modes set by a person: stronger than the configuration, and kept over restarts of agent and node.

Owns that a GPU has at most a single mode. Refuses to know when a mode may change: the caller has decided before.
"""

from collections.abc import MutableMapping

from nodeagent.model.ids import GpuUuid
from nodeagent.model.offering import AllocationMode
from nodeagent.model.values import Value


class AllocationModeSet(Value, frozen=True, tag="door_set"):
    """A GPU got an allocation mode; `None` leaves the GPU to the configuration again."""

    gpu: GpuUuid
    door: AllocationMode | None
    at_seconds: float


AllocationModeRecord = AllocationModeSet


def apply_allocation_mode(doors: MutableMapping[GpuUuid, AllocationMode], record: AllocationModeRecord) -> None:
    """Apply a record to the allocation modes by GPU."""
    if record.door is None:
        doors.pop(record.gpu, None)
    else:
        doors[record.gpu] = record.door

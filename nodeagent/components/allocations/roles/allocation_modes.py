"""The allocation modes set by a person, and the cordons of all sources, kept over restarts of agent and node.

Owns that a GPU has at most a single mode, and that a record of a source's cordons replaces the source's cordons alone.
Refuses to know when a mode may change and when a cordon ends: the caller has decided before.
"""

from collections.abc import MutableMapping

from nodeagent.model.cordons import Cordon, CordonSource
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


class CordonsKept(Value, frozen=True, tag="cordons_kept"):
    """All cordons of a source from now on."""

    source: CordonSource
    cordons: tuple[Cordon, ...]
    at_seconds: float


def apply_cordons(by_source: MutableMapping[CordonSource, tuple[Cordon, ...]], record: CordonsKept) -> None:
    """Apply a record to the cordons by source."""
    if record.cordons:
        by_source[record.source] = record.cordons
    else:
        by_source.pop(record.source, None)

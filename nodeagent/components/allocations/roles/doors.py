"""The doors that a person has set: they outrank the configuration, and outlive restarts of agent and node.

Owns that a GPU has one at most. Refuses to know when a door may change: that is decided before.
"""

from collections.abc import MutableMapping

from nodeagent.model.ids import GpuUuid
from nodeagent.model.offering import Door
from nodeagent.model.values import Value


class DoorSet(Value, frozen=True, tag="door_set"):
    """A GPU was given this door; `None` leaves it to the configuration again."""

    gpu: GpuUuid
    door: Door | None
    at_seconds: float


DoorRecord = DoorSet


def apply_door(doors: MutableMapping[GpuUuid, Door], record: DoorRecord) -> None:
    """One more record, in the doors by GPU."""
    if record.door is None:
        doors.pop(record.gpu, None)
    else:
        doors[record.gpu] = record.door

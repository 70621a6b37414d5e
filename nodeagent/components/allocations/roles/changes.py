"""Changes of a GPU in several steps: each step is recorded before it is taken, so that no change stays half done.

Owns the changes under way. Refuses to know a step's meaning: the owner of a change goes on or goes back.
"""

from collections.abc import MutableMapping

from msgspec.structs import replace

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, Step
from nodeagent.model.values import Value


class Stepped(Value, frozen=True, tag="stepped"):
    """A change begins, or goes on, with a step."""

    number: int
    owner: str
    gpu: GpuUuid
    step: Step


class Finished(Value, frozen=True, tag="settled"):
    """A change is over, done or undone: no step is left to take."""

    number: int
    at_seconds: float
    outcome: str


ChangeRecord = Stepped | Finished


def apply_change(changes: MutableMapping[int, Change], record: ChangeRecord, next_number: int) -> None:
    """Apply a record to the changes by number; a record about an ended change changes nothing."""
    if isinstance(record, Finished):
        changes.pop(record.number, None)
        return
    under_way = changes.get(record.number)
    if under_way is None:
        if record.number >= next_number:
            begun = Change(number=record.number, owner=record.owner, gpu=record.gpu, steps=(record.step,))
            changes[record.number] = begun
    elif (under_way.owner, under_way.gpu) == (record.owner, record.gpu) and record.step not in under_way.steps:
        changes[record.number] = replace(under_way, steps=(*under_way.steps, record.step))

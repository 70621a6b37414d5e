"""Changes of a GPU in several steps: each is written down before it is taken, so that none is half done for ever.

Owns which changes are under way. Refuses to know what a step does: whoever made it goes on or goes back.
"""

from collections.abc import MutableMapping

from msgspec.structs import replace

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, Step
from nodeagent.model.values import Value


class Stepped(Value, frozen=True, tag="stepped"):
    """A change begins, or goes on, with this step."""

    number: int
    owner: str
    gpu: GpuUuid
    step: Step


class Settled(Value, frozen=True, tag="settled"):
    """A change is over, done or undone: nobody has to go on with it."""

    number: int
    at_seconds: float
    outcome: str


ChangeRecord = Stepped | Settled


def apply_change(changes: MutableMapping[int, Change], record: ChangeRecord, next_number: int) -> None:
    """One more record, in the changes by number; one about a change that is over changes nothing."""
    if isinstance(record, Settled):
        changes.pop(record.number, None)
        return
    under_way = changes.get(record.number)
    if under_way is None:
        if record.number >= next_number:
            begun = Change(number=record.number, owner=record.owner, gpu=record.gpu, steps=(record.step,))
            changes[record.number] = begun
    elif (under_way.owner, under_way.gpu) == (record.owner, record.gpu) and record.step not in under_way.steps:
        changes[record.number] = replace(under_way, steps=(*under_way.steps, record.step))

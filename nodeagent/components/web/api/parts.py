"""Parts of GPUs as the API tells them: who has which, how that was decided, and who waits."""

from nodeagent.model.journal import Binding, PartTable
from nodeagent.model.parts import PartReasons
from nodeagent.model.values import Value


class PartRecord(Value, frozen=True):
    """A container with its parts."""

    binding: Binding
    decided: tuple[str, ...] = ()
    """How its GPUs were chosen, in lines; nothing for what was chosen before the agent began."""


class WaitingRecord(Value, frozen=True):
    """A container that waits for room."""

    container: str
    """`namespace/pod (container)`."""
    looked_at: tuple[str, ...] = ()
    """Why there is none, in lines."""


class PartsRecord(Value, frozen=True):
    """All of them."""

    bound: tuple[PartRecord, ...] = ()
    waiting: tuple[WaitingRecord, ...] = ()


def record_parts(table: PartTable | None, reasons: PartReasons | None) -> PartsRecord:
    """The record of this moment."""
    known = reasons or PartReasons()
    bindings = table.bindings if table is not None else {}
    return PartsRecord(
        bound=tuple(
            PartRecord(binding=binding, decided=known.bound.get(number, ())) for number, binding in bindings.items()
        ),
        waiting=tuple(WaitingRecord(container=who, looked_at=lines) for who, lines in sorted(known.waiting.items())),
    )

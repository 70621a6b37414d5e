"""Parts of GPUs as the API tells them: who has which and uses how much of it, how that was decided, and who waits."""

from nodeagent.model.journal import Binding, PartTable
from nodeagent.model.parts import PartReasons
from nodeagent.model.usage import PartUsage, PartUse, UndividedUse
from nodeagent.model.values import Value


class PartRecord(Value, frozen=True):
    """A container with its parts."""

    binding: Binding
    decided: tuple[str, ...] = ()
    """How its GPUs were chosen, in lines; nothing for what was chosen before the agent began."""
    used: tuple[PartUse, ...] = ()
    """What it uses of each part; nothing before that was measured."""


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
    undivided: tuple[UndividedUse, ...] = ()
    """What several containers of a pod use together, while nothing tells which of them it is."""


def record_parts(table: PartTable | None, reasons: PartReasons | None, usage: PartUsage | None = None) -> PartsRecord:
    """The record of this moment."""
    known, measured = reasons or PartReasons(), usage or PartUsage()
    used = {each.number: each.parts for each in measured.containers}
    bindings = table.bindings if table is not None else {}
    return PartsRecord(
        bound=tuple(
            PartRecord(binding=binding, decided=known.bound.get(number, ()), used=used.get(number, ()))
            for number, binding in bindings.items()
        ),
        waiting=tuple(WaitingRecord(container=who, looked_at=lines) for who, lines in sorted(known.waiting.items())),
        undivided=measured.undivided,
    )

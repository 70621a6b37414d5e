"""Conditions of one kind as one: told once with their number, the first few by name, the rest on demand; pure."""

from collections.abc import Sequence
from typing import Final

from nodeagent.components.web.api.records import ConditionRecord
from nodeagent.model.values import Value

SHOWN: Final = 3
"""So many of one kind stand by name where the rest is on demand."""


class ConditionGroup(Value, frozen=True):
    """All conditions with one code, in their order; never empty."""

    members: tuple[ConditionRecord, ...]

    @property
    def first(self) -> ConditionRecord:
        """What all have in common is said by the first."""
        return self.members[0]

    @property
    def times(self) -> str:
        """What stands before the title where it is so of several."""
        return f"{len(self.members)} times: " if len(self.members) > 1 else ""

    @property
    def since_seconds(self) -> float:
        """When the first of them became true."""
        return min(one.since_seconds for one in self.members)

    def split(self, shown: int | None = SHOWN) -> tuple[tuple[ConditionRecord, ...], tuple[ConditionRecord, ...]]:
        """Those that stand by name, and the rest; `None` shows all. One alone is no rest: it takes no more room."""
        if shown is None or len(self.members) <= shown + 1:
            return self.members, ()
        return self.members[:shown], self.members[shown:]


def group_conditions(conditions: Sequence[ConditionRecord]) -> tuple[ConditionGroup, ...]:
    """One group for each code, in the order of the first of each."""
    by_code: dict[str, list[ConditionRecord]] = {}
    for one in conditions:
        by_code.setdefault(one.code, []).append(one)
    return tuple(ConditionGroup(members=tuple(members)) for members in by_code.values())

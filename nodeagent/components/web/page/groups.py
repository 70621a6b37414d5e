"""Conditions of the same kind as a group: told once with their number, a few by name, the rest on demand; pure."""

from collections.abc import Sequence
from typing import Final

from nodeagent.components.web.api.records import ConditionRecord
from nodeagent.model.values import Value

SHOWN: Final = 3
"""How many of a kind stand by name where the rest is on demand."""


class ConditionGroup(Value, frozen=True):
    """All conditions with the same code, in order; never empty."""

    members: tuple[ConditionRecord, ...]

    @property
    def first(self) -> ConditionRecord:
        """The first condition, for the fields common to all."""
        return self.members[0]

    @property
    def times(self) -> str:
        """The prefix of the title for several conditions."""
        return f"{len(self.members)} times: " if len(self.members) > 1 else ""

    @property
    def since_seconds(self) -> float:
        """When the first condition became true."""
        return min(one.since_seconds for one in self.members)

    def split(self, shown: int | None = SHOWN) -> tuple[tuple[ConditionRecord, ...], tuple[ConditionRecord, ...]]:
        """Conditions by name, and the rest; `None` shows all. A single condition is no rest: it takes no more room."""
        if shown is None or len(self.members) <= shown + 1:
            return self.members, ()
        return self.members[:shown], self.members[shown:]


def group_conditions(conditions: Sequence[ConditionRecord]) -> tuple[ConditionGroup, ...]:
    """A group for each code, in the order of first members."""
    by_code: dict[str, list[ConditionRecord]] = {}
    for one in conditions:
        by_code.setdefault(one.code, []).append(one)
    return tuple(ConditionGroup(members=tuple(members)) for members in by_code.values())

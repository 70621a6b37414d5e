"""Conditions: faults in words for people, shown after a delay and hidden while another condition explains the fault.

Owns the set of conditions, the times since when, and the visibility: a condition is shown after the delay of its
definition, and hidden while a condition on which it depends, directly or through others, is set for the same key.
Publishes the visible conditions as the retained state `ActiveConditions`.
Refuses codes missing from the catalogue, and contradictory catalogues. The catalogue lives elsewhere.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Cause, cause_of
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.errors import CatalogueBroken, ConditionUnknown
from nodeagent.core.log.lines import get_logger
from nodeagent.core.values import ActiveCondition, ActiveConditions, Severity

_RANK: Mapping[Severity, int] = {"error": 0, "warning": 1, "info": 2}

_log = get_logger(component="conditions")


class Definition(Protocol):
    """One entry of the catalogue."""

    @property
    def code(self) -> str:
        """Short, stable, in kebab-case; scripts rely on the code."""
        ...

    @property
    def severity(self) -> Severity:
        """Information, warning or error."""
        ...

    @property
    def title(self) -> str:
        """The fault in one line."""
        ...

    @property
    def remedy(self) -> str:
        """The sentence about how to end the condition."""
        ...

    @property
    def show_after_seconds(self) -> float:
        """How long the condition must last before people see it."""
        ...

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Codes of the conditions that explain this condition."""
        ...


class _Entry(Struct, frozen=True):
    condition: ActiveCondition
    visible_at: float
    """Monotonic seconds."""
    first_cause: int | None
    """The cause when the condition was set; the newest detail may have another cause."""


class Conditions:
    """All conditions of the process; belongs to the event loop's thread."""

    name = "conditions"

    def __init__(self, bus: Bus, clock: Clock, catalogue: Iterable[Definition]) -> None:
        self._bus = bus
        self._clock = clock
        self._definitions = _index(catalogue)
        self._explained_by = {code: _ancestors(code, self._definitions) for code in self._definitions}
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._waker = Waker()
        self._publish(None)

    def knows(self, code: str) -> bool:
        """Whether the catalogue has the code."""
        return code in self._definitions

    def set(self, code: str, *, detail: str = "", key: str = "", cause: Cause = None) -> None:
        """Set a condition. A condition set before keeps `since`; a new detail replaces the old."""
        if self._put(code, key, detail, cause):
            self._note_change(cause)

    def clear(self, code: str, *, key: str = "", cause: Cause = None) -> None:
        """Clear a condition, set or not."""
        self._definition(code)
        if self._entries.pop((code, key), None) is not None:
            self._note_change(cause)

    def show(self, code: str, detail: str, *, key: str = "", cause: Cause = None) -> None:
        """Set a condition for as long as there is a detail to show; clear the condition without one."""
        if detail:
            self.set(code, detail=detail, key=key, cause=cause)
        else:
            self.clear(code, key=key, cause=cause)

    def replace(self, code: str, details: Mapping[str, str], *, cause: Cause = None) -> None:
        """Set a condition for exactly the given keys, and clear all other keys."""
        self._definition(code)
        gone = [(code, key) for (other, key) in self._entries if other == code and key not in details]
        for each in gone:
            del self._entries[each]
        changed = [key for key, detail in details.items() if self._put(code, key, detail, cause)]
        if gone or changed:
            self._note_change(cause)

    def active(self) -> tuple[ActiveCondition, ...]:
        """The visible conditions, the worst first, then the oldest."""
        now = self._clock.monotonic()
        visible = (entry.condition for entry in self._entries.values() if self._is_visible(entry, now))
        return tuple(sorted(visible, key=_order))

    def all_set(self) -> tuple[ActiveCondition, ...]:
        """All conditions that are set, visible or not, in the same order."""
        return tuple(sorted((entry.condition for entry in self._entries.values()), key=_order))

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Publish each condition at the end of its delay; runs until cancelled."""
        task_status.started()
        while True:
            now = self._clock.monotonic()
            pending = [entry.visible_at for entry in self._entries.values() if entry.visible_at > now]
            with anyio.move_on_after(min(pending) - now if pending else None):
                await self._waker.wait()
            self._publish(None)

    def _put(self, code: str, key: str, detail: str, cause: Cause) -> bool:
        definition = self._definition(code)
        known = self._entries.get((code, key))
        if known is not None and known.condition.detail == detail:
            return False
        if known is not None:
            changed = replace(known.condition, detail=detail, cause=cause_of(cause))
            self._entries[code, key] = _Entry(changed, known.visible_at, known.first_cause)
            return True
        condition = ActiveCondition(
            code=code,
            key=key,
            severity=definition.severity,
            title=definition.title,
            detail=detail,
            remedy=definition.remedy,
            since=self._clock.wall(),
            cause=cause_of(cause),
        )
        visible_at = self._clock.monotonic() + definition.show_after_seconds
        self._entries[code, key] = _Entry(condition, visible_at, condition.cause)
        return True

    def _is_visible(self, entry: _Entry, now: float) -> bool:
        return entry.visible_at <= now and not self._is_echo(entry.condition)

    def _is_echo(self, condition: ActiveCondition) -> bool:
        """Whether an explaining condition is set, with the same key or with an empty key on either side."""
        explained_by = self._explained_by[condition.code]
        return any(
            code in explained_by and (not key or not condition.key or key == condition.key)
            for code, key in self._entries
        )

    def _definition(self, code: str) -> Definition:
        try:
            return self._definitions[code]
        except KeyError:
            raise ConditionUnknown(code) from None

    def _note_change(self, cause: Cause) -> None:
        self._publish(cause)
        self._waker.wake()  # the next deadline may have changed

    def _publish(self, cause: Cause) -> None:
        self._bus.keep(entry.first_cause for entry in self._entries.values() if entry.first_cause is not None)
        before = self._bus.latest(ActiveConditions)
        after = self._bus.publish_state(ActiveConditions(self.active()), source=self.name, cause=cause)
        _log_changes(before.value.conditions if before else (), after.value.conditions)


def _log_changes(before: tuple[ActiveCondition, ...], after: tuple[ActiveCondition, ...]) -> None:
    names_before = {(each.code, each.key) for each in before}
    names_after = {(each.code, each.key) for each in after}
    for each in after:
        if (each.code, each.key) not in names_before:
            _log.warning("condition_raised", code=each.code, key=each.key, title=each.title, detail=each.detail)
    for each in before:
        if (each.code, each.key) not in names_after:
            _log.info("condition_cleared", code=each.code, key=each.key, title=each.title)


def _order(condition: ActiveCondition) -> tuple[int, float, str, str]:
    return (_RANK[condition.severity], condition.since, condition.code, condition.key)


def _index(catalogue: Iterable[Definition]) -> dict[str, Definition]:
    definitions: dict[str, Definition] = {}
    for definition in catalogue:
        if definition.code in definitions:
            raise CatalogueBroken(definition.code, "is defined twice")
        definitions[definition.code] = definition
    return definitions


def _ancestors(code: str, definitions: Mapping[str, Definition]) -> frozenset[str]:
    """All codes that explain `code`, directly or through others."""
    found: set[str] = set()
    frontier = list(definitions[code].depends_on)
    while frontier:
        each = frontier.pop()
        if each not in definitions:
            raise CatalogueBroken(code, f"depends on {each!r}, which is not defined")
        if each == code:
            raise CatalogueBroken(code, "depends on itself in a circle, so it could never be seen")
        if each not in found:
            found.add(each)
            frontier.extend(definitions[each].depends_on)
    return frozenset(found)

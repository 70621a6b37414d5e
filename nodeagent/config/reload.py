"""The changes of a reload on SIGHUP: the decision, as a value.

An invalid new configuration never gets here: loading raises, and the settings in force stay.
Pure; the owner of the settings applies the plan and names the settings waiting for a restart.
"""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.config.explain import plain_value, show_value
from nodeagent.config.knobs import Section, knobs_of
from nodeagent.config.rules import concerns, find_broken
from nodeagent.config.schema import Settings


class Change(Struct, frozen=True):
    """One changed setting; the values are safe to show."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}: {self.before} → {self.after}"


class ReloadPlan(Struct, frozen=True):
    """The plan for a new configuration; `settings` are the settings in force afterwards."""

    settings: Settings
    changed_reloadable: tuple[Change, ...] = ()
    changed_needs_restart: tuple[Change, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no setting differs."""
        return not (self.changed_reloadable or self.changed_needs_restart)


def decide_reload(old: Settings, new: Settings) -> ReloadPlan:
    """Plan the change of reloadable settings; all other changed settings wait for a restart.

    The rest may be valid only with a setting that waits for a restart: where a partial change would break a rule, all
    changed settings of the rule wait.
    """
    held: set[str] = set()
    while True:
        plan = _plan(old, new, held)
        changed = [change.path for change in plan.changed_reloadable]
        broken = {path for rule in find_broken(plan.settings) for path in changed if concerns(path, rule.reads)}
        if not broken:
            return plan
        held |= broken


def _plan(old: Settings, new: Settings, held: Collection[str]) -> ReloadPlan:
    now: list[Change] = []
    later: list[Change] = []
    sections: dict[str, Any] = {}
    for name in knobs_of(Settings):
        before, after = getattr(old, name), getattr(new, name)
        taken: dict[str, Any] = {}
        for key, change, may_change in _differences(name, before, after):
            is_taken = may_change and change.path not in held
            (now if is_taken else later).append(change)
            if is_taken:
                taken[key] = getattr(after, key)
        sections[name] = msgspec.structs.replace(before, **taken) if taken else before
    return ReloadPlan(Settings(**sections), tuple(now), tuple(later))


def _differences(name: str, before: Section, after: Section) -> Iterator[tuple[str, Change, bool]]:
    """The changed keys of a section, each with whether a running agent may change the value."""
    for key, declared in knobs_of(type(before)).items():
        old, new = getattr(before, key), getattr(after, key)
        if old != new:
            shown = [show_value(plain_value(declared, value)) for value in (old, new)]
            # A component that was not built at the start cannot be built by a reload.
            makes = declared.makes_part
            is_missing = makes is not None and makes(new) > makes(old)
            yield key, Change(f"{name}.{key}", *shown), declared.reload and not is_missing

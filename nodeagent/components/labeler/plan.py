"""What must be written to bring labels in place to the wanted ones, and what must be left to others.

Owns the rule of ownership: a label that somebody else wrote is theirs, whether or not it says what we would say. One
that says something else is a conflict, which people are told of and which is never fought.
"""

from collections.abc import Iterable, Mapping

from msgspec import field

from nodeagent.components.labeler.presence import FEATURE
from nodeagent.components.labeler.render import TIMESTAMP
from nodeagent.model.values import Value


class LabelPlan(Value, frozen=True):
    """One write to the node object, if any."""

    apply: dict[str, str] | None
    """All labels that shall be ours, so that whatever else is ours goes; `None` when nothing needs to be written."""
    changed: tuple[str, ...] = ()
    contested: dict[str, str] = field(default_factory=dict)
    """Labels that somebody else holds at another value, with that value."""


def plan_label_patch(wanted: Mapping[str, str], in_place: Mapping[str, str], owned: Iterable[str]) -> LabelPlan:
    """What to apply to a node with these labels, of which these are ours; planned again after it, there is nothing."""
    ours = frozenset(owned)
    foreign = in_place.keys() - ours
    apply = {key: value for key, value in wanted.items() if key not in foreign}
    changed = [key for key, value in apply.items() if in_place.get(key) != value]
    changed += ours - apply.keys()
    contested = {
        key: in_place[key] for key in wanted.keys() & foreign if wanted[key] != in_place[key] and _is_worth_telling(key)
    }
    return LabelPlan(apply=apply if changed else None, changed=tuple(sorted(changed)), contested=contested)


def stamp(labels: Mapping[str, str], in_place: Mapping[str, str], now_seconds: float) -> dict[str, str]:
    """The labels with the time of their last change: the one in place for as long as nothing else differs."""
    before = in_place.get(TIMESTAMP)
    same = before is not None and all(in_place.get(key) == value for key, value in labels.items())
    return {**labels, TIMESTAMP: before if same and before is not None else str(int(now_seconds))}


def _is_worth_telling(key: str) -> bool:
    """Node feature discovery and its like describe the same node in their own words; that is no conflict."""
    return key != TIMESTAMP and not key.startswith(FEATURE)

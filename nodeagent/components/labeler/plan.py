"""What must be written to bring labels in place to the wanted ones, and what must be left to others.

Owns the rule of ownership: a label that somebody else wrote is theirs, whether or not it says what we would say. One
that says something else is a conflict, which people are told of and which is never fought.
"""

from collections.abc import Iterable, Mapping

from msgspec import field

from nodeagent.components.labeler.presence import FEATURE
from nodeagent.components.labeler.render import TIMESTAMP, is_about_gpus
from nodeagent.model.values import Value


class LabelPlan(Value, frozen=True):
    """One write to the node object, if any."""

    apply: dict[str, str] | None
    """All labels that shall be ours, so that whatever else is ours goes; `None` when nothing needs to be written."""
    changed: tuple[str, ...] = ()
    contested: dict[str, str] = field(default_factory=dict)
    """Labels that somebody else holds at another value, with that value."""


def plan_label_patch(
    wanted: Mapping[str, str], in_place: Mapping[str, str], owned: Iterable[str], now_seconds: float | None = None
) -> LabelPlan:
    """What to apply where these labels are in place, of which these are ours; planned again after it, there is nothing.

    With a time given, ours are stamped with it; it moves only when one of them changes.
    """
    ours = {key: in_place[key] for key in owned if key in in_place}
    foreign = in_place.keys() - ours.keys()
    apply = {key: value for key, value in wanted.items() if key not in foreign}
    if now_seconds is not None and TIMESTAMP not in foreign:
        apply = stamp(apply, ours, now_seconds)
    changed = [key for key in sorted(apply.keys() | ours.keys()) if apply.get(key) != ours.get(key)]
    contested = {
        key: in_place[key] for key in wanted.keys() & foreign if wanted[key] != in_place[key] and _is_worth_telling(key)
    }
    return LabelPlan(apply=apply if changed else None, changed=tuple(changed), contested=contested)


def stamp(labels: Mapping[str, str], ours: Mapping[str, str], now_seconds: float) -> dict[str, str]:
    """The labels with the time of their last change: the one in place for as long as nothing else differs."""
    same = TIMESTAMP in ours and {key: value for key, value in ours.items() if key != TIMESTAMP} == labels
    return {**labels, TIMESTAMP: ours[TIMESTAMP] if same else str(int(now_seconds))}


def keep_last_good(wanted: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """What is wanted, and beside it what an earlier life of the agent said about GPUs that cannot be asked yet."""
    return {key: value for key, value in ours.items() if is_about_gpus(key)} | dict(wanted)


def _is_worth_telling(key: str) -> bool:
    """Node feature discovery and its like describe the same node in their own words; that is no conflict."""
    return key != TIMESTAMP and not key.startswith(FEATURE)

"""The patch that turns present labels into wanted labels, and the labels left to other writers.

Owns the rule of ownership: a label of another writer stays the other writer's, whatever the value. Another value is a
conflict, which is reported to people and never fought.
"""

from collections.abc import Iterable, Mapping

from msgspec import field

from nodeagent.components.labeler.render import TIMESTAMP, is_about_gpus
from nodeagent.model.labels import FEATURE
from nodeagent.model.values import Value


class LabelPlan(Value, frozen=True):
    """A write to the Node object, if needed."""

    apply: dict[str, str] | None
    """All labels that shall be ours, so that whatever else is ours goes; `None` when nothing needs to be written."""
    changed: tuple[str, ...] = ()
    contested: dict[str, str] = field(default_factory=dict)
    """Labels that somebody else holds at another value, with that value."""


def plan_label_patch(
    wanted: Mapping[str, str], in_place: Mapping[str, str], owned: Iterable[str], now_seconds: float | None = None
) -> LabelPlan:
    """The patch for the labels in place and our labels among them; the plan after the patch is empty.

    With a time given, our labels are stamped; the stamp moves only when a label changes.
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
    """The labels with the time of the last change; the present stamp stays while labels are unchanged."""
    same = TIMESTAMP in ours and {key: value for key, value in ours.items() if key != TIMESTAMP} == labels
    return {**labels, TIMESTAMP: ours[TIMESTAMP] if same else str(int(now_seconds))}


def keep_last_good(wanted: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The wanted labels, with an earlier process's labels about GPUs that cannot be read yet."""
    return {key: value for key, value in ours.items() if is_about_gpus(key)} | dict(wanted)


def _is_worth_telling(key: str) -> bool:
    """Whether a conflict is worth reporting: node feature discovery may describe the node in other words."""
    return key != TIMESTAMP and not key.startswith(FEATURE)


def select_features(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels for a feature file or a NodeFeature object."""
    return {key: value for key, value in labels.items() if not key.startswith(FEATURE)}


def render_features(labels: Mapping[str, str]) -> str:
    """The labels as sorted lines of `key=value`."""
    return "".join(f"{key}={labels[key]}\n" for key in sorted(labels))


def parse_features(text: str) -> dict[str, str]:
    """The labels of such a file; comments and blank lines are nobody's labels."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key: value if equals else "true" for key, equals, value in pairs}

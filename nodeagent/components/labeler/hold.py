"""When a changed label is published: a flapping label must not move pods, a label about capacity must not wait.

Owns the waiting of each label by itself, so that a flapping label holds up no other label. Refuses to read a clock.
"""

from collections.abc import Mapping

from msgspec import field

from nodeagent.components.labeler.node_wide import COUNTS, HEALTHY, UNHEALTHY
from nodeagent.model.values import Value

_CAPACITY = (".count", ".replicas")


class Waiting(Value, frozen=True):
    """A new value that has not lasted long enough yet; `None` for a label that will be removed."""

    value: str | None
    since_seconds: float


class Published(Value, frozen=True):
    """Published labels, and labels waiting to be published."""

    labels: dict[str, str]
    waiting: dict[str, Waiting] = field(default_factory=dict)


def decide_published(
    before: Published | None,
    wanted: Mapping[str, str],
    now_seconds: float,
    hold_seconds: float,
    *,
    is_asked: bool = False,
) -> Published:
    """The labels to publish now: all at once the first time, on a person's order, and with a label about capacity.

    Fewer healthy GPUs are published at once, with the counts that add up with them; a higher count must last, so that a
    flapping GPU counts as unhealthy rather than moving pods back and forth. Settings do not flap: `is_asked` says that
    settings have changed, and labels follow the new offer at once too.
    """
    if before is None or is_asked or any(map(is_capacity, _list_changed(before.labels, wanted))):
        return Published(labels=dict(wanted))
    labels, waiting = dict(before.labels), {}
    is_loss = _is_loss(before.labels, wanted)
    for key in _list_changed(before.labels, wanted):
        value = wanted.get(key)
        earlier = before.waiting.get(key)
        since = earlier.since_seconds if earlier is not None and earlier.value == value else now_seconds
        if now_seconds - since < hold_seconds and not (is_loss and key in COUNTS):
            waiting[key] = Waiting(value=value, since_seconds=since)
        elif value is None:
            del labels[key]
        else:
            labels[key] = value
    return Published(labels=labels, waiting=waiting)


def decide_wait(published: Published, now_seconds: float, hold_seconds: float) -> float | None:
    """Seconds until the next waiting label is due; `None` without waiting labels."""
    due = [each.since_seconds + hold_seconds - now_seconds for each in published.waiting.values()]
    return max(0.0, min(due)) if due else None


def is_capacity(key: str) -> bool:
    """Whether schedulers and autoscalers use the label as capacity."""
    return key.endswith(_CAPACITY) and key not in COUNTS


def _is_loss(before: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether healthy GPUs became fewer, or unknown GPUs turned out unhealthy."""
    healthy, unhealthy = (_measure_growth(key, before, wanted) for key in (HEALTHY, UNHEALTHY))
    return healthy < 0 or (healthy == 0 and unhealthy > 0)


def _measure_growth(key: str, before: Mapping[str, str], wanted: Mapping[str, str]) -> int:
    was, will_be = before.get(key, ""), wanted.get(key, "")
    return int(will_be) - int(was) if was.isdigit() and will_be.isdigit() else 0


def _list_changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]

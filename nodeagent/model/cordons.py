"""Cordons: single GPUs kept from new pods, whatever their allocation mode; pods with such a GPU keep it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value

CORDON_ANNOTATION: Final = "nodeagent.io/gpu-cordon"
HAMI_CORDON_ANNOTATION: Final = "hami.io/device-cordon"
REASON_LENGTH: Final = 256
"""The most characters of a reason."""
_TIME: Final = Annotated[datetime, msgspec.Meta(tz=True)]


class CordonSource(StrEnum):
    """Where a cordon comes from; a source lifts its own cordons and no other source's."""

    COMMAND = "command"
    """`nodeagent gpu cordon`."""
    ANNOTATION = "annotation"
    """The agent's own annotation of the node."""
    HAMI = "hami"
    """HAMi's annotation of the node."""
    BRAKE = "brake"
    """The agent itself: start after start on the GPU was lost. Kept beyond its end, until the GPU is proved."""
    REPAIR = "repair"
    """The agent itself: pods leave the GPU for its repair. Lifted when nothing is repaired there any more."""
    DRIVER = "driver"
    """The agent itself: pods leave all GPUs for an upgrade of the driver. Lifted when the upgrade has ended."""


_SOURCES: Final = {
    CordonSource.ANNOTATION: f"the annotation {CORDON_ANNOTATION}",
    CordonSource.HAMI: f"the annotation {HAMI_CORDON_ANNOTATION}",
    CordonSource.BRAKE: "the brake",
    CordonSource.REPAIR: "a repair",
    CordonSource.DRIVER: "an upgrade of the driver",
}


class Cordon(Value, frozen=True):
    """A GPU kept from new pods by a single source."""

    gpu: GpuUuid
    source: CordonSource
    named: str
    """The GPU as the source names it."""
    reason: str = ""
    until_seconds: float | None = None
    """The end by the wall clock; `None` for a cordon without an end."""
    who: str = ""
    """The person who gave the command."""
    since_seconds: float | None = None
    """When the agent itself closed the GPU; `None` for a cordon by a person or an annotation."""
    closings: int = 0
    """How many times the brake has closed the GPU without a proved start in between."""

    def is_over(self, now_seconds: float) -> bool:
        """Whether the end has come."""
        return self.until_seconds is not None and self.until_seconds <= now_seconds

    def describe(self) -> str:
        """The source, the reason and the end."""
        return f"by {self._name_source()}{f': {self.reason}' if self.reason else ''}{self._describe_end()}"

    def sum_up(self) -> str:
        """The source and the end, for a line with little room."""
        return f"by {self._name_source()}{self._describe_end()}"

    def _name_source(self) -> str:
        return _SOURCES.get(self.source, self.who or "a person")

    def _describe_end(self) -> str:
        return "" if self.until_seconds is None else f", until {render_until(self.until_seconds)}"


class CordonTable(Value, frozen=True):
    """State: the cordons of all sources as the journal keeps them, the past ones too until they are removed."""

    by_source: Mapping[CordonSource, tuple[Cordon, ...]] = field(default_factory=dict)

    def list_in_force(self, now_seconds: float) -> tuple[Cordon, ...]:
        """The cordons without those whose end has come, by source."""
        return tuple(
            each for source in CordonSource for each in self.by_source.get(source, ()) if not each.is_over(now_seconds)
        )


def parse_until(text: str) -> float:
    """A time of RFC 3339 with a zone, in seconds since 1970.

    Raises:
        ValueError: Another text, with the remedy.
    """
    try:
        found: datetime = msgspec.convert(text, _TIME)
    except msgspec.ValidationError as error:
        raise ValueError(f"{text[:80]!r} is no time of RFC 3339, such as 2031-05-01T08:00:00Z") from error
    return found.timestamp()


def check_reason(text: str) -> str:
    """The reason without surrounding space.

    Raises:
        ValueError: An empty or overlong reason, or one with control characters.
    """
    reason = text.strip()
    if not reason:
        raise ValueError("the reason is missing: people see it on the node")
    if len(reason) > REASON_LENGTH or not reason.isprintable():
        raise ValueError(f"the reason must be one line of at most {REASON_LENGTH} characters")
    return reason


def render_until(seconds: float) -> str:
    """A time of RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

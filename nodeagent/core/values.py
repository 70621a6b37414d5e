"""The records that the core hands out, for whoever only looks at them.

The one module of the core that pure files may import. Refuses machinery: nothing here has behaviour, or brings any.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.life.report import ComponentReport, Phase

__all__ = [
    "ActiveCondition",
    "ActiveConditions",
    "ComponentReport",
    "Envelope",
    "GateState",
    "ListenerStatistics",
    "LoopLag",
    "Phase",
    "Severity",
]

Severity: TypeAlias = Literal["info", "warning", "error"]


class GateState(Struct, frozen=True):
    """One gate as people ask for it."""

    name: str
    is_open: bool
    since: float
    """Unix time of the last change."""
    by: str
    """Who opened or closed it last; empty while nobody has."""


class ActiveCondition(Struct, frozen=True):
    """One condition that is set."""

    code: str
    key: str
    """Which of several things it is about; empty when there is only one."""
    severity: Severity
    title: str
    detail: str
    remedy: str
    since: float
    """Unix seconds."""
    cause: int | None
    """The seq of the envelope that led to it."""


class ActiveConditions(Struct, frozen=True):
    """State: every condition that people should see, the worst first, then the oldest."""

    conditions: tuple[ActiveCondition, ...]


class ListenerStatistics(Struct, frozen=True):
    """How one reader of the bus keeps up."""

    client: str
    kind: str
    topics: tuple[str, ...]
    depth: int
    taken: int
    lost: int
    slow_count: int
    """How many times it left items untouched for too long."""
    waiting_seconds: float
    """How long the reader has left something waiting, now."""
    is_slow: bool


class LoopLag(Struct, frozen=True):
    """How much later than asked the loop woke a sleeper, over the window."""

    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    samples: int

"""The records of the core, for readers.

The only module of the core open to pure files. Refuses machinery: the records have no behaviour, and import none.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from nodeagent.core.channels.envelope import Envelope, name_type
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
    "name_type",
]

Severity: TypeAlias = Literal["info", "warning", "error"]


class GateState(Struct, frozen=True):
    """The state of one gate, for display."""

    name: str
    is_open: bool
    since: float
    """Unix time of the last change."""
    by: str
    """The component that last opened or closed the gate; empty before the first time."""


class ActiveCondition(Struct, frozen=True):
    """One active condition."""

    code: str
    key: str
    """The object of the condition among several, such as a GPU; empty where there is only one."""
    severity: Severity
    title: str
    detail: str
    remedy: str
    since: float
    """Unix seconds."""
    cause: int | None
    """The seq of the envelope that caused the condition."""


class ActiveConditions(Struct, frozen=True):
    """State: all visible conditions, the worst first, then the oldest."""

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
    """How many times the reader left items untouched for too long."""
    waiting_seconds: float
    """How long the reader has left an item waiting, now."""
    is_slow: bool


class LoopLag(Struct, frozen=True):
    """How late the loop woke sleepers, over the window."""

    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    samples: int

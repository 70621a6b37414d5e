"""Events of the node in its cluster, and of the configuration."""

from typing import ClassVar

from nodeagent.model.values import Value


class LabelsApplied(Value, frozen=True):
    """Node labels were written to a sink."""

    sink: str
    changed: tuple[str, ...]


class LabelsContested(Value, frozen=True):
    """Another program writes labels of the node with other values than the agent's; the labels are left to it."""

    keys: tuple[str, ...]


class SlicesWritten(Value, frozen=True):
    """The node's slices for schedulers were written."""

    pool: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    generation: int


class ConfigurationReloaded(Value, frozen=True):
    """A new configuration was read; settings that can change while running are in force."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class ConfigurationRejected(Value, frozen=True):
    """A new configuration was read and is invalid; the configuration before stays in force."""

    problems: tuple[str, ...]


class WishRefused(Value, frozen=True):
    """A node request, by a label, was refused."""

    shown_as: ClassVar[str] = "WishRefused"

    label: str
    value: str
    reason: str

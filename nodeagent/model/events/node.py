"""What happened to the node in its cluster, and to the configuration."""

from nodeagent.model.values import Value


class LabelsApplied(Value, frozen=True):
    """Node labels were written to a sink."""

    sink: str
    changed: tuple[str, ...]


class LabelsContested(Value, frozen=True):
    """Somebody else writes labels of this node otherwise than we would; they are left to them."""

    keys: tuple[str, ...]


class SlicesWritten(Value, frozen=True):
    """Schedulers were told anew what claims can have on this node."""

    pool: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    generation: int


class ConfigurationReloaded(Value, frozen=True):
    """A new configuration was read; what could change while running has changed."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class ConfigurationRejected(Value, frozen=True):
    """A new configuration was read and is invalid; the one before stays in force."""

    problems: tuple[str, ...]


class WishRefused(Value, frozen=True):
    """The cluster asks something of this node, by a label, that it does not get."""

    label: str
    value: str
    reason: str

"""Node labels, wanted and applied."""

from msgspec import field

from nodeagent.model.values import Value


class LabelState(Value, frozen=True):
    """State: what this node should be called, and what it is called."""

    wanted: dict[str, str]
    applied: dict[str, str]
    sink: str = ""
    since_seconds: float = 0.0
    last_error: str = ""
    held_back: dict[str, str] = field(default_factory=dict)
    """What is wanted once it has lasted, by key; empty for a label that is to go."""

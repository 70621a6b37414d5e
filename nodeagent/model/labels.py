"""Node labels, wanted and applied."""

from msgspec import field

from nodeagent.model.values import Value


class LabelState(Value, frozen=True):
    """State: the labels wanted for the node, and the labels applied."""

    wanted: dict[str, str]
    applied: dict[str, str]
    sink: str = ""
    since_seconds: float = 0.0
    last_error: str = ""
    held_back: dict[str, str] = field(default_factory=dict)
    """Values wanted once they have lasted, by key; empty for a label to be removed."""

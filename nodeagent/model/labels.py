"""Node labels, wanted and applied."""

from nodeagent.model.values import Value


class LabelState(Value, frozen=True):
    """State: what this node should be called, and what it is called."""

    wanted: dict[str, str]
    applied: dict[str, str]
    sink: str = ""
    since_seconds: float = 0.0
    last_error: str = ""

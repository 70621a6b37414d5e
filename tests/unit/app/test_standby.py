"""What a standby says of its wait."""

from pathlib import Path

import pytest

from nodeagent.app.standby import describe_wait
from nodeagent.edge.host.errors import StateLocked

REFUSAL = StateLocked(Path("/var/lib/nodeagent/agent.lock"), 1, "nodeagent-x7k2p")


@pytest.mark.parametrize(
    ("waited_seconds", "patience_seconds", "is_long"), [(119.9, 120.0, False), (120.0, 120.0, True), (0.0, 0.0, True)]
)
def test_a_long_wait_has_a_remedy(waited_seconds: float, patience_seconds: float, *, is_long: bool) -> None:
    """The holder by process and pod, the lock, the time; the remedy once the time is over."""
    said = describe_wait(REFUSAL, waited_seconds, patience_seconds)
    assert said.startswith("process 1 of nodeagent-x7k2p held /var/lib/nodeagent/agent.lock when this agent started")
    assert f"has waited {waited_seconds:.0f} s since" in said
    assert ("stop the nodeagent that has the lock" in said) == is_long

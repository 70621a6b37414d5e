"""Slots of repairs: Leases that stand before, so that only so many nodes of a domain are repaired at once."""

import hashlib
from typing import Final

from nodeagent.model.values import Value

CLUSTER: Final = "cluster"
"""The key of the domain of all nodes, which has no label."""


class Domain(Value, frozen=True):
    """Nodes of which only so many are repaired at once."""

    key: str
    """The label's key; `cluster` for all nodes."""
    value: str
    slots: int

    def __str__(self) -> str:
        """The domain as messages name it."""
        return f"{self.key} {self.value}".rstrip()

    def name_slot(self, number: int) -> str:
        """The name of the Lease; the chart makes the Leases by the same rule."""
        digest = hashlib.sha256(f"{self.key}={self.value}".encode()).hexdigest()
        return f"nodeagent-repair-{digest[:12]}-{number}"


class Holder(Value, frozen=True):
    """The holder of a slot: a session of a node."""

    node: str
    boot: str
    session: int
    phase: int = 0
    """The phase of the breaker in which the slot was taken."""

    def __str__(self) -> str:
        """The text in the Lease."""
        return f"{self.node}/{self.boot}/{self.session}/{self.phase}"

    def owns(self, holder: str) -> bool:
        """Whether the text is of this session, of whatever boot: a node takes its slot over after its reboot."""
        node, _, session, phase = holder.split("/") if holder.count("/") == 3 else ("", "", "", "")
        return (node, session) == (self.node, str(self.session)) and phase.isdecimal()


class Slot(Value, frozen=True):
    """A slot's Lease as it was read."""

    number: int
    version: str
    """Changed by each write; the API server refuses a write over an older one."""
    holder: str = ""
    renewed: str = ""
    """When the holder says to have written; compared with no clock, only with what was read before."""
    seconds: float = 0.0
    """How long the slot is held without a renewal."""
    breaker: str = ""
    """The text of the breaker; only the first slot of a domain has one."""
    is_suspended: bool = False
    """Whether a person has suspended the domain; only the first slot says so."""

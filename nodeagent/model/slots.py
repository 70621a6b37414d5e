"""Slots: Leases that stand before, so that only so many nodes of a domain are repaired or upgraded at once."""

import hashlib
from typing import Final

from nodeagent.model.values import Value

CLUSTER: Final = "cluster"
"""The key of the domain of all nodes, which has no label."""
UPGRADE_PREFIX: Final = "upgrade-"
"""Of the names of upgrades; the name of a fault session is its number alone."""


class Domain(Value, frozen=True):
    """Nodes of which only so many are repaired or upgraded at once."""

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


class SlotWork(Value, frozen=True):
    """Work of a node that takes slots: the repair of a fault session, or an upgrade of the driver."""

    name: str
    """The name within a holder: a session's number, or `upgrade-` with an upgrade's number."""
    held_seconds: float
    """For how long its slots are held without a renewal."""
    opened_seconds: float
    closed_seconds: float | None = None
    """`None` for open work."""
    began_seconds: float | None = None
    """The beginning of the act under way, which is finished whatever is said of the domains; `None` without an act."""
    is_grave: bool = False
    """Whether the work asks sooner."""
    is_proven: bool = False
    """Whether the work has ended with a proof."""
    failed_seconds: float | None = None
    """The beginning of the last try that was not proven; `None` without such a try."""


class Holder(Value, frozen=True):
    """The holder of a slot: a node's work."""

    node: str
    boot: str
    work: str
    phase: int = 0
    """The phase of the breaker in which the slot was taken."""

    def __str__(self) -> str:
        """The text in the Lease."""
        return f"{self.node}/{self.boot}/{self.work}/{self.phase}"

    def owns(self, holder: str) -> bool:
        """Whether the text is of this work, of whatever boot: a node takes its slot over after its reboot."""
        node, _, work, phase = holder.split("/") if holder.count("/") == 3 else ("", "", "", "")
        return (node, work) == (self.node, self.work) and phase.isdecimal()


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

"""Marks of people and other programs on a node, and events for NVSentinel's platform connector."""

from enum import IntEnum
from typing import Final

from nodeagent.model.values import Value

STATE_LABEL: Final = "dgxc.nvidia.com/nvsentinel-state"
REPAIRS_LABEL: Final = "nodeagent.io/repairs"
"""With the value `off` a person forbids repairs of the node."""
SKIP_ANNOTATION: Final = "cluster.x-k8s.io/skip-remediation"
"""The annotation of Cluster API that keeps remediation from a machine."""
MANAGED_LABEL: Final = "nvsentinel.dgxc.nvidia.com/managed"
RELEASE_TAINTS: Final = frozenset(
    {"nvsentinel.dgxc.nvidia.com/external-remediation", "nvsentinel.nvidia.com/external-remediation"}
)
"""The taint of a node that NVSentinel has left to another program; the second key is of NVSentinel's older designs."""


class NvsentinelAction(IntEnum):
    """What NVSentinel is asked to do about a fault, by NVSentinel's own numbers."""

    NONE = 0
    COMPONENT_RESET = 2
    CONTACT_SUPPORT = 5
    RESTART_BM = 24


class NvsentinelEvent(Value, frozen=True):
    """A fault of a GPU, or the end of the fault."""

    check: str
    """A name for the kind of fault; the type of the node condition that NVSentinel may write."""
    entities: tuple[tuple[str, str], ...]
    """Types and values of what the fault is of."""
    error_code: str
    message: str
    action: NvsentinelAction
    is_fatal: bool
    at_seconds: float
    """Unix seconds of the fault, or of its end."""
    is_healthy: bool = False
    is_acted_on: bool = False
    """Whether NVSentinel may change the cluster because of the event, and not only store the event."""

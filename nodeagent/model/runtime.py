"""The container runtime and the CDI specifications, as this node has them."""

from enum import StrEnum

from nodeagent.model.values import Value


class RuntimeKind(StrEnum):
    """Which runtime serves the kubelet."""

    CONTAINERD = "containerd"
    CRIO = "cri-o"
    DOCKER = "docker"
    UNKNOWN = "unknown"


class RuntimeState(Value, frozen=True):
    """State: whether containers on this node can be given GPUs."""

    kind: RuntimeKind
    version: str = ""
    socket: str = ""
    config_file: str = ""
    cdi_enabled: bool | None = None
    restart_needed: str = ""
    """The exact command that would bring the written configuration into force; empty when it is in force."""


class CdiSpecFile(Value, frozen=True):
    """One specification file in one of the CDI directories."""

    path: str
    kind: str
    version: str
    devices: tuple[str, ...] = ()
    ours: bool = False


class CdiState(Value, frozen=True):
    """State: the specifications in force, and for which inventory they were written."""

    generation: int
    files: tuple[CdiSpecFile, ...] = ()
    left_out: tuple[str, ...] = ()
    """Devices without an entry, each with its reason."""

"""Ports of the API server, of other programs that label nodes, and of configurations that labels choose."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction


class PodEviction(Protocol):
    """Asks pods to go, as `kubectl drain` does: their disruption budgets have the last word."""

    async def evict_pod(self, pod: PodIdentity) -> Eviction:
        """Evict a pod; safe to repeat while the pod goes."""
        ...


class ClientPausing(Protocol):
    """Other operands on the node with the driver open, and the labels that pause them."""

    async def read_labels(self) -> Mapping[str, str]:
        """The node's labels, read now and not as last seen."""
        ...

    async def write_label(self, key: str, value: str) -> None:
        """Set a label of the node, whoever has set it before."""
        ...

    async def list_pods(self, applications: Sequence[str]) -> tuple[str, ...]:
        """The node's pods with any of these values of the label `app`, as `namespace/name`."""
        ...


class LabelFile(Protocol):
    """A file of labels for another program."""

    async def read(self) -> str:
        """The file's text; empty when there is no file."""
        ...

    async def write(self, text: str) -> None:
        """Replace the file atomically."""
        ...

    async def remove(self) -> bool:
        """Remove the file, because its labels are kept up no more; False when there is none."""
        ...


class ConfigurationControl(Protocol):
    """The named configurations of the node, chosen by the cluster."""

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        """Put the configuration named by the node's label in force, or the default for no name; reports the changes.

        Raises:
            ControlRefused: No configuration of that name, or an invalid configuration; the one before stays in force.
        """
        ...

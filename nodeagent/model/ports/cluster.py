"""Ports of the API server, and of other programs that label nodes."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import ClusterNode, Eviction, NodeCondition, NodeEvent, PodLabelTable, Taint


class NodeApi(Protocol):
    """The node in the cluster; every call is bounded in time and fails with a `NodeagentError` only."""

    def follow_node(self) -> AsyncGenerator[ClusterNode, None]:
        """The node now and after each change, whoever made it; runs until the watch breaks.

        Raises:
            NodeagentError: The node cannot be followed (any longer).
        """
        ...

    async def apply_labels(self, node: ClusterNode, labels: Mapping[str, str]) -> None:
        """Set the agent's labels to exactly these; labels of others stay.

        Raises:
            NodeagentError: The labels were not applied.
        """
        ...

    async def write_condition(self, condition: NodeCondition, *, changed: bool) -> None:
        """Set a condition; `changed` says whether its status is another than before.

        Raises:
            NodeagentError: The condition was not written.
        """
        ...

    async def remove_condition(self, kind: str) -> None:
        """Remove the condition of a type.

        Raises:
            NodeagentError: The condition was not removed.
        """
        ...

    async def write_label(self, key: str, value: str | None) -> None:
        """Set a label, or remove it, whoever has set it before.

        Raises:
            NodeagentError: The label was not written.
        """
        ...

    async def write_annotation(self, key: str, value: str | None) -> None:
        """Set an annotation, or remove it.

        Raises:
            NodeagentError: The annotation was not written.
        """
        ...

    async def change_taint(self, taint: Taint, *, present: bool) -> None:
        """Add a taint, or remove it.

        Raises:
            NodeagentError: The taint was not changed.
        """
        ...

    async def write_event(self, node: ClusterNode, event: NodeEvent, count: int) -> None:
        """Write an event, with the number of its occurrences.

        Raises:
            NodeagentError: The event was not written.
        """
        ...


class PodApi(Protocol):
    """The node's pods in the cluster."""

    def follow_pods(self) -> AsyncGenerator[PodLabelTable, None]:
        """The pods' labels now and after each change; runs until the watch breaks.

        Raises:
            NodeagentError: The pods cannot be followed (any longer).
        """
        ...


class PodEviction(Protocol):
    """Asks pods to go, as `kubectl drain` does: their disruption budgets have the last word."""

    async def evict_pod(self, pod: PodIdentity) -> Eviction:
        """Evict a pod; safe to repeat while the pod goes.

        Raises:
            NodeagentError: The API server could not be asked, or the right to evict is missing.
        """
        ...


class ClientPausing(Protocol):
    """Other operands on the node with the driver open, and the labels that pause them."""

    async def read_labels(self) -> Mapping[str, str]:
        """The node's labels, read now and not as last seen.

        Raises:
            NodeagentError: The labels could not be read.
        """
        ...

    async def write_label(self, key: str, value: str) -> None:
        """Set a label of the node, whoever has set it before.

        Raises:
            NodeagentError: The label was not written.
        """
        ...

    async def list_pods(self, applications: Sequence[str]) -> tuple[str, ...]:
        """The node's pods with any of these values of the label `app`, as `namespace/name`.

        Raises:
            NodeagentError: The pods could not be listed.
        """
        ...


class LabelFile(Protocol):
    """A file of labels for another program."""

    async def read(self) -> str:
        """The file's text; empty when there is no file.

        Raises:
            NodeagentError: The file cannot be read.
        """
        ...

    async def write(self, text: str) -> None:
        """Replace the file atomically.

        Raises:
            NodeagentError: The file cannot be written.
        """
        ...

    async def remove(self) -> bool:
        """Remove the file, because its labels are kept up no more; False when there is none.

        Raises:
            NodeagentError: The file exists and cannot be removed.
        """
        ...

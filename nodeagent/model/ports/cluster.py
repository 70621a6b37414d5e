"""What is asked of the API server, and of those who label nodes in its place."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import ClusterNode, Eviction, NodeCondition, NodeEvent, PodLabelTable, Taint


class NodeApi(Protocol):
    """This node in the cluster; every call is bounded in time and fails with a `NodeagentError` only."""

    def follow_node(self) -> AsyncGenerator[ClusterNode, None]:
        """The node now and after each change that anybody makes to it; runs until something breaks.

        Raises:
            NodeagentError: it cannot be followed (any longer).
        """
        ...

    async def apply_labels(self, node: ClusterNode, labels: Mapping[str, str]) -> None:
        """Make exactly these labels ours; those of others stay.

        Raises:
            NodeagentError: they were not applied.
        """
        ...

    async def write_condition(self, condition: NodeCondition, *, changed: bool) -> None:
        """Set one condition; `changed` says whether its status is another than before.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def remove_condition(self, kind: str) -> None:
        """Take the condition of this type away.

        Raises:
            NodeagentError: it was not removed.
        """
        ...

    async def write_label(self, key: str, value: str | None) -> None:
        """Set one label, or take it off, whoever has set it before.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def write_annotation(self, key: str, value: str | None) -> None:
        """Set an annotation, or take it off.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def change_taint(self, taint: Taint, *, present: bool) -> None:
        """Put a taint on, or take it off.

        Raises:
            NodeagentError: it was not changed.
        """
        ...

    async def write_event(self, node: ClusterNode, event: NodeEvent, count: int) -> None:
        """Tell people something that happened so many times.

        Raises:
            NodeagentError: it was not written.
        """
        ...


class PodApi(Protocol):
    """The pods of this node in the cluster."""

    def follow_pods(self) -> AsyncGenerator[PodLabelTable, None]:
        """Their labels now and after each change; runs until something breaks.

        Raises:
            NodeagentError: they cannot be followed (any longer).
        """
        ...


class PodEviction(Protocol):
    """Asks pods to go, as `kubectl drain` does: their disruption budgets have the last word."""

    async def evict_pod(self, pod: PodIdentity) -> Eviction:
        """Ask one pod to go; safe to repeat while it goes.

        Raises:
            NodeagentError: nobody could be asked, or the right to it is missing.
        """
        ...


class ClientPausing(Protocol):
    """Parts of others on this node that have the driver open, and the labels by which they are paused."""

    async def read_labels(self) -> Mapping[str, str]:
        """The node's labels now, and not as they were last seen.

        Raises:
            NodeagentError: they could not be read.
        """
        ...

    async def write_label(self, key: str, value: str) -> None:
        """Set one label of the node, whoever has set it before.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def list_pods(self, applications: Sequence[str]) -> tuple[str, ...]:
        """The pods of this node with one of these values of the label `app`, by name.

        Raises:
            NodeagentError: they could not be listed.
        """
        ...


class LabelFile(Protocol):
    """A file of labels that another program reads."""

    async def read(self) -> str:
        """What it says; nothing when there is none.

        Raises:
            NodeagentError: it cannot be read.
        """
        ...

    async def write(self, text: str) -> None:
        """Replace it, whole.

        Raises:
            NodeagentError: it cannot be written.
        """
        ...

    async def remove(self) -> bool:
        """Take it away, for nobody keeps it true any more; False when there is none.

        Raises:
            NodeagentError: it is there and cannot be removed.
        """
        ...

"""What is asked of the API server, and of those who label nodes in its place."""

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from nodeagent.model.cluster import ClusterNode, NodeCondition, NodeEvent, PodLabelTable, Taint


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
        """Set the node condition; `changed` says whether its status is another than before.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def write_label(self, key: str, value: str) -> None:
        """Set one label, whoever has set it before.

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

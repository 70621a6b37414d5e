"""The cluster as a component sees it: one node that keeps what is written to it and can be taken away."""

from collections.abc import AsyncGenerator, Mapping

import anyio
from msgspec.structs import replace

from nodeagent.model.cluster import READY_CONDITION, ClusterNode, NodeCondition, NodeEvent, Taint
from nodeagent.model.errors import NodeagentError


class FakeNodeApi:
    """The port `NodeApi`; the test changes `node` by `become`, and sets `trouble` to have everything refused."""

    def __init__(self) -> None:
        self.node = ClusterNode(name="node-1", uid="uid-1")
        self.trouble: NodeagentError | None = None
        self.write_trouble: NodeagentError | None = None
        self.writes: list[str] = []
        self.shows_conditions = True
        """Whether those who follow the node see what was written."""
        self.events: list[tuple[NodeEvent, int]] = []
        self._changed = anyio.Event()

    def become(self, **changes: object) -> None:
        self.node = replace(self.node, **changes)
        self._wake()

    def go_away(self, error: NodeagentError) -> None:
        self.trouble = error
        self._wake()

    async def follow_node(self) -> AsyncGenerator[ClusterNode, None]:
        while True:
            if self.trouble is not None:
                raise self.trouble
            yield self.node
            seen = self.node
            while self.node is seen and self.trouble is None:
                await self._changed.wait()

    async def apply_labels(self, node: ClusterNode, labels: Mapping[str, str]) -> None:
        self._write("labels")
        foreign = {key: value for key, value in self.node.labels.items() if key not in self.node.owned_labels}
        self.become(labels=foreign | dict(labels), owned_labels=tuple(sorted(labels)))

    async def write_condition(self, condition: NodeCondition, *, changed: bool) -> None:
        self._write(f"condition {'changed' if changed else 'same'}")
        if not self.shows_conditions:
            return
        if condition.type == READY_CONDITION:
            self.become(condition=condition)
        else:
            self.become(device_conditions=(*self._list_others(condition.type), condition))

    async def remove_condition(self, kind: str) -> None:
        self._write(f"no condition {kind}")
        self.become(device_conditions=self._list_others(kind))

    def _list_others(self, kind: str) -> tuple[NodeCondition, ...]:
        return tuple(each for each in self.node.device_conditions if each.type != kind)

    async def write_label(self, key: str, value: str) -> None:
        self._write(f"label {key}")
        self.become(labels=self.node.labels | {key: value})

    async def write_annotation(self, key: str, value: str | None) -> None:
        self._write(f"annotation {key}")
        others = {name: text for name, text in self.node.annotations.items() if name != key}
        self.become(annotations=others | ({key: value} if value is not None else {}))

    async def change_taint(self, taint: Taint, *, present: bool) -> None:
        self._write(f"taint {present}")
        others = tuple(each for each in self.node.taints if each != taint)
        self.become(taints=(*others, taint) if present else others)

    async def write_event(self, node: ClusterNode, event: NodeEvent, count: int) -> None:
        self._write("event")
        self.events.append((event, count))

    def _write(self, what: str) -> None:
        error = self.trouble or self.write_trouble
        if error is not None:
            raise error
        self.writes.append(what)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

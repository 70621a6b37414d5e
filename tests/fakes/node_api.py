"""The cluster as a component sees it: one node that keeps what is written to it and can be taken away.

What it does is compared with the agent's own client in `tests/contract/apiserver/test_ports.py`.
"""

from collections.abc import AsyncGenerator, Mapping

import anyio
from msgspec.structs import replace

from nodeagent.edge.kube.errors import ApiConflict
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubePodStatus
from nodeagent.model.cluster import (
    DEVICE_PREFIX,
    READY_CONDITION,
    ClusterNode,
    EventSeries,
    NodeCondition,
    NodeEvent,
    Taint,
)
from nodeagent.model.errors import NodeagentError


class FakePodStatus(KubePodStatus):
    """Conditions of pods: those written, by the pod's name; `trouble` has every write refused."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.series: list[EventSeries] = []
        self.gone: set[str] = set()
        self.trouble: NodeagentError | None = None

    async def write_fault(self, series: EventSeries) -> bool:
        if self.trouble is not None:
            raise self.trouble
        if series.pod.name in self.gone:
            return False
        self.written.append(series.pod.name)
        self.series.append(series)
        return True


class FakeNodeApi(KubeNode):
    """The port `KubeNode`; the test changes `node` by `become`, and sets `trouble` to have everything refused."""

    def __init__(self) -> None:
        self._states = [ClusterNode(name="node-1", uid="uid-1")]
        self.trouble: NodeagentError | None = None
        self.write_trouble: NodeagentError | None = None
        self.writes: list[str] = []
        self.shows_conditions = True
        """Whether those who follow the node see what was written."""
        self.events: list[tuple[NodeEvent, int]] = []
        self.series: list[EventSeries] = []
        self.pod_troubles: dict[str, NodeagentError] = {}
        """By the name of a pod what writing an event on the pod answers."""
        self._changed = anyio.Event()

    @property
    def node(self) -> ClusterNode:
        return self._states[-1]

    @node.setter
    def node(self, node: ClusterNode) -> None:
        self._tell(node)

    def become(self, **changes: object) -> None:
        """The node changes; what changes nothing is not told."""
        node = replace(self.node, **changes)
        if node != self.node:
            self._tell(node)

    def go_away(self, error: NodeagentError) -> None:
        self.trouble = error
        self._wake()

    async def follow_node(self) -> AsyncGenerator[ClusterNode, None]:
        place = len(self._states) - 1
        while True:
            if self.trouble is not None:
                raise self.trouble
            yield self._states[place]
            place += 1
            while place == len(self._states) and self.trouble is None:
                await self._changed.wait()

    async def apply_labels(self, node: ClusterNode, labels: Mapping[str, str]) -> None:
        self._write("labels")
        foreign = {key: value for key, value in self.node.labels.items() if key not in self.node.owned_labels}
        for key in foreign.keys() & labels.keys():
            if foreign[key] != labels[key]:
                raise ApiConflict("apply this node's labels", 409, f"conflict: .metadata.labels.{key}")
        self.become(labels=foreign | dict(labels), owned_labels=tuple(sorted(labels)))

    async def write_condition(self, condition: NodeCondition, *, changed: bool) -> None:
        self._write(f"condition {'changed' if changed else 'same'}")
        if not self.shows_conditions:
            return
        # Told even if it is the same: it has a new time.
        devices, others = self._list_others(condition.type)
        if condition.type == READY_CONDITION:
            self._tell(replace(self.node, condition=condition))
        elif condition.type.startswith(DEVICE_PREFIX):
            self._tell(replace(self.node, device_conditions=(*devices, condition)))
        else:
            self._tell(
                replace(
                    self.node,
                    other_conditions=(*others, condition),
                    written_conditions=tuple(sorted({*self.node.written_conditions, condition.type})),
                    condition_writers={k: v for k, v in self.node.condition_writers.items() if k != condition.type},
                )
            )

    async def remove_condition(self, kind: str) -> None:
        self._write(f"no condition {kind}")
        devices, others = self._list_others(kind)
        written = tuple(each for each in self.node.written_conditions if each != kind)
        left = None if kind == READY_CONDITION else self.node.condition
        self.become(device_conditions=devices, other_conditions=others, written_conditions=written, condition=left)

    def _list_others(self, kind: str) -> tuple[tuple[NodeCondition, ...], tuple[NodeCondition, ...]]:
        """The conditions of devices and those of other programs, without the one of the type."""
        devices, others = (
            tuple(each for each in some if each.type != kind)
            for some in (self.node.device_conditions, self.node.other_conditions)
        )
        return devices, others

    async def write_label(self, key: str, value: str | None) -> None:
        self._write(f"label {key}")
        owned = self.node.owned_labels
        if self.node.labels.get(key) != value:
            owned = tuple(each for each in owned if each != key)
        others = {name: text for name, text in self.node.labels.items() if name != key}
        self.become(labels=others | ({key: value} if value is not None else {}), owned_labels=owned)

    async def write_annotation(self, key: str, value: str | None) -> None:
        self._write(f"annotation {key}")
        others = {name: text for name, text in self.node.annotations.items() if name != key}
        self.become(annotations=others | ({key: value} if value is not None else {}))

    async def change_taint(self, taint: Taint, *, present: bool) -> None:
        self._write(f"taint {present}")
        others = tuple(each for each in self.node.taints if (each.key, each.effect) != (taint.key, taint.effect))
        if not present:
            self.become(taints=others)
        elif others == self.node.taints:
            self.become(taints=(*others, taint))

    async def write_event(self, node: ClusterNode, event: NodeEvent, count: int) -> None:
        self._write("event")
        self.events.append((event, count))

    async def write_series(self, series: EventSeries) -> None:
        if (trouble := self.pod_troubles.get(series.pod.name)) is not None:
            raise trouble
        self._write("series")
        self.series.append(series)

    def _write(self, what: str) -> None:
        error = self.trouble or self.write_trouble
        if error is not None:
            raise error
        self.writes.append(what)

    def _tell(self, node: ClusterNode) -> None:
        self._states.append(node)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

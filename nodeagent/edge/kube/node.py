"""The node's object in the cluster: followed by a watch, changed by few and small patches, described by events.

Owns the paths and the choice of patch for each purpose:
labels by server-side apply, so that the server knows our labels and removes labels no longer applied;
the condition by strategic merge, which touches one entry of the list; taints by a merge with the version seen.
Refuses to force: fields of another manager stay the other manager's.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random

from nodeagent.core.clock import Clock
from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiConflict, ApiExpired, ApiNotFound, NodeMissing, making_sense
from nodeagent.edge.kube.event_document import find_namespace, render_event, render_repetitions, render_series
from nodeagent.edge.kube.follow import SILENCE_SECONDS, Change, Follower, News
from nodeagent.edge.kube.node_document import (
    FIELD_MANAGER,
    parse_node,
    render_condition_patch,
    render_condition_removal,
    render_labels_patch,
    render_taints_patch,
)
from nodeagent.model.cluster import ClusterNode, EventSeries, NodeCondition, NodeEvent, Taint

NODES = "/api/v1/nodes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
"""In a namespace."""

_APPLY, _MERGE, _STRATEGIC = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_MANAGER = {"fieldManager": FIELD_MANAGER}


class KubeNode:
    """The node in the cluster; every call is bounded in time and fails with a `NodeagentError` only."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        clock: Clock,
        rng: Random,
        *,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._client, self._name, self._clock, self._rng = client, name, clock, rng
        selector = {"fieldSelector": f"metadata.name={name}"}
        self._follower = Follower(client, NODES, selector, f"node {name}", rng, silence_seconds=silence_seconds)

    async def follow_node(self) -> AsyncGenerator[ClusterNode, None]:
        """The node now and after each change, whoever made it; runs until the watch breaks."""
        while True:
            try:
                async with aclosing(self._follower.follow()) as news:
                    async for one in news:
                        yield self._find(one)
            except ApiExpired:
                continue

    async def read_node(self) -> ClusterNode:
        """The present Node."""
        items, _ = await self._follower.list()
        return self._find(items)

    async def apply_labels(self, node: ClusterNode, labels: Mapping[str, str]) -> None:
        """Make exactly these labels ours; other labels stay.

        Raises:
            ApiConflict: a label belongs to another writer by now.
        """
        patch = render_labels_patch(node, labels)
        await self._patch(self._path(), patch, _APPLY, "apply this node's labels")

    async def write_condition(self, condition: NodeCondition, *, changed: bool) -> None:
        """Set a condition; `changed` says whether its status is another than before."""
        patch = render_condition_patch(condition, self._clock.wall(), changed=changed)
        await self._patch(f"{self._path()}/status", patch, _STRATEGIC, f"write this node's condition {condition.type}")

    async def remove_condition(self, kind: str) -> None:
        """Remove the condition of the type, as no writer will keep the condition true."""
        attempted = f"remove this node's condition {kind}"
        await self._patch(f"{self._path()}/status", render_condition_removal(kind), _STRATEGIC, attempted)

    async def write_label(self, key: str, value: str | None) -> None:
        """Set a label, whatever the former writer, or remove the label."""
        await self._patch(
            self._path(), {"metadata": {"labels": {key: value}}}, _MERGE, f"write this node's label {key}"
        )

    async def write_annotation(self, key: str, value: str | None) -> None:
        """Set an annotation, or remove the annotation."""
        patch = {"metadata": {"annotations": {key: value}}}
        await self._patch(self._path(), patch, _MERGE, f"write this node's annotation {key}")

    async def change_taint(self, taint: Taint, *, present: bool) -> None:
        """Add or remove a taint.

        Raises:
            ApiConflict: the node changed at that moment; try again.
        """
        attempted = f"{'put' if present else 'take'} the taint {taint.key} {'on' if present else 'off'} this node"
        document = await self._client.request("GET", self._path(), attempted=attempted)
        patch = render_taints_patch(document, add=taint if present else None, remove=None if present else taint)
        await self._patch(self._path(), patch, _MERGE, attempted)

    async def write_event(self, node: ClusterNode, event: NodeEvent, count: int) -> None:
        """Publish an event; `count` is the number since the last event of the kind."""
        document = render_event(node, event, self._clock.wall(), self._rng, count=count)
        path = EVENTS.format(find_namespace(event))
        attempted = f"write the event {event.reason}"
        await self._client.request("POST", path, attempted=attempted, query=_MANAGER, body=document)

    async def write_series(self, series: EventSeries) -> None:
        """Publish an event on a pod as one object, whose count rises; at once the first time, as the pod may go."""
        document = render_series(self._name, series)
        path = EVENTS.format(series.pod.namespace)
        place = f"{path}/{document['metadata']['name']}"
        attempted = f"write the event {series.event.reason} on the pod {series.pod.describe()}"
        if series.is_written:
            try:
                return await self._patch(place, render_repetitions(series), _MERGE, attempted)
            except ApiNotFound as error:
                # Events live for an hour; a namespace that is gone too refuses what follows.
                error.demand_object()
        try:
            await self._client.request("POST", path, attempted=attempted, query=_MANAGER, body=document, in_turn=False)
        except ApiConflict:
            await self._patch(place, render_repetitions(series), _MERGE, attempted)

    def _path(self) -> str:
        return f"{NODES}/{self._name}"

    async def _patch(self, path: str, body: Json, content_type: str, attempted: str) -> None:
        await self._client.request(
            "PATCH", path, attempted=attempted, query=_MANAGER, body=body, content_type=content_type
        )

    def _find(self, news: News) -> ClusterNode:
        if isinstance(news, Change):
            news = [news.found] if news.kind != "DELETED" else []
        if not news:
            raise NodeMissing(self._name)
        with making_sense(f"read node {self._name}"):
            return parse_node(news[0])

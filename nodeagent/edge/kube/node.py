"""This node in the cluster: followed by one watch, changed by few and small patches, spoken of in events.

Owns the paths and the choice of patch for each purpose:
labels by server-side apply, so that the server knows which are ours and takes away those we no longer name;
the condition by strategic merge, which touches one entry of the list; taints by a merge that names the version seen.
Refuses to force: what somebody else holds stays theirs.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiExpired, ApiUnreachable, NodeMissing, translate_status
from nodeagent.edge.kube.event_document import render_event
from nodeagent.edge.kube.node_document import (
    FIELD_MANAGER,
    parse_node,
    render_condition_patch,
    render_condition_removal,
    render_labels_patch,
    render_taints_patch,
)
from nodeagent.kernel.clock import Clock
from nodeagent.model.cluster import ClusterNode, NodeCondition, NodeEvent, Taint

NODES = "/api/v1/nodes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
"""Events about what has no namespace belong into this one."""
WATCH_SECONDS = (240, 480)
"""How long the server is asked to keep a watch; drawn evenly, so that nodes that started together drift apart."""
SILENCE_SECONDS = 150.0
"""A server sends a bookmark each minute; one that is silent for so long is gone."""

_APPLY, _MERGE, _STRATEGIC = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_MANAGER = {"fieldManager": FIELD_MANAGER}


class KubeNode:
    """The port `NodeApi` over one client."""

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
        self._silence_seconds = silence_seconds

    async def follow_node(self) -> AsyncGenerator[ClusterNode, None]:
        """The node now, and after each change that anybody makes to it; runs until something breaks.

        Raises:
            KubeError: the watch broke in a way that only a fresh start mends.
        """
        while True:
            node, version = await self._list_node()
            yield node
            try:
                async with aclosing(self._watch(version)) as changes:
                    async for changed in changes:
                        yield changed
            except ApiExpired:
                continue

    async def read_node(self) -> ClusterNode:
        """The node now.

        Raises:
            KubeError: it could not be read.
        """
        node, _ = await self._list_node()
        return node

    async def apply_labels(self, node: ClusterNode, labels: Mapping[str, str]) -> None:
        """Make exactly these labels ours; others stay as they are.

        Raises:
            ApiConflict: one of them is somebody else's by now.
            KubeError: anything else.
        """
        patch = render_labels_patch(node, labels)
        await self._patch(self._path(), patch, _APPLY, "apply this node's labels")

    async def write_condition(self, condition: NodeCondition, *, changed: bool) -> None:
        """Set the node condition; `changed` says whether its status is another than before.

        Raises:
            KubeError: it was not written.
        """
        patch = render_condition_patch(condition, self._clock.wall(), changed=changed)
        await self._patch(f"{self._path()}/status", patch, _STRATEGIC, "write this node's GPU condition")

    async def remove_condition(self) -> None:
        """Take the node condition away, which nobody will keep true any more.

        Raises:
            KubeError: it was not removed.
        """
        attempted = "remove this node's GPU condition"
        await self._patch(f"{self._path()}/status", render_condition_removal(), _STRATEGIC, attempted)

    async def write_annotation(self, key: str, value: str | None) -> None:
        """Set an annotation, or take it off.

        Raises:
            KubeError: it was not written.
        """
        patch = {"metadata": {"annotations": {key: value}}}
        await self._patch(self._path(), patch, _MERGE, f"write this node's annotation {key}")

    async def change_taint(self, taint: Taint, *, present: bool) -> None:
        """Put a taint on, or take it off.

        Raises:
            ApiConflict: the node changed at that moment; try again.
            KubeError: anything else.
        """
        attempted = f"{'put' if present else 'take'} the taint {taint.key} {'on' if present else 'off'} this node"
        document = await self._client.request("GET", self._path(), attempted=attempted)
        patch = render_taints_patch(document, add=taint if present else None, remove=None if present else taint)
        await self._patch(self._path(), patch, _MERGE, attempted)

    async def write_event(self, node: ClusterNode, event: NodeEvent, count: int) -> None:
        """Tell people something; `count` says how often it happened since it was last told.

        Raises:
            KubeError: it was not written.
        """
        document = render_event(node, event, self._clock.wall(), self._rng, count=count)
        await self._client.request(
            "POST", EVENTS, attempted=f"write the event {event.reason}", query=_MANAGER, body=document
        )

    def _path(self) -> str:
        return f"{NODES}/{self._name}"

    async def _patch(self, path: str, body: Json, content_type: str, attempted: str) -> None:
        await self._client.request(
            "PATCH", path, attempted=attempted, query=_MANAGER, body=body, content_type=content_type
        )

    async def _list_node(self) -> tuple[ClusterNode, str]:
        attempted = f"read node {self._name}"
        listing = await self._client.request("GET", NODES, attempted=attempted, query=self._selector())
        try:
            items, version = listing["items"] or [], str(listing["metadata"]["resourceVersion"])
            if not items:
                raise NodeMissing(self._name)
            return parse_node(items[0]), version
        except (KeyError, TypeError, ValueError) as error:
            raise ApiUnreachable("the API server", attempted, f"its answer makes no sense ({error})") from error

    async def _watch(self, version: str) -> AsyncGenerator[ClusterNode, None]:
        """The node's changes after a version, over as many watches as it takes."""
        attempted = f"watch node {self._name}"
        while True:
            query = self._selector() | {
                "watch": "1",
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(self._rng.randint(*WATCH_SECONDS)),
            }
            lines = self._client.watch(NODES, attempted=attempted, query=query, silence_seconds=self._silence_seconds)
            async with aclosing(lines):
                async for line in lines:
                    version, node = self._read_line(line, attempted, version)
                    if node is not None:
                        yield node

    def _read_line(self, line: Json, attempted: str, version: str) -> tuple[str, ClusterNode | None]:
        kind, content = line.get("type"), line.get("object")
        try:
            if kind == "ERROR":
                status: Any = content or {}
                raise translate_status(attempted, int(status.get("code", 500)), str(status.get("message", "")))
            if kind == "DELETED":
                raise NodeMissing(self._name)
            assert isinstance(content, dict)
            version = str(content["metadata"]["resourceVersion"])
            return version, None if kind == "BOOKMARK" else parse_node(content)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ApiUnreachable("the API server", attempted, f"a line makes no sense ({error})") from error

    def _selector(self) -> dict[str, str]:
        return {"fieldSelector": f"metadata.name={self._name}"}

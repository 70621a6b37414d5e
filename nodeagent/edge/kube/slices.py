"""The node's slices in the API server, followed by a watch and written one by one; the cluster's classes, followed.

Owns the paths and the selector by driver and node: slices of others are never seen. The server refuses a write after
another writer's change.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Final

from nodeagent.edge.kube.client import DRY_RUN, Json, KubeClient
from nodeagent.edge.kube.errors import ApiExpired, ApiNotFound, NodeMissing, making_sense
from nodeagent.edge.kube.follow import SILENCE_SECONDS, Change, Follower, apply_change, follow_all
from nodeagent.edge.kube.slice_document import API_VERSION, parse_content, parse_slice, render_slice
from nodeagent.model.slices import DeviceClass, SliceContent, SlicePool, StoredSlice

_PATH: Final = f"/apis/{API_VERSION}/resourceslices"
_CLASSES_PATH: Final = f"/apis/{API_VERSION}/deviceclasses"
_CLASSES: Final = "the device classes"


class KubeSlices:
    """The slices of a driver on the node; every call is bounded in time and fails with a `NodeagentError` only."""

    def __init__(
        self, client: KubeClient, pool: SlicePool, rng: Random, *, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self._client, self._pool = client, pool
        selector = {"fieldSelector": f"spec.driver={pool.driver},spec.nodeName={pool.node}"}
        self._what = f"the slices of {pool.driver} on {pool.node}"
        self._follower = Follower(client, _PATH, selector, self._what, rng, silence_seconds=silence_seconds)

    async def list_slices(self) -> tuple[StoredSlice, ...]:
        """All present slices."""
        items, _ = await self._follower.list()
        return tuple(self._parse(item, f"read {self._what}") for item in items)

    async def follow_slices(self) -> AsyncGenerator[Mapping[str, StoredSlice], None]:
        """All slices by name, now and after each change: a list and later changes, until there is a gap."""
        known: dict[str, StoredSlice] = {}
        attempted = f"read {self._what}"
        try:
            async with aclosing(self._follower.follow()) as news:
                async for one in news:
                    if isinstance(one, Change):
                        changed = self._parse(one.found, attempted)
                        apply_change(known, one.kind, changed.name, changed)
                    else:
                        known = {each.name: each for each in (self._parse(item, attempted) for item in one)}
                    yield dict(known)
        except ApiExpired:
            # A caller with writes of its own on top must know that a following list is newer than all the writes.
            return

    async def read_node_uid(self) -> str:
        """The uid of the Node, the owner of the slices.

        Raises:
            NodeMissing: there is no such node.
        """
        attempted = f"read node {self._pool.node}"
        try:
            document = await self._client.request("GET", f"/api/v1/nodes/{self._pool.node}", attempted=attempted)
        except ApiNotFound as error:
            error.demand_object()
            raise NodeMissing(self._pool.node) from error
        with making_sense(attempted):
            return str(document["metadata"]["uid"])

    async def create(self, name: str, content: SliceContent, numbers: tuple[int, int], node_uid: str) -> StoredSlice:
        """Create a slice, with its pool's generation and number of slices; returns the slice as stored."""
        body = render_slice(self._pool, name, content, numbers, node_uid)
        return await self._send("POST", _PATH, f"create slice {name}", body)

    async def update(
        self, stored: StoredSlice, content: SliceContent, numbers: tuple[int, int], node_uid: str
    ) -> StoredSlice:
        """Replace the content of a stored slice.

        Raises:
            ApiConflict: another writer changed the slice meanwhile.
        """
        body = render_slice(self._pool, stored.name, content, numbers, node_uid, stored)
        return await self._send("PUT", f"{_PATH}/{stored.name}", f"write slice {stored.name}", body)

    async def rehearse(
        self, name: str, content: SliceContent, numbers: tuple[int, int], node_uid: str, stored: StoredSlice | None
    ) -> SliceContent | None:
        """The content as the server would keep it; nothing is written. `None` for a form that the agent never writes.

        Raises:
            ApiInvalid: the server's version knows no such content.
        """
        body = render_slice(self._pool, name, content, numbers, node_uid, stored)
        method, path = ("POST", _PATH) if stored is None else ("PUT", f"{_PATH}/{name}")
        attempted = f"try slice {name}"
        answer = await self._client.request(method, path, attempted=attempted, body=body, query=DRY_RUN)
        with making_sense(attempted):
            return parse_content(self._pool, answer["spec"])[0]

    async def delete(self, stored: StoredSlice) -> None:
        """Delete a slice, if unchanged.

        Raises:
            ApiConflict: the slice was changed meanwhile.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": stored.uid, "resourceVersion": stored.version},
        }
        try:
            attempted = f"delete slice {stored.name}"
            await self._client.request("DELETE", f"{_PATH}/{stored.name}", attempted=attempted, body=body)
        except ApiNotFound as error:
            # A slice believed to be gone is never looked for again.
            error.demand_object()

    async def _send(self, method: str, path: str, attempted: str, body: Json) -> StoredSlice:
        document = await self._client.request(method, path, attempted=attempted, body=body)
        return self._parse(document, attempted)

    def _parse(self, document: Any, attempted: str) -> StoredSlice:
        with making_sense(attempted):
            return parse_slice(self._pool, document)


class KubeDeviceClasses:
    """All device classes of the cluster; every call is bounded in time and fails with a `NodeagentError` only."""

    def __init__(self, client: KubeClient, rng: Random, *, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._follower = Follower(client, _CLASSES_PATH, {}, _CLASSES, rng, silence_seconds=silence_seconds)

    def follow_classes(self) -> AsyncGenerator[Mapping[str, DeviceClass], None]:
        """All classes by name, now and after each change; runs until a failure."""
        return follow_all(self._follower, _parse_class)


def _parse_class(document: Json) -> tuple[str, DeviceClass]:
    with making_sense(f"read {_CLASSES}"):
        name, spec = str(document["metadata"]["name"]), document.get("spec") or {}
        selectors = [(each.get("cel") or {}).get("expression") for each in spec.get("selectors") or ()]
        resource = str(spec.get("extendedResourceName") or "")
        return name, DeviceClass(name=name, resource=resource, selectors=tuple(str(each or "") for each in selectors))

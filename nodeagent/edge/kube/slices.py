"""This node's slices in the API server: followed by one watch, and written one by one.

Owns the paths and the selector, which has the driver and the node: slices of others are never seen. Writes are refused
by the server where somebody else was there first.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Final

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiExpired, ApiNotFound, ApiUnreachable, NodeMissing
from nodeagent.edge.kube.follow import SILENCE_SECONDS, Follower
from nodeagent.edge.kube.slice_document import API_VERSION, parse_slice, render_slice
from nodeagent.model.slices import SliceContent, SlicePool, StoredSlice

_PATH: Final = f"/apis/{API_VERSION}/resourceslices"


class KubeSlices:
    """The port `SliceApi` over one client."""

    def __init__(
        self, client: KubeClient, pool: SlicePool, rng: Random, *, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self._client, self._pool = client, pool
        selector = {"fieldSelector": f"spec.driver={pool.driver},spec.nodeName={pool.node}"}
        self._what = f"the slices of {pool.driver} on {pool.node}"
        self._follower = Follower(client, _PATH, selector, self._what, rng, silence_seconds=silence_seconds)

    async def list_slices(self) -> tuple[StoredSlice, ...]:
        """All of them now.

        Raises:
            KubeError: they could not be listed.
        """
        items, _ = await self._follower.list()
        return tuple(self._parse(item, f"read {self._what}") for item in items)

    async def follow_slices(self) -> AsyncGenerator[Mapping[str, StoredSlice], None]:
        """All of them by name, now and after each change: one list and what came after it, until there is a gap.

        Raises:
            KubeError: they cannot be followed (any longer).
        """
        items, version = await self._follower.list()
        attempted = f"read {self._what}"
        known = {one.name: one for one in (self._parse(item, attempted) for item in items)}
        yield dict(known)
        try:
            async with aclosing(self._follower.watch(version)) as changes:
                async for kind, document in changes:
                    one = self._parse(document, attempted)
                    if kind == "DELETED":
                        known.pop(one.name, None)
                    else:
                        known[one.name] = one
                    yield dict(known)
        except ApiExpired:
            # Who put his own writes over what was told must know that what is told next is newer than all of them.
            return

    async def read_node_uid(self) -> str:
        """Of the node object, with which the slices go.

        Raises:
            NodeMissing: there is none.
            KubeError: it could not be read.
        """
        attempted = f"read node {self._pool.node}"
        try:
            document = await self._client.request("GET", f"/api/v1/nodes/{self._pool.node}", attempted=attempted)
            return str(document["metadata"]["uid"])
        except ApiNotFound as error:
            error.demand_object()
            raise NodeMissing(self._pool.node) from error
        except (KeyError, TypeError) as error:
            reason = f"its answer makes no sense ({error!r})"
            raise ApiUnreachable("the API server", attempted, reason) from error

    async def create(self, name: str, content: SliceContent, numbers: tuple[int, int], node_uid: str) -> StoredSlice:
        """Make one.

        Raises:
            KubeError: it was not made.
        """
        body = render_slice(self._pool, name, content, numbers, node_uid)
        return await self._send("POST", _PATH, f"create slice {name}", body)

    async def update(
        self, stored: StoredSlice, content: SliceContent, numbers: tuple[int, int], node_uid: str
    ) -> StoredSlice:
        """Put another content in the place of this one.

        Raises:
            ApiConflict: somebody else wrote it since.
            KubeError: anything else.
        """
        body = render_slice(self._pool, stored.name, content, numbers, node_uid, stored)
        return await self._send("PUT", f"{_PATH}/{stored.name}", f"write slice {stored.name}", body)

    async def delete(self, stored: StoredSlice) -> None:
        """Take one away, if it is still this one.

        Raises:
            ApiConflict: it was written since.
            KubeError: anything else.
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
            # One that is believed to be gone is not looked for any more.
            error.demand_object()

    async def _send(self, method: str, path: str, attempted: str, body: Json) -> StoredSlice:
        document = await self._client.request(method, path, attempted=attempted, body=body)
        return self._parse(document, attempted)

    def _parse(self, document: Any, attempted: str) -> StoredSlice:
        try:
            return parse_slice(self._pool, document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"its answer makes no sense ({error!r})"
            raise ApiUnreachable("the API server", attempted, reason) from error

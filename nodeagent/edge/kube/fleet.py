"""All nodes and all pods of the cluster: a list in pages, then watches, each from the end of the last watch.

Owns the pages, so that no list of a large cluster is ever held whole, and the selector that leaves out finished pods:
for the watcher of running pods, a finished pod is as gone as a deleted pod.
Refuses to keep anything: objects are handed on and forgotten.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from msgspec import Raw, Struct, field

from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.errors import making_sense, translate_status
from nodeagent.edge.kube.fleet_documents import Version, decode_as, parse_node, parse_pod
from nodeagent.edge.kube.follow import SILENCE_SECONDS, plan_watch
from nodeagent.edge.kube.node import NODES
from nodeagent.edge.kube.pods import PODS
from nodeagent.model.scheduling import SeenNode, SeenPod

T = TypeVar("T")
PAGE: Final = 500
"""Objects of a page, as kubectl asks."""


class Page(NamedTuple, Generic[T]):
    """Some of all objects; `version` is the list's, for the start of a watch."""

    items: list[T]
    version: str
    is_last: bool


class Change(NamedTuple, Generic[T]):
    """A change of an object; with `bookmark`, no change up to a version."""

    kind: Literal["changed", "gone", "bookmark"]
    version: str
    found: T | None


class _ListMetadata(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    following: str | None = field(default=None, name="continue")


class _List(Struct, frozen=True):
    metadata: _ListMetadata
    items: list[Raw] | None = None


class _Line(Struct, frozen=True):
    type: str
    object: Raw


class _Status(Struct, frozen=True):
    code: int = 500
    message: str = ""


class FleetWatch(Generic[T]):
    """A kind of object in the whole cluster."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        what: str,
        parse: Callable[[Raw], T],
        rng: Random,
        *,
        selector: Mapping[str, str],
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._client, self._path, self._what, self._parse, self._rng = client, path, what, parse, rng
        self._selector, self._silence_seconds = dict(selector), silence_seconds

    async def list(self) -> AsyncGenerator[Page[T], None]:
        """All present objects, page by page.

        Raises:
            ApiExpired: the listing took so long that the list is too old; begin anew.
        """
        following = ""
        while True:
            query = self._selector | {"limit": str(PAGE)} | ({"continue": following} if following else {})
            page, following = await self._client.fetch(
                self._path, self._read_page, attempted=f"list {self._what}", query=query
            )
            yield page
            if page.is_last:
                return

    async def watch(
        self, version: str, on_open: Callable[[], object] = lambda: None
    ) -> AsyncGenerator[Change[T], None]:
        """Changes after a version, over as many watches as needed; `on_open` is called for each watch.

        Raises:
            ApiExpired: the version is too old; list anew.
            KubeError: the watch broke.
        """
        attempted = f"watch {self._what}"
        while True:
            query = self._selector | plan_watch(version, self._rng)
            lines = self._client.watch(
                self._path,
                self._read_line,
                attempted=attempted,
                query=query,
                silence_seconds=self._silence_seconds,
                on_open=on_open,
            )
            async with aclosing(lines):
                async for line in lines:
                    if isinstance(line, _Status):
                        raise translate_status(attempted, line.code, line.message)
                    version = line.version
                    yield line

    def _read_page(self, content: bytes) -> tuple[Page[T], str]:
        listing = decode_as(content, _List, f"a list of {self._what}")
        following = listing.metadata.following or ""
        items = [self._parse(item) for item in listing.items or ()]
        return Page(items, listing.metadata.resource_version, not following), following

    def _read_line(self, content: bytes) -> Change[T] | _Status:
        line = decode_as(content, _Line, f"a line of a watch of {self._what}")
        if line.type == "ERROR":
            return decode_as(line.object, _Status, "a status")
        version = decode_as(line.object, Version, "an object").version
        if not version:
            raise ValueError("an object has no version")
        if line.type == "BOOKMARK":
            return Change("bookmark", version, None)
        return Change("gone" if line.type == "DELETED" else "changed", version, self._parse(line.object))


def watch_nodes(client: KubeClient, rng: Random, *, silence_seconds: float) -> FleetWatch[SeenNode]:
    """Every node."""
    return FleetWatch(client, NODES, "all nodes", parse_node, rng, selector={}, silence_seconds=silence_seconds)


def watch_pods(client: KubeClient, rng: Random, *, silence_seconds: float) -> FleetWatch[SeenPod]:
    """Every pod that has not finished."""
    selector = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    return FleetWatch(client, PODS, "all pods", parse_pod, rng, selector=selector, silence_seconds=silence_seconds)


class PodAnnotations:
    """Writes annotations of any pod, for exactly the pod seen before."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def write(self, pod: SeenPod, annotations: Mapping[str, str | None], *, at_version: str = "") -> str:
        """Set annotations, and remove annotations with the value `None`; returns the pod's new version.

        Args:
            pod: the pod; a later pod of the same name is left alone.
            annotations: by key.
            at_version: the pod's expected version; empty for any version.

        Raises:
            ApiNotFound: the pod is gone.
            ApiConflict: the pod was replaced or has changed.
        """
        metadata: dict[str, object] = {"uid": pod.uid, "annotations": dict(annotations)}
        if at_version:
            metadata["resourceVersion"] = at_version
        attempted = f"write the choice for pod {pod.namespace}/{pod.name}"
        document = await self._client.request(
            "PATCH",
            f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}",
            attempted=attempted,
            query={"fieldManager": "nodeagent-extender"},
            body={"metadata": metadata},
            content_type="application/merge-patch+json",
        )
        with making_sense(attempted):
            return str(document["metadata"]["resourceVersion"])

"""Objects of the API server and changes of the objects: a list, then watches, each from the end of the last watch.

Owns versions, bookmarks and the end of watches. Refuses to interpret the objects, and to keep the objects.
"""

from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, TypeVar

from nodeagent.edge.kube.client import JSON, Json, KubeClient, parse_document
from nodeagent.edge.kube.errors import ApiExpired, ApiUnreachable, making_sense, translate_status

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

WATCH_SECONDS = (240, 480)
"""The requested duration of a watch; drawn evenly, so that nodes started together drift apart."""
SILENCE_SECONDS = 150.0
"""A server sends a bookmark each minute; a server silent for so long is gone."""


def plan_watch(version: str, rng: Random) -> dict[str, str]:
    """The query for a watch from a version on."""
    return {
        "watch": "1",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(rng.randint(*WATCH_SECONDS)),
    }


class Follower:
    """A kind of object, narrowed by a selector; `what` names the objects for people."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        selector: Mapping[str, str],
        what: str,
        rng: Random,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        accept: tuple[str, str] = (JSON, JSON),
    ) -> None:
        """`accept` has the media types for a list and for the objects of a watch."""
        self._client, self._path, self._selector, self._what = client, path, dict(selector), what
        self._rng, self._silence_seconds, self._accept = rng, silence_seconds, accept

    async def list(self) -> tuple[list[Json], str]:
        """All present objects, and the version for the start of a watch."""
        attempted = f"read {self._what}"
        listing = await self._client.request(
            "GET", self._path, attempted=attempted, query=self._selector, accept=self._accept[0]
        )
        with making_sense(attempted):
            return list(listing["items"] or []), str(listing["metadata"]["resourceVersion"])

    async def watch(self, version: str) -> AsyncGenerator[tuple[str, Json], None]:
        """Changes after a version, over as many watches as needed: the kind of change and the object.

        Raises:
            ApiExpired: the version is too old; list anew.
            KubeError: the watch broke.
        """
        attempted = f"watch {self._what}"
        while True:
            query = self._selector | plan_watch(version, self._rng)
            lines = self._client.watch(
                self._path,
                parse_document,
                attempted=attempted,
                query=query,
                silence_seconds=self._silence_seconds,
                accept=self._accept[1],
            )
            async with aclosing(lines):
                async for line in lines:
                    kind, version, found = _read_line(line, attempted)
                    if kind != "BOOKMARK":
                        yield kind, found


def _read_line(line: Json, attempted: str) -> tuple[str, str, Json]:
    kind, content = line.get("type"), line.get("object")
    try:
        if kind == "ERROR":
            status: Any = content or {}
            raise translate_status(attempted, int(status.get("code", 500)), str(status.get("message", "")))
        assert isinstance(content, dict)
        return str(kind), str(content["metadata"]["resourceVersion"]), content
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ApiUnreachable("the API server", attempted, f"a line makes no sense ({error})") from error


async def follow_all(follower: Follower, parse: Callable[[Json], tuple[K, V]]) -> AsyncGenerator[Mapping[K, V], None]:
    """All objects by key, now and after each change; runs until a failure."""
    while True:
        items, version = await follower.list()
        known = dict(map(parse, items))
        yield dict(known)
        try:
            async with aclosing(follower.watch(version)) as changes:
                async for kind, document in changes:
                    key, value = parse(document)
                    if kind == "DELETED":
                        known.pop(key, None)
                    else:
                        known[key] = value
                    yield dict(known)
        except ApiExpired:
            continue

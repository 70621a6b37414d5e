"""Objects of the API server and changes of the objects: a list, then watches, each from the end of the last watch.

Owns versions, bookmarks and the end of watches. Where the server streams lists, the first watch brings the list too.
Refuses to interpret the objects, and to keep the objects.
"""

from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import anyio

from nodeagent.edge.kube.client import JSON, Json, KubeClient, parse_document
from nodeagent.edge.kube.errors import (
    ApiExpired,
    ApiInvalid,
    ApiRefused,
    ApiUnreachable,
    making_sense,
    translate_status,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

WATCH_SECONDS = (240, 480)
"""The requested duration of a watch; drawn evenly, so that nodes started together drift apart."""
SILENCE_SECONDS = 150.0
"""A server sends a bookmark each minute; a server silent for so long is gone."""
LIST_SECONDS: Final = 30.0
"""How long a server may take to stream a list; a list by itself is asked for then."""
LIST_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the last object of a streamed list."""


class Change(NamedTuple):
    """A change of an object; `kind` is the server's word."""

    kind: str
    version: str
    found: Json


Objects: TypeAlias = list[Json]
News: TypeAlias = Objects | Change
"""All objects, or a later change of one."""


def plan_watch(version: str, rng: Random) -> dict[str, str]:
    """The query for a watch from a version on."""
    return {
        "watch": "1",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(rng.randint(*WATCH_SECONDS)),
    }


def plan_streamed_list(rng: Random) -> dict[str, str]:
    """The query for a watch that begins with all objects, as of now or later."""
    return plan_watch("", rng) | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


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
        self._streams_lists = True
        """Whether the server is asked to stream lists; no more once a server has not."""

    async def list(self) -> tuple[list[Json], str]:
        """All present objects, and the version for the start of a watch."""
        attempted = f"read {self._what}"
        listing = await self._client.request(
            "GET", self._path, attempted=attempted, query=self._selector, accept=self._accept[0]
        )
        with making_sense(attempted):
            return list(listing["items"] or []), str(listing["metadata"]["resourceVersion"])

    async def follow(self) -> AsyncGenerator[News, None]:
        """All present objects, then each change.

        Raises:
            ApiExpired: changes were missed; follow anew.
            KubeError: the list failed, or the watch broke.
        """
        version = ""
        if self._streams_lists:
            async with aclosing(self._read_watch(plan_streamed_list(self._rng))) as lines:
                objects, version = await self._gather(lines)
                if version:
                    yield objects
                    async for change in lines:
                        version = change.version
                        if change.kind != "BOOKMARK":
                            yield change
        if not version:
            objects, version = await self.list()
            yield objects
        async with aclosing(self.watch(version)) as changes:
            async for change in changes:
                yield change

    async def watch(self, version: str) -> AsyncGenerator[Change, None]:
        """Changes after a version, over as many watches as needed.

        Raises:
            ApiExpired: the version is too old; list anew.
            KubeError: the watch broke.
        """
        while True:
            async with aclosing(self._read_watch(plan_watch(version, self._rng))) as lines:
                async for change in lines:
                    version = change.version
                    if change.kind != "BOOKMARK":
                        yield change

    async def _gather(self, lines: AsyncGenerator[Change, None]) -> tuple[Objects, str]:
        """The objects of a streamed list and their version; no version where the server streams no list."""
        known: dict[tuple[object, object], Json] = {}
        try:
            with anyio.fail_after(LIST_SECONDS):
                async for kind, version, found in lines:
                    metadata = found["metadata"]
                    if kind == "BOOKMARK":
                        self._streams_lists = (metadata.get("annotations") or {}).get(LIST_END) == "true"
                        return list(known.values()), version if self._streams_lists else ""
                    key = metadata.get("namespace"), metadata.get("name")
                    if kind == "DELETED":
                        known.pop(key, None)
                    else:
                        known[key] = found
        except (ApiInvalid, TimeoutError):
            # Servers of 1.33, and those whose storage does not report how far it is.
            self._streams_lists = False
        except ApiRefused:
            # A list needs other rights, is another load, and renews a rejected identity: its error is the one to tell.
            pass
        return [], ""

    async def _read_watch(self, query: dict[str, str]) -> AsyncGenerator[Change, None]:
        """The lines of a watch, bookmarks too."""
        attempted = f"watch {self._what}"
        lines = self._client.watch(
            self._path,
            parse_document,
            attempted=attempted,
            query=self._selector | query,
            silence_seconds=self._silence_seconds,
            accept=self._accept[1],
        )
        async with aclosing(lines):
            async for line in lines:
                yield _read_line(line, attempted)


def _read_line(line: Json, attempted: str) -> Change:
    kind, content = line.get("type"), line.get("object")
    try:
        if kind == "ERROR":
            status: Any = content or {}
            raise translate_status(attempted, int(status.get("code", 500)), str(status.get("message", "")))
        assert isinstance(content, dict)
        return Change(str(kind), str(content["metadata"]["resourceVersion"]), content)
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ApiUnreachable("the API server", attempted, f"a line makes no sense ({error})") from error


async def follow_all(follower: Follower, parse: Callable[[Json], tuple[K, V]]) -> AsyncGenerator[Mapping[K, V], None]:
    """All objects by key, now and after each change; runs until a failure."""
    known: dict[K, V] = {}
    while True:
        try:
            async with aclosing(follower.follow()) as news:
                async for one in news:
                    if isinstance(one, Change):
                        apply_change(known, one.kind, *parse(one.found))
                    else:
                        known = dict(map(parse, one))
                    yield dict(known)
        except ApiExpired:
            continue


def apply_change(known: dict[K, V], kind: str, key: K, value: V) -> None:
    """Keep an object as changed, or forget the object."""
    if kind == "DELETED":
        known.pop(key, None)
    else:
        known[key] = value

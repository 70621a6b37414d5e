"""One watch of the stand-in API server: what it says, when it says that nothing happened, and how it ends.

A watch that streams the list first is compressed for whoever takes gzip, one member of gzip for each line, as by
kube-apiserver from 1.37 (`perFlushGzipWriter` of its `endpoints/handlers/watch.go`).
"""

import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from aiohttp import web

from tests.fakes.kube.kinds import Json, Kind
from tests.fakes.kube.refusals import expired, invalid_options
from tests.fakes.kube.selection import Selection
from tests.fakes.kube.store import ObjectStore

BOOKMARK_SECONDS: Final = 60.0
BEFORE_THE_END_SECONDS: Final = 2.0
LIST_END: Final = "k8s.io/initial-events-end"
NOT_OLDER: Final = "NotOlderThan"


class Watch:
    """The changes of one kind that a selection has, written line by line."""

    def __init__(
        self,
        store: ObjectStore,
        kind: Kind,
        selection: Selection,
        request: web.Request,
        response: web.StreamResponse,
        may_tell: Callable[[], bool],
        begin: Callable[[web.StreamResponse], Awaitable[bool]],
    ) -> None:
        """`begin` says something before all changes, and returns whether the watch goes on."""
        self._store, self._kind, self._selection, self._response = store, kind, selection, response
        self._begin = begin
        self._may_report, self._wants_alone = may_tell, wants_metadata(request)
        self._wants_bookmarks = request.query.get("allowWatchBookmarks") == "true"
        self._streams_list = streams_list(request)
        self._first = self._seen = int(request.query.get("resourceVersion") or 0)

    async def run(self, end: float, pace: float) -> None:
        """Go on until somebody ends it; `end` is when that will be, `pace` how long a second takes."""
        is_told_present = not self._seen or self._streams_list
        if is_told_present:
            await self._say_present()
        if not await self._begin(self._response):
            return
        if not is_told_present and self._seen < self._store.oldest:
            message = f"too old resource version: {self._seen} ({self._store.oldest})"
            await self._write({"type": "ERROR", "object": expired(message).document})
            return
        last = end - BEFORE_THE_END_SECONDS * pace
        bookmark_at = find_bookmark(anyio.current_time(), last, end)
        while True:
            # Taken before the changes are read: what happens while they are written must not be slept through.
            changed = self._store.changed
            if self._may_report():
                for version, line in list(self._store.since(self._seen, self._kind.plural, self._selection)):
                    await self._say(line)
                    self._seen = version
            with anyio.move_on_at(bookmark_at) as pause:
                await changed.wait()
            if pause.cancelled_caught:
                await self._say_bookmark(is_last=anyio.current_time() >= last)
                bookmark_at = find_bookmark(anyio.current_time(), last, end)

    async def _say_present(self) -> None:
        self._first = self._seen = self._store.version
        for document in list(self._store.objects[self._kind.plural].values()):
            if self._selection.has(document):
                await self._say({"type": "ADDED", "object": document})
        if self._streams_list and self._wants_bookmarks:
            end = {"annotations": {LIST_END: "true"}}
            await self._say({"type": "BOOKMARK", "object": {"metadata": self._render_version() | end}})

    async def _say_bookmark(self, *, is_last: bool) -> None:
        """Each minute; once more before the end, if anything has happened since the beginning."""
        if self._wants_bookmarks and (not is_last or self._store.version > self._first):
            await self._say({"type": "BOOKMARK", "object": {"metadata": self._render_version()}})

    def _render_version(self) -> Json:
        return {"resourceVersion": str(self._store.version)}

    async def _say(self, line: Json) -> None:
        found = line["object"]
        await self._write(line | {"object": render_alone(found) if self._wants_alone else whole(self._kind, found)})

    async def _write(self, line: Json) -> None:
        content = json.dumps(line).encode() + b"\n"
        is_packed = "Content-Encoding" in self._response.headers
        await self._response.write(gzip.compress(content) if is_packed else content)


def find_bookmark(now: float, last: float, end: float) -> float:
    """When the next one is due: each minute, and once shortly before the end."""
    return min(now + BOOKMARK_SECONDS, last) if now < last else end


def streams_list(request: web.Request) -> bool:
    return request.query.get("sendInitialEvents") == "true"


def check_options(request: web.Request, *, streams_lists: bool) -> None:
    """As `ValidateListOptions` of apimachinery does for a watch."""
    match, causes = request.query.get("resourceVersionMatch", ""), []
    if "sendInitialEvents" in request.query:
        if match != NOT_OLDER:
            why = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}"
            causes.append(("resourceVersionMatch", why))
        if not streams_lists:
            why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            causes.append(("sendInitialEvents", why))
    elif match:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(("resourceVersionMatch", why))
    if causes:
        raise invalid_options(causes)


def wants_metadata(request: web.Request) -> bool:
    return "as=PartialObjectMetadata" in request.headers.get("Accept", "")


def whole(kind: Kind, document: Json) -> Json:
    return {"kind": kind.kind, "apiVersion": kind.api_version} | document


def render_alone(document: Json) -> Json:
    """The metadata of an object as an object of its own."""
    alone = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return alone | {"metadata": document["metadata"]}

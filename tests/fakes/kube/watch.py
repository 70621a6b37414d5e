"""One watch of the stand-in API server: what it says, when it says that nothing happened, and how it ends."""

import json
from collections.abc import Callable
from typing import Final

import anyio
from aiohttp import web

from tests.fakes.kube.kinds import Json, Kind
from tests.fakes.kube.refusals import expired
from tests.fakes.kube.selection import Selection
from tests.fakes.kube.store import ObjectStore

BOOKMARK_SECONDS: Final = 60.0
BEFORE_THE_END_SECONDS: Final = 2.0


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
    ) -> None:
        self._store, self._kind, self._selection, self._response = store, kind, selection, response
        self._may_report, self._wants_alone = may_tell, wants_metadata(request)
        self._wants_bookmarks = request.query.get("allowWatchBookmarks") == "true"
        self._first = self._seen = int(request.query.get("resourceVersion") or 0)

    async def run(self, end: float, pace: float) -> None:
        """Go on until somebody ends it; `end` is when that will be, `pace` how long a second takes."""
        if not self._seen:
            await self._say_present()
        elif self._seen < self._store.oldest:
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

    async def _say_bookmark(self, *, is_last: bool) -> None:
        """Each minute; once more before the end, if anything has happened since the beginning."""
        if self._wants_bookmarks and (not is_last or self._store.version > self._first):
            await self._say({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._store.version)}}})

    async def _say(self, line: Json) -> None:
        found = line["object"]
        await self._write(line | {"object": render_alone(found) if self._wants_alone else whole(self._kind, found)})

    async def _write(self, line: Json) -> None:
        await self._response.write(json.dumps(line).encode() + b"\n")


def find_bookmark(now: float, last: float, end: float) -> float:
    """When the next one is due: each minute, and once shortly before the end."""
    return min(now + BOOKMARK_SECONDS, last) if now < last else end


def wants_metadata(request: web.Request) -> bool:
    return "as=PartialObjectMetadata" in request.headers.get("Accept", "")


def whole(kind: Kind, document: Json) -> Json:
    return {"kind": kind.kind, "apiVersion": kind.api_version} | document


def render_alone(document: Json) -> Json:
    """The metadata of an object as an object of its own."""
    alone = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return alone | {"metadata": document["metadata"]}

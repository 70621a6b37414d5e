"""A small API server of a whole cluster, on loopback: nodes, pods and a Lease, listed in pages, watched, and patched.

It knows versions as the real one does: one row of numbers for all objects, refused where a write names an older one.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from aiohttp import web

Json = dict[str, Any]
_FINISHED = ("Succeeded", "Failed")


class FakeFleet:
    """Objects by kind and name, and every change ever made to them."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {"nodes": {}, "pods": {}, "leases": {}}
        self.version = 1000
        self.requests: Counter[str] = Counter()
        self.refuse: list[int] = []
        """Statuses that the next writes get instead."""
        self.refuse_lists: list[int] = []
        self.answer_nonsense = False
        """While set, writes are done and answered with an empty object."""
        self.hold_watches = False
        """While set, watches tell nothing."""
        self.oldest = 0
        """Watches from before this version are told that it is gone."""
        self._log: list[tuple[int, str, str, Json]] = []
        self._changed = asyncio.Event()
        self._watches: set[asyncio.Task[Any]] = set()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def watching(self) -> int:
        return len(self._watches)

    def put(self, kind: str, name: str, document: Json) -> Json:
        """Somebody writes an object; what it was before is told to watches as they need it."""
        self.version += 1
        is_new = name not in self.objects[kind]
        metadata = {"name": name, **document.get("metadata", {}), "resourceVersion": str(self.version)}
        self.objects[kind][name] = document | {"metadata": metadata}
        self._note("ADDED" if is_new else "MODIFIED", kind, self.objects[kind][name])
        return self.objects[kind][name]

    def drop(self, kind: str, name: str, *, by_force: bool = False) -> None:
        """The object is gone; a pod that is deleted by force says so in its last version, as with the real one."""
        self.version += 1
        document = self.objects[kind].pop(name)
        if by_force:
            document["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
        document["metadata"]["resourceVersion"] = str(self.version)
        self._note("DELETED", kind, document)

    def put_node(
        self, name: str, annotations: Mapping[str, str] | None = None, capacity: Mapping[str, str] | None = None
    ) -> None:
        self.put(
            "nodes", name, {"metadata": {"annotations": dict(annotations or {})}, "status": {"capacity": capacity}}
        )

    def put_pod(
        self,
        name: str,
        *limits: Mapping[str, str],
        node: str = "",
        annotations: Mapping[str, str] | None = None,
        phase: str = "Pending",
    ) -> Json:
        containers = [{"name": f"c{n}", "resources": {"limits": dict(each)}} for n, each in enumerate(limits)]
        spec: Json = {"containers": containers} | ({"nodeName": node} if node else {})
        metadata = {"namespace": "default", "uid": f"uid-of-{name}", "annotations": dict(annotations or {})}
        return self.put("pods", name, {"metadata": metadata, "spec": spec, "status": {"phase": phase}})

    def annotations(self, name: str) -> dict[str, str]:
        return dict(self.objects["pods"][name]["metadata"]["annotations"])

    def bookmark(self) -> None:
        """Tell watches that nothing happened."""
        self.version += 1
        for kind in self.objects:
            self._note("BOOKMARK", kind, {"metadata": {"resourceVersion": str(self.version)}})

    def release_watches(self) -> None:
        self.hold_watches = False
        self._changed.set()

    def write_kubeconfig(self, path: Path) -> Path:
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path.write_text(json.dumps(document))
        return path

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeFleet"]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        self.drop_watches()
        with anyio.CancelScope(shield=True):
            await self._runner.cleanup()

    def drop_watches(self) -> None:
        for task in self._watches:
            task.cancel()

    def _note(self, kind: str, of: str, document: Json) -> None:
        self._log.append((self.version, kind, of, json.loads(json.dumps(document))))
        self._changed.set()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parts = ("/" + request.match_info["path"]).split("/")
        kind = next((part for part in ("pods", "leases", "nodes") if part in parts), "")
        name = parts[-1] if parts[-1] != kind else ""
        if request.query.get("watch") == "1":
            self.requests[f"watch {kind}"] += 1
            return await self._watch(request, kind)
        self.requests[f"{request.method.lower()} {kind}"] += 1
        if request.method == "GET":
            return self._list(request, kind) if not name else self._get(kind, name)
        body = json.loads(await request.read())
        if self.refuse:
            return _refuse(self.refuse.pop(0), "scripted")
        if request.method == "POST":
            name = body["metadata"]["name"]
            return (
                _refuse(409, "exists") if name in self.objects[kind] else web.json_response(self.put(kind, name, body))
            )
        written = self._write(kind, name, body, is_patch=request.method == "PATCH")
        return web.json_response({}) if self.answer_nonsense else written

    def _get(self, kind: str, name: str) -> web.StreamResponse:
        found = self.objects[kind].get(name)
        return _refuse(404, f"no {kind} {name}") if found is None else web.json_response(found)

    def _list(self, request: web.Request, kind: str) -> web.StreamResponse:
        if self.refuse_lists:
            return _refuse(self.refuse_lists.pop(0), "scripted")
        items = [each for each in self.objects[kind].values() if self._is_selected(request, each)]
        start, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "100000"))
        following = str(start + limit) if start + limit < len(items) else None
        metadata = {"resourceVersion": str(self.version)} | ({"continue": following} if following else {})
        return web.json_response({"metadata": metadata, "items": items[start : start + limit]})

    def _write(self, kind: str, name: str, body: Json, *, is_patch: bool) -> web.StreamResponse:
        found = self.objects[kind].get(name)
        if found is None:
            return _refuse(404, f"no {kind} {name}")
        metadata = found["metadata"]
        for key in ("uid", "resourceVersion"):
            if body["metadata"].get(key, metadata.get(key)) != metadata.get(key):
                return _refuse(409, f"{key} is another")
        if not is_patch:
            return web.json_response(self.put(kind, name, body))
        annotations = metadata["annotations"] | body["metadata"]["annotations"]
        kept = {key: text for key, text in annotations.items() if text is not None}
        return web.json_response(self.put(kind, name, found | {"metadata": metadata | {"annotations": kept}}))

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        seen = int(request.query["resourceVersion"])
        try:
            while True:
                if seen < self.oldest:
                    expired = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
                    await response.write(json.dumps(expired).encode() + b"\n")
                    return response
                if not self.hold_watches:
                    for version, change, of, document in list(self._log):
                        if version > seen and of == kind:
                            is_over = change != "BOOKMARK" and not self._is_selected(request, document)
                            line = {"type": "DELETED" if is_over else change, "object": document}
                            await response.write(json.dumps(line).encode() + b"\n")
                            seen = version
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._watches.discard(task)

    @staticmethod
    def _is_selected(request: web.Request, document: Json) -> bool:
        selector = request.query.get("fieldSelector", "")
        return not selector or document.get("status", {}).get("phase") not in _FINISHED


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "message": message, "code": status}, status=status)

"""An API server of a whole cluster, on loopback: nodes, pods and a Lease, and what a test wants to go wrong with them.

What it answers of itself is `tests.fakes.kube`, which `tests/contract/apiserver` holds against the real one.
"""

import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

from aiohttp import web

from tests.fakes.kube.kinds import Json
from tests.fakes.kube.server import KubeServer, is_watch
from tests.fakes.kube.store import Change


class FakeFleet(KubeServer):
    """Whoever asks is an administrator."""

    def __init__(self) -> None:
        super().__init__()
        self.token = None
        self.requests: Counter[str] = Counter()
        self.refuse: list[int] = []
        """Statuses that the next writes get instead."""
        self.refuse_lists: list[int] = []
        self.answer_nonsense = False
        """While set, writes are done and answered with an empty object."""
        self.hold_watches = False
        """While set, watches tell nothing."""

    @property
    def objects(self) -> dict[str, dict[str, Json]]:
        return self.store.objects

    def put(self, kind: str, name: str, document: Json) -> Json:
        """Somebody writes an object; what it was before is told to watches as they need it."""
        before = deepcopy(self.objects[kind].get(name))
        metadata = {"name": name, **document.get("metadata", {})}
        self.objects[kind][name] = document | {"metadata": metadata}
        return self.store.note(kind, name, before)

    def drop(self, kind: str, name: str, *, by_force: bool = False) -> None:
        """The object is gone; a pod that is deleted by force says so in its last version."""
        if by_force:
            marks = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
            self.objects[kind][name]["metadata"] |= marks
        self.store.drop(kind, name)

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
        return dict(self.objects["pods"][name]["metadata"].get("annotations") or {})

    def bookmark(self, version: str | None = None) -> None:
        """Tell watches that nothing happened, up to now or to what is given as the version."""
        self.store.version += 1
        metadata = {"resourceVersion": str(self.version) if version is None else version}
        for kind in self.objects:
            line = {"type": "BOOKMARK", "object": {"metadata": metadata}}
            self.store.changes.append(Change(self.version, kind, line=line))
        self.store.wake()

    def release_watches(self) -> None:
        self.hold_watches = False
        self.store.wake()

    def write_kubeconfig(self, path: Path) -> Path:
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path.write_text(json.dumps(document))
        return path

    async def intercept(self, request: web.Request, path: str) -> web.StreamResponse | None:
        parts = path.split("/")
        kind = next((part for part in ("pods", "leases", "nodes", "daemonsets") if part in parts), "")
        self.requests[f"{'watch' if is_watch(request) else request.method.lower()} {kind}"] += 1
        if request.method != "GET" and self.refuse:
            return _refuse(self.refuse.pop(0))
        is_list = request.method == "GET" and parts[-1] == kind and not is_watch(request)
        return _refuse(self.refuse_lists.pop(0)) if is_list and self.refuse_lists else None

    def may_tell(self) -> bool:
        return not self.hold_watches

    def finish(self, request: web.Request, answer: Json) -> Json:
        return {} if self.answer_nonsense else answer


def _refuse(status: int) -> web.Response:
    return web.json_response({"kind": "Status", "message": "scripted", "code": status}, status=status)

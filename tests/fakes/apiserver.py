"""A small API server on loopback: nodes with field managers and watches, events, and every way of going wrong.

It knows as much of server-side apply as the agent relies on: who owns which label, what goes when its owner no longer
names it, and that another owner's value is a conflict. `tests/integration` checks the same laws on a real one.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from aiohttp import web

if TYPE_CHECKING:
    from ssl import SSLContext

Json = dict[str, Any]
NODE = "node-1"
TOKEN = "token-1"


class FakeApiServer:
    """One node by default, one accepted token, and a log of what was asked."""

    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.events: list[Json] = []
        self.features: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.claims: dict[str, Json] = {}
        self.protected: set[str] = set()
        """Pods that a disruption budget lets nobody evict."""
        self.slices: dict[str, Json] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Json] = []
        self.token = TOKEN
        self.answers: deque[Callable[[], Awaitable[web.StreamResponse]]] = deque()
        """What the next requests get instead of an honest answer."""
        self.delays: deque[float] = deque()
        """How long the next requests wait before they are looked at."""
        self.watch_lines: deque[bytes] = deque()
        """What the next watch says first."""
        self.port = 0
        self.tls: SSLContext | None = None
        self.version = 100
        self._changed = asyncio.Event()
        self._watches: set[asyncio.Task[Any]] = set()
        self._changes: list[tuple[int, Json]] = []
        self._site: web.TCPSite | None = None
        self._runner: web.AppRunner | None = None
        self.add_node(NODE)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [each for each in self.requests if each[0] != "GET"]

    @property
    def watching(self) -> int:
        return len(self._watches)

    def add_node(self, name: str, **labels: str) -> None:
        metadata = {"name": name, "uid": f"uid-of-{name}", "labels": dict(labels), "managedFields": []}
        self.nodes[name] = {"metadata": metadata, "spec": {}, "status": {"conditions": []}}
        self._note_change(self.nodes[name])

    def labels(self, name: str = NODE) -> dict[str, str]:
        return dict(self.nodes[name]["metadata"]["labels"])

    def set_labels(self, name: str = NODE, **labels: str | None) -> None:
        """Somebody else's plain write: it takes the field from whoever held it."""
        node = self.nodes[name]
        for key, value in labels.items():
            self._disown(node, key)
            if value is None:
                node["metadata"]["labels"].pop(key, None)
            else:
                node["metadata"]["labels"][key] = value
        self._note_change(node)

    def put_label(self, key: str, value: str | None) -> None:
        self.set_labels(NODE, **{key: value})

    def find_condition(self, name: str = NODE) -> Json | None:
        return next((each for each in self.nodes[name]["status"]["conditions"]), None)

    def answer(
        self, status: int, *, times: int = 1, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> None:
        """Have the next requests refused."""
        content = json.dumps({"message": f"scripted {status}"}).encode() if body is None else body

        async def respond() -> web.StreamResponse:
            return web.Response(status=status, body=content, headers=headers, content_type="application/json")

        self.answers.extend([respond] * times)

    def hang(self) -> None:
        """Have the next request wait for ever."""

        async def wait() -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets that event")

        self.answers.append(wait)

    def break_off(self, request_bytes: bytes = b'{"items": [') -> None:
        """Have the next answer end in the middle."""

        async def respond() -> web.StreamResponse:
            return web.Response(body=request_bytes, content_type="application/json")

        self.answers.append(respond)

    def write_kubeconfig(self, path: Path, *, token: str = TOKEN) -> Path:
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        path.write_text(json.dumps(document))
        return path

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeApiServer"]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        """Serve, on the same port as before."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, ssl_context=self.tls)
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away, watches and all."""
        assert self._runner is not None
        self.drop_watches()
        server = self._runner.server
        assert server is not None
        with anyio.CancelScope(shield=True):
            await self._runner.cleanup()
            # Whoever was accepted in the moment of closing is known to the server a turn of the loop later.
            await anyio.lowlevel.checkpoint()
            await server.shutdown(timeout=1)

    def drop_watches(self) -> None:
        for task in self._watches:
            task.cancel()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        watching = request.query.get("watch") == "1"
        self.requests.append(("WATCH" if watching else request.method, path))
        if self.delays:
            await anyio.sleep(self.delays.popleft())
        if self.answers:
            return await self.answers.popleft()()
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return self._refuse(401, "Unauthorized")
        return await (self._watch(request) if watching else self._serve_objects(request, path))

    async def _serve_objects(self, request: web.Request, path: str) -> web.StreamResponse:
        if request.method == "GET" and path in ("/api/v1/nodes", "/api/v1/pods"):
            items = list(self.pods.values()) if path.endswith("pods") else self._select(request)
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        body = json.loads(await request.read() or b"{}")
        if request.method != "GET":
            self.bodies.append(body)
        if request.method == "POST" and path.endswith("/events"):
            self.events.append(body)
            return web.json_response(body, status=201)
        if path.startswith("/apis/resource.k8s.io"):
            return self._serve_resources(request, path, body)
        if "/nodefeatures/" in path:
            return self._serve_feature(request, path.rpartition("/")[2], body)
        if "/pods/" in path:
            return self._serve_pod(path.partition("/pods/")[2], body)
        return self._serve_node(request, path.removeprefix("/api/v1/nodes/"), body)

    def _serve_pod(self, rest: str, body: Json) -> web.StreamResponse:
        name, _, subresource = rest.partition("/")
        if subresource == "eviction":
            return self._evict(name, body)
        pod = self.pods.get(name)
        return self._miss("pods", name) if pod is None else web.json_response(pod)

    def _evict(self, name: str, body: Json) -> web.StreamResponse:
        """As the real one: the uid must be that of the pod, and a disruption budget has the last word."""
        pod = self.pods.get(name)
        if pod is None:
            return self._miss("pods", name)
        if body.get("deleteOptions", {}).get("preconditions", {}).get("uid") not in (None, pod["metadata"]["uid"]):
            return self._refuse(409, "the UID in the precondition is not that of the pod")
        if name in self.protected:
            causes = [{"reason": "DisruptionBudget", "message": "the budget needs 1 healthy pod and has 1"}]
            details = {"causes": causes, "retryAfterSeconds": 10}
            status = {"kind": "Status", "message": "Cannot evict pod", "code": 429, "details": details}
            return web.json_response(status, status=429, headers={"Retry-After": "10"})
        del self.pods[name]
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _serve_resources(self, request: web.Request, path: str, body: Json) -> web.StreamResponse:
        """Slices of devices, and claims for them."""
        if path == "/apis/resource.k8s.io":
            return web.json_response({"kind": "APIGroup", "versions": [{"version": "v1"}]})
        if "/resourceclaims/" in path:
            name = path.rpartition("/")[2]
            if name in self.claims:
                return web.json_response(self.claims[name])
            return self._miss("resourceclaims", name)
        return self._serve_slice(request, path.partition("/resourceslices")[2].removeprefix("/"), body)

    def _serve_slice(self, request: web.Request, name: str, body: Json) -> web.StreamResponse:
        if request.method == "GET":
            items = list(self.slices.values())
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        name = name or body["metadata"]["name"]
        before = self.slices.get(name)
        if (request.method == "POST") is (before is not None):
            return self._refuse(409, f'resourceslices "{name}"') if before else self._miss("resourceslices", name)
        wanted = body.get("preconditions") or body.get("metadata") or {}
        known = {} if before is None else before["metadata"]
        if any(wanted[key] != known[key] for key in ("uid", "resourceVersion") if before is not None):
            return self._refuse(409, "the object has been modified")
        self.version += 1
        if request.method == "DELETE":
            return web.json_response(self.slices.pop(name))
        body["metadata"] |= {"uid": known.get("uid", f"uid-{self.version}"), "resourceVersion": str(self.version)}
        self.slices[name] = body
        return web.json_response(body, status=201)

    def _serve_feature(self, request: web.Request, name: str, body: Json) -> web.StreamResponse:
        if request.method == "PATCH":
            self.features[name] = body
        if name not in self.features:
            return self._miss("nodefeatures", name)
        if request.method == "DELETE":
            return web.json_response(self.features.pop(name))
        return web.json_response(self.features[name])

    def _serve_node(self, request: web.Request, rest: str, body: Json) -> web.StreamResponse:
        name, _, subresource = rest.partition("/")
        node = self.nodes.get(name)
        if node is None:
            return self._miss("nodes", name)
        if request.method == "GET":
            return web.json_response(node)
        refusal = None
        if request.content_type == "application/apply-patch+yaml":
            refusal = self._apply(node, body, request.query["fieldManager"])
        elif subresource == "status":
            self._merge_condition(node, body["status"]["conditions"][0])
        else:
            refusal = self._merge(node, body)
        if refusal is not None:
            return refusal
        self._note_change(node)
        return web.json_response(node)

    def _apply(self, node: Json, body: Json, manager: str) -> web.StreamResponse | None:
        metadata = node["metadata"]
        if body["metadata"]["uid"] != metadata["uid"]:
            return self._refuse(409, "uid mismatch")
        owned, wanted = self._owned(node, manager), body["metadata"]["labels"]
        for key, value in wanted.items():
            if key in metadata["labels"] and key not in owned and metadata["labels"][key] != value:
                return self._refuse(409, f"conflict with another manager: .metadata.labels.{key}")
        for key in owned - wanted.keys():
            metadata["labels"].pop(key, None)
        metadata["labels"].update(wanted)
        metadata["managedFields"] = [each for each in metadata["managedFields"] if each["manager"] != manager]
        fields: Json = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in wanted}}}
        metadata["managedFields"].append({"manager": manager, "operation": "Apply", "fieldsV1": fields})
        return None

    def _merge(self, node: Json, body: Json) -> web.StreamResponse | None:
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != node["metadata"]["resourceVersion"]:
            return self._refuse(409, "the object has been modified")
        labels = body.get("metadata", {}).get("labels", {})
        if labels:
            node["metadata"]["labels"] = {**node["metadata"].get("labels", {}), **labels}
        annotations = node["metadata"].setdefault("annotations", {})
        for key, value in body.get("metadata", {}).get("annotations", {}).items():
            if value is None:
                annotations.pop(key, None)
            else:
                annotations[key] = value
        node["spec"].update(body.get("spec", {}))
        return None

    @staticmethod
    def _merge_condition(node: Json, condition: Json) -> None:
        conditions = node["status"]["conditions"]
        before: Json = next((each for each in conditions if each["type"] == condition["type"]), {})
        node["status"]["conditions"] = [
            *(each for each in conditions if each["type"] != condition["type"]),
            *(() if condition.get("$patch") == "delete" else (before | condition,)),
        ]

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        seen = int(request.query["resourceVersion"])
        try:
            while self.watch_lines:
                line = self.watch_lines.popleft()
                if not line:
                    return response
                await response.write(line)
            while True:
                for version, node in self._changes:
                    if version > seen and self._is_selected(request, node["metadata"]["name"]):
                        seen = version
                        await response.write(json.dumps({"type": "MODIFIED", "object": node}).encode() + b"\n")
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._watches.discard(task)

    def _select(self, request: web.Request) -> list[Json]:
        return [node for name, node in self.nodes.items() if self._is_selected(request, name)]

    @staticmethod
    def _is_selected(request: web.Request, name: str) -> bool:
        return request.query.get("fieldSelector") == f"metadata.name={name}"

    @staticmethod
    def _owned(node: Json, manager: str) -> set[str]:
        entries = [each for each in node["metadata"]["managedFields"] if each["manager"] == manager]
        return {key.removeprefix("f:") for each in entries for key in each["fieldsV1"]["f:metadata"]["f:labels"]}

    @staticmethod
    def _disown(node: Json, key: str) -> None:
        for entry in node["metadata"]["managedFields"]:
            entry["fieldsV1"]["f:metadata"]["f:labels"].pop(f"f:{key}", None)

    def _note_change(self, node: Json) -> None:
        self.version += 1
        node["metadata"]["resourceVersion"] = str(self.version)
        self._changes.append((self.version, json.loads(json.dumps(node))))
        self._changed.set()

    def _miss(self, kind: str, name: str) -> web.Response:
        """As the real one: it knows the kind, and has none of that name."""
        return self._refuse(404, f'{kind} "{name}" not found', reason="NotFound", details={"name": name, "kind": kind})

    @staticmethod
    def _refuse(status: int, message: str, **more: object) -> web.Response:
        return web.json_response({"kind": "Status", "message": message, "code": status} | more, status=status)

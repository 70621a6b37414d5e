"""An API server on loopback with one node, one accepted token, a log of what was asked, and every way of going wrong.

What it answers of itself is `tests.fakes.kube`, which `tests/contract/apiserver` holds against the real one.
"""

import asyncio
import json
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from tests.fakes.kube.kinds import Json
from tests.fakes.kube.patches import own_changes
from tests.fakes.kube.server import TOKEN, KubeServer, is_watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NODE = "node-1"


class FakeApiServer(KubeServer):
    """Objects can also be put into `nodes`, `pods`, `claims` and `slices`, past all requests and unseen by watches."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Json] = []
        self.answers: deque[Callable[[], Awaitable[web.StreamResponse]]] = deque()
        """What the next requests get instead of an honest answer."""
        self.delays: deque[float] = deque()
        """How long the next requests wait before they are looked at."""
        self.watch_lines: deque[bytes] = deque()
        """What the next watch says first."""
        self.add_node(NODE)

    @property
    def nodes(self) -> dict[str, Json]:
        return self.store.objects["nodes"]

    @property
    def pods(self) -> dict[str, Json]:
        return self.store.objects["pods"]

    @pods.setter
    def pods(self, documents: dict[str, Json]) -> None:
        self.store.objects["pods"] = documents

    @property
    def claims(self) -> dict[str, Json]:
        return self.store.objects["resourceclaims"]

    @property
    def slices(self) -> dict[str, Json]:
        return self.store.objects["resourceslices"]

    @property
    def features(self) -> dict[str, Json]:
        return self.store.objects["nodefeatures"]

    @property
    def events(self) -> list[Json]:
        return list(self.store.objects["events"].values())

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [each for each in self.requests if each[0] not in {"GET", "WATCH"}]

    def add_node(self, name: str, **labels: str) -> None:
        metadata = {"name": name, "uid": f"uid-of-{name}", "labels": dict(labels)}
        self.nodes[name] = {"metadata": metadata, "spec": {}, "status": {"conditions": []}}
        self.store.note("nodes", name, None)

    def labels(self, name: str = NODE) -> dict[str, str]:
        return dict(self.nodes[name]["metadata"].get("labels") or {})

    def set_labels(self, name: str = NODE, **labels: str | None) -> None:
        """Somebody else's plain write: it takes the field from whoever held it."""
        before = json.loads(json.dumps(self.nodes[name]))
        found = self.labels(name) | labels
        self.nodes[name]["metadata"]["labels"] = {key: value for key, value in found.items() if value is not None}
        own_changes(before, self.nodes[name], "somebody")
        self.store.note("nodes", name, before)

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

    async def intercept(self, request: web.Request, path: str) -> web.StreamResponse | None:
        self.requests.append(("WATCH" if is_watch(request) else request.method, path))
        if self.delays:
            await anyio.sleep(self.delays.popleft())
        if self.answers:
            return await self.answers.popleft()()
        if request.method != "GET" and request.content_length:
            with suppress(ValueError):
                self.bodies.append(json.loads(await request.read()))
        return None

    async def begin_watch(self, response: web.StreamResponse) -> bool:
        while self.watch_lines:
            line = self.watch_lines.popleft()
            if not line:
                return False
            await response.write(line)
        return True

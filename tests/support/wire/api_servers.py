"""API servers for tests: what a test may ask of one, whether it is the stand-in or the real one."""

import json
import secrets
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import Kubeconfig

Json = dict[str, Any]
NAMESPACE = "default"
JSON = "application/json"
GZIP = 16 + zlib.MAX_WBITS
"""The window that has zlib read members of gzip."""
MERGE, STRATEGIC, APPLY = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_GROUPS = {
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "daemonsets": "/apis/apps/v1",
    "events": "/apis/events.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "nodefeatures": "/apis/nfd.k8s-sigs.io/v1alpha1",
    "resourceclaims": "/apis/resource.k8s.io/v1",
    "resourceslices": "/apis/resource.k8s.io/v1",
    "deviceclasses": "/apis/resource.k8s.io/v1",
}
_CLUSTER_WIDE = ("nodes", "resourceslices", "deviceclasses")


def path_of(resource: str, name: str = "", *, everywhere: bool = False) -> str:
    """The path of a collection, or of an object in it."""
    is_wide = everywhere or resource in _CLUSTER_WIDE
    scope = "" if is_wide else f"/namespaces/{NAMESPACE}"
    return f"{_GROUPS[resource]}{scope}/{resource}" + (f"/{name}" if name else "")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said to one request."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def document(self) -> Json:
        found = json.loads(self.content)
        assert isinstance(found, dict)
        return found

    @property
    def refusal(self) -> tuple[int, str, str]:
        """The status, the reason, and the message of a refusal, which must be a whole Status object."""
        found = self.document
        assert (found["kind"], found["apiVersion"], found["status"]) == ("Status", "v1", "Failure")
        assert found["code"] == self.status
        return self.status, found.get("reason", ""), found["message"]


@dataclass(frozen=True, slots=True)
class ApiServerUnderTest:
    """One server, asked as an administrator; the server may be shared, so that every test has names of its own."""

    url: str
    token: str
    scratch: Path
    tls: ssl.SSLContext | None
    authority: Path | None
    stranger: str
    """A token that the server accepts and that has no rights."""
    protect: Callable[[str], Awaitable[None]]
    """Have a disruption budget that lets nobody evict a running pod with the label `app` of this value; again, two."""
    forget: Callable[[], Awaitable[None]]
    """Have all old versions forgotten."""

    def new_name(self, what: str) -> str:
        return f"{what}-{secrets.token_hex(4)}"

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = JSON,
        accept: str = JSON,
        token: str | None = None,
        encoding: str = "identity",
        **query: str,
    ) -> Answer:
        async with self._open() as http:
            content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
            headers = self._head(kind, accept, token) | {"Accept-Encoding": encoding}
            async with http.request(method, self.url + path, params=query, data=content, headers=headers) as response:
                return Answer(response.status, dict(response.headers), await response.read())

    async def add(self, resource: str, document: Json) -> Json:
        """Create an object, which must succeed."""
        answer = await self.ask("POST", path_of(resource), document)
        assert answer.status == 201, answer.content
        return answer.document

    async def read(self, resource: str, name: str) -> Json:
        answer = await self.ask("GET", path_of(resource, name))
        assert answer.status == 200, answer.content
        return answer.document

    async def drop(self, resource: str, name: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        answer = await self.ask("DELETE", path_of(resource, name), options)
        assert answer.status == 200, answer.content

    async def read_version(self) -> str:
        answer = await self.ask("GET", path_of("nodes"), limit="1")
        return str(answer.document["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def watching(self, path: str, version: str, **query: str) -> AsyncIterator[AsyncGenerator[Json, None]]:
        wanted = {"watch": "1", "resourceVersion": version} | query
        accept, encoding = wanted.pop("accept", JSON), wanted.pop("encoding", "identity")
        async with self._open() as http:
            headers = self._head(JSON, accept, None) | {"Accept-Encoding": encoding}
            async with http.get(self.url + path, params=wanted, headers=headers) as response:
                assert response.status == 200
                assert encoding == "gzip" or "Content-Encoding" not in response.headers
                async with aclosing(_read_lines(response)) as lines:
                    yield lines

    def write_kubeconfig(self, token: str | None = None) -> Path:
        """Credentials for this server, the administrator's unless another token is given."""
        path = self.scratch / f"{secrets.token_hex(4)}.kubeconfig"
        cluster: Json = {"server": self.url}
        if self.authority is not None:
            cluster["certificate-authority"] = str(self.authority)
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token or self.token}}],
        }
        path.write_text(json.dumps(document))
        return path

    @asynccontextmanager
    async def client(self) -> AsyncIterator[KubeClient]:
        settings = ClientSettings(timeout_seconds=30, requests_per_second=1000, burst=100)
        client = KubeClient(Kubeconfig(self.write_kubeconfig()), lambda: settings)
        try:
            yield client
        finally:
            await client.aclose()

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self.tls if self.tls is not None else True, force_close=True)
        return aiohttp.ClientSession(connector=connector, auto_decompress=False, read_bufsize=1 << 24)

    def _head(self, kind: str, accept: str, token: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {token or self.token}", "Content-Type": kind, "Accept": accept}


async def _read_lines(response: aiohttp.ClientResponse) -> AsyncGenerator[Json, None]:
    is_packed = response.headers.get("Content-Encoding") == "gzip"
    unpacker, rest = zlib.decompressobj(wbits=GZIP), b""
    async for chunk in response.content.iter_any():
        packed = chunk if is_packed else b""
        rest += b"" if is_packed else chunk
        while packed:
            rest += unpacker.decompress(packed)
            packed = unpacker.unused_data
            if unpacker.eof:
                # The next member of the chain, perhaps in a later chunk.
                unpacker = zlib.decompressobj(wbits=GZIP)
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield json.loads(line)


OpenApiServer = Callable[[], AbstractAsyncContextManager[ApiServerUnderTest]]


def render_node(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def render_pod(name: str, node: str = "", **labels: str) -> Json:
    """A pod of one container that is bound to a node, or that no scheduler will bind."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 0}
    spec |= {"nodeName": node} if node else {"schedulerName": "nobody"}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def render_claim(name: str) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [request]}},
    }


def render_class(name: str, resource: str, *selectors: str) -> Json:
    """A class of devices under the name of an extended resource, by CEL expressions."""
    spec = {"extendedResourceName": resource, "selectors": [{"cel": {"expression": each}} for each in selectors]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def render_daemon_set(name: str, **labels: str) -> Json:
    """A DaemonSet whose pods no node takes."""
    spec = {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }

"""Claims of dynamic resource allocation in the API server, and whether the claims' pods are alive.

Owns the reading of a claim, in whichever version the API server serves.
Refuses the rate limit: a pod waits for the answer, and there is a question for each claim of the node.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiNotFound, ApiUnreachable, making_sense
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimResult, OpaqueConfig, ResourceClaim
from nodeagent.model.scheduling import FINISHED_PHASES

GROUP: Final = "/apis/resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions with the same form of allocations, the best first."""
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim made from a template: the name in the pod's `spec.resourceClaims`."""


class KubeClaims:
    """The port `ClaimApi` over a client."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._version = ""
        self._learning = anyio.Lock()

    async def learn_version(self) -> None:
        """Learn the version ahead of the first claim; the port's contract is in `model.ports`."""
        await self._find_version("learn the version of claims")

    async def find_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The present claim; `None` without a claim."""
        what = f"read claim {namespace}/{name}"
        version = await self._find_version(what)
        path = f"{GROUP}/{version}/namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
        try:
            document = await self._client.request("GET", path, attempted=what, in_turn=False)
        except ApiNotFound as error:
            if error.is_object:
                return None
            # A claim reported as gone is unprepared: a version removed by an upgrade must not report a claim as gone.
            self._version = ""
            reason = f"it has no resource.k8s.io {version} any more, or another one answers ({error.message})"
            raise ApiUnreachable("the API server", what, reason) from error
        with making_sense(what):
            return parse_claim(document)

    async def is_alive(self, pod: PodIdentity) -> bool:
        """Whether exactly this pod exists and may still start containers."""
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        what = f"read pod {pod.namespace}/{pod.name}"
        try:
            document = await self._client.request("GET", path, attempted=what, in_turn=False)
        except ApiNotFound as error:
            error.demand_object()
            return False
        with making_sense(what):
            metadata, phase = document.get("metadata") or {}, (document.get("status") or {}).get("phase")
            return metadata.get("uid") == pod.uid and not (
                phase in FINISHED_PHASES or metadata.get("deletionTimestamp")
            )

    async def _find_version(self, what: str) -> str:
        """The best version served by the API server, asked for once, by however many claims at a time."""
        if self._version:
            return self._version
        async with self._learning:
            if not self._version:
                self._version = await self._ask_version(what)
            return self._version

    async def _ask_version(self, what: str) -> str:
        document = await self._client.request("GET", GROUP, attempted=what, in_turn=False)
        with making_sense(what):
            served = {str(each.get("version")) for each in document.get("versions") or ()}
        known = [version for version in VERSIONS if version in served]
        if not known:
            raise ApiUnreachable("the API server", what, f"it has none of resource.k8s.io {', '.join(VERSIONS)}")
        return known[0]


def parse_claim(document: Json) -> ResourceClaim:
    """The node's view of a claim; a document of another shape raises Python's own errors."""
    metadata, status = document["metadata"], document.get("status") or {}
    namespace, name, uid = (str(metadata[key]) for key in ("namespace", "name", "uid"))
    allocation: Mapping[str, Any] | None = status.get("allocation")
    devices: Mapping[str, Any] = (allocation or {}).get("devices") or {}
    return ResourceClaim(
        namespace=namespace,
        name=name,
        uid=uid,
        is_allocated=allocation is not None,
        results=tuple(map(_parse_result, devices.get("results") or ())),
        configs=tuple(map(_parse_config, devices.get("config") or ())),
        pods=_parse_pods(namespace, status.get("reservedFor") or ()),
        pod_claim_name=str((metadata.get("annotations") or {}).get(POD_CLAIM_NAME) or ""),
    )


def _parse_result(document: Mapping[str, Any]) -> ClaimResult:
    consumed: Mapping[str, Any] = document.get("consumedCapacity") or {}
    return ClaimResult(
        request=str(document["request"]),
        driver=str(document["driver"]),
        pool=str(document["pool"]),
        device=str(document["device"]),
        is_admin=bool(document.get("adminAccess")),
        share_id=str(document.get("shareID") or ""),
        consumed={str(key): str(value) for key, value in consumed.items()},
    )


def _parse_config(document: Mapping[str, Any]) -> OpaqueConfig:
    opaque: Mapping[str, Any] = document.get("opaque") or {}
    return OpaqueConfig(
        source=str(document.get("source") or ""),
        requests=tuple(map(str, document.get("requests") or ())),
        driver=str(opaque.get("driver") or ""),
        parameters=opaque.get("parameters"),
    )


def _parse_pods(namespace: str, reserved: Sequence[Mapping[str, Any]]) -> tuple[PodIdentity, ...]:
    """The pods; other consumers, unknown so far, are left out."""
    return tuple(
        PodIdentity(namespace=namespace, name=str(each["name"]), uid=str(each["uid"]))
        for each in reserved
        if each.get("resource") == "pods" and not each.get("apiGroup")
    )

"""Claims of dynamic resource allocation in the API server, and whether the claims' pods are alive.

Owns the reading of a claim, in whichever version the API server serves.
Refuses the rate limit: a pod waits for the answer, and there is a question for each claim of the node.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiForbidden, ApiInvalid, ApiNotFound, ApiUnreachable, making_sense
from nodeagent.edge.kube.node_document import FIELD_MANAGER, render_time
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimResult, DeviceCondition, DeviceToleration, OpaqueConfig, ResourceClaim
from nodeagent.model.proof import BINDING_CONDITION, BINDING_FAILURE
from nodeagent.model.scheduling import FINISHED_PHASES

GROUP: Final = "/apis/resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions with the same form of allocations, the best first."""
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim made from a template: the name in the pod's `spec.resourceClaims`."""
_MESSAGE_MAX: Final = 1024
_DRIVER_RIGHT: Final = "resourceclaims/driver"


class StatusForbidden(ApiForbidden):
    """The rights for conditions of allocated devices are missing, or the token is bound to no node."""

    remedy = "apply deploy/rbac-proof.yaml, and run the agent with a token that is bound to its node"


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

    async def write_conditions(
        self, claim: ResourceClaim, conditions: Sequence[DeviceCondition], wall_seconds: float
    ) -> None:
        """End the scheduler's wait for devices; the statuses of all other devices stay as they are.

        Raises:
            ApiConflict: the claim has changed since it was read.
            StatusForbidden: the rights are missing.
        """
        what = f"write conditions of the devices of claim {claim.namespace}/{claim.name}"
        path = f"{GROUP}/{await self._find_version(what)}/namespaces/{quote(claim.namespace, safe='')}"
        ours = [_render_status(each, render_time(wall_seconds)) for each in conditions]
        named = set(map(_name_device, ours))
        others = [each for each in claim.statuses if isinstance(each, Mapping) and _name_device(each) not in named]
        try:
            await self._client.request(
                "PATCH",
                f"{path}/resourceclaims/{quote(claim.name, safe='')}/status",
                attempted=what,
                query={"fieldManager": FIELD_MANAGER},
                # Of this version alone: a list is replaced as a whole, and a claim allocated anew has other devices.
                body={
                    "metadata": {"uid": claim.uid, "resourceVersion": claim.version},
                    "status": {"devices": [*others, *ours]},
                },
                content_type="application/merge-patch+json",
                in_turn=False,
            )
        except (ApiForbidden, ApiInvalid) as error:
            # The right to a driver's devices is part of the claim's validation.
            if isinstance(error, ApiForbidden) or _DRIVER_RIGHT in error.message:
                raise StatusForbidden(error.attempted, error.status, error.message) from error
            raise

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
    statuses: Sequence[Mapping[str, Any]] = status.get("devices") or ()
    return ResourceClaim(
        namespace=namespace,
        name=name,
        uid=uid,
        is_allocated=allocation is not None,
        results=tuple(_parse_result(each, statuses) for each in devices.get("results") or ()),
        configs=tuple(map(_parse_config, devices.get("config") or ())),
        pods=_parse_pods(namespace, status.get("reservedFor") or ()),
        version=str(metadata.get("resourceVersion") or ""),
        allocated_at=str((allocation or {}).get("allocationTimestamp") or ""),
        statuses=tuple(statuses),
        pod_claim_name=str((metadata.get("annotations") or {}).get(POD_CLAIM_NAME) or ""),
    )


def _parse_result(document: Mapping[str, Any], statuses: Sequence[Mapping[str, Any]]) -> ClaimResult:
    consumed: Mapping[str, Any] = document.get("consumedCapacity") or {}
    return ClaimResult(
        request=str(document["request"]),
        driver=str(document["driver"]),
        pool=str(document["pool"]),
        device=str(document["device"]),
        is_admin=bool(document.get("adminAccess")),
        share_id=str(document.get("shareID") or ""),
        consumed={str(key): str(value) for key, value in consumed.items()},
        tolerations=tuple(map(_parse_toleration, document.get("tolerations") or ())),
        awaited=tuple(map(str, document.get("bindingConditions") or ())),
        reached=frozenset(
            str(condition["type"])
            for each in statuses
            if _name_device(each) == _name_device(document)
            for condition in each.get("conditions") or ()
            if condition.get("status") == "True"
        ),
    )


def _parse_toleration(document: Mapping[str, Any]) -> DeviceToleration:
    is_any = document.get("operator") == "Exists"
    return DeviceToleration(
        key=str(document.get("key") or ""),
        value=None if is_any else str(document.get("value") or ""),
        effect=str(document.get("effect") or ""),
    )


def _name_device(document: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(document.get(key) or "") for key in ("driver", "pool", "device", "shareID"))


def _render_status(condition: DeviceCondition, since: str) -> Json:
    result = condition.result
    said = {"reason": condition.reason, "message": condition.message[:_MESSAGE_MAX], "lastTransitionTime": since}
    conditions = [{"type": BINDING_CONDITION, "status": str(condition.is_proven), **said}]
    if not condition.is_proven:
        conditions.append({"type": BINDING_FAILURE, "status": "True", **said})
    named: Json = {"driver": result.driver, "pool": result.pool, "device": result.device}
    return {**named, **({"shareID": result.share_id} if result.share_id else {}), "conditions": conditions}


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

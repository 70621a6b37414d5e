"""Evicts pods of the node, has pods leave for a repair, and finds pods of certain applications.

Owns the eviction subresource, answered by the pod's disruption budget.
Refuses a pod that came later under the same name, and for a repair a pod that has changed since it was read.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from nodeagent.edge.kube.client import DRY_RUN, Json, KubeClient
from nodeagent.edge.kube.errors import ApiBusy, ApiConflict, ApiFailed, ApiForbidden, ApiNotFound, making_sense
from nodeagent.edge.kube.pods import PODS, delete_pod, find_controller, is_static
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from nodeagent.model.drains import BoundPod, EvictionAnswer

_ONE: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_SEVERAL: Final = "more than one PodDisruptionBudget"
"""A word of the API server's answer, which has no reason of its own."""
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class MakingWayForbidden(ApiForbidden):
    """The rights for evicting and listing pods are missing."""

    remedy = "apply deploy/rbac-mig.yaml"


class DrainingForbidden(ApiForbidden):
    """The rights for reading, evicting or deleting the pods of a drain are missing."""

    remedy = "apply deploy/rbac-repairs.yaml, and run the agent with a token that is bound to its node"


class KubeDraining:
    """Has pods leave, each only as the pod was read."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def read_pod(self, pod: PodIdentity) -> BoundPod | None:
        """The pod now, by metadata alone.

        Raises:
            KubeError: no answer, or a refusal.
        """
        attempted = f"read the pod {pod.describe()}"
        try:
            document = await self._client.request("GET", _locate(pod), attempted=attempted, accept=_ONE)
        except ApiNotFound as error:
            error.demand_object()
            return None
        except ApiForbidden as error:
            raise DrainingForbidden(error.attempted, error.status, error.message) from error
        with making_sense(attempted):
            return _parse_pod(document["metadata"], pod)

    async def evict(self, seen: BoundPod) -> EvictionAnswer:
        """Ask the pod to leave, if it is still the pod that was read.

        Raises:
            KubeError: no answer, or another refusal.
        """
        return await self._evict(seen.pod, seen.version)

    async def rehearse(self, pod: PodIdentity) -> EvictionAnswer:
        """The answer to an eviction of the pod that the API server does not carry out.

        Raises:
            KubeError: no answer, or another refusal.
        """
        return await self._evict(pod, query=DRY_RUN)

    async def _evict(
        self, pod: PodIdentity, version: str = "", query: Mapping[str, str] | None = None
    ) -> EvictionAnswer:
        body, attempted = render_eviction(pod, version), f"evict the pod {pod.describe()}"
        path = f"{_locate(pod)}/eviction"
        try:
            await self._client.request("POST", path, attempted=attempted, body=body, query=query)
        except ApiNotFound as error:
            error.demand_object()
            return EvictionAnswer(eviction=Eviction.GONE)
        except ApiConflict:
            return EvictionAnswer(eviction=Eviction.CHANGED)
        except ApiBusy as error:
            if not error.is_budget:
                raise
            wait = error.retry_after_seconds
            return EvictionAnswer(eviction=Eviction.BLOCKED, detail=error.budget, retry_after_seconds=wait)
        except ApiFailed as error:
            if _SEVERAL not in error.message:
                raise
            return EvictionAnswer(eviction=Eviction.SEVERAL_BUDGETS, detail=error.message)
        except ApiForbidden as error:
            raise DrainingForbidden(error.attempted, error.status, error.message) from error
        return EvictionAnswer(eviction=Eviction.ASKED)

    async def delete(self, seen: BoundPod) -> bool:
        """Delete the pod, if it is still the pod that was read.

        Raises:
            KubeError: no answer, or a refusal.
        """
        try:
            return await delete_pod(self._client, seen.pod, seen.version, f"delete the pod {seen.pod.describe()}")
        except ApiForbidden as error:
            raise DrainingForbidden(error.attempted, error.status, error.message) from error


def _locate(pod: PodIdentity) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _parse_pod(metadata: Json, pod: PodIdentity) -> BoundPod | None:
    if metadata["uid"] != pod.uid:
        return None
    return BoundPod(
        pod=pod,
        version=str(metadata["resourceVersion"]),
        controller=find_controller(metadata),
        is_static=is_static(metadata),
        is_going="deletionTimestamp" in metadata,
    )


class KubeEvictions:
    """The port `PodEviction` over a client."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client, self._node_name = client, node_name

    async def evict_pod(self, pod: PodIdentity) -> Eviction:
        """Ask a pod to go.

        Raises:
            KubeError: refused for another reason than the disruption budget, or no answer.
        """
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        attempted = f"evict the pod {pod.namespace}/{pod.name}"
        try:
            await self._client.request("POST", path, attempted=attempted, body=render_eviction(pod))
        except (ApiNotFound, ApiConflict):
            return Eviction.GONE
        except ApiBusy as error:
            if not error.is_budget:
                raise
            return Eviction.BLOCKED
        except ApiForbidden as error:
            raise MakingWayForbidden(error.attempted, error.status, error.message) from error
        return Eviction.ASKED

    async def list_pods(self, values: Sequence[str], label: str = "app") -> tuple[str, ...]:
        """The node's pods with any of these values of the label, as `namespace/name`."""
        query = {
            "fieldSelector": f"spec.nodeName={self._node_name}",
            "labelSelector": f"{label} in ({','.join(values)})",
        }
        attempted = "list the pods of other parts on this node"
        try:
            answer = await self._client.request("GET", PODS, attempted=attempted, query=query, accept=_METADATA)
        except ApiForbidden as error:
            raise MakingWayForbidden(error.attempted, error.status, error.message) from error
        with making_sense(attempted):
            # An empty list of metadata alone is null.
            found = [item["metadata"] for item in answer["items"] or ()]
            return tuple(sorted(f"{one['namespace']}/{one['name']}" for one in found))


def render_eviction(pod: PodIdentity, version: str = "") -> Json:
    """The posted document: with a uid it means no later pod of the same name, with a version no changed pod."""
    eviction: Json = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
    }
    if pod.uid:
        preconditions = {"uid": pod.uid} | ({"resourceVersion": version} if version else {})
        eviction["deleteOptions"] = {"preconditions": preconditions}
    return eviction

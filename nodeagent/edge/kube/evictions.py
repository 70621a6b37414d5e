"""Evicts pods of the node, and finds pods of certain applications.

Owns the eviction subresource, answered by the pod's disruption budget.
Refuses to delete: a pod under a budget stays, and so does a later pod of the same name.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiBusy, ApiConflict, ApiForbidden, ApiNotFound, making_sense
from nodeagent.edge.kube.pods import PODS
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction

_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class MakingWayForbidden(ApiForbidden):
    """The rights for evicting and listing pods are missing."""

    remedy = "apply deploy/rbac-mig.yaml"


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

    async def list_pods(self, applications: Sequence[str]) -> tuple[str, ...]:
        """The node's pods with a label `app` among the values, as `namespace/name`."""
        query = {
            "fieldSelector": f"spec.nodeName={self._node_name}",
            "labelSelector": f"app in ({','.join(applications)})",
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


def render_eviction(pod: PodIdentity) -> Json:
    """The posted document; with a uid, a later pod of the same name is not meant."""
    eviction: Json = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
    }
    if pod.uid:
        eviction["deleteOptions"] = {"preconditions": {"uid": pod.uid}}
    return eviction

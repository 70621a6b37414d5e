"""The node's pods, followed by a watch for as long as a setting wants the pods: labels, and pods that are yet to start.

Owns the form of the requests: labels by metadata alone, a tenth of a pod; of other pods only those in no later phase.
Refuses the pods of other nodes, to delete a pod that is another, or in another state, than the pod seen, and to write a
condition on a later pod of the same name.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, TypeAlias

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiConflict, ApiForbidden, ApiNotFound, making_sense
from nodeagent.edge.kube.follow import SILENCE_SECONDS, Follower, follow_all
from nodeagent.edge.kube.node_document import FIELD_MANAGER, render_time
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import NominatedPod
from nodeagent.model.cluster import (
    GPU_FAULT_CONDITION,
    EventSeries,
    PodLabels,
    PodLabelTable,
    UnstartedContainer,
    UnstartedPod,
)

PODS = "/api/v1/pods"
UnstartedPodTable: TypeAlias = Mapping[str, UnstartedPod]
"""By uid."""
NominatedPodTable: TypeAlias = Mapping[str, NominatedPod]
"""By uid."""
_WHAT = "the pods of this node"
_UNSTARTED = "the pods of this node that have not started"
_NOMINATED = "the pods that are chosen for this node and not bound yet"
_MIRROR = "kubernetes.io/config.mirror"
_METADATA = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
)


class KubePods:
    """The node's pods in the cluster."""

    def __init__(
        self, client: KubeClient, node_name: str, rng: Random, *, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        selector = {"fieldSelector": f"spec.nodeName={node_name}"}
        self._follower = Follower(client, PODS, selector, _WHAT, rng, silence_seconds=silence_seconds, accept=_METADATA)

    async def follow_pods(self) -> AsyncGenerator[PodLabelTable, None]:
        """The pods' labels now and after each change; runs until the watch breaks."""
        async with aclosing(follow_all(self._follower, _parse)) as tables:
            async for pods in tables:
                yield PodLabelTable(
                    pods=tuple(sorted(pods.values(), key=lambda one: (one.namespace, one.pod, one.uid)))
                )


class DeletingForbidden(ApiForbidden):
    """The rights for following and deleting refused pods are missing, or the policy has no such pod."""

    remedy = "apply deploy/rbac-refused-pods.yaml"


class NominatedForbidden(ApiForbidden):
    """The right to follow the pods that schedulers have chosen the node for is missing."""

    remedy = "apply deploy/rbac-proof.yaml"


class KubeUnstartedPods:
    """The node's pods that have not started."""

    def __init__(
        self, client: KubeClient, node_name: str, rng: Random, *, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self._client = client
        selector = {"fieldSelector": f"spec.nodeName={node_name},status.phase!=Running,status.phase!=Succeeded"}
        self._follower = Follower(client, PODS, selector, _UNSTARTED, rng, silence_seconds=silence_seconds)

    async def follow(self) -> AsyncGenerator[UnstartedPodTable, None]:
        """The pods now and after each change; a pod that starts leaves the table; runs until the watch breaks."""
        try:
            async with aclosing(follow_all(self._follower, _parse_unstarted)) as tables:
                async for pods in tables:
                    yield pods
        except ApiForbidden as error:
            raise DeletingForbidden(error.attempted, error.status, error.message) from error

    async def delete(self, seen: UnstartedPod) -> bool:
        """Delete the pod as seen, with its own grace period; `False` where the pod is gone or has changed."""
        attempted = f"delete the refused pod {seen.pod.describe()}"
        try:
            return await delete_pod(self._client, seen.pod, seen.version, attempted)
        except ApiForbidden as error:
            raise DeletingForbidden(error.attempted, error.status, error.message) from error


class KubeNominatedPods:
    """The pods that a scheduler has chosen the node for and has not bound yet."""

    def __init__(
        self, client: KubeClient, node_name: str, rng: Random, *, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        selector = {"fieldSelector": f"status.nominatedNodeName={node_name},spec.nodeName="}
        self._follower = Follower(client, PODS, selector, _NOMINATED, rng, silence_seconds=silence_seconds)

    async def follow(self) -> AsyncGenerator[NominatedPodTable, None]:
        """The pods now and after each change; a pod that is bound leaves the table; runs until the watch breaks."""
        try:
            async with aclosing(follow_all(self._follower, _parse_nominated)) as tables:
                async for pods in tables:
                    yield pods
        except ApiForbidden as error:
            raise NominatedForbidden(error.attempted, error.status, error.message) from error


async def delete_pod(client: KubeClient, pod: PodIdentity, version: str, attempted: str) -> bool:
    """Delete a pod with its own grace period; `False` where the pod is gone or has another version."""
    preconditions = {"uid": pod.uid, "resourceVersion": version}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    try:
        await client.request("DELETE", path, attempted=attempted, body=body)
    except ApiNotFound as error:
        error.demand_object()
        return False
    except ApiConflict:
        return False
    return True


def find_controller(metadata: Json) -> str:
    """The kind of the controlling owner; empty without a controller."""
    kinds = [str(each["kind"]) for each in metadata.get("ownerReferences") or () if each.get("controller")]
    return kinds[0] if kinds else ""


def is_static(metadata: Json) -> bool:
    """Whether the pod mirrors a file of the node."""
    return _MIRROR in (metadata.get("annotations") or {})


class PodStatusForbidden(ApiForbidden):
    """The right to write the status of pods is missing, or the policy has no such condition."""

    remedy = "apply deploy/rbac-pod-conditions.yaml, and run the agent with a token that is bound to its node"


class KubePodStatus:
    """The status of pods; a condition stays, as the owner of the pod decides by it after the end of the pod."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def write_fault(self, series: EventSeries) -> bool:
        """Set the condition, at once, as the pod may end; returns whether the pod was still there.

        Raises:
            KubeError: the API server refuses, or does not answer.
        """
        pod, event = series.pod, series.event
        condition = {
            "type": GPU_FAULT_CONDITION,
            "status": "True",
            "reason": event.reason,
            "message": event.note,
            "lastTransitionTime": render_time(series.first_seconds),
        }
        try:
            await self._client.request(
                "PATCH",
                f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status",
                attempted=f"write the condition {GPU_FAULT_CONDITION} of the pod {pod.describe()}",
                query={"fieldManager": FIELD_MANAGER},
                body={"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
                content_type="application/strategic-merge-patch+json",
                in_turn=False,
            )
        except ApiNotFound as error:
            error.demand_object()
            return False
        except ApiConflict:
            return False
        except ApiForbidden as error:
            raise PodStatusForbidden(error.attempted, error.status, error.message) from error
        return True


def _parse(document: Json) -> tuple[str, PodLabels]:
    with making_sense(f"read {_WHAT}"):
        metadata = document["metadata"]
        labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
        uid = str(metadata["uid"])
        return uid, PodLabels(namespace=metadata["namespace"], pod=metadata["name"], uid=uid, labels=labels)


def _parse_unstarted(document: Json) -> tuple[str, UnstartedPod]:
    with making_sense(f"read {_UNSTARTED}"):
        metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
        namespace, name, uid = (str(metadata[key]) for key in ("namespace", "name", "uid"))
        statuses = {
            each["name"]: each
            for key in ("initContainerStatuses", "containerStatuses")
            for each in status.get(key) or ()
        }
        return uid, UnstartedPod(
            pod=PodIdentity(namespace=namespace, name=name, uid=uid),
            version=str(metadata["resourceVersion"]),
            phase=str(status.get("phase", "")),
            reason=str(status.get("reason", "")),
            message=str(status.get("message", "")),
            controller=find_controller(metadata),
            is_static=is_static(metadata),
            is_going="deletionTimestamp" in metadata,
            containers=tuple(
                _parse_container(each, statuses.get(each["name"]) or {})
                for key in ("initContainers", "containers")
                for each in spec.get(key) or ()
            ),
        )


def _parse_container(document: Json, status: Mapping[str, Any]) -> UnstartedContainer:
    state = status.get("state") or {}
    return UnstartedContainer(
        name=str(document["name"]),
        resources=frozenset((document.get("resources") or {}).get("limits") or {}),
        waiting=str((state.get("waiting") or {}).get("message", "")),
        has_run=bool(
            state.keys() & {"running", "terminated"}
            or status.get("lastState")
            or status.get("restartCount")
            or status.get("started")
        ),
    )


def _parse_nominated(document: Json) -> tuple[str, NominatedPod]:
    with making_sense(f"read {_NOMINATED}"):
        metadata, status = document["metadata"], document.get("status") or {}
        namespace, name, uid = (str(metadata[key]) for key in ("namespace", "name", "uid"))
        named = [
            *((document.get("spec") or {}).get("resourceClaims") or ()),
            *(status.get("resourceClaimStatuses") or ()),
            status.get("extendedResourceClaimStatus") or {},
        ]
        claims = dict.fromkeys(str(each["resourceClaimName"]) for each in named if each.get("resourceClaimName"))
        return uid, NominatedPod(pod=PodIdentity(namespace=namespace, name=name, uid=uid), claims=tuple(claims))

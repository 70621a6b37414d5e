"""The requests of the node's pods, and schedulers' annotations on the pods: a list, followed by a watch.

Owns the choice of kept fields. Refuses the pods of other nodes; only annotations are written to a pod.
"""

from collections.abc import AsyncGenerator, Mapping
from random import Random
from typing import Any, TypeAlias

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import making_sense
from nodeagent.edge.kube.follow import SILENCE_SECONDS, Follower, follow_all
from nodeagent.edge.kube.node_document import FIELD_MANAGER
from nodeagent.edge.kube.pods import PODS
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerRequest, PodRequest
from nodeagent.model.scheduling import FINISHED_PHASES

_WHAT = "what the pods of this node ask for"
Table: TypeAlias = Mapping[tuple[str, str], PodRequest]
"""By namespace and name."""


class KubePodRequests:
    """The requests of the pods of one node."""

    def __init__(
        self, client: KubeClient, node_name: str, rng: Random, *, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self._client = client
        selector = {"fieldSelector": f"spec.nodeName={node_name}"}
        self._follower = Follower(client, PODS, selector, _WHAT, rng, silence_seconds=silence_seconds)

    def follow(self) -> AsyncGenerator[Table, None]:
        """The pods now, and after each change; runs until a failure."""
        return follow_all(self._follower, _parse)

    async def annotate(self, pod: PodIdentity, annotations: Mapping[str, str]) -> None:
        """Write annotations on exactly this pod: a later pod of the same name has another uid, and is refused."""
        await self._client.request(
            "PATCH",
            f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}",
            attempted=f"write on the pod {pod.namespace}/{pod.name} which GPUs it has",
            query={"fieldManager": FIELD_MANAGER},
            body={"metadata": {"uid": pod.uid, "annotations": dict(annotations)}},
            content_type="application/merge-patch+json",
        )


def _parse(document: Json) -> tuple[tuple[str, str], PodRequest]:
    with making_sense(f"read {_WHAT}"):
        metadata, spec = document["metadata"], document.get("spec") or {}
        namespace, name, uid = (str(metadata[key]) for key in ("namespace", "name", "uid"))
        containers = [
            *(_read_container(each, is_init=True) for each in spec.get("initContainers") or ()),
            *(_read_container(each, is_init=False) for each in spec.get("containers") or ()),
        ]
        request = PodRequest(
            pod=PodIdentity(namespace=namespace, name=name, uid=uid),
            annotations=_read_texts(metadata.get("annotations")),
            containers=tuple(containers),
            is_finished=(document.get("status") or {}).get("phase") in FINISHED_PHASES,
        )
        return (namespace, name), request


def _read_container(document: Json, *, is_init: bool) -> ContainerRequest:
    limits = (document.get("resources") or {}).get("limits")
    return ContainerRequest(name=str(document["name"]), is_init=is_init, limits=_read_texts(limits))


def _read_texts(mapping: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in (mapping or {}).items()}

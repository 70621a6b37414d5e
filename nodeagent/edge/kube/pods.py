"""The labels of the node's pods, followed by a watch for as long as labels are wanted.

Owns the form of the requests: metadata alone, a tenth of a pod. Refuses the pods of other nodes.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import making_sense
from nodeagent.edge.kube.follow import SILENCE_SECONDS, Follower, follow_all
from nodeagent.model.cluster import PodLabels, PodLabelTable

PODS = "/api/v1/pods"
_WHAT = "the pods of this node"
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


def _parse(document: Json) -> tuple[str, PodLabels]:
    with making_sense(f"read {_WHAT}"):
        metadata = document["metadata"]
        labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
        uid = str(metadata["uid"])
        return uid, PodLabels(namespace=metadata["namespace"], pod=metadata["name"], uid=uid, labels=labels)

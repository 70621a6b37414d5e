"""A NodeFeature object, by which node feature discovery is told this node's labels.

Owns its name and form, and speaks of it as of a file of labels, for it is one: read whole, written whole.
Refuses owner references: with them the labels would go with the agent's pod, and come back with the next one.
"""

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiNotFound
from nodeagent.edge.kube.node_document import FIELD_MANAGER

_GROUP = "nfd.k8s-sigs.io/v1alpha1"
_APPLY = "application/apply-patch+yaml"


class NodeFeatureObject:
    """The port `LabelFile` over one object."""

    def __init__(self, client: KubeClient, node_name: str, namespace: str | None) -> None:
        """Wire it up.

        Args:
            client: the way to the API server.
            node_name: whose labels they are.
            namespace: where the object lies; the service account's own when the settings do not say.
        """
        self._client, self._node_name, self._namespace = client, node_name, namespace
        self._name = f"nvidia-features-for-{node_name}"

    async def read(self) -> str:
        """Its labels as `key=value` lines; nothing when there is no such object.

        Raises:
            KubeError: it could not be read.
        """
        try:
            document = await self._client.request(
                "GET", await self._find_path(), attempted=f"read NodeFeature {self._name}"
            )
        except ApiNotFound:
            return ""
        labels = (document.get("spec") or {}).get("labels") or {}
        return "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))

    async def write(self, text: str) -> None:
        """Have exactly these labels in it.

        Raises:
            KubeError: it was not written.
        """
        await self._client.request(
            "PATCH",
            await self._find_path(),
            attempted=f"write NodeFeature {self._name}",
            query={"fieldManager": FIELD_MANAGER},
            body=self._render(dict(line.split("=", 1) for line in text.splitlines())),
            content_type=_APPLY,
        )

    async def _find_path(self) -> str:
        if self._namespace is None:
            self._namespace = await self._client.read_namespace()
        return f"/apis/{_GROUP}/namespaces/{self._namespace}/nodefeatures/{self._name}"

    def _render(self, labels: dict[str, str]) -> Json:
        return {
            "apiVersion": _GROUP,
            "kind": "NodeFeature",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"nfd.node.kubernetes.io/node-name": self._node_name},
            },
            "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": labels},
        }

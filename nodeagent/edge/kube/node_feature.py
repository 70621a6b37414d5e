"""A NodeFeature object, with the node's labels for node feature discovery.

Owns name and form, and treats the object like a file of labels: read whole, written whole.
"""

from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiForbidden, ApiNotFound
from nodeagent.edge.kube.node_document import FIELD_MANAGER
from nodeagent.edge.kube.own_pod import PodOwners

_GROUP = "nfd.k8s-sigs.io/v1alpha1"
_APPLY = "application/apply-patch+yaml"


class NodeFeatureObject:
    """The port `LabelFile` over an object; the DaemonSet of the agent's pod owns the object.

    Without a `namespace`, the object is in the service account's own.
    """

    def __init__(self, client: KubeClient, node_name: str, namespace: str | None, pod_name: str | None = None) -> None:
        self._client, self._node_name, self._namespace = client, node_name, namespace
        self._name = f"nvidia-features-for-{node_name}"
        self._owners = PodOwners(client, pod_name)

    async def read(self) -> str:
        """The labels as `key=value` lines; empty without an object.

        An object with other owners, such as a former pod, is taken over.
        """
        document = await self._find()
        if document is None:
            return ""
        labels = (document.get("spec") or {}).get("labels") or {}
        owners = {each["uid"] for each in await self._find_owners()}
        if owners and owners != _list_uids(document):
            await self._write(labels)
        return "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))

    async def write(self, text: str) -> None:
        """Write the object with exactly these labels."""
        await self._write(dict(line.split("=", 1) for line in text.splitlines()))

    async def remove(self) -> bool:
        """Remove the object; False without an object, or without the right to look."""
        try:
            if await self._find() is None:
                return False
        except ApiForbidden:
            return False
        await self._client.request("DELETE", await self._find_path(), attempted=f"remove NodeFeature {self._name}")
        return True

    async def _find(self) -> Json | None:
        path = await self._find_path()
        try:
            return await self._client.request("GET", path, attempted=f"read NodeFeature {self._name}")
        except ApiNotFound:
            return None

    async def _write(self, labels: Json) -> None:
        path = await self._find_path()
        await self._client.request(
            "PATCH",
            path,
            attempted=f"write NodeFeature {self._name}",
            query={"fieldManager": FIELD_MANAGER},
            body=self._render(labels, await self._find_owners()),
            content_type=_APPLY,
        )

    async def _find_path(self) -> str:
        return f"/apis/{_GROUP}/namespaces/{await self._find_namespace()}/nodefeatures/{self._name}"

    async def _find_owners(self) -> list[Json]:
        return await self._owners.read(await self._find_namespace())

    async def _find_namespace(self) -> str:
        if self._namespace is None:
            self._namespace = await self._client.read_namespace()
        return self._namespace

    def _render(self, labels: Json, owners: list[Json]) -> Json:
        metadata: Json = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"nfd.node.kubernetes.io/node-name": self._node_name},
        }
        return {
            "apiVersion": _GROUP,
            "kind": "NodeFeature",
            "metadata": metadata | ({"ownerReferences": owners} if owners else {}),
            "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": labels},
        }


def _list_uids(document: Json) -> set[str]:
    return {each["uid"] for each in (document.get("metadata") or {}).get("ownerReferences") or ()}

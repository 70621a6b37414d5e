"""The owners of objects that the agent creates in the cluster: the agent's DaemonSet and pod.

Owns the look-up. An object with these owners outlives a replaced pod, for the cluster collects the object only when all
owners are gone, and goes with the DaemonSet. Refuses to guess: outside of a pod, in a pod of no DaemonSet, and where
the pod cannot be read, there are no owners, and the object stays.
"""

from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiRefused, KubeError

_log = get_logger(component="kube")


class PodOwners:
    """The owners of objects in our own namespace, asked for until known."""

    def __init__(self, client: KubeClient, pod_name: str | None) -> None:
        self._client, self._pod_name = client, pod_name
        self._known: list[Json] | None = None
        self._told = False

    async def read(self, namespace: str) -> list[Json]:
        """The owners for an object in the namespace; empty in a namespace without the agent's pod."""
        if self._pod_name is None:
            return []
        if self._known is None:
            path = f"/api/v1/namespaces/{namespace}/pods/{self._pod_name}"
            try:
                pod = await self._client.request("GET", path, attempted=f"read our pod {self._pod_name}")
            except ApiRefused as error:
                self._note(error)
                return []
            self._known = parse_owners(pod)
        return self._known

    def _note(self, error: KubeError) -> None:
        if not self._told:
            self._told = True
            _log.warning("owners_not_found", pod=self._pod_name, reason=str(error))


def parse_owners(pod: Json) -> list[Json]:
    """The DaemonSet of a pod and the pod, as owner references; empty for a pod of no DaemonSet."""
    metadata = pod.get("metadata") or {}
    daemon_set = next((each for each in metadata.get("ownerReferences") or () if each.get("kind") == "DaemonSet"), None)
    if daemon_set is None or not metadata.get("uid"):
        return []
    kept = {key: daemon_set.get(key, "") for key in ("apiVersion", "kind", "name", "uid")}
    itself = {"apiVersion": "v1", "kind": "Pod", "name": metadata.get("name", ""), "uid": metadata["uid"]}
    return [kept | {"controller": True}, itself]

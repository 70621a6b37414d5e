"""A Lease of the API server: which of several replicas leads.

Owns the document. Other code decides which replica may take the Lease; of two writers at once the API server refuses
the second, whose version is outdated.
"""

from datetime import UTC, datetime

from nodeagent.core.clock import Clock
from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiNotFound, making_sense
from nodeagent.model.scheduling import SeenLease


class KubeLease:
    """A Lease by name."""

    def __init__(self, client: KubeClient, namespace: str, name: str, clock: Clock) -> None:
        self._client, self._namespace, self._name, self._clock = client, namespace, name, clock

    async def read(self) -> SeenLease | None:
        """The Lease's content; `None` without a Lease."""
        try:
            document = await self._client.request("GET", self._path(), attempted=self._say("read"))
        except ApiNotFound:
            return None
        return self._parse(document)

    async def write(self, before: SeenLease | None, holder: str, seconds: float) -> SeenLease:
        """Give the Lease to the holder for so long; an empty holder gives the Lease up.

        Raises:
            ApiConflict: another replica wrote the Lease meanwhile.
        """
        method, path = ("POST", self._path("")) if before is None else ("PUT", self._path())
        document = await self._client.request(
            method, path, attempted=self._say("write"), body=self._render(before, holder, seconds)
        )
        return self._parse(document)

    def _path(self, name: str | None = None) -> str:
        name = self._name if name is None else name
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{name}".rstrip("/")

    def _say(self, verb: str) -> str:
        return f"{verb} lease {self._namespace}/{self._name}"

    def _render(self, before: SeenLease | None, holder: str, seconds: float) -> Json:
        now = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_new = before is None or before.holder != holder
        # Another writer may have left the time out, and the API server reads no empty time.
        acquired = "" if before is None or is_new else before.acquired
        spec: Json = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(seconds)),
            "renewTime": now,
            "acquireTime": acquired or now,
            "leaseTransitions": 0 if before is None else before.transitions + is_new,
        }
        metadata: Json = {"name": self._name, "namespace": self._namespace}
        if before is not None:
            metadata["resourceVersion"] = before.version
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def _parse(self, document: Json) -> SeenLease:
        with making_sense(self._say("read")):
            spec = document.get("spec") or {}
            return SeenLease(
                version=str(document["metadata"]["resourceVersion"]),
                holder=str(spec.get("holderIdentity") or ""),
                seconds=float(spec.get("leaseDurationSeconds") or 0),
                acquired=str(spec.get("acquireTime") or ""),
                transitions=int(spec.get("leaseTransitions") or 0),
            )

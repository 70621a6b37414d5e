"""One Lease of the API server: who of several replicas leads, as they tell one another.

Owns the document. Who may take it is decided elsewhere; that two who try at once do not both get it is the API server's
doing, which refuses a write to a version that is no longer there.
"""

from datetime import UTC, datetime

from nodeagent.core.clock import Clock
from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiNotFound, ApiUnreachable
from nodeagent.model.scheduling import SeenLease


class KubeLease:
    """A Lease by its name."""

    def __init__(self, client: KubeClient, namespace: str, name: str, clock: Clock) -> None:
        self._client, self._namespace, self._name, self._clock = client, namespace, name, clock

    async def read(self) -> SeenLease | None:
        """What it says; `None` where there is none.

        Raises:
            KubeError: it could not be read.
        """
        try:
            document = await self._client.request("GET", self._path(), attempted=self._say("read"))
        except ApiNotFound:
            return None
        return self._parse(document)

    async def write(self, before: SeenLease | None, holder: str, seconds: float) -> SeenLease:
        """Have it held by this holder for so long; an empty holder gives it up.

        Raises:
            ApiConflict: somebody else wrote it since.
            KubeError: anything else.
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
        # A time that somebody else has left out is none, and the API server reads no empty one.
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
        try:
            spec = document.get("spec") or {}
            return SeenLease(
                version=str(document["metadata"]["resourceVersion"]),
                holder=str(spec.get("holderIdentity") or ""),
                seconds=float(spec.get("leaseDurationSeconds") or 0),
                acquired=str(spec.get("acquireTime") or ""),
                transitions=int(spec.get("leaseTransitions") or 0),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"its answer makes no sense ({error!r})"
            raise ApiUnreachable("the API server", self._say("read"), reason) from error

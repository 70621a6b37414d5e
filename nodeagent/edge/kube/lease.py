"""Leases of the API server: which of several replicas leads, and which nodes may be repaired at once.

Owns the documents. Other code decides who may take a Lease; of two writers at once the API server refuses the second,
whose version is outdated.
"""

from datetime import UTC, datetime
from typing import Final

from nodeagent.core.clock import Clock
from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import ApiNotFound, making_sense
from nodeagent.model.scheduling import SeenLease
from nodeagent.model.slots import Slot

BREAKER_ANNOTATION: Final = "nodeagent.io/repairs-breaker"
SUSPENDED_ANNOTATION: Final = "nodeagent.io/repairs"
"""With the value `off` the domain of the slot is suspended."""


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
        now = _tell_time(self._clock)
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


class KubeSlots:
    """The slots of repairs: Leases that stand before, read and patched by name; labels of others stay as they are."""

    def __init__(self, client: KubeClient, namespace: str | None, clock: Clock) -> None:
        """Without a namespace the Leases are in the service account's own."""
        self._client, self._namespace, self._clock = client, namespace, clock

    async def read(self, name: str, number: int) -> Slot:
        """The slot as the API server has it.

        Raises:
            ApiNotFound: nobody has made the Lease.
        """
        path = await self._find_path(name)
        attempted = f"read lease {self._namespace}/{name}"
        return _parse_slot(await self._client.request("GET", path, attempted=attempted), number, attempted)

    async def write(self, name: str, slot: Slot) -> None:
        """Give the slot to its holder, over the version that it carries.

        Raises:
            ApiConflict: another has written the Lease since.
        """
        now = _tell_time(self._clock)
        spec = {"holderIdentity": slot.holder, "leaseDurationSeconds": max(1, round(slot.seconds)), "renewTime": now}
        await self._patch(name, slot, {"spec": spec})

    async def write_breaker(self, name: str, slot: Slot) -> None:
        """Write the slot's breaker alone, so that nobody takes it for news of the holder; conflicts as `write`."""
        await self._patch(name, slot, {})

    async def _patch(self, name: str, slot: Slot, change: Json) -> None:
        metadata: Json = {"resourceVersion": slot.version}
        if slot.breaker:
            metadata["annotations"] = {BREAKER_ANNOTATION: slot.breaker}
        path = await self._find_path(name)
        await self._client.request(
            "PATCH",
            path,
            attempted=f"write lease {self._namespace}/{name}",
            body={"metadata": metadata, **change},
            content_type="application/merge-patch+json",
        )

    async def _find_path(self, name: str) -> str:
        if self._namespace is None:
            self._namespace = await self._client.read_namespace()
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{name}"


def _parse_slot(document: Json, number: int, attempted: str) -> Slot:
    with making_sense(attempted):
        metadata, spec = document["metadata"], document.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        return Slot(
            number=number,
            version=str(metadata["resourceVersion"]),
            holder=str(spec.get("holderIdentity") or ""),
            renewed=str(spec.get("renewTime") or ""),
            seconds=float(spec.get("leaseDurationSeconds") or 0),
            breaker=str(annotations.get(BREAKER_ANNOTATION, "")),
            is_suspended=annotations.get(SUSPENDED_ANNOTATION) == "off",
        )


def _tell_time(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

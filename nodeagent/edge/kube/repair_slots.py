"""The slots of repairs in the API server: Leases that stand before, read and patched by name, never made.

Owns the document. A patch carries the version that was read, so that the API server refuses the second of two writers,
and leaves labels and annotations of others as they are.
"""

from datetime import UTC, datetime
from typing import Final

from nodeagent.core.clock import Clock
from nodeagent.edge.kube.client import Json, KubeClient
from nodeagent.edge.kube.errors import making_sense
from nodeagent.model.slots import Slot

BREAKER_ANNOTATION: Final = "nodeagent.io/repairs-breaker"
SUSPENDED_ANNOTATION: Final = "nodeagent.io/repairs"
"""With the value `off` the domain is suspended."""


class KubeSlots:
    """The Leases of one namespace."""

    def __init__(self, client: KubeClient, namespace: str, clock: Clock) -> None:
        self._client, self._namespace, self._clock = client, namespace, clock

    async def read(self, name: str, number: int) -> Slot:
        """The slot as the API server has it.

        Raises:
            ApiNotFound: nobody has made the Lease.
        """
        attempted = f"read lease {self._namespace}/{name}"
        return _parse(await self._client.request("GET", self._path(name), attempted=attempted), number, attempted)

    async def write(self, name: str, slot: Slot) -> None:
        """Give the slot to its holder, over the version that it carries.

        Raises:
            ApiConflict: another has written the Lease since.
        """
        now = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": slot.holder, "leaseDurationSeconds": max(1, round(slot.seconds)), "renewTime": now}
        await self._patch(name, slot, {"spec": spec})

    async def write_breaker(self, name: str, slot: Slot) -> None:
        """Write the slot's breaker alone, so that nobody takes it for news of the holder; conflicts as `write`."""
        await self._patch(name, slot, {})

    async def _patch(self, name: str, slot: Slot, change: Json) -> None:
        metadata: Json = {"resourceVersion": slot.version}
        if slot.breaker:
            metadata["annotations"] = {BREAKER_ANNOTATION: slot.breaker}
        await self._client.request(
            "PATCH",
            self._path(name),
            attempted=f"write lease {self._namespace}/{name}",
            body={"metadata": metadata, **change},
            content_type="application/merge-patch+json",
        )

    def _path(self, name: str) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{name}"


def _parse(document: Json, number: int, attempted: str) -> Slot:
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

"""The slots of a cluster: Leases that other nodes take and leave, and what must hold of them at each reset."""

import time
from collections.abc import Mapping
from typing import Any, Final

from nodeagent.edge.kube.lease import SUSPENDED_ANNOTATION
from nodeagent.model.slots import CLUSTER, Domain
from tests.chaos.truth import Violated
from tests.fakes.apiserver import NODE, FakeApiServer

DOMAIN: Final = Domain(key=CLUSTER, value="", slots=2)
NAMESPACE: Final = "default"
NOTICED_SECONDS: Final = 10.0
"""Whoever suspended a domain so long ago has been heard before a reset."""
LIVING_SECONDS, VANISHING_SECONDS = 3600, 2
"""For how long another node holds a slot: longer than any story waits, and shorter than a step."""


class ClusterSlots:
    """The Leases of one API server, and what this node may do with them."""

    def __init__(self, api: FakeApiServer) -> None:
        self._api = api
        self._living: dict[str, str] = {}
        """Holders that renew, by Lease."""
        self._suspended_at: float | None = None
        self._taken = 0
        for name in self.names:
            self._leases[name] = {"metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}"}}
            api.store.note("leases", name, None)

    @property
    def names(self) -> list[str]:
        return [DOMAIN.name_slot(number) for number in range(DOMAIN.slots)]

    @property
    def _leases(self) -> dict[str, Any]:
        leases: dict[str, Any] = self._api.store.objects["leases"]
        return leases

    def _find_holder(self, name: str) -> str:
        return str((self._leases[name].get("spec") or {}).get("holderIdentity") or "")

    def _write(self, name: str, **changes: Any) -> None:
        self._leases[name] = {**self._leases[name], **changes}
        self._api.store.note("leases", name, None)

    def take(self, number: int, node: str, *, is_living: bool) -> bool:
        """Another node takes a slot that nobody has; whether it did."""
        name = self.names[number]
        if self._find_holder(name):
            return False
        holder, seconds = f"{node}/boot/1/0", LIVING_SECONDS if is_living else VANISHING_SECONDS
        self._taken += 1
        renewed = f"2026-01-01T00:00:00.{self._taken:06}Z"
        self._write(name, spec={"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed})
        if is_living:
            self._living[name] = holder
        return True

    def leave(self) -> int:
        """The other nodes give back what they have; how many slots that are."""
        left, self._living = self._living, {}
        for name in left:
            self._write(name, spec={"holderIdentity": ""})
        return len(left)

    def suspend(self) -> None:
        """A person stops the domain."""
        self._annotate({**self._read_annotations(), SUSPENDED_ANNOTATION: "off"})
        self._suspended_at = self._suspended_at or time.monotonic()

    def resume(self) -> None:
        """A person lets the domain go on, and its breaker begin anew."""
        self._annotate({})
        self._suspended_at = None

    def _read_annotations(self) -> dict[str, str]:
        return dict(self._leases[self.names[0]]["metadata"].get("annotations") or {})

    def _annotate(self, annotations: Mapping[str, str]) -> None:
        name = self.names[0]
        self._write(name, metadata={**self._leases[name]["metadata"], "annotations": dict(annotations)})

    def list_own(self) -> list[str]:
        """The Leases that this node holds."""
        return [name for name in self.names if self._find_holder(name).startswith(f"{NODE}/")]

    def check(self) -> None:
        """Raises Violated: a slot was taken from a node that holds it."""
        for name, holder in self._living.items():
            if (found := self._find_holder(name)) != holder:
                raise Violated(f"slot {name} was {holder}'s, and is {found or 'nobody'}'s")

    def check_reset(self, now: float) -> None:
        """Raises Violated: a reset begins without a slot, or in a domain that is suspended."""
        if not self.list_own():
            raise Violated("a reset begins and the node holds no slot")
        if self._suspended_at is not None and now - self._suspended_at > NOTICED_SECONDS:
            raise Violated(f"a reset begins {now - self._suspended_at:.0f} s after a person has suspended repairs")

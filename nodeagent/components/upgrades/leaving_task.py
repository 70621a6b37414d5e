"""The pods that an upgrade of the driver would have leave, and the disruption budgets that keep some of these pods.

Owns the pace of the questions about budgets. Refuses to ask a pod to leave: the API server rehearses each eviction.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import anyio

from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import Eviction
from nodeagent.model.drains import EvictionAnswer
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import FractionTable
from nodeagent.rules.repair.domains import describe_gpu, find_pods
from nodeagent.rules.signals import list_holds

ASK_AGAIN_SECONDS: Final = 60.0
"""Between two questions about the same pods: a budget changes its mind with each pod of its application."""
PATIENCE_SECONDS: Final = 20.0
_BLOCKED: Final = frozenset({Eviction.BLOCKED, Eviction.SEVERAL_BUDGETS})


class Rehearsal(Protocol):
    """The API server's answer to an eviction that is not carried out."""

    async def rehearse(self, pod: PodIdentity) -> EvictionAnswer:
        """What would be answered to the eviction of a pod now."""
        ...


class LeavingPods:
    """The pods with GPUs of the node, by the journal."""

    def __init__(self, bus: Bus, clock: Clock, rehearsal: Rehearsal | None) -> None:
        """`rehearsal` is `None` without an API server."""
        self._bus, self._clock, self._rehearsal = bus, clock, rehearsal
        self._asked: Mapping[str, PodIdentity] | None = None
        self._due_seconds = 0.0
        self.budgets: tuple[str, ...] = ()
        """The pods that a budget keeps, each with the budget, as the API server last said."""

    def find(self) -> Mapping[str, PodIdentity]:
        """The pods by `namespace/name`."""
        read, inventory = self._bus.read, self._bus.read(Inventory)
        if inventory is None:
            return {}
        holds = list_holds(read(AllocationTable), read(FractionTable), read(ReadyClaims))
        pods = find_pods([describe_gpu(gpu) for gpu in inventory.gpus], inventory, holds)
        return {pod.describe(): pod for pod in sorted(pods, key=PodIdentity.describe)}

    def find_wait(self) -> float | None:
        """Seconds until the next question about budgets; `None` where no question was asked."""
        return None if self._asked is None else max(0.0, self._due_seconds - self._clock.monotonic())

    async def ask(self, *, is_wanted: bool) -> None:
        """Have the API server rehearse the evictions, where that is wanted and due."""
        pods, now = self.find(), self._clock.monotonic()
        if self._rehearsal is None or not is_wanted:
            self._asked, self.budgets = None, ()
            return
        if pods == self._asked and now < self._due_seconds:
            return
        self._asked = pods
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                answers = {name: await self._rehearsal.rehearse(pod) for name, pod in pods.items()}
            kept = [f"{name}: {one.detail}" for name, one in answers.items() if one.eviction in _BLOCKED]
        except TimeoutError:
            kept = [f"the budgets are not known: the API server did not answer within {PATIENCE_SECONDS:g} s"]
        except NodeagentError as error:
            kept = [f"the budgets are not known: {error}"]
        self.budgets, self._due_seconds = tuple(kept), self._clock.monotonic() + ASK_AGAIN_SECONDS

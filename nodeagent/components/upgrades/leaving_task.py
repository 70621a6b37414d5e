"""The pods that an upgrade of the driver would have leave, and the disruption budgets that keep some of these pods.

Asks about budgets when a person wants the plan, and at no other time: an upgrade may be due on thousands of nodes for
weeks. Refuses to ask a pod to leave: the API server rehearses each eviction.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import anyio

from nodeagent.core.channels.bus import Bus
from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import Eviction
from nodeagent.model.drains import EvictionAnswer
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import FractionTable
from nodeagent.model.orders import NoArguments
from nodeagent.rules.repair.domains import describe_gpu, find_pods
from nodeagent.rules.signals import list_holds

PATIENCE_SECONDS: Final = 20.0
_BLOCKED: Final = frozenset({Eviction.BLOCKED, Eviction.SEVERAL_BUDGETS})


class Rehearsal(Protocol):
    """The API server's answer to an eviction that is not carried out."""

    async def rehearse(self, pod: PodIdentity) -> EvictionAnswer:
        """The answer to the eviction of a pod now."""
        ...


class LeavingPods:
    """The pods with GPUs of the node, by the journal."""

    def __init__(self, bus: Bus, rehearsal: Rehearsal | None, note_answer: Callable[[], None]) -> None:
        """`rehearsal` is `None` without an API server; `note_answer` is called with each new answer."""
        self._bus, self._rehearsal, self._note_answer = bus, rehearsal, note_answer
        self._budgets: tuple[Mapping[str, PodIdentity], tuple[str, ...]] = ({}, ())

    def find_budgets(self, pods: Mapping[str, PodIdentity]) -> tuple[str, ...]:
        """Of these pods those that a budget keeps, each with the budget; empty for other pods than in the answer."""
        asked, budgets = self._budgets
        return budgets if asked == pods else ()

    def find(self) -> Mapping[str, PodIdentity]:
        """The pods by `namespace/name`."""
        read, inventory = self._bus.read, self._bus.read(Inventory)
        if inventory is None:
            return {}
        holds = list_holds(read(AllocationTable), read(FractionTable), read(ReadyClaims))
        pods = find_pods([describe_gpu(gpu) for gpu in inventory.gpus], inventory, holds)
        return {pod.describe(): pod for pod in sorted(pods, key=PodIdentity.describe)}

    async def rehearse(self, _: NoArguments) -> str:
        """Have the API server rehearse the evictions; the answer in a sentence."""
        pods = self.find()
        if self._rehearsal is None:
            return "there is no API server that could be asked about budgets"
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                answers = {name: await self._rehearsal.rehearse(pod) for name, pod in pods.items()}
            kept = [f"{name}: {one.detail}" for name, one in answers.items() if one.eviction in _BLOCKED]
        except TimeoutError:
            kept = [f"the budgets are not known: the API server did not answer within {PATIENCE_SECONDS:g} s"]
        except NodeagentError as error:
            kept = [f"the budgets are not known: {error}"]
        self._budgets = pods, tuple(kept)
        self._note_answer()
        return "; ".join(kept) or f"no budget keeps any of {len(pods)} pods"

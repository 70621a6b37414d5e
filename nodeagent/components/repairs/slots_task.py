"""Takes a slot in each of the node's domains for a repair, narrow to wide, and gives all back.

Refuses to decide: `rules/repair/slots` says which slot is free, and `rules/repair/breaker` how many may be taken.
"""

from collections.abc import Callable, Sequence
from typing import Final

import anyio
from msgspec.structs import replace

from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.errors import ApiConflict, ApiNotFound
from nodeagent.edge.kube.lease import KubeSlots
from nodeagent.model.errors import NodeagentError
from nodeagent.model.repairs import Rung
from nodeagent.model.slots import Domain, Holder, Slot
from nodeagent.rules.repair.breaker import read_breaker
from nodeagent.rules.repair.slots import HELD_SECONDS, Sightings, find_slot, note_repair, note_slots

TRIES: Final = 3
"""Writes of a slot that others may overtake."""


class RepairSlots:
    """The slots of this node's repairs; a restarted agent finds its slots by their holder."""

    def __init__(
        self, store: KubeSlots, domains: Sequence[Domain], node: str, read_boot: Callable[[], str], clock: Clock
    ) -> None:
        self._store, self._domains, self._node, self._clock = store, tuple(domains), node, clock
        self._read_boot = read_boot
        self._seen: dict[Domain, Sightings] = {}
        self._log = get_logger(component="repairs")

    async def take(self, session: int, rung: Rung) -> str:
        """Take a slot in each domain; empty when all are taken, else the line that says what is lacking."""
        has_all = False
        try:
            for domain in self._domains:
                refusal = await self._take_one(domain, session, rung)
                if refusal:
                    return refusal
            has_all = True
        except NodeagentError as error:
            return str(error)
        finally:
            if not has_all:
                with anyio.CancelScope(shield=True):
                    await self.give_back(session)
        return ""

    async def give_back(self, session: int, *, is_proven: bool | None = None) -> None:
        """Give back what the session holds, wide to narrow; `None` for a repair that did not take place.

        A slot that cannot be given back now is free when its time is over.
        """
        for domain in reversed(self._domains):
            try:
                await self._give_back_one(domain, session, is_proven=is_proven)
            except NodeagentError as error:
                self._log.warning("repair_slot_not_given_back", session=session, domain=str(domain), reason=str(error))

    async def _take_one(self, domain: Domain, session: int, rung: Rung) -> str:
        for _ in range(TRIES):
            try:
                slots = await self._read(domain)
            except ApiNotFound as error:
                return f"a Lease of {domain} is not there: {error}"
            holder = Holder(
                node=self._node,
                boot=self._read_boot(),
                session=session,
                phase=read_breaker(slots[0].breaker).phase,
            )
            slot, refusal = find_slot(domain, slots, holder, self._seen[domain], self._clock.monotonic())
            if slot is None:
                return refusal
            taken = replace(slot, holder=str(holder), seconds=HELD_SECONDS[rung])
            try:
                await self._store.write(domain.name_slot(slot.number), taken)
            except ApiConflict:
                continue
            return ""
        return f"other nodes were faster with the slots of {domain}"

    async def _give_back_one(self, domain: Domain, session: int, *, is_proven: bool | None) -> None:
        """One write for the slot, and a second one for a result that the first slot's breaker has yet to hear of."""
        mine = Holder(node=self._node, boot="", session=session)
        for _ in range(TRIES):
            first, *others = await self._read(domain)
            own = next((slot for slot in (first, *others) if mine.owns(slot.holder)), None)
            if own is None:
                return
            breaker = first.breaker if is_proven is None else note_repair(first, own, is_proven=is_proven)
            freed = replace(own, holder="", seconds=0.0)
            try:
                if own.number:
                    if breaker != first.breaker:
                        await self._store.write_breaker(domain.name_slot(0), replace(first, breaker=breaker))
                        is_proven = None
                    await self._store.write(domain.name_slot(own.number), freed)
                else:
                    await self._store.write(domain.name_slot(0), replace(freed, breaker=breaker))
            except ApiConflict:
                continue
            return

    async def _read(self, domain: Domain) -> list[Slot]:
        slots = [await self._store.read(domain.name_slot(number), number) for number in range(domain.slots)]
        self._seen[domain] = note_slots(self._seen.get(domain), slots, self._clock.monotonic())
        return slots

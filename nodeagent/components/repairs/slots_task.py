"""Takes a slot in each of the node's domains for a repair or an upgrade, narrow to wide, and gives all back.

Refuses to decide: `rules/repair/slots` says which slot is free, and `rules/repair/breaker` how many may be taken.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio
from msgspec.structs import replace

from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.errors import ApiConflict, ApiNotFound
from nodeagent.edge.kube.lease import KubeSlots
from nodeagent.model.errors import NodeagentError
from nodeagent.model.slots import Domain, Holder, Slot
from nodeagent.rules.repair.breaker import read_breaker
from nodeagent.rules.repair.slots import (
    Sightings,
    count_open_slots,
    find_slot,
    is_due,
    note_repair,
    note_slots,
    take_slot,
)

TRIES: Final = 3
"""Writes of a slot that others may overtake."""
GIVE_BACK_SECONDS: Final = 10.0
_CUT_SHORT: Final = "cut short"


class RepairSlots:
    """The slots of this node's work; a restarted agent finds the slots by the holder."""

    def __init__(self, store: KubeSlots, node: str, read_boot: Callable[[], str], clock: Clock) -> None:
        self._store, self._node, self._read_boot, self._clock = store, node, read_boot, clock
        self._seen: dict[Domain, Sightings] = {}
        self.allowed: dict[Domain, int] = {}
        """How many slots of each domain might be taken when the domain was last read."""
        self._empty_handed = set[str]()
        """Work without any slot, as far as answers told; a refusal needs to look no further for the work's own."""
        self._log = get_logger(component="repairs")

    async def take(self, domains: Sequence[Domain], work: str, seconds: float) -> str:
        """Take a slot in each domain, or keep the work's own; empty when all are taken, else what is lacking.

        A refusal leaves the work without any slot; all domains are read before the first write, so that a refusal
        seldom costs a write.

        Raises:
            NodeagentError: no answer from the API server; only slots of before are left to the work.
        """
        taken: list[Domain] = []
        refusal = _CUT_SHORT
        try:
            refusal = await self._take_all(domains, work, seconds, taken)
        finally:
            if refusal and await self.give_back(taken, work) and refusal != _CUT_SHORT:
                self._empty_handed.add(work)
        return refusal

    async def renew(self, domains: Iterable[Domain], work: str, seconds: float) -> None:
        """Renew the slots that the work has whose act is under way, whatever has been said of the domains since.

        Raises:
            NodeagentError: no answer from the API server, or another has overtaken the write.
        """
        for domain in domains:
            slots = await self._read(domain)
            own = self._find_own(slots, work)
            if own is not None:
                await self._write(domain, slots, own, work, seconds)

    async def give_back(self, domains: Iterable[Domain], work: str, *, is_proven: bool | None = None) -> bool:
        """Give back the slots of the work, wide to narrow; `None` where nothing was tried.

        Returns whether nothing is left to be given back; what is left is free when its time is over.
        """
        left = list(domains)
        with anyio.move_on_after(GIVE_BACK_SECONDS, shield=True):
            for domain in reversed(tuple(left)):
                try:
                    if await self._give_back_one(domain, work, is_proven=is_proven):
                        left.remove(domain)
                except NodeagentError as error:
                    self._log.warning("repair_slot_not_given_back", work=work, domain=str(domain), reason=str(error))
        return not left

    async def _take_all(self, domains: Sequence[Domain], work: str, seconds: float, taken: list[Domain]) -> str:
        """Fills `taken` with what has to be given back after a failure."""
        read: dict[Domain, list[Slot]] = {}
        refusal = ""
        for domain in domains:
            try:
                read[domain] = await self._read(domain)
            except ApiNotFound as error:
                refusal = f"a Lease of {domain} is not there: {error}"
            else:
                refusal = refusal or self._find(domain, read[domain], work)[1]
            if refusal and work in self._empty_handed:
                break
        own = [domain for domain, slots in read.items() if self._find_own(slots, work) is not None]
        for domain, slots in read.items() if not refusal else ():
            refusal = await self._take_one(domain, slots, work, seconds, taken)
            if refusal:
                break
        if refusal:
            taken[:] = [domain for domain in domains if domain in taken or domain in own]
        return refusal

    async def _take_one(
        self, domain: Domain, slots: Sequence[Slot], work: str, seconds: float, taken: list[Domain]
    ) -> str:
        for _ in range(TRIES):
            slot, refusal = self._find(domain, slots, work)
            if slot is None:
                return refusal
            try:
                # Noted before the write: an answer that does not come leaves open whether the slot is taken.
                if self._find_own(slots, work) is None:
                    taken.append(domain)
                    self._empty_handed.discard(work)
                await self._write(domain, slots, slot, work, seconds)
            except ApiConflict:
                slots = await self._read(domain)
                continue
            return ""
        return f"other nodes were faster with the slots of {domain}"

    async def _write(self, domain: Domain, slots: Sequence[Slot], slot: Slot, work: str, seconds: float) -> None:
        holder = Holder(
            node=self._node,
            boot=self._read_boot(),
            work=work,
            phase=read_breaker(slots[0].breaker).phase,
        )
        wanted = take_slot(slot, holder, seconds)
        if is_due(slot, wanted, self._seen[domain].holders[slot.number], self._clock.monotonic()):
            await self._store.write(domain.name_slot(slot.number), wanted)

    async def _give_back_one(self, domain: Domain, work: str, *, is_proven: bool | None) -> bool:
        """One write for the slot, and a second one for a result that the first slot's breaker has yet to hear of."""
        for _ in range(TRIES):
            try:
                slots = await self._read(domain)
            except ApiNotFound:
                return True
            first, own = slots[0], self._find_own(slots, work)
            if own is None:
                return True
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
            return True
        return False

    def _find(self, domain: Domain, slots: Sequence[Slot], work: str) -> tuple[Slot | None, str]:
        mine = Holder(node=self._node, boot="", work=work)
        return find_slot(domain, slots, mine, self._seen[domain], self._clock.monotonic())

    def _find_own(self, slots: Sequence[Slot], work: str) -> Slot | None:
        mine = Holder(node=self._node, boot="", work=work)
        return next((slot for slot in slots if mine.owns(slot.holder)), None)

    async def _read(self, domain: Domain) -> list[Slot]:
        slots = [await self._store.read(domain.name_slot(number), number) for number in range(domain.slots)]
        now = self._clock.monotonic()
        self._seen[domain] = note_slots(self._seen.get(domain), slots, now)
        self.allowed[domain] = count_open_slots(slots, self._seen[domain], now)
        return slots

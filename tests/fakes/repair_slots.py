"""The Leases of slots in memory: with versions, conflicts, lost answers, and other nodes that take them."""

from collections.abc import Callable, Sequence
from random import Random

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from nodeagent.edge.kube.errors import ApiConflict, ApiNotFound, ApiUnreachable
from nodeagent.edge.kube.lease import KubeSlots
from nodeagent.model.slots import Domain, Slot
from nodeagent.rules.repair.breaker import Breaker, read_breaker


class Store(KubeSlots):
    """Leases with versions, whose answers others overtake; the rate says how often a write is refused or lost."""

    def __init__(self, domains: Sequence[Domain], random: Random | None = None, rate: float = 0.0) -> None:
        names = {domain.name_slot(number): number for domain in domains for number in range(domain.slots)}
        self.slots = {name: Slot(number=number, version="0") for name, number in names.items()}
        self.random, self.rate, self.writes, self.is_away = random or Random(1), rate, 0, False
        self.is_silent, self.reads = False, 0
        self.overtake: Callable[[], None] | None = None

    def suspend(self, domain: Domain, *, is_suspended: bool = True) -> None:
        name = domain.name_slot(0)
        self.slots[name] = replace(self.slots[name], is_suspended=is_suspended, version=f"a person's {self.writes}")

    def hold(self, domain: Domain, number: int, holder: str) -> None:
        name = domain.name_slot(number)
        self.slots[name] = replace(self.slots[name], holder=holder, seconds=600.0, version=f"{holder}!")

    def holders(self, domain: Domain) -> list[str]:
        return [self.slots[domain.name_slot(number)].holder for number in range(domain.slots)]

    def breaker(self, domain: Domain) -> Breaker:
        return read_breaker(self.slots[domain.name_slot(0)].breaker)

    async def read(self, name: str, number: int) -> Slot:
        self.reads += 1
        if number == 0:
            await checkpoint()
        if self.is_silent:
            await anyio.sleep_forever()
        if self.is_away:
            raise ApiUnreachable("the API server", "read", "no route")
        return self._find(name, "read")

    async def write(self, name: str, slot: Slot) -> None:
        seconds = max(1.0, round(slot.seconds))
        await self._write(name, replace(slot, renewed=f"write {self.writes}", seconds=seconds))

    async def write_breaker(self, name: str, slot: Slot) -> None:
        known = self._find(name, "write")
        await self._write(name, replace(known, version=slot.version, breaker=slot.breaker))

    def _find(self, name: str, what: str) -> Slot:
        if name not in self.slots:
            raise ApiNotFound(what, 404, f"leases {name} not found")
        return self.slots[name]

    async def _write(self, name: str, slot: Slot) -> None:
        await checkpoint()
        if self.overtake is not None:
            self.overtake()
        known = self._find(name, "write")
        if known.version != slot.version or self.random.random() < self.rate:
            raise ApiConflict("write", 409, "the object has been modified")
        self.writes += 1
        breaker, is_suspended = slot.breaker or known.breaker, known.is_suspended
        self.slots[name] = replace(slot, version=str(self.writes), breaker=breaker, is_suspended=is_suspended)
        if self.random.random() < self.rate / 10:
            raise ApiUnreachable("the API server", "write", "no answer")

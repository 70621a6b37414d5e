"""The handle to the journal for other components: outlives the journal's component, which may crash and come back.

Owns the records of requests about fractions; the journal has the answers.
Refuses to wait for a journal in trouble: an Allocate that cannot be recorded fails at once.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from msgspec.structs import replace

from nodeagent.components.allocations.ledger import Ledger, Record
from nodeagent.components.allocations.roles.changes import Settled, Stepped
from nodeagent.components.allocations.roles.claims import Prepared, Unprepared, refuse_claim
from nodeagent.components.allocations.roles.doors import DoorSet
from nodeagent.components.allocations.roles.fractions import (
    Bound,
    Released,
    Reserved,
    find_flaw,
    list_kept,
    refuse_binding,
)
from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.model.allocation import Allocation
from nodeagent.model.claims import ClaimBook
from nodeagent.model.errors import BindingRefused, ClaimRefused, JournalUnavailable
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, Change, EndedClaim, GpuPart, PartTable, PreparedClaim, Reservation, Step
from nodeagent.model.offering import Door
from nodeagent.model.ports import AllocationJournal


class Keeper(AllocationJournal, Protocol):
    """The component behind the handle, with the journal and the history."""

    @property
    def ledger(self) -> Ledger | None:
        """The ledger; `None` while the journal has not been read."""
        ...

    def now(self) -> float:
        """The time for records."""
        ...

    async def commit(self, decide: Callable[[Ledger], Sequence[Record]], *, may_stand: bool = False) -> None:
        """Write the records that `decide` makes of the newest ledger.

        With `may_stand` unwritten records count where `on_failure` does not refuse pods.

        Raises:
            AllocationError: `decide` refused, or the records could not be made durable.
        """
        ...

    @property
    def history(self) -> tuple[Ended, ...]:
        """Ended allocations, oldest first."""
        ...


class JournalRelay:
    """The handle to the journal's component."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._keeper: Keeper | None = None

    @contextmanager
    def lead_to(self, keeper: Keeper) -> Iterator[None]:
        """Point the handle at the component for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable.

        Raises:
            DeviceHeld: A living pod surely holds one of the devices.
            JournalUnavailable: The allocation could not be made durable, or the journal's component is down.
        """
        return await self._find_keeper().record(resource, devices)

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Find the container about to start with the devices; without the component nothing happens."""
        if self._keeper is not None:
            await self._keeper.identify(resource, devices)

    def doubtful(self) -> Collection[DeviceId]:
        """Devices in doubt: the kubelet may take them for free, although pods may hold the devices."""
        return self._keeper.doubtful() if self._keeper is not None else ()

    async def set_door(self, gpu: GpuUuid, door: Door | None) -> None:
        """Make the allocation mode set for a GPU durable; the port's contract is in `model.ports`."""
        keeper = self._find_keeper()
        await keeper.commit(lambda _: [DoorSet(gpu=gpu, door=door, at_seconds=keeper.now())])

    def doors(self) -> Mapping[GpuUuid, Door] | None:
        """The allocation modes set by a person, by GPU; `None` while unknown."""
        ledger = self._keeper.ledger if self._keeper is not None else None
        return None if ledger is None else ledger.doors

    def parts(self) -> PartTable | None:
        """The reservations and bindings of fractions; `None` while unknown."""
        ledger = self._keeper.ledger if self._keeper is not None else None
        return None if ledger is None else ledger.fractions

    async def reserve(self, resource: ResourceName, devices: Sequence[DeviceId], cdi_name: str) -> Reservation:
        """Reserve ids; the port's contract is in `model.ports`."""
        keeper = self._find_keeper()
        promised: list[Reservation] = []

        def decide(ledger: Ledger) -> Sequence[Record]:
            promised.append(
                Reservation(
                    number=ledger.next_number,
                    resource=resource,
                    devices=tuple(devices),
                    since_seconds=keeper.now(),
                    cdi_name=cdi_name,
                )
            )
            return [Reserved(reservation=promised[-1])]

        await keeper.commit(decide, may_stand=True)
        return promised[-1]

    async def bind(
        self, binding: Binding, capacities: Iterable[GpuPart] | None, leaving: Sequence[int] = ()
    ) -> Binding:
        """Give a container its fractions; the port's contract is in `model.ports`."""
        keeper = self._find_keeper()
        bound: list[Binding] = []

        def decide(ledger: Ledger) -> Sequence[Record]:
            kept = [
                Reserved(reservation=replace(each, number=ledger.next_number + count))
                for count, each in enumerate(list_kept(ledger.fractions, binding, leaving))
            ]
            bound.append(binding if binding.number else replace(binding, number=ledger.next_number + len(kept)))
            fractions, new = ledger.fractions, bound[-1]
            if capacities is None:
                reason = find_flaw(fractions, new)
            else:
                reason = refuse_binding(fractions, new, capacities, leaving)
            claimed = ledger.claim_book.by_gpu.keys() if ledger.claims else ()
            reason = reason or next((f"a claim has {part.gpu}" for part in new.parts if part.gpu in claimed), "")
            if reason:
                raise BindingRefused(reason)
            ended = [Released(number=number, at_seconds=keeper.now(), why="superseded") for number in leaving]
            return [*ended, *kept, Bound(binding=bound[-1])]

        await keeper.commit(decide, may_stand=True)
        return bound[-1]

    async def release(self, reasons: Mapping[int, str]) -> None:
        """End bindings or reservations; the port's contract is in `model.ports`."""
        keeper = self._find_keeper()
        now = keeper.now()
        await keeper.commit(
            lambda _: [Released(number=number, at_seconds=now, why=reasons[number]) for number in reasons]
        )

    def claim_book(self) -> ClaimBook | None:
        """The prepared claims; `None` while unknown."""
        ledger = self._keeper.ledger if self._keeper is not None else None
        return None if ledger is None else ledger.claim_book

    def ended_claim(self, uid: str) -> EndedClaim | None:
        """A claim that was unprepared not long ago; the port's contract is in `model.ports`.

        Asked for and not published: subscribers would hold many copies of all ended claims.
        """
        ledger = self._keeper.ledger if self._keeper is not None else None
        return None if ledger is None else ledger.ended_claims.get(uid)

    async def prepare_claim(self, claim: PreparedClaim, capacities: Iterable[GpuPart]) -> None:
        """Make a prepared claim durable; the port's contract is in `model.ports`."""
        whole = tuple(capacities)

        def decide(ledger: Ledger) -> Sequence[Record]:
            held = (device for entry in ledger.entries.values() for device in entry.devices)
            reason = refuse_claim(claim, ledger.claims, held, ledger.fractions, whole)
            if reason:
                raise ClaimRefused(reason)
            return [Prepared(claim=claim)]

        await self._find_keeper().commit(decide)

    async def unprepare_claim(self, uid: str, why: str) -> None:
        """Make the end of a claim durable; the port's contract is in `model.ports`."""
        keeper = self._find_keeper()
        await keeper.commit(lambda _: [Unprepared(uid=uid, at_seconds=keeper.now(), why=why)])

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        """Make the beginning of a change durable; the port's contract is in `model.ports`."""
        begun: list[Stepped] = []

        def decide(ledger: Ledger) -> Sequence[Record]:
            begun.append(Stepped(number=ledger.next_number, owner=owner, gpu=gpu, step=step))
            return [begun[-1]]

        await self._find_keeper().commit(decide)
        return begun[-1].number

    async def step_change(self, number: int, step: Step) -> None:
        """Make the next step of a change durable; the port's contract is in `model.ports`."""

        def decide(ledger: Ledger) -> Sequence[Record]:
            change = ledger.changes.get(number)
            if change is None:
                raise JournalUnavailable(self._path, f"it knows of no change {number}")
            return [Stepped(number=number, owner=change.owner, gpu=change.gpu, step=step)]

        await self._find_keeper().commit(decide)

    async def settle_change(self, number: int, outcome: str) -> None:
        """Make the end of a change durable; the port's contract is in `model.ports`."""
        keeper = self._find_keeper()
        await keeper.commit(lambda _: [Settled(number=number, at_seconds=keeper.now(), outcome=outcome)])

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        """An owner's changes under way; `None` while unknown."""
        ledger = self._keeper.ledger if self._keeper is not None else None
        return None if ledger is None else tuple(one for one in ledger.changes.values() if one.owner == owner)

    def _find_keeper(self) -> Keeper:
        if self._keeper is None:
            raise JournalUnavailable(self._path, "the part that keeps it is starting or has failed: try again")
        return self._keeper

    @property
    def history(self) -> tuple[Ended, ...]:
        """Ended allocations, oldest first, as far as remembered."""
        return self._keeper.history if self._keeper is not None else ()

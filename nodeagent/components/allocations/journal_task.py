"""The journal of everything given out, and the ledger of its records: written first, and only then applied.

Lives as long as the process; the component `allocations` tends it, and may crash and come back.
Owns the ledger in force, the lock of its writers, and whether the file can be written at all.
Refuses to wait for a journal in trouble: an Allocate that cannot be recorded fails at once. Refuses to append to a file
that has failed, and to begin a new one before the last agent's journal was read.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import anyio
from msgspec.structs import replace

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Ledger, Node, Record, apply_records, open_record
from nodeagent.components.allocations.refuse import (
    KubeletRun,
    date_run,
    decide_refusal,
    find_doubtful,
    find_holders,
    refuse_claimed,
)
from nodeagent.components.allocations.roles.allocation_modes import AllocationModeSet, CordonsKept
from nodeagent.components.allocations.roles.changes import Finished, Stepped
from nodeagent.components.allocations.roles.claims import Prepared, Unprepared, refuse_claim
from nodeagent.components.allocations.roles.fractions import FractionRecord, Released, Reserved, plan_binding
from nodeagent.components.allocations.roles.grants import Ended, Entry, Granted, Identified
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.handle import Handle
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.journal_disk import JournalDisk
from nodeagent.edge.kubelet.kubelet_state import KubeletState
from nodeagent.model.allocation import Allocation
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon, CordonSource, CordonTable
from nodeagent.model.errors import AllocationError, ClaimRefused, JournalUnavailable, NodeagentError
from nodeagent.model.events import AllocationRefused, DevicesAllocated
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import (
    Binding,
    Change,
    EndedClaim,
    FractionTable,
    GpuFraction,
    PreparedClaim,
    Reservation,
    Step,
)
from nodeagent.model.offering import AllocationMode
from nodeagent.model.ports import PodListing

R = TypeVar("R", bound=Record)

SOURCE: Final = "allocations"
ASK_SECONDS = 1.0
"""How long a pod's admission may wait for the kubelet's list, which takes milliseconds when it comes at all."""


class Journal:
    """Implements the journal's ports: `AllocationJournal`, `FractionJournal`, and those of `model.ports.journal`."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        kubelet: KubeletState,
        *,
        open_store: Callable[[], JournalDisk],
        read_node: Callable[[], Node],
    ) -> None:
        """`open_store` takes the file anew for each life of the component, and `read_node` says on which boot."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self.kubelet, self._open_store, self._read_node = kubelet, open_store, read_node
        self._path = str(live.now.node.state_dir)
        self.tended: Handle[Callable[[], Awaitable[bool]]] = Handle(self._describe_untended)
        """How the component compares the ledger with the kubelet's list; without the component nothing is recorded."""
        self.turn = anyio.Lock(fast_acquire=True)
        self.news = Waker()
        """Wakes the component to publish changes."""
        self.store: JournalDisk
        self.node: Node
        self.kubelet_run: KubeletRun | None = None
        self._log = get_logger(component=SOURCE)
        self._nameless: set[int] = set()
        self._unpublished: list[Allocation] = []
        self._forget()

    def _forget(self) -> None:
        self.ledger, self.is_open = Ledger(), False
        """Whatever is given out, and whether the last agent's journal has been read."""
        self.broken, self._reported = "not begun", ""
        """Why the journal must be begun anew; empty for a sound journal."""
        self._seal = self._size_when_begun = 0
        self._nameless.clear()

    async def start(self) -> None:
        """Take the file for another life of the component: what its last life left in memory is not trusted."""
        async with self.turn:
            self._forget()
            self.store, self.node = self._open_store(), self._read_node()

    def open(self, ledger: Ledger) -> None:
        """Start with a ledger made from the last agent's journal."""
        self.ledger, self.is_open = ledger, True

    def is_full(self, share: float = 1.0) -> bool:
        """Whether it is time to begin anew; a journal large from the start may double first."""
        limit = max(self._live.now.journal.rotate_bytes, 2 * self._size_when_begun)
        return self.store.size_bytes > share * limit

    def accept(self, records: Sequence[Record]) -> None:
        """Apply records to the ledger without a durable copy; `begin` writes them later."""
        named = (record.number for record in records if isinstance(record, Identified))
        entries = self.ledger.entries
        self._nameless.update(one for one in named if one in entries and entries[one].allocation.pod is None)
        self.ledger = self._after(records)

    async def write(self, records: Sequence[Record], *, durable: bool = True) -> None:
        """Append records, or begin a new journal where the old is full or broken; shielded, and within the lock.

        Raises:
            JournalUnavailable: The records are not written, and not part of the ledger.
        """
        after = self._after(records)
        if self.broken or self.is_full():
            await self.begin(after)
            return
        data, seal = encode_records(records, self._seal)
        try:
            # A cancellation must not part file and ledger.
            with anyio.CancelScope(shield=True):
                await self.store.append(data, durable=durable)
                self.ledger, self._seal = after, seal
        except JournalUnavailable as error:
            self.note_failure(error)
            raise

    async def begin(self, ledger: Ledger) -> None:
        """Begin the journal anew with a ledger; shielded, and within the lock.

        Raises:
            JournalUnavailable: The new journal could not be written.
        """
        if not self.is_open:
            unread = JournalUnavailable(self.store.path, self.broken)
            self.note_failure(unread)
            raise unread
        data, seal = encode_records([open_record(ledger, *self.node)], 0)
        try:
            with anyio.CancelScope(shield=True):
                await self.store.begin(data)
                self.ledger, self._seal, self._size_when_begun = ledger, seal, len(data)
        except JournalUnavailable as error:
            self.note_failure(error)
            raise
        self._nameless.clear()
        self.broken = self._reported = ""
        self._conditions.clear("journal-unavailable")

    def note_failure(self, error: JournalUnavailable) -> None:
        """Mark the journal as broken until a new beginning; a single line in the log for each reason, not each try."""
        if self._reported != error.reason:
            self._log.error("journal_unavailable", path=error.path, reason=error.reason)
        self.broken = self._reported = error.reason
        self._conditions.set("journal-unavailable", detail=str(error))

    def publish_granted(self) -> None:
        """Publish new allocations in order, before any resulting fact."""
        granted, self._unpublished = self._unpublished, []
        if not granted:
            return
        envelope = self._bus.publish_state(self.ledger.table, source=SOURCE)
        for one in granted:
            allocated = DevicesAllocated(resource=one.resource, devices=one.devices, number=one.number)
            self._bus.publish_fact(allocated, source=SOURCE, cause=envelope)

    def identify_run(self) -> KubeletRun | None:
        """The kubelet's present run; the age counts from the start of the run, as far as the clocks agree."""
        found = self.kubelet.identify_run()
        run = date_run(self.kubelet_run, found, self._clock.wall(), self._clock.monotonic())
        self.kubelet_run = run or self.kubelet_run
        return run

    async def read_pods(self, timeout_seconds: float) -> PodListing | None:
        """The kubelet's list; `None`, with a condition, where it does not come."""
        try:
            with anyio.fail_after(timeout_seconds):
                listing = await self.kubelet.read_pods()
        except (NodeagentError, TimeoutError) as error:
            self._conditions.set("pod-resources-unavailable", detail=str(error) or "no answer in time")
            return None
        self._conditions.clear("pod-resources-unavailable")
        return listing

    # The kubelet's questions.

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable; the port's contract is in `model.ports`."""
        async with self.turn:
            self.tended.get()
            run = self.identify_run()
            try:
                refuse_claimed(self.ledger, devices)
                await self._refuse_held(devices, run)
                allocation = Allocation(
                    number=self.ledger.next_number,
                    resource=resource,
                    devices=tuple(devices),
                    since_seconds=self._clock.wall(),
                )
                entry = Entry(allocation=allocation, seen_by=run.identity if run is not None else "")
                await self._put([Granted(entry=entry)], may_stand=True)
            except AllocationError as error:
                self.publish_granted()
                of_node, ids = isinstance(error, JournalUnavailable), tuple(devices)
                refused = AllocationRefused(resource=resource, devices=ids, reason=str(error), is_of_node=of_node)
                self._bus.publish_fact(refused, source=SOURCE)
                raise
            self._unpublished.append(allocation)
            return allocation

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Ask the kubelet for the holder of these devices, unless its present run has named the holder already.

        Raises:
            JournalUnavailable: The kubelet's answer cannot be written. A restarted agent would not know the holder, and
                could not keep a kubelet that has forgotten the holder from giving the devices away.
        """
        if (compare := self.tended.value) is None:
            return
        entry = self.ledger.holding(resource, devices)
        run = self.identify_run()
        if entry is None or run is None or entry.allocation.pod is None or entry.seen_by != run.identity:
            await compare()
        # The file has the allocation without the pod's name, because a write failed.
        is_nameless = entry is not None and entry.allocation.number in self._nameless
        if is_nameless and self._live.now.journal.on_failure == "refuse":
            raise JournalUnavailable(self.store.path, self.broken)

    def doubtful(self) -> Collection[DeviceId]:
        """Devices in doubt: the kubelet may take them for free, although pods may hold the devices."""
        return find_doubtful(self.ledger, self.identify_run()) if self.tended.value is not None else ()

    async def _refuse_held(self, devices: Sequence[DeviceId], run: KubeletRun | None) -> None:
        """Refuse devices surely held by a living pod; asks the kubelet only about possibly forgotten holders."""
        if run is None or not self._live.now.device_plugin.refuse_held_devices:
            return
        if not (holders := find_holders(self.ledger, devices, run)):
            return
        listing = await self.read_pods(ASK_SECONDS)
        refusal = decide_refusal(
            holders, devices, listing, run, self._clock.monotonic(), self._live.now.journal.free_after_seconds
        )
        if refusal is not None:
            self._log.warning("allocation_refused", device=refusal.device, holder=refusal.holder)
            raise refusal

    # The ports in `model.ports.journal`, where their contracts are.

    @property
    def history(self) -> tuple[Ended, ...]:
        """Ended allocations, oldest first, as far as remembered."""
        return self.ledger.history if self.tended.value is not None else ()

    def read_ledger(self) -> Ledger | None:
        """The ledger; `None` before the journal is read."""
        return self.ledger if self.is_open and self.tended.value is not None else None

    async def set_allocation_mode(self, gpu: GpuUuid, door: AllocationMode | None) -> None:
        """Make the allocation mode set for a GPU durable."""
        await self.commit(lambda _: [AllocationModeSet(gpu=gpu, door=door, at_seconds=self._clock.wall())])

    def doors(self) -> Mapping[GpuUuid, AllocationMode] | None:
        """The allocation modes set by a person, by GPU."""
        return None if (ledger := self.read_ledger()) is None else ledger.doors

    async def keep_cordons(self, source: CordonSource, cordons: tuple[Cordon, ...]) -> None:
        """Make all cordons of a source durable."""
        await self.commit(lambda _: [CordonsKept(source=source, cordons=cordons, at_seconds=self._clock.wall())])

    def cordons(self) -> CordonTable | None:
        """The cordons of all sources."""
        return None if (ledger := self.read_ledger()) is None else CordonTable(by_source=ledger.cordons)

    def parts(self) -> FractionTable | None:
        """The reservations and bindings of fractions."""
        return None if (ledger := self.read_ledger()) is None else ledger.fractions

    async def reserve(self, resource: ResourceName, devices: Sequence[DeviceId], cdi_name: str) -> Reservation:
        """Promise device ids before their container is known."""
        ids, now = tuple(devices), self._clock.wall()
        promise = Reservation(number=0, resource=resource, devices=ids, since_seconds=now, cdi_name=cdi_name)
        (reserved,) = await self.commit(
            lambda ledger: [Reserved(reservation=replace(promise, number=ledger.next_number))], may_stand=True
        )
        return reserved.reservation

    async def bind(
        self, binding: Binding, capacities: Iterable[GpuFraction] | None, leaving: Sequence[int] = ()
    ) -> Binding:
        """Give a container its fractions, or others than before."""
        bound: list[Binding] = []

        def decide(ledger: Ledger) -> Sequence[FractionRecord]:
            claimed = ledger.ready_claims.by_gpu.keys() if ledger.claims else ()
            records, numbered = plan_binding(
                ledger.fractions, binding, capacities, leaving, claimed, ledger.next_number, self._clock.wall()
            )
            bound.append(numbered)
            return records

        await self.commit(decide, may_stand=True)
        return bound[-1]

    async def release(self, reasons: Mapping[int, str]) -> None:
        """End bindings or reservations."""
        now = self._clock.wall()
        await self.commit(lambda _: [Released(number=one, at_seconds=now, why=why) for one, why in reasons.items()])

    def ready_claims(self) -> ReadyClaims | None:
        """The prepared claims."""
        return None if (ledger := self.read_ledger()) is None else ledger.ready_claims

    def ended_claim(self, uid: str) -> EndedClaim | None:
        """A claim that was unprepared not long ago; not published, as subscribers would hold many copies of all."""
        return None if (ledger := self.read_ledger()) is None else ledger.ended_claims.get(uid)

    async def prepare_claim(self, claim: PreparedClaim, capacities: Iterable[GpuFraction]) -> None:
        """Make a prepared claim durable."""
        whole = tuple(capacities)

        def decide(ledger: Ledger) -> Sequence[Prepared]:
            held = (device for entry in ledger.entries.values() for device in entry.devices)
            if reason := refuse_claim(claim, ledger.claims, held, ledger.fractions, whole):
                raise ClaimRefused(reason)
            return [Prepared(claim=claim)]

        await self.commit(decide)

    async def unprepare_claim(self, uid: str, why: str) -> None:
        """Make the end of a claim durable."""
        await self.commit(lambda _: [Unprepared(uid=uid, at_seconds=self._clock.wall(), why=why)])

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        """Make the beginning of a change durable."""
        (stepped,) = await self.commit(
            lambda ledger: [Stepped(number=ledger.next_number, owner=owner, gpu=gpu, step=step)]
        )
        return stepped.number

    async def step_change(self, number: int, step: Step) -> None:
        """Make the next step of a change durable."""

        def decide(ledger: Ledger) -> Sequence[Stepped]:
            if (change := ledger.changes.get(number)) is None:
                raise JournalUnavailable(self._path, f"it knows of no change {number}")
            return [Stepped(number=number, owner=change.owner, gpu=change.gpu, step=step)]

        await self.commit(decide)

    async def settle_change(self, number: int, outcome: str) -> None:
        """Make the end of a change durable."""
        await self.commit(lambda _: [Finished(number=number, at_seconds=self._clock.wall(), outcome=outcome)])

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        """An owner's changes under way."""
        known = None if (ledger := self.read_ledger()) is None else ledger.changes.values()
        return None if known is None else tuple(change for change in known if change.owner == owner)

    async def commit(self, decide: Callable[[Ledger], Sequence[R]], *, may_stand: bool = False) -> Sequence[R]:
        """Write the records that `decide` makes of the newest ledger, or that it refuses with an `AllocationError`."""
        async with self.turn:
            self.tended.get()
            records = decide(self.ledger)
            await self._put(records, may_stand=may_stand)
            return records

    async def _put(self, records: Sequence[Record], *, may_stand: bool) -> None:
        """Write records; with `may_stand` unwritten records count where `on_failure` does not refuse pods."""
        try:
            await self.write(records)
        except JournalUnavailable:
            if not may_stand or self._live.now.journal.on_failure == "refuse":
                raise
            self.accept(records)
        self.news.wake()

    def _after(self, records: Sequence[Record]) -> Ledger:
        return apply_records(self.ledger, records, self._live.now.journal.history_entries)

    def _describe_untended(self) -> JournalUnavailable:
        return JournalUnavailable(self._path, "the part that keeps it is starting or has failed: try again")

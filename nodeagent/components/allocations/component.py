"""Keeps the journal of allocations: written before the kubelet is answered, compared with the kubelet's list after.

Owns the journal file, the lock of its directory, and the published `AllocationTable`.
Refuses to answer from memory alone, unless the configuration says so for a disk that fails.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.allocations.journal_task import Book, Node
from nodeagent.components.allocations.ledger import Ledger, Record
from nodeagent.components.allocations.neighbours import JournalStore, Kubelet
from nodeagent.components.allocations.reconcile import (
    Absence,
    Difference,
    KubeletRun,
    Look,
    Reconciliation,
    adopt_checkpoint,
    date_run,
    describe_differences,
    find_uids,
    lacks_uid,
    reconcile,
)
from nodeagent.components.allocations.recovery import Found, merge_ledgers, recover_ledger
from nodeagent.components.allocations.refuse import decide_refusal, find_doubtful, find_holders, refuse_claimed
from nodeagent.components.allocations.relay import JournalRelay
from nodeagent.components.allocations.roles.grants import Ended, Entry, Freed, Granted
from nodeagent.components.allocations.room import Room, describe_shortage
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import Allocation, AllocationTable, ClaimTable
from nodeagent.model.errors import AllocationError, JournalUnavailable, NodeagentError
from nodeagent.model.events import AllocationRefused, DevicesAllocated, DevicesFreed
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import ChosenDoors
from nodeagent.model.ports import KubeletCheckpoint, PodListing

ASK_SECONDS = 1.0
"""How long a pod's admission may wait for the kubelet's list, which takes milliseconds when it comes at all."""
ROOM_SECONDS = 30.0
"""Pause between checks of the disk's free room."""
TEND_SECONDS = 1.0
"""Pause between checks for a restarted kubelet and a repaired disk."""


class Allocations:
    """The component; other components use the handle."""

    name = "allocations"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        kubelet: Kubelet,
        *,
        store: JournalStore,
        relay: JournalRelay,
        node: Node,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._kubelet, self._store, self._relay, self._node = kubelet, store, relay, node
        self._log = get_logger(component=self.name)
        self._book = Book(store, live, node, self._note_journal)
        self._trouble = ""
        self._turn = anyio.Lock(fast_acquire=True)
        self._absences: dict[int, Absence] = {}
        self._differences: tuple[Difference, ...] = ()
        self._run: KubeletRun | None = None
        self._looks = 0
        self._untold: list[Allocation] = []
        self._has_news = Waker()

    @property
    def history(self) -> tuple[Ended, ...]:
        """Ended allocations, oldest first."""
        return self._book.ledger.history

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take the lock, recover, report ready, then keep the journal until cancelled.

        Raises:
            NodeagentError: Another agent holds the lock.
        """
        try:
            await self._recover()
            with self._relay.lead_to(self):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._tell_news_forever, name="allocations told")
                    task_status.started()
                    await self._tend_forever()
        finally:
            self._publish()
            await self._store.aclose()

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable; the port's contract is in `model.ports`."""
        async with self._turn:
            run = self._identify_run()
            try:
                refuse_claimed(self._book.ledger, devices)
                await self._refuse_held(devices, run)
                return await self._grant(resource, devices, run)
            except AllocationError as error:
                self._tell_refused(resource, devices, error)
                raise

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Ask the kubelet for the holder of these devices, unless its present run has named the holder already.

        Raises:
            JournalUnavailable: The kubelet's answer cannot be written. A restarted agent would not know the holder, and
                could not keep a kubelet that has forgotten the holder from giving the devices away.
        """
        entry = self._book.ledger.holding(resource, devices)
        run = self._identify_run()
        if entry is None or run is None or entry.allocation.pod is None or entry.seen_by != run.identity:
            await self._look()
        is_nameless = entry is not None and self._book.is_nameless(entry.allocation.number)
        if is_nameless and self._live.now.journal.on_failure == "refuse":
            raise JournalUnavailable(self._store.path, self._book.broken)

    def doubtful(self) -> Collection[DeviceId]:
        """Devices in doubt: the kubelet may take them for free, although pods may hold the devices."""
        return find_doubtful(self._book.ledger, self._identify_run())

    @property
    def ledger(self) -> Ledger | None:
        """The ledger; `None` until the journal has been read."""
        return self._book.ledger if self._book.is_open else None

    def now(self) -> float:
        """The time for records."""
        return self._clock.wall()

    async def commit(self, decide: Callable[[Ledger], Sequence[Record]], *, may_stand: bool = False) -> None:
        """Write the records that `decide` makes of the newest ledger.

        Args:
            decide: Makes the records; raises an `AllocationError` for a refusal.
            may_stand: Whether unwritten records count where `on_failure` does not refuse pods.

        Raises:
            AllocationError: `decide` refused, or the records could not be made durable.
        """
        async with self._turn:
            records = decide(self._book.ledger)
            try:
                await self._write(records)
            except JournalUnavailable:
                if not may_stand or self._live.now.journal.on_failure == "refuse":
                    raise
                self._book.accept(records)
            self._has_news.wake()

    async def _grant(self, resource: ResourceName, devices: Sequence[DeviceId], run: KubeletRun | None) -> Allocation:
        """Write the allocation; without a sound journal it stands in memory alone, where the settings allow."""
        ledger = self._book.ledger
        allocation = Allocation(
            number=ledger.next_number, resource=resource, devices=tuple(devices), since_seconds=self._clock.wall()
        )
        granted = Granted(entry=Entry(allocation=allocation, seen_by=run.identity if run is not None else ""))
        try:
            await self._write([granted])
        except JournalUnavailable:
            if self._live.now.journal.on_failure == "refuse":
                raise
            self._book.accept([granted])
        self._untold.append(allocation)
        self._has_news.wake()
        return allocation

    async def _tell_news_forever(self) -> None:
        """Publish changes in a later turn of the event loop, so that a pod's answer does not wait for subscribers."""
        while True:
            await self._has_news.wait()
            self._publish()

    def _tell_granted(self) -> None:
        """Publish new allocations in order, before any resulting fact."""
        untold, self._untold = self._untold, []
        if not untold:
            return
        envelope = self._bus.publish_state(self._book.ledger.table, source=self.name)
        for one in untold:
            allocated = DevicesAllocated(resource=one.resource, devices=one.devices, number=one.number)
            self._bus.publish_fact(allocated, source=self.name, cause=envelope)

    def _tell_refused(self, resource: ResourceName, devices: Sequence[DeviceId], error: AllocationError) -> None:
        self._tell_granted()
        refused = AllocationRefused(resource=resource, devices=tuple(devices), reason=str(error))
        self._bus.publish_fact(refused, source=self.name)

    async def _refuse_held(self, devices: Sequence[DeviceId], run: KubeletRun | None) -> None:
        """Refuse devices surely held by a living pod; asks the kubelet only about possibly forgotten holders."""
        if run is None or not self._live.now.device_plugin.refuse_held_devices:
            return
        holders = find_holders(self._book.ledger, devices, run)
        if not holders:
            return
        listing = await self._read_pods(ASK_SECONDS)
        refusal = decide_refusal(
            holders, devices, listing, run, self._clock.monotonic(), self._live.now.journal.free_after_seconds
        )
        if refusal is not None:
            self._log.warning("allocation_refused", device=refusal.device, holder=refusal.holder)
            raise refusal

    async def _recover(self) -> None:
        """Begin with the newest trustworthy state, then compare with the kubelet."""
        await self._open()
        if not await self._look():
            await self._adopt_checkpoint()
        await self._mend()
        self._publish()

    async def _open(self) -> bool:
        """Read the last agent's journal, once; before a successful read nothing is written over the file."""
        if self._book.is_open:
            return True
        try:
            current, previous, problem = await self._store.open()
        except JournalUnavailable as error:
            self._book.note_failure(error)
            return False
        history_max = self._live.now.journal.history_entries
        recovered = recover_ledger(Found(current=current, previous=previous), *self._node, history_max)
        if recovered.refusal:
            self._book.note_failure(JournalUnavailable(self._store.path, recovered.refusal))
            return False
        self._book.open(merge_ledgers(recovered.ledger, self._book.ledger, history_max))
        self._absences = {}
        damage = "; ".join(filter(None, (recovered.damage, problem)))
        if damage:
            self._log.warning("journal_damaged", damage=damage, allocations=len(self._book.ledger.entries))
            self._conditions.set("journal-damaged", detail=damage)
        if recovered.set_aside:
            stamp = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y%m%dT%H%M%SZ")
            try:
                await self._store.set_aside(stamp)
            except JournalUnavailable as error:
                self._log.warning("journal_not_set_aside", error=str(error))
        return True

    async def _adopt_checkpoint(self) -> None:
        """Adopt the devices of the kubelet's checkpoint, where the kubelet cannot be asked."""
        checkpoint = await self._read_checkpoint()
        if checkpoint is not None:
            await self._follow(adopt_checkpoint(self._book.ledger, checkpoint, self._clock.wall()))

    async def _read_checkpoint(self) -> KubeletCheckpoint | None:
        """The kubelet's checkpoint; `None` on a node without a checkpoint, which is no fault."""
        try:
            return await self._kubelet.read_checkpoint()
        except NodeagentError as error:
            self._log.debug("checkpoint_not_read", error=str(error))
            return None

    async def _tend_forever(self) -> None:
        """Poll the kubelet's list now and then, and at once after a restart of the kubelet; repair a broken journal."""
        looked_at, looked_run = self._clock.monotonic(), self._run
        measured_at = looked_at - ROOM_SECONDS
        async for _ in Ticker(TEND_SECONDS):
            if self._clock.monotonic() - measured_at >= ROOM_SECONDS and not self._book.broken:
                measured_at = self._clock.monotonic()
                await self._look_at_room()
            # Beginning anew takes some syncs, so it is done between pods as long as there is time for it.
            if self._book.broken or self._book.is_full(share=0.5):
                async with self._turn:
                    await self._mend()
                    self._publish()
            run = self._identify_run()
            due = self._clock.monotonic() - looked_at >= self._live.now.kubelet.pod_resources_poll_seconds
            if run is not None and (due or run != looked_run):
                looked_at, looked_run = self._clock.monotonic(), run
                await self._look()

    async def _look_at_room(self) -> None:
        """Raise a condition for a nearly full disk before a pod is refused for it."""
        try:
            room = Room(*await self._store.read_room())
        except JournalUnavailable as error:
            self._log.warning("journal_room_unknown", error=str(error))
            return
        shortage = describe_shortage(room, self._store.size_bytes)
        self._conditions.replace("state-directory-full", {"": f"{self._store.path}: {shortage}"} if shortage else {})

    async def _look(self) -> bool:
        """Compare the ledger with the kubelet's list; returns whether the kubelet gave a list."""
        run = self._identify_run()
        numbers_below = self._book.ledger.next_number
        listing = await self._read_pods(self._live.now.kubelet.call_timeout_seconds) if run is not None else None
        if run is None or listing is None:
            return False
        self._bus.publish_state(ClaimTable(devices=listing.claimed), source=self.name)
        checkpoint = await self._read_checkpoint() if listing.containers and lacks_uid(self._book.ledger) else None
        async with self._turn:
            look = Look(
                listing=listing,
                run=run,
                numbers_below=numbers_below,
                now_seconds=self._clock.wall(),
                monotonic_seconds=self._clock.monotonic(),
                free_after_seconds=self._live.now.journal.free_after_seconds,
                recovering=self._looks == 0,
                uids=find_uids(checkpoint) if checkpoint is not None else {},
            )
            self._looks += 1
            result = reconcile(self._book.ledger, look, self._absences)
            self._absences = dict(result.absences)
            await self._follow(result)
        return True

    async def _follow(self, result: Reconciliation) -> None:
        """Write and publish the result; records refused by a broken disk are written after the repair."""
        freed = {record.number for record in result.records if isinstance(record, Freed)}
        gone = [entry.allocation for number, entry in self._book.ledger.entries.items() if number in freed]
        if result.records:
            try:
                # Not synced: a power cut that loses records ends the containers too, and the kubelet repeats its list.
                await self._write(result.records, durable=False)
            except JournalUnavailable:
                self._book.accept(result.records)
        written = self._publish() if result.records else None
        for allocation in gone:
            fact = DevicesFreed(resource=allocation.resource, devices=allocation.devices, number=allocation.number)
            self._bus.publish_fact(fact, source=self.name, cause=written)
        for difference in result.differences:
            if difference not in self._differences:
                self._bus.publish_fact(difference.fact, source=self.name)
                kind, devices, detail = difference.kind, list(difference.devices), difference.detail
                self._log.warning("allocation_differed", kind=kind, devices=devices, detail=detail)
        self._differences = result.differences
        self._conditions.replace("allocations-differ", describe_differences(result.differences))

    async def _read_pods(self, timeout_seconds: float) -> PodListing | None:
        try:
            with anyio.fail_after(timeout_seconds):
                listing = await self._kubelet.read_pods()
        except (NodeagentError, TimeoutError) as error:
            self._conditions.set("pod-resources-unavailable", detail=str(error) or "no answer in time")
            return None
        self._conditions.clear("pod-resources-unavailable")
        return listing

    def _identify_run(self) -> KubeletRun | None:
        """The present run; the age counts from the start of the run, as far as the clocks agree."""
        found = self._kubelet.identify_run()
        run = date_run(self._run, found, self._clock.wall(), self._clock.monotonic())
        self._run = run or self._run
        return run

    async def _write(self, records: Sequence[Record], *, durable: bool = True) -> None:
        """Write records, shielded: a cancellation must not part journal and ledger.

        Raises:
            JournalUnavailable: The records are not written, and not part of the ledger.
        """
        with anyio.CancelScope(shield=True):
            await self._book.write(records, durable=durable)

    async def _mend(self) -> None:
        """Begin the journal anew with the ledger."""
        with anyio.CancelScope(shield=True):
            if await self._open():
                with suppress(JournalUnavailable):  # noted already, and tried again before long
                    await self._book.begin()

    def _note_journal(self, failure: JournalUnavailable | None) -> None:
        """A single line in the log for each change, not for each try."""
        if failure is None:
            self._conditions.clear("journal-unavailable")
        else:
            if self._trouble != failure.reason:
                self._log.error("journal_unavailable", path=failure.path, reason=failure.reason)
            self._conditions.set("journal-unavailable", detail=str(failure))
        self._trouble = "" if failure is None else failure.reason

    def _publish(self) -> Envelope[AllocationTable]:
        self._tell_granted()
        if (ledger := self.ledger) is not None:
            self._bus.publish_state(ChosenDoors(doors=ledger.doors), source=self.name)
            self._bus.publish_state(ledger.fractions, source=self.name)
            self._bus.publish_state(ledger.claim_book, source=self.name)
        return self._bus.publish_state(self._book.ledger.table, source=self.name)

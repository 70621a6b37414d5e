"""Keeps the journal of who holds what: written before the kubelet is answered, held against the kubelet's word after.

Owns the journal file, the lock of its directory, and the published `AllocationTable`.
Refuses to answer from memory alone, unless the configuration says so for a disk that fails.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.allocations.door import JournalDoor
from nodeagent.components.allocations.journal import encode_records
from nodeagent.components.allocations.ledger import (
    Ended,
    Entry,
    Freed,
    Granted,
    Ledger,
    Record,
    apply_record,
    open_record,
)
from nodeagent.components.allocations.neighbours import JournalStore, Kubelet
from nodeagent.components.allocations.reconcile import (
    Absence,
    Difference,
    KubeletRun,
    Look,
    Reconciliation,
    adopt_checkpoint,
    find_uids,
    lacks_uid,
    reconcile,
)
from nodeagent.components.allocations.recovery import Found, merge_ledgers, recover_ledger
from nodeagent.components.allocations.refuse import decide_refusal, find_doubtful, find_holders
from nodeagent.config.live import LiveSettings
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.clock import Clock
from nodeagent.kernel.conditions import Conditions
from nodeagent.kernel.envelope import Envelope
from nodeagent.kernel.log import get_logger
from nodeagent.kernel.ticker import Ticker
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.errors import AllocationError, JournalUnavailable, NodeagentError
from nodeagent.model.events import AllocationDiffered, AllocationRefused, DevicesAllocated, DevicesFreed
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import KubeletCheckpoint, PodListing

ASK_SECONDS = 1.0
"""How long a pod's admission may wait for the kubelet's list, which takes milliseconds when it comes at all."""
TEND_SECONDS = 1.0
"""Pause between looks at whether the kubelet has restarted and whether a failed disk is back."""


class Node(NamedTuple):
    """Which machine this is, and which of its lives."""

    machine: str
    boot: str


class Allocations:
    """The component; other parts reach it through the door."""

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
        door: JournalDoor,
        node: Node,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._kubelet, self._store, self._door, self._node = kubelet, store, door, node
        self._log = get_logger(component=self.name)
        self._ledger = Ledger()
        self._seal = 0
        self._opened = False
        self._broken = "not begun"
        self._size_when_begun = 0
        self._turn = anyio.Lock()
        self._absences: dict[int, Absence] = {}
        self._differences: tuple[Difference, ...] = ()
        self._run: KubeletRun | None = None
        self._looks = 0

    @property
    def history(self) -> tuple[Ended, ...]:
        """Ended allocations, oldest first."""
        return self._ledger.history

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take the lock, recover, say ready, then keep the journal until cancelled.

        Raises:
            NodeagentError: another agent holds the lock.
        """
        try:
            await self._recover()
            with self._door.lead_to(self):
                task_status.started()
                await self._tend_forever()
        finally:
            await self._store.aclose()

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable; the port's contract is in `model.ports`."""
        async with self._turn:
            try:
                return await self._record(resource, tuple(devices))
            except AllocationError as error:
                refused = AllocationRefused(resource=resource, devices=tuple(devices), reason=str(error))
                self._bus.publish_fact(refused, source=self.name)
                raise

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Ask the kubelet whose these devices are, unless its present run has said so already."""
        entry = self._ledger.holding(resource, devices)
        run = self._identify_run()
        if entry is None or run is None or entry.allocation.pod is None or entry.seen_by != run.identity:
            await self._look()

    def doubtful(self) -> Collection[DeviceId]:
        """Devices that the kubelet may take for free although somebody may hold them."""
        return find_doubtful(self._ledger, self._identify_run())

    async def _record(self, resource: ResourceName, devices: tuple[DeviceId, ...]) -> Allocation:
        run = self._identify_run()
        await self._refuse_held(devices, run)
        allocation = Allocation(
            number=self._ledger.next_number, resource=resource, devices=devices, since_seconds=self._clock.wall()
        )
        granted = Granted(entry=Entry(allocation=allocation, seen_by=run.identity if run is not None else ""))
        try:
            await self._write([granted])
        except JournalUnavailable:
            if self._live.now.journal.on_failure == "refuse":
                raise
            self._accept([granted])
        envelope = self._publish()
        allocated = DevicesAllocated(resource=resource, devices=devices, number=allocation.number)
        self._bus.publish_fact(allocated, source=self.name, cause=envelope)
        return allocation

    async def _refuse_held(self, devices: tuple[DeviceId, ...], run: KubeletRun | None) -> None:
        """Refuse what a living pod surely holds; asks the kubelet only where it may have forgotten somebody."""
        settings = self._live.now
        holders = find_holders(self._ledger, devices, run) if run is not None else ()
        if not holders or run is None or not settings.device_plugin.refuse_held_devices:
            return
        listing = await self._read_pods(ASK_SECONDS)
        refusal = decide_refusal(
            holders, devices, listing, run, self._clock.monotonic(), settings.journal.free_after_seconds
        )
        if refusal is not None:
            self._log.warning("allocation_refused", device=refusal.device, holder=refusal.holder)
            raise refusal

    async def _recover(self) -> None:
        """Begin with the newest state that is beyond doubt, and ask the kubelet about the rest."""
        await self._open()
        if not await self._look():
            await self._adopt_checkpoint()
        await self._mend()
        self._publish()

    async def _open(self) -> bool:
        """Read what the last agent left, once; until that succeeds nothing is written over it."""
        if self._opened:
            return True
        try:
            current, previous, problem = await self._store.open()
        except JournalUnavailable as error:
            self._note_broken(error)
            return False
        self._opened = True
        history_max = self._live.now.journal.history_entries
        recovered = recover_ledger(Found(current=current, previous=previous), *self._node, history_max)
        self._ledger = merge_ledgers(recovered.ledger, self._ledger, history_max)
        self._absences = {}
        damage = "; ".join(filter(None, (recovered.damage, problem)))
        if damage:
            self._log.warning("journal_damaged", damage=damage, allocations=len(self._ledger.entries))
            self._conditions.set("journal-damaged", detail=damage)
        if recovered.set_aside:
            stamp = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y%m%dT%H%M%SZ")
            try:
                await self._store.set_aside(stamp)
            except JournalUnavailable as error:
                self._log.warning("journal_not_set_aside", error=str(error))
        return True

    async def _adopt_checkpoint(self) -> None:
        """Where the kubelet cannot be asked, what it wrote down is better than nothing."""
        checkpoint = await self._read_checkpoint()
        if checkpoint is not None:
            await self._follow(adopt_checkpoint(self._ledger, checkpoint, self._clock.wall()))

    async def _read_checkpoint(self) -> KubeletCheckpoint | None:
        """The kubelet's own notes; advisory, so a node without them has nothing to mend."""
        try:
            return await self._kubelet.read_checkpoint()
        except NodeagentError as error:
            self._log.debug("checkpoint_not_read", error=str(error))
            return None

    async def _tend_forever(self) -> None:
        """Look at the kubelet's list now and then, and at once when the kubelet is another; mend what is broken."""
        looked_at, looked_run = self._clock.monotonic(), self._run
        async for _ in Ticker(TEND_SECONDS):
            # Beginning anew takes some syncs, so it is done between pods as long as there is time for it.
            if self._broken or self._is_full(share=0.5):
                async with self._turn:
                    await self._mend()
                    self._publish()
            run = self._identify_run()
            due = self._clock.monotonic() - looked_at >= self._live.now.kubelet.pod_resources_poll_seconds
            if run is not None and (due or run != looked_run):
                looked_at, looked_run = self._clock.monotonic(), run
                await self._look()

    async def _look(self) -> bool:
        """Hold the ledger against the kubelet's list; returns whether there was one."""
        run = self._identify_run()
        numbers_below = self._ledger.next_number
        listing = await self._read_pods(self._live.now.kubelet.call_timeout_seconds) if run is not None else None
        if run is None or listing is None:
            return False
        checkpoint = await self._read_checkpoint() if listing.containers and lacks_uid(self._ledger) else None
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
            result = reconcile(self._ledger, look, self._absences)
            self._absences = dict(result.absences)
            await self._follow(result)
        return True

    async def _follow(self, result: Reconciliation) -> None:
        """Write down what was learnt, and tell of it; what a broken disk does not take is written when it is back."""
        freed = {record.number for record in result.records if isinstance(record, Freed)}
        gone = [entry.allocation for number, entry in self._ledger.entries.items() if number in freed]
        if result.records:
            try:
                # Not synced: a power cut that loses this ends the containers too, and the kubelet would say it again.
                await self._write(result.records, durable=False)
            except JournalUnavailable:
                self._accept(result.records)
        written = self._publish() if result.records else None
        for allocation in gone:
            fact = DevicesFreed(resource=allocation.resource, devices=allocation.devices, number=allocation.number)
            self._bus.publish_fact(fact, source=self.name, cause=written)
        for difference in result.differences:
            if difference not in self._differences:
                self._tell(difference)
        self._differences = result.differences
        self._conditions.replace(
            "allocations-differ",
            {f"{each.kind} {','.join(each.devices)}": f"{each.resource}: {each.detail}" for each in result.differences},
        )

    def _tell(self, difference: Difference) -> None:
        fact = AllocationDiffered(
            kind=difference.kind, resource=difference.resource, devices=difference.devices, detail=difference.detail
        )
        self._bus.publish_fact(fact, source=self.name)
        self._log.warning("allocation_differed", kind=fact.kind, devices=list(fact.devices), detail=fact.detail)

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
        """The present run; its age is measured from when it began, as far as the clocks agree."""
        found = self._kubelet.identify_run()
        if found is None:
            return None
        identity, since = found
        if self._run is None or self._run.identity != identity:
            age = max(0.0, self._clock.wall() - since)
            self._run = KubeletRun(identity=identity, since_seconds=self._clock.monotonic() - age)
        return self._run

    async def _write(self, records: Sequence[Record], *, durable: bool = True) -> None:
        """Write records down and only then into the ledger; shielded, so that a cancellation cannot part the two.

        Raises:
            JournalUnavailable: they are not written, and not part of the ledger.
        """
        with anyio.CancelScope(shield=True):
            try:
                if self._broken or self._is_full():
                    await self._begin(self._after(records))
                else:
                    data, seal = encode_records(records, self._seal)
                    await self._store.append(data, durable=durable)
                    self._ledger, self._seal = self._after(records), seal
            except JournalUnavailable as error:
                self._note_broken(error)
                raise

    async def _begin(self, ledger: Ledger) -> None:
        """Begin the journal anew with this ledger; never before what the last agent left has been read."""
        if not self._opened:
            raise JournalUnavailable(self._store.path, self._broken)
        data, seal = encode_records([open_record(ledger, *self._node)], 0)
        await self._store.begin(data)
        self._ledger, self._seal, self._size_when_begun = ledger, seal, len(data)
        if self._broken:
            self._broken = ""
            self._conditions.clear("journal-unavailable")

    async def _mend(self) -> None:
        """Begin anew with what is known."""
        with anyio.CancelScope(shield=True):
            if not await self._open():
                return
            try:
                await self._begin(self._ledger)
            except JournalUnavailable as error:
                self._note_broken(error)

    def _is_full(self, share: float = 1.0) -> bool:
        """Whether it is time to begin anew; a journal that is large from the start may double first."""
        limit = max(self._live.now.journal.rotate_bytes, 2 * self._size_when_begun)
        return self._store.size_bytes > share * limit

    def _after(self, records: Sequence[Record]) -> Ledger:
        ledger = self._ledger
        for record in records:
            ledger = apply_record(ledger, record, self._live.now.journal.history_entries)
        return ledger

    def _accept(self, records: Sequence[Record]) -> None:
        """Take records into the ledger without a durable copy, which `_begin` makes up for."""
        self._ledger = self._after(records)

    def _note_broken(self, error: JournalUnavailable) -> None:
        if self._broken != error.reason:
            self._log.error("journal_unavailable", path=error.path, reason=error.reason)
        self._broken = error.reason
        self._conditions.set("journal-unavailable", detail=str(error))

    def _publish(self) -> Envelope[AllocationTable]:
        return self._bus.publish_state(self._ledger.table, source=self.name)

"""Tends the journal: read at the start, compared with the kubelet's list, begun anew where the file failed or is full.

Owns the lock of the journal's directory, and the published `AllocationTable`.
Refuses to believe one list of the kubelet about the end of an allocation.
"""

from contextlib import aclosing, suppress
from datetime import UTC, datetime
from random import Random

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.allocations.faults import forget_old
from nodeagent.components.allocations.faults_task import FaultNotes
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.reconcile import (
    Absence,
    Difference,
    PodListPoll,
    Reconciliation,
    adopt_checkpoint,
    describe_differences,
    find_uids,
    lacks_uid,
    reconcile,
)
from nodeagent.components.allocations.recovery import Found, merge_ledgers, recover_ledger
from nodeagent.components.allocations.roles.grants import Freed
from nodeagent.components.allocations.room import Room, describe_shortage
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kubelet.pods_api import KubeletPods
from nodeagent.model.allocation import AllocationTable, ClaimTable
from nodeagent.model.cordons import CordonTable
from nodeagent.model.errors import JournalUnavailable, NodeagentError
from nodeagent.model.events import DevicesFreed, GpuFaultReported
from nodeagent.model.journal import ChosenAllocationModes
from nodeagent.model.ports import KubeletCheckpoint

ROOM_SECONDS = 30.0
"""Pause between checks of the disk's free room."""
TEND_SECONDS = 1.0
"""Pause between checks for a restarted kubelet, pods that come or go, and a repaired disk."""
_RETRY = BackoffSettings(first_seconds=1.0, limit_seconds=60.0)


class Allocations:
    """The component; other components use the journal."""

    name = "allocations"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        journal: Journal,
        *,
        pods: KubeletPods | None = None,
        rng: Random | None = None,
    ) -> None:
        """`journal` outlives the component, which tends it; `pods` wakes it where the kubelet tells of pods."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._journal, self._pods = journal, pods
        self._rng = rng or Random()  # noqa: S311 - spreads load, keeps no secret
        self._have_pods_changed = False
        self._living: frozenset[tuple[str, str]] | None = None
        """The pods that have not ended, by namespace and name; `None` while the kubelet does not tell."""
        self._log = get_logger(component=self.name)
        self._absences: dict[int, Absence] = {}
        self._differences: tuple[Difference, ...] = ()
        self._looks = 0
        self._faults = FaultNotes(clock, journal)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take the lock, recover, report ready, then keep the journal until cancelled.

        Raises:
            NodeagentError: Another agent holds the lock.
        """
        await self._journal.start()
        try:
            with self._bus.listen(GpuFaultReported, client=f"{self.name} faults") as faults:
                await self._recover()
                with self._journal.tended.filled(self._look):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._publish_news_forever, name="allocations told")
                        tasks.start_soon(self._faults.follow, faults, name="allocations faults")
                        if self._pods is not None:
                            tasks.start_soon(self._follow_pods_forever, self._pods, name="allocations pods")
                        task_status.started()
                        await self._tend_forever()
        finally:
            self._publish()
            await self._journal.store.aclose()

    async def _publish_news_forever(self) -> None:
        """Publish changes in a later turn of the event loop, so that a pod's answer does not wait for subscribers."""
        while True:
            await self._journal.news.wait()
            self._publish()

    async def _follow_pods_forever(self, pods: KubeletPods) -> None:
        """Have the kubelet's list read soon after pods come or go; without such news the list is polled alone."""
        backoff = Backoff(_RETRY, self._rng)
        while True:
            began, reason = self._clock.monotonic(), "the kubelet has ended the stream"
            try:
                async with aclosing(pods.follow()) as tables:
                    async for table in tables:
                        names = ((pod.identity.namespace, pod.identity.name) for pod in table.values())
                        self._living, self._have_pods_changed = frozenset(names), True
            except NodeagentError as error:
                reason = str(error)
            self._living = None
            self._log.debug("pods_not_followed", reason=reason)
            await anyio.sleep(backoff.delay_after_failure(ran_seconds=self._clock.monotonic() - began))

    async def _recover(self) -> None:
        """Begin with the newest trustworthy state, then compare with the kubelet."""
        await self._open()
        if not await self._look():
            await self._adopt_checkpoint()
        await self._mend()
        self._tell_upgrade()
        self._publish()

    def _tell_upgrade(self) -> None:
        """Tell of an upgrade of the driver left half done because upgrades were switched off."""
        is_off = self._live.now.driver.upgrade == "off"
        open_upgrades = [one for one in self._journal.ledger.upgrades.values() if one.is_open and is_off]
        for one in open_upgrades:
            self._conditions.set("driver-upgrade-left", detail=f"upgrade {one.number} to {one.wanted}: {one.phase}")

    async def _open(self) -> bool:
        """Read the last agent's journal, once; before a successful read nothing is written over the file."""
        if self._journal.is_open:
            return True
        try:
            current, previous, problem = await self._journal.store.open()
        except JournalUnavailable as error:
            self._journal.note_failure(error)
            return False
        history_max = self._live.now.journal.history_entries
        recovered = recover_ledger(Found(current=current, previous=previous), *self._journal.node, history_max)
        if recovered.refusal:
            self._journal.note_failure(JournalUnavailable(self._journal.store.path, recovered.refusal))
            return False
        self._journal.open(merge_ledgers(recovered.ledger, self._journal.ledger, history_max))
        self._absences = {}
        damage = "; ".join(filter(None, (recovered.damage, problem)))
        if damage:
            self._log.warning("journal_damaged", damage=damage, allocations=len(self._journal.ledger.entries))
            self._conditions.set("journal-damaged", detail=damage)
        if recovered.set_aside:
            stamp = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y%m%dT%H%M%SZ")
            try:
                await self._journal.store.set_aside(stamp)
            except JournalUnavailable as error:
                self._log.warning("journal_not_set_aside", error=str(error))
        return True

    async def _adopt_checkpoint(self) -> None:
        """Adopt the devices of the kubelet's checkpoint, where the kubelet cannot be asked."""
        checkpoint = await self._read_checkpoint()
        if checkpoint is not None:
            await self._follow(adopt_checkpoint(self._journal.ledger, checkpoint, self._clock.wall()))

    async def _read_checkpoint(self) -> KubeletCheckpoint | None:
        """The kubelet's checkpoint; `None` on a node without a checkpoint, which is no fault."""
        try:
            return await self._journal.kubelet.read_checkpoint()
        except NodeagentError as error:
            self._log.debug("checkpoint_not_read", error=str(error))
            return None

    async def _tend_forever(self) -> None:
        """Poll the kubelet's list now and then, and after a restart or changes of pods; repair a broken journal."""
        looked_at, looked_run = self._clock.monotonic(), self._journal.kubelet_run
        measured_at = looked_at - ROOM_SECONDS
        async for _ in Ticker(TEND_SECONDS):
            if self._clock.monotonic() - measured_at >= ROOM_SECONDS and not self._journal.broken:
                measured_at = self._clock.monotonic()
                await self._check_room()
            # Beginning anew takes some syncs, so it is done between pods as long as there is time for it.
            if self._journal.broken or self._journal.is_full(share=0.5):
                async with self._journal.turn:
                    await self._mend()
                    self._publish()
            await self._faults.write_due()
            run = self._journal.identify_run()
            due = self._clock.monotonic() - looked_at >= self._live.now.kubelet.pod_resources_poll_seconds
            if run is not None and (due or run != looked_run or self._have_pods_changed):
                looked_at, looked_run, self._have_pods_changed = self._clock.monotonic(), run, False
                await self._look()

    async def _check_room(self) -> None:
        """Raise a condition for a nearly full disk before a pod is refused for it."""
        try:
            room = Room(*await self._journal.store.read_room())
        except JournalUnavailable as error:
            self._log.warning("journal_room_unknown", error=str(error))
            return
        shortage = describe_shortage(room, self._journal.store.size_bytes)
        self._conditions.replace(
            "state-directory-full", {"": f"{self._journal.store.path}: {shortage}"} if shortage else {}
        )

    async def _look(self) -> bool:
        """Compare the ledger with the kubelet's list; returns whether the kubelet gave a list."""
        run = self._journal.identify_run()
        numbers_below = self._journal.ledger.next_number
        listing = (
            await self._journal.read_pods(self._live.now.kubelet.call_timeout_seconds) if run is not None else None
        )
        if run is None or listing is None:
            return False
        self._bus.publish_state(ClaimTable(devices=listing.claimed), source=self.name)
        checkpoint = await self._read_checkpoint() if listing.containers and lacks_uid(self._journal.ledger) else None
        async with self._journal.turn:
            poll = PodListPoll(
                listing=listing,
                run=run,
                numbers_below=numbers_below,
                now_seconds=self._clock.wall(),
                monotonic_seconds=self._clock.monotonic(),
                free_after_seconds=self._live.now.journal.free_after_seconds,
                recovering=self._looks == 0,
                living=self._living,
                uids=find_uids(checkpoint) if checkpoint is not None else {},
            )
            self._looks += 1
            result = reconcile(self._journal.ledger, poll, self._absences)
            self._absences = dict(result.absences)
            await self._follow(result)
        return True

    async def _follow(self, result: Reconciliation) -> None:
        """Write and publish the result; records refused by a broken disk are written after the repair."""
        freed = {record.number for record in result.records if isinstance(record, Freed)}
        gone = [entry.allocation for number, entry in self._journal.ledger.entries.items() if number in freed]
        if result.records:
            try:
                # Not synced: a power cut that loses records ends the containers too, and the kubelet repeats its list.
                await self._journal.write(result.records, durable=False)
            except JournalUnavailable:
                self._journal.accept(result.records)
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

    async def _mend(self) -> None:
        """Begin the journal anew with the ledger."""
        with anyio.CancelScope(shield=True):
            if await self._open():
                with suppress(JournalUnavailable):  # noted already, and tried again before long
                    await self._journal.begin(forget_old(self._journal.ledger, self._clock.wall()))

    def _publish(self) -> Envelope[AllocationTable]:
        self._journal.publish_granted()
        ledger = self._journal.ledger
        if self._journal.is_open:
            self._bus.publish_state(ChosenAllocationModes(doors=ledger.doors), source=self.name)
            self._bus.publish_state(CordonTable(by_source=ledger.cordons), source=self.name)
            self._bus.publish_state(ledger.fractions, source=self.name)
            self._bus.publish_state(ledger.ready_claims, source=self.name)
        return self._bus.publish_state(self._journal.ledger.table, source=self.name)

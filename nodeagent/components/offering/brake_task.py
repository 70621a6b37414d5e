"""Closes GPUs on which start after start is lost, and lets single pods try them later: the brake.

Owns the brake's cordons, the condition `gpu-braked`, and what is counted for both. A closing counts at once, whether or
not the journal can be written: an unwritable journal is itself a reason for refusals.
"""

from collections.abc import Callable, Iterable
from typing import Final

import anyio

from nodeagent.components.offering.cordon_task import RETRY_SECONDS, CordonTask
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import ClusterLink, ClusterNode
from nodeagent.model.cordons import Cordon, CordonSource, CordonTable
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import AllocationRefused, ConfigurationReloaded, FractionRefused, GpuFaultReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.ports import CordonStore
from nodeagent.model.proof import GpuProofs
from nodeagent.rules.brake import (
    TAINT_AWAITED_SECONDS,
    BrakeCount,
    follow_starts,
    forget_gpus,
    list_closing,
    list_in_force,
    list_starts,
    list_trials,
    note_fault,
    note_refusal,
    plan_brake,
)
from nodeagent.rules.ids import build_names, find_uuid

BRAKED: Final = "gpu-braked"
GATHER_SECONDS: Final = 0.02
"""How long changes are gathered, as for the allocation modes."""
CLOCK_SECONDS: Final = 30.0
"""The longest wait between two looks at the wall clock, which may jump."""
NO_GPUS: Final = Inventory(generation=0)
_WATCHED: Final = (Inventory, AllocationTable, FractionTable, ReadyClaims, CordonTable, ClusterNode, GpuProofs)


class BrakeTask:
    """The part of the component `offering` that keeps the brake."""

    name = "offering"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        store: CordonStore,
        cordons: CordonTask,
        *,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when a GPU is closed, is to be tried, or is opened."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._store, self._cordons, self._changed = store, cordons, changed
        self._count, self._waker = BrakeCount(), Waker()
        self._known: tuple[Cordon, ...] = ()
        """The cordons of the last look."""
        self._unkept: tuple[tuple[Cordon, ...], str] | None = None
        """Cordons that the journal does not have yet, and why they are others than the journal's."""
        self._log = get_logger(component=self.name)

    async def run(self) -> None:
        """Follow starts, their ends, faults and refusals until cancelled."""
        async with anyio.create_task_group() as tasks:
            states = self._bus.watch_all(*_WATCHED, client=f"{self.name} brake")
            tasks.start_soon(self._waker.follow, states, name="offering brake states")
            reloads = self._bus.listen(ConfigurationReloaded, client=f"{self.name} brake settings")
            tasks.start_soon(self._waker.follow, reloads, name="offering brake settings")
            tasks.start_soon(self._follow_facts, name="offering brake facts")
            while True:
                with anyio.move_on_after(await self._look()):
                    await self._waker.wait()
                    await anyio.sleep(GATHER_SECONDS)

    def list_in_force(self) -> tuple[Cordon, ...]:
        """The brake's cordons that keep new pods away."""
        return list_in_force(self._count, self._read_kept(), self._clock.wall())

    def list_closing(self) -> tuple[Cordon, ...]:
        """The brake's cordons that close no GPU yet: schedulers are told first, where an API server is reached."""
        link = self._bus.read(ClusterLink)
        node = self._bus.read(ClusterNode) if link is not None and link.reachable else None
        return list_closing(self._read_kept(), node, self._clock.wall())

    def list_trials(self) -> dict[GpuUuid, Cordon]:
        """The GPUs that wait for the one start that is to prove them."""
        return {each.gpu: each for each in list_trials(self._count, self._read_kept(), self._clock.wall())}

    def _read_kept(self) -> tuple[Cordon, ...]:
        if not self._live.now.signals.brake:
            return ()
        if self._unkept is not None:
            return self._unkept[0]
        table = self._store.cordons()
        return table.by_source.get(CordonSource.BRAKE, ()) if table is not None else self._known

    async def _follow_facts(self) -> None:
        facts = (GpuFaultReported, AllocationRefused, FractionRefused)
        with self._bus.listen(*facts, client=f"{self.name} brake facts") as reported:
            async for envelope in reported:
                if self._live.now.signals.brake:
                    self._note(envelope.value)
                    self._waker.wake()

    def _note(self, fact: GpuFaultReported | AllocationRefused | FractionRefused) -> None:
        now, within = self._clock.wall(), self._live.now.signals.brake_within_seconds
        if isinstance(fact, GpuFaultReported):
            self._follow_starts(now)
            self._count = note_fault(self._count, fact, within, now)
            return
        inventory = self._bus.read(Inventory) or NO_GPUS
        gpus = {gpu.uuid for gpu in inventory.gpus}
        if not fact.is_of_node:
            devices = fact.devices if isinstance(fact, AllocationRefused) else ()
            found = (inventory.find_gpu(find_uuid(one)) for one in devices)
            gpus = {gpu.uuid for gpu in found if gpu is not None}
        self._count = note_refusal(self._count, gpus, fact.reason, now)

    def _follow_starts(self, now_seconds: float) -> None:
        read = self._bus.read
        inventory = read(Inventory) or NO_GPUS
        starts = list_starts(inventory, read(AllocationTable), read(FractionTable), read(ReadyClaims))
        self._count = follow_starts(self._count, starts, self._live.now.signals.brake_within_seconds, now_seconds)

    async def _look(self) -> float:
        """Bring the brake's cordons up to date; returns the seconds until the next look."""
        inventory, now = self._bus.read(Inventory), self._clock.wall()
        if inventory is None or self._store.cordons() is None:
            return CLOCK_SECONDS
        if not self._live.now.signals.brake:
            self._count, self._known = BrakeCount(), ()
            self._unkept = (), "the brake is switched off"
            self._show(inventory, ())
            self._changed()
            return await self._keep(CLOCK_SECONDS)
        self._follow_starts(now)
        kept = self._read_kept()
        by_word = {each.gpu for each in self._known} - {each.gpu for each in kept}
        proofs = self._bus.read(GpuProofs) or GpuProofs()
        passed = {gpu: newest[1] for gpu, record in proofs.gpus.items() if (newest := record.newest_pass) is not None}
        count = forget_gpus(self._count, by_word)
        plan = plan_brake(count, kept, inventory, self._live.now.signals, now, passed)
        self._count, self._known = plan.count, plan.cordons
        for cordon in plan.closed:
            self._log.warning("gpu_braked", gpu=cordon.gpu, reason=cordon.reason, closings=cordon.closings)
        if plan.cordons != kept:
            self._unkept = plan.cordons, "a start has proved the GPU"
        self._show(inventory, plan.cordons)
        self._changed()
        wait = TAINT_AWAITED_SECONDS if self.list_closing() else CLOCK_SECONDS
        return await self._keep(min(plan.wait_seconds or CLOCK_SECONDS, wait))

    async def _keep(self, wait_seconds: float) -> float:
        """Write what the journal does not have yet; returns the seconds until the next look."""
        if self._unkept is None:
            return wait_seconds
        try:
            await self._cordons.keep_brake(*self._unkept)
        except JournalUnavailable as error:
            self._log.warning("brake_not_kept", reason=str(error))
            return min(wait_seconds, RETRY_SECONDS)
        self._unkept = None
        return wait_seconds

    def _show(self, inventory: Inventory, cordons: Iterable[Cordon]) -> None:
        names, trials = build_names(inventory), self.list_trials()

        def describe(cordon: Cordon) -> str:
            name = names.get(cordon.gpu, cordon.gpu)
            if cordon.gpu in trials:
                return f"{name}: a single pod may try the GPU, after {cordon.closings} closings: {cordon.reason}"
            return f"{name}: closed {cordon.describe()}"

        self._conditions.replace(BRAKED, {each.gpu: describe(each) for each in cordons})

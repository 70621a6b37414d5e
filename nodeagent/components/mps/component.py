"""Keeps a daemon for each GPU shared by MPS or with fractions held by MPS, and for each claim asking for MPS.

Owns the published `MpsState`, the list of daemons, and the report of a daemon's end.
Refuses to start a second daemon on a GPU, and to forget a changed GPU before its mode is restored.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.components.mps.daemon_task import DaemonDependencies, DaemonSupervisor
from nodeagent.components.mps.modes import ComputeModes
from nodeagent.components.mps.report_task import MpsReporter
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import MpsRefused
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.gpu import ComputeMode, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, FractionTable
from nodeagent.model.mps import MpsAccess, MpsLimits, MpsPhase, MpsState
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.ports import ChangeJournal, GpuAccess, MpsHost
from nodeagent.rules.mps.access import plan_place, plan_private_access
from nodeagent.rules.mps.daemons import (
    OWNER,
    DaemonKind,
    Engagement,
    EngagementUnreadable,
    Wanted,
    plan_claim_daemon,
    plan_replica_daemons,
    read_engagement,
    refuse_claim,
)
from nodeagent.rules.mps.fractions import plan_fraction_daemons
from nodeagent.rules.offer.resources import plan_offer

if TYPE_CHECKING:
    from nodeagent.core.life.handle import Handle

JOURNAL_RETRY_SECONDS = 1.0
CLAIM_SECONDS = 30.0
"""How long a claim waits for the start or end of its daemon, before the caller has to ask again."""
DOWN, WAITS, UNREADABLE = "mps-daemon-down", "mps-waits", "mps-record-unreadable"
WATCHED = (Inventory, Offering, AllocationTable, FractionTable, DriverState)


class Mps:
    """The component; implements the port `MpsClaims`."""

    name = "mps"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        host: MpsHost,
        gpus: GpuAccess,
        journal: ChangeJournal,
        handle: "Handle[Mps]",
    ) -> None:
        self._bus, self._conditions, self._live = bus, conditions, live
        self._journal, self._handle = journal, handle
        self._reporter = MpsReporter(bus, conditions, gpus.places)
        self._dependencies = DaemonDependencies(
            host=host,
            modes=ComputeModes(gpus.partitioning, anyio.Lock(), partial(anyio.CancelScope, shield=True)),
            journal=journal,
            live=live,
            clock=clock,
            reporter=self._reporter,
            publish=self._publish,
        )
        self._supervisors: dict[str, DaemonSupervisor] = {}
        self._claims: dict[str, Wanted] = {}
        self._waker, self._told = Waker(), anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take up daemons of an earlier process, then follow what is asked for, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._waker.follow, self._bus.watch_all(*WATCHED, client=self.name), name="mps states")
            tasks.start_soon(
                self._waker.follow, self._bus.listen(ConfigurationReloaded, client=self.name), name="mps settings"
            )
            task_status.started()
            self._resume(await self._wait_known(), tasks)
            with self._handle.filled(self):
                while True:
                    self._refresh(tasks)
                    await self._waker.wait()

    async def open_claim(self, claim: str, gpus: Sequence[GpuUuid], limits: MpsLimits) -> MpsAccess:
        """Have a daemon for these GPUs of a claim; the port's contract is in `model.ports`."""
        wanted = plan_claim_daemon(claim, gpus, limits)
        for uuid in wanted.gpus:
            gpu = self._reporter.find_gpu(uuid)
            if gpu is None or gpu.mig_enabled:
                raise MpsRefused(f"{uuid} is {'not on this node' if gpu is None else 'cut into MIG devices'}")
        refuse_claim(wanted, [supervisor.wanted for supervisor in self._supervisors.values()])
        # A claim keeps its daemon, broken or not: the daemon comes back by itself, and would not be started otherwise.
        is_new = wanted.name not in self._claims
        self._claims[wanted.name] = wanted
        self._waker.wake()
        with anyio.move_on_after(CLAIM_SECONDS):
            while True:
                supervisor = self._supervisors.get(wanted.name)
                if supervisor is not None and supervisor.shown.phase is MpsPhase.READY and supervisor.is_wanted:
                    return plan_private_access(plan_place(self._live.now, wanted.name))
                if supervisor is not None and supervisor.shown.phase is MpsPhase.BROKEN:
                    break
                await self._told.wait()
        if is_new:
            self._claims.pop(wanted.name, None)
            self._waker.wake()
        supervisor = self._supervisors.get(wanted.name)
        raise MpsRefused(
            f"the MPS daemon of the claim is not ready: {supervisor.shown.reason if supervisor else 'not started'}"
        )

    async def close_claim(self, claim: str) -> None:
        """End the daemons of a claim; the port's contract is in `model.ports`."""
        names = {name for name, one in self._claims.items() if one.owner == claim}
        names |= {name for name, one in self._supervisors.items() if one.wanted.owner == claim}
        for name in names:
            self._claims.pop(name, None)
        self._waker.wake()
        with anyio.move_on_after(CLAIM_SECONDS):
            while left := names & self._supervisors.keys():
                await self._told.wait()
            return
        reasons = "; ".join(self._supervisors[name].shown.reason for name in sorted(left))
        raise MpsRefused(f"an MPS daemon of the claim has yet to end: {reasons}")

    async def _wait_known(self) -> tuple[Change, ...]:
        """The GPUs changed by an earlier process, once GPUs, allocation modes, allocations and journal are known."""
        while (
            (changes := self._journal.changes(OWNER)) is None
            or self._bus.read(Inventory) is None
            or self._bus.read(Offering) is None
            or self._bus.read(AllocationTable) is None
        ):
            with anyio.move_on_after(JOURNAL_RETRY_SECONDS):
                await self._waker.wait()
        return changes

    def _resume(self, changes: Sequence[Change], tasks: TaskGroup) -> None:
        engaged: dict[str, tuple[Engagement, dict[GpuUuid, tuple[int, ComputeMode]]]] = {}
        unreadable: dict[str, str] = {}
        for change in changes:
            try:
                engagement = read_engagement(change)
            except EngagementUnreadable as error:
                unreadable[change.gpu] = str(error)
                continue
            _, gpus = engaged.setdefault(engagement.wanted.name, (engagement, {}))
            gpus[change.gpu] = (change.number, ComputeMode(engagement.compute_mode))
        self._conditions.replace(UNREADABLE, unreadable)
        for name, (engagement, gpus) in engaged.items():
            if engagement.wanted.kind is DaemonKind.CLAIM:
                self._claims[name] = engagement.wanted
            self._begin(DaemonSupervisor(engagement.wanted, self._dependencies, gpus), tasks)

    def _refresh(self, tasks: TaskGroup) -> None:
        """Begin and end daemons as wanted; a new daemon waits for an older daemon to leave the GPUs."""
        asked = (
            *self._plan_shares(),
            *self._claims.values(),
            *plan_fraction_daemons(self._bus.read(FractionTable) or FractionTable()),
        )
        wanted = {one.name: one for one in asked}
        for supervisor in self._supervisors.values():
            target = wanted.get(supervisor.wanted.name)
            fits = target is not None and set(target.gpus) <= set(supervisor.wanted.gpus)
            supervisor.want(target if fits else None)
        for one in wanted.values():
            taken = {gpu for supervisor in self._supervisors.values() for gpu in supervisor.wanted.gpus}
            if one.name not in self._supervisors and not taken & set(one.gpus):
                self._begin(DaemonSupervisor(one, self._dependencies), tasks)
        self._reporter.forget_bereaved()
        self._publish()

    def _plan_shares(self) -> tuple[Wanted, ...]:
        settings, inventory, offering = self._live.now, self._bus.read(Inventory), self._bus.read(Offering)
        if settings.sharing.mps is None or inventory is None:
            return ()
        closed = offering.list_elsewhere(inventory.gpus, AllocationMode.WHOLE) if offering is not None else {}
        offer = plan_offer(inventory.gpus, settings, frozenset(closed))
        return plan_replica_daemons(offer.devices, settings.mps.daemon_per)

    def _begin(self, supervisor: DaemonSupervisor, tasks: TaskGroup) -> None:
        self._supervisors[supervisor.wanted.name] = supervisor
        tasks.start_soon(self._supervise, supervisor, name=f"mps daemon {supervisor.wanted.name}")

    async def _supervise(self, supervisor: DaemonSupervisor) -> None:
        await supervisor.run()
        del self._supervisors[supervisor.wanted.name]
        self._publish()
        self._waker.wake()

    def _publish(self) -> None:
        daemons = tuple(supervisor.shown for supervisor in sorted(self._supervisors.values(), key=self._order))
        self._bus.publish_state(MpsState(daemons=daemons), source=self.name)
        told, self._told = self._told, anyio.Event()
        told.set()
        for code, phase in ((DOWN, MpsPhase.BROKEN), (WAITS, MpsPhase.WAITING)):
            self._conditions.replace(
                code, {one.name: self._reporter.describe(one.gpus, one.reason) for one in daemons if one.phase is phase}
            )

    def _order(self, supervisor: DaemonSupervisor) -> tuple[bool, int, str]:
        """By the index of the first GPU; daemons of missing GPUs come last."""
        gpu = self._reporter.find_gpu(supervisor.wanted.gpus[0])
        return gpu is None, gpu.index if gpu is not None else 0, supervisor.wanted.name

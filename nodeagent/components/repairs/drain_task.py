"""Empties the GPUs of a repair, or of the node for a new driver: told, waited for, asked to leave, and decided about.

Owns the requests to the API server for a drain, the pace of the requests, and the conditions about drains.
Refuses to end a process, and to ask anybody before the GPUs are closed to new pods.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import anyio

from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.processes.device_users import HostDeviceUsers
from nodeagent.edge.kube.evictions import KubeDraining
from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import CordonSource, CordonTable
from nodeagent.model.drains import DeviceUser, DrainStep, GpuHolder, HolderStep
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.mps import MpsState
from nodeagent.model.repairs import FaultSession, SessionGpu
from nodeagent.model.upgrades import DriverUpgrade
from nodeagent.rules.repair import mps_daemons
from nodeagent.rules.repair.drain import Closing, decide_step, describe_steps, find_closed_since, list_holders
from nodeagent.rules.repair.plans import name_gpus
from nodeagent.rules.signals import list_holds

DRAINING: Final = "repair-draining"
UPGRADE_DRAINING: Final = "driver-upgrade-draining"
AGAIN_SECONDS: Final = 10.0
"""Between two rounds of a drain without news: a budget may have changed its mind, and a process have ended."""
QUIT_SECONDS: Final = 30.0
"""How long MPS daemons have to quit once the driver is let go: some seconds for each of their commands."""
KUBE_SYSTEM: Final = "kube-system"
_NO_API: Final = "there is no API server that could ask it to leave"
_OPEN: Final = "whoever comes: the GPU is not closed to new pods yet"
_GONE: Final = "the API server has it no more, and its containers end"


class DomainDrain:
    """Drains one domain at a time, as the component asks."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        pods: KubeDraining | None,
        users: HostDeviceUsers | None,
        *,
        source: CordonSource = CordonSource.REPAIR,
    ) -> None:
        """`pods` asks pods to leave, `None` without an API server; `users` finds processes, `None` for made-up GPUs.

        `source` is the closing hand: a repair, or an upgrade of the driver.
        """
        self._source = source
        self.has_pods = True
        """Whether a pod that may be asked to leave was left in the last round, or the GPUs were open."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._pods, self._users = pods, users
        self._last: dict[str, tuple[HolderStep, float]] = {}
        """The last step about a pod of which the API server was asked, and when it may be asked again, by uid."""
        self._late: int | None = None
        """The session of which the decision after the deadline was told."""
        self.session: int | None = None
        self.closed_gpus: Mapping[GpuUuid, str] = {}
        """The GPUs to be kept from new pods for the session's repair, each with the reason."""
        self.overdue: int | None = None
        """The session of which somebody was still there after the deadline, when the holders were last looked at."""
        self._log = get_logger(component="repairs")

    def close(self, session: FaultSession, domain: Iterable[SessionGpu]) -> None:
        """Ask for the domain to be closed to new pods."""
        self.session = session.number
        self.closed_gpus = {gpu.uuid: f"session {session.number}, {session.cause}" for gpu in domain}

    async def bring(
        self, session: FaultSession | DriverUpgrade, domain: Iterable[SessionGpu], dead: frozenset[GpuUuid]
    ) -> tuple[str, ...]:
        """Take the next step of the drain; returns the holders of the domain that are left."""
        gpus = tuple(domain)
        holders, told = await self._find(gpus), self._read_closing(gpus)
        steps = [await self._bring_holder(holder, told, dead) for holder in holders]
        here = {holder.pod.uid for holder in holders if holder.pod is not None}
        self._last = {uid: last for uid, last in self._last.items() if uid in here}
        self._tell(session, steps)
        deadline = self._live.now.repairs.drain.deadline_seconds
        is_over = told.since_seconds is not None and told.since_seconds >= deadline
        self.overdue = session.number if steps and is_over else None
        is_open = told.since_seconds is None
        # Without an API server nobody is asked, and a pod may still end by itself.
        asked = [one for one in steps if one.step is not DrainStep.LEAVE or self._pods is None]
        self.has_pods = is_open or any(one.holder.pod is not None for one in asked)
        return (*(holder.name for holder in holders), *((_OPEN,) if is_open and not holders else ()))

    async def compare(self, domain: Iterable[SessionGpu]) -> tuple[str, ...]:
        """The holders of the domain, read anew without a request to any: for the moment before an act."""
        return tuple(holder.name for holder in await self._find(tuple(domain)))

    async def wait_daemons(self, gpus: Collection[GpuUuid]) -> tuple[str, ...]:
        """Wait for the MPS daemons of these GPUs to quit, the driver being let go; returns those that did not."""
        with anyio.move_on_after(QUIT_SECONDS), self._bus.watch(MpsState, client="repairs") as states:
            while mps_daemons.list_running(gpus, self._bus.read(MpsState)):
                await anext(states)
        return mps_daemons.list_running(gpus, self._bus.read(MpsState))

    def _show(self, details: Mapping[str, str]) -> None:
        if self._source is CordonSource.DRIVER:
            self._conditions.replace(UPGRADE_DRAINING, details)
        else:
            self._conditions.replace(DRAINING, details)

    def end(self) -> None:
        """Forget the drain, which has ended, and open its GPUs."""
        self.session, self.closed_gpus = None, {}
        self._show({})
        self._last, self._late, self.overdue = {}, None, None

    async def _find(self, domain: tuple[SessionGpu, ...]) -> tuple[GpuHolder, ...]:
        users, unseen = await self._read_users()
        # The states are read after the processes: whoever starts meanwhile is in the newer of both.
        read = self._bus.read
        inventory, allocations = read(Inventory), read(AllocationTable)
        if inventory is None or allocations is None:
            return (_name_nobody("the GPUs and their holders are not known yet"),)
        holds, daemons = list_holds(allocations, read(FractionTable), read(ReadyClaims)), read(MpsState)
        ours = mps_daemons.list_processes(daemons)
        others = [user for user in users if user.pid not in ours]
        return (
            *list_holders(domain, inventory, holds, allocations, others),
            *mps_daemons.list_holders([gpu.uuid for gpu in domain], daemons),
            *unseen,
        )

    async def _read_users(self) -> tuple[tuple[DeviceUser, ...], tuple[GpuHolder, ...]]:
        """The processes with GPUs, or the holder that stands for all that could not be seen."""
        try:
            return (await self._users.read_users() if self._users is not None else ()), ()
        except NodeagentError as error:
            return (), (_name_nobody(str(error)),)

    def _read_closing(self, domain: tuple[SessionGpu, ...]) -> Closing:
        since = find_closed_since(domain, self._bus.read(CordonTable), self._clock.wall(), self._source)
        spared = frozenset({KUBE_SYSTEM, self._live.now.kubernetes.namespace or ""})
        return Closing(since_seconds=since, spared=spared)

    async def _bring_holder(self, holder: GpuHolder, told: Closing, dead: frozenset[GpuUuid]) -> HolderStep:
        step = decide_step(holder, None, told, dead, self._live.now.repairs.drain)
        if step.step is not DrainStep.LOOK or holder.pod is None:
            return step
        if self._pods is None:
            return HolderStep(holder=holder, step=DrainStep.LEAVE, why=_NO_API)
        now = self._clock.monotonic()
        last, due = self._last.get(holder.pod.uid, (step, 0.0))
        if now < due:
            return last
        try:
            step, pause = await self._ask(self._pods, holder, holder.pod, told, dead)
        except NodeagentError as error:
            self._log.warning("repair_drain_failed", pod=holder.name, reason=str(error))
            step, pause = HolderStep(holder=holder, step=DrainStep.LOOK, why=str(error)), AGAIN_SECONDS
        self._last[holder.pod.uid] = step, now + pause
        return step

    async def _ask(
        self, pods: KubeDraining, holder: GpuHolder, pod: PodIdentity, told: Closing, dead: frozenset[GpuUuid]
    ) -> tuple[HolderStep, float]:
        """The step taken for a pod as the API server has the pod now, and the seconds until the next step."""
        seen = await pods.read_pod(pod)
        if seen is None:
            return HolderStep(holder=holder, step=DrainStep.LEAVING, why=_GONE), AGAIN_SECONDS
        step = decide_step(holder, seen, told, dead, self._live.now.repairs.drain)
        if step.step is DrainStep.DELETE and await pods.delete(seen):
            self._log.warning("repair_drain_deleted", pod=holder.name, reason=step.why)
        if step.step is not DrainStep.EVICT:
            return step, AGAIN_SECONDS
        answer = await pods.evict(seen)
        self._log.info("repair_drain_asked", pod=holder.name, answer=answer.eviction, reason=answer.detail)
        said = HolderStep(holder=holder, step=step.step, why=answer.detail or step.why)
        return said, max(AGAIN_SECONDS, answer.retry_after_seconds or 0.0)

    def _tell(self, session: FaultSession | DriverUpgrade, steps: list[HolderStep]) -> None:
        inventory = self._bus.read(Inventory) or Inventory(generation=0)
        line = describe_steps(steps)
        details = {str(session.number): f"{name_gpus(session.gpus, inventory)}: {line}"} if steps else {}
        self._show(details)
        is_late = any(step.step in {DrainStep.LATE, DrainStep.DELETE} for step in steps)
        if is_late and self._late != session.number:
            self._late = session.number
            decision = self._live.now.repairs.drain.after_deadline
            self._log.warning("repair_drain_late", session=session.number, decision=decision, holders=line)


def _name_nobody(why: str) -> GpuHolder:
    """Whoever may have the GPUs without being seen."""
    return GpuHolder(name="somebody unseen", gpus=frozenset(), obstacle=why)

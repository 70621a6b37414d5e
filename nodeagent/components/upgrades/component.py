"""Upgrades the driver where another version is wanted, or names the obstacles.

Owns the state `UpgradeState`, the conditions about upgrades, the orders for an upgrade, and the order of writing before
acting: each phase is durable in the journal before the first act of the phase, and each pause before the pause.
Refuses to decide: `rules/upgrade_beginning` and `rules/upgrade_steps` decide.
"""

from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from nodeagent.components.upgrades.acting_task import UpgradeActs, UpgradePorts, name_release
from nodeagent.components.upgrades.leaving_task import LeavingPods
from nodeagent.components.upgrades.put_aside_task import PuttingAside
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.audit import noting
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.cordons import CordonTable
from nodeagent.model.driver import DriverEvidence, DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused, JournalUnavailable
from nodeagent.model.events import ConfigurationReloaded, DriverUpgradeStepped, GpuEventReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import FractionTable
from nodeagent.model.orders import (
    ABORT_UPGRADE,
    PAUSE_UPGRADE,
    REHEARSE_UPGRADE,
    RESUME_UPGRADE,
    AuthoredCommand,
)
from nodeagent.model.ports import UpgradeJournal
from nodeagent.model.proof import PROOF_FAILED
from nodeagent.model.repairs import RepairState, SessionGpu
from nodeagent.model.upgrades import DriverUpgrade, PutAside, UpgradeEnding, UpgradePhase, UpgradeState
from nodeagent.rules.repair.domains import describe_gpu
from nodeagent.rules.upgrade_beginning import ACT, VersionNeed, find_hold, is_forbidden, list_obstacles
from nodeagent.rules.upgrade_steps import Limits, Seen, describe_step, step_upgrade

AGAIN_SECONDS: Final = 10.0
"""Between two rounds of an upgrade without news: a budget may have changed its mind, and a process have ended."""
RETRY_SECONDS: Final = 5.0
"""Until another try with a journal that cannot be read or written."""
DUE, UNDER_WAY, FAILED = "driver-upgrade-due", "driver-upgrade-under-way", "driver-upgrade-failed"
_UNKNOWN: Final = "of an unknown version"
_HOLDINGS: Final = (AllocationTable, FractionTable, ReadyClaims)
_WATCHED: Final = (DriverState, Inventory, *_HOLDINGS, CordonTable, ClusterNode, RepairState)


class Upgrades:
    """The component."""

    name = "upgrades"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        journal: UpgradeJournal,
        orders: OrderHandlers,
        ports: UpgradePorts,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._journal, self._orders, self._ports = journal, orders, ports
        self._aside = PuttingAside(ports.cluster, ports.services, self._keep_aside)
        self._acts = UpgradeActs(ports, clock, self._aside, self._keep_aside)
        self._slots, self._leaving = ports.slots, LeavingPods(bus, ports.rehearsal, self._publish)
        self._writing, self._waker = anyio.Lock(), Waker()
        self._proven: set[SessionGpu] = set()
        """The GPUs with a proof after the present upgrade."""
        self._why = ""
        """The obstacle of the present step."""
        self._is_late = False
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take up the upgrade of the journal, if any, then follow driver and settings until cancelled."""
        orders = self._orders
        with (
            orders.carrying_out(PAUSE_UPGRADE, self.pause),
            orders.carrying_out(RESUME_UPGRADE, self.resume),
            orders.carrying_out(ABORT_UPGRADE, self.abort),
            orders.carrying_out(REHEARSE_UPGRADE, self._leaving.rehearse),
        ):
            async with anyio.create_task_group() as tasks:
                states = self._bus.watch_all(*_WATCHED, client=self.name)
                tasks.start_soon(self._waker.follow, states, name="upgrades states")
                tasks.start_soon(self._follow_settings, name="upgrades settings")
                await self._bring(tasks)
                task_status.started()
                while True:
                    with anyio.move_on_after(self._find_wait()):
                        await self._waker.wait()
                    await self._bring(tasks)

    async def _follow_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for _ in reloads:
                self._waker.wake()

    def _find_wait(self) -> float | None:
        """Seconds until something is due without news; `None` where only news count."""
        if self._is_late:
            return RETRY_SECONDS
        if self._find_open() is None:
            return self._slots.find_wait()
        wait = self._acts.find_wait()
        return wait if 0 < wait < AGAIN_SECONDS else AGAIN_SECONDS

    async def pause(self, command: AuthoredCommand) -> str:
        """Hold the upgrade under way before its next step.

        Raises:
            ControlRefused: Nothing is under way, or the order could not be made durable.
        """
        return await self._steer(self._demand_open(), "is held before its next step", paused_by=_name(command))

    async def abort(self, command: AuthoredCommand) -> str:
        """Give up the upgrade under way.

        Raises:
            ControlRefused: Nothing is under way, or the order could not be made durable.
        """
        return await self._steer(self._demand_open(), "is given up", aborted_by=_name(command))

    async def resume(self, command: AuthoredCommand) -> str:
        """Go on with the upgrade under way, or allow another try after one that has not ended well.

        Raises:
            ControlRefused: Nothing is paused or has failed, or the order could not be made durable.
        """
        last = next(iter(self._list_upgrades()), None)
        if last is None or last.ending is UpgradeEnding.DONE:
            raise ControlRefused("no upgrade of the driver is paused or has failed: see `nodeagent driver status`")
        self._log.info("driver_upgrade_resumed", upgrade=last.number, who=command.who)
        if last.is_open:
            return await self._steer(last, "goes on", paused_by="")
        return await self._steer(last, "may be tried again", may_repeat=True)

    def _demand_open(self) -> DriverUpgrade:
        if (upgrade := self._find_open()) is None:
            raise ControlRefused("no upgrade of the driver is under way: see `nodeagent driver status`")
        return upgrade

    async def _steer(self, upgrade: DriverUpgrade, said: str, **changes: object) -> str:
        try:
            await self._change(upgrade, **changes)
        except JournalUnavailable as error:
            raise ControlRefused(f"the upgrade stays as it was: {error}") from error
        self._waker.wake()
        return f"upgrade {upgrade.number} to driver {upgrade.wanted} {said}"

    def _list_upgrades(self) -> tuple[DriverUpgrade, ...]:
        """The upgrades of the journal, the newest first."""
        return tuple(one for _, one in sorted((self._journal.upgrades() or {}).items(), reverse=True))

    def _find_open(self) -> DriverUpgrade | None:
        return next((one for one in self._list_upgrades() if one.is_open), None)

    async def _change(self, upgrade: DriverUpgrade, **changes: object) -> DriverUpgrade:
        """Make a change of an upgrade durable, whatever else has changed since the upgrade was read."""
        async with self._writing:
            before = (self._journal.upgrades() or {}).get(upgrade.number, upgrade)
            after = await self._journal.keep_upgrade(replace(before, **changes))
        if step := describe_step(after, before):
            self._tell(after, step)
        return after

    def _tell(self, upgrade: DriverUpgrade, step: str) -> None:
        with noting("driver", f"upgrade {upgrade.number}", step, f"from {upgrade.before} to {upgrade.wanted}"):
            fact = DriverUpgradeStepped(upgrade=upgrade.number, phase=upgrade.phase, step=step)
            self._bus.publish_fact(fact, source=self.name, cause=self._bus.latest(DriverState))
        self._log.info("driver_upgrade_stepped", upgrade=upgrade.number, step=step, phase=upgrade.phase)

    async def _keep_aside(self, aside: PutAside) -> None:
        upgrade = self._find_open()
        assert upgrade is not None
        await self._change(upgrade, put_aside=aside)

    async def _bring(self, tasks: TaskGroup) -> None:
        """Take the next step, each phase durable before an act, and publish the state."""
        self._is_late = self._journal.upgrades() is None
        try:
            if not self._is_late:
                upgrade = self._find_open() or await self._begin()
                if upgrade is not None:
                    await self._go_on(await self._take_up(upgrade), tasks)
                await self._slots.settle_all(self._list_upgrades())
        except JournalUnavailable as error:
            self._is_late = True
            self._log.warning("driver_upgrade_not_kept", reason=str(error))
        self._publish()

    def _read_need(self) -> VersionNeed:
        settings, driver = self._live.now.driver, self._bus.read(DriverState)
        return VersionNeed(
            mode=settings.upgrade,
            setting=settings.wanted_version,
            installed_by=settings.installed_by,
            loaded=driver.module_version if driver is not None else "",
            installed=driver.library_version if driver is not None else "",
        )

    def _list_obstacles(self, need: VersionNeed) -> tuple[str, ...]:
        """Why an upgrade that is due does not begin."""
        read, past = self._bus.read, self._list_upgrades()
        return (*list_obstacles(need, read(ClusterNode), past), *filter(None, [self._find_obstacle()]))

    def _find_obstacle(self) -> str:
        driver, inventory = self._bus.read(DriverState), self._bus.read(Inventory)
        if inventory is None or self._bus.read(AllocationTable) is None:
            return "the GPUs and their holders are not known yet"
        if unread := self._find_unread():
            return unread
        acting = self._list_acting()
        if acting:
            return f"fault session {min(acting)} has an act under way"
        is_released = driver is not None and driver.phase is DriverPhase.RELEASED
        return "the driver is released by `nodeagent release`" if is_released else ""

    def _find_unread(self) -> str:
        """Why the node's labels cannot be obeyed yet; empty once the labels are known, and without an API server."""
        is_read = self._ports.cluster is None or self._bus.read(ClusterNode) is not None
        return "" if is_read else "the API server has not told the node's labels yet"

    def _list_acting(self) -> tuple[int, ...]:
        sessions = (self._bus.read(RepairState) or RepairState()).sessions
        return tuple(one.number for one in sessions if one.is_open and one.under_way is not None)

    async def _begin(self) -> DriverUpgrade | None:
        """Begin an upgrade that is due and has no obstacle."""
        need, inventory = self._read_need(), self._bus.read(Inventory)
        if not need.is_due or inventory is None or self._list_obstacles(need):
            return None
        now = self._clock.wall()
        begun = await self._journal.keep_upgrade(
            DriverUpgrade(
                number=0,
                before=need.loaded,
                wanted=need.wanted,
                gpus=tuple(describe_gpu(gpu) for gpu in inventory.gpus),
                boot=self._journal.read_boot(),
                began_seconds=now,
                phase_seconds=now,
            )
        )
        self._tell(begun, f"begun, from {begun.before} to {begun.wanted}")
        return begun

    async def _take_up(self, upgrade: DriverUpgrade) -> DriverUpgrade:
        """The upgrade in this boot, and given up where the settings or the node's label want so."""
        changes: dict[str, object] = {}
        if upgrade.boot != self._journal.read_boot():
            changes["boot"] = self._journal.read_boot()
        if not upgrade.aborted_by and upgrade.phase is not UpgradePhase.RESTORE:
            if self._live.now.driver.upgrade != ACT:
                changes["aborted_by"] = f"driver.upgrade: {self._live.now.driver.upgrade}"
            elif is_forbidden(self._bus.read(ClusterNode)):
                changes["aborted_by"] = "the node's label"
        return await self._change(upgrade, **changes) if changes else upgrade

    async def _go_on(self, upgrade: DriverUpgrade, tasks: TaskGroup) -> None:
        settings = self._live.now.driver
        limits = Limits(installed_by=settings.installed_by, act_seconds=settings.upgrade_seconds)
        await self._slots.renew(upgrade)
        while not self._acts.is_busy:
            evidence = await self._ports.probe.read_evidence()
            if evidence.stuck and not evidence.module_loaded:
                # A module that cannot be seen may be loaded and held.
                self._why = evidence.stuck
                return
            seen = await self._look(upgrade, evidence)
            # Whoever was put aside meanwhile, and a person's order, are in the journal.
            upgrade = self._find_open() or upgrade
            step = step_upgrade(upgrade, seen, limits)
            self._why = step.why
            if step.upgrade == upgrade:
                if step.act is not None and self._acts.is_due(step.act):
                    self._acts.is_busy = True
                    tasks.start_soon(
                        self._acts.carry_out, step.act, upgrade, settings, self._waker.wake, name="upgrades act"
                    )
                return
            upgrade = await self._enter(step.upgrade, upgrade)
            if not upgrade.is_open:
                self._end()
                return

    async def _enter(self, after: DriverUpgrade, before: DriverUpgrade) -> DriverUpgrade:
        if after.phase is not before.phase:
            self._acts.forget()
        names = ("phase", "phase_seconds", "failure", "ending", "ended_seconds")
        changes = {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}
        return await self._change(before, **changes)

    def _end(self) -> None:
        self._ports.drain.end()
        self._proven.clear()
        self._why = ""

    async def _look(self, upgrade: DriverUpgrade, evidence: DriverEvidence) -> Seen:
        """Look at driver and holders for the next step; in the first phases the holders are asked to leave."""
        module = (evidence.module_version or _UNKNOWN) if evidence.module_loaded else ""
        self._acts.has_released |= evidence.released == name_release(upgrade)
        is_released = bool(evidence.released) and not self._acts.has_released
        node = self._bus.read(ClusterNode)
        hold = find_hold(upgrade, node, self._list_acting(), is_released=is_released) or self._find_unread()
        seen = Seen(now_seconds=self._clock.wall(), module=module, hold=hold, answer=self._acts.answer)
        if upgrade.phase is UpgradePhase.RESTORE:
            return replace(seen, waits=await self._restore(upgrade))
        drain, was_waiting = self._ports.drain, self._slots.is_waiting
        if without_slots := await self._slots.ask(upgrade, hold):
            if not self._slots.may_close(upgrade):
                drain.end()
            return replace(seen, without_slots=without_slots)
        if was_waiting and not self._slots.is_waiting:
            await self._change(upgrade, began_seconds=seen.now_seconds)
        if not module or hold or upgrade.is_failing or module == upgrade.wanted:
            return seen
        if upgrade.phase.rank >= UpgradePhase.UNLOAD.rank:
            return replace(seen, holders=await drain.compare(upgrade.gpus))
        left: tuple[str, ...] = ()
        if upgrade.phase is UpgradePhase.PAUSE:
            left = await self._aside.put(upgrade.put_aside)
        held = await drain.bring(upgrade, upgrade.gpus, frozenset())
        return replace(seen, holders=(*held, *left), has_pods=drain.has_pods)

    async def _restore(self, upgrade: DriverUpgrade) -> str:
        """Take the next steps of the way back; the obstacle, empty once all is back."""
        aside, problem = await self._aside.start(upgrade.put_aside)
        if problem and not upgrade.aborted_by:
            return problem
        if problem := await self._acts.take_back():
            return problem
        if not upgrade.is_failing:
            driver = self._bus.read(DriverState)
            if driver is None or not driver.ready or driver.module_version != upgrade.wanted:
                return f"the driver does not work yet: {driver.detail or driver.phase if driver is not None else ''}"
            await self._prove(upgrade)
        return await self._aside.give_back(aside)

    async def _prove(self, upgrade: DriverUpgrade) -> None:
        """Prove each GPU without MIG devices, once; the health component takes a faulty GPU away."""
        inventory, failures = self._bus.read(Inventory) or Inventory(generation=0), list[str]()
        for gpu in inventory.gpus:
            one = describe_gpu(gpu)
            if gpu.lost or gpu.mig_enabled or one in self._proven:
                continue
            self._proven.add(one)
            if failure := await self._acts.prove(one):
                self._bus.publish_fact(GpuEventReported(gpu=gpu.uuid, kind=PROOF_FAILED), source=self.name)
                failures.append(failure)
        if failures:
            await self._change(upgrade, failure="; ".join(failures))

    def _publish(self) -> None:
        need, upgrade, upgrades = self._read_need(), self._find_open(), self._list_upgrades()
        pods = self._leaving.find()
        obstacles = () if upgrade is not None or not need.is_due else self._list_obstacles(need)
        sentence = need.describe()
        if upgrade is not None:
            sentence = f"upgrade {upgrade.number} from {upgrade.before} to {upgrade.wanted}, phase {upgrade.phase}"
        named = f"upgrade of the driver to {upgrade.wanted}" if upgrade is not None else ""
        closed = upgrade.gpus if upgrade is not None and self._slots.may_close(upgrade) else ()
        state = UpgradeState(
            mode=need.mode,
            loaded=need.loaded,
            installed=need.installed,
            wanted=need.wanted,
            sentence=sentence,
            obstacles=obstacles if upgrade is None else tuple(filter(None, [self._why])),
            pods=tuple(pods),
            budgets=self._leaving.find_budgets(pods),
            upgrades=upgrades,
            closed_gpus=dict.fromkeys((gpu.uuid for gpu in closed), named),
        )
        published = self._bus.publish_state(state, source=self.name)
        told = f"{sentence}: {self._why}" if self._why else sentence
        due = f"{sentence}; {'; '.join(obstacles)}" if need.is_due else ""
        due, told = (due, "") if upgrade is None else ("", told) if closed else (told, "")
        last = next(iter(upgrades), None)
        is_failed = last is not None and last.ending is UpgradeEnding.FAILED and last.wanted == need.wanted
        failed = last.why_not_done if last is not None and is_failed and not last.may_repeat else ""
        for code, detail in ((DUE, due), (UNDER_WAY, told), (FAILED, failed)):
            self._conditions.replace(code, {"": detail} if detail else {}, cause=published)


def _name(command: AuthoredCommand) -> str:
    return command.who or "a person"

"""Carries out cordons of GPUs: as the node's annotations and repairs ask, as people command, and until their end.

Owns the cordons in the journal, and what is reported of misspelt ones. A cordon counts once it is durable, and ends by
the wall clock whether or not the journal can be written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import anyio

from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.model.cluster import NodeRequests
from nodeagent.model.cordons import Cordon, CordonSource, CordonTable, check_reason, parse_until
from nodeagent.model.errors import ControlRefused, JournalUnavailable
from nodeagent.model.events import ConfigurationReloaded, GpuCordoned, GpuUncordoned, NodeRequestRefused
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.orders import CORDON_GPU, UNCORDON_GPU, CordonCommand, UncordonCommand
from nodeagent.model.ports import CordonStore
from nodeagent.model.repairs import RepairState
from nodeagent.model.upgrades import UpgradeState
from nodeagent.rules.cordons import (
    ANNOTATIONS,
    AskedCordon,
    CordonPlan,
    drop_over,
    find_next_end,
    plan_command,
    plan_cordons,
    plan_repairs,
    plan_uncordon,
)

CLOCK_SECONDS: Final = 30.0
"""The longest wait between two looks at the wall clock, which may jump."""
RETRY_SECONDS: Final = 5.0
_WATCHED: Final = (NodeRequests, Inventory, CordonTable, RepairState, UpgradeState)
_REFUSED: Final = "cordon-refused"
_OWN: Final = {
    CordonSource.REPAIR: "a repair lifts its own",
    CordonSource.DRIVER: "an upgrade of the driver lifts its own, `nodeagent driver abort` ends it",
}
_LIFTED: Final = {
    CordonSource.REPAIR: "nothing is repaired there any more",
    CordonSource.DRIVER: "the driver's upgrade has ended",
}
_NAMED: Final = 4
"""Problems told singly."""
_SHOWN: Final = 200
"""Characters of an annotation that an event repeats."""


class CordonTask:
    """The part of the component `offering` that keeps the cordons."""

    name = "offering"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        store: CordonStore,
        *,
        ended: Callable[[], None],
    ) -> None:
        """`ended` is called at the end of a cordon."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._store, self._ended = store, ended
        self._turn, self._waker = anyio.Lock(), Waker()
        self._told: dict[CordonSource, tuple[str, str]] = {}
        """By source the text of the annotation read last, and what was reported of it."""
        self._log = get_logger(component=self.name)

    async def run(self, orders: OrderHandlers) -> None:
        """Follow annotations, commands and the clock until cancelled."""
        watched = self._bus.watch_all(*_WATCHED, client=f"{self.name} cordons")
        with orders.carrying_out(CORDON_GPU, self.cordon), orders.carrying_out(UNCORDON_GPU, self.uncordon):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._waker.follow, watched, name="offering cordon states")
                tasks.start_soon(self._watch_settings, name="offering cordon settings")
                while True:
                    wait = await self._bring()
                    with anyio.move_on_after(wait):
                        await self._waker.wait()

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=f"{self.name} cordons") as reloads:
            async for _ in reloads:
                self._waker.wake()

    async def cordon(self, command: CordonCommand) -> str:
        """Keep a GPU from new pods, in place of an earlier command about the GPU.

        Raises:
            ControlRefused: No such GPU, a time that is past, or a cordon that could not be made durable.
        """
        until = parse_until(command.until) if command.until else None
        asked = AskedCordon(gpu=command.gpu, reason=check_reason(command.reason), until_seconds=until, who=command.who)
        async with self._turn:
            table, inventory = self._look()
            kept = table.by_source.get(CordonSource.COMMAND, ())
            plan = plan_command(asked, inventory, kept, self._clock.wall())
            if refusal := " ".join((*plan.problems, *plan.over)):
                raise ControlRefused(refusal)
            await self._order(table, CordonSource.COMMAND, plan.cordons, f"taken back by {command.who}")
        return f"GPU {command.gpu}: cordoned {plan.cordons[-1].describe()}; pods that have the GPU keep it"

    async def uncordon(self, command: UncordonCommand) -> str:
        """Take back the cordon that a person or the brake gave a GPU; cordons by annotations stay.

        Raises:
            ControlRefused: Neither cordoned the GPU, or the change could not be made durable.
        """
        async with self._turn:
            table, inventory = self._look()
            plans = {
                source: plan_uncordon(command.gpu, inventory, table.by_source.get(source, ()))
                for source in (CordonSource.COMMAND, CordonSource.BRAKE)
            }
            gpu = next((gpu for gpu, _ in plans.values() if gpu is not None), None)
            in_force = table.list_in_force(self._clock.wall())
            still = _explain_still([one for one in in_force if one.gpu == gpu and one.source not in plans])
            changed = {source: left for source, (_, left) in plans.items() if left != table.by_source.get(source, ())}
            if not changed:
                raise ControlRefused(f"neither a person nor the brake has cordoned a GPU {command.gpu} here{still}")
            for source, left in changed.items():
                await self._order(table, source, left, f"taken back by {command.who}")
        return f"GPU {command.gpu}: the cordon is taken back{still}"

    async def keep_brake(self, cordons: tuple[Cordon, ...], why: str) -> None:
        """Make the brake's cordons durable.

        Raises:
            JournalUnavailable: The cordons could not be written.
        """
        async with self._turn:
            await self._keep(self._store.cordons() or CordonTable(), CordonSource.BRAKE, cordons, why)

    def _look(self) -> tuple[CordonTable, Inventory]:
        table, inventory = self._store.cordons(), self._bus.read(Inventory)
        if table is None or inventory is None:
            raise CORDON_GPU.refuse()
        return table, inventory

    async def _order(self, table: CordonTable, source: CordonSource, cordons: tuple[Cordon, ...], why: str) -> None:
        try:
            await self._keep(table, source, cordons, why)
        except JournalUnavailable as error:
            raise ControlRefused(f"the cordons stay as they were: {error}") from error

    async def _bring(self) -> float:
        """Bring the cordons of all annotations, and end those whose time has come; returns the seconds to the next."""
        async with self._turn:
            table, inventory = self._store.cordons(), self._bus.read(Inventory)
            if table is None or inventory is None:
                return CLOCK_SECONDS
            try:
                for source, left in drop_over(table, self._clock.wall()).items():
                    self._ended()
                    await self._keep(table, source, left, "its time is over")
                await self._bring_annotations(inventory)
                await self._bring_repairs(inventory)
            except JournalUnavailable as error:
                self._conditions.set(_REFUSED, key="journal", detail=f"it is not kept: {error}")
                return RETRY_SECONDS
            self._conditions.clear(_REFUSED, key="journal")
        now = self._clock.wall()
        end = find_next_end(self._store.cordons() or table, now)
        return CLOCK_SECONDS if end is None else min(max(end - now, 0.0), CLOCK_SECONDS)

    async def _bring_annotations(self, inventory: Inventory) -> None:
        requests = self._bus.read(NodeRequests)
        if requests is None:
            return
        texts = {
            CordonSource.ANNOTATION: requests.gpu_cordon,
            CordonSource.HAMI: requests.hami_cordon if self._live.now.kubernetes.hami_cordon else "",
        }
        for source, text in texts.items():
            table = self._store.cordons() or CordonTable()
            kept = table.by_source.get(source, ())
            _, parse = ANNOTATIONS[source]
            try:
                plan = plan_cordons(source, parse(text), inventory, kept, self._clock.wall())
            except ValueError as error:
                plan = CordonPlan(cordons=kept, problems=(str(error),))
            await self._keep(table, source, plan.cordons, "taken out of the annotation")
            self._tell(source, text, plan)

    async def _bring_repairs(self, inventory: Inventory) -> None:
        """Bring the cordons that repairs and upgrades of the driver ask for; none where the agent acts on neither.

        After a start the kept cordons stay until the findings have settled: a drain goes on where it was.
        """
        settings, repairs, upgrades = self._live.now, self._bus.read(RepairState), self._bus.read(UpgradeState)
        if settings.repairs.mode != "act":
            await self._close(CordonSource.REPAIR, {}, inventory)
        elif repairs is not None and not repairs.unsettled:
            await self._close(CordonSource.REPAIR, repairs.closed_gpus, inventory)
        if settings.driver.upgrade == "off":
            await self._close(CordonSource.DRIVER, {}, inventory)
        elif upgrades is not None:
            await self._close(CordonSource.DRIVER, upgrades.closed_gpus, inventory)

    async def _close(self, source: CordonSource, asked: Mapping[GpuUuid, str], inventory: Inventory) -> None:
        table = self._store.cordons() or CordonTable()
        cordons = plan_repairs(asked, inventory, table.by_source.get(source, ()), self._clock.wall(), source)
        await self._keep(table, source, cordons, _LIFTED[source])

    async def _keep(self, table: CordonTable, source: CordonSource, cordons: tuple[Cordon, ...], why: str) -> None:
        """Make the cordons of a source durable, and publish what changed; without a change nothing is written."""
        before = table.by_source.get(source, ())
        if cordons == before:
            return
        await self._store.keep_cordons(source, cordons)
        for one in _list_new(cordons, before):
            fact = GpuCordoned(gpu=one.gpu, source=source, detail=one.describe())
            self._bus.publish_fact(fact, source=self.name)
            self._log.info("gpu_cordoned", gpu=one.gpu, by=source, reason=one.reason)
        staying = {one.gpu for one in cordons}
        for gpu in dict.fromkeys(one.gpu for one in before if one.gpu not in staying):
            self._bus.publish_fact(GpuUncordoned(gpu=gpu, source=source, reason=why), source=self.name)
            self._log.info("gpu_uncordoned", gpu=gpu, by=source, reason=why)

    def _tell(self, source: CordonSource, text: str, plan: CordonPlan) -> None:
        """Report what is wrong with an annotation, once; an end that comes while the annotation stands is no fault."""
        key, _ = ANNOTATIONS[source]
        problem = _join(plan.problems)
        if problem:
            self._conditions.set(_REFUSED, key=key, detail=f"{key}: {problem}")
        else:
            self._conditions.clear(_REFUSED, key=key)
        text_before, told = self._told.get(source, ("", ""))
        found = _join((*plan.problems, *(plan.over if text != text_before else ())))
        if found and found != told:
            self._bus.publish_fact(NodeRequestRefused(label=key, value=text[:_SHOWN], reason=found), source=self.name)
            self._log.warning("cordon_refused", annotation=key, reason=found)
        self._told[source] = text, problem


def _explain_still(others: Sequence[Cordon]) -> str:
    """The cordons that keep a GPU closed after a person's order to open the GPU; empty without any."""
    if not others:
        return ""
    own = {one.source: _OWN.get(one.source, "take the entry out there") for one in others}
    ways = dict.fromkeys(own[source] for source in CordonSource if source in own)
    return f"; the GPU stays cordoned {' and '.join(one.describe() for one in others)}: {', and '.join(ways)}"


def _join(problems: Sequence[str]) -> str:
    """The first few problems; the others are counted."""
    more = len(problems) - _NAMED
    return "; ".join((*problems[:_NAMED], *([f"and {more} more"] if more > 0 else [])))


def _list_new(cordons: Iterable[Cordon], before: Iterable[Cordon]) -> list[Cordon]:
    known = set(before)
    return [one for one in cordons if one not in known]

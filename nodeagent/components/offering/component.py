"""Publishes the allocation mode of each GPU: whole, in fractions, by claims, or closed; cordons and brake.

Owns the state `Offering`, which all components that give out GPUs read, and the conditions about allocation modes.
Refuses to change a mode while the GPU is held, and to forget a person's choice.
"""

from typing import Final, Protocol

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.offering.brake_task import BrakeTask
from nodeagent.components.offering.cordon_task import CordonTask
from nodeagent.components.offering.decide import (
    NO_CLAIMS,
    NO_FRACTIONS,
    cordon_offering,
    decide_conditions,
    find_switch,
    list_served,
    mark_trials,
    plan_offering,
)
from nodeagent.components.offering.gone import HELD_GONE, list_held_gone
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import CordonSource, CordonTable
from nodeagent.model.errors import ControlRefused, JournalUnavailable
from nodeagent.model.events import AllocationModeChanged, AllocationModeChosen, ConfigurationReloaded
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import ChosenAllocationModes, FractionTable
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.orders import CONFIGURED, SET_DOOR, AllocationModeCommand
from nodeagent.model.ports import AllocationModeStore, CordonStore
from nodeagent.rules.selectors import find_named

GATHER_SECONDS: Final = 0.02
"""How long changes are gathered: a container that starts makes several, and waits for none of this."""
_WATCHED = (Inventory, AllocationTable, FractionTable, ReadyClaims, ChosenAllocationModes, CordonTable)


class OfferingStore(AllocationModeStore, CordonStore, Protocol):
    """Stores what outranks the configuration: allocation modes set by a person, and cordons."""


class OfferingComponent:
    """The component."""

    name = "offering"
    _reloaded: Envelope[ConfigurationReloaded] | None = None
    _chosen: Envelope[AllocationModeChosen] | None = None

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        memory: OfferingStore,
        orders: OrderHandlers,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._memory, self._orders = memory, orders
        self._waker, self._news = Waker(), News()
        self._cordons = CordonTask(bus, conditions, clock, live, memory, ended=self._waker.wake)
        self._brake = BrakeTask(bus, conditions, clock, live, memory, self._cordons, changed=self._waker.wake)
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Follow the inputs of allocation modes until cancelled; ready when each GPU has a mode."""
        with self._orders.carrying_out(SET_DOOR, self.set_allocation_mode):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(
                    self._waker.follow, self._bus.watch_all(*_WATCHED, client=self.name), name="offering states"
                )
                tasks.start_soon(self._watch_settings, name="offering settings")
                tasks.start_soon(self._cordons.run, self._orders, name="offering cordons")
                tasks.start_soon(self._brake.run, name="offering brake")
                while not self._refresh():
                    await self._waker.wait()
                task_status.started()
                while True:
                    await self._waker.wait()
                    await anyio.sleep(GATHER_SECONDS)
                    self._refresh()

    async def set_allocation_mode(self, command: AllocationModeCommand) -> str:
        """Set a GPU's allocation mode, kept over restarts; a held GPU changes its mode when its holders are gone.

        Raises:
            ControlRefused: No such GPU or mode, or the choice could not be made durable.
        """
        mode = None if command.door == CONFIGURED else AllocationMode(command.door)
        inventory = self._bus.read(Inventory)
        gpu = find_named(inventory, command.gpu) if inventory is not None else None
        if gpu is None:
            raise ControlRefused(
                f"no GPU {command.gpu}: name it by index, UUID or PCI address, see `nodeagent gpu list`"
            )
        served = list_served(self._live.now)
        if mode is not None and mode not in served:
            reason = f"nobody here serves the door {mode}; choose {' or '.join(sorted(served))}"
            setting = find_switch(mode, self._live.now).setting
            raise ControlRefused(f"{reason}, or set `{setting}` and restart the agent")
        try:
            await self._memory.set_allocation_mode(gpu.uuid, mode)
        except JournalUnavailable as error:
            raise ControlRefused(f"the door stays as it was: {error}") from error
        fact = AllocationModeChosen(gpu=gpu.uuid, door=None if mode is None else str(mode), who=command.who)
        self._chosen = self._bus.publish_fact(fact, source=self.name)
        self._log.info("door_chosen", gpu=gpu.uuid, door=fact.door, who=command.who)
        self._refresh()
        offering = self._bus.read(Offering)
        assert offering is not None
        return next(each.describe() for each in offering.doors if each.gpu == gpu.uuid)

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for self._reloaded in reloads:
                self._waker.wake()

    def _refresh(self) -> bool:
        """Publish the allocation modes; whether all modes are known."""
        inventory, table = self._bus.latest(Inventory), self._bus.latest(AllocationTable)
        parts, claims = self._bus.latest(FractionTable), self._bus.latest(ReadyClaims)
        if inventory is None or table is None:
            return False
        # A choice that cannot be read changes nothing: what must not be given out now, the journal refuses.
        chosen = self._memory.doors() or {}
        given = parts.value if parts is not None else NO_FRACTIONS
        claimed = claims.value if claims is not None else NO_CLAIMS
        seen = inventory.value
        offering = plan_offering(
            seen.gpus, self._live.now, chosen, table.value.allocations, given, claimed, seen.unlisted
        )
        others = (self._memory.cordons() or CordonTable()).list_in_force(self._clock.wall())
        cordons = (*(one for one in others if one.source is not CordonSource.BRAKE), *self._brake.list_in_force())
        offering = cordon_offering(
            offering, cordons, seen.gpus, table.value.allocations, given, claimed, closing=self._brake.list_closing()
        )
        offering = mark_trials(offering, self._brake.list_trials())
        gone = list_held_gone(seen, table.value, given, claimed)
        self._conditions.replace(HELD_GONE, gone, cause=inventory)
        latest = self._bus.latest(Offering)
        if latest is not None and latest.value == offering:
            return True
        cause = self._news.take(self._chosen, self._reloaded, inventory) or self._news.take(table, parts, claims)
        envelope = self._bus.publish_state(offering, source=self.name, cause=cause)
        before = {each.gpu: each.door for each in latest.value.doors} if latest is not None else {}
        for each in offering.doors:
            if each.door is not before.get(each.gpu, each.door):
                changed = AllocationModeChanged(
                    gpu=each.gpu, before=before[each.gpu], after=each.door, reason=each.reason
                )
                self._bus.publish_fact(changed, source=self.name, cause=envelope)
                self._log.info("door_changed", gpu=each.gpu, before=changed.before, after=changed.after)
        for code, details in decide_conditions(offering, list_served(self._live.now)).items():
            self._conditions.replace(code, details, cause=envelope)
        return True

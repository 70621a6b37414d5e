"""The orders that make trouble on purpose: faults of a simulation, and crashes of components."""

from collections.abc import Callable

from nodeagent.core.channels.bus import Bus
from nodeagent.core.errors import CoreError
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.errors import ControlRefused, FaultUnknown, GpuUnknown
from nodeagent.model.events import FaultInjected
from nodeagent.model.orders import CRASH, INJECT_FAULT, CrashCommand, FaultCommand
from nodeagent.model.ports import FaultInjector


class FaultOrders:
    """Carries the orders out."""

    def __init__(
        self, bus: Bus, orders: OrderHandlers, faults: FaultInjector | None, crash: Callable[[str, Exception], None]
    ) -> None:
        """`faults` belongs to a simulation; `crash` ends a component by its name."""
        self._bus, self._faults, self._crash = bus, faults, crash
        orders.add(INJECT_FAULT, self.inject_fault)
        orders.add(CRASH, self.crash_component)

    async def inject_fault(self, command: FaultCommand) -> str:
        """Have the simulation misbehave; the fault `help` lists all faults."""
        fault, arguments = command.fault, command.arguments
        if self._faults is None:
            raise ControlRefused("this agent has real GPUs; only a simulation can be told to misbehave")
        if fault == "help":
            return "\n".join(("faults of the simulation:", *(f"  {line}" for line in self._faults.known_faults)))
        try:
            done = await self._faults.inject(fault, arguments)
        except (FaultUnknown, GpuUnknown, ValueError) as error:
            raise ControlRefused(str(error)) from error
        self._bus.publish_fact(FaultInjected(fault=fault, target=" ".join(arguments)), source="control")
        return done

    async def crash_component(self, command: CrashCommand) -> str:
        """End a component as if it had failed."""
        try:
            self._crash(command.component, InjectedCrash(command.reason))
        except CoreError as error:
            raise ControlRefused(str(error)) from error
        return f"{command.component} was ended as if it had failed; it restarts by itself"


class InjectedCrash(Exception):
    """A crash on a person's order."""

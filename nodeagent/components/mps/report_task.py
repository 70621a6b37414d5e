"""The states by which daemons are run, read; and the starts and faults of daemons, published.

What the code that looks after daemons needs of the bus and of the conditions. Owns the list of containers whose work
was lost with a daemon.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.components.mps.holders import join_names, list_held, name_clients, name_holders, name_others
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import MpsDaemonEnded, MpsDaemonStarted
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.mps import MpsClient, MpsDaemon
from nodeagent.model.ports import ProcessPlaces
from nodeagent.rules.mps.daemons import Wanted

LOST: Final = "mps-clients-lost"


class MpsReporter:
    """Between the daemons and the rest of the agent."""

    name = "mps"

    def __init__(self, bus: Bus, conditions: Conditions, places: ProcessPlaces | None) -> None:
        """`places` finds the pods of processes; without it each process stands alone."""
        self._bus, self._conditions, self._places = bus, conditions, places
        self._bereaved: dict[str, frozenset[int]] = {}
        """By daemon: journal numbers of containers whose work was lost with the daemon."""
        self._log = get_logger(component=self.name)

    def describe(self, gpus: Sequence[GpuUuid], reason: str) -> str:
        """The GPUs of a daemon and the reason, for people."""
        found = [self.find_gpu(uuid) for uuid in gpus]
        names = ", ".join(f"GPU {gpu.index}" for gpu in found if gpu is not None)
        return f"{names or 'a GPU that is gone'}: {reason}"

    def note_start(self, shown: MpsDaemon) -> None:
        """Report a daemon that is ready."""
        started = MpsDaemonStarted(daemon=shown.name, gpus=shown.gpus, pid=shown.pid or 0)
        self._bus.publish_fact(started, source=self.name)

    def note_fault(self, shown: MpsDaemon, reason: str, clients: tuple[MpsClient, ...]) -> None:
        """Report the clients whose work ended with the daemon: clients seen at work, else the holders of its GPUs."""
        held = list_held(shown.gpus, self._allocations(), self._parts())
        at_work = tuple(dict.fromkeys(one.pod or f"process {one.pid}" for one in clients))
        names = at_work or tuple(dict.fromkeys(held.values()))
        ended = MpsDaemonEnded(daemon=shown.name, gpus=shown.gpus, reason=reason, pods=names)
        self._bus.publish_fact(ended, source=self.name)
        self._log.error("mps_clients_lost", daemon=shown.name, reason=reason, pods=list(names))
        if held:
            self._bereaved[shown.name] = frozenset(held)
            detail = f"{self.describe(shown.gpus, reason)}: {join_names(names)}"
            self._conditions.set(LOST, key=shown.name, detail=detail)

    def forget_bereaved(self) -> None:
        """Forget the containers that lost their work and have ended."""
        living = {*(one.number for one in self._allocations()), *self._parts().bindings}
        for name in [name for name, numbers in self._bereaved.items() if not numbers & living]:
            del self._bereaved[name]
            self._conditions.clear(LOST, key=name)

    def name_holders(self, gpus: Sequence[GpuUuid]) -> tuple[str, ...]:
        """The holders of these GPUs."""
        return name_holders(gpus, self._allocations(), self._parts())

    def name_others(self, wanted: Wanted) -> tuple[str, ...]:
        """The holders of a daemon's GPUs that will not go through the daemon."""
        return name_others(wanted, self._allocations(), self._parts())

    async def name_clients(self, pids: Sequence[int]) -> tuple[MpsClient, ...]:
        """The clients with these process ids, each with its pod."""
        places = await self._places.read_places(pids) if self._places is not None and pids else {}
        return name_clients(pids, places, self._allocations(), self._parts())

    def find_obstacle(self) -> str:
        """Why no daemon can be started now for the driver's sake; empty if there is no obstacle."""
        driver = self._bus.read(DriverState)
        return driver.obstacle if driver is not None else "the driver is not known yet"

    def is_released(self) -> bool:
        """Whether a person has the driver for work on it."""
        driver = self._bus.read(DriverState)
        return driver is not None and driver.phase is DriverPhase.RELEASED

    def find_gpu(self, uuid: GpuUuid) -> Gpu | None:
        """The GPU itself, not the parent of a MIG device of this name."""
        inventory = self._bus.read(Inventory)
        gpu = inventory.find_gpu(uuid) if inventory is not None else None
        return gpu if gpu is not None and gpu.uuid == uuid else None

    def _allocations(self) -> tuple[Allocation, ...]:
        table = self._bus.read(AllocationTable)
        return table.allocations if table is not None else ()

    def _parts(self) -> FractionTable:
        return self._bus.read(FractionTable) or FractionTable()

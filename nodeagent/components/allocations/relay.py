"""The way to the journal for other parts: it outlives the component behind it, which may crash and come back.

Owns nothing.
Refuses to let anybody wait for a journal that is not kept: an Allocate that cannot be recorded fails at once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.model.allocation import Allocation
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Change, Step
from nodeagent.model.offering import Door
from nodeagent.model.ports import AllocationJournal, ChangeKeeper, GpuDoorKeeper


class Keeper(AllocationJournal, GpuDoorKeeper, Protocol):
    """Who keeps the journal, and remembers what ended."""

    @property
    def history(self) -> tuple[Ended, ...]:
        """Ended allocations, oldest first."""
        ...

    @property
    def change_desk(self) -> ChangeKeeper:
        """Where changes in several steps are written down."""
        ...


class JournalRelay:
    """Leads to whoever keeps the journal now."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._keeper: Keeper | None = None

    @contextmanager
    def lead_to(self, keeper: Keeper) -> Iterator[None]:
        """Lead to this keeper for as long as the block lasts."""
        self._keeper = keeper
        try:
            yield
        finally:
            self._keeper = None

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable.

        Raises:
            DeviceHeld: a living pod surely holds one of the devices.
            JournalUnavailable: it could not be made durable, or nobody keeps the journal.
        """
        return await self._find_keeper().record(resource, devices)

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Learn which container is about to start with these devices, if anybody keeps the journal."""
        if self._keeper is not None:
            await self._keeper.identify(resource, devices)

    def doubtful(self) -> Collection[DeviceId]:
        """Devices that the kubelet may take for free although somebody may hold them."""
        return self._keeper.doubtful() if self._keeper is not None else ()

    async def set_door(self, gpu: GpuUuid, door: Door | None) -> None:
        """Make the choice of a GPU's door durable; `None` leaves it to the configuration again.

        Raises:
            JournalUnavailable: it could not be made durable, or nobody keeps the journal.
        """
        await self._find_keeper().set_door(gpu, door)

    def doors(self) -> Mapping[GpuUuid, Door] | None:
        """The doors of GPUs that a person has set; `None` while nobody knows."""
        return self._keeper.doors() if self._keeper is not None else None

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        """Make it durable that a change begins.

        Raises:
            JournalUnavailable: it could not be made durable, or nobody keeps the journal.
        """
        return await self._find_keeper().change_desk.begin_change(owner, gpu, step)

    async def step_change(self, number: int, step: Step) -> None:
        """Make the next step of a change durable.

        Raises:
            JournalUnavailable: it could not be made durable, or nobody keeps the journal.
        """
        await self._find_keeper().change_desk.step_change(number, step)

    async def settle_change(self, number: int, outcome: str) -> None:
        """Make it durable that a change is over.

        Raises:
            JournalUnavailable: it could not be made durable, or nobody keeps the journal.
        """
        await self._find_keeper().change_desk.settle_change(number, outcome)

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        """The changes of one part that are under way; `None` while nobody knows."""
        return self._keeper.change_desk.changes(owner) if self._keeper is not None else None

    def _find_keeper(self) -> Keeper:
        if self._keeper is None:
            raise JournalUnavailable(self._path, "the part that keeps it is starting or has failed: try again")
        return self._keeper

    @property
    def history(self) -> tuple[Ended, ...]:
        """Ended allocations, oldest first, as far as they are remembered."""
        return self._keeper.history if self._keeper is not None else ()

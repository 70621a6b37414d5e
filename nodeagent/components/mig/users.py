"""The users of a GPU now, put together from all published states.

Owns the choice of sources. Refuses to judge which users are in the way: `rules` do.
"""

from typing import Protocol, TypeVar

from nodeagent.components.mig.watch import find_pids, list_processes
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.claims import ClaimBook
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.journal import PartTable
from nodeagent.model.ports import ProcessPlaces
from nodeagent.model.telemetry import NodeSample, ProcessSample
from nodeagent.rules.mig.affected import InTheWay, find_in_the_way, list_busy, list_claimants

V = TypeVar("V")


class Read(Protocol):
    """Reads the newest value of a state, once published."""

    def __call__(self, state: type[V]) -> V | None: ...  # noqa: D102 - see above


class Users:
    """Finds users and holders, from the newest states at each call."""

    def __init__(self, read: Read, places: ProcessPlaces | None) -> None:
        """`places` finds the pods of processes; without it each process stands alone."""
        self._read, self._places = read, places

    def list_busy(self, gpu: Gpu) -> frozenset[int]:
        """The GPU instances in use or held."""
        return list_busy(gpu, self._allocations(), self._processes(gpu.uuid))

    async def find_in_the_way(self, gpu: Gpu, affected: tuple[DeviceUuid, ...]) -> tuple[InTheWay, ...]:
        """The users and holders of these devices of a GPU."""
        processes = self._processes(gpu.uuid)
        pids = find_pids(processes)
        places = await self._places.read_places(pids) if self._places is not None and pids else {}
        pods = {pid: place.pod_uid for pid, place in places.items()}
        book = self._read(ClaimBook)
        claimants = list_claimants(affected, book.claims.values()) if book is not None else ()
        found = find_in_the_way(gpu, affected, self._allocations(), processes, pods, self._read(PartTable))
        return (*claimants, *found)

    def _allocations(self) -> tuple[Allocation, ...]:
        table = self._read(AllocationTable)
        return table.allocations if table is not None else ()

    def _processes(self, gpu: GpuUuid) -> tuple[ProcessSample, ...]:
        sample = self._read(NodeSample)
        return list_processes(sample, gpu) if sample is not None else ()

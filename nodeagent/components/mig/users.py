"""The users of a GPU now, put together from all published states, and their treatment: waits, evicts pods, or refuses.

Owns the choice of sources, who was asked to go, and when to ask anew. Refuses to judge which users are in the way, as
`rules` do, and to take devices from processes without a pod.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from nodeagent.config.sections.mig import MigSettings
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import Eviction
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.plugin import PluginState
from nodeagent.model.ports import PodEviction, ProcessPlaces
from nodeagent.model.telemetry import NodeSample, ProcessSample
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.mig.affected import InTheWay, describe_in_the_way, find_in_the_way, list_busy, list_claimants


def list_processes(sample: NodeSample, gpu: GpuUuid) -> tuple[ProcessSample, ...]:
    """The processes on a GPU and on its MIG devices, as of the newest sample."""
    return tuple(
        process
        for one in sample.gpus
        if one.uuid == gpu
        for process in (*one.processes, *(process for device in one.mig for process in device.processes))
    )


def find_pids(processes: Iterable[ProcessSample]) -> tuple[int, ...]:
    """Each process once."""
    return tuple(sorted({process.pid for process in processes}))


def is_withdrawn(state: PluginState, devices: Collection[DeviceUuid]) -> bool:
    """Whether no resource advertises any of these devices as healthy."""
    return not any(
        device.healthy and find_uuid(device.id) in devices
        for resource in state.resources
        for device in resource.devices
    )


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
        ready = self._read(ReadyClaims)
        claimants = list_claimants(affected, ready.claims.values()) if ready is not None else ()
        found = find_in_the_way(gpu, affected, self._allocations(), processes, pods, self._read(FractionTable))
        return (*claimants, *found)

    def _allocations(self) -> tuple[Allocation, ...]:
        table = self._read(AllocationTable)
        return table.allocations if table is not None else ()

    def _processes(self, gpu: GpuUuid) -> tuple[ProcessSample, ...]:
        sample = self._read(NodeSample)
        return list_processes(sample, gpu) if sample is not None else ()


AGAIN_SECONDS: Final = 5.0
"""Between two rounds of asking pods to go, which a disruption budget may have refused."""


class Clearing(Value, frozen=True):
    """The standing of the users in the way."""

    detail: str
    doing: str
    again_seconds: float | None = None
    """Seconds until a new check without news; `None` to wait for news."""


class Clearer:
    """Carries out the setting `mig.when_busy`."""

    def __init__(self, read_settings: Callable[[], MigSettings], eviction: PodEviction | None) -> None:
        """`eviction` asks pods to go; `None` without an API server."""
        self._read_settings, self._eviction = read_settings, eviction

    async def clear(self, gpu: Gpu, found: Sequence[InTheWay], waited_seconds: float) -> Clearing:
        """Deal with the users now.

        Raises:
            ControlRefused: The change is not to be made.
        """
        settings, names = self._read_settings(), describe_in_the_way(found)
        if settings.when_busy == "refuse":
            raise ControlRefused(f"GPU {gpu.index} is used by {names}, and mig.when_busy is refuse")
        if settings.when_busy == "wait":
            return Clearing(detail=names, doing=f"waits for {names}")
        if self._eviction is None:
            detail = f"{names}; mig.when_busy is evict, but there is no API server that could evict them"
            return Clearing(detail=detail, doing=f"waits for {names}")
        if waited_seconds >= settings.evict_timeout_seconds:
            raise ControlRefused(
                f"GPU {gpu.index} is still used by {names} after {settings.evict_timeout_seconds:g} s: raise"
                " mig.evict_timeout_seconds, or mend what keeps them"
            )
        pods = {one.pod.uid: one.pod for one in found if one.pod is not None and one.pod.uid}
        told = [said for pod in pods.values() if (said := await _ask(self._eviction, pod))]
        detail = "; ".join([names, *told])
        return Clearing(detail=detail, doing=f"evicts {detail}", again_seconds=AGAIN_SECONDS)


async def _ask(eviction: PodEviction, pod: PodIdentity) -> str:
    """Ask one pod to go; returns the obstacle, if any."""
    name = f"{pod.namespace}/{pod.name}"
    try:
        answer = await eviction.evict_pod(pod)
    except NodeagentError as error:
        return str(error)
    return f"the disruption budget of {name} allows no eviction now" if answer is Eviction.BLOCKED else ""

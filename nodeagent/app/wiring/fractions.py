"""Builds the component for fractions of GPUs."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nodeagent.app.services import Services
from nodeagent.app.simulator import Simulation
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.app.wiring.container import ContainerWiring
from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.components.fractions.component import FractionHandles, Fractions
from nodeagent.components.fractions.poll_task import Sources
from nodeagent.components.fractions.reconcile_task import Files
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.container_runtime.cri import list_containers
from nodeagent.edge.container_runtime.errors import RuntimeSilent
from nodeagent.edge.host.processes.process_places import HostProcessPlaces
from nodeagent.edge.host.vgpu.fraction_folders import FRACTION_FOLDERS, HostFractionFolders
from nodeagent.edge.host.vgpu.library_files import HostVgpuLibrary
from nodeagent.model.fractions import PodContainer
from nodeagent.model.ports import ContainerReceipts, DeviceFractionSpecs
from nodeagent.model.runtime import RuntimeState

if TYPE_CHECKING:
    from nodeagent.model.ports import FractionFolders, ProcessPlaces, VgpuLibrary

LIBRARY_FOLDER = "vgpu"
"""Below the state directory: the library that enforces limits of containers."""


def build_fractions(
    services: Services,
    sides: tuple[KubeletWiring, ContainerWiring, ClusterWiring],
    simulation: Simulation | None,
    orders: OrderHandlers,
    *,
    device_specs: Callable[[], DeviceFractionSpecs] | None = None,
    wait_for_gpus: Callable[[], Awaitable[None]] | None = None,
    receipts: ContainerReceipts | None = None,
) -> Fractions:
    """The component for fractions; `device_specs` and `wait_for_gpus` are given where a class is divisible."""
    kubelet, containers, cluster = sides
    state_dir, files = services.live.now.node.state_dir, WorkerThread("files of parts")
    at, library_at = state_dir / FRACTION_FOLDERS, state_dir / LIBRARY_FOLDER
    folders: FractionFolders = HostFractionFolders(at, files)
    library: VgpuLibrary = HostVgpuLibrary(library_at, files)
    places: ProcessPlaces | None = None
    if simulation is None:
        places = HostProcessPlaces(WorkerThread("places of parts"))
    elif containers.is_simulation:
        places = simulation.places
        folders, library = simulation.build_part_files(at, library_at, files)
    return Fractions(
        *services,
        FractionHandles(kubelet.fractions, orders, wait_for_gpus),
        kubelet.journal,
        Files(containers.cdi.get, folders, library, device_specs, receipts),
        Sources(
            kubelet.account,
            None if containers.is_simulation else Containers(services.bus).list,
            places,
            cluster.open_pod_requests if cluster.is_in_use else None,
        ),
    )


class Containers:
    """The containers of this node, by the runtime found."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def list(self) -> tuple[PodContainer, ...]:
        """List all containers.

        Raises:
            RuntimeSilent: The runtime does not answer, or is not known.
        """
        runtime = self._bus.latest(RuntimeState)
        if runtime is None or not runtime.value.socket:
            raise RuntimeSilent("the container runtime", "it is not known (yet)")
        return await list_containers(runtime.value.socket)

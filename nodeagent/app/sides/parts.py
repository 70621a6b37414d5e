"""Builds the component for fractions of GPUs; its modules are not loaded while fractions are off."""

from typing import TYPE_CHECKING

from nodeagent.app.sides.cluster import ClusterSide
from nodeagent.app.sides.container import ContainerSide
from nodeagent.app.sides.kubelet import KubeletSide
from nodeagent.components.fractions.component import Fractions
from nodeagent.components.fractions.tending.sources import Sources
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.container_runtime.cri import list_containers
from nodeagent.edge.container_runtime.errors import RuntimeSilent
from nodeagent.edge.host.processes.process_places import HostProcessPlaces
from nodeagent.edge.host.vgpu.library_files import HostVgpuLibrary
from nodeagent.edge.host.vgpu.part_folders import PART_FOLDERS, HostPartFolders
from nodeagent.model.parts import PodContainer
from nodeagent.model.runtime import RuntimeState

if TYPE_CHECKING:
    from nodeagent.edge.simulated.source import SimulatedGpus
    from nodeagent.model.ports import PartFolders, PartLibrary, ProcessPlaces

LIBRARY_FOLDER = "vgpu"
"""Below the state directory: the library that enforces limits of containers."""


def build_fractions(
    bus: Bus,
    conditions: Conditions,
    clock: Clock,
    live: LiveSettings,
    sides: tuple[KubeletSide, ContainerSide, ClusterSide],
    made_up: "SimulatedGpus | None",
    orders: OrderHandlers,
) -> Fractions:
    """The component for fractions."""
    kubelet, containers, cluster = sides
    state_dir, files = live.now.node.state_dir, WorkerThread("files of parts")
    folders: PartFolders = HostPartFolders(state_dir / PART_FOLDERS, files)
    library: PartLibrary = HostVgpuLibrary(state_dir / LIBRARY_FOLDER, files)
    places: ProcessPlaces | None = None
    if made_up is None:
        places = HostProcessPlaces(WorkerThread("places of parts"))
    elif containers.is_simulation:
        from nodeagent.edge.simulated.parts import MadeUpFolders, MadeUpLibrary  # noqa: PLC0415 - real nodes do without

        places = made_up
        folders = MadeUpFolders(state_dir / PART_FOLDERS, files, made_up)
        library = MadeUpLibrary(state_dir / LIBRARY_FOLDER)
    return Fractions(
        bus,
        conditions,
        clock,
        live,
        kubelet.parts,
        orders=orders,
        ledger=kubelet.relay,
        kubelet=kubelet.account,
        specs=containers.part_specs,
        folders=folders,
        library=library,
        sources=Sources(Containers(bus, is_made_up=containers.is_simulation).list, places),
        open_pods=cluster.open_pod_requests if cluster.has_api else None,
    )


class Containers:
    """The containers of this node, by the runtime found."""

    def __init__(self, bus: Bus, *, is_made_up: bool) -> None:
        self._bus, self._is_made_up = bus, is_made_up

    async def list(self) -> tuple[PodContainer, ...]:
        """List all containers.

        Raises:
            RuntimeSilent: The runtime does not answer, or is not known.
        """
        if self._is_made_up:
            return ()
        runtime = self._bus.latest(RuntimeState)
        if runtime is None or not runtime.value.socket:
            raise RuntimeSilent("the container runtime", "it is not known (yet)")
        return await list_containers(runtime.value.socket)

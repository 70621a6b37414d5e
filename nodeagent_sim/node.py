"""The ports of a simulated node, as `nodeagent.app.simulator` asks for them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.app.hardware import ExtraReadings, Hardware
from nodeagent.app.simulator import Simulation, Simulator
from nodeagent.config.live import LiveSettings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.vgpu.fraction_folders import HostFractionFolders
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.fractions import LibraryFiles
from nodeagent.model.labels import NodeFacts, VendorFunction, VgpuGuest
from nodeagent.model.ports import FractionFolders, VgpuLibrary
from nodeagent_sim.cluster import follow_journal
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.source import SimulatedGpus
from nodeagent_sim.mps import SimulatedMps

_3D_CONTROLLER = "0302"


def build_hardware(profile: str, live: LiveSettings, node_name: str, seed: int) -> Hardware:
    """The ports to simulated GPUs.

    Raises:
        UnknownProfile: No profile has the name.
        InvalidProfile: The profile's file cannot be read or contradicts itself.
    """
    extras = ExtraReadings()
    gpus = SimulatedGpus(
        load_profile(profile),
        node_name=node_name,
        seed=seed,
        deadline_seconds=live.now.driver.call_timeout_seconds,
        extras=extras.read,
    )
    return Hardware(
        probe=gpus,
        gpus=gpus,
        faults=gpus,
        run=_run_nothing,
        simulation=Simulation(gpus, partial(_build_part_files, gpus), partial(follow_journal, gpus)),
        extras=extras,
        partitioning=gpus,
        tool=gpus,
        modules=gpus,
    )


async def _run_nothing(*, task_status: TaskStatus[None]) -> None:
    task_status.started()
    await anyio.sleep_forever()


def simulate_facts(profile: str) -> Callable[[NodeFacts], NodeFacts]:
    """Keep the kernel and the distribution of a host, on a simulated machine with the profile's GPUs on its bus.

    Raises:
        UnknownProfile: No profile has the name.
        InvalidProfile: The profile's file cannot be read or contradicts itself.
    """
    loaded = load_profile(profile)
    functions = tuple(VendorFunction(address=seat.address, pci_class=_3D_CONTROLLER) for seat in loaded.seats)
    return lambda facts: replace(facts, machine_type=f"Simulated {loaded.name}", functions=functions, vgpu=VgpuGuest())


class MadeUpDriverFiles:
    """The port `DriverFileSource` without a driver: containers only learn the names of their devices."""

    async def read_driver_files(self, extra_nodes: Sequence[str] = ()) -> DriverFiles:
        """No files of the host."""
        del extra_nodes
        await anyio.lowlevel.checkpoint()
        return DriverFiles(made_up=True)


class MadeUpLibrary:
    """The port `VgpuLibrary`: paths for specifications that no runtime reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def install(self) -> LibraryFiles:
        """The paths; no file is written."""
        return LibraryFiles(library=str(self._directory / "library.so"), preload=str(self._directory / "preload"))


class MadeUpFolders(HostFractionFolders):
    """The port `FractionFolders`: real files, but for the library's own writing."""

    def __init__(self, root: Path, worker: WorkerThread, gpus: SimulatedGpus) -> None:
        super().__init__(root, worker)
        self._gpus = gpus

    async def is_used(self, name: str) -> bool:
        """Whether the library came up in the simulation."""
        return self._gpus.has_library(name)


def _build_part_files(
    gpus: SimulatedGpus, folders: Path, library: Path, worker: WorkerThread
) -> tuple[FractionFolders, VgpuLibrary]:
    return MadeUpFolders(folders, worker, gpus), MadeUpLibrary(library)


SIMULATOR = Simulator(build_hardware, simulate_facts, MadeUpDriverFiles, SimulatedMps)

"""Files for containers with fractions of simulated GPUs, where no container exists that could load them."""

from pathlib import Path

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.vgpu.part_folders import HostPartFolders
from nodeagent.edge.simulated.source import SimulatedGpus
from nodeagent.model.parts import LibraryFiles


class MadeUpLibrary:
    """The port `PartLibrary`: paths for specifications that no runtime reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def install(self) -> LibraryFiles:
        """The paths; no file is written."""
        return LibraryFiles(library=str(self._directory / "library.so"), preload=str(self._directory / "preload"))


class MadeUpFolders(HostPartFolders):
    """The port `PartFolders`: real files, but for the library's own writing."""

    def __init__(self, root: Path, worker: WorkerThread, gpus: SimulatedGpus) -> None:
        super().__init__(root, worker)
        self._gpus = gpus

    async def is_used(self, name: str) -> bool:
        """Whether the library came up in the simulation."""
        return self._gpus.has_library(name)

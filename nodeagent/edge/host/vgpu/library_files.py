"""The vGPU library on the host, and the file by which the dynamic linker of a container loads the library.

Owns both paths. A library in use by running containers is never overwritten: a newer library takes the name by rename.
"""

from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.files.atomic_file import write_atomically
from nodeagent.edge.host.files.container_label import label_for_containers
from nodeagent.edge.host.files.host_program import BUILT, HostProgram, Program
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.fractions import PLACE, LibraryFiles

NAME: Final = "libnodeagent-vgpu.so"
PRELOAD: Final = "ld.so.preload"
LIBRARY: Final = Program(
    built=BUILT / NAME,
    what="the vGPU library",
    without="set `fractions.enforcement: advise`",
    check=(),
)
_TIMEOUT_SECONDS: Final = 5.0


class HostVgpuLibrary:
    """The port `VgpuLibrary` below one directory, which this process has under the host's own name."""

    def __init__(self, root: Path, worker: WorkerThread, program: Program = LIBRARY) -> None:
        self._root, self._worker = root, HostWorker(worker, root, _TIMEOUT_SECONDS)
        self._library = HostProgram(worker, program, host=HostPaths(), shared=root)
        self._files = LibraryFiles(library=str(root / NAME), preload=str(root / PRELOAD))

    async def install(self) -> LibraryFiles:
        """Put library and linker file of this release in place."""
        await self._worker.run(self._prepare, "preparing the vGPU library")
        await self._library.install(self._root / NAME)
        await self._worker.run(
            lambda: label_for_containers(self._root / NAME, self._root / PRELOAD), "labelling the vGPU library"
        )
        return self._files

    def _prepare(self) -> None:
        path = self._root / PRELOAD
        content = f"{PLACE}/{NAME}\n".encode()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            is_there = path.is_file() and path.read_bytes() == content
        except OSError as error:
            raise FileNotWritten(path, "look at it", error, replaced=False) from error
        if not is_there:
            write_atomically(path, content, durable=False, only_writer=True)

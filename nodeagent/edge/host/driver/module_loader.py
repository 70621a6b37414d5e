"""Loads the driver's kernel modules by the host's own modprobe.

Owns the command line and the deadline. Refuses to unload a module, to force one, and to load one that the host's
configuration blacklists: somebody wanted it so.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.log.audit import noting
from nodeagent.edge.host.devices.host_scan import run_command
from nodeagent.edge.host.errors import ModulesNotLoaded
from nodeagent.edge.host.files.pseudo_file import read_attribute

_LOAD_SECONDS: Final = 60.0
"""Some seconds for each GPU of a node, after a cold start."""
_SPARE_SECONDS: Final = 2.0
_FLAGS: Final = ("-a", "-b")
"""All the modules named, and the host's blacklist for names as well as for aliases."""


class HostModules:
    """The port `ModuleLoader`."""

    def __init__(
        self,
        worker: WorkerThread,
        *,
        proc_root: Path = Path("/proc"),
        host_root: Path = Path("/"),
        timeout_seconds: float = _LOAD_SECONDS,
    ) -> None:
        self._worker, self._timeout_seconds = worker, timeout_seconds
        self._proc_root, self._host_root = proc_root, host_root

    async def load(self, modules: Sequence[str]) -> str:
        """Load the modules, and those that these need; empty when done, else what stood in the way."""
        try:
            with noting("module", " ".join(modules), "load"):
                await self._load(modules)
        except ModulesNotLoaded as error:
            return str(error)
        return ""

    async def _load(self, modules: Sequence[str]) -> None:
        try:
            problem = await self._worker.run(
                lambda: self._run_modprobe(modules),
                timeout_seconds=self._timeout_seconds + _SPARE_SECONDS,
                what="loading kernel modules",
            )
        except WorkerError as error:
            raise ModulesNotLoaded(str(error)) from error
        if problem:
            raise ModulesNotLoaded(problem)

    def _run_modprobe(self, modules: Sequence[str]) -> str:
        # The kernel's own word for the program by which it loads modules; empty where it is to load none.
        program = read_attribute(self._proc_root / "sys/kernel/modprobe")
        if not program:
            return "the kernel is to load no modules, kernel.modprobe is empty"
        root = () if self._host_root == Path("/") else ("chroot", str(self._host_root))
        return run_command((*root, program, *_FLAGS, *modules), self._timeout_seconds)

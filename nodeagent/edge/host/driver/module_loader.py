"""The driver's kernel modules by the host's own modprobe, and the services with the driver open by its systemctl.

Whoever takes modules out stops the services first, and starts them again whatever came of that.
Owns the command lines and the deadlines. Refuses to force a module in or out, and to load one that the host's
configuration blacklists: somebody wanted it so. A removal runs in a process that may be abandoned: a driver may wait in
the kernel for ever, where no signal comes through.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeVar

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.log.audit import noting
from nodeagent.edge.host.devices.host_scan import run_command
from nodeagent.edge.host.devices.kernel_modules import read_loaded_modules
from nodeagent.edge.host.driver.tool_child import NOT_STARTED, run_tool
from nodeagent.edge.host.errors import HostError, ModulesNotLoaded, ModulesNotUnloaded
from nodeagent.edge.host.files.pseudo_file import read_attribute
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.model.driver import LoadedModule
from nodeagent.model.nvidia import RELOADED_MODULES
from nodeagent.model.repairs import ToolAnswer

R = TypeVar("R")
RunOnHost = Callable[[Sequence[str], float], Awaitable[ToolAnswer]]
"""Runs a command with the host's programs and files, for so many seconds at most."""
SERVICE_SECONDS: Final = 90.0
"""As long as systemd waits for a service by default."""

_LOAD_SECONDS: Final = 60.0
"""Some seconds for each GPU of a node, after a cold start."""
_UNLOAD_SECONDS: Final = 120.0
"""A driver lets go of some GPUs each second."""
_SPARE_SECONDS: Final = 2.0
_FLAGS: Final = ("-a", "-b")
"""All the modules named, and the host's blacklist for names as well as for aliases."""
_NO_PROGRAM: Final = "the kernel is to load no modules, kernel.modprobe is empty"


class HostModules:
    """The port `DriverModules`."""

    def __init__(
        self,
        worker: WorkerThread,
        *,
        proc_root: Path = Path("/proc"),
        sys_root: Path = Path("/sys"),
        host_root: Path = Path("/"),
        timeout_seconds: float = _LOAD_SECONDS,
    ) -> None:
        self._worker, self._timeout_seconds = worker, timeout_seconds
        self._proc_root, self._sys_root, self._host_root = proc_root, sys_root, host_root

    async def load(self, modules: Sequence[str]) -> str:
        """Load the modules with the modules below; empty when done, else the obstacle."""
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

    async def read_loaded(self) -> tuple[LoadedModule, ...]:
        """The driver's loaded modules, and those built on the driver.

        Raises:
            HostError: The kernel does not answer in time.
        """
        return await self._read(lambda: read_loaded_modules(RELOADED_MODULES, self._sys_root), "reading kernel modules")

    async def unload(self, modules: Sequence[str], timeout_seconds: float = _UNLOAD_SECONDS) -> ToolAnswer:
        """Unload unused modules, in order."""
        answer = ToolAnswer(code=None)
        with suppress(ModulesNotUnloaded), noting("module", " ".join(modules), "unload"):
            answer = await self._run_removal(modules, timeout_seconds)
            if answer.code != 0:
                raise ModulesNotUnloaded(answer.describe())
        return answer

    async def _run_removal(self, modules: Sequence[str], timeout_seconds: float) -> ToolAnswer:
        try:
            command = await self._read(self._find_modprobe, "finding modprobe")
        except HostError as error:
            return ToolAnswer(code=None, said=str(error))
        if not command:
            return ToolAnswer(code=NOT_STARTED, said=_NO_PROGRAM)
        return await run_tool([*command, "-r", *modules], timeout_seconds)

    async def _read(self, function: Callable[[], R], what: str) -> R:
        return await HostWorker(self._worker, self._sys_root, _SPARE_SECONDS).run(function, what)

    def _run_modprobe(self, modules: Sequence[str]) -> str:
        command = self._find_modprobe()
        return run_command((*command, *_FLAGS, *modules), self._timeout_seconds) if command else _NO_PROGRAM

    def _find_modprobe(self) -> tuple[str, ...]:
        """The kernel's program for loading modules; empty where the kernel is to load none."""
        program = read_attribute(self._proc_root / "sys/kernel/modprobe")
        root = () if self._host_root == Path("/") else ("chroot", str(self._host_root))
        return (*root, program) if program else ()


class HostServices:
    """The services named by `driver.services`."""

    def __init__(self, run_on_host: RunOnHost, read_names: Callable[[], Sequence[str]]) -> None:
        """`read_names` has the names of the settings now."""
        self._run, self.read_names = run_on_host, read_names

    async def is_running(self, name: str) -> bool:
        """Whether the service runs; a host without systemd runs none."""
        answer = await self._run(("systemctl", "is-active", "--quiet", name), SERVICE_SECONDS)
        return answer.code == 0

    async def change(self, name: str, action: Literal["start", "stop"], why: str) -> str:
        """Start or stop a service; the problem, if any."""
        with noting("service", name, action, why):
            answer = await self._run(("systemctl", action, name), SERVICE_SECONDS)
        return "" if answer.code == 0 else f"systemctl did not {action} {name}: {answer.describe()}"

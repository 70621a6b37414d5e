"""Probes the real driver of this host: reads /proc and /sys, and asks NVML through the owner of NVML.

Owns the order of the probe (host first, then NVML, then fabric, then the CUDA smoke test) and its deadlines: a step
that hangs is itself evidence. Refuses to judge, and to import any other neighbour: NVML, fabric and CUDA are asked
through functions that the composition root passes in.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec import structs

from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.life.ticker import until_beat
from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles
from nodeagent.edge.host.devices.kernel_modules import read_module_status, read_nvswitch_count
from nodeagent.edge.host.devices.sysfs import read_gpu_functions
from nodeagent.edge.host.driver.change_watch import POLL_SECONDS, WATCH_TIMEOUT_SECONDS, Fingerprint, read_fingerprint
from nodeagent.edge.host.driver.cuda_check import LIBRARY as CUDA_LIBRARY
from nodeagent.edge.host.driver.module_search import read_module_search
from nodeagent.edge.host.driver.roots import (
    DriverRoots,
    find_library,
    parse_library_version,
    read_platform_problem,
    read_version_at,
    resolve_driver_roots,
)
from nodeagent.model.driver import DriverEvidence, LibraryAnswer, LibraryOutcome, ModuleSearch
from nodeagent.model.errors import DriverError, DriverMismatch, DriverReleased, DriverStuck
from nodeagent.model.values import Value

T = TypeVar("T")


AskNvml = Callable[[], Awaitable[LibraryAnswer]]
"""Whether NVML works; raises `DriverError` when NVML cannot be asked."""

AskFabric = Callable[[], Awaitable[tuple[str, ...]]]
"""The GPUs with pending fabric registration; raises `DriverError` when GPUs cannot be asked."""

CheckCuda = Callable[[Path | None], Awaitable[str]]
"""The CUDA smoke test with the library found, if any: the failure, empty without failure."""


class ProbeSettings(Value, frozen=True):
    """Paths and deadlines of the probe."""

    driver_root: Path = Path("/")
    dev_root: Path | None = None
    nvml_library: Path | None = None
    host_root: Path = Path("/")
    proc_root: Path = Path("/proc")
    sys_root: Path = Path("/sys")
    kernel_log: Path | None = None
    """`None` where the log is not to be read."""
    look_timeout_seconds: float = 5.0
    """For all reading of /proc, /sys and /dev in one probe; milliseconds on a healthy node."""
    poll_seconds: float = POLL_SECONDS


class HostDriverProbe:
    """The port `DriverProbe` on real hardware."""

    def __init__(
        self,
        settings: ProbeSettings,
        worker: WorkerThread,
        *,
        ask_nvml: AskNvml | None = None,
        ask_fabric: AskFabric | None = None,
        check_cuda: CheckCuda | None = None,
    ) -> None:
        self._settings, self._worker = settings, worker
        self._ask_nvml, self._ask_fabric, self._check_cuda = ask_nvml, ask_fabric, check_cuda
        self._cuda_library: Path | None = None
        self._proven: LibraryAnswer | None = None
        self._fingerprint: Fingerprint = ()
        self._attention = Waker()
        self.roots = DriverRoots(
            host=settings.host_root,
            driver=settings.driver_root,
            dev=settings.dev_root or settings.host_root,
        )
        """Where the driver was at the last probe."""

    async def read_evidence(self) -> DriverEvidence:
        """Probe once; a step that hangs is named in `stuck`."""
        evidence = DriverEvidence()
        try:
            evidence = await self._run(self._look, "reading /proc and /sys")
            evidence = await self._ask_driver(evidence)
            return await self._search_module(evidence)
        except WorkerError as error:
            return structs.replace(evidence, stuck=str(error))
        except DriverReleased as error:
            return structs.replace(evidence, released=error.reason)
        except DriverStuck as error:
            return structs.replace(evidence, stuck=str(error))
        except DriverMismatch as error:
            return structs.replace(
                evidence, library=LibraryAnswer(outcome=LibraryOutcome.VERSION_MISMATCH, message=str(error))
            )
        except DriverError as error:
            return structs.replace(
                evidence, library=LibraryAnswer(outcome=LibraryOutcome.UNLOADABLE, message=str(error))
            )

    async def wait_change(self) -> None:
        """Return within a second of a module, node, library or card coming or going, and at `notify_change`."""
        with anyio.move_on_after(None) as waiting:
            async with anyio.create_task_group() as watchers:
                watchers.start_soon(self._wait_attention, waiting, name="driver attention")
                watchers.start_soon(self._wait_fingerprint, waiting, name="driver change watch")

    def notify_change(self) -> None:
        """Ask for a probe now: the driver was released, resumed, or got stuck."""
        self._attention.wake()

    async def _wait_attention(self, waiting: anyio.CancelScope) -> None:
        await self._attention.wait()
        waiting.cancel()

    async def _wait_fingerprint(self, waiting: anyio.CancelScope) -> None:
        seen = self._fingerprint
        while True:
            try:
                # Shielded, because the thread of a cancelled call is set aside as stuck.
                with anyio.CancelScope(shield=True):
                    now = await self._worker.run(
                        self._read_fingerprint, timeout_seconds=WATCH_TIMEOUT_SECONDS, what="watching /proc and /sys"
                    )
            except WorkerError:
                # The next probe names the hanging call, after a pause, so that no loop runs at full speed.
                await anyio.sleep(self._settings.look_timeout_seconds)
                break
            if now != seen:
                break
            await anyio.sleep(until_beat(self._settings.poll_seconds))
        waiting.cancel()

    def _look(self) -> DriverEvidence:
        """In the worker thread: all evidence of the host."""
        settings = self._settings
        self.roots = resolve_driver_roots(
            settings.driver_root, dev_root=settings.dev_root, host_root=settings.host_root
        )
        # Before the probe itself, so that the next comparison sees a change during the probe.
        self._fingerprint = self._read_fingerprint()
        if self._check_cuda is not None:
            self._cuda_library = find_library(self.roots.driver, CUDA_LIBRARY)
        module = read_module_status(settings.sys_root, settings.proc_root)
        nodes = DeviceNodeFiles(self.roots.dev, proc_root=settings.proc_root, host_root=settings.host_root)
        return DriverEvidence(
            pci_functions=read_gpu_functions(settings.sys_root),
            module_loaded=module.loaded,
            module_version=module.version,
            open_module=module.open_module,
            nouveau_loaded=module.nouveau_loaded,
            unified_memory_loaded=module.unified_memory_loaded,
            library_version=parse_library_version(self._find_nvml_library()),
            nodes_missing=nodes.read_missing() if module.loaded else (),
            nvswitch_count=read_nvswitch_count(settings.proc_root),
            platform_unsupported=read_platform_problem(self.roots),
        )

    def _find_nvml_library(self) -> Path | None:
        configured = self._settings.nvml_library
        return configured.resolve() if configured is not None else find_library(self.roots.driver)

    def _read_fingerprint(self) -> Fingerprint:
        settings = self._settings
        return read_fingerprint(
            self.roots, sys_root=settings.sys_root, proc_root=settings.proc_root, nvml_library=settings.nvml_library
        )

    async def _ask_driver(self, evidence: DriverEvidence) -> DriverEvidence:
        if self._ask_nvml is None:
            return evidence
        answer = await self._ask_nvml()
        evidence = structs.replace(evidence, library=answer, library_version=await self._read_version(evidence, answer))
        if answer.outcome is not LibraryOutcome.WORKS or answer.gpu_count == 0:
            self._proven = None
            return evidence
        if self._ask_fabric is not None and (pending := await self._ask_fabric()):
            return structs.replace(evidence, fabric_pending=pending)
        return structs.replace(evidence, cuda_failure=await self._test_cuda(answer))

    async def _search_module(self, evidence: DriverEvidence) -> DriverEvidence:
        """Look for the kernel module where there are GPUs that do not work, and only there."""
        library = evidence.library
        is_working = library is not None and library.outcome is LibraryOutcome.WORKS and library.gpu_count > 0
        if is_working or not evidence.pci_functions:
            return evidence
        settings = self._settings

        def search() -> ModuleSearch:
            return read_module_search(
                self.roots,
                proc_root=settings.proc_root,
                sys_root=settings.sys_root,
                kernel_log=settings.kernel_log,
            )

        return structs.replace(evidence, module_search=await self._run(search, "looking for the kernel module"))

    async def _read_version(self, evidence: DriverEvidence, answer: LibraryAnswer) -> str:
        """The version of the library in use; a library elsewhere on the host does not count."""
        library = Path(answer.library_path)
        if not library.is_absolute():
            return evidence.library_version
        return await self._run(lambda: read_version_at(library, self.roots.driver), "reading the library's version")

    async def _run(self, call: Callable[[], T], what: str) -> T:
        return await self._worker.run(call, timeout_seconds=self._settings.look_timeout_seconds, what=what)

    async def _test_cuda(self, answer: LibraryAnswer) -> str:
        """Run the smoke test unless the same driver has passed already: the test costs seconds and GPU memory."""
        if self._check_cuda is None or self._proven == answer:
            return ""
        failure = await self._check_cuda(self._cuda_library)
        self._proven = None if failure else answer
        return failure

"""The edges to real GPUs, joined: the host's probe asks NVML, and NVML's errors make the probe check the driver."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.app.hardware import ExtraReadings, Hardware, is_partitioning_used
from nodeagent.app.host_root import see_dev_root, see_in_host_root
from nodeagent.components.driver.plan_markers import DriverPlace
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import SystemClock
from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles
from nodeagent.edge.host.devices.sysfs import read_gpu_functions
from nodeagent.edge.host.driver.cuda_child import CudaChild
from nodeagent.edge.host.driver.driver_probe import HostDriverProbe, ProbeSettings
from nodeagent.edge.host.driver.module_loader import HostModules
from nodeagent.edge.host.driver.off_loop import HostDeviceNodes, MarkerDirectory
from nodeagent.edge.host.driver.tool_child import DriverToolChild
from nodeagent.edge.nvml.agent.asker import NvmlSettings
from nodeagent.edge.nvml.agent.client import NvmlGpus
from nodeagent.edge.nvml.agent.partitioning import NvmlPartitioning, PartitioningSettings
from nodeagent.model.driver import PciFunction
from nodeagent.model.errors import DriverError
from nodeagent.model.gpu import GpuReadout
from nodeagent.model.ports import GpuEvent
from nodeagent.model.telemetry import NodeSample

_BUS_SECONDS = 2.0


class WatchedGpus:
    """The port `GpuSource`; failures and releases are passed on to the driver probe."""

    def __init__(self, gpus: NvmlGpus, notify: Callable[[], None]) -> None:
        self._gpus, self._notify = gpus, notify

    async def read_inventory(self) -> GpuReadout:
        """Enumerate all GPUs; a failure is passed on before it is raised."""
        async with self._noticing():
            return await self._gpus.read_inventory()

    async def read_sample(self) -> NodeSample:
        """Read quickly changing values; a failure is passed on before it is raised."""
        async with self._noticing():
            return await self._gpus.read_sample()

    def events(self) -> AsyncIterator[GpuEvent]:
        """The driver's own events; their end is no news to the driver probe."""
        return self._gpus.events()

    async def release(self, reason: str) -> None:
        """Let go of the driver, and notify the probe."""
        await self._gpus.release(reason)
        self._notify()

    async def resume(self) -> None:
        """Take the driver back, and notify the probe."""
        await self._gpus.resume()
        self._notify()

    @asynccontextmanager
    async def _noticing(self) -> AsyncIterator[None]:
        try:
            yield
        except DriverError:
            self._notify()
            raise


class RealHardware:
    """Builds and runs the edges of a node with real GPUs."""

    def __init__(self, live: LiveSettings) -> None:
        self._live, self._settings = live, live.now
        settings = live.now
        self._workers = [
            WorkerThread(name) for name in ("driver probe", "device nodes", "validation markers", "kernel modules")
        ]
        self._extras = ExtraReadings()
        planned = replace(plan_nvml(live, self._extras), list_functions=self._list_functions)
        self._nvml = NvmlGpus(planned, SystemClock())
        self._partitioning = self._build_partitioning() if is_partitioning_used(settings) else None
        self._probe = HostDriverProbe(
            plan_probe(settings),
            self._workers[0],
            ask_nvml=self._nvml.read_answer,
            ask_fabric=self._nvml.read_fabric_pending,
            check_cuda=self._check_cuda,
        )

    def build(self) -> Hardware:
        """The ports."""
        return Hardware(
            probe=self._probe,
            gpus=WatchedGpus(self._nvml, self._probe.notify_change),
            run=self._run,
            nodes=HostDeviceNodes(self._read_files, self._workers[1]),
            modules=HostModules(
                self._workers[3],
                proc_root=self._settings.node.proc_dir,
                sys_root=self._settings.node.sys_dir,
                host_root=self._settings.node.host_root,
            ),
            markers=MarkerDirectory(self._settings.driver.validation_dir, self._workers[2]),
            read_place=self._read_place,
            extras=self._extras,
            partitioning=self._partitioning,
            tool=DriverToolChild(name_driver(self._settings)[0].rstrip("/")),
        )

    def _build_partitioning(self) -> NvmlPartitioning:
        settings, (root, library) = self._live.now, name_driver(self._live.now)
        planned = PartitioningSettings(
            driver_root=root,
            library=library,
            call_timeout_seconds=settings.mig.call_timeout_seconds,
            reset_timeout_seconds=settings.mig.reset_timeout_seconds,
            environment=settings.driver.worker_environment,
        )
        return NvmlPartitioning(planned, self._nvml.set_aside)

    async def _list_functions(self) -> tuple[PciFunction, ...]:
        sys_root = self._settings.node.sys_dir
        return await self._workers[0].run(
            lambda: read_gpu_functions(sys_root), timeout_seconds=_BUS_SECONDS, what="listing the GPUs on the PCI bus"
        )

    async def _check_cuda(self, library: Path | None) -> str:
        driver = self._live.now.driver
        if not driver.cuda_smoke_test:
            return ""
        return await CudaChild(timeout_seconds=driver.cuda_smoke_test_timeout_seconds).check(library)

    def _read_files(self) -> DeviceNodeFiles:
        node, channels = self._settings.node, self._live.now.driver.imex_channels
        return DeviceNodeFiles(
            self._probe.roots.dev, proc_root=node.proc_dir, host_root=node.host_root, imex_channels=channels
        )

    def _read_place(self) -> DriverPlace:
        roots = self._probe.roots
        return DriverPlace(
            driver_root=roots.driver_on_host, dev_root=roots.dev_on_host, is_host_driver=roots.is_host_driver
        )

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._nvml.run, name="GPU worker")
                if self._partitioning is not None:
                    await tasks.start(self._partitioning.run, name="GPU partitioning")
                task_status.started()
                await anyio.sleep_forever()
        finally:
            for worker in self._workers:
                worker.close()


def name_driver(settings: Settings) -> tuple[str, str]:
    """Driver root and library, as passed to the worker."""
    driver = settings.driver
    return str(see_in_host_root(settings, driver.root)), str(driver.nvml_library or "")


def plan_nvml(live: LiveSettings, extras: ExtraReadings) -> NvmlSettings:
    """Where NVML is and how patient to be."""
    settings = live.now
    driver, (root, library) = settings.driver, name_driver(settings)
    return NvmlSettings(
        driver_root=root,
        library=library,
        call_timeout_seconds=driver.call_timeout_seconds,
        environment=driver.worker_environment,
        levels_seconds=lambda: plan_levels_seconds(live.now),
        sysfs=str(settings.node.sys_dir),
        extras=extras.read,
    )


def plan_levels_seconds(settings: Settings) -> float:
    """How old the levels in a sample may be.

    Levels are read at the rate of health polls, so every poll sees fresh levels, and growth between two polls happened
    in the time between.
    """
    return max(0.0, settings.health.poll_seconds - settings.inventory.sample_seconds / 2)


def plan_probe(settings: Settings) -> ProbeSettings:
    """Where the host shows the driver."""
    driver, node, health = settings.driver, settings.node, settings.health
    return ProbeSettings(
        driver_root=see_in_host_root(settings, driver.root),
        dev_root=see_dev_root(settings),
        nvml_library=driver.nvml_library,
        host_root=node.host_root,
        proc_root=node.proc_dir,
        sys_root=node.sys_dir,
        kernel_log=health.kernel_log if health.watch_kernel_log else None,
    )

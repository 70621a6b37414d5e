"""The driver component with the host's real edges around it, on a host made of files, in real time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from nodeagent.components.driver.component import DRIVER_GATE, Driver, DriverHost
from nodeagent.components.driver.plan_markers import DRIVER_READY, DriverPlace
from nodeagent.config.sections.hardware import DriverSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles
from nodeagent.edge.host.driver.driver_probe import HostDriverProbe, ProbeSettings
from nodeagent.edge.host.driver.off_loop import HostDeviceNodes, MarkerDirectory
from nodeagent.edge.nvml.agent.protocol import read_code
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState, LibraryAnswer
from tests.unit.edge.host.devices.test_device_node_files import needs_mknod
from tests.unit.edge.host.tree import HostTree

PATIENCE_SECONDS = 20
"""Generous for a noisy machine; the polls themselves come twice a second."""


class Node:
    """One host with the whole driver part running on it."""

    def __init__(self, host: HostTree) -> None:
        self.host = host
        self.bus = Bus(SystemClock())
        self.gates = Gates([DRIVER_GATE])
        self.marker = host.root / "run/nvidia/validations" / DRIVER_READY

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        workers = [WorkerThread(name) for name in ("probe", "nodes", "markers")]
        roots = ProbeSettings(
            driver_root=self.host.root, host_root=self.host.root, proc_root=self.host.proc, sys_root=self.host.sys
        )
        probe = HostDriverProbe(roots, workers[0], ask_nvml=self.ask_nvml)
        files = DeviceNodeFiles(self.host.root, proc_root=self.host.proc, host_root=self.host.root)
        settings = replace(DriverSettings(), validation_markers=True)
        driver = Driver(
            self.bus,
            self.gates,
            Conditions(self.bus, SystemClock(), CATALOGUE),
            DriverHost(
                probe,
                nodes=HostDeviceNodes(lambda: files, workers[1]),
                markers=MarkerDirectory(self.marker.parent, workers[2]),
                read_place=lambda: DriverPlace(
                    driver_root=probe.roots.driver_on_host,
                    dev_root=probe.roots.dev_on_host,
                    is_host_driver=probe.roots.is_host_driver,
                ),
            ),
            lambda: settings,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: driver.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()
        for worker in workers:
            worker.close()

    async def ask_nvml(self) -> LibraryAnswer:
        """An NVML that works exactly while the module is loaded."""
        await anyio.lowlevel.checkpoint()
        loaded = (self.host.sys / "module/nvidia/refcnt").exists()
        return LibraryAnswer(gpu_count=1) if loaded else read_code(9)

    async def wait_phase(self, phase: DriverPhase) -> None:
        with self.bus.watch(DriverState, client="test") as states, anyio.fail_after(PATIENCE_SECONDS):
            async for state in states:
                if state.value.phase is phase:
                    return

    async def wait_marker(self, present: bool) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                if self.marker.exists() is present:
                    return
                await anyio.sleep(0.01)


@needs_mknod
async def test_driver_comes_goes_and_comes_back(tmp_path: Path) -> None:
    """A module loaded late is noticed, its nodes are made, the marker follows the truth and survives its deletion."""
    host = HostTree(tmp_path / "host")
    host.add_function("0000:1b:00.0")
    node = Node(host)
    async with node.running():
        await node.wait_phase(DriverPhase.NOT_LOADED)
        host.load_module()
        await node.wait_phase(DriverPhase.READY)
        assert node.gates.is_open(DRIVER_GATE)
        assert (host.root / "dev/nvidiactl").is_char_device()
        assert str((host.root / "dev/char/195:255").readlink()) == "/dev/nvidiactl"
        await node.wait_marker(present=True)
        assert "NVIDIA_DRIVER_ROOT=/\n" in node.marker.read_text()
        node.marker.unlink()
        await node.wait_marker(present=True)
        host.unload_module()
        await node.wait_phase(DriverPhase.NOT_LOADED)
        await node.wait_marker(present=False)

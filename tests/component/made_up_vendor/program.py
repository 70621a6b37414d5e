"""The agent on GPUs of a made-up vendor: `python -m tests.component.made_up_vendor.program run --set KEY=VALUE...`.

NVML's binding cannot be imported, and the GPUs have a source, a driver and device nodes of their own.
"""

import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

import anyio
from anyio.abc import TaskStatus

from nodeagent.app.agent import run_agent
from nodeagent.app.hardware import Hardware
from nodeagent.app.node_label import Recalled
from nodeagent.app.plan import AgentPlan
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import Loaded, load_settings
from nodeagent.model.cdi import DriverFiles, DriverNode
from nodeagent.model.driver import DriverEvidence, LibraryAnswer
from nodeagent.model.gpu import Gpu, GpuReadout, PciIdentity
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.ports import GpuEvent
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.vendor import Vendor

VENDOR: Final = Vendor(
    name="Fabrikam",
    cdi_domain="k8s.fabrikam.example",
    public_domain="fabrikam.example",
    gpu_node="/dev/fabrikam{minor}",
    control_nodes=("/dev/fabrikam-control",),
    visible_devices="FABRIKAM_VISIBLE_DEVICES",
)
GPUS: Final = tuple(
    Gpu(
        index=index,
        uuid=GpuUuid(f"GPU-fab00000-0000-0000-0000-00000000000{index}"),
        name="Fabrikam F1",
        pci=PciIdentity(address=PciAddress(f"0000:0{index + 1}:00.0"), device_id=0x00011DDD),
        minor=index,
        memory_total_bytes=64 << 30,
    )
    for index in range(2)
)
CELSIUS: Final = 41


class MadeUpGpus:
    """The ports `GpuSource`, `DriverProbe` and `DriverFileSource` of the made-up vendor."""

    async def read_inventory(self) -> GpuReadout:
        await anyio.lowlevel.checkpoint()
        return GpuReadout(gpus=GPUS)

    async def read_sample(self) -> NodeSample:
        await anyio.lowlevel.checkpoint()
        gpus = tuple(GpuSample(uuid=gpu.uuid, gpu_temperature_celsius=CELSIUS) for gpu in GPUS)
        return NodeSample(time_seconds=time.time(), gpus=gpus)

    async def events(self) -> AsyncIterator[GpuEvent]:
        await anyio.sleep_forever()
        yield  # type: ignore[misc]  # a vendor without events

    async def release(self, reason: str) -> None:
        await anyio.lowlevel.checkpoint()

    async def resume(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def read_evidence(self) -> DriverEvidence:
        await anyio.lowlevel.checkpoint()
        return DriverEvidence(library=LibraryAnswer(name="libfabrikam", driver_version="1.2", gpu_count=len(GPUS)))

    async def wait_change(self) -> None:
        await anyio.sleep_forever()

    async def read_driver_files(self, extra_nodes: Sequence[str] = ()) -> DriverFiles:
        del extra_nodes
        await anyio.lowlevel.checkpoint()
        paths = (*VENDOR.control_nodes, *(VENDOR.find_node(gpu.minor) for gpu in GPUS if gpu.minor is not None))
        nodes = tuple(DriverNode(path=path, host_path=path) for path in paths)
        return DriverFiles(vendor=VENDOR, version="1.2", nodes=nodes)


async def run_nothing(*, task_status: TaskStatus[None]) -> None:
    task_status.started()
    await anyio.sleep_forever()


def build_hardware(_live: LiveSettings, _node_name: str, _seed: int, _early_worker: object = None) -> Hardware:
    gpus = MadeUpGpus()
    return Hardware(probe=gpus, gpus=gpus, run=run_nothing, vendor=VENDOR, driver_files=gpus)


def main(words: list[str]) -> int:
    """Run until a signal to stop; an import of NVML on the way fails the agent."""
    sys.modules["pynvml"] = None  # type: ignore[assignment]  # what `import` takes for a module that must not be had
    sys.modules["nodeagent.edge.nvml.agent.client"] = None  # type: ignore[assignment]

    def load(_node_label: str) -> Loaded:
        return load_settings(environ=os.environ, overrides=[word for word in words if "=" in word])

    loaded = load("")
    recalled = Recalled(loaded.settings.node.state_dir / "label")
    run_agent(AgentPlan(loaded=loaded, reload_settings=load, recalled=recalled), build_hardware)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

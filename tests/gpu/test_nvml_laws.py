"""The laws of any GPU, on real hardware: run with `pytest -m gpu tests/gpu` where there is a driver."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.core.clock import SystemClock
from nodeagent.edge.nvml.agent.client import NvmlGpus
from tests.component.edge_nvml.harness import PATIENT, read_rss_kib, worker_pid
from tests.component.edge_nvml.laws import LAWS

pytestmark = pytest.mark.gpu


async def run_on_hardware(law: Callable[[NvmlGpus], Awaitable[None]]) -> None:
    """The law, with whatever NVML this machine has."""
    gpus = NvmlGpus(replace(PATIENT, call_timeout_seconds=60.0, open_timeout_seconds=60.0), SystemClock())
    async with anyio.create_task_group() as tasks:
        await tasks.start(gpus.run)
        await law(gpus)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("law", LAWS)
async def test_the_hardware_keeps_the_laws_of_any_gpu(law: Callable[[NvmlGpus], Awaitable[None]]) -> None:
    """What is asserted of the fake holds on the real thing."""
    await run_on_hardware(law)


async def test_the_worker_stays_small_on_real_hardware() -> None:
    """At most 14 MB of the worker's own after enumeration and samples, the driver's library left out."""

    async def measure(gpus: NvmlGpus) -> None:
        await gpus.read_inventory()
        for _ in range(10):
            await gpus.read_sample()
        whole, library = read_rss_kib(worker_pid(gpus))
        assert whole - library <= 14_000_000 // 1024

    await run_on_hardware(measure)

"""A real daemon on a real GPU: run with `pytest -m gpu tests/gpu` as root, where nobody uses the first GPU."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import SystemClock
from nodeagent.edge.host.driver.roots import resolve_driver_roots
from nodeagent.edge.mps.host import HostMps, MpsHostSettings
from nodeagent.edge.nvml.agent.client import NvmlGpus
from nodeagent.edge.nvml.agent.partitioning import NvmlPartitioning, PartitioningSettings
from nodeagent.model.gpu import ComputeMode, Gpu
from nodeagent.model.mps import MpsLimits, MpsPlace
from nodeagent.rules.mps.talk import LOOK, find_refusal, read_pids, render_defaults, render_quit
from tests.component.edge_nvml.harness import PATIENT

pytestmark = pytest.mark.gpu

LIMIT_MIB = 1024
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, place = ctypes.c_void_p(), ctypes.c_uint64()
steps = [
    cuda.cuInit(0),
    cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
    cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(64 << 20)),
    cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(2 << 30)),
]
print(*steps, flush=True)
sys.stdin.read()
"""
"""A context, what fits the limit, and what does not; 0 is success, 2 is out of memory."""


@asynccontextmanager
async def first_gpu() -> AsyncIterator[tuple[NvmlGpus, NvmlPartitioning, Gpu]]:
    gpus = NvmlGpus(replace(PATIENT, call_timeout_seconds=60.0, open_timeout_seconds=60.0), SystemClock())
    partitioning = NvmlPartitioning(PartitioningSettings(), gpus.set_aside)
    async with anyio.create_task_group() as tasks:
        await tasks.start(gpus.run)
        await tasks.start(partitioning.run)
        yield gpus, partitioning, (await gpus.read_inventory()).gpus[0]
        tasks.cancel_scope.cancel()


def open_client(environment: dict[str, str]) -> subprocess.Popen[str]:
    """A CUDA program, until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


async def test_a_client_is_held_to_its_limits(short_dir: Path) -> None:
    """The daemon takes the limits, the client gets no more than its memory, and all is as before afterwards."""
    worker = WorkerThread("files of a test")
    host = HostMps(MpsHostSettings(find_root=lambda: resolve_driver_roots().driver), worker)
    place = MpsPlace(root=short_dir / "mps", name="gpu", has_own_memory=False)
    async with first_gpu() as (_, partitioning, gpu), partitioning.begin() as session:
        before = await session.read_compute_mode(gpu)
        await session.set_compute_mode(gpu, ComputeMode.EXCLUSIVE_PROCESS)
        pid = None
        try:
            pid = await host.start(place, (gpu.uuid,))
            limits = MpsLimits(thread_percentage=50, memory_mib={gpu.uuid: LIMIT_MIB})
            answer = await host.ask(place, render_defaults((gpu.uuid,), limits))
            assert not find_refusal((gpu.uuid,), limits, answer), answer
            with open_client({"CUDA_MPS_PIPE_DIRECTORY": str(place.pipes), "CUDA_VISIBLE_DEVICES": gpu.uuid}) as client:
                assert client.stdout is not None
                assert client.stdout.readline().split() == ["0", "0", "0", "2"]
                (server,) = read_pids(await host.ask(place, LOOK))
                assert read_pids(await host.ask(place, (f"get_client_list {server}",))) == (client.pid,)
        finally:
            if pid is not None:
                await host.ask(place, (render_quit(5),), 15.0)
                await host.wait_end(pid)
            await session.set_compute_mode(gpu, before)
        assert await session.read_compute_mode(gpu) is before
        await host.remove(place)
    worker.close()

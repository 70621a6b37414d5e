"""`NvmlGpus` over a real worker process that has loaded a fake library."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from nodeagent.core.clock import SystemClock
from nodeagent.edge.nvml.agent.asker import NvmlSettings
from nodeagent.edge.nvml.agent.client import NvmlGpus
from tests.fakes.nvml.control import FakeNvml

PATIENT = NvmlSettings(call_timeout_seconds=20, warm_timeout_seconds=20, leash_seconds=20, open_timeout_seconds=20)
"""For tests in which nothing hangs, on however slow a machine."""

STRICT = NvmlSettings(call_timeout_seconds=20, warm_timeout_seconds=1.5, leash_seconds=0.25, open_timeout_seconds=20)
"""For tests in which something hangs on purpose; what does not hang has a hundred times the time it needs."""


@asynccontextmanager
async def running_gpus(fake: FakeNvml, base: NvmlSettings = PATIENT, **settings: Any) -> AsyncIterator[NvmlGpus]:
    """The port, with its worker, until the end of the block."""
    whole = replace(base, **{"library": str(fake.library_path), "environment": fake.environment, **settings})
    gpus = NvmlGpus(whole, SystemClock())
    async with anyio.create_task_group() as tasks:
        await tasks.start(gpus.run)
        yield gpus
        tasks.cancel_scope.cancel()


def worker_pid(gpus: NvmlGpus) -> int:
    statistics = gpus.statistics()
    assert statistics is not None
    assert statistics.pid is not None
    return statistics.pid


def read_rss_kib(pid: int) -> tuple[int, int]:
    """Resident memory of a process in all, and what of it is the library: its code, and the state of a fake one."""
    whole = library = 0
    is_library = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_library = len(words) > 5 and ("nvml-state" in words[5] or "libnvidia-ml.so" in words[5])
        elif words[0] == "Rss:":
            whole += int(words[1])
            library += int(words[1]) if is_library else 0
    return whole, library


def read_process(pid: int) -> tuple[str, list[str]]:
    """What a process has mapped, and its command line."""
    process = Path(f"/proc/{pid}")
    return (process / "maps").read_text(), (process / "cmdline").read_text().split("\0")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()

"""`NvmlGpus` over a real worker process that has loaded a fake library."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from nodeagent.edge.nvml.asker import NvmlSettings
from nodeagent.edge.nvml.client import NvmlGpus
from nodeagent.kernel.clock import SystemClock
from tests.fakes.nvml.control import FakeNvml

PATIENT = NvmlSettings(call_timeout_seconds=20, warm_timeout_seconds=20, leash_seconds=20, open_timeout_seconds=20)
"""For tests in which nothing hangs, on however slow a machine."""

STRICT = NvmlSettings(call_timeout_seconds=5, warm_timeout_seconds=0.5, leash_seconds=0.25, open_timeout_seconds=20)
"""For tests in which something hangs on purpose."""


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
    """The present worker."""
    statistics = gpus.statistics()
    assert statistics is not None
    assert statistics.pid is not None
    return statistics.pid


def read_rss_kib(pid: int) -> tuple[int, int]:
    """Resident memory of a process in all, and what of it is the fake's: its state and its code."""
    whole = fakes = 0
    is_fake = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_fake = len(words) > 5 and words[5].endswith(("nvml-state", "libnvidia-ml.so.1"))
        elif words[0] == "Rss:":
            whole += int(words[1])
            fakes += int(words[1]) if is_fake else 0
    return whole, fakes

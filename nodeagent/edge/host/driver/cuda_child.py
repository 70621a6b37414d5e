"""Runs the CUDA smoke test in a child process of its own.

Owns the child's command line, environment and deadline. Refuses to raise for the test's failures: a test that hangs,
crashes or cannot be started is a failed test, in words.
"""

import os
import sys
from pathlib import Path

import anyio

from nodeagent.core.children.child_process import ChildProcess
from nodeagent.core.errors import ChildError
from nodeagent.edge.host.driver.cuda_check import LIBRARY

_MODULE = "nodeagent.edge.host.driver.cuda_check"


class CudaChild:
    """The smoke test as an awaitable function."""

    def __init__(self, *, timeout_seconds: float = 30.0) -> None:
        self._timeout_seconds = timeout_seconds

    async def check(self, library: Path | None) -> str:
        """The failure, empty without failure. Without a path the dynamic loader looks for libcuda."""
        child = ChildProcess([sys.executable, "-m", _MODULE], env=_plan_environment(), name="cuda-check")
        async with anyio.create_task_group() as tasks:
            await tasks.start(child.run)
            try:
                answer = await child.request(os.fsencode(library or LIBRARY), timeout_seconds=self._timeout_seconds)
            except ChildError as error:
                return str(error)
            finally:
                with anyio.CancelScope(shield=True):
                    await child.end()
        return answer.decode("utf-8", "replace")


def _plan_environment() -> dict[str, str]:
    # PCI order, so that "GPU 3" is the same GPU everywhere; no secrets from the agent's own environment.
    environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    return {**environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

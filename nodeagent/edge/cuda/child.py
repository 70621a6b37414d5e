"""The prover's process: started for one GPU, asked once, and gone afterwards, whatever the GPU does to it.

Owns command line, environment and deadline. Refuses to raise for what happens to the child: a child that hangs, crashes
or cannot be started is a reading.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec

from nodeagent.core.children.child_process import ChildProcess
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import ChildError, ChildStuck, WorkerError
from nodeagent.edge.host.driver.cuda_check import LIBRARY
from nodeagent.model.proof import ProofPlan, ProverOrder, ProverReadings

_MODULE = "nodeagent.edge.cuda.prover"
_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_FIND_SECONDS = 10.0


class ProverChild:
    """Proves GPUs, each in a process of its own."""

    def __init__(self, library: Path | None, environment: dict[str, str] | None = None) -> None:
        """Without a path the dynamic loader looks for libcuda."""
        self._library = library
        self._environment = environment or {}

    async def prove(self, gpu: str, plan: ProofPlan, peers: tuple[str, ...] = ()) -> ProverReadings:
        """The prover's readings; the GPUs are free again on return, but for a process that could not be killed.

        When the caller is cancelled the prover is killed at once, whatever it is at.
        """
        order = ProverOrder(library=str(self._library or LIBRARY), gpu=gpu, plan=plan, peers=peers)
        argv = [sys.executable, "-m", _MODULE]
        child = ChildProcess(argv, env=self._plan_environment((gpu, *peers)), name="prover")
        readings, has_answer = ProverReadings(), False
        async with anyio.create_task_group() as tasks:
            await tasks.start(child.run)
            try:
                answer = await child.request(
                    msgspec.json.encode(order), timeout_seconds=plan.deadline_seconds, is_stepwise=True
                )
                readings = msgspec.json.decode(answer, type=ProverReadings)
                has_answer = True
            except ChildStuck as error:
                stopped = (
                    f"no answer within {plan.deadline_seconds:g} s while at {error.step!r}; the process was killed"
                )
                readings = ProverReadings(stopped=stopped, hung=True)
            except ChildError as error:
                readings = ProverReadings(stopped=str(error))
            finally:
                with anyio.CancelScope(shield=True):
                    await child.end(at_once=not has_answer)
        return msgspec.structs.replace(readings, left_behind=bool(child.statistics().left_behind))

    def _plan_environment(self, shown: tuple[str, ...]) -> dict[str, str]:
        """No GPU is shown but these, and no translated kernel is taken from a cache of another driver."""
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | self._environment
        if self._library is not None:
            # The library of a driver container loads the translator of kernels from beside itself.
            before = environment.get("LD_LIBRARY_PATH", "")
            environment["LD_LIBRARY_PATH"] = f"{self._library.parent}{os.pathsep}{before}".rstrip(os.pathsep)
        return {**environment, "CUDA_VISIBLE_DEVICES": ",".join(shown), "CUDA_CACHE_DISABLE": "1"}


class BackgroundProver:
    """Proves GPUs of a running agent; implements the port `GpuProver`.

    The prover runs at the usual priority: a process of less priority may die late on a busy node.
    """

    def __init__(self, find_library: Callable[[], Path | None], environment: dict[str, str]) -> None:
        """`find_library` is asked before each proof, as a driver container may have come meanwhile; it may block."""
        self._find_library, self._environment = find_library, environment
        self._worker = WorkerThread("libcuda")

    async def prove(self, gpu: str, plan: ProofPlan) -> ProverReadings:
        """The prover's readings; when the caller is cancelled the GPU is free again at once."""
        try:
            library = await self._worker.run(
                self._find_library, timeout_seconds=_FIND_SECONDS, what="look for the CUDA driver library"
            )
        except WorkerError as error:
            return ProverReadings(stopped=str(error))
        return await ProverChild(library, self._environment).prove(gpu, plan)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

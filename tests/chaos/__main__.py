"""`python -m tests.chaos --seed 7 --steps 200`: one story, ended with 0 when everything held.

Run it as `unshare --map-root-user --mount python -m tests.chaos …`: it mounts a small file system of its own.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import anyio

from tests.chaos.machine import Machine
from tests.chaos.story import CALM_EVERY, choose_step
from tests.chaos.truth import Violated
from tests.fakes.nvml.control import FakeNvml


def main() -> int:
    """Tell the story of one seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--keep-log", type=Path, help="where the agent's log goes when something did not hold")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nc-") as directory:
        return _tell(Path(directory), options)


def _tell(directory: Path, options: argparse.Namespace) -> int:
    state = directory / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", state], check=True)
    fake = FakeNvml(directory, "dgx-h100")
    machine = Machine(directory, fake, options.seed)
    status = 0
    try:
        anyio.run(_run, machine, Random(options.seed), options.steps)
    except* Violated as violations:
        sys.stdout.write(f"seed {options.seed}: {_first(violations)}\n")
        if options.keep_log:
            options.keep_log.write_bytes((directory / "agent.log").read_bytes())
        status = 1
    finally:
        machine.close()
        fake.clear()
        fake.close()
        subprocess.run(["umount", state], check=True)
    return status


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(machine: Machine, random: Random, steps: int) -> None:
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        await tasks.start(machine.kubelet.run)
        await machine.calm()
        for number in range(1, steps + 1):
            what = await choose_step(machine, random)(machine, random)
            sys.stdout.write(f"{number:>5} {time.monotonic() - began:7.1f} s  {what}\n")
            await machine.check()
            if number % CALM_EVERY == 0:
                await machine.calm()
        await machine.calm()
        tasks.cancel_scope.cancel()
    sys.stdout.write(
        f"{steps} steps in {time.monotonic() - began:.0f} s: {machine.admitted} pods admitted, {machine.refused}"
        f" refused while something was broken, ready at the latest {machine.slowest_ready_seconds:.1f} s after"
        " the last fault; nothing violated\n"
    )


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.chaos --seed 7 --steps 200`: one story, ended with 0 when everything held.

Run it as `unshare --map-root-user --mount python -m tests.chaos …`: it mounts a small file system of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import anyio

from tests.bench.reference import find_commit
from tests.chaos.machine import Machine
from tests.chaos.plan import plan_story
from tests.chaos.repair_story import list_repair_steps
from tests.chaos.repaired_machine import RepairedMachine, count_done
from tests.chaos.room_story import list_room_steps
from tests.chaos.rooms import Rooms
from tests.chaos.story import CALM_EVERY, Step, list_steps
from tests.chaos.truth import Violated
from tests.fakes.nvml.control import FakeNvml


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--freeze-seconds", type=float, default=3.0, help="how long a long standstill is (%(default)s)")
    parser.add_argument("--rooms", action="store_true", help="all doors of the node open: parts, claims, layouts, …")
    parser.add_argument("--repairs", action="store_true", help="the agent repairs GPUs, in mode act")
    parser.add_argument("--keep-log", type=Path, help="where the agent's log goes when something did not hold")
    parser.add_argument("--result", type=Path, help="a line of JSON about the story is added to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nc-") as directory:
        return _tell(Path(directory), options)


def _tell(directory: Path, options: argparse.Namespace) -> int:
    state = directory / "state"
    state.mkdir()
    # Just enough for what lies there; each container with a part or a receipt has a folder of its own.
    size = "1536k" if options.rooms or options.repairs else "256k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", state], check=True)
    fake = FakeNvml(directory, "dgx-h100")
    machine = make_machine(directory, fake, options)
    violation = ""
    began = time.monotonic()
    try:
        anyio.run(_run, machine, options)
    except* Violated as violations:
        violation = str(_first(violations))
        sys.stdout.write(f"seed {options.seed}: {violation}\n")
        if options.keep_log:
            options.keep_log.write_bytes((directory / "agent.log").read_bytes())
    finally:
        fake.clear()
        fake.close()
        subprocess.run(["umount", state], check=True)
    _report(machine, options, time.monotonic() - began, violation)
    return int(bool(violation))


def make_machine(directory: Path, fake: FakeNvml, options: argparse.Namespace) -> Machine:
    """The node of the story."""
    make = RepairedMachine if options.repairs else Machine
    return make(directory, fake, options.seed, rooms=Rooms(directory) if options.rooms else None)


def list_all_steps(options: argparse.Namespace) -> Mapping[Step, int]:
    """What may happen on it."""
    steps = dict[Step, int]()
    if options.rooms:
        steps |= list_room_steps(options.freeze_seconds)
    if options.repairs:
        steps |= list_repair_steps(options.freeze_seconds)
    return steps or list_steps(options.freeze_seconds)


def _report(machine: Machine, options: argparse.Namespace, seconds: float, violation: str) -> None:
    told = {
        "seed": options.seed,
        "steps": options.steps,
        "seconds": round(seconds, 1),
        "admitted": machine.admitted,
        "refused": machine.refused,
        "rooms": count_done(machine),
        "steps_by_kind": dict(machine.steps),
        "ready_seconds": round(machine.slowest["ready"], 2),
        "well_seconds": round(machine.slowest["well"], 2),
        "stall_seconds": round(machine.longest_stall_seconds, 2),
        "violation": violation,
        "commit": find_commit(),
    }
    if options.result:
        with options.result.open("a") as file:
            file.write(json.dumps(told) + "\n")
    counts = count_done(machine)
    if not violation:
        sys.stdout.write(
            f"{options.steps} steps in {seconds:.0f} s: {machine.admitted} pods admitted, {machine.refused} refused"
            f" while something was broken; after the last fault ready within {machine.slowest['ready']:.1f} s and all"
            f" well within {machine.slowest['well']:.1f} s, not counting up to {machine.longest_stall_seconds:.1f} s"
            f" without a processor{''.join(f', {count} {what}' for what, count in counts.items())}; nothing violated\n"
        )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(machine: Machine, options: argparse.Namespace) -> None:
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        await tasks.start(machine.kubelet.run)
        if isinstance(machine, RepairedMachine):
            await tasks.start(machine.run)
        await machine.start()
        try:
            await machine.calm()
            story = plan_story(options.seed, options.steps, list_all_steps(options))
            for number, (step, chance) in enumerate(story, start=1):
                what = await step(machine, chance)
                machine.steps[step.__name__] += 1
                sys.stdout.write(f"{number:>5} {time.monotonic() - began:7.1f} s  {what}\n")
                await machine.check()
                if number % CALM_EVERY == 0:
                    await machine.check_health_told()
                    await machine.calm()
            await machine.calm()
        finally:
            with anyio.CancelScope(shield=True):
                await machine.stop()
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(main())

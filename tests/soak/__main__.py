"""`python -m tests.soak --hours 24 --speed 40`: a day in 36 minutes; ended with 0 when nothing grew or was lost.

With `--speed 1` and a fraction of an hour it is the same in the world's own time; with `--hours 4 --pause 0.02` as much
happens as in a day, in six minutes.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import anyio

from tests.bench.reference import find_commit
from tests.chaos.machine import Machine
from tests.chaos.repaired_machine import RepairedMachine, count_done
from tests.chaos.rooms import Rooms
from tests.chaos.truth import Violated
from tests.fakes.nvml.control import FakeNvml
from tests.soak.day import PAUSE_SECONDS, Day, plan_pace
from tests.soak.measures import Moment, find_growth


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="of the agent's time (%(default)s)")
    parser.add_argument("--speed", type=int, default=40, help="how much faster its clocks run (%(default)s)")
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help="between two steps, seconds (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", action="store_true", help="all doors of the node open: parts, claims, layouts, …")
    parser.add_argument("--repairs", action="store_true", help="the agent repairs GPUs, in mode act")
    parser.add_argument("--keep-log", type=Path, help="where the agent's log goes when something did not hold")
    parser.add_argument("--result", type=Path, help="a line of JSON about it is added to this file")
    options = parser.parse_args()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ns-") as directory:
        began = time.monotonic()
        machine, day = make_day(
            Path(directory),
            hours=options.hours,
            speed=options.speed,
            seed=options.seed,
            pause_seconds=options.pause,
            has_rooms=options.rooms,
            has_repairs=options.repairs,
        )
        try:
            anyio.run(live, machine, day)
            problems = find_growth(day.moments)
        except* Violated as violations:
            problems = [str(error) for error in violations.exceptions]
        seconds = time.monotonic() - began
        if problems and options.keep_log:
            options.keep_log.write_bytes((Path(directory) / "agent.log").read_bytes())
    told = {
        "hours": options.hours,
        "speed": options.speed,
        "seconds": round(seconds),
        "steps": day.steps,
        "admitted": machine.admitted,
        "refused": machine.refused,
        "rooms": count_done(machine),
        "steps_by_kind": dict(machine.steps),
        "moments": [moment._asdict() for moment in day.moments],
        "problems": problems,
        "commit": find_commit(),
    }
    if options.result:
        with options.result.open("a") as file:
            file.write(json.dumps(told) + "\n")
    sys.stdout.write(render(day, told))
    return int(bool(problems))


def make_day(
    directory: Path,
    *,
    hours: float,
    speed: int,
    seed: int,
    pause_seconds: float = PAUSE_SECONDS,
    has_rooms: bool = False,
    has_repairs: bool = False,
) -> tuple[Machine, Day]:
    (directory / "state").mkdir()
    rooms = Rooms(directory) if has_rooms else None
    make = RepairedMachine if has_repairs else Machine
    machine = make(directory, FakeNvml(directory, "dgx-h100"), seed, pace=plan_pace(speed), speed=speed, rooms=rooms)
    return machine, Day(machine, hours=hours, speed=speed, seed=seed, pause_seconds=pause_seconds)


async def live(machine: Machine, day: Day) -> None:
    """From the start of the node to its end."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(machine.kubelet.run)
        if isinstance(machine, RepairedMachine):
            await tasks.start(machine.run)
        await machine.start()
        try:
            await day.live()
        finally:
            with anyio.CancelScope(shield=True):
                await machine.stop()
            machine.gpus.fake.close()
        tasks.cancel_scope.cancel()


def render(day: Day, told: dict[str, object]) -> str:
    lines = ["hours " + " ".join(f"{name:>12}" for name in Moment._fields[1:])]
    lines += [f"{moment.hours:5.1f} " + " ".join(f"{value:>12}" for value in moment[1:]) for moment in day.moments]
    lines += [f"{key}: {value}" for key, value in told.items() if key not in ("moments", "problems")]
    lines += [f"problem: {problem}" for problem in told["problems"]]  # type: ignore[attr-defined]  # a list of texts
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

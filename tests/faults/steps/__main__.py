"""`python -m tests.faults.steps [--by-place] [--phases before,after]`: one tour, on which the agent dies of each step.

Prints what was met and what did not hold, as JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import anyio

from tests.chaos.repaired_machine import RepairedMachine
from tests.chaos.rooms import Rooms
from tests.fakes.nvml.control import FakeNvml
from tests.faults.steps.armed import VARIABLE
from tests.faults.steps.points import find_points
from tests.faults.steps.tour import Tour, Unreached


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.steps", description=__doc__)
    parser.add_argument("--by-place", action="store_true", help="each file is a step of its own")
    parser.add_argument(
        "--phases", default="before,after", help="when to die of a step (%(default)s); none: not at all"
    )
    parser.add_argument("--keep-log", type=Path, help="where the agent's log goes when something did not hold")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nf-") as directory:
        told = take_tour(Path(directory), phases=options.phases.split(","), by_place=options.by_place)
        if told["fault"] and options.keep_log:
            options.keep_log.write_bytes((Path(directory) / "agent.log").read_bytes())
    sys.stdout.write(json.dumps(told) + "\n")
    return int(bool(told["fault"]))


def list_deaths(deaths: Path) -> list[str]:
    """Of what each life died."""
    return deaths.read_text().splitlines() if deaths.exists() else []


def find_first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def take_tour(directory: Path, *, phases: list[str], by_place: bool) -> dict[str, object]:
    """What was met on the way, and what did not hold."""
    (directory / "state").mkdir()
    notes, deaths = directory / "notes", directory / "deaths"
    # Found once: to parse all of the package takes longer than an agent lives.
    points = [list(point) for point in find_points()]
    (directory / "points").write_text(json.dumps(points))
    wanted = {
        "points": str(directory / "points"),
        "below": str(directory),
        "notes": str(notes),
        "deaths": str(deaths),
        "phases": phases,
    }
    armed = {VARIABLE: json.dumps({**wanted, "by_place": by_place})}
    fake = FakeNvml(directory, "dgx-h100")
    tour = Tour(
        RepairedMachine(directory, fake, 1, rooms=Rooms(directory)), lambda: armed, lambda: len(list_deaths(deaths))
    )
    began, fault = time.monotonic(), ""
    try:
        anyio.run(tour.take)
    except* Unreached as unreached:
        fault = str(find_first(unreached))
    finally:
        fake.close()
    return {
        "lives": tour.lives,
        "seconds": round(time.monotonic() - began, 1),
        "stages": tour.stages,
        "rounds": tour.rounds,
        "deaths": list_deaths(deaths),
        "notes": [json.loads(line) for line in notes.read_text().splitlines()],
        "fault": fault,
    }


if __name__ == "__main__":
    sys.exit(main())

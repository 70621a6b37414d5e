"""Kills an agent at every step of a claim's life, and prints what the next one found and left, as JSON.

    python -m tests.faults.claims.loop DIRECTORY [--share N/M]

A process of its own, because it forks: each life is a child that begins with one thread and ends by its own hand.
"""

import argparse
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import structlog

from tests.faults.claims.machine import Machine
from tests.faults.claims.scenario import After, follow, live, read_told
from tests.faults.journal.scenario import Steps, in_child, kill_at


def run_life(place: Path, steps: Steps) -> int:
    """One life of the claim; returns how it ended."""

    def work() -> None:
        try:
            anyio.run(live, Machine(place), place / "told", steps)
        finally:
            (place / "steps").write_text(str(steps.count))

    place.mkdir()
    (place / "told").touch()
    return in_child(work)


def run_after(place: Path, after: After) -> list[str]:
    """The life after it, on a copy of what it left; what is wrong."""
    copy = place.with_name(f"{place.name}-{after.name}")
    shutil.copytree(place, copy)
    machine = Machine(copy)
    if after.is_boot:
        machine = machine.reboot()

    def work() -> None:
        faults = anyio.run(follow, machine, read_told(copy / "told"), after)
        (copy / "faults").write_text(json.dumps(faults))

    ended = in_child(work)
    faults = json.loads((copy / "faults").read_text()) if ended == 0 else [f"the next life ended with {ended}"]
    shutil.rmtree(copy)
    return [f"{after}: {fault}" for fault in faults]


def plan_rounds(steps: int, share: tuple[int, int]) -> Iterator[tuple[int, After]]:
    """At which step the agent dies and what follows; of several shares together every pair."""
    pairs = [(number, after) for number in range(1, steps + 2) for after in After]
    number, count = share
    # Neighbouring pairs differ in what follows: each share has all kinds of it, at steps all over the life.
    yield from pairs[number % count :: count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--share", default="0/1", help="which part of the rounds, of how many: 0/5")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    root = Path(tempfile.mkdtemp(dir=arguments.directory))
    assert run_life(root / "count", kill_at(0, before=True)) == 0
    steps = int((root / "count" / "steps").read_text())
    first, _, count = arguments.share.partition("/")
    found: dict[str, list[str]] = {}
    rounds = killed = 0
    for step, after in plan_rounds(steps, (int(first), int(count))):
        rounds += 1
        place = root / f"{rounds}"
        ended = run_life(place, kill_at(step, before=True))
        killed += ended < 0
        faults = run_after(place, after)
        if faults or ended > 0:
            found[f"killed before step {step} (round {rounds}, ended with {ended})"] = faults
        shutil.rmtree(place)
    print(json.dumps({"steps": steps, "rounds": rounds, "killed": killed, "faults": found}))  # noqa: T201  it is what the caller reads


if __name__ == "__main__":
    # Lives are short: what they load is loaded before the first fork.
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()

"""Lets a journal die or fail at every step there is, and prints what was found, as JSON.

    python -m tests.faults.journal.loop kill|error DIRECTORY [--repeat N] [--codes N]

A process of its own, because it forks: each round is a child that begins with one thread and ends by its own hand.
"""

import argparse
import errno
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import structlog

from tests.faults.journal.scenario import Steps, fail_at, find_faults, in_child, kill_at, run_life

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE)


def count_steps(directory: Path) -> int:
    """How many steps a life has that nobody interferes with, as the second life of a directory."""
    counter = kill_at(0, before=True)
    run_round(directory, counter)
    return int((directory / "steps").read_text())


def run_round(directory: Path, steps: Steps) -> tuple[int, str]:
    """An undisturbed life, then one with interference; how that ended, and what both acknowledged."""
    directory.mkdir()
    state, notes = directory / "state", directory / "acknowledged"
    notes.touch()

    def undisturbed() -> None:
        run_life(state, os.open(notes, os.O_WRONLY | os.O_APPEND), 1)

    def disturbed() -> None:
        acknowledged = os.open(notes, os.O_WRONLY | os.O_APPEND)
        steps.install()
        try:
            run_life(state, acknowledged, 2)
        finally:
            (directory / "steps").write_text(str(steps.count))

    assert in_child(undisturbed) == 0
    ended = in_child(disturbed)
    return ended, notes.read_text()


def plan_rounds(kind: str, steps: int, codes: int) -> Iterator[tuple[str, Steps]]:
    """Every way to interfere, with its name."""
    for number in range(1, steps + 1):
        if kind == "kill":
            yield f"killed before step {number}", kill_at(number, before=True)
            yield f"killed after step {number}", kill_at(number, before=False)
        else:
            for code in ERRORS[:codes]:
                yield f"{errno.errorcode[code]} at step {number}", fail_at(number, code)


def check_round(directory: Path, kind: str, steps: Steps) -> list[str]:
    """One round, and a whole life after it on what it left."""
    ended, acknowledged = run_round(directory, steps)
    faults = find_faults(directory / "state", acknowledged)
    if kind == "error" and ended != 0:
        faults.append(f"the agent ended with {ended}")
    after = directory / "after"
    after.touch()
    if in_child(lambda: run_life(directory / "state", os.open(after, os.O_WRONLY), 3)) != 0:
        faults.append("the next agent did not start")
    return faults + find_faults(directory / "state", acknowledged + after.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=("kill", "error"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--repeat", type=int, default=1, help="how many times each way")
    parser.add_argument("--codes", type=int, default=len(ERRORS), help="how many different errors")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    root = Path(tempfile.mkdtemp(dir=arguments.directory))
    steps = count_steps(root / "count")
    found: dict[str, list[str]] = {}
    rounds = 0
    for repeat in range(arguments.repeat):
        for name, interference in plan_rounds(arguments.kind, steps, arguments.codes):
            rounds += 1
            place = root / f"{repeat}-{rounds}"
            faults = check_round(place, arguments.kind, interference)
            if faults:
                found[f"{name} (round {rounds})"] = faults
            shutil.rmtree(place)
    print(json.dumps({"steps": steps, "rounds": rounds, "faults": found}))  # noqa: T201  it is what the caller reads


if __name__ == "__main__":
    main()

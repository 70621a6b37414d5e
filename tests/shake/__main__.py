"""`python -m tests.shake --runs 10`: `make test` on fresh clones, half of them beside a `make run` and a busy machine.

Every fourth is on a machine that seems to have a GPU and all that comes with it, where this is root's and NVIDIA's
libraries were fetched (`make originals`); with `--scenarios` so is one run of `make e2e` at the end. With `--place` all
of them are in that one place.

Each clone is of the last commit, in a temporary directory, with a virtual environment of its own. The output of a run
that failed is kept. Ends with 0 when every run passed.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from tests.shake.crowd import crowd, running
from tests.shake.gpu_machine import find_problem
from tests.shake.plan import ALONE, CROWDED, GPU, Run, choose_place, find_failures, render_end, render_run

ROOT = Path(__file__).resolve().parents[2]
OWN_TO_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTEST_ARGS", "VIRTUAL_ENV")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shake", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how often (%(default)s)")
    parser.add_argument("--source", type=Path, default=ROOT, help="the repository (this one)")
    parser.add_argument(
        "--logs", type=Path, default=ROOT / "results/shake", help="where failed runs leave their output"
    )
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which a run is ended (%(default)s)")
    parser.add_argument("--place", choices=(ALONE, CROWDED, GPU), help="where every run is (each place in its turn)")
    parser.add_argument(
        "--scenarios", action="store_true", help="`make e2e` on a machine that seems to have a GPU, too"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that clones and processes go too
    problem = find_problem()
    if problem:
        sys.stderr.write(f"no run is on a machine that seems to have a GPU: {problem}\n")
    if problem and (options.scenarios or options.place == GPU):
        return 1
    places = [options.place or choose_place(number, has_gpu=not problem) for number in range(1, options.runs + 1)]
    plan = [(place, ("make", "test")) for place in places]
    plan += [(GPU, ("make", "e2e"))] * options.scenarios
    runs = []
    for number, (place, command) in enumerate(plan, 1):
        runs.append(run_once(number, place, command, options.source, options.logs, options.limit))
        sys.stdout.write(render_run(runs[-1], len(plan)) + "\n")
        sys.stdout.flush()
    sys.stdout.write(render_end(runs) + "\n")
    return int(not runs or not all(run.has_passed for run in runs))


def run_once(number: int, place: str, command: tuple[str, ...], source: Path, logs: Path, limit_seconds: float) -> Run:
    """A clone, its tests, and nothing left of either."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN_TO_MAKE}
    with tempfile.TemporaryDirectory(prefix="shake-", ignore_cleanup_errors=True) as directory:
        clone, log = Path(directory) / "clone", Path(directory) / "output.log"
        subprocess.run(["git", "clone", "--quiet", str(source), str(clone)], check=True)
        status = call(
            ("make", f"PYTHON={Path(sys.executable).resolve()}", "setup"), clone, environment, log, limit_seconds
        )
        began = time.monotonic()
        if status == 0:
            status = call_tests(place, command, clone, environment, log, limit_seconds)
        output = log.read_text(errors="replace")
        if status != 0:
            logs.mkdir(parents=True, exist_ok=True)
            (logs / f"{number}.log").write_text(output)
    seconds = time.monotonic() - began
    return Run(number, place, seconds, status, find_failures(output))


def call_tests(
    place: str,
    command: tuple[str, ...],
    clone: Path,
    environment: Mapping[str, str],
    log: Path,
    limit_seconds: float,
) -> int:
    if place == GPU:
        command = (str(clone / ".venv/bin/python"), "-m", "tests.shake.gpu_machine", *command)
    with crowd(clone, environment) if place == CROWDED else nullcontext():
        return call(command, clone, environment, log, limit_seconds)


def call(command: tuple[str, ...], clone: Path, environment: Mapping[str, str], log: Path, limit_seconds: float) -> int:
    """The status of a command in the clone; 124 where it did not end in time."""
    with log.open("ab") as output, running(command, clone, environment, output) as process:
        try:
            return process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            output.write(f"\nended after {limit_seconds:g} s\n".encode())
            return 124


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.integration.lanes WORDS…`: the scenarios in two runs of pytest side by side, both with these words.

The lane `cluster` has every file of scenarios that use the session's cluster, one after the other. The lane `machine`
has the files whose scenarios use containers, machines or servers of their own; after it comes the lane `oldest`, with
the scenarios of every version on a cluster with the oldest node. The output of these two comes after the first one's.
As a plugin of pytest (`--lane`) this module leaves to a run the scenarios of one lane.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import IO, Final

import pytest

from tests.integration.cluster.versions import OLDEST, VARIABLE

CLUSTER, MACHINE, OLD = "cluster", "machine", "oldest"
LANES: Final = (CLUSTER, MACHINE)
ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=LANES, help="only files of scenarios that use the cluster, or only the others")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the scenarios of the other lane. A file is never divided: what its scenarios share is made once."""
    lane = config.option.lane
    of_cluster = {item.path for item in items if CLUSTER in getattr(item, "fixturenames", ())}
    others = [item for item in items if lane and (item.path in of_cluster) != (lane == CLUSTER)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def main(words: Sequence[str]) -> int:
    """Run all lanes to their end; the status of the first that has failed."""
    runs: list[subprocess.Popen[bytes]] = []
    asked_to_end = Event()

    def interrupt(*_: object) -> None:
        asked_to_end.set()
        for run in runs:
            run.send_signal(signal.SIGINT)

    def run_lanes(lanes: Sequence[str], output: IO[bytes] | None) -> list[int]:
        statuses = []
        for lane in lanes:
            if not asked_to_end.is_set():
                runs.append(run := _start(lane, words, output))
                if asked_to_end.is_set():
                    run.send_signal(signal.SIGINT)
                statuses.append(run.wait())
        return statuses

    for number in ENDING:
        signal.signal(number, interrupt)
    with tempfile.TemporaryFile() as later, ThreadPoolExecutor(len(LANES)) as threads:
        try:
            first, second = (
                threads.submit(run_lanes, (CLUSTER,), None),
                threads.submit(run_lanes, (MACHINE, OLD), later),
            )
            statuses = [*first.result(), *second.result()]
        finally:
            for run in runs:
                run.kill()
                run.wait()
        later.seek(0)
        shutil.copyfileobj(later, sys.stdout.buffer)
        sys.stdout.flush()
    return combine(statuses)


def combine(statuses: Sequence[int]) -> int:
    """One status of several runs; a lane without a scenario is no failure as long as another has some."""
    empty = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    ran = [128 - status if status < 0 else status for status in statuses if status != empty]
    return next((status for status in ran if status), 0) if ran else empty


def _start(lane: str, words: Sequence[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    command, environment = (sys.executable, "-m", "pytest", "-p", "tests.integration.lanes", *words), dict(os.environ)
    if lane == OLD:
        command += ("-m", "every_version and not nightly")
        environment[VARIABLE] = OLDEST
    else:
        command += (f"--lane={lane}",)
    # In a session of its own: a Ctrl-C that reaches the whole group of a terminal would interrupt its cleaning up, too.
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.integration.lanes WORDS…`: the scenarios in runs of pytest side by side, all with these words.

The lanes `cluster` and `second-cluster` divide the files of scenarios that use the session's cluster, each lane with a
cluster of its own. The lane `machine` has the files whose scenarios use containers, machines or servers of their own;
the lane `oldest` has the scenarios of every version on a cluster with the oldest node. Two lanes run at a time, and a
lane that has ended makes room for the next. What the first says is seen at once, what the others say after that.
As a plugin of pytest (`--lane`) this module leaves to a run the scenarios of one lane.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import IO, Final

import pytest

from tests.integration.cluster import sysctls
from tests.integration.cluster.layout import LANES_BESIDE, ROOT_VARIABLE, Layout
from tests.integration.cluster.versions import OLDEST, VARIABLE

CLUSTER, SECOND_CLUSTER, MACHINE, OLD = "cluster", "second-cluster", "machine", "oldest"
LANES: Final = (CLUSTER, SECOND_CLUSTER, MACHINE)
TURNS: Final = (SECOND_CLUSTER, CLUSTER, MACHINE, OLD)
"""All lanes, in the order in which they begin: the longest first, so that no lane is left alone at the end."""
AT_ONCE: Final = 2
"""So many lanes leave a processor to tests beside them."""
BESIDE: Final = dict(zip((SECOND_CLUSTER, OLD), LANES_BESIDE, strict=True))
"""The names of the places of those lanes' clusters."""
ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=LANES, help="only the files of this lane")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the scenarios of other lanes. A file is never divided: what its scenarios share is made once."""
    lane = config.option.lane
    if not lane:
        return
    of_cluster = {item.path for item in items if CLUSTER in getattr(item, "fixturenames", ())}
    seconds = dict.fromkeys(sorted(of_cluster), 0.0)
    for item in items:
        if item.path in of_cluster:
            seconds[item.path] += _read_limit(item)
    second = take_half(seconds)
    files = {CLUSTER: of_cluster - second, SECOND_CLUSTER: second, MACHINE: {item.path for item in items} - of_cluster}
    others = [item for item in items if item.path not in files[lane]]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.path in files[lane]]


def take_half(seconds: Mapping[Path, float]) -> set[Path]:
    """Files that together may take about as long as all others: each, the longest first, goes where less is."""
    kept, taken = 0.0, 0.0
    half: set[Path] = set()
    for file in sorted(seconds, key=lambda file: -seconds[file]):
        if taken < kept:
            half.add(file)
            taken += seconds[file]
        else:
            kept += seconds[file]
    return half


def _read_limit(item: pytest.Item) -> float:
    """The scenario's time limit, which tells how long it takes better than a mere count does."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 1.0


def main(words: Sequence[str]) -> int:
    """Run all lanes to their end; the status of the first that has failed."""
    runs: list[subprocess.Popen[bytes]] = []
    asked_to_end = Event()

    def interrupt(*_: object) -> None:
        asked_to_end.set()
        for run in runs:
            run.send_signal(signal.SIGINT)

    def run_lane(lane: str, output: IO[bytes] | None) -> int:
        if asked_to_end.is_set():
            return int(pytest.ExitCode.NO_TESTS_COLLECTED)
        runs.append(run := _start(lane, words, output))
        if asked_to_end.is_set():
            run.send_signal(signal.SIGINT)
        return run.wait()

    for number in ENDING:
        signal.signal(number, interrupt)
    with ExitStack() as stack:
        # A kubelet changes settings of the machine: a cluster that begins beside another would put back changed ones.
        stack.callback(sysctls.restore_sysctls, sysctls.read_sysctls())
        later = [stack.enter_context(tempfile.TemporaryFile()) for _ in TURNS[1:]]
        threads = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        try:
            statuses = list(threads.map(run_lane, TURNS, (None, *later)))
        finally:
            for run in runs:
                run.kill()
                run.wait()
        for output in later:
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
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
    if lane in BESIDE:
        environment[ROOT_VARIABLE] = str(Layout.of_checkout().beside(BESIDE[lane]).root)
    # In a session of its own: a Ctrl-C that reaches the whole group of a terminal would interrupt its cleaning up, too.
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The clock that tests put under a process: stepped for people, or faster for everything."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.fakes.clock.other import OtherClock

TELL = """
import json, sys, threading, time, selectors
for line in sys.stdin:
    began = time.monotonic()
    if line.strip() == "wait":
        time.sleep(60)
        threading.Event().wait(60)
        selectors.DefaultSelector().select(60)
        selectors.PollSelector().select(60)
        selectors.SelectSelector().select(60)
    print(json.dumps({"wall": time.time(), "monotonic": time.monotonic(), "waited": time.monotonic() - began}))
    sys.stdout.flush()
"""


@contextmanager
def living_by(clock: OtherClock) -> Iterator[tuple[IO[str], IO[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", TELL],
        env=clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
        clock.close()


def ask(lines: tuple[IO[str], IO[str]], word: str = "") -> dict[str, float]:
    lines[0].write(f"{word}\n")
    lines[0].flush()
    told: dict[str, float] = json.loads(lines[1].readline())
    return told


def test_a_step_moves_the_time_of_people_alone(tmp_path: Path) -> None:
    """Hours forward and back under a running process, whose monotonic clock is the machine's all the while."""
    clock = OtherClock(tmp_path)
    with living_by(clock) as lines:
        for hours in (0, 5, -7):
            clock.set_ahead(hours * 3600)
            before = time.time(), time.monotonic()
            told = ask(lines)
            after = time.time(), time.monotonic()
            assert before[0] <= told["wall"] - hours * 3600 <= after[0]
            assert before[1] <= told["monotonic"] <= after[1]


def test_a_fast_clock_shortens_every_wait(tmp_path: Path) -> None:
    """Sleeping, waiting for a thread or for a descriptor take the time that the clock says, and less of ours."""
    clock = OtherClock(tmp_path, speed=1000)
    with living_by(clock) as lines:
        ask(lines)
        began = time.monotonic()
        first, told = ask(lines), ask(lines, "wait")
        took = time.monotonic() - began
    assert 300 <= told["waited"] < 1000 * took
    assert told["wall"] - first["wall"] >= told["waited"]
    assert took < 60

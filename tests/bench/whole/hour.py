"""Memory after an hour of load: the agent and its worker live it by a clock that runs fast, with pods and faults."""

import tempfile
from pathlib import Path

import anyio

from tests.bench.rows import Row
from tests.soak.__main__ import live, make_day

HOURS, SPEED, SEED = 1.0, 30, 3
LIMIT_MIB = 72.0


def measure() -> list[Row]:
    """At the end of the hour; the restarts are in its first minutes."""
    with tempfile.TemporaryDirectory(prefix="nh-") as directory:
        machine, day = make_day(Path(directory), hours=HOURS, speed=SPEED, seed=SEED)
        anyio.run(live, machine, day)
    last = day.moments[-1]
    return [
        Row("agent and GPU worker after an hour of load, PSS", "MiB", [last.pss_mib], limit=LIMIT_MIB),
        Row("agent and GPU worker after an hour of load, RSS", "MiB", [last.rss_mib]),
    ]

"""`make bench`: measures, prints a table, keeps the numbers as JSON in `results/`."""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import anyio

from nodeagent import __version__
from tests.bench import agent, bus_publish, metrics, plugin
from tests.bench.rows import Row, render_table, to_json

RESULTS = Path("results")


def main() -> int:
    """Measure everything, or what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="starts and stops of the whole agent (default 10)")
    rounds = parser.parse_args().rounds
    rows: list[Row] = []
    for what, measure in (
        ("publishing on the bus", _measure_bus),
        ("rendering metrics", metrics.measure),
        (f"starting and stopping the agent {rounds} times", lambda: agent.measure_life(rounds)),
        ("an agent at work", agent.measure_work),
        ("decisions of the device plugin", plugin.measure_decisions),
        ("admissions through the whole agent", plugin.measure_admissions),
    ):
        sys.stderr.write(f"measuring {what}\n")
        rows += measure()
    sys.stdout.write(render_table(rows) + "\n")
    sys.stdout.write(f"kept in {_keep(rows)}\n")
    return int(any(row.verdict == "OVER" for row in rows))


def _measure_bus() -> list[Row]:
    micros = [seconds * 1e6 for seconds in anyio.run(bus_publish.measure)]
    return [Row("publish a state to 8 watchers", "us", micros, limit=10)]


def _keep(rows: list[Row]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    path.write_text(json.dumps({"version": __version__, **machine, "rows": to_json(rows)}, indent=2) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())

"""Metrics as a process serves them: sixteen partitioned GPUs, a driver that hangs, and what they cost in memory."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.around.exposition_process import SERVING
from tests.bench.around.node import bench_node, find_free_port
from tests.bench.around.scrapers import scraping
from tests.bench.rows import Row
from tests.bench.whole.admission import settle
from tests.bench.whole.agent import GPUS

COMMAND = (sys.executable, "-m", "tests.bench.around.exposition_process")
SCRAPE_SECONDS = 8.0
STUCK_SECONDS = 4.0
WEIGHINGS = 3


def measure() -> list[Row]:
    return [_measure_mig(), *_measure_hung(), _measure_memory()]


def _measure_mig() -> Row:
    with _serving_mig() as port, scraping(port, scrapers=4, pause_seconds=0.05) as millis:
        time.sleep(SCRAPE_SECONDS)
    return Row("GET /metrics, 16 GPUs x 7 MIG, 4 scrapers", "ms", millis, limit=3)


@contextmanager
def _serving_mig() -> Iterator[int]:
    port = find_free_port()
    process = subprocess.Popen([*COMMAND, str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == SERVING
        time.sleep(1)
        yield port
    finally:
        process.kill()
        process.wait()


def _measure_hung() -> list[Row]:
    """The same agent, before and while its driver answers nothing."""
    with bench_node() as node, node.running_agent() as agent:
        settle(node, agent, devices=GPUS)
        time.sleep(STUCK_SECONDS)
        with scraping(agent.port, scrapers=4, pause_seconds=0.05) as well:
            time.sleep(SCRAPE_SECONDS)
        node.fake.hang("nvmlDeviceGetUtilizationRates")
        time.sleep(STUCK_SECONDS)
        with scraping(agent.port, scrapers=4, pause_seconds=0.05) as hung:
            time.sleep(SCRAPE_SECONDS)
        node.fake.clear()
    return [
        Row("GET /metrics, the driver answers", "ms", well, limit=1),
        Row("GET /metrics, the driver hangs", "ms", hung, limit=1),
    ]


def _measure_memory() -> Row:
    weights = [
        float(subprocess.run(COMMAND, check=True, capture_output=True, text=True).stdout) for _ in range(WEIGHINGS)
    ]
    return Row("metrics, memory", "MiB", weights, limit=8)

"""What a pod waits for: preference and durable allocation, while the agent samples and is scraped.

Asked as the kubelet's gRPC for Go asks (`tests.support.wire.go_client`), and once more by gRPC's C core under Python,
which others wrote and whose own time is a good part of that row.
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench.around.node import POD_PAUSE_SECONDS, BenchNode, PluginProcess, bench_node
from tests.bench.around.scrapers import scraping
from tests.bench.rows import Row

ROUNDS = 2000
SHARED_ROUNDS = 500
FIRST, STARTS = 100, 5
RECORD_BYTES = 300
SHARED = ("--set", 'sharing.timeSlicing={"resources": [{"name": "nvidia.com/gpu", "replicas": 200}]}')
"""Eight GPUs of 200 replicas are 1,600 devices."""
RECEIPTS = ("--set", "signals.receipts=true")
TURN = 100
SCRAPE_PAUSE_SECONDS = 0.5


def measure(rounds: int = ROUNDS) -> list[Row]:
    """Whole GPUs, then replicas; and what the disk has of it."""
    fewer = max(1, min(rounds, SHARED_ROUNDS))
    return [
        *measure_whole(rounds),
        *measure_by_core(fewer),
        *measure_shared(fewer),
        *measure_receipts(rounds),
        measure_disk(fewer),
        *measure_first(),
    ]


def measure_disk(rounds: int) -> Row:
    """A record's size added and made durable, as often as in the rows above and where the agent does it."""
    return Row("the disk alone: one record written and synced", "ms", write_records(rounds))


def write_records(rounds: int) -> list[float]:
    """Milliseconds of each of so many records."""
    millis = []
    with tempfile.TemporaryDirectory() as directory:
        descriptor = os.open(Path(directory) / "journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            for _ in range(rounds):
                began = time.perf_counter()
                os.write(descriptor, bytes(RECORD_BYTES))
                os.fdatasync(descriptor)
                millis.append(1000 * (time.perf_counter() - began))
                time.sleep(POD_PAUSE_SECONDS)
        finally:
            os.close(descriptor)
    return millis


def measure_whole(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with bench_node() as node, node.running_agent() as agent:
        settle(node, agent, devices=8)
        for size in (4, 1, 8):
            rows += admit(node, agent, f"prefer + Allocate, {size} of 8, durable", size, rounds)
        hurried = node.kubelet.admit(4, rounds, pause_seconds=0)
        rows.append(Row("prefer + Allocate, 4 of 8, pods without a pause", "ms", hurried))
    return rows


def measure_first(starts: int = STARTS) -> list[Row]:
    """The first pods of an agent that has just registered, and later pods."""
    first, ratios = [], []
    for _ in range(starts):
        with bench_node() as node, node.running_agent() as agent:
            node.wait_advertised(agent, 8)
            early = node.kubelet.admit(1, FIRST)
            settle(node, agent, devices=8)
            later = node.kubelet.admit(1, FIRST)
        first += early
        ratios.append(median(early) / median(later))
    return [
        Row("prefer + Allocate, the first hundred of a start", "ms", first),
        Row("  times as long as a hundred later ones, p50", "x", ratios, limit=1.5),
    ]


def measure_by_core(rounds: int) -> list[Row]:
    """Four of eight, asked by a client that is not ours."""
    with bench_node(caller="core") as node, node.running_agent() as agent:
        settle(node, agent, devices=8)
        return admit(node, agent, "prefer + Allocate, 4 of 8, by C core", 4, rounds)[:1]


def measure_shared(rounds: int) -> list[Row]:
    with bench_node() as node, node.running_agent(*SHARED) as agent:
        settle(node, agent, devices=1600)
        return admit(node, agent, "prefer + Allocate, 1 of 1,600, durable", 1, rounds, slowest_at_most=10)


def measure_receipts(rounds: int) -> list[Row]:
    """An agent that gives containers receipts beside one that gives none, in turns on one machine."""
    millis: dict[str, list[float]] = {"without": [], "with": []}
    with (
        bench_node() as plain,
        plain.running_agent() as off,
        bench_node() as receipted,
        receipted.running_agent(*RECEIPTS) as on,
    ):
        settle(plain, off, devices=8)
        settle(receipted, on, devices=8)
        for turn in range(max(2, rounds // TURN)):
            pair = (("without", plain), ("with", receipted))
            for name, node in pair if turn % 2 else reversed(pair):
                millis[name] += node.kubelet.admit(4, TURN)
    rows = [Row(f"prefer + Allocate, 4 of 8, {name} receipts", "ms", found) for name, found in millis.items()]
    ratio = rows[1].percentile(0.99) / rows[0].percentile(0.99)
    return [*rows, Row("  p99 with receipts, of p99 without", "x", [ratio], limit=1.05)]


def settle(node: BenchNode, agent: PluginProcess, devices: int) -> None:
    """Until the kubelet has every device and the agent is ready; then a few pods, so that nothing is a first time."""
    node.wait_advertised(agent, devices)
    agent.wait_ready()
    node.kubelet.admit(1, 20)


def admit(
    node: BenchNode,
    agent: PluginProcess,
    name: str,
    size: int,
    rounds: int,
    slowest_at_most: float | None = None,
) -> list[Row]:
    """Rows for one kind of pod; the processor time is the agent's alone, and the same on a busy machine."""
    with scraping(agent.port, scrapers=1, pause_seconds=SCRAPE_PAUSE_SECONDS):
        before = agent.cpu_seconds()
        millis = node.kubelet.admit(size, rounds)
        spent = (agent.cpu_seconds() - before) * 1000 / rounds
    rows = [Row(name, "ms", millis)]
    if slowest_at_most is not None:
        rows.append(Row(f"{name}, the slowest", "ms", millis, limit=slowest_at_most, limit_is_for=0.99))
    return [*rows, Row(f"  processor time of the agent each, {size}", "ms", [spent])]

"""MPS daemons: how soon there is one for each GPU, how soon one that dies is missed, what looking after them takes.

The daemons are those of the stand-in program; the agent that starts them has them from the fake driver's GPUs.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.bench.around.node import BenchNode, PluginProcess, bench_node
from tests.bench.rows import Row
from tests.fakes.mps import FakeMps

STARTS = 3
DEATHS = 5
GPUS = 8
POLL_INTERVAL_SECONDS = 0.005
MEMORY_SETTLE_SECONDS = 8.0
SHARES = '{"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}'


def measure() -> list[Row]:
    ready, missed, more = [], [], []
    for _ in range(STARTS):
        with bench_node() as node, node.running_agent("--set", f"sharing.timeSlicing={SHARES}") as agent:
            without = _weigh(agent)
        with bench_node() as node, _running(node) as agent:
            agent.wait_until(lambda: len(_list_ready(agent)) == GPUS)
            ready.append(1000 * (time.perf_counter() - agent.began))
            more.append(_weigh(agent) - without)
            missed += [_measure_death(agent) for _ in range(DEATHS)]
    return [
        Row("exec to an MPS daemon for each of 8 GPUs", "ms", ready, limit=1000),
        Row("an MPS daemon dies until it is missed", "ms", missed, limit=100),
        Row("MPS on, more memory than time slicing (PSS)", "MiB", more, limit=1),
    ]


@contextmanager
def _running(node: BenchNode) -> Iterator[PluginProcess]:
    """An agent with a daemon for each GPU; they outlive it, as they should, but not the block."""
    settings = {
        "sharing.mps": SHARES,
        "device_plugin.mps_root": node.directory / "mps",
        "mps.program": FakeMps(node.directory / "driver").program,
        "mps.shared_memory": "host",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    known: set[int] = set()
    with node.running_agent(*words) as agent:
        try:
            yield agent
        finally:
            with suppress(OSError):  # an agent that failed to start has none
                known |= {daemon["pid"] for daemon in _list_ready(agent)}
            agent.end()
            for pid in known:
                os.kill(pid, signal.SIGKILL)


def _list_ready(agent: PluginProcess) -> list[dict[str, Any]]:
    daemons: list[dict[str, Any]] = json.loads(agent.get("/api/v1/mps")[1])["daemons"]
    return [daemon for daemon in daemons if daemon["phase"] == "ready"]


def _weigh(agent: PluginProcess) -> float:
    agent.wait_ready()
    time.sleep(MEMORY_SETTLE_SECONDS)
    return agent.memory_mib("Pss")


def _measure_death(agent: PluginProcess) -> float:
    """Milliseconds until the agent tells of it; then it has another, and settles."""
    pid = _list_ready(agent)[0]["pid"]
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while pid in {daemon["pid"] for daemon in _list_ready(agent)}:
        time.sleep(POLL_INTERVAL_SECONDS)
    millis = 1000 * (time.perf_counter() - began)
    agent.wait_until(lambda: len(_list_ready(agent)) == GPUS)
    return millis

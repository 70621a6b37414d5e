"""The agent's life and work on eight GPUs, everything on: start, restart, stop, memory, scrapes, idling, a fault."""

import signal
import time
from pathlib import Path

from tests.bench.around.node import PluginProcess, bench_node
from tests.bench.around.scrapers import scraping
from tests.bench.rows import Row
from tests.bench.whole.admission import SHARED, settle

GPUS = 8
SETTLE_SECONDS = 5.0
IDLE_SETTLE_SECONDS = 30.0
"""The fake's GPUs have no device nodes, for which the agent looks more often at first."""
IDLE_SCRAPES, SCRAPE_INTERVAL_SECONDS = 4, 15.0
SCRAPE_SECONDS = 10.0
TICKS = 10
PARTITIONED = str(Path(__file__).parent / "h100-16x7.yaml")
DEVICES_MAX = 112
XID_EVENT, XID_OFF_THE_BUS = 8, 79


def measure_life(rounds: int) -> list[Row]:
    """First start on a fresh node, then kill -9 and start again, then stop."""
    register, loaded, ready, spent, again, stop = [], [], [], [], [], []
    for _ in range(rounds):
        with bench_node() as node:
            with node.running_agent() as agent:
                register.append(1000 * (node.kubelet.wait("registered")["at"] - agent.began))
                loaded.append(1000 * agent.cpu_seconds())
                ready.append(1000 * agent.wait_ready())
                spent.append(1000 * agent.cpu_seconds())
                node.wait_advertised(agent, GPUS)
                agent.stop(signal.SIGKILL)
            with node.running_agent() as agent:
                again.append(1000 * node.wait_advertised(agent, GPUS))
                agent.wait_ready()
                stop.append(1000 * agent.stop())
    return [
        Row("exec to Register", "ms", register, limit=400),
        Row("  processor time of agent and worker until then", "ms", loaded),
        Row("exec to /readyz 200", "ms", ready, limit=1000),
        Row("  processor time of agent and worker for it", "ms", spent),
        Row("killed and started to advertised", "ms", again, limit=500),
        Row("SIGTERM to exit", "ms", stop, limit=3000, limit_is_for=0.99),
    ]


def measure_work() -> list[Row]:
    """Memory, idling and scrapes of one agent."""
    with bench_node() as node, node.running_agent() as agent:
        settle(node, agent, devices=GPUS)
        time.sleep(SETTLE_SECONDS)
        idle = _measure_idling(agent)
        rows = [
            Row("agent and GPU worker, PSS", "MiB", [agent.memory_mib("Pss")], limit=60),
            Row("agent and GPU worker, RSS", "MiB", [agent.memory_mib("Rss")]),
            idle,
            Row("one look at 8 GPUs, with the worker's turn", "ms", _read_tick_millis(agent)),
        ]
        with scraping(agent.port, scrapers=4, pause_seconds=0.05) as millis:
            time.sleep(SCRAPE_SECONDS)
        lag = agent.get("/metrics")[1].split('nodeagent_loop_lag_seconds{quantile="0.99"} ')[1].split()[0]
        return [
            *rows,
            Row("GET /metrics, 4 scrapers, 80 a second", "ms", millis, limit=1),
            Row("GET /metrics, the slowest", "ms", millis, limit=5, limit_is_for=0.99),
            Row("event loop lag, p99 over the last minute", "ms", [float(lag) * 1000], limit=5),
        ]


def measure_partitioned() -> list[Row]:
    """Sixteen GPUs cut into seven each: 112 devices, every one with its metrics."""
    with bench_node(PARTITIONED) as node, node.running_agent("--set", "device_plugin.mig_strategy=single") as agent:
        settle(node, agent, devices=DEVICES_MAX)
        time.sleep(SETTLE_SECONDS)
        with scraping(agent.port, scrapers=1, pause_seconds=0.2) as millis:
            time.sleep(SCRAPE_SECONDS)
        return [
            Row("GET /metrics, 16 GPUs x 7 MIG", "ms", millis, limit=15),
            Row("agent and GPU worker, 16 x 7 MIG, PSS", "MiB", [agent.memory_mib("Pss")]),
            Row("one look at 16 x 7 MIG, with the worker's turn", "ms", _read_tick_millis(agent)),
        ]


def _read_tick_millis(agent: PluginProcess) -> list[float]:
    """How long one sample of all GPUs took, from the first question to the last answer, look after look."""
    millis = []
    for _ in range(TICKS):
        body = agent.get("/metrics")[1]
        millis.append(1000 * float(body.split("\nnodeagent_sample_duration_seconds ")[1].split()[0]))
        time.sleep(1.0)
    return millis


def _measure_idling(agent: PluginProcess) -> Row:
    time.sleep(IDLE_SETTLE_SECONDS)
    before, began = agent.run_seconds(), time.perf_counter()
    for _ in range(IDLE_SCRAPES):
        time.sleep(SCRAPE_INTERVAL_SECONDS)
        agent.get("/metrics")
    share = (agent.run_seconds() - before) / (time.perf_counter() - began)
    return Row("idle, sampling every second, scraped every 15 s, of one core", "%", [100 * share], limit=1)


def measure_faults(rounds: int) -> list[Row]:
    """An XID that takes a GPU, one GPU after the other, until the kubelet has the list without it."""
    whole, shared = [], []
    for _ in range(rounds):
        whole += _measure_fault((), GPUS)
    shared += _measure_fault(SHARED, 1600)
    return [
        Row("XID to kubelet told, 8 devices", "ms", whole, limit=200),
        Row("XID to kubelet told, 1,600 devices", "ms", shared, limit=200),
    ]


def _measure_fault(words: tuple[str, ...], devices: int) -> list[float]:
    millis = []
    with bench_node() as node, node.running_agent(*words) as agent:
        settle(node, agent, devices)
        for gpu in range(GPUS):
            began = time.perf_counter()
            node.fake.push_event(gpu, XID_EVENT, XID_OFF_THE_BUS)
            left = devices - (gpu + 1) * devices // GPUS
            millis.append(1000 * (node.kubelet.wait("list", since=began, healthy=left)["at"] - began))
    return millis

"""What a MIG layout costs beyond the driver's own time: its plan, its calls, and how soon the kubelet hears of it.

Eight GPUs with MIG on are cut into seven each, by the label, behind a driver that takes its time for each call.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.model.gpu import Gpu
from nodeagent.rules.mig.partitions import read_partitions
from nodeagent.rules.mig.show import plan_gpu
from nodeagent.rules.mig.wanted import Wanted
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.world import World
from tests.bench.around.api_server import ApiServerThread, api_server
from tests.bench.around.node import BenchNode, PluginProcess, bench_node
from tests.bench.rows import Row
from tests.fakes.apiserver import NODE

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
ONE = "nvidia.com/mig-1g.10gb"
WRITING = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance")
GPUS, EACH = 8, 7
CALLS = 2 * GPUS * EACH
CALL_SECONDS = 0.05
ROUNDS = 3
PLANS = 200
APPLIED = "label to success, by the calls' own time"
PATIENCE_SECONDS = 60.0
POLL_INTERVAL_SECONDS = 0.02
SETTINGS = ("mig.manage=true", "device_plugin.mig_strategy=mixed", "kubernetes.enabled=true", f"node.name={NODE}")


def measure() -> list[Row]:
    return [_measure_plan(), *measure_applying()]


def _measure_plan() -> Row:
    gpus = _read_gpus()
    wanted = Wanted(enabled=True, profiles={"1g.10gb": EACH})
    millis = []
    for _ in range(PLANS):
        began = time.perf_counter()
        plans = [plan_gpu(gpu, wanted, read_partitions(gpu)) for gpu in gpus]
        millis.append(1000 * (time.perf_counter() - began))
        assert all(plan.changes for plan in plans)
    return Row("plan of 7 x 1g.10gb on 8 GPUs", "ms", millis, limit=20, limit_is_for=0.99)


def _read_gpus() -> tuple[Gpu, ...]:
    return render_readout(World(load_profile("dgx-h100"), node_name="bench", seed=0)).gpus


@contextmanager
def _labelled() -> Iterator[tuple[BenchNode, PluginProcess, ApiServerThread]]:
    with api_server() as api, bench_node() as node:
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        settings = (*SETTINGS, f"kubernetes.kubeconfig={kubeconfig}")
        with node.running_agent(*(word for setting in settings for word in ("--set", setting))) as agent:
            agent.wait_ready()
            yield node, agent, api


def _ask(agent: PluginProcess, api: ApiServerThread, layout: str) -> float:
    api.set_label(CONFIG, layout)
    end = time.perf_counter() + PATIENCE_SECONDS
    # The label alone does not say of which layout it speaks.
    while not _is_in_place(agent, layout):
        assert time.perf_counter() < end
        time.sleep(POLL_INTERVAL_SECONDS)
    return api.wait_label(STATE, "success")


def _is_in_place(agent: PluginProcess, layout: str) -> bool:
    state = json.loads(agent.get("/api/v1/mig")[1])
    return (state["layout"], state["standing"]) == (layout, "success")


def measure_applying(rounds: int = ROUNDS) -> list[Row]:
    """Nothing is made twice: the calls are counted where they are made."""
    ratios, late, calls = [], [], []
    with _labelled() as (node, agent, api):
        _ask(agent, api, "all-enabled")
        for _ in range(rounds):
            for function in WRITING:
                node.fake.delay(function, CALL_SECONDS)
            before, began = sum(map(node.fake.calls, WRITING)), time.perf_counter()
            ended = _ask(agent, api, "all-1g.10gb")
            calls.append(float(sum(map(node.fake.calls, WRITING)) - before))
            told = node.kubelet.wait("list", since=began, resource=ONE, healthy=GPUS * EACH)["at"]
            ratios.append((ended - began) / (CALLS * CALL_SECONDS))
            late.append(told - began - CALLS * CALL_SECONDS)
            for function in WRITING:
                node.fake.delay(function, 0.0)
            _ask(agent, api, "all-enabled")
    return [
        Row("calls that write, of 112 at least", "", calls, limit=CALLS, limit_is_for=1.0),
        Row(APPLIED, "x", ratios, limit=1.5, limit_is_for=1.0),
        Row("label to kubelet told, over the calls' own", "s", late, limit=1.0, limit_is_for=1.0),
    ]

"""Slices of a node: how soon schedulers are told of it, what the telling takes, and how quiet it is.

What is planned is measured in processor time, which a busy machine makes no longer.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from nodeagent.components.slices.plan import plan_contents
from nodeagent.components.slices.writes import plan_writes
from nodeagent.edge.kube.slice_document import parse_slice, render_slice
from nodeagent.model.slices import SlicePool
from tests.bench.around.api_server import ApiServerThread, api_server
from tests.bench.around.node import BenchNode, PluginProcess, bench_node
from tests.bench.rows import Row
from tests.bench.whole.agent import XID_EVENT, XID_OFF_THE_BUS
from tests.fakes.apiserver import NODE
from tests.support.mig import make_mig_gpu
from tests.support.slices import DRIVER, make_sight

ROUNDS = 20
STARTS = 3
LOST_GPUS = 4
QUIET_SECONDS = 20.0
GPUS = 16
MODEL = "h100-sxm5-80gb"
POOL = SlicePool(driver=DRIVER, node="node-1")


def measure() -> list[Row]:
    return [*_measure_telling(), *_measure_planning()]


def _measure_telling() -> list[Row]:
    """From an agent's start to its slices in the API server; then nothing happens; then GPUs go, one after another."""
    start, taint, quiet = [], [], []
    for _ in range(STARTS):
        with _telling() as (node, agent, api):
            start.append(1000 * (api.wait_for(lambda: bool(api.server.slices), "slices") - agent.began))
            agent.wait_ready()
            before = _count_requests(api)
            time.sleep(QUIET_SECONDS)
            quiet.append(float(_count_requests(api) - before))
            for gpu in range(LOST_GPUS):
                began = time.perf_counter()
                node.fake.push_event(gpu, XID_EVENT, XID_OFF_THE_BUS)
                taint.append(1000 * (_wait_taints(api, gpu + 1) - began))
    return [
        Row("agent start to slices in the API", "ms", start, limit=1000),
        Row("hardware fact to taint in the API", "ms", taint, limit=1000, limit_is_for=1.0),
        Row("requests about slices, 20 s without news", "", quiet, limit=0, limit_is_for=1.0),
    ]


def _wait_taints(api: ApiServerThread, count: int) -> float:
    """The moment at which so many devices had one."""
    return api.wait_for(lambda: str(api.server.slices).count("'taints'") == count, f"{count} taints")


def _count_requests(api: ApiServerThread) -> int:
    return sum("/resourceslices" in path for _, path in api.server.requests)


@contextmanager
def _telling() -> Iterator[tuple[BenchNode, PluginProcess, ApiServerThread]]:
    """An agent that has begun to give all its GPUs by claims."""
    with api_server() as api, bench_node() as node:
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        settings = (
            "kubernetes.enabled=true",
            f"kubernetes.kubeconfig={kubeconfig}",
            f"node.name={NODE}",
            "claims.enabled=true",
            f"claims.plugins_dir={node.directory}/plugins",
            f"claims.registry_dir={node.directory}/registry",
            'doors.rules=[{"gpus": ["all"], "door": "claims"}]',
        )
        with node.running_agent(*(word for setting in settings for word in ("--set", setting))) as agent:
            yield node, agent, api


def _measure_planning() -> list[Row]:
    boards = [replace(make_mig_gpu(index, MODEL, enabled=True), compute_capability=(9, 0)) for index in range(GPUS)]
    sight = make_sight(boards, choices={"on_demand": True})

    def render() -> list[str]:
        writes = plan_writes(POOL, plan_contents(sight), {}, {})
        numbers = [(write.generation, write.slice_count) for write in writes]
        return [
            json.dumps(render_slice(POOL, write.name, write.content, each, "uid"))
            for write, each in zip(writes, numbers, strict=True)
        ]

    written = [json.loads(text) for text in render()]
    for document in written:
        document["metadata"] |= {"uid": "uid", "resourceVersion": "1"}
    stored = {one.name: one for one in (parse_slice(POOL, document) for document in written)}

    def find_nothing_to_do() -> None:
        assert plan_writes(POOL, plan_contents(sight), stored, {}) == ()

    return [
        Row("slices of 16 GPUs x 25 MIG places, CPU", "ms", _time(render), limit=200),
        Row("the same, nothing to be written, CPU", "ms", _time(find_nothing_to_do), limit=100),
    ]


def _time(work: Callable[[], object]) -> list[float]:
    samples = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        samples.append((time.process_time() - began) * 1e3)
    return samples

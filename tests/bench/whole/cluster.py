"""What the cluster sees of one node: how soon a label follows the hardware, how quiet it is, what the client costs."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.around.api_server import ApiServerThread, api_server
from tests.bench.around.node import BenchNode, PluginProcess, bench_node
from tests.bench.rows import Row
from tests.bench.whole.admission import settle
from tests.bench.whole.agent import GPUS, XID_EVENT, XID_OFF_THE_BUS
from tests.fakes.apiserver import NODE

HEALTHY = "nvidia.com/gpu.healthy.count"
COUNT = "nvidia.com/gpu.count"
CONFIGURATION = "nvidia.com/device-plugin.config"
CHOICES = 5
ROBBERIES, APART_SECONDS = 10, 1.5
HOLD_SECONDS = 1.0
LOST_GPUS = 4
"""Soon after them the first is back: nothing else than its event was against it."""
QUIET_SECONDS = 60.0
SETTLE_SECONDS = 5.0


def measure() -> list[Row]:
    return [*_measure_changes(), _measure_choice(), *_measure_quiet(), _measure_memory()]


@contextmanager
def _labelled(*words: str) -> Iterator[tuple[BenchNode, PluginProcess, ApiServerThread]]:
    """An agent whose labels are on the node."""
    with api_server() as api, bench_node() as node:
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        settings = ("kubernetes.enabled=true", f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}", *words)
        with node.running_agent(*(word for setting in settings for word in ("--set", setting))) as agent:
            settle(node, agent, devices=GPUS)
            api.wait_label(HEALTHY, str(GPUS))
            yield node, agent, api


def _measure_changes() -> list[Row]:
    """Some GPUs go, one after the other; and somebody takes a label away, again and again."""
    fact, label = [], []
    with _labelled(f"labels.hold_seconds={HOLD_SECONDS:g}") as (node, _, api):
        for gpu in range(LOST_GPUS):
            began = time.perf_counter()
            node.fake.push_event(gpu, XID_EVENT, XID_OFF_THE_BUS)
            fact.append(1000 * (api.wait_label(HEALTHY, str(GPUS - gpu - 1)) - began - HOLD_SECONDS))
    with _labelled("kubernetes.requests_per_second=100") as (_, _, api):
        for _ in range(ROBBERIES):
            time.sleep(APART_SECONDS)  # a label that is taken away at once again waits a second
            began, before = time.perf_counter(), len(api.server.writes)
            api.set_label(COUNT, None)
            label.append(1000 * (api.wait_label(COUNT, str(GPUS), writes=before + 1) - began))
    return [
        Row("hardware fact to label, over its hold time", "ms", fact, limit=2000, limit_is_for=1.0),
        Row("label change to API", "ms", label, limit=2000, limit_is_for=1.0),
    ]


def _measure_choice() -> Row:
    """The node's label names another configuration, again and again: four shares of each GPU, or none."""
    millis = []
    with tempfile.TemporaryDirectory(prefix="nb-") as directory:
        shares = "{timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
        (Path(directory) / "plain").write_text("{}")
        (Path(directory) / "shared").write_text(f"version: v1\nsharing: {shares}\n")
        settings = (f"device_plugin.config_dir={directory}", "device_plugin.default_config=plain")
        with _labelled(*settings) as (node, _, api):
            for name, devices in (("shared", 4 * GPUS), ("plain", GPUS)) * CHOICES:
                began = time.perf_counter()
                api.set_label(CONFIGURATION, name)
                millis.append(1000 * (node.kubelet.wait("list", since=began, healthy=devices)["at"] - began))
    return Row("configuration by label to kubelet told", "ms", millis, limit=2000, limit_is_for=1.0)


def _measure_quiet() -> list[Row]:
    with _labelled() as (_, _, api):
        time.sleep(SETTLE_SECONDS)
        before = len(api.server.writes)
        watches = []
        end = time.perf_counter() + QUIET_SECONDS
        while time.perf_counter() < end:
            watches.append(float(api.server.watching))
            time.sleep(1)
        writes = len(api.server.writes) - before
    return [
        Row("API writes in a quiet minute", "", [float(writes)], limit=0),
        Row("watches at the API server", "", watches, limit=1, limit_is_for=1.0),
    ]


def _measure_memory() -> Row:
    with _labelled() as (_, agent, _):
        time.sleep(SETTLE_SECONDS)
        with_client = agent.memory_mib("Pss")
    with bench_node() as node, node.running_agent() as agent:
        settle(node, agent, devices=GPUS)
        time.sleep(SETTLE_SECONDS)
        without = agent.memory_mib("Pss")
    return Row("API client, memory over the agent without it", "MiB", [with_client - without], limit=12)

"""One agent beside all of NVIDIA's parts that build as modules: a node comes up, what it costs, what it asks.

The parts are the device plugin, GPU feature discovery, the DRA driver and the toolkit's installer, started together on
one node; the installer finds nothing to install, for most of that is in C. None of them serves metrics of GPUs, as the
agent does. Requests are counted in front of a real API server.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.around.node import BenchNode, PluginProcess
from tests.bench.compare import Rows
from tests.bench.peers.api_server import real_api_server, write_node
from tests.bench.peers.claims import render_driver
from tests.bench.peers.node import list_words, peer_node, render_command, render_plugin, wait_for
from tests.bench.peers.originals import Built, build_claims, build_discovery, build_installer, build_plugin
from tests.bench.peers.table import Goal, Turn
from tests.bench.pieces.claims import register
from tests.bench.rows import Row, index_rows
from tests.bench.whole.agent import XID_EVENT, XID_OFF_THE_BUS
from tests.integration import node_features
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.proxy import ApiProxy, running_proxy

UP, LABELLED, SERVED, MEMORY, IDLE = (
    "exec of all parts to devices at the kubelet",
    "exec of all parts to labels at the API server",
    "exec to metrics served",
    "memory of all parts, PSS",
    "idle processor time of all parts, of one core",
)
REQUESTS: Final = (
    "API requests: start",
    "API requests: a quiet hour, reckoned",
    "API requests: 100 pods",
    "API requests: a GPU is lost",
)
ALL: Final = "API requests: all of these"
GOALS: Final = (
    Goal(UP, limit=1.0),
    Goal(LABELLED, limit=1.0),
    Goal(SERVED),
    Goal(MEMORY, limit=0.35),
    Goal(IDLE, limit=0.5),
    *map(Goal, REQUESTS),
    Goal(ALL, limit=0.3),
)
BY_CLAIMS: Final = '[{"gpus": ["4", "5", "6", "7"], "door": "claims"}]'
PODS, LOST_GPU = 100, 3
COUNT, METRIC = "nvidia.com/gpu.count", "DCGM_FI_DEV_GPU_TEMP{"
FEATURE: Final = f"{node_features.locate_features('default')}/nvidia-features-for-{NODE_NAME}"
HOUR_SECONDS: Final = 3600.0


class Times(NamedTuple):
    """How long is waited for rest, and how long the quiet hour is here."""

    settle_seconds: float = 30.0
    quiet_seconds: float = 600.0


TIMES: Final = Times()


class Side(NamedTuple):
    """What runs on a node, and what it asks."""

    node: BenchNode
    parts: list[PluginProcess]
    proxy: ApiProxy
    is_ours: bool

    @property
    def began(self) -> float:
        return min(part.began for part in self.parts)

    def add_up(self, read: Callable[[PluginProcess], float]) -> float:
        return sum(map(read, self.parts))


class Originals(NamedTuple):
    """The parts that stand for one agent."""

    plugin: Built
    discovery: Built
    claims: Built
    installer: Built


def build_parts() -> Built:
    """All of them; the names are those of the table."""
    parts = _build()
    return Built(Path(), ", ".join(part.name for part in parts))


def _build() -> Originals:
    return Originals(build_plugin(), build_discovery(), build_claims(), build_installer())


def measure(_parts: Built, turns: int, times: Times = TIMES) -> Iterator[Turn]:
    """Each side on a fresh node."""
    originals = _build()
    with real_api_server() as cluster:
        node_features.install(cluster, "default")
        for _ in range(turns):
            yield _measure(cluster, None, times), _measure(cluster, originals, times)


def _measure(cluster: Cluster, originals: Originals | None, times: Times) -> Rows:
    write_node(cluster)
    cluster.api.delete(FEATURE)
    with running_proxy(cluster) as proxy, peer_node() as (node, driver):
        (node.directory / "registry").mkdir()
        kubeconfig = node.directory / "kubeconfig"
        direct = cluster.layout.kubeconfig("admin").read_text()
        kubeconfig.write_text(direct.replace(f":{cluster.state.ports.api}", f":{proxy.port}"))
        with _running(node, driver, kubeconfig, originals) as parts:
            side = Side(node, parts, proxy, is_ours=originals is None)
            return index_rows([*_come_up(cluster, side), *_weigh(side, times)])


@contextmanager
def _running(
    node: BenchNode, driver: Path, kubeconfig: Path, originals: Originals | None
) -> Iterator[list[PluginProcess]]:
    with ExitStack() as stack:
        if originals is None:
            words = list_words(_list_settings(node, driver, kubeconfig))
            yield [stack.enter_context(node.running_agent(*words))]
        else:
            yield [
                stack.enter_context(node.running_plugin(command))
                for command in _render_commands(node, driver, kubeconfig, originals)
            ]


def _list_settings(node: BenchNode, driver: Path, kubeconfig: Path) -> dict[str, object]:
    return {
        "node.name": NODE_NAME,
        "driver.root": driver,
        "kubernetes.enabled": "true",
        "kubernetes.kubeconfig": kubeconfig,
        "claims.enabled": "true",
        "claims.plugins_dir": node.directory / "plugins",
        "claims.registry_dir": node.directory / "registry",
        "doors.rules": BY_CLAIMS,
    }


def _render_commands(node: BenchNode, driver: Path, kubeconfig: Path, originals: Originals) -> tuple[str, ...]:
    """All that the originals leave to a command line; the rest is at its default."""
    discovery = {
        "node-name": NODE_NAME,
        "namespace": "default",
        "kubeconfig": kubeconfig,
        "machine-type-file": driver / "machine-type",
    }
    installer = {
        "toolkit-install-dir": node.directory / "toolkit",
        "toolkit-source-root": node.directory / "artifacts",
        "pid-file": node.directory / "toolkit.pid",
        "driver-root": driver,
    }
    (driver / "machine-type").write_text("bench\n")
    return (
        render_plugin(originals.plugin),
        render_command(originals.discovery.program, discovery),
        render_driver(originals.claims, node, driver, kubeconfig),
        f"{render_command(originals.installer.program, installer)} --no-runtime-config --ignore-errors",
    )


def _come_up(cluster: Cluster, side: Side) -> list[Row]:
    """From the first exec on; whoever has labels has them at the API server."""

    def is_labelled() -> bool:
        if not side.proxy.list_writes():
            return False  # who asks again and again is a neighbour, too
        if side.is_ours:
            return COUNT in cluster.api.read_node()["metadata"].get("labels", {})
        return cluster.api.find(FEATURE) is not None

    wait_for(side.parts, is_labelled, "labels at the API server")
    labelled = time.perf_counter()
    listed = side.node.kubelet.wait("list", since=side.began)
    rows = [
        Row(UP, "ms", [1000 * (listed["at"] - side.began)]),
        Row(LABELLED, "ms", [1000 * (labelled - side.began)]),
    ]
    if side.is_ours:
        (agent,) = side.parts
        wait_for(side.parts, lambda: METRIC in agent.get("/metrics")[1], "metrics of GPUs")
        rows.append(Row(SERVED, "ms", [1000 * (time.perf_counter() - side.began)]))
    return rows


def _weigh(side: Side, times: Times) -> list[Row]:
    """What rest costs, then what pods and a lost GPU ask."""
    register(side.node.directory / "registry")
    counts = [_count_when_settled(side, times)]
    memory = side.add_up(lambda part: part.memory_mib("Pss"))
    before, began = side.add_up(PluginProcess.run_seconds), time.perf_counter()
    time.sleep(times.quiet_seconds)
    share = (side.add_up(PluginProcess.run_seconds) - before) / (time.perf_counter() - began)
    counts.append(len(side.proxy.seen))
    side.node.kubelet.admit(1, PODS)
    counts.append(_count_when_settled(side, times))
    side.node.fake.push_event(LOST_GPU, XID_EVENT, XID_OFF_THE_BUS)
    counts.append(_count_when_settled(side, times))
    asked = [float(after - earlier) for earlier, after in pairwise([0, *counts])]
    asked[1] *= HOUR_SECONDS / times.quiet_seconds
    return [
        Row(MEMORY, "MiB", [memory]),
        Row(IDLE, "%", [100 * share]),
        *(Row(name, "", [count]) for name, count in zip(REQUESTS, asked, strict=True)),
        Row(ALL, "", [sum(asked)]),
    ]


def _count_when_settled(side: Side, times: Times) -> int:
    """Requests so far, once all that has happened is long over."""
    time.sleep(times.settle_seconds)
    return len(side.proxy.seen)

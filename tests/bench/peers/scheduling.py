"""What the extender adds to the placement of a pod: its filter and prioritize, beside a scheduler that has no extender.

The scheduler's time is that of a whole placement, from a pod that is made to a pod that is bound, with the API server
in it: the ratio says by how much an extender makes a placement longer.
"""

import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Final

from tests.bench.peers.api_server import real_api_server
from tests.bench.peers.claims import WRITERS
from tests.bench.peers.originals import Built
from tests.bench.peers.table import Goal, Turn
from tests.bench.rows import Row, index_rows
from tests.bench.whole import extender
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.extender import create_node, drop_everything
from tests.integration.cluster.pods import PATH, render_pod
from tests.integration.cluster.processes import wait_until

SIZES: Final = extender.SIZES
PODS: Final = 100
GPU: Final = "nvidia.com/gpu"
WARM: Final = 10
PATIENCE_SECONDS, POLL_SECONDS = 60.0, 0.002


def name_row(nodes: int) -> str:
    return f"filter + prioritize, {nodes:,} nodes, by a placement"


GOALS: Final = tuple(Goal(name_row(nodes), share) for nodes in SIZES for share in ("p50", "p99"))


def take_the_scheduler() -> Built:
    """The cluster's own, which lies among its programs."""
    return Built(Path("kube-scheduler"), "kube-scheduler, no extender")


def measure(_scheduler: Built, turns: int, sizes: tuple[int, ...] = SIZES, pods: int = PODS) -> Iterator[Turn]:
    """Nodes that exist in the API alone, made anew for each size."""
    with real_api_server() as cluster:
        cluster.start("scheduler")
        for _ in range(turns):
            ours, theirs = [], []
            for nodes in sizes:
                ours.append(Row(name_row(nodes), "ms", extender.ask(nodes)))
                theirs.append(Row(name_row(nodes), "ms", _place(cluster, nodes, pods)))
            yield index_rows(ours), index_rows(theirs)


def _place(cluster: Cluster, nodes: int, pods: int) -> list[float]:
    """Milliseconds of each pod with a GPU, one after the other."""
    names = tuple(f"node-{number:05}" for number in range(nodes))
    with futures.ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda name: create_node(cluster, name, {}, {GPU: "8"}), names))
    millis = [_place_pod(cluster, f"placed-{number}") for number in range(WARM + pods)]
    drop_everything(cluster, names)
    return millis[WARM:]


def _place_pod(cluster: Cluster, name: str) -> float:
    began = time.perf_counter()
    cluster.api.post(PATH, render_pod(name, limits={GPU: 1}))
    wait_until(
        f"{name} to be bound",
        lambda: _find_unbound(cluster, name),
        timeout_seconds=PATIENCE_SECONDS,
        poll_seconds=POLL_SECONDS,
    )
    return 1000 * (time.perf_counter() - began)


def _find_unbound(cluster: Cluster, name: str) -> str | None:
    pod = cluster.api.get(f"{PATH}/{name}")
    return None if pod["spec"].get("nodeName") else str(pod["status"])

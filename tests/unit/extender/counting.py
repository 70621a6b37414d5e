"""A cluster of two nodes as the extender counts it, and pods that are promised GPUs there."""

from nodeagent.extender.cluster import Cluster
from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.extender.place_pod import Fractions
from nodeagent.model.scheduling import SeenPod
from tests.support.placement import six
from tests.support.scheduling import PROFILES, FakeScheduler, limit, make_seen_node

INDEX, UUID = "tencent.com/predicate-gpu-idx-", "tencent.com/predicate-gpu-uuid-"
HALF = limit(50, 4)


def make_cluster() -> Cluster:
    """Nodes `n` and `m`, with six GPUs each."""
    cluster = Cluster(PROFILES, assume_seconds=60.0)
    for name in "nm":
        cluster.note_node(make_seen_node(name, six()))
    return cluster


def used(cluster: Cluster, node: str = "n") -> dict[int, int]:
    account = cluster.find_space(node)
    assert account is not None
    return {room.index: room.cores_used for room in account.space.rooms if room.users}


def choose(node: str, *indexes: int, time: str = "1") -> dict[str, str]:
    chosen = {f"{INDEX}{number}": str(index) for number, index in enumerate(indexes)}
    return {"tencent.com/predicate-node": node, "tencent.com/predicate-time": time, **chosen}


def read(cluster: Cluster, pod: SeenPod) -> GpuPod:
    found = cluster.read_pod(pod)
    assert found is not None
    return found


def promise(cluster: Cluster, pod: SeenPod, node: str, written: dict[str, str] | None, now: float = 0.0) -> Fractions:
    scheduler = FakeScheduler()
    scheduler.cluster = cluster
    account = cluster.find_space(node)
    assert account is not None
    placement = scheduler.decider.__class__(cluster, "pack").place(read(cluster, pod), node)
    cluster.assume(read(cluster, pod), node, placement.parts, written, now + 60)
    return placement.parts

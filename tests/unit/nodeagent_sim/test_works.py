"""Who works on simulated GPUs."""

from nodeagent.model.allocation import PodIdentity
from nodeagent_sim.cluster import plan_works
from nodeagent_sim.gpus.containers import FractionWork
from tests.support.fractions import make_bound, make_table, part
from tests.support.gpus import gpu_uuid


def test_containers_of_running_pods_work_on_each_of_their_parts() -> None:
    """One that has ended does not, nor one of which the name is not known yet."""
    running, gone = PodIdentity("ml", "train", "uid-1"), PodIdentity("ml", "gone", "uid-2")
    nameless = PodIdentity("", "", "uid-3")
    table = make_table(
        bindings=[
            make_bound(2, (), part(0, 100, 8), part(1, 100, 8), pod=running, name="nodeagent.io/part=p1"),
            make_bound(1, (), part(2, 30, 4), pod=gone),
            make_bound(3, (), part(2, 30, 4), pod=nameless),
        ]
    )
    works = plan_works(table, frozenset({"uid-1", "uid-3"}))
    assert works == tuple(
        FractionWork(
            pod="ml/train", pod_uid="uid-1", container="main", folder="p1",
            gpu=gpu_uuid(index), cores=100, memory_mib=8192,
        )
        for index in (0, 1)
    )  # fmt: skip

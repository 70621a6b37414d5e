"""Use under the metric names of gpu-manager."""

from nodeagent.components.exporter.exposition import render_exposition
from nodeagent.components.exporter.families.other_names import build_gpu_manager_families
from nodeagent.components.usage.measure import measure
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.fractions.display import tell_use
from tests.support.samples import make_inventory
from tests.support.texts.exposition import read_text
from tests.unit.components.usage.builders import START, bind, place, run, sample, tabulate


def test_each_gpu_and_the_total_are_told_under_the_old_names() -> None:
    """Label for label; what was asked for is told as a total alone."""
    now = NodeSample(time_seconds=START, gpus=(*sample(run(10, 12, 3)).gpus, *sample(run(10, 30), index=1).gpus))
    usage = measure(tabulate(bind(1, "a", gpus=(0, 1), cores=100, gib=8)), make_inventory(), now, {10: place("a")}, {})
    families = build_gpu_manager_families(tell_use(usage, make_inventory()), "n1")
    series = read_text(render_exposition(families).decode())
    pod = {"pod_name": "a", "namespace": "ml", "node": "n1", "container_name": "main"}
    told = {(name, *labels): value for (name, labels), value in series.items()}
    assert told == {
        (name, *sorted((pod | {key: text}).items())): value
        for name, key, text, value in (
            ("container_gpu_utilization", "gpu", "gpu0", 12),
            ("container_gpu_utilization", "gpu", "gpu1", 30),
            ("container_gpu_utilization", "gpu", "total", 42),
            ("container_gpu_memory_total", "gpu_memory", "gpu0", 3072),
            ("container_gpu_memory_total", "gpu_memory", "gpu1", 1024),
            ("container_gpu_memory_total", "gpu_memory", "total", 4096),
            ("container_request_gpu_utilization", "req_of_gpu", "total", 2),
            ("container_request_gpu_memory", "req_of_gpu_memory", "total", 16384),
        )
    }

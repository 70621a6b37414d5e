"""Use of fractions under the metric names of gpu-manager and of HAMi."""

from msgspec.structs import replace

from nodeagent.components.exporter.exposition import render_exposition
from nodeagent.components.exporter.families.other_names import build_gpu_manager_families, build_hami_families
from nodeagent.components.usage.measure import measure
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.usage import FractionUsage
from nodeagent.rules.fractions.display import describe_use
from tests.support.placement import GIB
from tests.support.samples import make_inventory, make_uuid
from tests.support.texts.exposition import read_text
from tests.unit.components.usage.builders import START, bind, place, run, sample, tabulate


def test_each_gpu_and_the_total_are_told_under_the_old_names() -> None:
    """Label for label; what was asked for is told as a total alone."""
    now = NodeSample(time_seconds=START, gpus=(*sample(run(10, 12, 3)).gpus, *sample(run(10, 30), index=1).gpus))
    usage = measure(tabulate(bind(1, "a", gpus=(0, 1), cores=100, gib=8)), make_inventory(), now, {10: place("a")}, {})
    families = build_gpu_manager_families(describe_use(usage, make_inventory()), "n1")
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


def test_each_gpu_and_each_part_is_told_under_the_names_of_hami() -> None:
    """Label for label; what is not known, and a GPU that this node does not have, has no series."""
    first = replace(sample(run(10, 12, 3)).gpus[0], memory_used_bytes=5 * GIB, gpu_utilization_percent=40)
    stranger = GpuSample(uuid=make_uuid(7), memory_used_bytes=1)
    now = NodeSample(time_seconds=START, gpus=(first, stranger))
    node = make_inventory()
    usage = measure(tabulate(bind(1, "a", gpus=(0, 1), cores=50, gib=8)), node, now, {10: place("a")}, {})
    series = read_text(render_exposition(build_hami_families(usage, node, now, "n1")).decode())
    gpu = {
        "node": "n1",
        "device_index": "0",
        "device_uuid": make_uuid(0),
        "device_type": node.gpus[0].name,
    }
    part = {"namespace": "ml", "pod": "a", "container": "main"}
    one = part | {"vdevice_index": "0", "device_uuid": make_uuid(0)}
    two = part | {"vdevice_index": "1", "device_uuid": make_uuid(1)}
    assert {(name, *labels): value for (name, labels), value in series.items()} == {
        (name, *sorted(labels.items())): value
        for name, labels, value in (
            ("hami_host_gpu_memory_used_bytes", gpu, 5 * GIB),
            ("hami_host_gpu_utilization_ratio", gpu, 40),
            ("hami_vgpu_memory_used_bytes", one, 3 * GIB),
            ("hami_vgpu_memory_limit_bytes", one, 8 * GIB),
            ("hami_vgpu_memory_limit_bytes", two, 8 * GIB),
            ("hami_container_device_memory_bytes", one, 3 * GIB),
            ("hami_container_device_utilization_ratio", one, 12),
        )
    }


def test_without_a_sample_nothing_is_told_of_the_gpus() -> None:
    """It may be old, or there was none yet."""
    assert render_exposition(build_hami_families(FractionUsage(), make_inventory(), None, "n1")) == b""

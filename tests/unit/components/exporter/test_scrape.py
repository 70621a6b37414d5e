"""Formats and compression of one answer."""

import gzip

import pytest
from msgspec.structs import replace

from nodeagent.components.exporter.exposition import Block, make_family, render_families
from nodeagent.components.exporter.families.gpus import build_standing_families
from nodeagent.components.exporter.families.node_status import NodeStatus, build_status_families, does_driver_work
from nodeagent.components.exporter.scrape import RenderedBlocks, join_scrape, wants_gzip, wants_openmetrics
from nodeagent.components.exporter.series.xid_history import XidHistory
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import XidReported
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.model.telemetry import NodeSample
from tests.support.samples import make_inventory, make_uuid
from tests.support.texts.exposition import read_openmetrics, read_text, read_types
from tests.unit.components.exporter.builders import find, find_value, know, make_node, make_sample, read_series, render

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,"
    "*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=high", False),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", False),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", False),
    ],
)
def test_openmetrics_is_served_to_who_prefers_it(accept: str, expected: bool) -> None:
    """In a version we write, and at least as much as text."""
    assert wants_openmetrics(accept) is expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("", False), ("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("*", True), ("br", False)],
)
def test_compression_is_only_used_when_allowed(accept: str, expected: bool) -> None:
    """By name or by star, unless its quality is zero."""
    assert wants_gzip(accept) is expected


def blocks() -> list[Block]:
    """A node's series."""
    return render(make_node(make_sample(0), make_sample(1)), know(gpus=2))


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("standing", [[], blocks()], ids=["nothing standing", "a node"])
def test_the_compressed_body_is_the_plain_one(openmetrics: bool, standing: list[Block]) -> None:
    """Two pieces compressed apart are one valid stream with the right checksum and size, again and again."""
    part = RenderedBlocks(standing)
    for count in (1, 2):
        fresh = render_families([make_family("up_total", "counter", "u", [((), count)])])
        plain = join_scrape(part, fresh, openmetrics=openmetrics, gzip=False)
        assert gzip.decompress(join_scrape(part, fresh, openmetrics=openmetrics, gzip=True)) == plain
        assert plain.endswith(b"# EOF\n") is openmetrics


def test_both_formats_say_the_same() -> None:
    """Sample for sample; what OpenMetrics does not call a counter is of unknown type there."""
    inventory = make_inventory(2)
    xids = XidHistory()
    xids.note(XidReported(gpu=make_uuid(1), xid=79), 1.5)
    status = build_status_families(_status())
    everything = [
        *blocks(),
        *render_families(build_standing_families(inventory, None, xids, frozenset())),
        *render_families(status),
    ]
    part = RenderedBlocks(everything)
    text = join_scrape(part, [], openmetrics=False, gzip=False).decode()
    other = join_scrape(part, [], openmetrics=True, gzip=False).decode()
    assert read_openmetrics(other) == read_text(text)
    types = read_types(other)
    assert types["nodeagent_gpu_xid_errors"] == "counter"
    assert types["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == "unknown"
    assert types["DCGM_FI_DEV_SM_CLOCK"] == "gauge"


def _status() -> NodeStatus:
    device = AdvertisedDevice(id=DeviceId(make_uuid(0)), healthy=True)
    resource = AdvertisedResource(name=ResourceName("nvidia.com/gpu"), socket="s", registered=True, devices=(device,))
    return NodeStatus(
        started_seconds=5.0,
        driver_works=True,
        runtime=RuntimeState(kind=RuntimeKind.CONTAINERD, restart_needed="systemctl restart containerd"),
        plugin=PluginState(resources=(resource,)),
        inventory=make_inventory(2),
        driver_ready_seconds=6.0,
        devices_seen_seconds=7.0,
        node="node-a",
        cuda_tested=True,
    )


def test_node_status_has_the_operators_names() -> None:
    """Each gauge from what the part said."""
    series = read_series(render_families(build_status_families(_status())))
    assert {name.removeprefix("gpu_operator_"): value for (name, _), value in series.items()} == {
        "node_metrics_ready_ts_seconds": 5,
        "node_driver_ready": 1,
        "node_toolkit_ready": 0,
        "node_plugin_ready": 1,
        "node_cuda_ready": 1,
        "node_driver_validation": 1,
        "node_driver_validation_last_success_ts_seconds": 6,
        "node_device_plugin_devices_total": 1,
        "node_device_plugin_validation_last_success_ts_seconds": 7,
        "nvidia_pci_devices_total": 2,
    }
    assert {pairs for _, pairs in series} == {(("node", "node-a"),)}


@pytest.mark.parametrize(
    ("driver", "age", "works"),
    [
        (None, 0.0, None),
        (DriverState(phase=DriverPhase.READY), None, True),
        (DriverState(phase=DriverPhase.READY), 1.9, True),
        (DriverState(phase=DriverPhase.READY), 2.1, False),
        (DriverState(phase=DriverPhase.STUCK), 0.0, False),
        (DriverState(phase=DriverPhase.STUCK), None, False),
    ],
)
def test_a_driver_works_only_while_it_answers(
    driver: DriverState | None, age: float | None, *, works: bool | None
) -> None:
    """A call that hangs leaves the last look good, and the readings old: then it does not work, for what pods feel."""
    sample = None if age is None else NodeSample(time_seconds=100.0)
    assert does_driver_work(driver, sample, 100.0 + (age or 0.0)) is works


def test_cuda_is_said_to_work_only_where_it_is_tried() -> None:
    """Without the smoke test nobody knows, and with it a driver that is not ready has not passed it."""
    untested = read_series(render_families(build_status_families(replace(_status(), cuda_tested=False))))
    assert not find(untested, "gpu_operator_node_cuda_ready")
    failed = replace(_status(), driver_works=False)
    assert find_value(read_series(render_families(build_status_families(failed))), "gpu_operator_node_cuda_ready") == 0


def test_a_part_that_has_said_nothing_has_no_status() -> None:
    """Unknown is not zero."""
    series = read_series(render_families(build_status_families(NodeStatus(started_seconds=1.0))))
    assert [name for name, _ in series] == ["gpu_operator_node_metrics_ready_ts_seconds"]


def test_a_lost_gpu_stays_visible_as_lost() -> None:
    """Presence falls to zero while the device's readings are gone; XIDs and verdicts stay."""
    inventory, lost = make_inventory(2), make_uuid(1)
    xids = XidHistory()
    xids.note(XidReported(gpu=lost, xid=79), 12.5)
    health = HealthReport(generation=1, devices=(_verdict(lost), _verdict(GpuUuid("GPU-gone"))))
    series = read_series(render_families(build_standing_families(inventory, health, xids, frozenset({lost}))))
    assert find_value(series, "nodeagent_gpu_present", gpu="0") == 1
    assert find_value(series, "nodeagent_gpu_present", gpu="1") == 0
    assert find_value(series, "nodeagent_gpu_xid_errors_total", xid="79", UUID=lost) == 1
    assert find_value(series, "nodeagent_gpu_xid_last_seen_timestamp_seconds", xid="79") == 12.5
    assert len(find(series, "nodeagent_device_health", verdict="unhealthy", device=lost)) == 1
    assert len(find(series, "nodeagent_device_health")) == 1
    assert find_value(series, "nodeagent_gpu_info", gpu="0", model="NVIDIA H100 80GB HBM3", mig="off") == 1


def _verdict(gpu: GpuUuid) -> DeviceHealth:
    device: DeviceUuid = gpu
    return DeviceHealth(device=device, gpu=gpu, verdict=Verdict.UNHEALTHY, since_seconds=0.0)


def test_nothing_stands_before_the_first_inventory() -> None:
    """No family without a sample."""
    assert render_families(build_standing_families(None, None, XidHistory(), frozenset())) == []

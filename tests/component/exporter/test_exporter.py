"""The exporter on a bus of its own: what it shows, when, and what it leaves out."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.exporter.component import FIELDS_FILE_POLL_SECONDS
from nodeagent.components.usage.measure import measure
from nodeagent.edge.http.messages import Request, Response
from nodeagent.model.events import XidReported
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample
from tests.component.exporter.harness import UUID, Bench, Places
from tests.support.samples import make_inventory, make_uuid
from tests.support.texts.exposition import read_text
from tests.support.virtual_time import FakeClock
from tests.unit.components.exporter.builders import (
    allocate,
    find,
    find_value,
    know,
    make_node,
    make_process,
    make_sample,
    make_table,
)
from tests.unit.components.usage.builders import bind, run, sample, tabulate

pytestmark = pytest.mark.virtual_time


async def test_a_sample_is_rendered_once_and_served_until_the_next(clock: FakeClock) -> None:
    """Scrapes ask nobody; two of them read the same device series, with the pod that holds the device."""
    bench = Bench(clock)
    async with bench.running():
        await bench.publish(make_sample(), known=know(allocate("bert-0", UUID)))
        first, second = bench.read(), bench.read()
    assert find_value(first, "DCGM_FI_DEV_SM_CLOCK", pod="bert-0", Hostname="node-a") == 1980
    assert find_value(second, "nodeagent_renders_total") == 1
    assert find(first, "DCGM_FI_DEV_GPU_TEMP") == find(second, "DCGM_FI_DEV_GPU_TEMP")


async def test_before_the_first_sample_the_agent_speaks_of_itself(clock: FakeClock) -> None:
    """A node without a driver has metrics too, and no family of DCGM."""
    series = Bench(clock).read()
    assert find_value(series, "nodeagent_build_info", version="1.2.3") == 1
    assert not any(name.startswith("DCGM") for name, _ in series)
    assert find_value(series, "nodeagent_samples_stale") == 0


async def test_an_old_sample_is_marked_by_its_age_and_then_left_out(clock: FakeClock) -> None:
    """The age shows from the first second; past the limit old numbers are not shown as new ones."""
    bench = Bench(clock, stale_after_seconds=30.0)
    async with bench.running():
        await bench.publish(make_sample())
        await anyio.sleep(20)
        young = bench.read()
        await anyio.sleep(20)
        old = bench.read()
    assert find_value(young, "nodeagent_sample_age_seconds") == pytest.approx(20.1, abs=0.2)
    assert find(young, "DCGM_FI_DEV_SM_CLOCK")
    assert not any(name.startswith(("DCGM", "nodeagent_pod")) for name, _ in old)
    assert find_value(old, "nodeagent_samples_stale") == 1
    assert find_value(old, "nodeagent_gpu_present", gpu="0") == 1


async def test_a_lost_gpu_is_shown_as_lost_and_its_neighbours_as_they_are(clock: FakeClock) -> None:
    """One ill GPU costs its own readings only."""
    bench = Bench(clock)
    async with bench.running():
        await bench.publish(make_sample(0), make_sample(1))
        before = bench.read()
        await bench.publish(GpuSample(uuid=make_uuid(0), lost="GPU is lost"), make_sample(1))
        after = bench.read()
    assert find_value(before, "nodeagent_gpu_present", gpu="0") == 1
    assert find_value(after, "nodeagent_gpu_present", gpu="0") == 0
    assert find_value(after, "nodeagent_gpus", state="lost") == 1
    assert not find(after, "DCGM_FI_DEV_SM_CLOCK", gpu="0")
    assert find_value(after, "DCGM_FI_DEV_SM_CLOCK", gpu="1") == 1980


async def test_xids_are_counted_and_survive_a_restart_of_the_component(clock: FakeClock) -> None:
    """A crash of the exporter must not turn counters back."""
    bench = Bench(clock)
    for _ in range(2):
        async with bench.running():
            await bench.publish(make_sample())
            bench.bus.publish_fact(XidReported(gpu=UUID, xid=79), source="inventory")
            await anyio.sleep(1)
            await bench.publish(make_sample(sm_clock_mhz=1))
    series = bench.read()
    assert find_value(series, "nodeagent_gpu_xid_errors_total", xid="79", UUID=UUID) == 2
    assert find_value(series, "DCGM_FI_DEV_XID_ERRORS", err_code="79") == 79


async def test_processes_are_charged_to_their_pods(clock: FakeClock) -> None:
    """The host is asked once a sample for the processes there are."""
    places = Places({7: ProcessPlace(pod_uid="uid-b")})
    bench = Bench(clock, places)
    holders = (allocate("a", f"{UUID}::0", uid="uid-a"), allocate("b", f"{UUID}::1", uid="uid-b"))
    async with bench.running():
        await bench.publish(make_sample(processes=(make_process(7, sm=30),)), known=know(*holders))
        series = bench.read()
    assert places.asked == [(7,)]
    assert find_value(series, "nodeagent_pod_gpu_sm_ratio", pod="b") == 0.3


async def test_processes_are_not_looked_up_when_switched_off(clock: FakeClock) -> None:
    """Nobody's control groups are read for nothing."""
    places = Places({})
    bench = Bench(clock, places, processes=False)
    async with bench.running():
        await bench.publish(make_sample(processes=(make_process(7),)))
    assert places.asked == []


async def test_a_pod_that_is_gone_is_gone_from_the_next_sample_on(clock: FakeClock) -> None:
    """No series outlives its pod by more than an interval."""
    bench = Bench(clock)
    async with bench.running():
        await bench.publish(make_sample(), known=know(allocate("a", UUID)))
        bench.bus.publish_state(make_table(), source="allocations")
        await bench.publish(make_sample(sm_clock_mhz=2))
        series = bench.read()
    assert not any("a" in dict(labels).values() for _, labels in series if "pod" in dict(labels))


async def test_settings_of_labels_take_effect_at_the_next_sample(clock: FakeClock) -> None:
    """A reload needs no restart."""
    bench = Bench(clock)
    async with bench.running():
        await bench.publish(make_sample())
        settings = bench.live.now
        bench.live.replace(replace(settings, metrics=replace(settings.metrics, host_label="hostname")))
        await bench.publish(make_sample(sm_clock_mhz=2))
        series = bench.read()
    assert find_value(series, "DCGM_FI_DEV_SM_CLOCK", hostname="node-a") == 2


async def test_a_changed_list_is_taken_without_an_empty_scrape(clock: FakeClock, tmp_path: Path) -> None:
    """The list is looked at every few seconds; what cannot be used is a condition that goes when it is mended."""
    file = tmp_path / "fields.csv"
    file.write_text("DCGM_FI_DEV_PSTATE, gauge, p\nDCGM_FI_DEV_GPU_TEMP, gauge, t\nnonsense\n")
    bench = Bench(clock, fields_file=file)
    async with bench.running():
        await bench.publish(make_sample())
        first = bench.read()
        problems = [(one.code, one.key) for one in bench.conditions.active()]
        file.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, s\n")
        await anyio.sleep(FIELDS_FILE_POLL_SECONDS + 1)
        await bench.publish(make_sample(sm_clock_mhz=7))
        second = bench.read()
    assert find(first, "DCGM_FI_DEV_GPU_TEMP")
    assert find_value(first, "nodeagent_unusable_fields") == 1
    assert problems == [("metrics-fields-unusable", f"{file}:3")]
    assert find_value(second, "DCGM_FI_DEV_SM_CLOCK") == 7
    assert not find(second, "DCGM_FI_DEV_GPU_TEMP")
    assert bench.conditions.active() == ()


async def test_readings_on_demand_are_asked_for_with_the_list_that_names_them(clock: FakeClock, tmp_path: Path) -> None:
    """The sampler is told what the list needs, and that it needs nothing more once the list is another."""
    file = tmp_path / "fields.csv"
    file.write_text("DCGM_FI_DEV_MAX_SM_CLOCK, gauge, most\n")
    bench = Bench(clock, fields_file=file)
    async with bench.running():
        await anyio.sleep(2 * FIELDS_FILE_POLL_SECONDS)
        await bench.publish(make_sample(extras={"call/max_sm_clock": 1980.0}))
        assert find_value(bench.read(), "DCGM_FI_DEV_MAX_SM_CLOCK") == 1980
        file.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, s\n")
        await anyio.sleep(FIELDS_FILE_POLL_SECONDS + 1)
    assert bench.wanted == [("call/max_sm_clock",), ()]


async def test_a_list_that_is_not_there_leaves_the_one_before_in_force(clock: FakeClock, tmp_path: Path) -> None:
    """The default list at first; the last good one later; a condition says why."""
    bench = Bench(clock, fields_file=tmp_path / "missing.csv")
    async with bench.running():
        await bench.publish(make_sample())
        series = bench.read()
    assert find(series, "DCGM_FI_DEV_SM_CLOCK")
    (condition,) = bench.conditions.active()
    assert condition.code == "metrics-fields-unusable"
    assert "check that the path is right" in condition.detail


async def test_a_list_that_is_back_as_it_was_is_no_trouble_any_more(clock: FakeClock, tmp_path: Path) -> None:
    """A mount that is away for a moment brings the same list back: its condition goes, and what it said of it stays."""
    file, away = tmp_path / "fields.csv", tmp_path / "away"
    file.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, s\nnonsense\n")
    bench = Bench(clock, fields_file=file)
    async with bench.running():
        file.rename(away)
        await anyio.sleep(FIELDS_FILE_POLL_SECONDS + 1)
        missing = [one.key for one in bench.conditions.active()]
        away.rename(file)
        await anyio.sleep(FIELDS_FILE_POLL_SECONDS + 1)
        back = [one.key for one in bench.conditions.active()]
    assert missing == [str(file)]
    assert back == [f"{file}:2"]


@pytest.mark.parametrize(
    ("headers", "content_type", "coding"),
    [
        ({}, "text/plain; version=0.0.4; charset=utf-8", None),
        ({"accept-encoding": "gzip"}, "text/plain; version=0.0.4; charset=utf-8", "gzip"),
        (
            {"accept": "application/openmetrics-text; version=1.0.0"},
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            None,
        ),
    ],
)
async def test_an_answer_has_the_form_that_was_asked_for(
    clock: FakeClock, headers: dict[str, str], content_type: str, coding: str | None
) -> None:
    """Format by Accept, compression by Accept-Encoding, and nothing that a cache could mix up."""
    answer = await Bench(clock).exporter.answer(Request("GET", "/metrics", headers=headers))
    assert isinstance(answer, Response)
    assert answer.content_type == content_type
    assert answer.headers.get("Content-Encoding") == coding
    assert answer.headers["Vary"] == "Accept, Accept-Encoding"


async def test_scrapes_that_come_together_share_an_answer(clock: FakeClock) -> None:
    """A moment later, or after another sample, the answer is new."""
    bench = Bench(clock)
    request = Request("GET", "/metrics")

    async def ask() -> bytes:
        answer = await bench.exporter.answer(request)
        assert isinstance(answer, Response)
        return answer.body

    async with bench.running():
        await bench.publish(make_sample())
        first = await ask()
        assert await ask() is first
        await anyio.sleep(0.2)
        second = await ask()
        assert second != first
        await bench.publish(make_sample(sm_clock_mhz=3))
        third = await ask()
    assert find_value(read_text(second.decode()), "nodeagent_scrapes_total") == 2
    assert find_value(read_text(third.decode()), "DCGM_FI_DEV_SM_CLOCK") == 3


async def test_node_status_remembers_when_it_was_last_good(clock: FakeClock) -> None:
    """The operator's alerts ask how long ago devices were last seen."""
    bench = Bench(clock)
    device = AdvertisedDevice(id=DeviceId(UUID), healthy=True)
    resource = AdvertisedResource(name=ResourceName("nvidia.com/gpu"), socket="s", registered=True, devices=(device,))
    async with bench.running():
        await bench.publish(make_sample())
        bench.bus.publish_state(PluginState(resources=(resource,)), source="deviceplugin")
        seen = clock.wall()
        bench.read()
        await anyio.sleep(10)
        bench.bus.publish_state(PluginState(), source="deviceplugin")
        series = bench.read()
    name = "gpu_operator_node_device_plugin_validation_last_success_ts_seconds"
    assert find_value(series, name) == pytest.approx(seen, abs=1)
    assert find_value(series, "gpu_operator_node_device_plugin_devices_total") == 0


async def test_a_large_node_lets_others_run_while_it_is_rendered(clock: FakeClock, monkeypatch: Any) -> None:
    """Between blocks the loop is free: an Allocate does not wait for a hundred instances."""
    monkeypatch.setattr("nodeagent.components.exporter.component.SLICE_SECONDS", 0.0)
    bench = Bench(clock)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with bench.running(), anyio.create_task_group() as tasks:
        known = know(gpus=16)
        bench.bus.publish_state(known.inventory, source="inventory")
        tasks.start_soon(count)
        bench.bus.publish_state(make_node(*map(make_sample, range(16)), seconds=clock.wall()), source="inventory")
        while not find(bench.read(), "nodeagent_renders_total") or not find_value(
            bench.read(), "nodeagent_renders_total"
        ):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert turns > 10


async def test_a_sample_of_gpus_that_nobody_knows_is_not_rendered(clock: FakeClock) -> None:
    """Without an inventory there is no name to show a reading under."""
    bench = Bench(clock)
    async with bench.running():
        bench.bus.publish_state(make_node(make_sample(), seconds=clock.wall()), source="inventory")
        await anyio.sleep(1)
        assert find_value(bench.read(), "nodeagent_renders_total") == 0


async def test_parts_of_gpus_are_told_where_pods_are(clock: FakeClock) -> None:
    """By the newest measurement, and not where no pod is to be named."""
    usage = measure(tabulate(bind(1, "a")), make_inventory(), None, {}, {})
    for pods in (True, False):
        bench = Bench(clock, pod_attribution=pods)
        assert not find(bench.read(), "nodeagent_fraction_info")
        bench.bus.publish_state(usage, source="usage")
        assert bool(find(bench.read(), "nodeagent_fraction_info", pod="a")) == pods


async def test_old_names_are_told_where_they_are_asked_for(clock: FakeClock) -> None:
    """And nowhere else: a dashboard would count them twice."""
    bench = Bench(clock)
    empty = await bench.exporter.other_names.answer_gpu_manager(Request("GET", "/metric"))
    usage = measure(tabulate(bind(1, "a")), make_inventory(), sample(run(10)), {}, {})
    bench.bus.publish_state(make_inventory(), source="inventory")
    bench.bus.publish_state(usage, source="usage")
    answer = await bench.exporter.other_names.answer_gpu_manager(Request("GET", "/metric"))
    assert isinstance(answer, Response)
    assert isinstance(empty, Response)
    assert empty.body == b""
    assert find_value(read_text(answer.body.decode()), "container_gpu_utilization", gpu="total", node="node-a") == 10
    assert not find(bench.read(), "container_gpu_utilization")


async def test_names_of_hami_are_told_where_they_are_asked_for(clock: FakeClock) -> None:
    """What is promised as long as it stands; what is used while the sample is not old."""
    bench = Bench(clock)
    request = Request("GET", "/metrics")
    empty = await bench.exporter.other_names.answer_hami(request)
    gpus = tuple(replace(gpu, memory_used_bytes=1) for gpu in sample(run(10)).gpus)
    now = replace(sample(), gpus=gpus, time_seconds=clock.wall())
    bench.bus.publish_state(make_inventory(), source="inventory")
    bench.bus.publish_state(measure(tabulate(bind(1, "a")), make_inventory(), now, {}, {}), source="usage")
    bench.bus.publish_state(replace(now, time_seconds=clock.wall() - 1000), source="inventory")
    late = await bench.exporter.other_names.answer_hami(request)
    bench.bus.publish_state(now, source="inventory")
    fresh = await bench.exporter.other_names.answer_hami(request)
    assert isinstance(empty, Response)
    assert isinstance(late, Response)
    assert isinstance(fresh, Response)
    assert empty.body == b""
    assert find_value(read_text(fresh.body.decode()), "hami_vgpu_memory_limit_bytes", pod="a") > 0
    assert find(read_text(fresh.body.decode()), "hami_host_gpu_memory_used_bytes", node="node-a")
    assert not find(read_text(late.body.decode()), "hami_host_gpu_memory_used_bytes")
    assert not find(bench.read(), "hami_vgpu_memory_limit_bytes")

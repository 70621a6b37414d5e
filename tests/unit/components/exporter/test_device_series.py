"""The series of DCGM exporter, label by label."""

import pytest
from msgspec.structs import replace

from nodeagent.components.exporter.catalogue.all_fields import FIELDS
from nodeagent.components.exporter.catalogue.field import LabelField
from nodeagent.components.exporter.catalogue.selection import parse_selection, select_defaults
from nodeagent.components.exporter.exposition import join_text
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.events import XidReported
from nodeagent.model.gpu import Fabric, FabricPhase, Inventory, Mig
from nodeagent.model.telemetry import ProfilingSample
from tests.support.samples import make_gpu, make_mig, make_uuid
from tests.unit.components.exporter.builders import (
    START,
    allocate,
    find,
    find_value,
    know,
    make_mig_shares,
    make_node,
    make_sample,
    read_series,
    render,
)

UUID = make_uuid(0)
FIXED = f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:10:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3"'


def request(metrics: MetricsSettings | None = None, *names: str, host: str = "") -> SeriesSelection:
    listed = "\n".join(f"{name}, gauge, h" for name in names or ("DCGM_FI_DEV_SM_CLOCK",))
    return SeriesSelection(parse_selection(listed), metrics or MetricsSettings(), host)


def lines_of(text: bytes, name: str) -> list[str]:
    """The lines of a family without its head."""
    return [line for line in text.decode().splitlines() if line.startswith(f"{name}{{")]


def test_labels_have_the_order_of_dcgm_exporter() -> None:
    """Fixed labels, host, label fields, then the pod in the order of the keys: byte for byte."""
    requests = SeriesSelection(select_defaults(), host="node-a")
    text = join_text(render(make_node(make_sample()), know(allocate("bert-0", UUID, container="train")), requests))
    labels = f'{FIXED},Hostname="node-a",DCGM_FI_DRIVER_VERSION="580.95.05"'
    pod = 'container="train",namespace="ml",pod="bert-0"'
    assert lines_of(text, "DCGM_FI_DEV_SM_CLOCK") == [f"DCGM_FI_DEV_SM_CLOCK{{{labels},{pod}}} 1980"]
    assert b"# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n" in text


def test_a_free_gpu_has_no_pod_labels_at_all() -> None:
    """Cost tools select by `container!=""`: an empty label is not there."""
    text = join_text(render(make_node(make_sample()), know(), request()))
    assert lines_of(text, "DCGM_FI_DEV_SM_CLOCK") == [f"DCGM_FI_DEV_SM_CLOCK{{{FIXED}}} 1980"]


@pytest.mark.parametrize(
    ("metrics", "host", "expected"),
    [
        (MetricsSettings(), "n", f'{FIXED},Hostname="n",container="main",namespace="ml",pod="p"'),
        (MetricsSettings(host_label="hostname"), "n", f'{FIXED},hostname="n",container="main",namespace="ml",pod="p"'),
        (MetricsSettings(host_label="none"), "n", f'{FIXED},container="main",namespace="ml",pod="p"'),
        (MetricsSettings(pod_uid=True), "", f'{FIXED},container="main",namespace="ml",pod="p",pod_uid="u"'),
        (
            MetricsSettings(old_namespace_labels=True),
            "",
            f'{FIXED.replace("UUID=", "uuid=")},container_name="main",pod_name="p",pod_namespace="ml"',
        ),
        (
            MetricsSettings(replace_blanks_in_model_name=True),
            "",
            f'{FIXED.replace("A H100 80GB H", "A-H100-80GB-H")},container="main",namespace="ml",pod="p"',
        ),
    ],
)
def test_each_switch_changes_its_labels_only(metrics: MetricsSettings, host: str, expected: str) -> None:
    """Host label, pod UID, old names and blanks, one at a time."""
    text = join_text(render(make_node(make_sample()), know(allocate("p", UUID, uid="u")), request(metrics, host=host)))
    assert lines_of(text, "DCGM_FI_DEV_SM_CLOCK") == [f"DCGM_FI_DEV_SM_CLOCK{{{expected}}} 1980"]


def test_values_are_written_as_dcgm_exporter_writes_them() -> None:
    """Doubles with six decimals, all else as whole numbers in the units of the names."""
    names = (
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_DEV_ECC_CURRENT",
    )
    known = know()
    gpu = replace(known.inventory.gpus[0], ecc_enabled=True)
    text = join_text(
        render(make_node(make_sample()), Knowledge(Inventory(generation=1, gpus=(gpu,))), request(None, *names))
    )
    values = [lines_of(text, name)[0].rsplit(" ", 1)[1] for name in names]
    assert values == ["651.250000", "20480", "0.900000", "1"]


def test_what_the_hardware_does_not_give_is_absent() -> None:
    """No zero, no NaN: before Hopper there are no ratios, and a lost GPU has no readings."""
    old = make_sample(0, profiling=None, memory_temperature_celsius=None)
    lost = make_sample(1)
    lost = type(lost)(uuid=lost.uuid, lost="fell off the bus")
    series = read_series(render(make_node(old, lost), know(gpus=2)))
    assert not find(series, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    assert not find(series, "DCGM_FI_DEV_MEMORY_TEMP")
    assert len(find(series, "DCGM_FI_DEV_GPU_TEMP")) == 1


def test_every_field_of_the_catalogue_can_be_read() -> None:
    """A sample in which everything is set gives every numeric field."""
    counts = {
        name: 1
        for name in type(make_sample()).__struct_fields__
        if name not in {"uuid", "lost", "profiling", "processes", "mig", "extras", "unreadable"}
    }
    ratios = dict.fromkeys(ProfilingSample.__struct_fields__, 0.5)
    counts["memory_total_bytes"] = 3
    sample = make_sample(0, **counts, profiling=ProfilingSample(**ratios))
    gpu = replace(
        make_gpu(mig=Mig(enabled=False, pending=False)),
        ecc_enabled=True,
        persistence_mode=True,
        power_limit_milliwatts=700_000,
        brand="NVIDIA",
        serial="1",
        vbios_version="96",
        fabric=Fabric(phase=FabricPhase.COMPLETED, cluster_uuid="c"),
        pci=replace(make_gpu().pci, link_generation_max=5, link_width_max=16),
    )
    known = Knowledge(Inventory(generation=1, gpus=(gpu,)), know().driver)
    listed = "\n".join(f"{field.name}, {'label' if isinstance(field, LabelField) else 'gauge'}, h" for field in FIELDS)
    series = NodeSeries()
    series.xids.note(XidReported(gpu=UUID, xid=79), START)
    names = {
        name
        for name, _ in read_series(render(make_node(sample), known, SeriesSelection(parse_selection(listed)), series))
    }
    assert {field.name for field in FIELDS if not isinstance(field, LabelField)} <= names


def test_an_instance_has_two_labels_more_and_its_own_memory() -> None:
    """One series a GPU instance with the parent's UUID; what exists per board is the parent's, use is absent."""
    shares = make_mig_shares(0, 2)
    board = make_sample(0, mig=shares, gpu_utilization_percent=None, profiling=None)
    names = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    text = join_text(render(make_node(board), know(mig=2), request(None, *names, host="n")))
    assert lines_of(text, "DCGM_FI_DEV_FB_USED") == [
        f'DCGM_FI_DEV_FB_USED{{{FIXED},GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",Hostname="n"}} 1024',
        f'DCGM_FI_DEV_FB_USED{{{FIXED},GPU_I_PROFILE="1g.10gb",GPU_I_ID="8",Hostname="n"}} 1024',
    ]
    assert [line.rsplit(" ", 1)[1] for line in lines_of(text, "DCGM_FI_DEV_GPU_TEMP")] == ["61", "61"]
    assert [line.rsplit(" ", 1)[1] for line in lines_of(text, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")] == ["0.500000"] * 2
    assert lines_of(text, "DCGM_FI_DEV_GPU_UTIL") == []


def test_compute_instances_of_one_gpu_instance_are_one_device() -> None:
    """They share memory and counters; two series of the same labels would break the scrape."""
    first = make_mig(0, 1).devices[0]
    second = replace(first, uuid=make_mig(0, 2).devices[1].uuid, compute_instance_id=1, profile="1c.2g.20gb")
    gpu = make_gpu(mig=Mig(enabled=True, pending=True, devices=(replace(first, profile="1c.2g.20gb"), second)))
    known = Knowledge(Inventory(generation=1, gpus=(gpu,)))
    series = read_series(render(make_node(make_sample(0, mig=make_mig_shares(0, 1))), known))
    assert len(find(series, "DCGM_FI_DEV_FB_USED", GPU_I_PROFILE="2g.20gb")) == 1


def test_an_instance_without_a_sample_shows_nothing_of_its_own() -> None:
    """Between a change of layout and the next sample, memory is absent rather than another instance's."""
    series = read_series(render(make_node(make_sample(0, mig=())), know(mig=1)))
    assert not find(series, "DCGM_FI_DEV_FB_USED")
    assert find_value(series, "DCGM_FI_DEV_GPU_TEMP", GPU_I_ID="7") == 61


def test_a_gpu_that_is_not_in_the_inventory_yet_is_passed_over() -> None:
    """Its labels are not known; the next inventory has it."""
    assert not find(read_series(render(make_node(make_sample(5)), know())), "DCGM_FI_DEV_SM_CLOCK")


def test_the_last_xid_names_itself() -> None:
    """The number as value and label with words beside it; nothing before the first one."""
    series = NodeSeries()
    requests = request(None, "DCGM_FI_DEV_XID_ERRORS")
    assert not find(read_series(render(make_node(make_sample()), know(), requests, series)), "DCGM_FI_DEV_XID_ERRORS")
    series.xids.note(XidReported(gpu=UUID, xid=79), START)
    text = join_text(render(make_node(make_sample()), know(allocate("p", UUID)), requests, series))
    labels = 'container="main",err_code="79",err_msg="GPU has fallen off the bus",namespace="ml",pod="p"'
    assert lines_of(text, "DCGM_FI_DEV_XID_ERRORS") == [f"DCGM_FI_DEV_XID_ERRORS{{{FIXED},{labels}}} 79"]


def test_before_the_first_xid_there_is_a_zero_where_it_is_asked_for() -> None:
    """As older releases of DCGM exporter had it; the first XID takes its place."""
    series = NodeSeries()
    requests = request(MetricsSettings(xid_zero_before_first=True), "DCGM_FI_DEV_XID_ERRORS")
    text = join_text(render(make_node(make_sample()), know(), requests, series))
    labels = 'err_code="0",err_msg="No Error"'
    assert lines_of(text, "DCGM_FI_DEV_XID_ERRORS") == [f"DCGM_FI_DEV_XID_ERRORS{{{FIXED},{labels}}} 0"]
    series.xids.note(XidReported(gpu=UUID, xid=79), START)
    found = read_series(render(make_node(make_sample()), know(), requests, series))
    assert list(find(found, "DCGM_FI_DEV_XID_ERRORS").values()) == [79]


def test_an_xid_of_all_of_a_partitioned_gpu_is_shown_on_the_gpu() -> None:
    """One of an instance is shown on the instance, and neither on the other."""
    series = NodeSeries()
    series.xids.note(XidReported(gpu=UUID, xid=119), START)
    series.xids.note(XidReported(gpu=UUID, xid=31, gpu_instance_id=8), START)
    requests = request(None, "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT")
    found = read_series(render(make_node(make_sample(0, mig=make_mig_shares(0, 2))), know(mig=2), requests, series))
    last = {dict(pairs).get("GPU_I_ID"): value for pairs, value in find(found, "DCGM_FI_DEV_XID_ERRORS").items()}
    assert last == {None: 119, "8": 31}
    counts = {
        (dict(pairs).get("GPU_I_ID"), dict(pairs).get("xid")): value
        for pairs, value in find(found, "DCGM_EXP_XID_ERRORS_COUNT").items()
    }
    assert counts == {(None, "119"): 1, ("7", None): 0, ("8", "31"): 1}


def test_windows_and_watches_carry_their_labels() -> None:
    """Clock events by reason with the window in milliseconds; one series a health watch."""
    requests = request(None, "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_GPU_HEALTH_STATUS")
    series = NodeSeries()
    for second in range(2):
        render(make_node(make_sample(), seconds=START + second), know(), requests, series)
    found = read_series(render(make_node(make_sample(), seconds=START + 2), know(), requests, series))
    assert find_value(found, "DCGM_EXP_CLOCK_EVENTS_COUNT", clock_event="power_cap", window_size_in_ms="300000") == 3
    assert find_value(found, "DCGM_EXP_CLOCK_EVENTS_COUNT", clock_event="hw_thermal") == 0
    assert len(find(found, "DCGM_EXP_GPU_HEALTH_STATUS", health_error_code="DCGM_FR_OK")) == 11


def test_rates_need_two_samples_and_a_total_that_grew() -> None:
    """The first reading stands still, the second is per second, a total that fell gives none."""
    series = NodeSeries()
    requests = request(None, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_PROF_PCIE_TX_BYTES")
    steps = [(0, 1_000_000, 10), (2, 9_000_000, 10_010), (3, 5, 20_000), (3, 5, 20_000)]
    seen = []
    for passed, kib, size in steps:
        sample = make_sample(nvlink_transmit_kib=kib, nvlink_receive_kib=0, pcie_transmit_bytes=size)
        found = read_series(render(make_node(sample, seconds=START + passed), know(), requests, series))
        seen.append([*find(found, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL").values()])
    assert seen == [[0.0], [4000.0], [], []]

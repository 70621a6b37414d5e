"""Who holds a device, and what each pod uses of it."""

import dataclasses

import pytest
from msgspec.structs import replace

from nodeagent.components.exporter.attribution.holders import Holder, find_holders
from nodeagent.components.exporter.catalogue.selection import select_defaults
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.allocation import AllocationSource, ClaimedDevice, ClaimTable, PodIdentity
from nodeagent.model.cluster import PodLabels, PodLabelTable
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample, ProfilingSample
from tests.support.samples import make_mig, make_uuid
from tests.support.texts.exposition import Series
from tests.unit.components.exporter.builders import (
    GIB,
    START,
    allocate,
    find,
    find_value,
    know,
    make_mig_shares,
    make_node,
    make_process,
    make_sample,
    make_table,
    read_series,
    render,
)

UUID = make_uuid(0)
A, B = allocate("a", f"{UUID}::0", uid="uid-a"), allocate("b", f"{UUID}::1", uid="uid-b")
PLACES = {1: ProcessPlace(pod_uid="uid-a"), 2: ProcessPlace(pod_uid="uid-b"), 3: ProcessPlace()}


def test_replicas_and_instances_lead_to_their_device() -> None:
    """A replica's id is its device's, and each device lists its holders by name."""
    holders = find_holders(make_table(B, A))
    assert [holder.pod for holder in holders[UUID]] == ["a", "b"]


def test_an_allocation_whose_pod_is_not_known_names_nobody() -> None:
    """Until the kubelet has said who asked, the GPU shows no pod."""
    assert find_holders(make_table(allocate(None, UUID))) == {}


def test_a_pod_and_its_successor_of_the_same_name_are_one_holder() -> None:
    """Two series of equal labels would break the scrape; the newer allocation is the one that lives."""
    table = make_table(allocate("db-0", UUID, uid="old"), allocate("db-0", UUID, uid="new"))
    assert find_holders(table)[UUID] == (Holder(namespace="ml", pod="db-0", container="main", uid="new"),)


@pytest.mark.parametrize(
    ("resource", "source", "extra", "counts"),
    [
        ("example.org/gpu", AllocationSource.JOURNAL, (), True),
        ("nvidia.com/mig-1g.10gb", AllocationSource.POD_RESOURCES, (), True),
        ("example.org/gpu", AllocationSource.POD_RESOURCES, (), False),
        ("example.org/gpu", AllocationSource.CHECKPOINT, ("example.org/gpu",), True),
    ],
)
def test_other_plugins_count_when_their_resource_is_named(
    resource: str, source: AllocationSource, extra: tuple[str, ...], counts: bool
) -> None:
    """Ours under any name, NVIDIA's always, others when the settings list them."""
    table = make_table(allocate("p", UUID, resource=resource, source=source))
    assert (UUID in find_holders(table, extra)) is counts


def test_a_shared_gpu_names_its_pods_in_their_own_series_only() -> None:
    """The device's series stay one each, without a pod; sums over them count nothing twice."""
    sample = make_sample(processes=(make_process(1, memory_gib=4, sm=60), make_process(2, memory_gib=2, sm=20)))
    series = read_series(render(make_node(sample), know(A, B, places=PLACES)))
    (labels,) = find(series, "DCGM_FI_DEV_FB_USED")
    assert "pod" not in dict(labels)
    assert find_value(series, "nodeagent_pod_gpu_memory_used_bytes", pod="a", UUID=UUID) == 4 * GIB
    assert find_value(series, "nodeagent_pod_gpu_sm_ratio", pod="a") == 0.6
    assert find_value(series, "nodeagent_pod_gpu_sm_ratio", pod="b") == 0.2


def test_a_process_of_the_host_or_of_a_stranger_is_nobodys() -> None:
    """What runs outside the allocation is not charged to whoever holds the GPU."""
    places = {**PLACES, 2: ProcessPlace(pod_uid="uid-stranger")}
    sample = make_sample(processes=(make_process(2), make_process(3)))
    series = read_series(render(make_node(sample), know(allocate("a", UUID, uid="uid-a"), places=places)))
    assert find_value(series, "nodeagent_pod_gpu_memory_used_bytes", pod="a") == 0


@pytest.mark.parametrize("places", [{}, {1: ProcessPlace(pod_uid="uid-a")}])
def test_an_only_holder_is_charged_where_the_pod_cannot_be_told(places: dict[int, ProcessPlace]) -> None:
    """Without the host's processes in sight, or without the pod's UID, there is still only one who can be meant."""
    sample = make_sample(processes=(make_process(1, memory_gib=3, sm=150),))
    series = read_series(render(make_node(sample), know(allocate("a", UUID), places=places)))
    assert find_value(series, "nodeagent_pod_gpu_memory_used_bytes", pod="a") == 3 * GIB
    assert find_value(series, "nodeagent_pod_gpu_sm_ratio", pod="a") == 1.0


def test_no_process_of_several_holders_is_guessed() -> None:
    """Without a place, a process on a shared GPU is nobody's."""
    series = read_series(render(make_node(make_sample(processes=(make_process(1, sm=50),))), know(A, B)))
    assert [*find(series, "nodeagent_pod_gpu_sm_ratio").values()] == [0, 0]


def run(*samples: GpuSample, known: object = None, step: float = 10.0) -> Series:
    """The series after these samples, `step` seconds apart."""
    series = NodeSeries()
    blocks = []
    for number, sample in enumerate(samples):
        node = make_node(sample, seconds=START + number * step)
        blocks = render(node, known or know(A, B, places=PLACES), None, series)  # type: ignore[arg-type]  # one default
    return read_series(blocks)


def energy(series: Series, **labels: str) -> float:
    """Joules of one pod."""
    return find_value(series, "nodeagent_pod_gpu_energy_joules_total", **labels)


def test_energy_is_shared_by_sm_time() -> None:
    """Three quarters of the time, three quarters of the energy; all of it is somebody's."""
    processes = (make_process(1, sm=60), make_process(2, sm=20))
    series = run(
        make_sample(energy_millijoules=0, processes=processes),
        make_sample(energy_millijoules=8_000_000, processes=processes),
    )
    assert energy(series, pod="a") == pytest.approx(6000)
    assert energy(series, pod="b") == pytest.approx(2000)


def test_idle_holders_share_energy_evenly_and_their_idle_time_is_counted() -> None:
    """A GPU held but idle costs those who hold it."""
    series = run(make_sample(energy_millijoules=0), make_sample(energy_millijoules=4_000_000))
    assert energy(series, pod="a") == energy(series, pod="b") == 2000
    assert find_value(series, "nodeagent_pod_gpu_idle_seconds_total", pod="a") == 10
    assert find_value(series, "nodeagent_pod_gpu_held_seconds_total", pod="a") == 10


def test_a_total_that_starts_anew_costs_nobody_anything() -> None:
    """After a driver reload the meter begins at zero; the pod's total goes on from where it was."""
    alone = know(allocate("a", UUID))
    values = (10_000_000, 12_000_000, 1_000_000, 2_000_000)
    assert energy(run(*(make_sample(energy_millijoules=value) for value in values), known=alone), pod="a") == 3000


@pytest.mark.parametrize("step", [-3600.0, 1.7e9])
def test_a_clock_that_is_set_counts_no_time(step: float) -> None:
    """Neither backwards nor by decades; the next sample counts again."""
    series, alone = NodeSeries(), know(allocate("a", UUID))
    held = []
    for seconds in (START, START + 10, START + 10 + step, START + 15 + step):
        found = read_series(render(make_node(make_sample(), seconds=seconds), alone, None, series))
        held.append(find_value(found, "nodeagent_pod_gpu_held_seconds_total", pod="a"))
    assert held == [0, 10, 10, 15]


def test_without_a_meter_energy_is_power_times_time() -> None:
    """Boards before Volta have no meter; those without either show nothing."""
    alone = know(allocate("a", UUID))
    unmetered = make_sample(energy_millijoules=None, power_milliwatts=200_000)
    assert energy(run(unmetered, unmetered, known=alone), pod="a") == 2000
    blind = make_sample(energy_millijoules=None, power_milliwatts=None)
    assert not find(run(blind, blind, known=alone), "nodeagent_pod_gpu_energy_joules_total")


def test_an_only_holder_is_idle_when_the_gpu_is() -> None:
    """Exclusive devices need no process accounting; where use is unknown, idle time is absent."""
    alone = know(allocate("a", UUID))
    idle = make_sample(gpu_utilization_percent=0)
    assert find_value(run(idle, idle, known=alone), "nodeagent_pod_gpu_idle_seconds_total", pod="a") == 10
    busy = make_sample(gpu_utilization_percent=3)
    assert find_value(run(busy, busy, known=alone), "nodeagent_pod_gpu_idle_seconds_total", pod="a") == 0
    unknown = make_sample(gpu_utilization_percent=None)
    assert not find(run(unknown, unknown, known=alone), "nodeagent_pod_gpu_idle_seconds_total")


def test_instances_share_their_gpus_energy_by_size_and_work() -> None:
    """The part of an instance that nobody holds is nobody's."""
    first, second = (device.uuid for device in make_mig(0, 2).devices)
    known = know(allocate("a", first), mig=2)
    shares = make_mig_shares(0, 2)
    series = run(
        make_sample(mig=shares, energy_millijoules=0),
        make_sample(mig=shares, energy_millijoules=4_000_000),
        known=known,
    )
    assert energy(series, pod="a", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb") == 2000
    assert not find(series, "nodeagent_pod_gpu_sm_ratio")
    both = know(allocate("a", first), allocate("b", second), mig=2)
    idle = make_mig_shares(0, 2, profiling=ProfilingSample(graphics_engine_active=0.0))
    series = run(
        make_sample(mig=idle, energy_millijoules=0), make_sample(mig=idle, energy_millijoules=4_000_000), known=both
    )
    assert energy(series, pod="a") == energy(series, pod="b") == 2000
    assert find_value(series, "nodeagent_pod_gpu_idle_seconds_total", pod="b") == 10


def test_counters_end_with_the_allocation_and_begin_anew() -> None:
    """No series outlives its pod by a sample."""
    series = NodeSeries()
    render(make_node(make_sample()), know(allocate("a", UUID)), None, series)
    freed = read_series(render(make_node(make_sample(), seconds=START + 1), know(), None, series))
    assert not any(name.startswith("nodeagent_pod_") for name, _ in freed)
    again = read_series(render(make_node(make_sample(), seconds=START + 2), know(allocate("a", UUID)), None, series))
    assert find_value(again, "nodeagent_pod_gpu_held_seconds_total", pod="a") == 1


def test_a_gpu_that_was_away_is_metered_anew() -> None:
    """What its meter counted meanwhile was nobody's here."""
    series, alone = NodeSeries(), know(allocate("a", UUID))
    render(make_node(make_sample(energy_millijoules=0)), alone, None, series)
    render(make_node(seconds=START + 1), alone, None, series)
    back = make_node(make_sample(energy_millijoules=9_000_000), seconds=START + 2)
    assert energy(read_series(render(back, alone, None, series)), pod="a") == 0


def test_a_lost_gpu_keeps_its_holders_and_what_they_used() -> None:
    """Held time goes on, and the last readings of memory are not made up."""
    alone = know(allocate("a", UUID))
    series = run(make_sample(), GpuSample(uuid=UUID, lost="gone"), known=alone)
    assert find_value(series, "nodeagent_pod_gpu_held_seconds_total", pod="a") == 10


@pytest.mark.parametrize("metrics", [MetricsSettings(pod_attribution=False), MetricsSettings(processes=False)])
def test_pods_and_processes_can_be_switched_off(metrics: MetricsSettings) -> None:
    """Either switch ends the pods' own series; only the first takes the names off the devices."""
    blocks = render(make_node(make_sample()), know(allocate("a", UUID)), SeriesSelection(select_defaults(), metrics))
    series = read_series(blocks)
    assert not any(name.startswith("nodeagent_pod_") for name, _ in series)
    (labels,) = find(series, "DCGM_FI_DEV_SM_CLOCK")
    assert ("pod" in dict(labels)) is metrics.pod_attribution


def test_the_pods_uid_is_a_label_when_wanted() -> None:
    requests = SeriesSelection(select_defaults(), MetricsSettings(pod_uid=True))
    series = read_series(render(make_node(make_sample()), know(A, B), requests))
    assert len(find(series, "nodeagent_pod_gpu_held_seconds_total", pod_uid="uid-a")) == 1


def claim(device: str, pod: str = "train", driver: str = "gpu.nvidia.com") -> ClaimedDevice:
    return ClaimedDevice(
        pod=PodIdentity(namespace="ml", name=pod),
        container="main",
        claim="big",
        claim_namespace="ml",
        driver=driver,
        pool="node-a",
        device=device,
    )


def claimed(*devices: ClaimedDevice, mig: int = 0) -> Knowledge:
    known = know(gpus=2, mig=mig)
    gpus = list(known.inventory.gpus)
    if mig and gpus[0].mig is not None:
        placed = [replace(one, placement_start=2 * n, placement_size=2) for n, one in enumerate(gpus[0].mig.devices)]
        gpus[0] = replace(gpus[0], mig=replace(gpus[0].mig, devices=tuple(placed)))
    inventory = replace(known.inventory, gpus=tuple(gpus))
    return dataclasses.replace(known, inventory=inventory, claims=ClaimTable(devices=devices))


def test_a_claimed_gpu_names_its_pod_and_its_claim() -> None:
    """The GPU's series say who holds it and by which claim; the pod has series of its own, as with the plugin."""
    series = read_series(render(make_node(make_sample(0), make_sample(1)), claimed(claim("gpu-1"))))
    (labels,) = find(series, "DCGM_FI_DEV_GPU_TEMP", UUID=make_uuid(1))
    named = dict(labels)
    assert (named["namespace"], named["pod"], named["container"]) == ("ml", "train", "main")
    assert {key: value for key, value in named.items() if key.startswith("dra_")} == {
        "dra_claim_name": "big",
        "dra_claim_namespace": "ml",
        "dra_driver_name": "gpu.nvidia.com",
        "dra_pool_name": "node-a",
        "dra_device_name": "gpu-1",
    }
    assert find_value(series, "nodeagent_pod_gpu_held_seconds_total", pod="train", UUID=make_uuid(1)) == 0
    assert not [pairs for pairs in find(series, "DCGM_FI_DEV_GPU_TEMP", UUID=make_uuid(0)) if "pod" in dict(pairs)]


def test_a_claimed_instance_is_found_by_its_place() -> None:
    """Parent, start and size name one MIG device, whose profile and UUID are told too."""
    sample = make_sample(0, mig=make_mig_shares(0, 3))
    series = read_series(render(make_node(sample, make_sample(1)), claimed(claim("gpu-0-mig-19-2-2"), mig=3)))
    (labels,) = find(series, "DCGM_FI_DEV_GPU_TEMP", pod="train")
    named = dict(labels)
    assert named["GPU_I_ID"] == "8"
    assert named["dra_mig_profile"] == "1g.10gb"
    assert named["dra_mig_device_uuid"].startswith("MIG-")


@pytest.mark.parametrize(
    "one",
    [
        claim("gpu-7"),
        claim("gpu-vfio-0"),
        claim("gpu-0", driver="net.example.org"),
        claim("gpu-0-mig-1-2-3"),
        claim("gpu-7-mig-19-2-2"),
    ],
    ids=["unknown", "not-a-gpu", "other-driver", "unknown-instance", "instance-of-unknown"],
)
def test_a_claim_that_means_no_device_here_names_nobody(one: ClaimedDevice) -> None:
    """Another driver's devices, and names that nothing on this node has."""
    series = read_series(render(make_node(make_sample(0), make_sample(1)), claimed(one)))
    assert not find(series, "DCGM_FI_DEV_GPU_TEMP", pod="train")


LABELS = {
    "app.kubernetes.io/name": "x",
    "app_kubernetes_io/name": "y",
    "9lives": "cat",
    "gpu": '"a\\b"',
    "team": "blue",
}


def labelled(*patterns: str, old_names: bool = False) -> Series:
    table = PodLabelTable(
        pods=(
            PodLabels(namespace="ml", pod="a", uid="old", labels={"team": "red"}),
            PodLabels(namespace="ml", pod="a", uid="uid-a", labels=LABELS),
            PodLabels(namespace="ml", pod="idle", uid="uid-idle", labels=LABELS),
        )
    )
    known = dataclasses.replace(know(allocate("a", UUID)), pod_labels=table)
    metrics = MetricsSettings(pod_labels=True, pod_label_allowlist=patterns, old_namespace_labels=old_names)
    return read_series(render(make_node(make_sample()), known, SeriesSelection(select_defaults(), metrics)))


def test_labels_of_pods_are_one_series_a_pod_that_holds_a_gpu() -> None:
    """Every key becomes a legal name that is none of the exporter's own, and hostile values are escaped."""
    (labels,) = find(labelled(), "nodeagent_pod_labels_info")
    assert dict(labels) == {
        "namespace": "ml",
        "pod": "a",
        "label_app_kubernetes_io_name": "y",
        "label_9lives": "cat",
        "label_gpu": '"a\\b"',
        "label_team": "blue",
    }


def test_only_allowed_labels_of_pods_are_written() -> None:
    """Any pattern may fit any part of the key; the names of the old exporter's labels apply here too."""
    (labels,) = find(labelled("^team$", "lives", old_names=True), "nodeagent_pod_labels_info")
    assert dict(labels) == {"pod_namespace": "ml", "pod_name": "a", "label_9lives": "cat", "label_team": "blue"}


def test_no_labels_of_pods_are_written_unasked() -> None:
    """What is known from before it was switched off is not shown."""
    known = dataclasses.replace(know(allocate("a", UUID)), pod_labels=PodLabelTable())
    assert not find(read_series(render(make_node(make_sample()), known)), "nodeagent_pod_labels_info")

"""The grammar of device ids and indexes."""

import pytest

from nodeagent.rules.cdi_names import EXTRA_KINDS, OWN_KIND, list_cdi_names, qualify
from nodeagent.rules.ids import (
    FractionId,
    FractionIdKind,
    find_uuid,
    is_ours,
    is_replica,
    list_mig_names,
    name_group,
    parse_device_id,
    parse_fraction_id,
    parse_index,
    render_device_id,
    render_fraction_id,
    render_index,
)
from tests.support.gpus import gpu_uuid, make_gpu, mig_uuid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-1", ("GPU-1", None)),
        ("GPU-1::0", ("GPU-1", 0)),
        ("GPU-1::15", ("GPU-1", 15)),
        ("GPU-1::x", ("GPU-1::x", None)),
        ("GPU-1::", ("GPU-1::", None)),
        ("GPU-1::²", ("GPU-1::²", None)),
        ("", ("", None)),
    ],
)
def test_device_id_is_split_only_at_a_share_number(text: str, expected: tuple[str, int | None]) -> None:
    """Only `::` and a plain number make a share; everything else is part of the name."""
    assert parse_device_id(text) == expected


def test_device_id_round_trips() -> None:
    """Rendering and parsing are inverse."""
    assert parse_device_id(render_device_id("MIG-2", 3)) == ("MIG-2", 3)
    assert parse_device_id(render_device_id("MIG-2")) == ("MIG-2", None)


def test_a_share_is_told_from_a_device_and_named_by_it() -> None:
    """Each share means its device; a whole device is no share of itself."""
    assert [find_uuid("GPU-1::3"), find_uuid("MIG-2")] == ["GPU-1", "MIG-2"]
    assert [is_replica("GPU-1::3"), is_replica("GPU-1"), is_replica("GPU-1::x")] == [True, False, False]


def test_ids_of_gpus_are_known_by_their_form() -> None:
    """What other device plugins offer is not taken for a GPU."""
    assert [is_ours("GPU-1::0"), is_ours("MIG-2"), is_ours("0000:07:00.0")] == [True, True, False]


def test_indexes_sort_as_people_count() -> None:
    """The second GPU comes before the tenth, and the GPU before its parts."""
    gpu = make_gpu(10, mig=["1g.10gb", "1g.10gb"])
    indexes = [render_index(gpu, gpu.mig_devices[1]), render_index(gpu), render_index(make_gpu(2))]
    assert sorted(indexes, key=parse_index) == ["2", "10", "10:1"]


def test_a_mig_device_has_three_names() -> None:
    """Index, UUID, and the UUID of old with the instances in it."""
    gpu = make_gpu(1, mig=["1g.10gb"])
    assert list_mig_names(gpu, gpu.mig_devices[0]) == ("1:0", mig_uuid(1, 0), f"MIG-{gpu_uuid(1)}/7/0")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (FractionId(FractionIdKind.CORE, 0, "1a2b3c4d", 17), "core-n0-g1a2b3c4d-17"),
        (FractionId(FractionIdKind.MEMORY, None, "00000000", 0), "mem-nx-g00000000-0"),
        (FractionId(FractionIdKind.SHARE, 999999, "ffffffff", 999999), "gpu-n999999-gffffffff-999999"),
    ],
)
def test_a_token_round_trips(token: FractionId, text: str) -> None:
    """It carries what it counts, NUMA node and group; an unknown node is spelled."""
    assert render_fraction_id(token) == text
    assert parse_fraction_id(text) == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "core",
        "core-n0-g1a2b3c4d-",
        "core-n0-g1a2b3c4d--1",
        "core-n0-g1a2b3c4d-01",
        "core-n00-g1a2b3c4d-1",
        "core-n-g1a2b3c4d-1",
        "core-n-1-g1a2b3c4d-1",
        "core-n0-g1A2B3C4D-1",
        "core-n0-g1a2b3c4-1",
        "core-n0-g1a2b3c4d-1000000",
        "core-n0-g1a2b3c4d-1\n",
        " core-n0-g1a2b3c4d-1",
        "core-n0-g1a2b3c4d-\u0661",
        "core-n0-g1a2b3c4d-" + "9" * 5000,
        "tencent.com/vcuda-core-17",
        gpu_uuid(0),
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    """Each token has one spelling; another program's ids, and anything hostile, are none."""
    assert parse_fraction_id(text) is None


def test_groups_are_named_by_what_outlives_a_reboot() -> None:
    """By the GPU itself, in eight digits; similar UUIDs have other names."""
    assert name_group(gpu_uuid(0)) == name_group(gpu_uuid(0))
    assert len({name_group(gpu_uuid(index)) for index in range(64)}) == 64
    assert parse_fraction_id(render_fraction_id(FractionId(FractionIdKind.CORE, 0, name_group("x"), 1))) is not None


def test_a_device_is_named_by_index_type_and_uuid() -> None:
    """As the names of NVIDIA's own specifications."""
    gpu = make_gpu(3, mig=["1g.10gb"])
    assert list_cdi_names(gpu) == ("3", "gpu3", gpu_uuid(3))
    assert list_cdi_names(gpu, gpu.mig_devices[0]) == ("3:0", "mig3:0", mig_uuid(3, 0))


def test_containers_are_given_qualified_names() -> None:
    """Vendor, class and name, as a container runtime takes them apart."""
    assert qualify(OWN_KIND, "0") == "k8s.device-plugin.nvidia.com/gpu=0"
    assert qualify(EXTRA_KINDS["gds"], "all") == "k8s.device-plugin.nvidia.com/gds=all"

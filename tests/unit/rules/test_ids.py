"""The grammar of device ids and indexes."""

import pytest

from nodeagent.rules.ids import (
    find_uuid,
    is_ours,
    is_replica,
    list_mig_names,
    parse_device_id,
    parse_index,
    render_device_id,
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

"""Names of devices in slices: NVIDIA's own, unique, and found again."""

import re

import pytest
from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, Inventory, Mig, MigDevice, MigProfile
from nodeagent.rules.claims.naming import (
    MigPlace,
    NamedDevice,
    find_device,
    list_devices,
    list_places,
    name_gpu,
    name_mig,
    name_place,
)
from nodeagent.rules.claims.quantity import QuantityUnreadable, parse_quantity
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_mig_devices
from tests.support.mig import MIG_MODELS, list_profiles, make_mig_gpu

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
EVERYWHERE = frozenset(map(gpu_uuid, range(16)))


def profile(name: str, model: str = "h100-sxm5-80gb") -> MigProfile:
    return next(one for one in list_profiles(model) if one.name == name)


def cut(gpu: Gpu, *instances: tuple[str, int | None]) -> Gpu:
    """The GPU with one MIG device for each profile and start."""
    found = make_mig_devices(gpu.index, [name for name, _ in instances])
    devices = tuple(replace(one, placement_start=start) for one, (_, start) in zip(found, instances, strict=True))
    assert gpu.mig is not None
    return replace(gpu, mig=replace(gpu.mig, enabled=True, pending=True, devices=devices))


def names(inventory: Inventory, *, on_demand: bool = False) -> list[str]:
    return [one.name for one in list_devices(inventory, EVERYWHERE, on_demand=on_demand)]


def test_a_gpu_is_called_by_the_minor_number_of_its_node() -> None:
    """NVML's index changes with a GPU that is gone, the node's number with the driver's own order only."""
    assert name_gpu(replace(make_gpu(0), minor=5)) == "gpu-5"


def test_a_gpu_without_a_minor_number_is_called_by_its_slot() -> None:
    assert name_gpu(replace(make_gpu(0), minor=None)) == "gpu-0000-10-00-0"


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [
        ("1g.10gb", 4, "gpu-2-mig-1g10gb-19-4"),
        ("1g.10gb+me", 0, "gpu-2-mig-1g10gb-me-20-0"),
        ("3g.40gb", 4, "gpu-2-mig-3g40gb-9-4"),
    ],
)
def test_a_place_is_called_as_by_the_driver_of_nvidia(name: str, start: int, expected: str) -> None:
    """Profile without dots, then its number, then where it lies."""
    assert name_place(make_gpu(2), MigPlace(profile=profile(name), start=start)) == expected


def test_a_device_is_called_as_its_place() -> None:
    """So that what is made on demand keeps the name under which it was allocated."""
    gpu = cut(make_mig_gpu(1, "h100-sxm5-80gb", enabled=True), ("2g.20gb", 2))
    assert name_mig(gpu, gpu.mig_devices[0]) == "gpu-1-mig-2g20gb-14-2"


def test_devices_of_one_instance_are_told_apart() -> None:
    """Two halves of the compute lie at one place."""
    gpu = cut(make_mig_gpu(0, "h100-sxm5-80gb", enabled=True), ("1c.2g.20gb", 2), ("1c.2g.20gb", 2))
    first, second = gpu.mig_devices
    second = replace(second, compute_instance_id=1)
    assert [name_mig(gpu, one) for one in (first, second)] == [
        "gpu-0-mig-1c2g20gb-14-2-c0",
        "gpu-0-mig-1c2g20gb-14-2-c1",
    ]


def test_a_device_that_lies_nowhere_known_is_called_by_its_instance() -> None:
    """The driver tells places to the privileged only."""
    gpu = cut(make_mig_gpu(0, "h100-sxm5-80gb", enabled=True), ("1g.10gb", None))
    assert name_mig(gpu, gpu.mig_devices[0]) == "gpu-0-mig-1g10gb-19-i7"


def test_a_profile_that_the_driver_does_not_know_gives_a_name_all_the_same() -> None:
    """The device is there, whatever else is not told."""
    gpu = make_gpu(0, mig=["1g.10gb", "1g.10gb"])
    known, new = gpu.mig_devices
    assert [name_mig(gpu, one) for one in (known, replace(new, profile="9Q_x"))] == [
        "gpu-0-mig-1g10gb-x-i7",
        "gpu-0-mig-9q-x-x-i8",
    ]
    assert name_mig(replace(gpu, mig=None), known) == "gpu-0-mig-1g10gb-x-i7"


def test_what_is_there_is_offered_and_no_gpu_beside_its_parts() -> None:
    """A GPU in MIG mode can be used in parts only, even while it has none."""
    plain, empty = make_gpu(0), make_mig_gpu(1, "h100-sxm5-80gb", enabled=True)
    parts = cut(make_mig_gpu(2, "h100-sxm5-80gb", enabled=True), ("1g.10gb", 0), ("1g.10gb", 1))
    inventory = make_inventory([plain, empty, parts])
    assert names(inventory) == ["gpu-0", "gpu-2-mig-1g10gb-19-0", "gpu-2-mig-1g10gb-19-1"]


def test_gpus_of_other_doors_are_not_offered() -> None:
    """Whoever else gives them out would give them twice."""
    inventory = make_inventory([make_gpu(0), make_gpu(1)])
    assert [one.name for one in list_devices(inventory, {gpu_uuid(1)}, on_demand=False)] == ["gpu-1"]


@pytest.mark.parametrize(
    ("model", "enabled", "count"),
    [("h100-sxm5-80gb", True, 26), ("h100-sxm5-80gb", False, 26), ("rtx-pro-6000-server", True, 31)],
)
def test_on_demand_the_gpu_and_all_its_places_are_offered(model: str, count: int, *, enabled: bool) -> None:
    """As many as the driver of NVIDIA offers of such a board."""
    inventory = make_inventory([make_mig_gpu(0, model, enabled=enabled)])
    found = names(inventory, on_demand=True)
    assert found[0] == "gpu-0"
    assert len(found) == len(set(found)) == count


def test_a_board_that_changes_its_mode_by_reset_is_offered_as_it_is() -> None:
    """Ampere: whole while MIG is off, in parts while it is on."""
    boards = [
        replace(make_mig_gpu(index, "a100-sxm4-80gb", enabled=on), compute_capability=(8, 0))
        for index, on in enumerate((False, True))
    ]
    found = names(make_inventory(boards), on_demand=True)
    assert found[0] == "gpu-0"
    assert len(found) > 2
    assert all(name.startswith("gpu-1-mig-") for name in found[1:])


def test_a_gpu_without_mig_is_offered_whole_whatever_is_wanted() -> None:
    assert list_places(make_gpu(0)) == ()
    assert names(make_inventory([make_gpu(0)]), on_demand=True) == ["gpu-0"]


def test_a_place_says_what_is_there_now() -> None:
    gpu = cut(make_mig_gpu(0, "h100-sxm5-80gb", enabled=True), ("1g.10gb", 3))
    devices = list_devices(make_inventory([gpu]), EVERYWHERE, on_demand=True)
    assert {one.name: one.mig for one in devices if one.mig is not None} == {
        "gpu-0-mig-1g10gb-19-3": gpu.mig_devices[0]
    }
    assert [one.is_gpu for one in devices] == [True] + [False] * (len(devices) - 1)


@pytest.mark.parametrize("model", MIG_MODELS)
def test_every_name_is_a_label_unique_and_found_again(model: str) -> None:
    inventory = make_inventory([make_mig_gpu(index, model, enabled=True) for index in (0, 1, 11)])
    devices = list_devices(inventory, EVERYWHERE, on_demand=True)
    assert len({one.name for one in devices}) == len(devices)
    for one in devices:
        assert LABEL.fullmatch(one.name)
        assert find_device(inventory, one.name) == one


def test_what_is_in_place_is_found_by_its_name_whoever_offers_it() -> None:
    """Prepared claims outlive a change of the settings."""
    gpu = cut(make_mig_gpu(1, "h100-sxm5-80gb", enabled=True), ("1c.2g.20gb", 2))
    inventory = make_inventory([make_gpu(0), gpu])
    part: MigDevice = gpu.mig_devices[0]
    found = find_device(inventory, "gpu-1-mig-1c2g20gb-14-2-c0")
    assert found is not None
    assert (found.gpu, found.mig) == (gpu, part)
    assert find_device(inventory, "gpu-1") == NamedDevice(name="gpu-1", gpu=gpu)


@pytest.mark.parametrize("name", ["gpu-7", "gpu-1-mig-1g10gb-19-7", "gpu-1-mig-", "", "gpu-1x"])
def test_a_name_of_nothing_finds_nothing(name: str) -> None:
    """A claim may have been allocated to what is long gone."""
    mig = Mig(enabled=False, pending=False, profiles=list_profiles("h100-sxm5-80gb"))
    inventory = make_inventory([make_gpu(0), replace(make_gpu(1), mig=mig)])
    assert find_device(inventory, name) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("10Gi", 10 << 30), ("512Mi", 512 << 20), ("1.5Ki", 1536), ("1000M", 10**9), ("2e3", 2000),
        ("1E", 10**18), ("100m", 1), ("1500m", 2), (".5k", 500), ("+7", 7), ("1e-2", 1), ("80Gi", 80 << 30),
    ],
)  # fmt: skip
def test_a_quantity_is_so_many_whole_units(text: str, value: int) -> None:
    """Rounded up, as the API server does."""
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "10 Gi", "10gb", "-1", "1e99", "9999999999Ei", "0x10", "٣", "1.2.3"])
def test_anything_else_is_refused_with_a_word_on_how_to_write_it(text: str) -> None:
    """Also what is beyond all measure."""
    with pytest.raises(QuantityUnreadable, match=r"quantity: write|out of range: give"):
        parse_quantity(text)

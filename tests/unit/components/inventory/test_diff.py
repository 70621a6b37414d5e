"""The comparison of one enumeration with the one before."""

from nodeagent.components.inventory.diff import decide_inventory, diff_inventories
from nodeagent.components.inventory.problems import INVENTORY_CODES, decide_problems
from nodeagent.model.events import GpuAppeared, GpuVanished, MigLayoutChanged
from nodeagent.model.gpu import Inventory, MissingGpu, StoredGpu, Unreadable
from tests.support.samples import make_address, make_gpu, make_inventory, make_mig, make_readout, make_uuid


def test_first_readout_is_generation_one() -> None:
    """The first inventory a node has is generation 1, and every GPU in it appeared."""
    inventory = decide_inventory(None, make_readout(make_gpu(0), make_gpu(1)))
    assert inventory.generation == 1
    assert diff_inventories(None, inventory) == (
        GpuAppeared(gpu=make_uuid(0), generation=1),
        GpuAppeared(gpu=make_uuid(1), generation=1),
    )


def test_equal_readout_keeps_the_generation() -> None:
    """Reading the same hardware again changes nothing at all."""
    before = make_inventory(2)
    assert decide_inventory(before, make_readout(*before.gpus)) is before


def test_changed_readout_raises_the_generation() -> None:
    """Any change of substance is a new generation."""
    before = make_inventory(2)
    after = decide_inventory(before, make_readout(*before.gpus, make_gpu(2)))
    assert after.generation == before.generation + 1
    assert diff_inventories(before, after) == (GpuAppeared(gpu=make_uuid(2), generation=2),)


def test_gpu_that_fell_off_the_bus_stays_visible_as_lost() -> None:
    """A card still in its slot but no longer listed is kept, with the reason, in index order."""
    before = make_inventory(3)
    missing = MissingGpu(address=make_address(1), device_id=0x233010DE, reason="configuration space reads all ones")
    after = decide_inventory(before, make_readout(make_gpu(0), make_gpu(2), missing=(missing,)))
    assert [gpu.index for gpu in after.gpus] == [0, 1, 2]
    assert after.gpus[1].lost == "configuration space reads all ones"
    assert diff_inventories(before, after) == (
        GpuVanished(gpu=make_uuid(1), generation=2, reason="configuration space reads all ones"),
    )


def test_lost_gpu_without_a_reason_says_what_is_known() -> None:
    """A lost GPU never has an empty reason, because an empty one means that it answers."""
    missing = MissingGpu(address=make_address(0), device_id=0x233010DE, reason="")
    after = decide_inventory(make_inventory(1), make_readout(missing=(missing,)))
    assert after.gpus[0].lost == "the driver no longer lists it"


def test_lost_gpu_comes_back() -> None:
    """A GPU that answers again has appeared again and is lost no more."""
    lost = Inventory(generation=4, gpus=(make_gpu(0, lost="fell off the bus"),))
    after = decide_inventory(lost, make_readout(make_gpu(0)))
    assert not after.gpus[0].lost
    assert diff_inventories(lost, after) == (GpuAppeared(gpu=make_uuid(0), generation=5),)


def test_unplugged_gpu_is_gone() -> None:
    """A GPU that is neither listed nor on the bus leaves the inventory."""
    before = make_inventory(2)
    after = decide_inventory(before, make_readout(make_gpu(0)))
    assert [gpu.uuid for gpu in after.gpus] == [make_uuid(0)]
    assert diff_inventories(before, after) == (
        GpuVanished(gpu=make_uuid(1), generation=2, reason="no longer on the PCI bus", is_gone=True),
    )


def test_replaced_card_takes_the_slot_of_the_lost_one() -> None:
    """Another GPU in the same slot ends the memory of the one before."""
    before = Inventory(generation=1, gpus=(make_gpu(0, lost="fell off the bus"),))
    other = make_gpu(0)
    swapped = make_gpu(9)
    swapped = type(swapped)(index=0, uuid=swapped.uuid, name=swapped.name, pci=other.pci)
    missing = MissingGpu(address=make_address(0), device_id=0x233010DE, reason="stale")
    after = decide_inventory(before, make_readout(swapped, missing=(missing,)))
    assert [gpu.uuid for gpu in after.gpus] == [make_uuid(9)]


def test_mig_layout_change_names_the_gpu() -> None:
    """Cutting a GPU is a fact about that GPU and no other."""
    before = make_inventory(2)
    after = decide_inventory(before, make_readout(make_gpu(0), make_gpu(1, mig=make_mig(1, 7))))
    assert diff_inventories(before, after) == (MigLayoutChanged(gpu=make_uuid(1), generation=2),)


def test_problems_name_every_gpu_that_has_one() -> None:
    """Missing, lost and partly readable GPUs are told apart and each named once."""
    unreadable = make_gpu(2)
    unreadable = type(unreadable)(
        index=2,
        uuid=unreadable.uuid,
        name=unreadable.name,
        pci=unreadable.pci,
        unreadable=(Unreadable(what="serial", reason="not supported"),),
    )
    inventory = Inventory(
        generation=1,
        gpus=(make_gpu(0), make_gpu(1, lost="fell off the bus"), unreadable),
        missing=(
            MissingGpu(address=make_address(1), device_id=1, reason="also lost"),
            MissingGpu(address=make_address(7), device_id=1, reason="excluded"),
        ),
    )
    problems = decide_problems(inventory)
    assert set(problems) == set(INVENTORY_CODES)
    assert list(problems["gpu-missing"]) == [make_address(7)]
    assert problems["gpu-lost"][make_uuid(1)].endswith("fell off the bus")
    assert problems["gpu-unreadable"] == {make_uuid(2): "GPU 2: serial: not supported"}


def test_gpus_that_are_all_gone_are_told_by_their_number() -> None:
    """One condition says how many there were, the first few by name; not so while any of them is to be seen."""
    gone = tuple(
        StoredGpu(uuid=make_uuid(index), name="T4", index=index, address=make_address(index), gone_since_seconds=60.0)
        for index in range(10)
    )
    detail = decide_problems(Inventory(generation=1, vanished=gone))["gpus-all-gone"][""]
    assert detail.startswith("10 GPUs were here until 1970-01-01 00:01 UTC: GPU 0 (T4, 0000:")
    assert detail.endswith(" and 2 more")
    one = decide_problems(Inventory(generation=1, vanished=gone[:1]))["gpus-all-gone"][""]
    assert one.startswith("1 GPU was here until")
    there = MissingGpu(address=make_address(7), device_id=1, reason="excluded")
    assert not decide_problems(Inventory(generation=1, vanished=gone, missing=(there,)))["gpus-all-gone"]
    assert not decide_problems(Inventory(generation=1, vanished=gone, gpus=(make_gpu(0),)))["gpus-all-gone"]


def test_a_shortfall_names_who_counts() -> None:
    short = Inventory(generation=1, gpus=(make_gpu(0),), shortfall=2, expected_by="`gpus.expected`")
    assert decide_problems(short)["gpus-fewer-than-expected"] == {"": "3 by `gpus.expected`, 1 found"}

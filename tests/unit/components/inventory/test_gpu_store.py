"""The GPUs that a node has and had: which of those that are gone are missed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError
from msgspec.structs import replace

from nodeagent.components.inventory.diff import decide_inventory
from nodeagent.components.inventory.expected import Expectation
from nodeagent.components.inventory.gpu_store import (
    GONE_KEPT,
    GpuStore,
    decode_gpu_store,
    encode_gpu_store,
    find_missed,
    find_stored,
    list_stored,
)
from nodeagent.model.gpu import Gpu, Inventory, MissingGpu, StoredGpu
from tests.support.samples import make_address, make_gpu, make_readout, make_uuid


def known(*indexes: int) -> tuple[StoredGpu, ...]:
    return tuple(
        StoredGpu(uuid=make_uuid(index), name="H100", index=index, address=make_address(index)) for index in indexes
    )


def miss(before: tuple[StoredGpu, ...], *gpus: Gpu, expected: int | None = None) -> tuple[list[int], int]:
    found = find_missed(before, gpus, (), expected, 100.0)
    return [one.index for one in found.vanished], found.shortfall


def test_a_gpu_that_is_gone_is_missed_since_the_first_look_without_it() -> None:
    """The time stays what it was at the first look, however often one looks."""
    first = find_missed(known(0, 1), (make_gpu(0),), (), None, 100.0).vanished
    assert [(one.index, one.gone_since_seconds) for one in first] == [(1, 100.0)]
    assert find_missed((*known(0), *first), (make_gpu(0),), (), None, 200.0).vanished == first


def test_a_gpu_that_another_has_taken_the_place_of_is_not_missed() -> None:
    """In its slot, or somewhere else: the node has as many as it had. The same when all moved to another machine."""
    assert miss(known(0, 1), make_gpu(0), replace(make_gpu(1), uuid=make_uuid(9))) == ([], 0)
    assert miss(known(0, 1), make_gpu(0), make_gpu(7)) == ([], 0)
    assert miss(known(0, 1), make_gpu(5), make_gpu(6)) == ([], 0)
    assert miss(known(0, 1, 2), make_gpu(5), make_gpu(6)) == ([0], 0)


def test_a_card_in_its_slot_is_missing_and_not_vanished() -> None:
    """What the bus still shows is told as missing, by whoever saw it."""
    there = MissingGpu(address=make_address(1), device_id=1, reason="all ones")
    assert find_missed(known(0, 1), (make_gpu(0),), (there,), None, 1.0).vanished == ()


@pytest.mark.parametrize(
    ("expected", "vanished", "shortfall"), [(None, [2], 0), (2, [], 0), (3, [2], 0), (5, [2], 2), (0, [], 0)]
)
def test_the_configuration_knows_how_many_there_should_be(
    expected: int | None, vanished: list[int], shortfall: int
) -> None:
    """It excuses what is gone, or asks for more than was ever seen."""
    assert miss(known(0, 1, 2), make_gpu(0), make_gpu(1), expected=expected) == (vanished, shortfall)


def test_a_display_adapter_counts_for_nothing() -> None:
    """It is neither remembered nor does it stand for a GPU."""
    display = make_gpu(1, name="DGX Display")
    assert miss(known(0, 1), make_gpu(0), display, expected=2) == ([], 1)
    assert list_stored(Inventory(generation=1, gpus=(make_gpu(0), display))) == known_of(make_gpu(0))


def known_of(*gpus: Gpu) -> tuple[StoredGpu, ...]:
    return tuple(StoredGpu(uuid=gpu.uuid, name=gpu.name, index=gpu.index, address=gpu.pci.address) for gpu in gpus)


def test_the_list_outlives_the_agent() -> None:
    """Bytes and back; what is whole and no list is refused with the reason."""
    roster = GpuStore(source="nvml", gpus=known(0, 1))
    assert decode_gpu_store(encode_gpu_store(roster)) == roster
    with pytest.raises(DecodeError):
        decode_gpu_store(b"[]")


def test_a_gpu_is_found_by_any_of_its_names() -> None:
    """UUID, PCI address in any spelling, the index that it had; nothing else means one."""
    names = [make_uuid(1), "1", make_address(1), make_address(1).upper()]
    assert [one.index for name in names if (one := find_stored(known(0, 1), name)) is not None] == [1] * 4
    assert find_stored(known(0, 1), "GPU 1") is None


@given(
    before=st.sets(st.integers(0, 90)),
    after=st.sets(st.integers(0, 90)),
    expected=st.none() | st.integers(0, 100),
)
def test_nothing_is_forgotten_as_long_as_the_node_has_fewer(
    before: set[int], after: set[int], expected: int | None
) -> None:
    """What is there and what is missed make up what there should be, within the bound; and the list stays bounded."""
    readout = make_readout(*(make_gpu(index) for index in sorted(after)))
    inventory = decide_inventory(
        None, readout, known=known(*sorted(before)), expected=Expectation(count=expected), now_seconds=1.0
    )
    total = len(after) + len(inventory.vanished) + inventory.shortfall
    assert total >= (expected if expected is not None else min(len(before), len(after) + GONE_KEPT))
    assert {one.index for one in inventory.vanished} <= before - after
    assert len(list_stored(inventory)) <= len(after) + GONE_KEPT

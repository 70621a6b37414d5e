"""How GPUs reach one another, from what each says of its own links."""

import pytest

from nodeagent.edge.nvml.agent.topology import list_pairs, list_switches
from nodeagent.model.gpu import Gpu, NvLink, NvSwitch, PathKind, PciIdentity
from nodeagent.model.ids import GpuUuid, PciAddress

SWITCH = PciAddress("0000:07:00.0")


def make_gpu(index: int, links: tuple[NvLink, ...] = (), numa_node: int | None = None) -> Gpu:
    pci = PciIdentity(address=PciAddress(f"0000:{index + 16:02x}:00.0"), device_id=0x233010DE)
    return Gpu(index=index, uuid=GpuUuid(f"GPU-{index}"), name="a GPU", pci=pci, nvlinks=links, numa_node=numa_node)


def link_to(number: int, remote: PciAddress, *, is_switch: bool = False, active: bool = True) -> NvLink:
    return NvLink(link=number, active=active, remote=remote, remote_is_switch=is_switch)


@pytest.mark.parametrize(
    ("level", "path"),
    [
        (0, PathKind.BRIDGE),
        (10, PathKind.BRIDGE),
        (20, PathKind.BRIDGES),
        (30, PathKind.HOST_BRIDGE),
        (40, PathKind.NODE),
        (50, PathKind.SYSTEM),
    ],
)
def test_levels_have_the_names_people_know(level: int, path: PathKind) -> None:
    """NVML's levels become the words of the topology matrix; two GPUs are never "the same"."""
    left, right = make_gpu(0), make_gpu(1)
    (pair,) = list_pairs([left, right], {frozenset({left.pci.address, right.pci.address}): level})
    assert pair.path is path


@pytest.mark.parametrize(
    ("numa", "path"), [((0, 0), PathKind.NODE), ((0, 1), PathKind.SYSTEM), ((None, None), PathKind.SYSTEM)]
)
def test_without_a_level_numa_decides(numa: tuple[int | None, int | None], path: PathKind) -> None:
    """An unreadable path is at least told apart by NUMA node, and unknown counts as far."""
    left, right = make_gpu(0, numa_node=numa[0]), make_gpu(1, numa_node=numa[1])
    unreadable: dict[frozenset[str], int | None] = {frozenset({left.pci.address, right.pci.address}): None}
    for levels in ({}, unreadable):
        (pair,) = list_pairs([left, right], levels)
        assert pair.path is path


def test_direct_links_count_by_their_far_end() -> None:
    """Only active links that end at the other GPU count."""
    right = make_gpu(1)
    links = tuple(link_to(number, right.pci.address, active=number != 2) for number in range(4))
    (pair,) = list_pairs([make_gpu(0, links), right], {})
    assert (pair.nvlink_count, pair.through_switch) == (3, False)


def test_switched_links_count_by_the_weaker_side() -> None:
    """Through switches two GPUs have as many links as the one with fewer."""
    full = tuple(link_to(number, SWITCH, is_switch=True) for number in range(6))
    left, right = make_gpu(0, full), make_gpu(1, full[:4])
    (pair,) = list_pairs([left, right], {})
    assert (pair.nvlink_count, pair.through_switch) == (4, True)


def test_no_links_is_no_switch() -> None:
    """GPUs without NVLink are not "through a switch"."""
    (pair,) = list_pairs([make_gpu(0), make_gpu(1)], {})
    assert (pair.nvlink_count, pair.through_switch) == (0, False)


def test_switches_are_found_at_the_far_ends() -> None:
    """Each switch with the number of links that end there; unknown far ends are no switch."""
    links = (
        link_to(0, SWITCH, is_switch=True),
        link_to(1, SWITCH, is_switch=True),
        NvLink(link=2, active=True, remote=None, remote_is_switch=True),
    )
    assert list_switches([make_gpu(0, links), make_gpu(1, links[:1])]) == (NvSwitch(address=SWITCH, link_count=3),)

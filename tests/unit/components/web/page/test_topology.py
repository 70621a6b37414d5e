"""The drawing of the topology stands on its numbers."""

import re
from itertools import pairwise

import pytest
from msgspec.structs import replace

from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.components.web.page.topology import describe_pair, plan_spots, render_topology
from nodeagent.model.gpu import GpuPair, NvLink, PathKind
from tests.support.samples import make_address, make_gpu, make_uuid
from tests.support.texts.html import Page


def _records(*indexes: int) -> tuple[GpuRecord, ...]:
    return tuple(GpuRecord(gpu=make_gpu(index)) for index in indexes)


def test_gpus_of_one_numa_node_stand_together() -> None:
    """Order is by NUMA node, then index; no two boxes overlap, and a gap parts the nodes."""
    spots = plan_spots(_records(5, 0, 4, 1))
    assert [spot.gpu.index for spot in spots] == [0, 1, 4, 5]
    steps = [right.middle - left.middle for left, right in pairwise(spots)]
    assert min(steps) > 76
    assert steps[1] > steps[0] == steps[2]


def test_a_gpu_of_no_numa_node_is_drawn_too() -> None:
    """What the firmware does not tell is said to be unknown; under one GPU there is room for few words."""
    lost, other = (GpuRecord(gpu=replace(make_gpu(index), numa_node=None)) for index in (0, 1))
    html = render_topology(GpusRecord(generation=1, gpus=(lost,)))
    assert ">NUMA ?<" in html
    assert "<table" not in html
    assert ">NUMA node unknown · PCIe<" in render_topology(GpusRecord(generation=1, gpus=(lost, other)))


def test_what_is_written_under_gpus_fits() -> None:
    """The long form where two GPUs are side by side, the short one where there is one."""
    html = render_topology(GpusRecord(generation=1, gpus=_records(0, 1, 4)))
    numa = make_gpu(0).numa_node, make_gpu(4).numa_node
    assert numa[0] != numa[1]
    assert f">NUMA node {numa[0]} · PCIe<" in html
    assert f">NUMA {numa[1]}<" in html


def test_direct_links_are_arcs_with_their_number() -> None:
    """An arc says how many NVLinks it stands for; pairs through a switch and over PCIe have none."""
    direct = GpuPair(left=make_uuid(0), right=make_uuid(1), path=PathKind.NODE, nvlink_count=4)
    switched = replace(direct, right=make_uuid(2), through_switch=True)
    html = render_topology(GpusRecord(generation=1, gpus=_records(0, 1, 2), pairs=(direct, switched)))
    assert html.count("4×") == 1
    assert "NV4" in Page(html).text


@pytest.mark.parametrize("links", [1, 4, 12, 18])
def test_the_number_of_an_arc_stands_above_its_line(links: int) -> None:
    """However thick that is: the middle of the line is at three quarters of its height."""
    direct = GpuPair(left=make_uuid(0), right=make_uuid(1), path=PathKind.NODE, nvlink_count=links)
    drawn = render_topology(GpusRecord(generation=1, gpus=_records(0, 1), pairs=(direct,)))
    arc = r'd="M\d+ (\d+)C\d+ (\d+) .*?stroke-width="([\d.]+)"/><text class="minor" x="\d+" y="(\d+)">'
    found = re.search(arc, drawn)
    assert found is not None
    foot, peak, width, written = map(float, found.groups())
    assert written <= foot - (foot - peak) * 3 / 4 - width / 2 - 2


def test_pairs_are_described_as_nvidia_smi_does() -> None:
    """Links first, else the path; what is not known is a dash."""
    pair = GpuPair(left=make_uuid(0), right=make_uuid(1), path=PathKind.BRIDGE)
    assert [describe_pair(one) for one in (replace(pair, nvlink_count=18), pair, None)] == ["NV18", "PIX", "–"]


def test_links_to_a_switch_of_another_board_are_not_drawn() -> None:
    """A switch that this node does not list has no place in the picture."""
    gpu = replace(make_gpu(0), nvlinks=(NvLink(link=0, active=True, remote=make_address(70), remote_is_switch=True),))
    html = render_topology(GpusRecord(generation=1, gpus=(GpuRecord(gpu=gpu),)))
    assert "NVSwitch" not in html
    assert "1 NVLinks" in html


def test_a_pair_with_a_gpu_that_left_is_not_drawn() -> None:
    """Links to a GPU that is no longer listed have no place in the picture."""
    orphan = GpuPair(left=make_uuid(0), right=make_uuid(9), path=PathKind.NODE, nvlink_count=4)
    assert "4×" not in render_topology(GpusRecord(generation=1, gpus=_records(0, 1), pairs=(orphan,)))

"""Links and paths: as `nvidia-smi topo -m` and `nvidia-smi nvlink` show them on the real boards."""

from pathlib import Path

import pytest

from nodeagent.model.gpu import GpuPair, NvLink, PathKind
from nodeagent.model.ids import GpuUuid
from nodeagent_sim.gpus.profile import Profile, list_profiles, load_profile
from nodeagent_sim.gpus.topology import IsDown, list_nvlinks, list_pairs, list_switches


def all_up(index: int, link: int) -> bool:
    return False


def read_links(profile: Profile, is_down: IsDown = all_up) -> dict[int, tuple[NvLink, ...]]:
    return {seat.index: list_nvlinks(profile, seat, is_down) for seat in profile.seats}


def read_pairs(profile: Profile, is_down: IsDown = all_up) -> dict[str, GpuPair]:
    uuids = {seat.index: GpuUuid(str(seat.index)) for seat in profile.seats}
    return {pair.left + pair.right: pair for pair in list_pairs(profile, uuids, read_links(profile, is_down))}


@pytest.mark.parametrize(
    ("name", "pair", "path", "links", "through_switch"),
    [
        ("dgx-a100", "01", PathKind.BRIDGES, 12, True),
        ("dgx-a100", "07", PathKind.SYSTEM, 12, True),
        ("dgx-h100", "03", PathKind.NODE, 18, True),
        ("dgx-h100", "34", PathKind.SYSTEM, 18, True),
        ("dgx-b200", "04", PathKind.SYSTEM, 18, True),
        ("gb200-nvl72-node", "01", PathKind.NODE, 18, True),
        ("a100-80gb-mig", "03", PathKind.SYSTEM, 4, False),
        ("a100-40gb", "01", PathKind.BRIDGES, 12, False),
        ("l40s", "03", PathKind.NODE, 0, False),
        ("rtx-pro-6000", "01", PathKind.BRIDGE, 0, False),
        ("mixed", "01", PathKind.SYSTEM, 0, False),
        ("mixed", "12", PathKind.HOST_BRIDGE, 0, False),
    ],
)
def test_pairs_are_those_of_the_board(name: str, pair: str, path: PathKind, links: int, through_switch: bool) -> None:
    """Path and link count of one telling pair per board."""
    found = read_pairs(load_profile(name))[pair]
    assert (found.path, found.nvlink_count, found.through_switch) == (path, links, through_switch)


@pytest.mark.parametrize("name", list_profiles())
def test_there_is_one_pair_for_any_two(name: str) -> None:
    """Any n GPUs make n(n-1)/2 pairs, the smaller index at the left."""
    profile = load_profile(name)
    pairs = read_pairs(profile)
    count = len(profile.seats)
    assert len(pairs) == count * (count - 1) // 2
    assert all(pair.left < pair.right for pair in pairs.values())


@pytest.mark.parametrize(("name", "count"), [("dgx-a100", 6), ("dgx-h100", 4), ("dgx-h200", 4), ("dgx-b200", 0)])
def test_switches_are_those_the_node_sees(name: str, count: int) -> None:
    """Every link of every GPU ends in one of the switches that are visible; NVLink 5 switches are not."""
    profile = load_profile(name)
    switches = list_switches(profile)
    assert len(switches) == count
    if count:
        ends = [link.remote for links in read_links(profile).values() for link in links]
        assert {switch.address: switch.link_count for switch in switches} == {
            switch.address: ends.count(switch.address) for switch in switches
        }


@pytest.mark.parametrize("name", ["a100-40gb", "a100-80gb-mig"])
def test_mesh_links_have_two_ends(name: str) -> None:
    """If GPU i has n links to j, then j has n links to i."""
    profile = load_profile(name)
    links = read_links(profile)
    for left in profile.seats:
        for right in profile.seats:
            if left.index != right.index:
                there = sum(link.remote == right.address for link in links[left.index])
                back = sum(link.remote == left.address for link in links[right.index])
                assert there == back > 0


def test_a_mesh_link_is_down_at_both_ends() -> None:
    """One broken link costs exactly one pair one link, seen from either side."""
    profile = load_profile("a100-80gb-mig")
    pairs = read_pairs(profile, lambda index, link: (index, link) == (0, 5))
    assert sorted(pair.nvlink_count for pair in pairs.values()) == [3, 4, 4, 4, 4, 4]
    broken = next(pair for pair in pairs.values() if pair.nvlink_count == 3)
    links = read_links(profile, lambda index, link: (index, link) == (0, 5))
    assert sum(not link.active for link in links[int(broken.left)]) == 1
    assert sum(not link.active for link in links[int(broken.right)]) == 1


def test_a_switched_link_costs_its_gpu_everywhere() -> None:
    """Behind switches the narrower of the two ends counts."""
    pairs = read_pairs(load_profile("dgx-h100"), lambda index, link: (index, link) == (2, 7))
    assert {pair.nvlink_count for key, pair in pairs.items() if "2" in key} == {17}
    assert {pair.nvlink_count for key, pair in pairs.items() if "2" not in key} == {18}


def test_mesh_that_does_not_divide_evenly_leaves_ports_over(tmp_path: Path) -> None:
    """Six GPUs share twelve ports as two to each of five peers; the last two ports lead nowhere."""
    path = tmp_path / "six.yaml"
    addresses = ", ".join(f'"{bus:02x}:00.0"' for bus in range(1, 7))
    path.write_text(
        "summary: six\ndriver: {version: 550.163.01, cuda: [12, 4]}\nnvlink: {wiring: mesh}\n"
        f"gpus: [{{model: a100-sxm4-40gb, addresses: [{addresses}]}}]\n"
    )
    profile = load_profile(str(path))
    links = read_links(profile)
    assert [link.active for link in links[0]] == [True] * 10 + [False] * 2
    assert {pair.nvlink_count for pair in read_pairs(profile).values()} == {2}


def test_unwired_ports_are_inactive() -> None:
    """A card that could have NVLink but stands alone shows its ports, all down."""
    links = read_links(load_profile("mixed"))
    assert len(links[0]) == 12
    assert not any(link.active or link.remote for link in links[0])
    assert links[1] == ()

"""Connections between GPUs: PCIe paths and NVLinks of a profile. Pure.

Refuses faults other than broken links, which are given as values.
"""

from collections.abc import Callable, Mapping
from itertools import combinations

from nodeagent.model.gpu import GpuPair, NvLink, NvSwitch, PathKind
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent_sim.gpus.profile import Profile, Seat

IsDown = Callable[[int, int], bool]
"""Whether a link of a GPU is down, by GPU index and link number."""


def find_path(left: Seat, right: Seat) -> PathKind:
    """The worst PCIe hop between two GPUs."""
    if left.group == right.group:
        return left.path
    return PathKind.NODE if left.numa_node == right.numa_node else PathKind.SYSTEM


def list_nvlinks(profile: Profile, seat: Seat, is_down: IsDown) -> tuple[NvLink, ...]:
    """The GPU's links in order; a port without a wire is inactive."""
    spec = seat.model.nvlink
    if spec is None:
        return ()
    switched = profile.nvlink is not None and profile.nvlink.wiring == "switch"
    links: list[NvLink] = []
    for number in range(spec.links):
        active = _is_active(profile, seat, number, is_down)
        links.append(
            NvLink(
                link=number,
                active=active,
                remote=_find_remote(profile, seat, number),
                remote_is_switch=switched,
                version=spec.version,
                speed_mbps=spec.speed_mbps if active else None,
            )
        )
    return tuple(links)


def count_active_links(profile: Profile, seat: Seat, is_down: IsDown) -> int:
    """The number of the GPU's working links; cheaper than a list."""
    spec = seat.model.nvlink
    return sum(_is_active(profile, seat, number, is_down) for number in range(spec.links)) if spec else 0


def list_pairs(
    profile: Profile, uuids: Mapping[int, GpuUuid], links: Mapping[int, tuple[NvLink, ...]]
) -> tuple[GpuPair, ...]:
    """Every pair of the GPUs named in `uuids`, by index."""
    switched = profile.nvlink is not None and profile.nvlink.wiring == "switch"
    pairs: list[GpuPair] = []
    for left, right in combinations((seat for seat in profile.seats if seat.index in uuids), 2):
        ours = [link for link in links[left.index] if link.active]
        if switched:
            count = min(len(ours), sum(link.active for link in links[right.index]))
        else:
            count = sum(link.remote == right.address for link in ours)
        pairs.append(
            GpuPair(
                left=uuids[left.index],
                right=uuids[right.index],
                path=find_path(left, right),
                nvlink_count=count,
                through_switch=switched and count > 0,
            )
        )
    return tuple(pairs)


def list_switches(profile: Profile) -> tuple[NvSwitch, ...]:
    """The NVSwitches visible to the node, each with the links that GPUs occupy."""
    if profile.nvlink is None:
        return ()
    return tuple(
        NvSwitch(address=address, link_count=links * len(profile.seats))
        for address, links in zip(profile.switches, profile.nvlink.links_per_switch, strict=True)
    )


def _is_active(profile: Profile, seat: Seat, number: int, is_down: IsDown) -> bool:
    """A link needs a wire and two working ends."""
    if profile.nvlink is None or is_down(seat.index, number):
        return False
    if profile.nvlink.wiring == "switch":
        return True
    far_end = _find_far_end(profile, seat, number)
    return far_end is not None and not is_down(*far_end)


def _find_remote(profile: Profile, seat: Seat, number: int) -> PciAddress | None:
    """The address at the other end, where visible to the node."""
    if profile.nvlink is None:
        return None
    if profile.nvlink.wiring == "mesh":
        far_end = _find_far_end(profile, seat, number)
        return profile.seats[far_end[0]].address if far_end is not None else None
    for address, links in zip(profile.switches, profile.nvlink.links_per_switch, strict=True):
        if number < links:
            return address
        number -= links
    return None


def _find_far_end(profile: Profile, seat: Seat, number: int) -> tuple[int, int] | None:
    """In a mesh, the GPU at the other end and the link's number there."""
    peers = [other for other in profile.seats if other.index != seat.index]
    share = seat.model.nvlink.links // len(peers) if seat.model.nvlink and peers else 0
    if number >= share * len(peers):
        return None
    peer = peers[number // share]
    our_rank = seat.index - (seat.index > peer.index)
    return peer.index, our_rank * share + number % share

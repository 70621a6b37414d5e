"""Who reaches whom, and how: PCIe paths and NVLinks of a profile. Pure.

Refuses faults other than links that are down, which come in as values.
"""

from collections.abc import Callable, Mapping
from itertools import combinations

from nodeagent.edge.simulated.profile import Profile, Seat
from nodeagent.model.gpu import GpuPair, NvLink, NvSwitch, PathKind
from nodeagent.model.ids import GpuUuid, PciAddress

IsDown = Callable[[int, int], bool]
"""Whether this link of the GPU with this index is down."""


def find_path(left: Seat, right: Seat) -> PathKind:
    """The worst PCIe hop between two GPUs."""
    if left.group == right.group:
        return left.path
    return PathKind.NODE if left.numa_node == right.numa_node else PathKind.SYSTEM


def list_nvlinks(profile: Profile, seat: Seat, is_down: IsDown) -> tuple[NvLink, ...]:
    """This GPU's links in order; a port to which nothing is wired is inactive."""
    spec = seat.model.nvlink
    if spec is None:
        return ()
    links: list[NvLink] = []
    for number in range(spec.links):
        remote, far_end = _find_far_end(profile, seat, number)
        wired = profile.nvlink is not None and (profile.nvlink.wiring == "switch" or far_end is not None)
        active = wired and not is_down(seat.index, number) and not (far_end is not None and is_down(*far_end))
        links.append(
            NvLink(
                link=number,
                active=active,
                remote=remote,
                remote_is_switch=profile.nvlink is not None and profile.nvlink.wiring == "switch",
                version=spec.version,
                speed_mbps=spec.speed_mbps if active else None,
            )
        )
    return tuple(links)


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
    """The NVSwitches that the node itself sees, each with the links that GPUs occupy."""
    if profile.nvlink is None:
        return ()
    return tuple(
        NvSwitch(address=address, link_count=links * len(profile.seats))
        for address, links in zip(profile.switches, profile.nvlink.links_per_switch, strict=True)
    )


def _find_far_end(profile: Profile, seat: Seat, number: int) -> tuple[PciAddress | None, tuple[int, int] | None]:
    """The address at the other end, and the link there if that is a GPU."""
    if profile.nvlink is None:
        return None, None
    if profile.nvlink.wiring == "switch":
        dealt = [
            address
            for address, links in zip(profile.switches, profile.nvlink.links_per_switch, strict=True)
            for _ in range(links)
        ]
        return (dealt[number] if number < len(dealt) else None), None
    peers = [other for other in profile.seats if other.index != seat.index]
    share = seat.model.nvlink.links // len(peers) if seat.model.nvlink and peers else 0
    if share == 0 or number >= share * len(peers):
        return None, None
    peer = peers[number // share]
    our_rank = seat.index - (seat.index > peer.index)
    return peer.address, (peer.index, our_rank * share + number % share)

"""Which lines of the kernel log are news: the same fault in both sources is one fault, and the log has the text.

Owns the matching of lines with GPUs, and with reports of the driver.
"""

from typing import Final

from nodeagent.model.events import XidReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.nvidia import EVENT_SOURCE
from nodeagent.model.values import Value

XID_UNDECODABLE, XID_OFF_THE_BUS, XID_NOT_INITIALISED = 999, 79, 143
SAME_SECONDS: Final = 2.0
"""How far apart the two sources may report the same fault."""

XidKey = tuple[str, int, int | None]


def find_gpu_at(inventory: Inventory, address: PciAddress | None) -> GpuUuid | None:
    """The GPU in the PCI slot; `None` where the inventory has no GPU there."""
    return next((gpu.uuid for gpu in inventory.gpus if gpu.pci.address == address), None)


def report_line(
    inventory: Inventory,
    address: PciAddress | None,
    xid: int | None,
    message: str,
    instances: tuple[int | None, int | None] = (None, None),
) -> XidReported | None:
    """A line of the log in the form of the driver's report; `None` for a line about no GPU of the inventory."""
    gpu = find_gpu_at(inventory, address)
    if gpu is None:
        return None
    return XidReported(
        gpu=gpu,
        xid=xid if xid is not None else XID_UNDECODABLE,
        gpu_instance_id=instances[0],
        compute_instance_id=instances[1],
        source="kernel_log",
        message=message,
    )


def key_of(reported: XidReported) -> XidKey:
    """The key that two reports of the same fault share."""
    return reported.gpu, reported.xid, reported.gpu_instance_id


class RecentXids(Value, frozen=True):
    """The XIDs that each source reported in the last seconds."""

    driver: tuple[tuple[XidKey, float], ...] = ()
    log: tuple[tuple[XidKey, float], ...] = ()


def remember_xid(recent: RecentXids, reported: XidReported, at: float) -> RecentXids:
    """Remember a report, and forget reports too old to match another."""
    entry = (key_of(reported), at)
    driver = tuple(one for one in recent.driver if at - one[1] <= 2 * SAME_SECONDS)
    log = tuple(one for one in recent.log if at - one[1] <= 2 * SAME_SECONDS)
    if reported.source == EVENT_SOURCE:
        return RecentXids(driver=(*(one for one in driver if one[0] != entry[0]), entry), log=log)
    return RecentXids(driver=driver, log=(*(one for one in log if one[0] != entry[0]), entry))


def is_duplicate(recent: RecentXids, reported: XidReported, at: float) -> bool:
    """Whether the other source has reported the fault already."""
    others = recent.log if reported.source == EVENT_SOURCE else recent.driver
    return any(key == key_of(reported) and abs(at - when) <= SAME_SECONDS for key, when in others)

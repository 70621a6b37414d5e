"""Which lines of the kernel log are news: the same fault in both sources is one fault, and the log has its text.

Owns the matching of lines with GPUs, and with what NVML reported.
"""

from typing import Final

from nodeagent.model.events import XidReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.values import Value

XID_UNDECODABLE, XID_OFF_THE_BUS, XID_NOT_INITIALISED = 999, 79, 143
SAME_SECONDS: Final = 2.0
"""How far apart the two sources may tell of the same fault."""

XidKey = tuple[str, int, int | None]


def find_gpu_at(inventory: Inventory, address: PciAddress | None) -> GpuUuid | None:
    """The GPU in this slot; `None` when the line names none that is known."""
    return next((gpu.uuid for gpu in inventory.gpus if gpu.pci.address == address), None)


def report_line(
    inventory: Inventory,
    address: PciAddress | None,
    xid: int | None,
    message: str,
    instances: tuple[int | None, int | None] = (None, None),
) -> XidReported | None:
    """What a line of the log says, as NVML would have reported it; `None` where it names no GPU that is known."""
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
    """What makes two reports the same fault."""
    return reported.gpu, reported.xid, reported.gpu_instance_id


class Hearsay(Value, frozen=True):
    """What was heard from each source in the newest seconds."""

    nvml: tuple[tuple[XidKey, float], ...] = ()
    log: tuple[tuple[XidKey, float], ...] = ()


def note_heard(hearsay: Hearsay, reported: XidReported, at: float) -> Hearsay:
    """Remember a report, and forget those that are too old to match anything."""
    entry = (key_of(reported), at)
    nvml = tuple(one for one in hearsay.nvml if at - one[1] <= 2 * SAME_SECONDS)
    log = tuple(one for one in hearsay.log if at - one[1] <= 2 * SAME_SECONDS)
    if reported.source == "nvml":
        return Hearsay(nvml=(*(one for one in nvml if one[0] != entry[0]), entry), log=log)
    return Hearsay(nvml=nvml, log=(*(one for one in log if one[0] != entry[0]), entry))


def is_echo(hearsay: Hearsay, reported: XidReported, at: float) -> bool:
    """Whether the other source told of this fault already."""
    others = hearsay.log if reported.source == "nvml" else hearsay.nvml
    return any(key == key_of(reported) and abs(at - when) <= SAME_SECONDS for key, when in others)

"""GPUs that are on the PCI bus and not in the driver's list: what they are called until they are listed. Pure."""

from collections.abc import Collection, Sequence

from nodeagent.model.driver import PciFunction
from nodeagent.model.gpu import MissingGpu

_DRIVER = "nvidia"


def find_unlisted(functions: Sequence[PciFunction], listed: Collection[str]) -> tuple[PciFunction, ...]:
    """Those that the driver should list; a GPU that was given to another driver on purpose is none of its business."""
    return tuple(one for one in functions if one.bound_driver in ("", _DRIVER) and one.address not in listed)


def name_missing(unnamed: Sequence[MissingGpu], unlisted: Sequence[PciFunction]) -> tuple[MissingGpu, ...]:
    """Everything that is missing, by its place on the bus where that is known.

    The driver speaks of a GPU that it cannot open by its index, the bus by its address: as many as there are of both
    are the same ones. Which is which can be said for sure of a single one only, so several share their reasons.
    """
    said = "; ".join(one.reason for one in unnamed)
    named = (
        MissingGpu(address=one.address, device_id=one.device_id, reason=said or _describe(one)) for one in unlisted
    )
    return (*named, *unnamed[len(unlisted) :])


def _describe(function: PciFunction) -> str:
    if not function.bound_driver:
        return "no kernel driver has taken it"
    return "the driver does not list it"

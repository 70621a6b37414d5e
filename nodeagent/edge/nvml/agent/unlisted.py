"""GPUs on the PCI bus but not in the driver's list, and their names until listed. Pure."""

from collections.abc import Collection, Sequence

from nodeagent.model.driver import PciFunction
from nodeagent.model.gpu import MissingGpu

_DRIVER = "nvidia"


def find_unlisted(functions: Sequence[PciFunction], listed: Collection[str]) -> tuple[PciFunction, ...]:
    """The GPUs that the driver should list; a GPU with another kernel driver is left out."""
    return tuple(one for one in functions if one.bound_driver in ("", _DRIVER) and one.address not in listed)


def name_missing(unnamed: Sequence[MissingGpu], unlisted: Sequence[PciFunction]) -> tuple[MissingGpu, ...]:
    """Every missing GPU, by PCI address where known.

    The driver names a GPU that cannot be opened by index, the bus by address: equal numbers of both are the same GPUs.
    Index and address can be matched for a single GPU only, so several GPUs share their reasons.
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

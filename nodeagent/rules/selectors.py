"""Selectors of devices: an index, a UUID, a PCI address or a model pattern.

Owns the reading of the configuration's selectors, for the device plugin to offer the devices and for the labeler to
count them.

Refuses to guess: a selector without a match selects nothing.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.ids import parse_pci_address
from nodeagent.model.nvidia import VENDOR
from nodeagent.rules.ids import list_mig_names, render_index

# A display adapter inside some workstations that the driver lists but that is no GPU to work with.
_NO_WORK = frozenset({"DGX Display", f"{VENDOR.name} DGX Display"})


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def fits_pattern(text: str, pattern: str) -> bool:
    """Whether the whole text fits a pattern in which `*` stands for any text."""
    return _compile(pattern).fullmatch(text) is not None


def select_gpus(gpus: Iterable[Gpu], include: Sequence[str], exclude: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs to offer: included (all, if no `include` is given), not excluded, and made for work; indexes stay."""
    return tuple(
        gpu
        for gpu in gpus
        if is_for_work(gpu)
        and (not include or any(selects_gpu(selector, gpu) for selector in include))
        and not any(selects_gpu(selector, gpu) for selector in exclude)
    )


def is_for_work(gpu: Gpu) -> bool:
    """Whether the driver lists the GPU as more than a display adapter."""
    return gpu.name not in _NO_WORK


def selects_gpu(selector: str, gpu: Gpu) -> bool:
    """Whether an index, a UUID, a PCI address in any spelling, or a model pattern means the GPU."""
    if selector.isascii() and selector.isdigit():
        return int(selector) == gpu.index
    if selector == gpu.uuid or fits_pattern(gpu.name, selector):
        return True
    try:
        return parse_pci_address(selector) == gpu.pci.address
    except ValueError:
        return False


def find_named(inventory: Inventory, name: str) -> Gpu | None:
    """The GPU that a person names by UUID, by a MIG device's UUID, by PCI address or by index."""
    by_uuid = inventory.find_gpu(name)
    if by_uuid is not None:
        return by_uuid
    return next((gpu for gpu in inventory.gpus if name in {gpu.pci.address, str(gpu.index)}), None)


def selects_device(selector: str, gpu: Gpu, mig: MigDevice | None) -> bool:
    """Whether an index, a `GPU:MIG` index or a UUID means the device; a GPU's name means its MIG devices too."""
    if selector in (render_index(gpu), gpu.uuid):
        return True
    if mig is None:
        return False
    return selector in list_mig_names(gpu, mig)

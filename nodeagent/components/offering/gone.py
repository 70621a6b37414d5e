"""Devices that are held by pods and no longer listed by the driver; pure.

Owns the rule that a pod on a missing GPU is reported, whatever the number of present GPUs.
"""

from collections.abc import Iterator
from typing import Final

from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import FractionTable
from nodeagent.rules.ids import find_uuid, is_of_class, is_ours

HELD_GONE: Final = "gpu-held-gone"


def list_held_gone(
    inventory: Inventory, allocations: AllocationTable, parts: FractionTable, claims: ReadyClaims
) -> dict[str, str]:
    """The detail of the condition by holder: a container, or a pod with a claim."""
    listed = {gpu.uuid for gpu in inventory.gpus} | {mig.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
    gone: dict[str, list[str]] = {}
    for holder, device in _list_held(allocations, parts, claims):
        if device not in listed and device not in gone.setdefault(holder, []):
            gone[holder].append(device)
    return {holder: f"{holder} holds {', '.join(devices)}" for holder, devices in gone.items() if devices}


def _list_held(allocations: AllocationTable, parts: FractionTable, claims: ReadyClaims) -> Iterator[tuple[str, str]]:
    for each in allocations.allocations:
        for device in map(find_uuid, each.devices):
            if is_ours(device) and not is_of_class(device):
                yield each.describe_holder(), device
    for gpu, bindings in parts.by_gpu.items():
        for binding in () if is_of_class(gpu) else bindings:
            yield binding.pod.describe(binding.container), gpu
    for gpu, claimed in claims.by_gpu.items():
        for claim, _ in claimed:
            for pod in claim.pods or (None,):
                yield f"claim {claim.describe()}" if pod is None else pod.describe(), gpu

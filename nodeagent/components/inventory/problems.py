"""The conditions of an inventory, by code and by GPU."""

from collections.abc import Sequence
from datetime import UTC, datetime

from nodeagent.model.gpu import Inventory, StoredGpu

INVENTORY_CODES = (
    "gpu-missing",
    "gpu-lost",
    "gpu-unreadable",
    "gpu-vanished",
    "gpus-all-gone",
    "gpus-fewer-than-expected",
)
NAMED = 8
"""GPUs that a sentence names one by one."""


def decide_problems(inventory: Inventory) -> dict[str, dict[str, str]]:
    """For each code of `INVENTORY_CODES` the details by GPU; an empty mapping clears the condition."""
    return {
        "gpu-missing": {missing.address: f"{missing.address}: {missing.reason}" for missing in inventory.unlisted},
        "gpu-lost": {
            gpu.uuid: f"GPU {gpu.index} ({gpu.name}, {gpu.pci.address}): {gpu.lost}"
            for gpu in inventory.gpus
            if gpu.lost
        },
        "gpu-unreadable": {
            gpu.uuid: f"GPU {gpu.index}: " + "; ".join(f"{datum.what}: {datum.reason}" for datum in gpu.unreadable)
            for gpu in inventory.gpus
            if gpu.unreadable and not gpu.lost
        },
        "gpu-vanished": {gpu.uuid: describe_vanished(gpu) for gpu in inventory.vanished},
        "gpus-all-gone": {"": _describe_all_gone(inventory.vanished)} if _are_all_gone(inventory) else {},
        "gpus-fewer-than-expected": {"": _describe_shortfall(inventory)} if inventory.shortfall else {},
    }


def describe_vanished(gpu: StoredGpu) -> str:
    """The missed GPU, and since when."""
    return f"GPU {gpu.index} ({gpu.name}, {gpu.address}, {gpu.uuid}): missed since {_describe_time(gpu)}"


def _are_all_gone(inventory: Inventory) -> bool:
    return bool(inventory.vanished) and not inventory.gpus and not inventory.missing


def _describe_all_gone(gone: Sequence[StoredGpu]) -> str:
    """The number of vanished GPUs, the first few names, and since when the last GPU is missed."""
    ordered = sorted(gone, key=lambda gpu: (gpu.index, gpu.uuid))
    named = ", ".join(f"GPU {gpu.index} ({gpu.name}, {gpu.address})" for gpu in ordered[:NAMED])
    more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
    newest = max(gone, key=lambda gpu: gpu.gone_since_seconds or 0.0)
    count = "1 GPU was" if len(gone) == 1 else f"{len(gone)} GPUs were"
    return f"{count} here until {_describe_time(newest)}: {named}{more}"


def _describe_time(gpu: StoredGpu) -> str:
    return f"{datetime.fromtimestamp(gpu.gone_since_seconds or 0.0, tz=UTC):%Y-%m-%d %H:%M} UTC"


def _describe_shortfall(inventory: Inventory) -> str:
    found = len(inventory.gpus) + len(inventory.unlisted)
    expected = found + len(inventory.vanished) + inventory.shortfall
    return f"{expected} by {inventory.expected_by}, {found} found"

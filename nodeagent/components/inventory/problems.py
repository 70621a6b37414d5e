"""Which conditions an inventory calls for, by code and by GPU."""

from datetime import UTC, datetime

from nodeagent.model.gpu import Inventory, KnownGpu

INVENTORY_CODES = ("gpu-missing", "gpu-lost", "gpu-unreadable", "gpu-vanished", "gpus-fewer-than-expected")


def decide_problems(inventory: Inventory) -> dict[str, dict[str, str]]:
    """For each code of `INVENTORY_CODES`, what it says of whom; an empty mapping says all is well."""
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
        "gpus-fewer-than-expected": {"": _describe_shortfall(inventory)} if inventory.shortfall else {},
    }


def describe_vanished(gpu: KnownGpu) -> str:
    """Which GPU is missed, and since when."""
    noticed = datetime.fromtimestamp(gpu.gone_since_seconds or 0.0, tz=UTC)
    return f"GPU {gpu.index} ({gpu.name}, {gpu.address}, {gpu.uuid}): missed since {noticed:%Y-%m-%d %H:%M} UTC"


def _describe_shortfall(inventory: Inventory) -> str:
    found = len(inventory.gpus) + len(inventory.unlisted)
    expected = found + len(inventory.vanished) + inventory.shortfall
    return f"{expected} by {inventory.expected_by}, {found} found"

"""Which conditions an inventory calls for, by code and by GPU."""

from nodeagent.model.gpu import Inventory

INVENTORY_CODES = ("gpu-missing", "gpu-lost", "gpu-unreadable")


def decide_problems(inventory: Inventory) -> dict[str, dict[str, str]]:
    """For each code of `INVENTORY_CODES`, what it says of whom; an empty mapping says all is well."""
    known = {gpu.pci.address for gpu in inventory.gpus}
    return {
        "gpu-missing": {
            missing.address: f"{missing.address}: {missing.reason}"
            for missing in inventory.missing
            if missing.address not in known
        },
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
    }

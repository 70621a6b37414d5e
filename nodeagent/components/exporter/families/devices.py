"""Devices of other vendors: present, working and held devices; pure."""

from collections import Counter
from typing import Final

from nodeagent.components.exporter.serving.exposition import Family, make_family
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceTable, Standing
from nodeagent.rules.ids import find_uuid

HELP: Final = {
    "nodeagent_device_healthy": "1 for a device that containers can be given, 0 for one that does not work or is gone.",
    "nodeagent_device_gone": "1 for a device that is gone while a container has it.",
    "nodeagent_device_shares": "How many containers may have the device at the same time.",
    "nodeagent_device_shares_held": "How many shares of the device containers have.",
}


def build_device_families(table: DeviceTable, allocations: AllocationTable | None) -> tuple[Family, ...]:
    """All families about device classes, a series for each device."""
    held = Counter(
        find_uuid(name) for one in (allocations.allocations if allocations is not None else ()) for name in one.devices
    )
    devices = [(each, device) for each in table.classes for device in each.devices]
    values: dict[str, list[float]] = {
        "nodeagent_device_healthy": [device.standing is Standing.HEALTHY for _, device in devices],
        "nodeagent_device_gone": [device.standing is Standing.GONE for _, device in devices],
        "nodeagent_device_shares": [each.replicas for each, _ in devices],
        "nodeagent_device_shares_held": [held[device.id] for _, device in devices],
    }
    labels = [
        (("resource", str(each.resource)), ("device", device.name), ("id", str(device.id))) for each, device in devices
    ]
    return tuple(
        make_family(name, "gauge", text, list(zip(labels, map(float, values[name]), strict=True)))
        for name, text in HELP.items()
    )

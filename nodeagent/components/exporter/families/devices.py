"""The agent's own series about devices of other vendors: standing, shares and readings; pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from nodeagent.components.exporter.exposition import Family, Labels, MetricType, gauge, make_family
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceReadings, DeviceReadingTable, DeviceTable, Standing
from nodeagent.rules.ids import find_uuid

_Read = Callable[[DeviceReadings], Iterable[tuple[Labels, float | None]]]

HELP: Final = {
    "nodeagent_device_healthy": "1 for a device that containers can be given, 0 for one that does not work or is gone.",
    "nodeagent_device_gone": "1 for a device that is gone while a container has it.",
    "nodeagent_device_shares": "How many containers may have the device at the same time.",
    "nodeagent_device_shares_held": "How many shares of the device containers have.",
}
_READINGS: tuple[tuple[str, MetricType, str, _Read], ...] = (
    (
        "nodeagent_device_temperature_celsius",
        "gauge",
        "Temperature at each sensor, label `sensor`.",
        lambda r: [((("sensor", each.sensor),), each.celsius) for each in r.temperatures],
    ),
    (
        "nodeagent_device_temperature_critical_celsius",
        "gauge",
        "Temperature from which on the device does not work, label `sensor`.",
        lambda r: [((("sensor", each.sensor),), each.critical_celsius) for each in r.temperatures],
    ),
    ("nodeagent_device_power_watts", "gauge", "Power the device draws.", lambda r: [((), r.power_watts)]),
    ("nodeagent_device_energy_joules_total", "counter", "Energy drawn.", lambda r: [((), r.energy_joules)]),
    (
        "nodeagent_device_utilization_ratio",
        "gauge",
        "Use of the device, from 0 to 1.",
        lambda r: [((), r.utilization_ratio)],
    ),
    (
        "nodeagent_device_memory_used_bytes",
        "gauge",
        "Memory of the device in use.",
        lambda r: [((), r.memory_used_bytes)],
    ),
    ("nodeagent_device_memory_bytes", "gauge", "Memory of the device.", lambda r: [((), r.memory_bytes)]),
    (
        "nodeagent_device_errors_total",
        "counter",
        "Errors of the hardware since the driver was loaded, labels `block` and `kind`: corrected, uncorrected.",
        lambda r: [
            ((("block", each.block), ("kind", kind)), count)
            for each in r.errors
            for kind, count in (("corrected", each.corrected), ("uncorrected", each.uncorrected))
        ],
    ),
)


def build_device_families(
    table: DeviceTable, allocations: AllocationTable | None, readings: DeviceReadingTable | None
) -> tuple[Family, ...]:
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
    labels: list[Labels] = [
        (("resource", str(each.resource)), ("device", device.name), ("id", str(device.id))) for each, device in devices
    ]
    known = readings.readings if readings is not None else {}
    read = [(own, known[device.id]) for own, (_, device) in zip(labels, devices, strict=True) if device.id in known]
    return (
        *(gauge(name, text, list(zip(labels, map(float, values[name]), strict=True))) for name, text in HELP.items()),
        *(
            make_family(name, kind, text, [((*own, *extra), value) for own, one in read for extra, value in find(one)])
            for name, kind, text, find in _READINGS
        ),
    )

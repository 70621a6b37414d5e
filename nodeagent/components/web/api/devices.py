"""Devices of other kinds than NVIDIA's GPUs in the API, with their holders."""

from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.devices import DeviceClassState, DeviceTable, HostDevice
from nodeagent.rules.ids import find_uuid


def join_devices(table: DeviceTable | None, allocations: AllocationTable | None) -> tuple[DeviceClassRecord, ...]:
    """Every class with its devices."""
    held = allocations.allocations if allocations is not None else ()
    return tuple(_join_class(each, held) for each in (table.classes if table is not None else ()))


def _join_class(state: DeviceClassState, held: tuple[Allocation, ...]) -> DeviceClassRecord:
    return DeviceClassRecord(
        resource=state.resource,
        replicas=state.replicas,
        devices=tuple(_join_device(device, held) for device in state.devices),
        problems=state.problems,
    )


def _join_device(device: HostDevice, held: tuple[Allocation, ...]) -> DeviceRecord:
    mine = [(one, name) for one in held for name in one.devices if find_uuid(name) == device.id]
    return DeviceRecord(
        device=device,
        holders=tuple(dict.fromkeys(_name(one) for one, _ in mine)),
        shares_held=len(mine),
    )


def _name(allocation: Allocation) -> str:
    pod = allocation.pod
    if pod is None:
        return f"allocation {allocation.number}"
    return f"{pod.namespace}/{pod.name}" if pod.name else f"pod {pod.uid}"

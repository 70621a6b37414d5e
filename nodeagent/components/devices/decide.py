"""Decisions after a scan of the host: the devices of each class, the kubelet's list, the conditions.

Owns the comparison of stored devices with present ones. A device that is gone is kept while a container holds it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.devices import (
    DeviceClassState,
    DeviceReadingTable,
    DeviceTable,
    HostDevice,
    HostDevices,
    ScanRequest,
    Standing,
)
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.rules.devices.group import (
    Grouped,
    list_missing_extras,
    name_resource,
    parse_id,
    plan_classes,
)
from nodeagent.rules.devices.health import Judged, describe_gone, judge, judge_files, plan_files
from nodeagent.rules.devices.match import name_extra_patterns, name_node_patterns
from nodeagent.rules.devices.sensors import Sensed, judge_sensors, read_values
from nodeagent.rules.ids import find_uuid

CODES = ("device-gone", "device-unhealthy", "devices-missing", "devices-unclear")


class JudgedDevice(NamedTuple):
    """A device and its stored verdict."""

    device: HostDevice
    judged: Judged


class Findings(NamedTuple):
    """Findings beside the device nodes."""

    texts: Mapping[str, str] = {}
    """Of files below /sys, by path."""
    commands: Mapping[DeviceId, str] = {}
    """By device the message of its failed command; empty after a success."""
    is_due: Collection[ResourceName] = ()
    """The classes for which this poll counts on the way back to healthy: classes not yet due are left out."""
    sensed: Mapping[str, Sensed] = {}
    """By directory below /sys the sensors in it."""


def plan_scan(classes: Iterable[DeviceClass]) -> ScanRequest:
    """The scan for all classes."""
    classes = tuple(classes)
    patterns = [
        pattern
        for each in classes
        for pattern in (*name_node_patterns(each), *name_extra_patterns(each), *each.companion_nodes)
    ]
    links = [pattern for each in classes for pattern in each.links]
    unnamed = [each for each in classes if not name_node_patterns(each)]
    names = [each.sysfs_class for each in unnamed if each.sysfs_class is not None]
    return ScanRequest(
        patterns=tuple(dict.fromkeys(patterns)),
        sysfs_classes=tuple(dict.fromkeys(names)),
        links=tuple(dict.fromkeys(links)),
        is_pci=any(each.sysfs_class is None for each in unnamed),
        has_all_functions=any(each.vfio for each in classes),
    )


def plan_paths(classes: Iterable[DeviceClass], host: HostDevices) -> tuple[str, ...]:
    """The files of sysfs to read."""
    grouped = plan_classes(classes, host)
    paths = [
        path
        for each in classes
        for device in grouped[name_resource(each)].devices
        for path in plan_files(each, device)
        if path
    ]
    return tuple(dict.fromkeys(paths))


def look_at(
    classes: Sequence[DeviceClass],
    host: HostDevices,
    known: Mapping[DeviceId, JudgedDevice],
    findings: Findings,
    held: Mapping[str, Sequence[Allocation]],
    clean_looks: int,
) -> dict[DeviceId, JudgedDevice]:
    """All present or held devices, each with its verdict."""
    found: dict[DeviceId, JudgedDevice] = {}
    for each in classes:
        resource = name_resource(each)
        there = {device.id: device for device in plan_classes(classes, host)[resource].devices}
        missing = list_missing_extras(each, host)
        for name, device in there.items():
            against = [f"{path}, which goes with it, is not there" for path in missing]
            against += judge_files(each, device, findings.texts)
            against += judge_sensors(each, device, findings.sensed.get(device.sensors))
            if said := findings.commands.get(name):
                against.append(said)
            before = known[name].judged if name in known else None
            verdict = judge(before, against, is_there=True, clean_looks=clean_looks, counts=resource in findings.is_due)
            memory_bytes = _find_memory(each, device, findings.sensed.get(device.sensors), known.get(name))
            found[name] = JudgedDevice(_tell(replace(device, memory_bytes=memory_bytes), verdict), verdict)
        for device_id in map(DeviceId, held.keys() - there.keys()):
            if (own_name := parse_id(device_id, resource)) is not None:
                # Of a device gone before the agent's start only the name is known.
                bare = HostDevice(id=device_id, name=own_name, nodes=(own_name,))
                gone = known[device_id].device if device_id in known else bare
                verdict = judge(None, (), is_there=False, clean_looks=clean_looks)
                found[device_id] = JudgedDevice(_tell(gone, verdict), verdict)
    return found


def _find_memory(
    device_class: DeviceClass, device: HostDevice, sensed: Sensed | None, known: JudgedDevice | None
) -> int | None:
    """The memory to give out of a divisible device: as configured, else the kernel's last word."""
    if not device_class.divisible:
        return None
    if device_class.memory_mib is not None:
        return device_class.memory_mib << 20
    told = read_values(device, sensed)
    before = known.device.memory_bytes if known is not None else None
    return before if told is None or told.memory_bytes is None else told.memory_bytes


def plan_readings(known: Mapping[DeviceId, JudgedDevice], sensed: Mapping[str, Sensed]) -> DeviceReadingTable:
    """The readings for publication."""
    present = {name: one.device for name, one in known.items() if one.device.standing is not Standing.GONE}
    found = {name: read_values(device, sensed.get(device.sensors)) for name, device in present.items()}
    return DeviceReadingTable(readings={name: values for name, values in found.items() if values is not None})


def _tell(device: HostDevice, judged: Judged) -> HostDevice:
    return replace(device, standing=judged.standing, reason=judged.reason)


def plan_table(
    classes: Iterable[DeviceClass], host: HostDevices, known: Mapping[DeviceId, JudgedDevice]
) -> DeviceTable:
    """The state for publication."""
    classes = tuple(classes)
    grouped = plan_classes(classes, host)
    return DeviceTable(classes=tuple(_plan_state(each, grouped[name_resource(each)], known) for each in classes))


def _plan_state(
    device_class: DeviceClass, grouped: Grouped, known: Mapping[DeviceId, JudgedDevice]
) -> DeviceClassState:
    resource = name_resource(device_class)
    there = [device.id for device in grouped.devices]
    gone = sorted(name for name in known if name not in there and parse_id(name, resource) is not None)
    return DeviceClassState(
        resource=resource,
        replicas=device_class.replicas,
        divisible=device_class.divisible,
        devices=tuple(known[name].device for name in (*there, *gone) if name in known),
        problems=grouped.problems,
    )


def find_holders(
    table: AllocationTable | None, resources: Iterable[ResourceName], fractions: FractionTable | None = None
) -> dict[str, list[Allocation]]:
    """The allocations of each device, by id without the number of a replica; a fraction of it counts as one."""
    wanted, held = set(resources), dict[str, list[Allocation]]()
    for allocation in table.allocations if table is not None else ():
        if allocation.resource in wanted:
            for name in dict.fromkeys(map(find_uuid, allocation.devices)):
                held.setdefault(name, []).append(allocation)
    for device, bindings in (fractions or FractionTable()).by_gpu.items():
        resource = next((each for each in sorted(wanted) if parse_id(device, each) is not None), None)
        if resource is not None:
            held.setdefault(device, []).extend(_describe_binding(each, resource) for each in bindings)
    return held


def _describe_binding(binding: Binding, resource: ResourceName) -> Allocation:
    return Allocation(
        number=binding.number,
        resource=resource,
        devices=tuple(DeviceId(fraction.gpu) for fraction in binding.parts),
        since_seconds=binding.since_seconds,
        pod=binding.pod,
        container=binding.container,
    )


def decide_conditions(
    classes: Sequence[DeviceClass], table: DeviceTable, held: Mapping[str, Sequence[Allocation]]
) -> dict[str, dict[str, str]]:
    """By code, the subjects with their details; all codes are present."""
    found: dict[str, dict[str, str]] = {code: {} for code in CODES}
    for each, state in zip(classes, table.classes, strict=True):
        for device in state.devices:
            if device.standing is Standing.GONE:
                holders = [one.describe_holder() for one in held.get(device.id, ())] or ["somebody"]
                found["device-gone"][device.id] = f"{state.resource}: {describe_gone(device, holders)}"
            elif device.standing is Standing.UNHEALTHY:
                found["device-unhealthy"][device.id] = f"{state.resource}: {device.name}: {device.reason}"
        there = sum(device.standing is not Standing.GONE for device in state.devices)
        if each.expected is not None and there < each.expected:
            found["devices-missing"][state.resource] = f"{state.resource}: {there} of {each.expected} are there"
        if state.problems:
            found["devices-unclear"][state.resource] = f"{state.resource}: {'; '.join(state.problems)}"
    return found

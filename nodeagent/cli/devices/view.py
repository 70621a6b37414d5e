"""Devices of other vendors in text."""

from collections.abc import Sequence

from nodeagent.cli.answers.table import Table
from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord
from nodeagent.model.devices import Standing
from nodeagent.rules.devices.discover import Proposal

HEAD = ("RESOURCE", "DEVICE", "STANDING", "HELD", "NUMA", "PCI", "HELD BY", "ID")
GIVING_WAY = ("PCI", "NUMA")


def tabulate_devices(classes: Sequence[DeviceClassRecord]) -> Table:
    """A line per device."""
    rows = [_row(each, device) for each in classes for device in each.devices]
    return Table(
        HEAD,
        rows,
        names=[row[-1] for row in rows],
        giving_way=GIVING_WAY,
        wide=("ID",),
        nothing="no device of a class in `devices.classes`; `nodeagent devices discover` says which there could be",
    )


def describe_classes(classes: Sequence[DeviceClassRecord]) -> list[str]:
    """The problems of devices, class by class, and classes without a device."""
    lines = []
    for each in classes:
        lines += [f"{each.resource}: {problem}" for problem in each.problems]
        lines += [
            f"{each.resource}: {record.device.name}: {record.device.reason}"
            for record in each.devices
            if record.device.standing is not Standing.HEALTHY
        ]
        if not each.devices:
            lines.append(f"{each.resource}: no device")
    return lines


def _row(each: DeviceClassRecord, record: DeviceRecord) -> tuple[str, ...]:
    device = record.device
    return (
        each.resource,
        device.name,
        str(device.standing),
        f"{record.shares_held} of {each.replicas}",
        "-" if device.numa_node is None else str(device.numa_node),
        device.pci or "-",
        ", ".join(record.holders) or "-",
        device.id,
    )


def render_proposals(proposals: Sequence[Proposal], offered: Sequence[str]) -> str:
    """A configuration to paste, with the devices of each class."""
    if not proposals:
        return "nothing on this host that a class is known for\n"
    lines = ["devices:", "  classes:"]
    for each in proposals:
        lines.append(f"    # {len(each.devices)} of {each.resource}: {', '.join(each.devices)}")
        if each.note:
            lines.append(f"    # {each.note}")
        if each.resource in offered:
            lines.append("    # the configuration has it already")
        lines += [f"    {'# ' if each.resource in offered else ''}{line}" for line in each.lines]
    return "\n".join(lines) + "\n"

"""`nodeagent devices [discover]`."""

import argparse
from collections.abc import Sequence

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.asking import ask
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import Table, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams
from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord
from nodeagent.config.knobs import Findings, Place
from nodeagent.config.sections.devices import ClassKind, DeviceClass
from nodeagent.config.sections.devices_ready import READY, plant
from nodeagent.config.tree import DEFAULT
from nodeagent.edge.host.devices.host_scan import ScanRoots, scan_host
from nodeagent.model.devices import DeviceReadings, ScanRequest, Standing
from nodeagent.rules.devices.discover import Proposal, propose
from nodeagent.rules.devices.match import VFIO_NODES


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The devices of each class, and their holders."""
    agent, classes = ask(arguments, "devices", tuple[DeviceClassRecord, ...])
    write_table(arguments, streams, classes, tabulate_devices(classes), describe_classes(classes), agent)
    is_well = all(
        record.device.standing is Standing.HEALTHY and not each.problems for each in classes for record in each.devices
    )
    return ExitCode.OK if is_well else ExitCode.UNWELL


def discover(arguments: argparse.Namespace, streams: Streams) -> int:
    """The classes possible on this host; asks no agent and writes nothing."""
    settings = load_for_looking(arguments, read_environment(arguments))
    classes = tuple(read_ready(name) for name in READY)
    patterns = [pattern for each in classes for pattern in (*each.nodes, *each.extra_nodes)]
    request = ScanRequest(patterns=(*patterns, VFIO_NODES), is_pci=True, has_all_functions=True)
    host = scan_host(ScanRoots(settings.node.host_root, settings.node.sys_dir), request)
    proposals = propose(classes, host)
    offered = [each.resource or "" for each in settings.devices.classes]
    write_answer(arguments, streams, proposals, render_proposals(proposals, offered))
    return ExitCode.OK


def read_ready(name: str) -> DeviceClass:
    """A ready-made class, as read from a configuration with `use`."""
    return ClassKind(DeviceClass).read(plant({"use": name}, DEFAULT), Place(Findings()))


HEAD = ("RESOURCE", "DEVICE", "STANDING", "HELD", "NUMA", "PCI", "HELD BY", "TEMPERATURE", "ID")
GIVING_WAY = ("PCI", "NUMA")


def tabulate_devices(classes: Sequence[DeviceClassRecord]) -> Table:
    """A line per device."""
    rows = [_row(each, device) for each in classes for device in each.devices]
    return Table(
        HEAD,
        rows,
        names=[row[-1] for row in rows],
        giving_way=GIVING_WAY,
        wide=("TEMPERATURE", "ID"),
        nothing="no device of a class in `devices.classes`; `nodeagent devices discover` says which there could be",
    )


def describe_classes(classes: Sequence[DeviceClassRecord]) -> list[str]:
    """The problems of devices, class by class, and classes without a device."""
    lines = []
    for each in classes:
        lines += [f"{each.resource}: {problem}" for problem in each.notes]
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
        each.describe_held(record),
        "-" if device.numa_node is None else str(device.numa_node),
        device.pci or "-",
        ", ".join(record.holders) or "-",
        _describe_heat(record.readings),
        device.id,
    )


def _describe_heat(readings: DeviceReadings | None) -> str:
    """The hottest sensor."""
    heat = [each.celsius for each in readings.temperatures] if readings is not None else []
    return f"{max(heat):.0f} °C" if heat else "-"


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

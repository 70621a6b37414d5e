"""`nodeagent devices [discover]`."""

import argparse

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.devices.view import describe_classes, render_proposals, tabulate_devices
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu.source import API
from nodeagent.cli.main import Streams
from nodeagent.components.web.api.records import DeviceClassRecord
from nodeagent.config.knobs import Findings, Place
from nodeagent.config.sections.devices import ClassKind, DeviceClass
from nodeagent.config.sections.devices_ready import READY, plant
from nodeagent.config.tree import DEFAULT
from nodeagent.edge.host.devices.host_scan import ScanRoots, scan_host
from nodeagent.model.devices import ScanWish, Standing
from nodeagent.rules.devices.discover import propose


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The devices of each class, and their holders."""
    environ = read_environment(arguments)
    agent = find_agent(load_for_looking(arguments, environ), environ)
    classes = agent.read(f"{API}/devices", tuple[DeviceClassRecord, ...])
    write_table(arguments, streams, classes, tabulate_devices(classes), describe_classes(classes), agent)
    is_well = all(
        record.device.standing is Standing.HEALTHY and not each.problems for each in classes for record in each.devices
    )
    return ExitCode.OK if is_well else ExitCode.UNWELL


def discover(arguments: argparse.Namespace, streams: Streams) -> int:
    """The classes possible on this host; asks no agent and writes nothing."""
    settings = load_for_looking(arguments, read_environment(arguments))
    classes = tuple(read_ready(name) for name in READY)
    patterns = tuple(pattern for each in classes for pattern in (*each.nodes, *each.extra_nodes))
    host = scan_host(
        ScanRoots(settings.node.host_root, settings.node.sys_dir), ScanWish(patterns=patterns, is_pci=True)
    )
    proposals = propose(classes, host)
    offered = [each.resource or "" for each in settings.devices.classes]
    write_answer(arguments, streams, proposals, render_proposals(proposals, offered))
    return ExitCode.OK


def read_ready(name: str) -> DeviceClass:
    """A ready-made class, as read from a configuration with `use`."""
    return ClassKind(DeviceClass).read(plant({"use": name}, DEFAULT), Place(Findings()))

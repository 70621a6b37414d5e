"""`nodeagent gpu list|topology|health|xids|holders|clear|forget`."""

import argparse
import time

from msgspec import json

from nodeagent.cli.client import find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.gpu_source import read_gpus, read_judged, read_pods, read_troubles
from nodeagent.cli.gpu_view import (
    render_health,
    render_holders,
    render_list,
    render_topology,
    render_troubles,
    render_xid,
    render_xids,
)
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import read_environment, read_width, wants_colour
from nodeagent.components.health.policy import XidPolicy, apply_policy, plan_policy
from nodeagent.components.health.xids import CATALOGUE, XidEntry, find_xid
from nodeagent.edge.host.processes import DeviceHolder, read_device_holders
from nodeagent.model.gpu import GpuPair, NvSwitch
from nodeagent.model.health import DeviceHealth, ReturnRule, Verdict
from nodeagent.model.values import Value


class TopologyRecord(Value, frozen=True):
    """What `gpu topology --json` prints."""

    gpus: tuple[str, ...]
    cpu_affinity: tuple[str, ...]
    numa_nodes: tuple[int | None, ...]
    pairs: tuple[GpuPair, ...]
    switches: tuple[NvSwitch, ...] = ()


class HolderRecord(Value, frozen=True):
    """One line of `gpu holders --json`."""

    holder: DeviceHolder
    pod: str = ""


class XidRecord(Value, frozen=True):
    """One line of `gpu xids --json`."""

    xid: XidEntry
    meaning: str
    remedy: str
    verdict_here: Verdict
    return_rule_here: ReturnRule


def show_list(arguments: argparse.Namespace, streams: Streams) -> int:
    """Every GPU and MIG device."""
    environ = read_environment()
    records = read_gpus(arguments, load_for(arguments, environ).settings, environ)
    text = render_list(records, width=read_width(streams.out))
    _print(arguments, streams, records, text)
    return ExitCode.OK


def show_topology(arguments: argparse.Namespace, streams: Streams) -> int:
    """How GPUs reach each other."""
    environ = read_environment()
    records = read_gpus(arguments, load_for(arguments, environ).settings, environ)
    gpus = [record.gpu for record in records.gpus]
    shown = TopologyRecord(
        gpus=tuple(gpu.uuid for gpu in gpus),
        cpu_affinity=tuple(gpu.cpu_affinity for gpu in gpus),
        numa_nodes=tuple(gpu.numa_node for gpu in gpus),
        pairs=records.pairs,
        switches=records.switches,
    )
    _print(arguments, streams, shown, render_topology(records))
    return ExitCode.OK


def show_health(arguments: argparse.Namespace, streams: Streams) -> int:
    """The verdict on every device; the exit code says whether all are healthy."""
    environ = read_environment()
    records = read_judged(load_for(arguments, environ).settings, environ)
    devices: tuple[DeviceHealth, ...] = tuple(device for record in records.gpus for device in record.health)
    colour = wants_colour(streams.out, environ)
    text = render_health(records, time.time(), width=read_width(streams.out), colour=colour)
    text += render_troubles(read_troubles(load_for(arguments, environ).settings, environ))
    _print(arguments, streams, devices, text)
    is_well = devices and all(device.verdict is Verdict.HEALTHY for device in devices)
    return ExitCode.OK if is_well else ExitCode.UNWELL


def show_xids(arguments: argparse.Namespace, streams: Streams) -> int:
    """The catalogue, or one of its entries."""
    policy = plan_policy(load_for(arguments, read_environment()).settings.health)
    number = arguments.number
    entries = tuple(CATALOGUE.values()) if number is None else (find_xid(number),)
    if number is None:
        text = render_xids(entries, policy, width=read_width(streams.out))
    else:
        text = render_xid(entries[0], policy)
    shown = tuple(_record_xid(entry, policy) for entry in entries)
    _print(arguments, streams, shown, text)
    return ExitCode.OK


def show_holders(arguments: argparse.Namespace, streams: Streams) -> int:
    """Which processes hold the device files."""
    environ = read_environment()
    settings = load_for(arguments, environ).settings
    holders = read_device_holders(settings.node.proc_dir)
    pods = read_pods(settings, environ) if any(holder.pod_uid for holder in holders) else {}
    shown = tuple(HolderRecord(holder=holder, pod=pods.get(holder.pod_uid, "")) for holder in holders)
    _print(arguments, streams, shown, render_holders(holders, pods, width=read_width(streams.out)))
    return ExitCode.OK


def clear(arguments: argparse.Namespace, streams: Streams) -> int:
    """Take a GPU back into service."""
    environ = read_environment()
    reason = (arguments.reason or "").strip()
    if not reason:
        raise CommandFailed("say why with --reason: it is kept with who cleared the GPU and when", ExitCode.BAD_INPUT)
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    who = environ.get("SUDO_USER") or environ.get("USER") or ""
    print(agent.post("/api/v1/clear", {"gpu": arguments.gpu, "reason": reason, "who": who}), file=streams.out)
    return ExitCode.OK


def forget(arguments: argparse.Namespace, streams: Streams) -> int:
    """No longer miss a GPU that is gone for good."""
    environ = read_environment()
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    who = environ.get("SUDO_USER") or environ.get("USER") or ""
    print(agent.post("/api/v1/forget", {"gpu": arguments.gpu, "who": who}), file=streams.out)
    return ExitCode.OK


def _print(arguments: argparse.Namespace, streams: Streams, record: object, text: str) -> None:
    if arguments.json:
        text = json.format(json.encode(record), indent=2).decode() + "\n"
    streams.out.write(text)


def _record_xid(entry: XidEntry, policy: XidPolicy) -> XidRecord:
    here = apply_policy(entry, policy)
    return XidRecord(
        xid=entry,
        meaning=entry.meaning,
        remedy=entry.remedy.sentence,
        verdict_here=here.verdict,
        return_rule_here=here.rule,
    )

"""`nodeagent gpu list|topology|health|xids|holders`."""

import argparse
import time

from nodeagent.cli.agent.settings import load_for, load_for_looking
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.selection import is_pod, name_holders, narrow_gpus, warn_of_pod
from nodeagent.cli.answers.table import read_environment, wants_colour
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu.source import read_gpus, read_judged, read_pods, read_troubles
from nodeagent.cli.gpu.view import (
    advise,
    explain_topology,
    list_missing,
    list_troubles,
    render_xid,
    tabulate_gpus,
    tabulate_health,
    tabulate_holders,
    tabulate_topology,
    tabulate_xids,
)
from nodeagent.cli.main import Streams
from nodeagent.components.health.evidence.xids import CATALOGUE, XidEntry, find_xid
from nodeagent.components.health.policy import apply_policy
from nodeagent.components.web.api.records import GpusRecord
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.edge.host.processes.device_holders import DeviceHolder, read_device_holders
from nodeagent.model.gpu import GpuPair, NvSwitch
from nodeagent.model.health import DeviceHealth, ReturnRule, Verdict
from nodeagent.model.values import Value


class TopologyRecord(Value, frozen=True):
    """The output of `gpu topology --json`."""

    gpus: tuple[str, ...]
    cpu_affinity: tuple[str, ...]
    numa_nodes: tuple[int | None, ...]
    pairs: tuple[GpuPair, ...]
    switches: tuple[NvSwitch, ...] = ()


class HolderRecord(Value, frozen=True):
    """A line of `gpu holders --json`."""

    holder: DeviceHolder
    pod: str = ""


class XidRecord(Value, frozen=True):
    """A line of `gpu xids --json`."""

    xid: XidEntry
    meaning: str
    remedy: str
    verdict_here: Verdict
    return_rule_here: ReturnRule


def show_list(arguments: argparse.Namespace, streams: Streams) -> int:
    """Every GPU and MIG device."""
    environ = read_environment(arguments)
    answerer, records = read_gpus(arguments, load_for_looking(arguments, environ), environ)
    records = _narrow(arguments, streams, records)
    write_table(arguments, streams, records, tabulate_gpus(records), list_missing(records), answerer)
    return ExitCode.OK


def show_topology(arguments: argparse.Namespace, streams: Streams) -> int:
    """How GPUs reach each other."""
    environ = read_environment(arguments)
    answerer, records = read_gpus(arguments, load_for_looking(arguments, environ), environ)
    gpus = [record.gpu for record in records.gpus]
    shown = TopologyRecord(
        gpus=tuple(gpu.uuid for gpu in gpus),
        cpu_affinity=tuple(gpu.cpu_affinity for gpu in gpus),
        numa_nodes=tuple(gpu.numa_node for gpu in gpus),
        pairs=records.pairs,
        switches=records.switches,
    )
    write_table(arguments, streams, shown, tabulate_topology(records), explain_topology(records), answerer)
    return ExitCode.OK


def show_health(arguments: argparse.Namespace, streams: Streams) -> int:
    """The verdict on every device; the exit code says whether all expected devices are known to be healthy."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    answerer, records = read_judged(settings, environ)
    records = _narrow(arguments, streams, records)
    devices: tuple[DeviceHealth, ...] = tuple(device for record in records.gpus for device in record.health)
    advice = advise(records, colour=wants_colour(streams.out, environ))
    is_narrowed = arguments.gpu is not None or arguments.pod is not None
    troubles = read_troubles(settings, environ, of_absence=not is_narrowed)
    after = [*advice, *list_troubles(troubles)]
    write_table(arguments, streams, devices, tabulate_health(records, time.time()), after, answerer)
    is_well = devices and all(device.verdict is Verdict.HEALTHY for device in devices) and not troubles
    return ExitCode.OK if is_well else ExitCode.UNWELL


def show_xids(arguments: argparse.Namespace, streams: Streams) -> int:
    """The catalogue, or a single entry."""
    settings = load_for(arguments, read_environment()).settings.health
    number = arguments.number
    entries = tuple(CATALOGUE.values()) if number is None else (find_xid(number),)
    shown = tuple(_record_xid(entry, settings) for entry in entries)
    if number is None or arguments.form in {"wide", "name"}:
        write_table(arguments, streams, shown, tabulate_xids(entries, settings))
    else:
        write_answer(arguments, streams, shown, render_xid(entries[0], settings))
    return ExitCode.OK


def show_holders(arguments: argparse.Namespace, streams: Streams) -> int:
    """The processes with open device files."""
    environ = read_environment(arguments)
    settings = load_for(arguments, environ).settings
    holders = read_device_holders(settings.node.proc_dir)
    pods = read_pods(settings, environ) if any(holder.pod_uid for holder in holders) else {}
    if arguments.pod is not None:
        warn_of_pod(arguments.pod, (pods.get(one.pod_uid, "") for one in holders), streams)
        holders = tuple(one for one in holders if is_pod(arguments.pod, pods.get(one.pod_uid, "")))
    shown = tuple(HolderRecord(holder=holder, pod=pods.get(holder.pod_uid, "")) for holder in holders)
    write_table(arguments, streams, shown, tabulate_holders(holders, pods))
    return ExitCode.OK


def _narrow(arguments: argparse.Namespace, streams: Streams, records: GpusRecord) -> GpusRecord:
    """The GPUs filtered by `--gpu` and `--pod`."""
    warn_of_pod(arguments.pod, name_holders(records.gpus), streams)
    return narrow_gpus(records, arguments.gpu, arguments.pod)


def _record_xid(entry: XidEntry, settings: HealthSettings) -> XidRecord:
    here = apply_policy(entry, settings)
    return XidRecord(
        xid=entry,
        meaning=entry.meaning,
        remedy=entry.remedy.sentence,
        verdict_here=here.verdict,
        return_rule_here=here.rule,
    )

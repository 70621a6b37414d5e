"""GPUs in a terminal; pure."""

from collections.abc import Sequence

from nodeagent.cli.answers.selection import name_fraction_pods, name_pod
from nodeagent.cli.answers.table import Table, clean, paint
from nodeagent.cli.node.status_view import describe_rest
from nodeagent.components.health.evidence.xids import Scope, XidEntry
from nodeagent.components.health.policy import apply_policy
from nodeagent.components.web.api.records import ConditionRecord, GpuRecord, GpusRecord
from nodeagent.components.web.page.groups import group_conditions
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.edge.host.processes.device_holders import DeviceHolder
from nodeagent.model.gpu import PathKind
from nodeagent.model.health import DeviceHealth, ReturnRule, Verdict
from nodeagent.model.offering import GpuAllocationMode
from nodeagent.model.wording import render_age, render_bytes
from nodeagent.rules.ids import name_device, parse_device_id, render_index

STYLES = {Verdict.HEALTHY: "good", Verdict.SUSPECT: "warn", Verdict.UNKNOWN: "warn", Verdict.UNHEALTHY: "bad"}
RETURN_WORDS = {
    ReturnRule.NEVER_LEFT: "-",
    ReturnRule.PROCESS_GONE: "program gone",
    ReturnRule.LEVELS_CLEAN: "clean levels",
    ReturnRule.RESET: "reset",
    ReturnRule.POWER_CYCLE: "power cycle",
    ReturnRule.SERVICE: "service",
    ReturnRule.QUIET_PERIOD: "quiet time",
}
LEGEND = (
    "X    the GPU itself",
    "NVn  n NVLinks between the two, direct or through switches",
    "PIX  at most one PCIe bridge",
    "PXB  several PCIe bridges, no host bridge",
    "PHB  through the host bridge of one CPU",
    "NODE through host bridges of one NUMA node",
    "SYS  through the link between NUMA nodes",
)


def tabulate_gpus(records: GpusRecord) -> Table:
    """A line per GPU and per MIG device."""
    head = ("GPU", "MODEL", "MEMORY", "HEALTH", "NUMA", "PCI", "UUID", "POWER LIMIT", "CPUS", "DOOR", "HELD BY")
    rows: list[Sequence[str]] = []
    for record in records.gpus:
        rows += [_gpu_row(record), *_mig_rows(record)]
    return Table(
        head, rows, names=[row[6] for row in rows], wide=("POWER LIMIT", "CPUS", "DOOR", "HELD BY"), nothing="no GPU"
    )


def list_missing(records: GpusRecord) -> list[str]:
    """A line for each GPU on the bus without an entry in the list, each vanished GPU, and each GPU being cut."""
    return [
        *[f"missing: {clean(one.address)}: {clean(one.reason)}" for one in records.missing],
        *[f"gone: GPU {one.index} ({clean(one.name)}, {one.address}, {one.uuid})" for one in records.vanished],
        *[f"is being cut: {one.change.describe()}" for one in records.gpus if one.change is not None],
    ]


def _gpu_row(record: GpuRecord) -> Sequence[str]:
    gpu = record.gpu
    numa = "-" if gpu.numa_node is None else str(gpu.numa_node)
    memory = render_bytes(gpu.memory_total_bytes)
    limit = record.sample.power_limit_milliwatts if record.sample is not None else None
    return (
        str(gpu.index),
        gpu.name,
        memory,
        _health(record, gpu.uuid),
        numa,
        gpu.pci.address,
        gpu.uuid,
        "-" if limit is None else f"{limit / 1000:.0f} W",
        gpu.cpu_affinity or "-",
        str(record.door.door) if record.door is not None else "-",
        _holders(record, gpu.uuid),
    )


def tabulate_allocation_modes(doors: Sequence[GpuAllocationMode]) -> Table:
    """A line per GPU: its allocation mode, the wanted mode, and the holders that the change waits for."""
    head = ("GPU", "DOOR", "WANTED", "OPEN", "WAITS FOR", "WHY", "UUID")
    rows = [
        (
            str(each.index),
            str(each.door),
            str(each.wanted),
            "yes" if each.is_open else "no",
            ", ".join(dict.fromkeys(holder.describe() for holder in (*each.waits_for, *each.held_by))) or "-",
            "; ".join((each.reason, *(f"cordoned {one.describe()}" for one in each.cordons))),
            each.gpu,
        )
        for each in doors
    ]
    return Table(head, rows, names=[row[6] for row in rows], wide=("UUID",), nothing="no GPU")


def _holders(record: GpuRecord, uuid: str) -> str:
    held = [one for one in record.allocations if any(parse_device_id(device)[0] == uuid for device in one.devices)]
    names = [name_pod(one) or "pod not known yet" for one in held]
    if uuid == record.gpu.uuid:
        names += name_fraction_pods(record)
    return ", ".join(names) or "-"


def _mig_rows(record: GpuRecord) -> list[Sequence[str]]:
    return [
        (
            render_index(record.gpu, device),
            f"MIG {device.profile}",
            render_bytes(device.attributes.memory_mib * 1024 * 1024),
            _health(record, device.uuid),
            "",
            "",
            device.uuid,
            "",
            "",
            "",
            _holders(record, device.uuid),
        )
        for device in record.gpu.mig_devices
    ]


def _health(record: GpuRecord, uuid: str) -> str:
    if record.gpu.lost:
        return "lost"
    found = next((one for one in record.health if one.device == uuid), None)
    return str(found.verdict) if found is not None else "-"


def tabulate_topology(records: GpusRecord) -> Table:
    """The well-known matrix: how each two GPUs reach each other, and which CPUs and memory are near."""
    gpus = [record.gpu for record in records.gpus]
    paths: dict[tuple[str, str], str] = {}
    for pair in records.pairs:
        word = f"NV{pair.nvlink_count}" if pair.nvlink_count else str(pair.path.value)
        paths[pair.left, pair.right] = paths[pair.right, pair.left] = word
    head = ("", *(f"GPU{gpu.index}" for gpu in gpus), "CPU AFFINITY", "NUMA")
    rows = [
        (
            f"GPU{row.index}",
            *(PathKind.SELF.value if row is column else paths.get((row.uuid, column.uuid), "?") for column in gpus),
            row.cpu_affinity or "-",
            "-" if row.numa_node is None else str(row.numa_node),
        )
        for row in gpus
    ]
    return Table(head, rows, names=[gpu.uuid for gpu in gpus], nothing="no GPU")


def explain_topology(records: GpusRecord) -> list[str]:
    """The lines below the matrix."""
    count = len(records.switches)
    switches = ["", f"{count} NVSwitches: {', '.join(one.address for one in records.switches)}"] if count else []
    return [*switches, "", *LEGEND]


def tabulate_health(records: GpusRecord, now_seconds: float) -> Table:
    """A line per device."""
    devices = [(record, device) for record in records.gpus for device in record.health]
    rows = [
        (
            _name(record, device),
            str(device.verdict),
            render_age(now_seconds - device.since_seconds),
            device.reason or "-",
        )
        for record, device in devices
    ]
    return Table(
        ("DEVICE", "VERDICT", "SINCE", "REASON"),
        rows,
        names=[device.device for _, device in devices],
        nothing="no verdict yet: the agent is starting, or no GPU is known",
    )


def advise(records: GpusRecord, *, colour: bool) -> list[str]:
    """The remedies for unhealthy devices, once for devices with equal findings."""
    alike: dict[tuple[Verdict, str, str, str], list[str]] = {}
    for record, device in [(each, one) for each in records.gpus for one in each.health]:
        if device.verdict is not Verdict.HEALTHY:
            what = (device.verdict, device.reason, device.remedy, device.returns)
            alike.setdefault(what, []).append(_name(record, device))
    lines: list[str] = []
    for (verdict, reason, remedy, returns), names in alike.items():
        title = paint(f"{', '.join(names)}: {verdict}", STYLES[verdict], colour=colour)
        lines += ["", title, f"  what:    {clean(reason)}", f"  do:      {clean(remedy)}"]
        lines += [f"  returns: {clean(returns)}"] if returns else []
    return lines


def list_troubles(conditions: Sequence[ConditionRecord]) -> list[str]:
    """Conditions without a verdict on a device, with remedies; empty without conditions."""
    lines: list[str] = []
    for group in group_conditions(conditions):
        one, (named, rest) = group.first, group.split()
        lines += ["", f"{one.severity}: {group.times}{one.title}"]
        lines += [f"  {'' if number else 'what:':8} {clean(each.detail)}" for number, each in enumerate(named)]
        lines += [f"           {describe_rest(len(rest))}"] if rest else []
        lines += [f"  do:      {clean(one.remedy)}"]
    return lines


def _name(record: GpuRecord, device: DeviceHealth) -> str:
    if device.device == record.gpu.uuid:
        return name_device(record.gpu)
    mig = next((one for one in record.gpu.mig_devices if one.uuid == device.device), None)
    return name_device(record.gpu, mig) if mig is not None else device.device


def tabulate_xids(entries: Sequence[XidEntry], settings: HealthSettings) -> Table:
    """The catalogue, a line per XID, with this node's configured verdict."""
    head = ("XID", "CLASS", "HERE", "RETURNS AFTER", "DO", "NAME")
    rows = []
    for entry in entries:
        here = apply_policy(entry, settings)
        rows.append(
            (
                str(entry.number),
                str(entry.xid_class),
                str(here.verdict),
                RETURN_WORDS[here.rule],
                str(entry.remedy),
                entry.name,
            )
        )
    return Table(head, rows)


def render_xid(entry: XidEntry, settings: HealthSettings) -> str:
    """The explanation of an XID."""
    here = apply_policy(entry, settings)
    scope = "the MIG instance it names, else the GPU" if entry.scope is Scope.INSTANCE else "the whole GPU"
    returns = f"needs: {RETURN_WORDS[here.rule]}"
    if here.rule is ReturnRule.QUIET_PERIOD:
        returns = f"after {render_age(here.quiet_seconds)} without a repeat"
    lines = [
        f"XID {entry.number}: {entry.meaning}",
        f"  class:   {entry.xid_class}",
        f"  hits:    {scope}",
        f"  verdict: {here.verdict}"
        + ("" if here is entry else f" by configuration, {entry.verdict} by the catalogue"),
        f"  returns: {'the device stays healthy' if here.verdict is Verdict.HEALTHY else returns}",
        f"  do:      {entry.remedy.sentence}",
    ]
    if here.repeat is not None:
        repeat = here.repeat
        counted = "different holders" if repeat.per_holder else "times"
        lines.append(
            f"  repeats: {repeat.verdict} after {repeat.count} {counted} in {render_age(repeat.quiet_seconds)}"
        )
    return "\n".join(lines) + "\n"


def tabulate_holders(holders: Sequence[DeviceHolder], pods: dict[str, str]) -> Table:
    """Processes with open device files: pid, pod where known, devices, command."""
    head = ("PID", "POD", "DEVICES", "COMMAND")
    rows = [
        (
            str(holder.pid),
            pods.get(holder.pod_uid, holder.pod_uid) or "-",
            ", ".join(device.removeprefix("/dev/") for device in holder.devices),
            holder.command,
        )
        for holder in holders
    ]
    return Table(head, rows, nothing="no process holds a device file of the driver")

"""Sections of words and tables: conditions, allocations, events, components, facts, labels; pure."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from nodeagent.components.web.api.records import (
    ComponentRecord,
    ConditionRecord,
    FractionHolder,
    GateRecord,
    GpusRecord,
    StateRecord,
)
from nodeagent.components.web.page.chains import Chain, Link
from nodeagent.components.web.page.groups import ConditionGroup, group_conditions
from nodeagent.components.web.page.markup import (
    age,
    condition_id,
    condition_path,
    esc,
    folded,
    gpu_path,
    mark,
    pairs,
    pod_link,
    prose,
    section,
    table,
)
from nodeagent.model.allocation import Allocation
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Gpu
from nodeagent.model.labels import LabelState
from nodeagent.model.mps import MpsDaemon, MpsPhase
from nodeagent.model.nvidia import LIBRARY
from nodeagent.model.wording import render_took
from nodeagent.rules.ids import name_device, parse_device_id
from nodeagent.rules.receipts import HeldGpu, Receipt, Verdict, describe_fault

RECEIPTS_SHOWN = 8
BLAME_STYLES = {Verdict.HARDWARE: "bad", Verdict.APPLICATION: "warn"}
SEVERITY_STYLES = {"error": "bad", "warning": "warn", "info": "ok"}
DEPTH_MAX = 5
"""Deeper links stand as far to the right as this."""
DAEMON_STYLES = {MpsPhase.READY: "ok", MpsPhase.BROKEN: "bad"}
PHASE_STYLES = {"running": "ok", "failed": "bad", "backing_off": "bad"}


def render_conditions(state: StateRecord) -> str:
    """Conditions, the worst first, each with its remedy; a calm word without conditions."""
    notes = "".join(f'<li class="card condition">{prose(notice)}</li>' for notice in state.notices)
    if not state.conditions and not notes:
        return section("conditions", "Conditions", '<p class="card">Nothing is wrong that the agent knows of.</p>')
    return section("conditions", "Conditions", render_condition_list(state.conditions, state.time_seconds, notes))


def render_condition_list(conditions: Sequence[ConditionRecord], now_seconds: float, notes: str = "") -> str:
    """A card for each kind; `notes` are cards already."""
    cards = "".join(_render_group(group, now_seconds) for group in group_conditions(conditions))
    return f'<ul class="conditions">{cards}{notes}</ul>'


def _render_group(group: ConditionGroup, now_seconds: float) -> str:
    one, (named, rest) = group.first, group.split()
    style = SEVERITY_STYLES.get(one.severity, "warn")
    folded = "".join(map(_render_detail, rest))
    more = f"<details><summary>and {len(rest)} more</summary>{folded}</details>" if rest else ""
    # The first condition has the card's own anchor, so that a link shows the title too.
    first = f"<p>{prose(one.detail)}</p>" if one.detail else ""
    return (
        f'<li class="card condition {style}" id="{condition_id(one)}">'
        f"<h3>{mark(style, one.severity)} · {group.times}{esc(one.title)}</h3>"
        f"{first}{''.join(map(_render_detail, named[1:]))}{more}"
        f'<p class="do"><b>What to do:</b> {prose(one.remedy)}</p>'
        f'<p class="small dim">for {age(group.since_seconds, now_seconds)} ·'
        f' <a href="{condition_path(one.code)}"><code>{esc(one.code)}</code></a></p></li>'
    )


def _render_detail(one: ConditionRecord) -> str:
    return f'<p id="{condition_id(one)}">{prose(one.detail or one.key)}</p>'


def render_allocations(state: StateRecord, receipts: Sequence[Receipt] = ()) -> str:
    """The holders of devices and fractions, the MPS daemons, and the last holders with a fault."""
    ended = render_receipts(receipts, state.time_seconds)
    held = [(record.gpu, one) for record in (state.gpus.gpus if state.gpus else ()) for one in record.parts]
    daemons = state.mps.daemons if state.mps is not None else ()
    if not state.allocations and not held and not daemons and not ended:
        return section("allocations", "Allocations", '<p class="card">No device is handed out.</p>')
    body = "" if state.allocations or held or daemons else "<p>No device is handed out.</p>"
    if state.allocations:
        body += render_allocation_table(state.allocations, state.gpus, state.time_seconds)
    if held:
        body += render_fraction_table(held, state.time_seconds)
    if daemons:
        body += render_daemon_table(daemons, state.gpus, state.time_seconds)
    body += ended
    return section("allocations", "Allocations", f'<div class="card">{body}</div>')


def render_receipts(receipts: Sequence[Receipt], now_seconds: float) -> str:
    """A row for each of the first receipts; empty without a receipt."""
    rows = [
        (
            esc(f"{one.namespace}/{one.pod}" if one.pod else "pod not known"),
            "<br>".join(map(_render_gpu, one.gpus)) or "–",
            "<br>".join(esc(describe_fault(fault, one.until_seconds)) for fault in one.faults),
            mark(BLAME_STYLES[one.verdict], one.verdict) if one.verdict in BLAME_STYLES else esc(one.verdict),
            f"{age(one.until_seconds or now_seconds, now_seconds)} ago",
        )
        for one in receipts[:RECEIPTS_SHOWN]
    ]
    return table("Ended after a fault", ("Pod", "GPUs", "Faults", "Blamed", "Ended"), rows) if rows else ""


def select_receipts(receipts: Sequence[Receipt], devices: Collection[str]) -> tuple[Receipt, ...]:
    """The receipts of a GPU, by the UUIDs of the GPU and its MIG devices."""
    return tuple(one for one in receipts if any(held.uuid in devices for held in one.gpus))


def _render_gpu(held: HeldGpu) -> str:
    name = esc(held.uuid) if held.index is None else f"GPU {held.index}"
    return f'<a href="{gpu_path(held.uuid)}">{name}</a>'


def render_allocation_table(allocations: Sequence[Allocation], gpus: GpusRecord | None, now_seconds: float) -> str:
    """A row for each container with devices."""
    rows = [
        (
            pod_link(one.pod),
            esc(one.container or "–"),
            f"<code>{esc(one.resource)}</code>",
            "<br>".join(render_device(device, gpus) for device in one.devices),
            age(one.since_seconds, now_seconds),
            esc(one.source) + (f"<br>{mark('warn', 'forgotten by the kubelet')}" if one.forgotten else ""),
        )
        for one in allocations
    ]
    return table("Who holds what", ("Pod", "Container", "Resource", "Devices", "For", "Known from"), rows)


def render_daemon_table(daemons: Sequence[MpsDaemon], gpus: GpusRecord | None, now_seconds: float) -> str:
    """A row for each MPS daemon."""
    rows = [
        (
            "<br>".join(render_device(gpu, gpus) for gpu in one.gpus),
            mark(DAEMON_STYLES.get(one.phase, "warn"), str(one.phase))
            + (f"<br>{esc(one.reason)}" if one.reason else ""),
            f"<code>{esc(one.owner)}</code>",
            "<br>".join(esc(client.pod or f"process {client.pid}") for client in one.clients) or "–",
            age(one.since_seconds, now_seconds),
        )
        for one in daemons
    ]
    return table("MPS daemons", ("GPUs", "State", "Serves", "Clients", "For"), rows)


def render_fraction_table(held: Sequence[tuple[Gpu, FractionHolder]], now_seconds: float) -> str:
    """A row for each container and GPU with a fraction."""
    rows = [
        (
            pod_link(one.pod),
            esc(one.container),
            f'<a href="{gpu_path(gpu.uuid)}">GPU {gpu.index}</a>',
            esc(one.use.describe_cores()),
            esc(one.use.describe_memory()),
            str(len(one.use.processes)),
            age(one.since_seconds, now_seconds),
        )
        for gpu, one in held
    ]
    return table("Who has parts of GPUs", ("Pod", "Container", "GPU", "Cores", "Memory", "Processes", "For"), rows)


def render_device(device: str, gpus: GpusRecord | None) -> str:
    """A device by its GPU's index, its profile and its replica, with a link to a known GPU."""
    uuid, replica = parse_device_id(device)
    suffix = f" replica {replica}" if replica is not None else ""
    for record in gpus.gpus if gpus is not None else ():
        gpu = record.gpu
        mig = next((one for one in gpu.mig_devices if one.uuid == uuid), None)
        if gpu.uuid == uuid or mig is not None:
            name = name_device(gpu, mig) + suffix
            return f'<a href="{gpu_path(gpu.uuid)}" title="{esc(device)}">{esc(name)}</a>'
    gone = next((one for one in (gpus.vanished if gpus is not None else ()) if one.uuid == uuid), None)
    if gone is not None:
        return f'<span title="{esc(device)}">GPU {gone.index} (gone){suffix}</span>'
    return f"<code>{esc(device)}</code>"


def render_events(chains: Sequence[Chain]) -> str:
    """The last chains, newest first; effects stand below their cause, with the time between."""
    if not chains:
        return section("events", "What happened", '<p class="card">Nothing yet.</p>')
    body = "".join(_render_chain(chain) for chain in chains)
    return section("events", "What happened", f'<div class="card"><ul class="chains">{body}</ul></div>')


def _render_chain(chain: Chain) -> str:
    root = chain.links[0]
    time = datetime.fromtimestamp(root.time_seconds, tz=UTC)
    links = "".join(_render_link(link, root.time_seconds) for link in chain.links)
    more = f'<li class="dim">and {chain.left_out} more</li>' if chain.left_out else ""
    shown = f"{time:%H:%M:%S} UTC"
    if chain.is_before_restart:
        # The chain may be of another day.
        shown = f"{time:%Y-%m-%d}<br>{shown}"
        more += '<li class="dim">before the agent was restarted</li>'
    return f'<li><time datetime="{time:%Y-%m-%dT%H:%M:%SZ}">{shown}</time><ol>{links}{more}</ol></li>'


def _render_link(link: Link, began_seconds: float) -> str:
    if not link.depth:
        return f"<li>{prose(link.text)}</li>"
    depth = min(link.depth, DEPTH_MAX)
    took = f' <span class="dim num">+{render_took(link.time_seconds - began_seconds)}</span>'
    return f'<li class="d{depth}"><span aria-hidden="true">→ </span>{prose(link.text)}{took}</li>'


def render_gates_and_components(state: StateRecord) -> str:
    """Gates and components."""
    gates = "".join(f"<li>{_render_gate(gate)}</li>" for gate in state.gates)
    rows = [_render_component(one, state.time_seconds) for one in state.components]
    body = table("The parts of the agent", ("Part", "State", "For", "Remarks"), rows)
    milestones = f'<p class="dim small">Milestones of the start</p><ul class="gates">{gates}</ul>' if gates else ""
    whole = milestones + body
    if all(gate.open for gate in state.gates) and all(one.phase == "running" for one in state.components):
        summary = f"{len(state.components)} parts running, {len(state.gates)} milestones passed"
        whole = folded("parts-all", summary, whole)
    return section("parts", "Gates and components", f'<div class="card">{whole}</div>')


def _render_gate(gate: GateRecord) -> str:
    if gate.open:
        return f"{mark('ok', 'passed')} {esc(gate.name)}"
    return f"{mark('bad' if gate.vital else 'warn', 'not passed yet')} {esc(gate.name)}"


def _render_component(one: ComponentRecord, now_seconds: float) -> tuple[str, ...]:
    remarks = [f"{one.restarts} restarts"] if one.restarts else []
    if one.waiting_for:
        remarks.append("waits for " + ", ".join(one.waiting_for))
    if one.last_error:
        remarks.append(one.last_error)
    style = PHASE_STYLES.get(one.phase, "warn")
    state = mark(style, one.phase.replace("_", " "))
    return esc(one.name), state, age(one.since_seconds, now_seconds), prose("; ".join(remarks))


def render_software(state: StateRecord) -> str:
    """Driver, container runtime, CDI and device plugin, with versions."""
    facts = [*_driver_facts(state.driver), *_fabric_facts(state.gpus), *_runtime_facts(state), *_plugin_facts(state)]
    return section("software", "Driver, runtime, kubelet", f'<div class="card">{pairs(facts)}</div>')


def _driver_facts(driver: DriverState | None) -> list[tuple[str, str]]:
    if driver is None:
        return [("Driver", "not looked at yet")]
    kind = {True: ", open kernel module", False: ", proprietary kernel module", None: ""}[driver.open_module]
    cuda = "CUDA {}.{}".format(*driver.cuda_version) if driver.cuda_version is not None else ""
    versions = [f"module {driver.module_version}{kind}" if driver.module_version else "", cuda]
    versions.append(f"{LIBRARY} {driver.interface_version}" if driver.interface_version else "")
    facts = [
        (
            "Driver",
            mark("ok" if driver.ready else "bad", str(driver.phase).replace("_", " ")) + f" {prose(driver.detail)}",
        ),
        ("Versions", esc(" · ".join(version for version in versions if version) or "–")),
    ]
    if driver.library_path:
        facts.append(("Library", f"<code>{esc(driver.library_path)}</code>"))
    return facts


def _fabric_facts(gpus: GpusRecord | None) -> list[tuple[str, str]]:
    """A row for each place in a fabric: with all well, GPUs of the node share the same place."""
    places = Counter(
        f"{record.gpu.fabric.phase.replace('_', ' ')}, clique {record.gpu.fabric.clique_id}"
        f" of domain {record.gpu.fabric.cluster_uuid}"
        for record in (gpus.gpus if gpus is not None else ())
        if record.gpu.fabric is not None and record.gpu.fabric.has_place
    )
    return [("NVLink fabric", f"{esc(place)}, {count} GPUs") for place, count in places.items()]


def _runtime_facts(state: StateRecord) -> list[tuple[str, str]]:
    facts = []
    runtime, cdi = state.runtime, state.cdi
    if runtime is not None:
        enabled = {True: mark("ok", "CDI on"), False: mark("warn", "CDI off"), None: "CDI unknown"}[runtime.cdi_enabled]
        facts.append(("Container runtime", f"{esc(runtime.kind)} {esc(runtime.version)} {enabled}"))
        if runtime.through_shim:
            facts.append(("Runtime shim", "every container is created through it"))
        if runtime.restart_needed:
            # Without a known command this is a sentence, with its own marks for quoted commands.
            needed = runtime.restart_needed if "`" in runtime.restart_needed else f"`{runtime.restart_needed}`"
            facts.append(("Restart needed", f"{mark('warn', 'not in force')} {prose(needed)}"))
    if cdi is not None:
        files = "<br>".join(
            f"<code>{esc(file.path)}</code> {esc(file.kind)}, {len(file.devices)} devices"
            f"{'' if file.ours else ' (not ours)'}"
            for file in cdi.files
        )
        facts.append(("CDI specifications", files or "none"))
        facts += [("Left out of CDI", prose(reason)) for reason in cdi.left_out]
    return facts


def _plugin_facts(state: StateRecord) -> list[tuple[str, str]]:
    if state.plugin is None:
        return [("Device plugin", "nothing is offered to the kubelet yet")]
    return [
        (
            one.name,
            f"{mark('ok', 'registered') if one.registered else mark('bad', 'not registered')}"
            f" {sum(device.healthy for device in one.devices)} of {len(one.devices)} devices healthy"
            + (f"<br>{prose(one.last_error)}" if one.last_error else ""),
        )
        for one in state.plugin.resources
    ]


def render_labels(labels: LabelState | None) -> str:
    """The node's labels, and where wanted and present labels differ."""
    if labels is None:
        return section("labels", "Node labels", '<p class="card">Labels have not been made yet.</p>')
    keys = sorted({*labels.wanted, *labels.applied})
    notes = f"<p>{mark('bad', 'not written')} {prose(labels.last_error)}</p>" if labels.last_error else ""
    later = ", ".join(f"{key}={value}" if value else f"{key} to go" for key, value in labels.held_back.items())
    notes += f'<p class="small">Held back until it has lasted: {esc(later)}</p>' if later else ""
    if not labels.applied:
        # one word about all labels rather than the same word on each
        notes += f"<p>{mark('warn', 'none is on the node yet')}</p>" if labels.wanted else ""
        facts = [(key, esc(labels.wanted[key])) for key in keys]
    else:
        facts = [(key, _render_label(labels, key)) for key in keys]
    body = folded("labels-all", f"{len(facts)} labels", pairs(facts)) if facts else "none"
    return section("labels", "Node labels", f'<div class="card">{notes}{body}</div>')


def _render_label(labels: LabelState, key: str) -> str:
    wanted, applied = labels.wanted.get(key), labels.applied.get(key)
    if wanted == applied:
        return esc(applied)
    if wanted is None:
        return f"{esc(applied)} {mark('warn', 'to be removed')}"
    return f"{esc(wanted)} {mark('warn', 'not written yet')}"

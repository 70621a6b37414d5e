"""The GPUs on the page: a tile each, with the last minutes, the MIG devices as blocks, and the holders; pure."""

from collections.abc import Iterable, Mapping
from typing import assert_never

from nodeagent.components.web.api.records import FractionHolder, GpuRecord, StateRecord
from nodeagent.components.web.page.markup import SYMBOLS, age, esc, gpu_path, mark, pairs, pod_link, prose, section
from nodeagent.components.web.page.stats import is_true_now
from nodeagent.components.web.page.trend import Point, plan_curves, render_spark
from nodeagent.model.allocation import Allocation
from nodeagent.model.cordons import Cordon
from nodeagent.model.gpu import Fabric, Gpu, MigDevice
from nodeagent.model.health import DeviceHealth, Verdict
from nodeagent.model.ids import GpuUuid
from nodeagent.model.offering import AllocationMode
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.wording import render_bytes
from nodeagent.rules.cordons import explain_opening
from nodeagent.rules.ids import find_uuid, name_device

VERDICT_STYLES = {
    Verdict.HEALTHY: "ok",
    Verdict.SUSPECT: "warn",
    Verdict.UNHEALTHY: "bad",
    Verdict.UNKNOWN: "warn",
}
NOBODYS = "held by nobody"
"""Of a GPU without a holder that no pod could get either."""
MIG_COLUMNS = 8
NARROW_COLUMNS = 2
"""Blocks so narrow say `1g` for `1g.10gb`; the title has the full profile."""

Trend = Mapping[GpuUuid, tuple[Point, ...]]


def render_gpus(state: StateRecord, trend: Trend) -> str:
    """All tiles, and the missing GPUs."""
    if state.gpus is None:
        return section("gpus", "GPUs", '<p class="card">No GPU is known yet.</p>')
    missing = "".join(
        f'<li class="tile t-bad"><header><h3>{esc(one.address)}</h3>{mark("bad", "missing")}</header>'
        f"<p>{prose(one.reason)}</p></li>"
        for one in state.gpus.missing
    )
    missing += "".join(
        f'<li class="tile t-bad"><header><h3>GPU {one.index}</h3>{mark("bad", "gone")}</header>'
        f'<p class="dim small">{esc(one.name)}</p><p>{esc(one.uuid)}</p>'
        f'<p class="dim small mono">{esc(one.address)}</p></li>'
        for one in state.gpus.vanished
    )
    tiles = "".join(_render_tile(record, trend.get(record.gpu.uuid, ())) for record in state.gpus.gpus)
    if not tiles and not missing:
        return section("gpus", "GPUs", '<p class="card">This node has no GPU.</p>')
    return section("gpus", "GPUs", f'<ul class="tiles">{tiles}{missing}</ul>')


def decide_style(record: GpuRecord) -> tuple[str, str, str]:
    """Style, word and reason for a GPU: the first news for people."""
    if record.gpu.lost:
        return "bad", "lost", record.gpu.lost
    whole = find_verdict(record.health, record.gpu.uuid)
    if whole is None:
        return ("ok", "answers", "") if record.sample is not None else ("warn", "not read yet", "")
    worst = max(record.health, key=lambda one: _WEIGHTS[one.verdict])
    chosen = worst if _WEIGHTS[worst.verdict] > _WEIGHTS[whole.verdict] else whole
    return VERDICT_STYLES[chosen.verdict], str(chosen.verdict), chosen.reason


_WEIGHTS = {Verdict.HEALTHY: 0, Verdict.UNKNOWN: 1, Verdict.SUSPECT: 2, Verdict.UNHEALTHY: 3}


def describe_vacancy(record: GpuRecord) -> str:
    """Whether, or how much of, a GPU without a holder is free; empty if none is."""
    if record.door is not None and _is_divided(record.door.door):
        return "free, in parts" if record.door.is_open and decide_style(record)[0] != "bad" else ""
    parts, free = len(record.gpu.mig_devices), record.free
    if free is None:
        # This agent offers no GPUs: only obstacles can be shown.
        mig = record.gpu.mig
        is_uncut = mig is not None and mig.enabled and not mig.devices
        return "" if is_uncut or decide_style(record)[0] == "bad" else "free"
    if not free:
        return ""
    is_whole = record.gpu.uuid in free or len(free) == parts
    return "free" if is_whole else f"{len(free)} of {parts} MIG devices free"


def _is_divided(door: AllocationMode) -> bool:
    """Whether a GPU of the allocation mode has room for others beside its holders."""
    match door:
        case AllocationMode.FRACTIONS:
            return True
        case AllocationMode.WHOLE | AllocationMode.CLAIMS | AllocationMode.NONE:
            return False
    assert_never(door)


def find_verdict(health: Iterable[DeviceHealth], uuid: str) -> DeviceHealth | None:
    """The verdict on a device."""
    return next((one for one in health if one.device == uuid), None)


def _render_tile(record: GpuRecord, points: tuple[Point, ...]) -> str:
    gpu = record.gpu
    style, word, reason = decide_style(record)
    return (
        f'<li class="tile t-{style}" id="gpu-{esc(gpu.uuid)}">'
        f'<header><h3><a href="{gpu_path(gpu.uuid)}">GPU {gpu.index}</a></h3>{mark(style, word)}</header>'
        f'<p class="dim small">{esc(gpu.name)}</p>{f"<p>{prose(reason)}</p>" if reason else ""}'
        f"{_render_change(record)}{render_meters(record, points)}{render_mig(record)}{_render_holders(record)}"
        f'<p class="dim small mono">{esc(gpu.pci.address)}{_numa(gpu)}</p></li>'
    )


def _render_change(record: GpuRecord) -> str:
    change = record.change
    return "" if change is None else f"<p>{mark('warn', 'is being cut')} {prose(change.describe())}</p>"


def _numa(gpu: Gpu) -> str:
    return f" · NUMA {gpu.numa_node}" if gpu.numa_node is not None else ""


def render_meters(record: GpuRecord, points: tuple[Point, ...]) -> str:
    """The four measures; old readings are marked."""
    curves = plan_curves(record.gpu, record.sample, points)
    if not curves or record.gpu.lost:
        return ""
    rows = "".join(f"<dt>{one.name}</dt><dd>{render_spark(one)}</dd><dd>{esc(one.now)}</dd>" for one in curves)
    old = record.sample_age_seconds or 0.0
    stale = f"<p>{mark('warn', f'readings are {old:.0f} s old')}</p>" if record.sample_is_old else ""
    return f'<dl class="meters">{rows}</dl>{stale}'


def render_mig(record: GpuRecord) -> str:
    """The MIG devices in their places on the GPU, an eighth of its memory a column."""
    gpu = record.gpu
    if gpu.mig is None or not gpu.mig.enabled:
        return ""
    if not gpu.mig.devices:
        return '<p class="small dim">MIG is on, no device has been made</p>'
    held = {find_uuid(device): one for one in record.allocations for device in one.devices}
    blocks = "".join(
        _render_block(gpu, device, held.get(device.uuid), find_verdict(record.health, device.uuid), record.free)
        for device in gpu.mig.devices
    )
    return f'<ul class="mig" aria-label="MIG devices">{blocks}</ul>'


def _render_block(
    gpu: Gpu, device: MigDevice, holder: Allocation | None, health: DeviceHealth | None, free: tuple[str, ...] | None
) -> str:
    width = max(1, min(MIG_COLUMNS, device.placement_size or device.attributes.gpu_instance_slice_count))
    start = device.placement_start
    place = f" x{start}" if start is not None and start + width <= MIG_COLUMNS else ""
    sick = health is not None and health.verdict is not Verdict.HEALTHY
    is_free = device.uuid in free if free is not None else not sick
    words = [
        name_device(gpu, device),
        str(device.uuid),
        "held" if holder is not None else "free" if is_free else NOBODYS,
    ]
    if holder is not None and holder.pod is not None:
        words[-1] = f"held by {holder.pod.describe()}"
    if sick and health is not None:
        words.append(f"{health.verdict}: {health.reason}")
    trouble = VERDICT_STYLES[health.verdict] if sick and health is not None else ""
    style = f"w{width}{place}{' held-by' if holder is not None else ''}{f' {trouble}' if trouble else ''}"
    sign = f"{SYMBOLS[trouble]} " if trouble else "" if width == 1 else "● " if holder is not None else "○ "
    return f'<li class="{style}" title="{esc(", ".join(words))}">{sign}{esc(_shorten(device.profile, width))}</li>'


def _shorten(profile: str, width: int) -> str:
    return profile if width > NARROW_COLUMNS else profile.partition(".")[0]


def _render_holders(record: GpuRecord) -> str:
    names = list(dict.fromkeys(pod_link(one.pod) for one in record.allocations))
    names += [f"{pod_link(one.pod)} {_describe_use(one)}" for one in record.parts]
    mode = record.door
    if not names:
        word = describe_vacancy(record) or NOBODYS
        word = word if mode is None or mode.is_open else esc(mode.explain())
        return f'<p class="held dim">{word}</p>'
    is_told = mode is not None and (mode.cordons or not mode.is_settled)
    waits = f'<p class="small">{esc(mode.explain())}</p>' if mode is not None and is_told else ""
    return f'<p class="held">{"<br>".join(names)}</p>{waits}'


def render_cordons(record: GpuRecord, now_seconds: float) -> str:
    """Who keeps new pods from the GPU, and what opens the GPU; empty without a cordon or trial."""
    mode = record.door
    if mode is None:
        return ""
    if mode.trial is not None and not mode.cordons:
        sentence = f"{mark('warn', 'open to a single pod')} after the brake: {prose(mode.trial.reason)}"
        return _render_opening(sentence, mode.trial, mode.index, now_seconds)
    return "".join(
        _render_opening(f"{mark('warn', 'cordoned')} {prose(one.describe())}", one, mode.index, now_seconds)
        for one in mode.cordons
    )


def _render_opening(sentence: str, cordon: Cordon, index: int, now_seconds: float) -> str:
    closed = ""
    if cordon.since_seconds is not None:
        times = "once" if cordon.closings == 1 else f"{cordon.closings} times in a row"
        closed = f"<br>Closed {times}, {age(cordon.since_seconds, now_seconds)} ago."
    return f"<p>{sentence}{closed}<br><b>What opens it:</b> {prose(explain_opening(cordon, index))}</p>"


def _describe_use(one: FractionHolder) -> str:
    """The size of the fraction, and its use."""
    return f'<span class="small dim">{esc(one.use.describe_cores())} cores, {esc(one.use.describe_memory())}</span>'


def render_gpu_facts(record: GpuRecord, state: StateRecord) -> str:
    """All facts about a GPU for a bug report or a replacement."""
    gpu, sample = record.gpu, record.sample
    facts = [
        ("UUID", f"<code>{esc(gpu.uuid)}</code>"),
        ("Model", esc(gpu.name)),
        ("PCI", f"<code>{esc(gpu.pci.address)}</code>, device <code>{gpu.pci.device_id:#010x}</code>"),
        ("NUMA node", "–" if gpu.numa_node is None else f"{gpu.numa_node}, CPUs {esc(gpu.cpu_affinity or '–')}"),
        ("Memory", esc(render_bytes(gpu.memory_total_bytes))),
        ("Serial", esc(gpu.serial or "–")),
        ("Board part", esc(gpu.board_part_number or "–")),
        ("VBIOS", esc(gpu.vbios_version or "–")),
        ("Architecture", esc(gpu.architecture or "–")),
        ("Persistence mode", _yes(gpu.persistence_mode)),
        ("ECC", _yes(gpu.ecc_enabled)),
        ("MIG", "not supported" if gpu.mig is None else _yes(gpu.mig.enabled)),
        ("NVLinks", f"{sum(link.active for link in gpu.nvlinks)} of {len(gpu.nvlinks)} active" if gpu.nvlinks else "–"),
        *_fabric_facts(gpu.fabric),
    ]
    if sample is not None and is_true_now(record):
        facts += _sample_facts(sample)
    profiles = {str(device.uuid): f" of {name_device(gpu, device)}, {device.uuid}" for device in gpu.mig_devices}
    facts += [
        (f"Health{profiles.get(str(one.device), '')}", _render_health(one, state.time_seconds)) for one in record.health
    ]
    facts += [(f"Not readable: {one.what}", prose(one.reason)) for one in gpu.unreadable]
    return f'<div class="card">{pairs(facts)}</div>'


def _fabric_facts(fabric: Fabric | None) -> list[tuple[str, str]]:
    if fabric is None:
        return [("Fabric", "–")]
    place = [("Fabric domain", f"<code>{esc(fabric.cluster_uuid)}</code>"), ("Fabric clique", str(fabric.clique_id))]
    return [("Fabric", esc(fabric.phase.replace("_", " "))), *(place if fabric.has_place else ())]


def _yes(answer: bool | None) -> str:  # noqa: FBT001 - a value that is shown, not a switch
    return "–" if answer is None else "on" if answer else "off"


def _count(number: int | None) -> str:
    return "–" if number is None else str(number)


def _sample_facts(sample: GpuSample) -> list[tuple[str, str]]:
    corrected, uncorrected = _count(sample.ecc_corrected_volatile), _count(sample.ecc_uncorrected_volatile)
    rows, bad_rows = _count(sample.remapped_rows_correctable), _count(sample.remapped_rows_uncorrectable)
    link = f"generation {_count(sample.pcie_generation)}, {_count(sample.pcie_width)} lanes"
    return [
        ("ECC errors", f"{corrected} corrected, {uncorrected} uncorrected since the driver was loaded"),
        ("Remapped rows", f"{rows} for correctable errors, {bad_rows} for uncorrectable ones"),
        ("PCIe", f"{link}, {_count(sample.pcie_replay_count)} replays"),
        ("Processes", ", ".join(str(one.pid) for one in sample.processes) or "none"),
    ]


def _render_health(one: DeviceHealth, now_seconds: float) -> str:
    remedy = f"<br>{prose(one.remedy)}" if one.remedy else ""
    verdict = mark(VERDICT_STYLES[one.verdict], str(one.verdict))
    return f"{verdict} {prose(one.reason)} for {age(one.since_seconds, now_seconds)}{remedy}"

"""The node in a terminal; pure. The same record as the status page's."""

from nodeagent.cli.answers.selection import name_fraction_pods
from nodeagent.cli.answers.table import Layout, Table, clean, lay_out, paint, shorten, wrap
from nodeagent.cli.gpu.readings import (
    describe_clocks,
    describe_ecc,
    describe_link,
    describe_slowdown,
    measure_nvlink,
    measure_pcie,
)
from nodeagent.components.web.api.records import GpuRecord, StateRecord
from nodeagent.components.web.page.groups import SHOWN, ConditionGroup, group_conditions
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.wording import render_age, render_bytes

VERDICTS = {"ok": ("✓", "good"), "attention": ("!", "warn"), "broken": ("✗", "bad"), "starting": ("…", "warn")}


def render_status(state: StateRecord, layout: Layout, *, colour: bool, is_whole: bool = False) -> str:
    """Verdict first, then conditions with remedies, then the details; `is_whole` shortens no list."""
    width, shown = layout.width, None if is_whole else SHOWN
    lines = [*_head(state, width, colour), *_conditions(state, width, colour, shown), *_parts(state, layout)]
    if state.gpus is not None and state.gpus.gpus:
        lines += ["", *lay_out(_tabulate_gpus(state.gpus.gpus), layout), *_describe_age(state.gpus.gpus)]
    lines += _others(state, width)
    return "\n".join(lines) + "\n"


def _head(state: StateRecord, width: int, colour: bool) -> list[str]:  # noqa: FBT001 - internal
    symbol, style = VERDICTS[state.verdict]
    facts = [f"nodeagent {state.version}", f"up {render_age(state.time_seconds - state.started_seconds)}"]
    facts.append(f"GPUs from {state.gpu_source}")
    if state.driver is not None and state.driver.driver_version:
        facts.append(f"driver {state.driver.driver_version}")
    verdict = paint(f"{symbol} {state.verdict}", style, colour=colour)
    sentence = wrap(f"{state.node}: {state.sentence}", width, indent=4)
    return [
        f"{verdict}  {sentence[0].lstrip()}",
        *sentence[1:],
        paint(shorten(clean(" · ".join(facts)), width), "dim", colour=colour),
        *(line for notice in state.notices for line in wrap(f"note: {notice}", width)),
    ]


def _conditions(state: StateRecord, width: int, colour: bool, shown: int | None) -> list[str]:  # noqa: FBT001 - internal
    lines: list[str] = []
    for group in group_conditions(state.conditions):
        lines += ["", *_condition(group, shown, state.time_seconds, width, colour)]
    return lines


def _condition(group: ConditionGroup, shown: int | None, now: float, width: int, colour: bool) -> list[str]:  # noqa: FBT001 - internal
    one, (named, rest) = group.first, group.split(shown)
    style = {"error": "bad", "warning": "warn"}.get(one.severity, "dim")
    age = render_age(now - group.since_seconds)
    lines = [
        f"{paint(one.severity, style, colour=colour)} {group.times}{clean(one.title)} (since {age}, {clean(one.code)})"
    ]
    for number, member in enumerate(named):
        if member.detail:
            lines += wrap(member.detail, width, indent=8, first="        " if number else "  what: ")
    if rest:
        lines += wrap(describe_rest(len(rest)), width, indent=8)
    return [*lines, *wrap(one.remedy, width, indent=8, first="  do:   ")]


def describe_rest(count: int) -> str:
    """The number of entries left out, and the command that lists them."""
    return f"and {count} more: `nodeagent status --all` lists them"


def _parts(state: StateRecord, layout: Layout) -> list[str]:
    closed = [gate.name for gate in state.gates if not gate.open]
    lines = [f"waiting for: {', '.join(closed)}"] if closed else []
    troubled = [one for one in state.components if one.phase not in {"running", "waiting"} or one.restarts]
    rows = [
        (one.name, one.phase, str(one.restarts), render_age(state.time_seconds - one.since_seconds), one.last_error)
        for one in troubled
    ]
    if rows:
        lines += ["", *lay_out(Table(("COMPONENT", "PHASE", "RESTARTS", "SINCE", "LAST ERROR"), rows), layout)]
    return ["", *lines] if lines else []


GPU_HEAD = ("GPU", "MODEL", "HEALTH", "UTIL", "MEMORY", "POWER", "TEMP", "PCI", "HELD BY")
WIDE_HEAD = ("CLOCKS", "HELD BACK BY", "FAN", "ECC", "PCIE", "PCIE TRAFFIC", "NVLINKS", "NVLINK TRAFFIC")
"""Columns between the others and the holder, with `-o wide`."""
GIVING_WAY = ("PCI", "MODEL", "TEMP", "POWER", "MEMORY")
"""Columns left out on a narrow terminal, the first first; index, health and holder always stay."""


def _tabulate_gpus(records: tuple[GpuRecord, ...]) -> Table:
    rows = [(*(row := _gpu_row(record))[:-1], *_list_details(_read(record)), row[-1]) for record in records]
    return Table((*GPU_HEAD[:-1], *WIDE_HEAD, GPU_HEAD[-1]), rows, giving_way=GIVING_WAY, wide=WIDE_HEAD)


def _describe_age(records: tuple[GpuRecord, ...]) -> list[str]:
    ages = [record.sample_age_seconds or 0.0 for record in records if record.sample_is_old]
    return [f"the last readings are {render_age(max(ages))} old and not shown"] if ages else []


def _read(record: GpuRecord) -> GpuSample | None:
    """The newest sample, unless too old."""
    return None if record.sample_is_old else record.sample


def _list_details(sample: GpuSample | None) -> tuple[str, ...]:
    if sample is None:
        return ("-",) * len(WIDE_HEAD)
    details = (
        describe_clocks(sample),
        describe_slowdown(sample),
        "" if sample.fan_speed_percent is None else f"{sample.fan_speed_percent}%",
        describe_ecc(sample),
        describe_link(sample),
        str(measure_pcie(sample)),
        "" if sample.nvlinks_active is None else str(sample.nvlinks_active),
        str(measure_nvlink(sample)),
    )
    return tuple(detail or "-" for detail in details)


def _others(state: StateRecord, width: int) -> list[str]:
    facts = [
        f"{(held := len(state.allocations))} {'allocation' if held == 1 else 'allocations'}",
        *_describe_fractions(state),
        *(
            f"{one.name}: {sum(device.healthy for device in one.devices)} of {len(one.devices)} healthy"
            for one in (state.plugin.resources if state.plugin is not None else ())
        ),
    ]
    if state.runtime is not None:
        facts.append(f"{state.runtime.kind} {state.runtime.version}".rstrip())
    if state.gpus is not None:
        facts += [f"{one.address} is missing: {one.reason}" for one in state.gpus.missing]
        facts += [f"GPU {one.index} is gone: {one.uuid}" for one in state.gpus.vanished]
    if not state.allocations and len(facts) == 1:
        return []
    return ["", *wrap(" · ".join(facts), width)]


def _describe_fractions(state: StateRecord) -> list[str]:
    parts = sum(len(record.parts) for record in (state.gpus.gpus if state.gpus is not None else ()))
    return [f"{parts} {'part' if parts == 1 else 'parts'} of GPUs"] if parts else []


def _gpu_row(record: GpuRecord) -> tuple[str, ...]:
    gpu, sample = record.gpu, _read(record)
    utilization = memory = power = temperature = "-"
    if sample is not None:
        if sample.gpu_utilization_percent is not None:
            utilization = f"{sample.gpu_utilization_percent} %"
        if sample.memory_used_bytes is not None and sample.memory_total_bytes is not None:
            memory = f"{render_bytes(sample.memory_used_bytes)} of {render_bytes(sample.memory_total_bytes)}"
        if sample.power_milliwatts is not None:
            power = f"{sample.power_milliwatts / 1000:.0f} W"
        if sample.gpu_temperature_celsius is not None:
            temperature = f"{sample.gpu_temperature_celsius} °C"
    holders = [f"{one.pod.namespace}/{one.pod.name}" for one in record.allocations if one.pod is not None]
    holders += name_fraction_pods(record)
    return (
        str(gpu.index),
        gpu.name,
        _health(record),
        utilization,
        memory,
        power,
        temperature,
        gpu.pci.address,
        "; ".join(filter(None, (", ".join(holders), _describe_allocation_mode(record, is_held=bool(holders))))),
    )


def _describe_allocation_mode(record: GpuRecord, *, is_held: bool) -> str:
    """Why new pods do not get a GPU: the cordons of any GPU, the allocation mode of one without a holder."""
    mode = record.door
    if mode is None:
        return ""
    return mode.sum_up_cordons() or ("" if mode.is_open or is_held else f"door {mode.door}")


def _health(record: GpuRecord) -> str:
    if record.gpu.lost:
        return "LOST"
    whole = next((one for one in record.health if one.device == record.gpu.uuid), None)
    return str(whole.verdict) if whole is not None else "-"

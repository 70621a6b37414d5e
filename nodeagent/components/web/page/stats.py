"""The node in a few numbers at the top of the page, for a first comparison; pure."""

from collections.abc import Iterable
from typing import NamedTuple

from nodeagent.components.web.api.records import GpuRecord, GpusRecord, StateRecord
from nodeagent.components.web.page.markup import SYMBOLS, age, esc
from nodeagent.model.health import Verdict
from nodeagent.model.wording import render_bytes

FIT = frozenset({Verdict.HEALTHY, Verdict.SUSPECT})


class Stat(NamedTuple):
    """A number, its name, and a note; all but the style are markup already."""

    name: str
    value: str
    note: str = ""
    style: str = ""


def render_stats(state: StateRecord) -> str:
    """All known numbers, in the order of importance."""
    absent = _count_absent(state.gpus) if state.gpus is not None else 0
    stats = [*_gpu_stats(state.gpus.gpus if state.gpus is not None else (), absent), *_software_stats(state)]
    cells = "".join(_render_stat(one) for one in stats)
    return f'<dl id="facts" class="stats">{cells}</dl>'


def _render_stat(one: Stat) -> str:
    style = f' class="{one.style}"' if one.style else ""
    sign = f'<span aria-hidden="true">{SYMBOLS[one.style]} </span>' if one.style else ""
    note = f" <small>{one.note}</small>" if one.note else ""
    return f"<div{style}><dt>{esc(one.name)}</dt><dd>{sign}{one.value}{note}</dd></div>"


def _count_absent(gpus: GpusRecord) -> int:
    """GPUs on the bus and not listed, and vanished GPUs: the node should have them."""
    listed = {record.gpu.pci.address for record in gpus.gpus}
    return len(gpus.vanished) + sum(one.address not in listed for one in gpus.missing)


def _gpu_stats(records: tuple[GpuRecord, ...], absent: int) -> list[Stat]:
    if not records and not absent:
        return []
    number = len(records)
    fit, held = sum(map(_is_fit, records)), sum(bool(record.allocations or record.parts) for record in records)
    due = number + absent
    stats = [
        Stat("GPUs fit for work", str(fit), f"of {due}", "bad" if fit < due else "ok"),
        Stat("GPUs in use", str(held), f"of {number}"),
    ]
    samples = [record.sample for record in records if record.sample is not None and is_true_now(record)]
    percents = _known(one.gpu_utilization_percent for one in samples)
    if percents:
        stats.append(Stat("Utilisation", f"{sum(percents) / len(percents):.0f}", "% on average"))
    used, whole = _known(one.memory_used_bytes for one in samples), _known(one.memory_total_bytes for one in samples)
    if used and whole:
        number_used, _, unit = render_bytes(sum(used)).partition(" ")
        stats.append(Stat("Memory", number_used, f"{unit} of {render_bytes(sum(whole))}"))
    watts = _known(one.power_milliwatts for one in samples)
    if watts:
        stats.append(Stat("Power", f"{sum(watts) / 1e6:.2f}", "kW"))
    degrees = _known(one.gpu_temperature_celsius for one in samples)
    if degrees:
        stats.append(Stat("Hottest GPU", str(max(degrees)), "°C"))
    return stats


def is_true_now(record: GpuRecord) -> bool:
    """Whether the reading shows the present GPU: neither lost nor old."""
    return not record.gpu.lost and not record.sample_is_old


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _is_fit(record: GpuRecord) -> bool:
    verdicts = [one.verdict for one in record.health if one.device == record.gpu.uuid]
    return not record.gpu.lost and all(verdict in FIT for verdict in verdicts)


def _software_stats(state: StateRecord) -> list[Stat]:
    stats = []
    driver = state.driver
    if driver is not None and driver.driver_version:
        cuda = "CUDA {}.{}".format(*driver.cuda_version) if driver.cuda_version is not None else ""
        stats.append(Stat("Driver", esc(driver.driver_version), cuda))
    if state.runtime is not None:
        stats.append(Stat("Container runtime", esc(state.runtime.version or "–"), esc(state.runtime.kind)))
    note = "simulated GPUs" if state.gpu_source.startswith("simulated") else ""
    stats.append(Stat("Agent up for", age(state.started_seconds, state.time_seconds), note))
    return stats

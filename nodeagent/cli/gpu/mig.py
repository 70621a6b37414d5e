"""`nodeagent mig show|plan|apply|assert|export`."""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import json, yaml
from msgspec.structs import replace

from nodeagent.cli.agent.settings import load_for, load_for_looking
from nodeagent.cli.answers.answer import Answerer, NoAgent, say_simulated
from nodeagent.cli.answers.asking import API
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.answers.orders import give
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu.mig_view import describe_changes, describe_state, render_plan, tabulate_gpus
from nodeagent.cli.gpu.source import read_gpus
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.mig.judge import advise, find_other
from nodeagent.components.mig.request import find_layout, render_layouts
from nodeagent.components.web.api.records import GpuRecord, LayoutsRecord, record_layouts
from nodeagent.config.files import read_config_file
from nodeagent.config.schema import Settings
from nodeagent.model.gpu import Gpu
from nodeagent.model.mig import MigState
from nodeagent.model.offering import AllocationMode
from nodeagent.model.values import Value
from nodeagent.rules.mig.export import export_layout, render_file
from nodeagent.rules.mig.layouts import Layout, LayoutsRead, read_layouts
from nodeagent.rules.mig.partitions import is_met, read_partitions
from nodeagent.rules.mig.show import GpuPlan, plan_gpu
from nodeagent.rules.mig.wanted import NO_MIG, UNSAID, WantedOfNode, want_of_gpus

POLL_INTERVAL_SECONDS = 0.5
"""Pause between polls of a change's progress."""


class ShownRecord(Value, frozen=True):
    """The output of `mig show --json`."""

    state: MigState | None
    gpus: tuple[Gpu, ...]


class ApplyRecord(Value, frozen=True):
    """The output of `mig apply --json`, with --wait a record per step."""

    said: str
    """The agent's answer to the command."""
    state: MigState


class PlanRecord(Value, frozen=True):
    """The output of `mig plan --json`."""

    layout: str
    gpus: tuple[GpuPlan, ...]
    problems: tuple[str, ...] = ()


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The present layout of each GPU, and the wanted layout."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    answerer, records = read_gpus(arguments, settings, environ)
    gpus = tuple(record.gpu for record in records.gpus)
    state = None if getattr(arguments, "gpus", None) else _read_state(settings, environ)
    shown = ShownRecord(state=state, gpus=gpus)
    write_table(arguments, streams, shown, tabulate_gpus(gpus, state), describe_state(state), answerer)
    return ExitCode.OK


def plan(arguments: argparse.Namespace, streams: Streams) -> int:
    """The changes of a layout."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    answerer, records = read_gpus(arguments, settings, environ)
    gpus = tuple(record.gpu for record in records.gpus)
    want = want_of_gpus(_find(arguments, _read_layouts(answerer, settings, environ), gpus), gpus)
    plans = tuple(_plan(each, want) for each in records.gpus)
    record = PlanRecord(layout=arguments.layout, gpus=plans, problems=want.problems)
    models: dict[str, str] = {gpu.uuid: gpu.name for gpu in gpus}
    text = "".join(f"{line}\n" for line in render_plan(plans, want.problems, models))
    write_answer(arguments, streams, record, text, answerer)
    return ExitCode.UNWELL if want.problems or any(one.refusal for one in plans) else ExitCode.OK


def check(arguments: argparse.Namespace, streams: Streams) -> int:
    """Whether the GPUs have a layout; silent if so, as similar tools are."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    answerer, records = read_gpus(arguments, settings, environ)
    gpus = tuple(record.gpu for record in records.gpus)
    layout = _find(arguments, _read_layouts(answerer, settings, environ), gpus)
    differing = _list_differing(records.gpus, want_of_gpus(layout, gpus))
    write_answer(arguments, streams, differing, "".join(f"{line}\n" for line in differing), answerer)
    return ExitCode.UNWELL if differing else ExitCode.OK


def export(arguments: argparse.Namespace, streams: Streams) -> int:
    """The present layout, as a file of layouts."""
    environ = read_environment(arguments)
    _, records = read_gpus(arguments, load_for_looking(arguments, environ), environ)
    file = render_file(arguments.name, export_layout([record.gpu for record in records.gpus]))
    is_json = arguments.json or arguments.form == "json"
    streams.out.write(json.format(json.encode(file)).decode() + "\n" if is_json else yaml.encode(file).decode())
    return ExitCode.OK


def apply(arguments: argparse.Namespace, streams: Streams) -> int:
    """Have the running agent cut the GPUs, and wait for the end with `--wait`."""
    environ = read_environment(arguments)
    settings = load_for(arguments, environ).settings
    agent, said = give(arguments, settings, environ)
    if not arguments.json:
        print(f"{say_simulated(agent)}{said}", file=streams.out, flush=True)
    elif arguments.wait == 0:
        state = find_agent(settings, environ).read(f"{API}/mig", MigState)
        _print_step(streams, ApplyRecord(said=said, state=state))
    return _wait(arguments, settings, environ, streams, said) if arguments.wait != 0 else ExitCode.OK


def _print_step(streams: Streams, record: ApplyRecord) -> None:
    """A document per line, written at once: a reader sees each step in time."""
    print(json.encode(record).decode(), file=streams.out, flush=True)


def _wait(
    arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str], streams: Streams, said: str
) -> ExitCode:
    """A line for each step, until the layout is in place, has failed, or the time is up."""
    until = None if arguments.wait is None else time.monotonic() + arguments.wait
    told: MigState | None = None
    while True:
        state = find_agent(settings, environ).read(f"{API}/mig", MigState)
        is_news, told = state != told, state
        if is_news and arguments.json:
            _print_step(streams, ApplyRecord(said=said, state=state))
        elif is_news and state.changes:
            print(describe_changes(state.changes), file=streams.out)
            streams.out.flush()
        if not state.changes and state.standing == "success":
            if not arguments.json:
                left = f"; {state.detail}" if state.detail else ""
                print(f"{state.layout} is in place{left}", file=streams.out)
            return ExitCode.OK
        if not state.changes and state.standing == "rebooting":
            raise CommandFailed(f"{state.layout} waits for the node to be booted: {state.detail}", ExitCode.UNWELL)
        if not state.changes and state.standing == "failed":
            raise CommandFailed(f"{state.layout} is not in place: {state.detail}", ExitCode.UNWELL)
        if until is not None and time.monotonic() >= until:
            raise CommandFailed(f"not in place after {arguments.wait:g} s; the agent goes on", ExitCode.UNWELL)
        time.sleep(POLL_INTERVAL_SECONDS)


def _read_state(settings: Settings, environ: Mapping[str, str]) -> MigState | None:
    try:
        return find_agent(settings, environ).read(f"{API}/mig", MigState)
    except CommandFailed:
        return None


def _read_layouts(answerer: Answerer, settings: Settings, environ: Mapping[str, str]) -> LayoutsRecord:
    """The known layouts: the agent's, where the GPUs come from an agent, as the agent would apply the layout."""
    if isinstance(answerer, NoAgent):
        return record_layouts(settings.mig)
    return find_agent(settings, environ).read(f"{API}/layouts", LayoutsRecord)


def _find(arguments: argparse.Namespace, known: LayoutsRecord, gpus: Sequence[Gpu]) -> Layout:
    """The named layout, from the configuration or a file of layouts."""
    path = arguments.layouts or known.layouts_file
    of_file = _read_file(Path(path)) if path else LayoutsRead()
    configured, problems = render_layouts(known.layouts)
    layout, problem = find_layout(arguments.layout, {} if arguments.layouts else configured, of_file.layouts, gpus)
    told = [*problems, *map(str, of_file.problems)]
    if layout is None:
        raise CommandFailed("; ".join([problem, *told]), ExitCode.BAD_INPUT)
    return layout


def _read_file(path: Path) -> LayoutsRead:
    texts, problems = read_config_file(path)
    return read_layouts(texts[0].text, str(path)) if texts else LayoutsRead(problems=problems)


def _plan(record: GpuRecord, want: WantedOfNode) -> GpuPlan:
    """The plan for one GPU; a differing GPU that others manage is left alone."""
    gpu = record.gpu
    if gpu.uuid not in want.gpus:
        left = UNSAID if gpu.uuid in want.uncovered else NO_MIG
        return GpuPlan(index=gpu.index, uuid=gpu.uuid, name=gpu.name, left=left)
    found = plan_gpu(gpu, want.gpus[gpu.uuid], read_partitions(gpu))
    other = find_other(gpu, _read_allocation_mode(record))
    if not other or not (found.changes or found.refusal):
        return found
    if gpu.uuid in want.named:
        return replace(found, lines=(), refusal=f"it {other}: {advise(gpu)}")
    return replace(found, lines=(), refusal="", left=f"it {other}")


def _read_allocation_mode(record: GpuRecord) -> AllocationMode | None:
    """The GPU's allocation mode by the agent; `None` from the driver, which knows no modes."""
    return record.door.door if record.door is not None else None


def _list_differing(records: Sequence[GpuRecord], want: WantedOfNode) -> list[str]:
    """The GPUs without the layout, a line each; a GPU missing from the layout differs."""
    lines = list(want.problems)
    for record in records:
        gpu = record.gpu
        wanted = want.gpus.get(gpu.uuid)
        if gpu.uuid in want.uncovered:
            lines.append(f"GPU {gpu.index}: {UNSAID}")
        elif wanted is not None and not is_met(wanted, read_partitions(gpu)):
            other = find_other(gpu, _read_allocation_mode(record))
            stays = f", and stays so, as it {other}: {advise(gpu)}" if other else ""
            lines.append(f"GPU {gpu.index}: it is not {wanted.describe()}{stays}")
    return lines

"""A screen of `nodeagent top`: the node's data and the user's choices as lines; pure."""

import re
import time

from msgspec import Struct

from nodeagent.cli.answers.table import Layout, Table, clean, lay_out, paint, shorten
from nodeagent.cli.top.rows import Row
from nodeagent.cli.top.state import LISTS, TopState, View, find_chosen, list_rows
from nodeagent.cli.top.view import (
    DEVICE_GIVING_WAY,
    DEVICE_HEAD,
    PROCESS_GIVING_WAY,
    PROCESS_HEAD,
    TopDevice,
    TopRecord,
    device_row,
    process_row,
)
from nodeagent.model.wording import render_age

FULL, EMPTY = "█", "░"
BAR_WIDTHS = ((140, 20), (110, 10), (0, 6))
"""The least width of the terminal for each width of bars."""
USE, MEMORY = DEVICE_HEAD.index("USE"), DEVICE_HEAD.index("MEMORY")
BUSY, FULL_UP = 0.6, 0.9
REVERSED = "\x1b[7m"
NORMAL = "\x1b[0m"
MARGIN = 2
"""Columns before each row, for the mark of the chosen row."""
HELP = """Keys
  q            quit
  ↑ ↓ k j      choose a row; in the details, scroll
  PgUp PgDn    a screen up or down; Home, End: the first, the last
  s  S         sort by the next column, by the one before; also > and <
  r            the other way round
  /            only what contains a text: GPU, pod, user or command
               (Enter keeps the filter, Esc drops it)
  Tab          GPUs with their processes, or all processes
  Enter        all readings of the chosen GPU
  Esc          back
  ?            this page
  Ctrl-Z       leave it for a while; fg brings it back

A narrow terminal has no room for some columns.
Rates of links are known from the second look on.
"""
POD_WIDTH_MIN, OTHERS_WIDTH = 24, 50
"""The least width of a process's pod on a narrow terminal, and the width left for numbers and the command."""


class Size(Struct, frozen=True):
    """Of the terminal."""

    columns: int
    lines: int

    @property
    def body(self) -> int:
        """Lines between the head and the foot."""
        return max(1, self.lines - HEAD_LINES - 1)


HEAD_LINES = 3
MIG_SIGN = ":"
"""Between GPU and instance in the name of a MIG device."""


class Screen(Struct, frozen=True):
    """Lines, and the limit of scrolling."""

    lines: list[str]
    last_first: int = 0


def draw(top: TopRecord, state: TopState, size: Size, *, colour: bool, problem: str = "") -> Screen:
    """As many lines as the terminal has, none longer than the terminal's width."""
    head = [
        _paint_fitting(f"{top.node}: {top.sentence}", size, "strong", colour=colour),
        _draw_news(top, size, problem, colour=colour),
    ]
    if state.view in LISTS:
        columns, body, last_first = *_draw_list(top, state, size, colour=colour), 0
    else:
        columns, body, last_first = _draw_text(top, state, size)
    lines = [*head, paint(columns, "strong", colour=colour), *body]
    lines += [""] * (size.lines - 1 - len(lines))
    foot = _paint_fitting(_draw_foot(state), size, "dim", colour=colour)
    return Screen([*lines[: max(0, size.lines - 1)], foot], last_first)


def _paint_fitting(text: str, size: Size, style: str, *, colour: bool) -> str:
    return paint(shorten(clean(text), size.columns), style, colour=colour)


def _draw_news(top: TopRecord, size: Size, problem: str, *, colour: bool) -> str:
    if problem:
        return _paint_fitting(problem, size, "bad", colour=colour)
    age = top.sample_age_seconds
    if age is not None and top.sample_is_old:
        return _paint_fitting(f"readings are {render_age(age)} old", size, "warn", colour=colour)
    at = time.strftime("%H:%M:%S", time.localtime(top.time_seconds))
    processes = sum(len(device.processes) for device in top.devices)
    counts = f"devices: {len(top.devices)}  processes: {processes}"
    if top.others:
        well = sum(one.standing == "healthy" for one in top.others)
        counts += f"  of the configured classes: {well} of {len(top.others)} healthy"
    return _paint_fitting(f"{at}  {counts}", size, "dim", colour=colour)


def _draw_foot(state: TopState) -> str:
    if state.is_typing:
        return f"/{state.filter}_   Enter keep   Esc drop"
    if state.view not in LISTS:
        return "Esc back   ↑↓ scroll   q quit"
    order = "▲" if state.column.falls == state.chosen.is_reversed else "▼"
    shown = f"   /{state.filter}" if state.filter else ""
    keys = "q quit  ? help  s sort  r reverse  / filter  Tab view  Enter details"
    return f"{state.column.name} {order}{shown}   {keys}"


def _draw_list(top: TopRecord, state: TopState, size: Size, *, colour: bool) -> tuple[str, list[str]]:
    rows = list_rows(state, top)
    layout = Layout(max(1, size.columns - MARGIN))
    head, lines = _lay_out_devices(rows, layout) if state.view is View.DEVICES else _lay_out_processes(rows, layout)
    at = find_chosen(state, rows)
    # The chosen row stays in sight; the list does not end before the screen does.
    first = max(0, min(at - size.body // 2, len(rows) - size.body))
    shown = [
        _mark(line, row, is_chosen=number == at, colour=colour)
        for number, (line, row) in enumerate(zip(lines, rows, strict=True))
    ][first : first + size.body]
    nothing = (
        f"nothing contains {state.filter!r}"
        if state.filter
        else "no GPU"
        if state.view is View.DEVICES
        else "no process"
    )
    return shorten(f"{'':{MARGIN}}{head}", size.columns), shown or [
        f"{'':{MARGIN}}{shorten(clean(nothing), layout.width)}"
    ]


def _lay_out_devices(rows: list[Row], layout: Layout) -> tuple[str, list[str]]:
    cells = [_draw_device(row.device, layout.width) for row in rows if row.process is None]
    head, *devices = lay_out(Table(DEVICE_HEAD, cells, giving_way=DEVICE_GIVING_WAY), layout)
    own = [row for row in rows if row.process is not None]
    _, processes = _lay_out_processes(own, Layout(layout.width - 2), unneeded=("GPU",))
    left, right = iter(devices), iter(processes)
    return head, [next(left) if row.process is None else f"  {next(right)}" for row in rows]


def _lay_out_processes(rows: list[Row], layout: Layout, *, unneeded: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    cells = [_draw_process(row, layout.width) for row in rows]
    head, *lines = lay_out(Table(PROCESS_HEAD, cells, giving_way=PROCESS_GIVING_WAY, wide=unneeded), layout)
    return head, lines


def _draw_process(row: Row, width: int) -> tuple[str, ...]:
    assert row.process is not None
    *cells, pod, command = process_row(row.device, row.process)
    pod = shorten(pod, max(POD_WIDTH_MIN, width - OTHERS_WIDTH))
    return (*cells, pod, f"{'  ' * (row.process.depth - 1)}└ {command}" if row.process.depth else command)


def _draw_device(device: TopDevice, width: int) -> tuple[str, ...]:
    cells = list(device_row(device))
    if device.lost:
        return tuple(cells)
    bar = next(size for least, size in BAR_WIDTHS if width >= least)
    if device.use_percent is not None:
        cells[USE] = f"{render_bar(device.use_percent / 100, bar)} {cells[USE]:>4}"
    if device.memory_used_bytes is not None and device.memory_total_bytes:
        cells[MEMORY] = f"{render_bar(device.memory_used_bytes / device.memory_total_bytes, bar)} {cells[MEMORY]}"
    return tuple(cells)


def render_bar(share: float, width: int) -> str:
    """A bar with the share of the width filled; any use above zero is visible."""
    held = max(0.0, min(1.0, share))
    full = max(round(held * width), 1 if held > 0 else 0)
    return FULL * full + EMPTY * (width - full)


def _mark(line: str, row: Row, *, is_chosen: bool, colour: bool) -> str:
    text = f"{'> ' if is_chosen else '  '}{line}"
    if not colour:
        return text
    if is_chosen:
        return f"{REVERSED}{text}{NORMAL}"
    if row.process is None and (row.device.lost or row.device.health == "unhealthy"):
        return paint(text, "bad", colour=True)
    if row.process is None and row.device.cordoned:
        return paint(text, "warn", colour=True)
    return re.sub(f"{FULL}+{EMPTY}*|{EMPTY}+", _paint_bar, text)


def _paint_bar(found: re.Match[str]) -> str:
    share = found[0].count(FULL) / len(found[0])
    return paint(found[0], "bad" if share >= FULL_UP else "warn" if share >= BUSY else "good", colour=True)


def _draw_text(top: TopRecord, state: TopState, size: Size) -> tuple[str, list[str], int]:
    """A view without rows to choose: the help, or everything about one GPU."""
    title, lines = "", HELP.splitlines()
    if state.view is View.DETAILS:
        title, lines = _describe_device(top, state.gpu, size)
    last_first = max(0, len(lines) - size.body)
    first = min(state.first, last_first)
    return (
        shorten(clean(title), size.columns),
        [shorten(line, size.columns) for line in lines[first : first + size.body]],
        last_first,
    )


def _describe_device(top: TopRecord, uuid: str, size: Size) -> tuple[str, list[str]]:
    device = next((one for one in top.devices if one.uuid == uuid), None)
    if device is None:
        return f"{uuid} is no longer there", []
    lines = [f"{'':18}{device.uuid}", f"{'health':<18}{device.health or '-'}"]
    lines += [f"{'lost':<18}{clean(device.lost)}"] if device.lost else []
    lines += [f"{'new pods':<18}{clean(device.cordoned)}"] if device.cordoned else []
    lines += [f"{'pods' if not at else '':<18}{clean(pod)}" for at, pod in enumerate(device.pods)]
    # Hardware measures a MIG device's memory and work only; everything else is the whole GPU's.
    lines += ["", "What follows is of the whole GPU."] if MIG_SIGN in device.gpu else []
    group = ""
    for reading in device.readings:
        shown = reading.group if reading.group != group else ""
        group = reading.group
        lines += [""] if shown else []
        lines.append(f"{shown:<18}{reading.name:<32}{reading.value}")
    rows = [Row(device, one) for one in device.processes]
    if rows:
        head, processes = _lay_out_processes(rows, Layout(size.columns), unneeded=("GPU",))
        lines += ["", head, *processes]
    return f"GPU {device.gpu}  {device.name}", lines

"""The user's choices in `nodeagent top`, and the effect of keys on them; pure."""

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.cli.top.rows import DEVICE_COLUMNS, PROCESS_COLUMNS, Column, Row, list_devices, list_processes
from nodeagent.cli.top.view import TopRecord

FILTER_MAX = 80
SORT_STEPS = {"s": 1, ">": 1, "S": -1, "<": -1}


class View(Enum):
    """The contents of the screen."""

    DEVICES = auto()
    PROCESSES = auto()
    DETAILS = auto()
    HELP = auto()


LISTS = (View.DEVICES, View.PROCESSES)
COLUMNS = {View.DEVICES: DEVICE_COLUMNS, View.PROCESSES: PROCESS_COLUMNS}


class Chosen(Struct, frozen=True):
    """The sorting and the chosen row of a list."""

    column: int = 0
    is_reversed: bool = False
    row: int = 0
    """The row's place when chosen; counts only while the chosen device or process is not shown."""
    uuid: str = ""
    """The chosen device, at any place in the list; empty for the first row, before any choice."""
    pid: int | None = None
    """The chosen process on the device; `None` for the device itself."""


class TopState(Struct, frozen=True):
    """Everything that keys can change."""

    view: View = View.DEVICES
    list_view: View = View.DEVICES
    """The last shown list, where Esc leads back."""
    devices: Chosen = Chosen()
    processes: Chosen = Chosen()
    filter: str = ""
    is_typing: bool = False
    """Whether keys go into the filter."""
    gpu: str = ""
    """The UUID of the device whose details are shown."""
    first: int = 0
    """The first shown line of a view without rows to choose."""
    has_ended: bool = False

    @property
    def chosen(self) -> Chosen:
        """The choices in the current or last list."""
        return self.devices if self.list_view is View.DEVICES else self.processes

    @property
    def column(self) -> Column:
        """The column that the list is sorted by."""
        return COLUMNS[self.list_view][self.chosen.column]


def list_rows(state: TopState, top: TopRecord) -> list[Row]:
    """The rows of the current or last list."""
    make = list_devices if state.list_view is View.DEVICES else list_processes
    return make(top, state.column, state.filter, is_reversed=state.chosen.is_reversed)


def find_chosen(state: TopState, rows: list[Row]) -> int:
    """The number of the chosen row: the same process or device, else the same GPU, else the row in its place."""
    chosen = state.chosen
    pids = [None if row.process is None else row.process.pid for row in rows]
    same = [number for number, row in enumerate(rows) if row.device.uuid == chosen.uuid]
    exact = [number for number in same if pids[number] == chosen.pid]
    return next(iter((*exact, *same)), min(chosen.row, max(0, len(rows) - 1)))


def press(state: TopState, key: str, top: TopRecord, page: int) -> TopState:
    """The state after a key; `page` is how many lines the body of the screen has."""
    if state.is_typing:
        return _type(state, key)
    if key == "q":
        return replace(state, has_ended=True)
    if key == "?":
        return replace(state, view=View.HELP, first=0)
    if key in {"escape", "left", "backspace"}:
        if state.view in LISTS:
            return replace(state, filter="") if key == "escape" else state
        return replace(state, view=state.list_view)
    return _press_in_list(state, key, top, page) if state.view in LISTS else _scroll(state, key, page)


def _type(state: TopState, key: str) -> TopState:
    if key == "enter":
        return replace(state, is_typing=False)
    if key == "escape":
        return replace(state, is_typing=False, filter="")
    if key == "backspace":
        return replace(state, filter=state.filter[:-1])
    if len(key) == 1 and len(state.filter) < FILTER_MAX:
        return replace(state, filter=state.filter + key)
    return state


def _press_in_list(state: TopState, key: str, top: TopRecord, page: int) -> TopState:
    if key == "/":
        return replace(state, is_typing=True)
    if key in {"tab", "t"}:
        other = View.PROCESSES if state.list_view is View.DEVICES else View.DEVICES
        return replace(state, view=other, list_view=other)
    if key == "r":
        return _choose(state, is_reversed=not state.chosen.is_reversed)
    if key in SORT_STEPS:
        column = (state.chosen.column + SORT_STEPS[key]) % len(COLUMNS[state.list_view])
        return _choose(state, column=column, is_reversed=False)
    return _move(state, key, list_rows(state, top), page)


def _move(state: TopState, key: str, rows: list[Row], page: int) -> TopState:
    last = max(0, len(rows) - 1)
    at = find_chosen(state, rows)
    if key in {"enter", "right", "d"} and rows:
        return replace(state, view=View.DETAILS, gpu=rows[at].device.uuid, first=0)
    ends = {"home": 0, "g": 0, "end": last, "G": last}
    step = _measure_step(key, page)
    if not rows or (key not in ends and not step):
        return state
    to = max(0, min(last, ends.get(key, at + step)))
    process = rows[to].process
    return _choose(state, row=to, uuid=rows[to].device.uuid, pid=process.pid if process is not None else None)


def _measure_step(key: str, page: int) -> int:
    """How many lines down a key leads."""
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, " ": page}
    return steps.get(key, 0)


def _scroll(state: TopState, key: str, page: int) -> TopState:
    """Scroll a view without rows; the screen knows its end."""
    first = 0 if key in {"home", "g"} else state.first + _measure_step(key, page)
    return replace(state, first=max(0, first))


def settle(state: TopState, last_first: int) -> TopState:
    """The state with scrolling limited to the visible text."""
    return replace(state, first=min(state.first, max(0, last_first)))


def _choose(state: TopState, **chosen: int | str | None) -> TopState:
    changed = replace(state.chosen, **chosen)
    return replace(state, devices=changed) if state.list_view is View.DEVICES else replace(state, processes=changed)

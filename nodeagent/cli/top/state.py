"""What a person at `nodeagent top` has chosen, and what a key makes of it; pure."""

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.cli.top.rows import DEVICE_COLUMNS, PROCESS_COLUMNS, Column, Row, list_devices, list_processes
from nodeagent.cli.top.view import TopRecord

FILTER_MAX = 80
SORT_STEPS = {"s": 1, ">": 1, "S": -1, "<": -1}


class View(Enum):
    """What fills the screen."""

    DEVICES = auto()
    PROCESSES = auto()
    DETAILS = auto()
    HELP = auto()


LISTS = (View.DEVICES, View.PROCESSES)
COLUMNS = {View.DEVICES: DEVICE_COLUMNS, View.PROCESSES: PROCESS_COLUMNS}


class Chosen(Struct, frozen=True):
    """How one list is sorted, and where in it one is."""

    column: int = 0
    is_reversed: bool = False
    row: int = 0


class TopState(Struct, frozen=True):
    """Everything that keys can change."""

    view: View = View.DEVICES
    list_view: View = View.DEVICES
    """The list that was shown last, to which Esc leads back."""
    devices: Chosen = Chosen()
    processes: Chosen = Chosen()
    filter: str = ""
    is_typing: bool = False
    """Whether keys go into the filter."""
    gpu: str = ""
    """The UUID of the device whose details are shown."""
    first: int = 0
    """The first line shown of what is longer than the screen and has no rows to choose."""
    has_ended: bool = False

    @property
    def chosen(self) -> Chosen:
        """Of the list that is shown, or was."""
        return self.devices if self.list_view is View.DEVICES else self.processes

    @property
    def column(self) -> Column:
        """What the list is sorted by."""
        return COLUMNS[self.list_view][self.chosen.column]


def list_rows(state: TopState, top: TopRecord) -> list[Row]:
    """The rows of the list that is shown, or was."""
    make = list_devices if state.list_view is View.DEVICES else list_processes
    return make(top, state.column, state.filter, is_reversed=state.chosen.is_reversed)


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
            return _choose(replace(state, filter=""), row=0) if key == "escape" else state
        return replace(state, view=state.list_view)
    return _press_in_list(state, key, top, page) if state.view in LISTS else _scroll(state, key, page)


def _type(state: TopState, key: str) -> TopState:
    if key == "enter":
        return replace(state, is_typing=False)
    if key == "escape":
        return _choose(replace(state, is_typing=False, filter=""), row=0)
    if key == "backspace":
        return _choose(replace(state, filter=state.filter[:-1]), row=0)
    if len(key) == 1 and len(state.filter) < FILTER_MAX:
        return _choose(replace(state, filter=state.filter + key), row=0)
    return state


def _press_in_list(state: TopState, key: str, top: TopRecord, page: int) -> TopState:
    if key == "/":
        return replace(state, is_typing=True)
    if key in {"tab", "t"}:
        other = View.PROCESSES if state.list_view is View.DEVICES else View.DEVICES
        return replace(state, view=other, list_view=other)
    if key == "r":
        return _choose(state, is_reversed=not state.chosen.is_reversed, row=0)
    if key in SORT_STEPS:
        column = (state.chosen.column + SORT_STEPS[key]) % len(COLUMNS[state.list_view])
        return _choose(state, column=column, row=0, is_reversed=False)
    return _move(state, key, list_rows(state, top), page)


def _move(state: TopState, key: str, rows: list[Row], page: int) -> TopState:
    last = max(0, len(rows) - 1)
    at = min(state.chosen.row, last)
    if key in {"enter", "right", "d"} and rows:
        return replace(state, view=View.DETAILS, gpu=rows[at].device.uuid, first=0)
    ends = {"home": 0, "g": 0, "end": last, "G": last}
    to = ends.get(key, at + _measure_step(key, page))
    return _choose(state, row=max(0, min(last, to)))


def _measure_step(key: str, page: int) -> int:
    """How many lines down a key leads."""
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, " ": page}
    return steps.get(key, 0)


def _scroll(state: TopState, key: str, page: int) -> TopState:
    """What has no rows only scrolls; the screen knows where it ends."""
    first = 0 if key in {"home", "g"} else state.first + _measure_step(key, page)
    return replace(state, first=max(0, first))


def settle(state: TopState, last_first: int) -> TopState:
    """The state with its scrolling held back to what there is to see."""
    return replace(state, first=min(state.first, max(0, last_first)))


def _choose(state: TopState, **chosen: int | bool) -> TopState:
    changed = replace(state.chosen, **chosen)
    return replace(state, devices=changed) if state.list_view is View.DEVICES else replace(state, processes=changed)

"""What keys make of the screen of `nodeagent top`, and what the screen then says."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.cli.gpu.readings import Reading
from nodeagent.cli.top.screen import HEAD_LINES, HELP, Screen, Size, draw, render_bar
from nodeagent.cli.top.state import COLUMNS, FILTER_MAX, Chosen, TopState, View, find_chosen, list_rows, press, settle
from nodeagent.cli.top.view import TopDevice, TopProcess, TopRecord

SIZE = Size(100, 20)
ESCAPES = re.compile("\x1b\\[[0-9;]*m")


def make_process(pid: int, pod: str, command: str, **values: int) -> TopProcess:
    usual = {"memory_used_bytes": pid, "sm_percent": pid} | values
    return TopProcess(pid=pid, pod=pod, command=command, user="root" if pid % 2 else "ada", **usual)


def make_device(index: int, use: float | None, *processes: TopProcess, **values: str) -> TopDevice:
    usual: dict[str, Any] = {"health": "healthy"} | values
    return TopDevice(
        gpu=str(index),
        uuid=f"GPU-{index}",
        name="H100",
        use_percent=use,
        memory_used_bytes=index,
        memory_total_bytes=10,
        temperature_celsius=50,
        power_watts=100.0,
        pods=tuple(dict.fromkeys(one.pod for one in processes)),
        processes=processes,
        readings=(
            Reading(group="clocks", name="SM", value="1980 MHz"),
            *(Reading(group="errors", name=f"kind {number}", value="0") for number in range(30)),
        ),
        **usual,
    )


TOP = TopRecord(
    node="node-a",
    time_seconds=0.0,
    sentence="all is well",
    sample_age_seconds=0.5,
    sample_is_old=False,
    devices=(
        make_device(
            0, 10.0, make_process(7, "ml/bert", "python train.py"), make_process(8, "ml/bert", "worker", depth=1)
        ),
        make_device(1, None),
        make_device(10, 95.0, make_process(2, "web/chat", "vllm")),
        make_device(2, 50.0, health="unhealthy"),
    ),
)


def press_all(*keys: str, state: TopState | None = None, top: TopRecord = TOP) -> TopState:
    now = state if state is not None else TopState()
    for key in keys:
        now = settle(press(now, key, top, SIZE.body), show(now).last_first)
    return now


def show(state: TopState, *, top: TopRecord = TOP, size: Size = SIZE, problem: str = "") -> Screen:
    return draw(top, state, size, colour=False, problem=problem)


def list_names(state: TopState) -> list[str]:
    """GPUs and processes in the order shown."""
    return [f"{row.device.gpu}" if row.process is None else f"{row.process.pid}" for row in list_rows(state, TOP)]


def test_gpus_stand_in_order_of_their_numbers_with_their_processes() -> None:
    """At first; 10 comes after 2."""
    assert list_names(TopState()) == ["0", "7", "8", "1", "2", "10", "2"]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["s"], ["10", "2", "2", "0", "7", "8", "1"]),
        ([">", "r"], ["0", "7", "8", "2", "10", "2", "1"]),
        (["s", "S"], ["0", "7", "8", "1", "2", "10", "2"]),
        (["r"], ["10", "2", "2", "1", "0", "7", "8"]),
        (["<", "<"], ["0", "7", "8", "1", "10", "2", "2"]),
        (["tab"], ["7", "8", "2"]),
        (["tab", "s"], ["2", "7", "8"]),
        (["tab", "s", "r"], ["8", "7", "2"]),
        (["tab", "s", "tab", "tab"], ["2", "7", "8"]),
    ],
)
def test_lists_are_sorted_by_any_column_either_way(keys: list[str], names: list[str]) -> None:
    """The largest first where that is what people look for; what is not known comes last. Each list keeps its order."""
    assert list_names(press_all(*keys)) == names


@pytest.mark.parametrize("view", [[], ["tab"]])
def test_every_column_can_be_sorted_by_and_the_last_leads_to_the_first(view: list[str]) -> None:
    """No key of a column fails on what a row may lack."""
    state = press_all(*view)
    for column in COLUMNS[state.view]:
        assert state.column is column
        assert f"{column.name} " in show(state).lines[-1]
        state = press_all("s", state=state)
    assert state.column is COLUMNS[state.view][0]


def test_a_filter_is_typed_kept_and_dropped() -> None:
    """While it is typed, keys are letters: q does not quit. A device stays with the processes that match."""
    typing = press_all("/", "v", "L", "q", "backspace")
    assert typing.is_typing
    assert list_names(typing) == ["10", "2"]
    assert show(typing).lines[-1].startswith("/vL_")
    kept = press_all("enter", state=typing)
    assert not kept.is_typing
    assert "/vL" in show(kept).lines[-1]
    assert list_names(press_all("escape", state=kept)) == list_names(TopState())
    assert press_all("escape", state=typing) == TopState()
    assert list_names(press_all("/", "t", "r", "a", "i")) == ["0", "7"]
    assert list_names(press_all("/", *"unhealthy")) == ["2"]
    assert list_names(press_all("tab", "/", *"ada")) == ["8", "2"]
    nothing = press_all("/", *"zzz", "up")
    assert "nothing contains 'zzz'" in show(nothing).lines[HEAD_LINES]
    assert press_all("enter", "enter", state=nothing).view is View.DEVICES
    assert len(press_all("/", *("x" * (FILTER_MAX + 5))).filter) == FILTER_MAX


def test_rows_are_chosen_within_the_list() -> None:
    """Neither end is passed; what fell away with a shorter list is not missed."""
    assert press_all("up").chosen.row == 0
    assert press_all("down", "j", "k").chosen.row == 1
    assert press_all("end").chosen.row == press_all(*["page down"] * 3).chosen.row == 6
    assert press_all("G", "home").chosen.row == press_all("end", "page up").chosen.row == 0
    marked = [line for line in show(press_all("end")).lines if line.startswith("> ")]
    assert len(marked) == 1
    assert "vllm" in marked[0]
    gone = replace(TOP, devices=TOP.devices[:1])
    assert sum(line.startswith("> ") for line in show(press_all("end"), top=gone).lines) == 1


def name_chosen(state: TopState, top: TopRecord = TOP) -> str:
    """The GPU of the marked row, with its process."""
    rows = list_rows(state, top)
    row = rows[find_chosen(state, rows)]
    return row.device.uuid if row.process is None else f"{row.device.uuid} {row.process.pid}"


@pytest.mark.parametrize(
    "keys", [["s"], ["S"], ["r"], ["s", "r"], ["/", *"GPU-2"], ["/", *"GPU-2", "enter", "escape"], ["tab", "tab"]]
)
def test_the_chosen_row_is_the_same_gpu_wherever_it_stands(keys: list[str]) -> None:
    """Another order, or a list that a filter made shorter: the mark goes with the GPU, and so do the details."""
    second = press_all("down", "down", "down", "down")
    moved = press_all(*keys, state=second)
    assert name_chosen(second) == name_chosen(moved) == "GPU-2"
    assert press_all("enter", "enter", state=moved).gpu == "GPU-2"


def test_the_chosen_row_follows_new_readings_and_the_next_key_goes_on_from_there() -> None:
    """Sorted by use, the busiest GPU goes up; nobody who is about to press Enter gets another."""
    by_use = press_all("s", "down", "down")
    assert name_chosen(by_use) == "GPU-2"
    devices = tuple(replace(one, use_percent=99.0) if one.uuid == "GPU-2" else one for one in TOP.devices)
    busy = replace(TOP, devices=devices)
    assert name_chosen(by_use, busy) == "GPU-2"
    assert list_rows(by_use, busy)[0].device.uuid == "GPU-2"
    assert name_chosen(press_all("down", state=by_use, top=busy), busy) == "GPU-10"


def test_where_the_chosen_process_is_not_shown_its_gpu_is_chosen() -> None:
    """Until it is shown again; nothing chosen yet is the first row in any order."""
    process = press_all("down", "down")
    assert name_chosen(process) == "GPU-0 8"
    hidden = press_all("/", *"train", state=process)
    assert name_chosen(hidden) == "GPU-0"
    assert name_chosen(press_all("escape", state=hidden)) == "GPU-0 8"
    assert name_chosen(press_all("/", *"vllm", state=process)) == "GPU-10 2"
    assert name_chosen(press_all("r", "x")) == "GPU-10"


def test_a_small_screen_shows_the_part_with_the_chosen_row() -> None:
    """Down to a single line of the list."""
    for lines in (5, 6, 8):
        size = Size(100, lines)
        for steps in range(8):
            screen = show(press_all(*["down"] * steps), size=size).lines
            assert len(screen) == lines
            assert sum(line.startswith("> ") for line in screen) == 1


def test_details_are_read_scrolled_and_left() -> None:
    """Of the GPU of the chosen row, process or not."""
    details = press_all("down", "enter")
    assert (details.view, details.gpu) == (View.DETAILS, "GPU-0")
    lines = show(details).lines
    assert lines[2] == "GPU 0  H100"
    assert any(line.split() == ["clocks", "SM", "1980", "MHz"] for line in lines)
    below = press_all(*["page down"] * 9, state=details)
    assert "python train.py" in "".join(show(below).lines)
    assert press_all("up", state=below).first == below.first - 1
    assert press_all("g", state=below).first == 0
    assert press_all("s", "r", "/", "tab", state=details) == details
    assert press_all("escape", state=details).view is View.DEVICES
    part = replace(TOP, devices=(replace(TOP.devices[0], gpu="0:7"),))
    assert "What follows is of the whole GPU." in show(details, top=part).lines
    gone = replace(TOP, devices=())
    assert show(details, top=gone).lines[2] == "GPU-0 is no longer there"


def test_help_comes_and_goes() -> None:
    """From every view, and back to the list that was shown."""
    helped = press_all("tab", "?")
    assert HELP.splitlines()[1] in show(helped).lines
    assert press_all("left", state=helped).view is View.PROCESSES
    assert press_all("q", state=helped).has_ended
    assert press_all("q").has_ended
    assert press_all("left", "x").view is View.DEVICES


@pytest.mark.parametrize("columns", [20, 40, 79, 80, 120, 200])
@pytest.mark.parametrize("lines", [1, 2, 5, 24])
@pytest.mark.parametrize("keys", [[], ["tab"], ["enter"], ["?"], ["/"]], ids=lambda keys: "".join(keys) or "-")
def test_a_screen_fills_the_terminal_and_no_more(columns: int, lines: int, keys: list[str]) -> None:
    """One line too many scrolls the rest away, one too long is cut."""
    screen = draw(TOP, press_all(*keys), Size(columns, lines), colour=True)
    assert len(screen.lines) == lines
    assert max(len(ESCAPES.sub("", line)) for line in screen.lines) <= columns


def test_colour_tells_what_is_wrong_and_is_left_out_where_it_is_not_wanted() -> None:
    """A full bar and a sick GPU are red; without colour there is no escape at all."""
    assert not any("\x1b" in line for line in show(TopState()).lines)
    lines = draw(TOP, TopState(), SIZE, colour=True).lines
    assert any(line.startswith("\x1b[7m>") for line in lines)
    assert any(line.startswith("\x1b[31;1m") and "unhealthy" in line for line in lines)
    assert any("\x1b[31;1m██" in line and " 95%" in line for line in lines)


def test_trouble_is_said_where_the_time_is() -> None:
    """An agent that went away, and readings that are old."""
    assert show(TopState(), problem="no agent answers").lines[1] == "no agent answers"
    old = replace(TOP, sample_age_seconds=90.0, sample_is_old=True)
    assert show(TopState(), top=old).lines[1] == "readings are 1 min 30 s old"
    lost = make_device(0, 1.0, lost="fell off\x1b")
    hurt = replace(TOP, devices=(lost,))
    assert "lost" in show(TopState(), top=hurt).lines[HEAD_LINES]
    assert any(
        line.startswith("lost") and "fell off�" in line for line in show(press_all("enter", top=hurt), top=hurt).lines
    )


def test_a_bar_is_as_full_as_what_it_shows() -> None:
    """Little is seen as little, more than all as all."""
    assert [render_bar(share, 4) for share in (-1, 0, 0.01, 0.5, 1, 2)] == [
        "░░░░",
        "░░░░",
        "█░░░",
        "██░░",
        "████",
        "████",
    ]


def test_a_cordoned_gpu_is_marked_found_and_explained() -> None:
    """Its line has a colour and the words, the filter finds the words, and the details have them too."""
    words = "cordoned by the brake"
    top = replace(TOP, devices=(make_device(0, 10.0, cordoned=words), make_device(1, 20.0)))
    lines = draw(top, TopState(devices=Chosen(row=1)), SIZE, colour=True).lines
    assert [line.startswith("\x1b[33m") for line in lines[HEAD_LINES : HEAD_LINES + 2]] == [True, False]
    assert words in lines[HEAD_LINES]
    assert [row.device.gpu for row in list_rows(press_all("/", *"brake", top=top), top)] == ["0"]
    details = show(press(TopState(), "enter", top, SIZE.body), top=top).lines
    assert f"{'new pods':<18}{words}" in details

import io
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from nodeagent.core.log import repeats as log_repeats
from nodeagent.core.log.audit import CUT_SHORT, DETAIL_MAX, DONE, Change, keeping, noting
from nodeagent.core.log.lines import Form, configure_logging, describe_error, describe_trace, get_logger, report_repeats


@pytest.fixture(autouse=True)
def _fresh_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        return True


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail() -> None:
    raise OSError("first line\nsecond line")


def caught() -> OSError:
    try:
        fail()
    except OSError as error:
        return error
    raise AssertionError


def test_json_line_has_event_level_time_component_and_fields() -> None:
    stream = io.StringIO()
    configure_logging(form="json", stream=stream)
    get_logger(component="driver").bind(gpu=3).warning("device_became_unhealthy", xid=79, why="two\nlines")
    (line,) = written(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "device_became_unhealthy",
        "level": "warning",
        "component": "driver",
        "gpu": 3,
        "xid": 79,
        "why": "two lines",
    }


def test_unexpected_error_is_one_line_with_its_origin() -> None:
    """No stack trace over many lines: what in one field, where in another."""
    stream = io.StringIO()
    configure_logging(form="json", stream=stream)
    get_logger(component="x").exception("step_failed", caught(), step=2)
    (line,) = written(stream)
    assert line["error"] == "OSError: first line second line"
    assert line["trace"].startswith("core/test_log.py:")
    assert " fail < " in line["trace"]
    assert line["step"] == 2


def test_errors_given_as_fields_become_text() -> None:
    """An expected error is a field like any other."""
    stream = io.StringIO()
    configure_logging(form="json", stream=stream)
    get_logger(component="x").error("step_failed", error=KeyError("k"))
    assert written(stream)[0]["error"] == "KeyError: 'k'"


@pytest.mark.parametrize(("level", "events"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_level_is_the_threshold(level: Any, events: int) -> None:
    """Lines below the level are not written."""
    stream = io.StringIO()
    configure_logging(form="json", level=level, stream=stream)
    log = get_logger(component="x")
    for write in (log.debug, log.info, log.warning, log.error):
        write("happened")
    assert len(written(stream)) == events


@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [
        ("auto", io.StringIO(), True),
        ("auto", Terminal(), False),
        ("console", io.StringIO(), False),
        ("json", Terminal(), True),
    ],
)
def test_form_follows_the_stream_unless_it_is_told(form: Form, stream: io.StringIO, is_json: bool) -> None:
    """People get the readable form, pipes get JSON."""
    configure_logging(form=form, stream=stream)
    get_logger(component="x").info("happened")
    assert stream.getvalue().startswith("{") is is_json


def test_third_party_lines_come_out_in_the_same_form() -> None:
    """Warnings of libraries are ours to show, once, however often logging is configured."""
    stream = io.StringIO()
    for _ in range(2):
        configure_logging(form="json", level="debug", stream=stream)
    library = logging.getLogger("somelib")
    library.info("chatter")
    library.warning("odd %s", "thing")
    try:
        fail()
    except OSError:
        library.exception("broken")
    odd, broken = written(stream)
    assert (odd["event"], odd["component"], odd["message"], odd["level"]) == (
        "library_logged",
        "somelib",
        "odd thing",
        "warning",
    )
    assert broken["error"] == "OSError: first line second line"
    assert "fail" in broken["trace"]


def test_errors_are_described_by_their_first_leaf() -> None:
    """Groups are opened; an error without words is its class."""
    assert describe_error(ValueError()) == "ValueError"
    group = ExceptionGroup("g", [ExceptionGroup("h", [ValueError("a")]), OSError("b"), OSError("c")])
    assert describe_error(group) == "ValueError: a (and 2 more)"
    assert describe_trace(group) == ""


def test_importing_the_log_does_not_import_structlog() -> None:
    """Modules that might log stay cheap."""
    code = "import sys, nodeagent.core.log.lines; sys.exit('structlog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_repeats_is_told_then_counted_then_told_how_often() -> None:
    """Fields that say of what keep lines apart; how long it took, whose process it was and whence it came do not."""
    stream = io.StringIO()
    configure_logging(form="json", stream=stream)
    log = get_logger(component="http")
    for number in range(1000):
        log.error("connection_not_taken", error=OSError(24, "Too many open files"), seconds=number / 7, pid=number)
        log.warning("gpu_slow", gpu=number % 2)
    report_repeats()
    assert Counter(line["event"] for line in written(stream)) == {"connection_not_taken": 5, "gpu_slow": 10}
    report_repeats(everything=True)
    errors, first, second = sorted(written(stream)[-3:], key=lambda line: (line["event"], line.get("gpu")))
    assert (errors["event"], errors["level"], errors["more"]) == ("connection_not_taken", "error", 995)
    assert errors["since"].endswith("Z")
    assert errors["timestamp"] >= errors["since"][:-1]
    assert [(line["gpu"], line["more"]) for line in (first, second)] == [(0, 495), (1, 495)]


def test_libraries_repeat_themselves_no_more_than_we_do() -> None:
    """Asyncio and aiohttp among them; numbers and addresses in their sentences make no difference."""
    stream = io.StringIO()
    configure_logging(form="json", stream=stream)
    for name in ("asyncio", "aiohttp.server"):
        for number in range(100):
            logging.getLogger(name).error(
                "socket.accept() out of system resource\nsocket: fd=%d at 0x%x", number, number
            )
    report_repeats(everything=True)
    lines = written(stream)
    assert Counter(line["component"] for line in lines) == {"asyncio": 6, "aiohttp.server": 6}
    assert [line["more"] for line in lines if "more" in line] == [95, 95]
    assert all("_said" not in line for line in lines)


def test_what_had_to_make_room_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and no count is lost for it."""
    monkeypatch.setattr(log_repeats, "EVENTS_MAX", 1)
    stream = io.StringIO()
    configure_logging(form="json", stream=stream)
    log = get_logger(component="x")
    for _ in range(8):
        log.error("first")
    log.error("second")
    assert [(line["event"], line.get("more")) for line in written(stream)[5:]] == [("first", 3), ("second", None)]


def test_a_new_form_tells_what_was_counted_before() -> None:
    """A reload loses nothing."""
    stream = io.StringIO()
    configure_logging(form="json", stream=stream)
    for _ in range(7):
        get_logger(component="x").info("happened", at=("a", 1))
    configure_logging(form="json", stream=io.StringIO())
    assert written(stream)[-1]["more"] == 2


LEAN = """
import sys
from nodeagent.core.log.lines import configure_logging, get_logger
configure_logging(form="console")
get_logger(component="test").info("line_written")
assert not any(name.split(".")[0] == "rich" for name in sys.modules), "rich was imported"
"""

ALREADY_THERE = """
import sys, structlog
before = set(sys.modules)
from nodeagent.core.log.lines import configure_logging
configure_logging(form="json")
assert sys.modules["structlog"] is structlog
"""

RICH_WANTED = """
import sys, types
sys.modules["rich"] = mine = types.ModuleType("rich")
mine.__path__ = []
from nodeagent.core.log import lines as log
try:
    log.configure_logging(form="json")
except ImportError:
    pass
assert sys.modules["rich"] is mine, "another program's module was taken away"
"""


@pytest.mark.parametrize("program", [LEAN, ALREADY_THERE, RICH_WANTED])
def test_the_log_loads_no_more_than_it_needs(program: str) -> None:
    """A library that only draws stack traces is left out, and nobody else's modules are touched."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


class Refused(Exception):
    """What changes nothing."""


def test_a_change_is_noted_with_how_it_ended() -> None:
    """Done, failed for a reason, or cut short."""
    kept: list[Change] = []
    with keeping(kept.append):
        with noting("file", "/etc/x", "write it"):
            pass
        with pytest.raises(Refused), noting("file", "/etc/x", "write it"):
            raise Refused("no space")
        with pytest.raises(KeyboardInterrupt), noting("gpu", "GPU 0", "reset it", "by hand"):
            raise KeyboardInterrupt
    assert [each.outcome for each in kept] == [DONE, "Refused: no space", CUT_SHORT]
    assert (kept[2].kind, kept[2].name, kept[2].action, kept[2].detail) == ("gpu", "GPU 0", "reset it", "by hand")
    assert kept[0].at > 0


def test_a_long_detail_is_cut() -> None:
    """What fits is whole."""
    kept: list[Change] = []
    with keeping(kept.append):
        for length in (DETAIL_MAX, DETAIL_MAX + 1):
            with noting("kubernetes", "/x", "y", "z" * length):
                pass
    assert [len(each.detail) for each in kept] == [DETAIL_MAX, DETAIL_MAX]
    assert [each.detail[-1] for each in kept] == ["z", "…"]


def test_nothing_is_kept_outside_of_the_block() -> None:
    """Of a process that has no audit log, no change is kept."""
    kept: list[Change] = []
    with keeping(kept.append):
        pass
    with noting("file", "/etc/x", "write it"):
        pass
    assert kept == []

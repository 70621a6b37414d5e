"""Log lines: one line per event, JSON or for the eye, on stderr. The only importer of structlog.

Owns the set-up and the logger of the whole agent. Event names are snake_case in the past tense, values are fields.
An exception becomes one line (`error`) and, for `exception`, a field with the place of origin (`trace`);
a stack trace over many lines is never written. Lines of third-party libraries come out in the same form.
An event repeated with the same fields is written a few times, then counted, and written again now and then with `more`
(the number of further times) and `since`; so are lines of libraries. The module `repeats` decides.

structlog is imported at the first line or at set-up, so that importing a module with a logger stays cheap.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
import traceback
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TextIO

from nodeagent.core.log.repeats import Count, Repeats, Summary

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, MutableMapping
    from types import ModuleType

    from structlog.typing import FilteringBoundLogger, Processor

Form = Literal["auto", "json", "console"]
Level = Literal["debug", "info", "warning", "error"]

_TRACE_FRAMES = 6
"""Innermost frames named in `trace`: enough to find the line, short enough for one line."""

_VARYING = frozenset({"count", "generation", "pid", "trace"})
"""Fields that differ between repetitions of the same event; so do all floats, being measured values."""
_PLAIN = frozenset({bool, int, str, type(None)})
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
"""Numbers, which differ between repetitions of a library's message."""


class Logger:
    """Writes events with bound fields."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def bind(self, **fields: object) -> Logger:
        """The same logger with more fields on every line."""
        return Logger(**{**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        """Details for developers of the agent."""
        _backend().debug(event, **self._fields, **fields)

    def info(self, event: str, **fields: object) -> None:
        """A normal change of state."""
        _backend().info(event, **self._fields, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """A fault with which the agent copes."""
        _backend().warning(event, **self._fields, **fields)

    def error(self, event: str, **fields: object) -> None:
        """A fault in need of a person."""
        _backend().error(event, **self._fields, **fields)

    def exception(self, event: str, error: BaseException, **fields: object) -> None:
        """An unexpected error: one line for the error, one field for the place."""
        trace = describe_trace(error)
        _backend().error(event, **self._fields, error=describe_error(error), trace=trace, **fields)


def get_logger(*, component: str) -> Logger:
    """The logger of one component."""
    return Logger(component=component)


def describe_error(error: BaseException) -> str:
    """One line for people: the class and message of the first real error, and the number of further errors."""
    first, *others = _leaves(error)
    message = " ".join(str(first).split())
    line = f"{type(first).__name__}: {message}" if message else type(first).__name__
    return f"{line} (and {len(others)} more)" if others else line


def describe_trace(error: BaseException) -> str:
    """The frames of the first real error, innermost first, in one line."""
    # walked by hand: the traceback module would read source files, which blocks the loop
    frames = list(traceback.walk_tb(next(_leaves(error)).__traceback__))[-_TRACE_FRAMES:]
    return " < ".join(
        f"{_short(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}" for frame, line in reversed(frames)
    )


def configure_logging(*, form: Form = "auto", level: Level = "info", stream: TextIO | None = None) -> None:
    """Set the form and threshold of all log lines of the process; the last call wins."""
    structlog = _import_structlog()
    target = stream or sys.stderr
    chosen = form if form != "auto" else ("console" if target.isatty() else "json")
    threshold = logging.getLevelNamesMapping()[level.upper()]
    report_repeats(everything=True)
    structlog.configure(
        processors=[*_processors(), _renderer(chosen, colours=target.isatty())],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _ThirdPartyLines):
            root.removeHandler(handler)
    root.addHandler(_ThirdPartyLines())
    # lines of third parties are written from warnings up: debug lines are about internals
    root.setLevel(max(threshold, logging.WARNING))


def report_repeats(*, everything: bool = False) -> None:
    """Write the due summaries of counted lines; `everything` at the end of the process."""
    with _lock:
        summaries = _repeats.close() if everything else _repeats.collect(time.monotonic())
    _write(summaries)


_repeats = Repeats()
_lock = threading.Lock()


def _write(summaries: list[Summary]) -> None:
    for summary in summaries:
        fields = dict(summary.line)
        event, level = fields.pop("event"), fields.pop("level")
        _backend().log(logging.getLevelNamesMapping()[level.upper()], event, _counted=summary.counted, **fields)


def _drop_repeats(_logger: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Let a line through with the number of its repetitions, or drop the line and count."""
    now = time.monotonic()
    counted: Count | None = event.pop("_counted", None)
    if counted is None:
        identity = _identify(level, event)
        with _lock:
            counted = _repeats.hear(identity, {**event, "level": level}, now)
            forgotten = _repeats.take_forgotten()
        _write(forgotten)
        if counted is None:
            raise _import_structlog().DropEvent
    if counted.more:
        event["more"] = counted.more
        event["since"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - now + counted.since))
    return event


def _identify(level: str, event: MutableMapping[str, Any]) -> Hashable:
    """The identity of a line: level and fields, without measured values and other varying fields."""
    said = event.pop("_said", None)
    return (
        level,
        said,
        *(
            (name, value if type(value) in _PLAIN else str(value))
            for name, value in event.items()
            if type(value) is not float and name not in _VARYING and not (said and name == "message")
        ),
    )


class _ThirdPartyLines(logging.Handler):
    """Turns records of the standard library's logging into the agent's lines."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        fields: dict[str, object] = {"component": record.name, "message": message, "_said": _NUMBERS.sub("#", message)}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = describe_error(record.exc_info[1])
            fields["trace"] = describe_trace(record.exc_info[1])
        _backend().log(record.levelno, "library_logged", **fields)


def _import_structlog() -> ModuleType:
    """Import structlog without rich, a library of 6 MB for stack traces, which are never written here."""
    absent = object()
    rich = sys.modules.get("rich", absent)
    if "structlog" not in sys.modules and rich is absent:
        sys.modules["rich"] = None  # type: ignore[assignment]  # an absent module for the import system
        try:
            return import_module("structlog")
        finally:
            del sys.modules["rich"]
    return import_module("structlog")


@cache
def _backend() -> FilteringBoundLogger:
    backend: FilteringBoundLogger = _import_structlog().get_logger()
    return backend


def _processors() -> list[Processor]:
    structlog = _import_structlog()
    return [
        _drop_repeats,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _one_line,
    ]


def _renderer(form: str, *, colours: bool) -> Processor:
    structlog = _import_structlog()
    if form == "json":
        renderer: Processor = structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=colours)
    return renderer


def _one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Fold values with line breaks; turn exceptions in fields into text."""
    for key, value in event.items():
        if isinstance(value, BaseException):
            event[key] = describe_error(value)
        elif isinstance(value, str) and "\n" in value:
            event[key] = " ".join(value.split())
    return event


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _short(filename: str) -> str:
    return "/".join(filename.split("/")[-2:])

"""Log lines: one line per event, JSON or for the eye, on stderr. The only importer of structlog.

Owns the set-up and the logger that everybody uses. Event names are snake_case in the past tense, values are fields.
An exception becomes one line (`error`) and, for `exception`, a field that says where it came from (`trace`);
a stack trace over many lines is never written. Lines of third-party libraries come out in the same form.
An event that repeats with the same fields is told a few times, then counted, and told again now and then with `more`
(how many times more) and `since`; that holds for libraries too, and `log_repeats` decides it.

structlog is imported at the first line or at set-up, so that modules which only might log stay cheap to import.
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
"""Fields that differ from one time to the next of the same event; so do all fractions, which are measured."""
_PLAIN = frozenset({bool, int, str, type(None)})
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
"""What differs in a library's sentence from one time to the next."""


class Logger:
    """Writes events with the fields bound to it."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def bind(self, **fields: object) -> Logger:
        """The same logger with more fields on every line."""
        return Logger(**{**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        """For those who develop the agent."""
        _backend().debug(event, **self._fields, **fields)

    def info(self, event: str, **fields: object) -> None:
        """A change of state that is well."""
        _backend().info(event, **self._fields, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something is not as it should be; the agent copes."""
        _backend().warning(event, **self._fields, **fields)

    def error(self, event: str, **fields: object) -> None:
        """Somebody has to do something."""
        _backend().error(event, **self._fields, **fields)

    def exception(self, event: str, error: BaseException, **fields: object) -> None:
        """An error nobody expected: one line of what, one field of where."""
        trace = describe_trace(error)
        _backend().error(event, **self._fields, error=describe_error(error), trace=trace, **fields)


def get_logger(*, component: str) -> Logger:
    """The logger of one part of the agent."""
    return Logger(component=component)


def describe_error(error: BaseException) -> str:
    """One line for people: the class and message of the first real error, and how many more there were."""
    first, *others = _leaves(error)
    message = " ".join(str(first).split())
    line = f"{type(first).__name__}: {message}" if message else type(first).__name__
    return f"{line} (and {len(others)} more)" if others else line


def describe_trace(error: BaseException) -> str:
    """Where the first real error came from, innermost first, in one line."""
    # walked by hand: the traceback module would read source files, which blocks the loop
    frames = list(traceback.walk_tb(next(_leaves(error)).__traceback__))[-_TRACE_FRAMES:]
    return " < ".join(
        f"{_short(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}" for frame, line in reversed(frames)
    )


def configure_logging(*, form: Form = "auto", level: Level = "info", stream: TextIO | None = None) -> None:
    """Set the form and threshold of every log line of this process; the last call wins."""
    structlog = _import_structlog()
    target = stream or sys.stderr
    chosen = form if form != "auto" else ("console" if target.isatty() else "json")
    threshold = logging.getLevelNamesMapping()[level.upper()]
    tell_repeats(everything=True)
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
    # third parties are heard from warnings up: their debug lines are about themselves
    root.setLevel(max(threshold, logging.WARNING))


def tell_repeats(*, everything: bool = False) -> None:
    """Write what was only counted and whose time has come; `everything` at the end of the process."""
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
    """Let through what is to be told, with how often it has happened besides."""
    now = time.monotonic()
    counted: Count | None = event.pop("_counted", None)
    if counted is None:
        identity = _identify(level, event)
        with _lock:
            counted = _repeats.hear(identity, {**event, "level": level}, now)
            forgotten = _repeats.take_forgotten()
        _write(forgotten)
        if counted is None:
            from structlog import DropEvent  # noqa: PLC0415  # see the module's docstring

            raise DropEvent
    if counted.more:
        event["more"] = counted.more
        event["since"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - now + counted.since))
    return event


def _identify(level: str, event: MutableMapping[str, Any]) -> Hashable:
    """What makes two lines the same: what happened to what, but neither when nor how long it took."""
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
    """Turns records of the standard library's logging into our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        fields: dict[str, object] = {"component": record.name, "message": message, "_said": _NUMBERS.sub("#", message)}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = describe_error(record.exc_info[1])
            fields["trace"] = describe_trace(record.exc_info[1])
        _backend().log(record.levelno, "library_logged", **fields)


def _import_structlog() -> ModuleType:
    """Import structlog without the library it would draw stack traces with: we write none, and rich is 6 MB."""
    absent = object()
    rich = sys.modules.get("rich", absent)
    if "structlog" not in sys.modules and rich is absent:
        sys.modules["rich"] = None  # type: ignore[assignment]  # how the import system is told that there is none
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
    import structlog  # noqa: PLC0415  # see the module's docstring

    return [
        _drop_repeats,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _one_line,
    ]


def _renderer(form: str, *, colours: bool) -> Processor:
    import structlog  # noqa: PLC0415  # see the module's docstring

    if form == "json":
        return structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False)
    return structlog.dev.ConsoleRenderer(colors=colours)


def _one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values that would break the line in two are folded; exceptions given as fields become text."""
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

"""The shown fields with name, type and help: the default list, or a list in DCGM exporter's CSV form; pure.

Owns the parser of the list. No line is fatal: an unusable line is reported with the reason, all other lines are used.
"""

import csv
from collections.abc import Container, Iterator
from typing import Final

from nodeagent.components.exporter.catalogue.all_fields import AnyField, find_field, list_defaults
from nodeagent.components.exporter.catalogue.field import LabelField
from nodeagent.components.exporter.catalogue.missing import explain_missing
from nodeagent.components.exporter.exposition import MetricType
from nodeagent.model.values import Value

TYPES: Final = ("gauge", "counter", "label")
LINES_MAX: Final = 10_000


class LineProblem(Value, frozen=True):
    """An unusable line of the list, and the reason."""

    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text[:80]!r}: {self.reason}"


class Selected(Value, frozen=True):
    """A shown family."""

    name: str
    """As spelled in the list."""
    type: MetricType
    help: str
    field: AnyField


class Selection(Value, frozen=True):
    """All families and labels to be shown, in the order of the exposition."""

    families: tuple[Selected, ...]
    labels: tuple[Selected, ...]
    problems: tuple[LineProblem, ...] = ()


class _LineRefused(Exception):
    """A line cannot be used."""


def select_defaults() -> Selection:
    """The default list of DCGM exporter."""
    return _arrange([_select(field) for field in list_defaults()], [])


def parse_selection(text: str) -> Selection:
    """A list as text."""
    chosen: dict[str, Selected] = {}
    problems: list[LineProblem] = []
    for number, line in _list_lines(text):
        try:
            selected = _parse_line(line, chosen)
            chosen[selected.name] = selected
        except _LineRefused as refusal:
            problems.append(LineProblem(line=number, text=line, reason=str(refusal)))
    return _arrange(list(chosen.values()), problems)


def _list_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines()[:LINES_MAX], 1):
        line = raw.strip()
        if line and not line.startswith("#"):
            yield number, line


def _parse_line(line: str, chosen: Container[str]) -> Selected:
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True, strict=True))]
    except csv.Error as error:
        raise _LineRefused(f"not CSV: {error}") from error
    if len(cells) != 3:
        raise _LineRefused(f"needs name, type, help, has {len(cells)} parts; a comma in the help needs quotes round it")
    name, kind, text = cells
    if name in chosen:
        raise _LineRefused(f"{name} is listed already")
    field = find_field(name)
    if field is None:
        reason = explain_missing(name)
        raise _LineRefused(f"not available: {reason}" if reason else "no field of DCGM")
    return _with_type(name, kind.lower(), text, field)


def _with_type(name: str, kind: str, text: str, field: AnyField) -> Selected:
    if isinstance(field, LabelField) is not (kind == "label"):
        wanted = "label" if isinstance(field, LabelField) else "gauge or counter"
        raise _LineRefused(f"type {kind!r} does not fit this field, write {wanted}")
    if kind in {"gauge", "label"}:
        return Selected(name=name, type="gauge", help=text, field=field)
    if kind == "counter":
        return Selected(name=name, type="counter", help=text, field=field)
    raise _LineRefused(f"type {kind!r} is none of {', '.join(TYPES)}")


def _select(field: AnyField) -> Selected:
    kind: MetricType = "gauge" if isinstance(field, LabelField) else field.type
    return Selected(name=field.name, type=kind, help=field.help, field=field)


def _arrange(chosen: list[Selected], problems: list[LineProblem]) -> Selection:
    in_order = sorted(chosen, key=lambda selected: (selected.field.number, selected.name))
    return Selection(
        families=tuple(one for one in in_order if not isinstance(one.field, LabelField)),
        labels=tuple(one for one in in_order if isinstance(one.field, LabelField)),
        problems=tuple(problems),
    )

"""All fields for people to choose from: shown, available, or missing with the reason; pure."""

from collections.abc import Iterator
from typing import Literal

from nodeagent.components.exporter.catalogue.all_fields import FIELDS, AnyField, list_extras
from nodeagent.components.exporter.catalogue.field import LabelField
from nodeagent.components.exporter.catalogue.missing import COMMON_MISSING, explain_missing
from nodeagent.components.exporter.catalogue.selection import Selection
from nodeagent.model.values import Value

Standing = Literal["shown", "absent", "available", "missing"]
"""Absent is what is shown as soon as something has happened that it tells of."""


class FieldEntry(Value, frozen=True):
    """One line of the list."""

    name: str
    type: str
    standing: Standing
    text: str
    """What it is, or why it is missing."""


def list_fields(selection: Selection, *, zero_before_first: bool = False) -> tuple[FieldEntry, ...]:
    """Shown fields under the names of the list in force, then available fields, then missing fields.

    `zero_before_first` is whether a field about events is shown as zero before the first event.
    """
    shown = (*selection.labels, *selection.families)
    known = {one.field.name for one in shown}
    return (
        *(
            FieldEntry(
                name=one.name,
                type=_type(one.field, one.type),
                standing="absent" if getattr(one.field, "waits", False) and not zero_before_first else "shown",
                text=one.help or one.field.help,
            )
            for one in shown
        ),
        *(
            FieldEntry(name=field.name, type=_type(field), standing="available", text=field.help)
            for field in (*FIELDS, *list_extras())
            if field.name not in known
        ),
        *(
            FieldEntry(name=name, type="", standing="missing", text=explain_missing(name) or "")
            for name in COMMON_MISSING
        ),
    )


def render_csv() -> str:
    """Every available field in the form of `metrics.fields_file`; fields off the default list are commented out."""
    return "\n".join(_list_lines()) + "\n"


def _list_lines() -> Iterator[str]:
    yield "# name, type, help; a line that begins with # is left out"
    for field in (*FIELDS, *list_extras()):
        mark = "" if field.default else "# "
        yield f'{mark}{field.name}, {_type(field)}, "{field.help}"'


def _type(field: AnyField, chosen: str = "") -> str:
    return "label" if isinstance(field, LabelField) else chosen or field.type

"""All fields by name: fields of DCGM exporter with a reading of NVML; pure."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from nodeagent.components.exporter.catalogue.aliases import ALIASES
from nodeagent.components.exporter.catalogue.field import Field, LabelField
from nodeagent.components.exporter.fields import (
    condition,
    extra_board,
    extra_links,
    extra_profiling,
    identity,
    memory,
    memory_errors,
    nvlink,
    pcie,
    power,
    profiling,
)
from nodeagent.components.exporter.fields.events import EVENT_FIELDS, EventField

AnyField = Field | EventField | LabelField

_GROUPS: Final = (power, pcie, memory, nvlink, memory_errors, condition, profiling)

FIELDS: Final[tuple[AnyField, ...]] = tuple(
    sorted(
        (*(field for group in _GROUPS for field in group.FIELDS), *EVENT_FIELDS, *identity.LABELS),
        key=lambda field: field.number,
    )
)
"""In the order of DCGM's field ids, which is the order of the exposition."""

_BY_NAME: Final[Mapping[str, AnyField]] = {field.name: field for field in FIELDS}


def find_field(name: str) -> AnyField | None:
    """The field of a name, in any spelling."""
    known = ALIASES.get(name, name)
    return _BY_NAME.get(known) or next((field for field in list_extras() if field.name == known), None)


@lru_cache(maxsize=1)
def list_extras() -> tuple[Field, ...]:
    """Fields that are sampled only while a list of fields asks for them."""
    groups = (extra_board, extra_links, extra_profiling)
    return tuple(sorted((field for group in groups for field in group.FIELDS), key=lambda field: field.number))


def list_readings(fields: Iterable[AnyField]) -> tuple[str, ...]:
    """The readings for fields beside the ordinary sample, each once."""
    return tuple(sorted({name for one in fields if isinstance(one, Field) for name in one.readings}))


def list_defaults() -> tuple[AnyField, ...]:
    """The default list of DCGM exporter."""
    return tuple(field for field in FIELDS if field.default)

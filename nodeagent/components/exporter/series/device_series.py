"""The series of DCGM exporter: every selected field of every device; pure, and the hot path of rendering."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodeagent.components.exporter.attribution.device_labels import DeviceLabels
from nodeagent.components.exporter.catalogue.field import Entity, Field
from nodeagent.components.exporter.catalogue.selection import Selected
from nodeagent.components.exporter.exposition import Block, render_number
from nodeagent.components.exporter.fields.events import EventField, Happenings


@dataclass(frozen=True, slots=True)
class Device:
    """A device and the labels of the device's series."""

    entity: Entity
    labels: DeviceLabels


def render_device_series(
    families: Sequence[Selected], devices: Sequence[Device], boards: Sequence[Device], happenings: Happenings
) -> Iterator[Block]:
    """One block for each field, in the given order; fields without a device are left out.

    `boards` are whole GPUs with series for instances alone: a field about the whole board is shown once, on the GPU.
    """
    for selected in families:
        field = selected.field
        if isinstance(field, Field):
            lines = _render_field(selected.name, field, devices)
        else:
            assert isinstance(field, EventField)
            lines = _render_events(selected.name, field, (*boards, *devices), happenings)
        if lines:
            yield Block(selected.name, selected.type, selected.help, lines)


def _render_field(name: str, field: Field, devices: Sequence[Device]) -> str:
    read, decimals = field.read, field.decimals
    lines = []
    for device in devices:
        value = read(device.entity)
        if value is None:
            continue
        number = f"{value:.6f}" if decimals else str(int(value))
        lines.append(f"{name}{{{device.labels.text}}} {number}\n")
    return "".join(lines)


def _render_events(name: str, field: EventField, devices: Sequence[Device], happenings: Happenings) -> str:
    return "".join(
        f"{name}{{{device.labels.extend(labels, attributes)}}} {render_number(value)}\n"
        for device in devices
        for labels, attributes, value in field.list_series(device.entity, happenings)
    )

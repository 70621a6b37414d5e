"""The rows of `nodeagent top`, and their order; pure.

Owns sorting and filtering. An unknown value comes last, whichever way the rest is sorted.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.cli.top.view import TopDevice, TopProcess, TopRecord


class Row(Struct, frozen=True):
    """A device, or a process on a device."""

    device: TopDevice
    process: TopProcess | None = None


class Column(Struct, frozen=True):
    """A column to sort rows by."""

    name: str
    key: Callable[[Row], Any]
    """The row's sort key; `None` for a row without a value."""
    falls: bool = False
    """Whether the largest comes first."""


DEVICE_COLUMNS = (
    Column("GPU", lambda row: _split(row.device.gpu)),
    Column("USE", lambda row: row.device.use_percent, falls=True),
    Column("MEMORY", lambda row: row.device.memory_used_bytes, falls=True),
    Column("TEMP", lambda row: row.device.temperature_celsius, falls=True),
    Column("POWER", lambda row: row.device.power_watts, falls=True),
    Column("HEALTH", lambda row: row.device.health or None),
    Column("PODS", lambda row: row.device.pods or None),
)
PROCESS_COLUMNS = (
    Column("GPU", lambda row: _split(row.device.gpu)),
    Column("PID", lambda row: _of(row, "pid")),
    Column("USER", lambda row: _of(row, "user") or None),
    Column("SM", lambda row: _of(row, "sm_percent"), falls=True),
    Column("MEMORY", lambda row: _of(row, "memory_used_bytes"), falls=True),
    Column("POD", lambda row: _of(row, "pod") or None),
    Column("COMMAND", lambda row: _of(row, "command") or None),
)


def _split(gpu: str) -> tuple[int, ...]:
    return tuple(map(int, gpu.split(":")))


def _of(row: Row, name: str) -> Any:
    return getattr(row.process, name)


def list_devices(top: TopRecord, column: Column, text: str, *, is_reversed: bool) -> list[Row]:
    """Each device with its processes below; where only some processes match, with the matching processes."""
    devices = [kept for device in top.devices if (kept := _filter(device, text)) is not None]
    rows = _sort([Row(device) for device in devices], column, is_reversed=is_reversed)
    return [each for row in rows for each in (row, *(Row(row.device, one) for one in row.device.processes))]


def list_processes(top: TopRecord, column: Column, text: str, *, is_reversed: bool) -> list[Row]:
    """All processes of all devices."""
    devices = [kept for device in top.devices if (kept := _filter(device, text)) is not None]
    rows = [Row(device, process) for device in devices for process in device.processes]
    return _sort(rows, column, is_reversed=is_reversed)


def _filter(device: TopDevice, text: str) -> TopDevice | None:
    if _contains((device.gpu, device.name, device.uuid, device.health, device.cordoned, *device.pods), text):
        return device
    kept = tuple(one for one in device.processes if _contains((str(one.pid), one.user, one.pod, one.command), text))
    return replace(device, processes=kept) if kept else None


def _contains(cells: Sequence[str], text: str) -> bool:
    return any(text.lower() in cell.lower() for cell in cells)


def _sort(rows: list[Row], column: Column, *, is_reversed: bool) -> list[Row]:
    known = [row for row in rows if column.key(row) is not None]
    unknown = [row for row in rows if column.key(row) is None]
    return [*sorted(known, key=column.key, reverse=column.falls != is_reversed), *unknown]

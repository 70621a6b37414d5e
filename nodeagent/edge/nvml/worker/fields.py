"""NVML's batched getter: many numbers for the price of one call, each with a return code.

Runs in the worker process. Owns the lists of fields, the names in a sample, and the buffers: making buffers anew each
second would take longer than the call. Refuses to mix NVLink fields with others in one batch: some driver versions then
fail the whole call.
"""

import ctypes
import struct

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.query import Query

ALL_LINKS = 0xFFFFFFFF
LINK_COUNT = 91
LINK_SPEED, LINK_STATE = 164, 165
EFFECTIVE_BER, SYMBOL_BER = 220, 222
LINK_IS_UP = 1
MEMORY_TEMPERATURE = 82
_PLAUSIBLE_CELSIUS = 200


SWIFT_FIELDS = (
    ("power_violation_nanoseconds", 74, 0),
    ("thermal_violation_nanoseconds", 75, 0),
    ("memory_temperature_celsius", MEMORY_TEMPERATURE, 0),
    ("energy_millijoules", 83, 0),
    ("pcie_transmit_bytes", 197, 0),
    ("pcie_receive_bytes", 198, 0),
    ("recovery_action", 230, 0),
)
"""Read at each sample."""

LEVEL_FIELDS = (
    ("ecc_corrected_volatile", 3, 0),
    ("ecc_uncorrected_volatile", 4, 0),
    ("ecc_corrected_aggregate", 5, 0),
    ("ecc_uncorrected_aggregate", 6, 0),
    ("retired_pages_single_bit", 29, 0),
    ("retired_pages_double_bit", 30, 0),
    ("retired_pages_pending", 31, 0),
    ("pcie_replay_count", 94, 0),
    ("remapped_rows_correctable", 142, 0),
    ("remapped_rows_uncorrectable", 143, 0),
    ("remapped_rows_pending", 144, 0),
    ("remapped_rows_failed", 145, 0),
    ("pcie_correctable_error_count", 173, 0),
    ("pcie_non_fatal_error_count", 179, 0),
    ("pcie_fatal_error_count", 180, 0),
)
"""Read when the levels are due."""
FLAGS = frozenset({"retired_pages_pending", "remapped_rows_pending", "remapped_rows_failed"})

SWIFT_LINK_FIELDS = (
    ("nvlink_transmit_kib", 138, ALL_LINKS),
    ("nvlink_receive_kib", 139, ALL_LINKS),
)
LEVEL_LINK_FIELDS = (
    ("nvlink_replay_count", 52, 0),
    ("nvlink_recovery_count", 59, 0),
    ("nvlink_crc_flit_count", 38, 0),
    ("nvlink_crc_data_count", 45, 0),
)
FIFTH_LINK_FIELDS = (
    ("nvlink_malformed_packet_count", 206, ALL_LINKS),
    ("nvlink_buffer_overrun_count", 207, ALL_LINKS),
    ("nvlink_receive_error_count", 208, ALL_LINKS),
    ("nvlink_remote_error_count", 209, ALL_LINKS),
    ("nvlink_general_error_count", 210, ALL_LINKS),
    ("nvlink_integrity_error_count", 211, ALL_LINKS),
    ("nvlink_transmit_discard_count", 212, ALL_LINKS),
    ("nvlink_recovered_count", 213, ALL_LINKS),
    ("nvlink_recovery_failed_count", 214, ALL_LINKS),
    ("nvlink_recovery_event_count", 215, ALL_LINKS),
    ("nvlink_effective_error_count", 219, ALL_LINKS),
    ("nvlink_symbol_error_count", 221, ALL_LINKS),
)
"""From NVLink 5 on, where the counters before it are gone."""

_SILENT_CODES = errors.LOST_CODES | {errors.INVALID_ARGUMENT}
"""A lost GPU shows in other calls too; a driver older than a field calls its number an invalid argument."""
_HOPELESS_CODES = errors.LASTING_CODES | {errors.INVALID_ARGUMENT}

_ITEM = struct.Struct("=IIqqII8s")
_VALUES = tuple(struct.Struct(code) for code in ("=d", "=I4x", "=Q", "=Q", "=q", "=i4x", "=H6x"))
"""By NVML's value type: double, unsigned int, unsigned long (of 64 bits), unsigned long long, and so on."""
_DOUBLE, _UNSIGNED_INT = 0, 1
_INFINITY = float("inf")


class FieldBatch:
    """A list of fields and the buffer for questions and answers; fields unknown to the GPU drop out."""

    def __init__(self, what: str, fields: tuple[Any, ...] | list[Any]) -> None:
        self._what = what
        self._set(list(fields))

    def _set(self, fields: list[Any]) -> None:
        self._fields = fields
        self._question = b"".join(_ITEM.pack(field, scope, 0, 0, 0, 0, bytes(8)) for _, field, scope in fields)
        self._buffer = ctypes.create_string_buffer(self._question, len(self._question) or 1)

    def read(self, query: Query) -> list[tuple[str, int]]:
        """The fields with a number, by name, in order."""
        if not self._fields:
            return []
        self._buffer.raw = self._question
        count = ctypes.c_int(len(self._fields))
        if not query.fill("nvmlDeviceGetFieldValues", self._what, count, self._buffer):
            return []
        found, known = [], []
        for field, item in zip(self._fields, _ITEM.iter_unpack(self._buffer.raw), strict=True):
            code, number = _read_item(item)
            if code == errors.SUCCESS and number is not None:
                found.append((field[0], number))
            elif code not in _SILENT_CODES:
                query.mark(field[0], code)
            if code not in _HOPELESS_CODES:
                known.append(field)
        if len(known) < len(self._fields):
            self._set(known)
        return found


class FieldReader:
    """The batches of one GPU, by the GPU's links."""

    def __init__(self, link_count: int) -> None:
        self._swift, self._levels = FieldBatch("field values", SWIFT_FIELDS), FieldBatch("field values", LEVEL_FIELDS)
        self._links = _LinkReader(link_count) if link_count else None

    def read_swift(self, query: Query) -> dict[str, Any]:
        """The fields of each sample."""
        values: dict[str, Any] = dict(self._swift.read(query))
        if values.get("memory_temperature_celsius", 0) > _PLAUSIBLE_CELSIUS:
            del values["memory_temperature_celsius"]
        if self._links is not None:
            values.update(self._links.swift.read(query))
        return values

    def read_levels(self, query: Query) -> dict[str, Any]:
        """The fields of the levels."""
        values = {name: bool(number) if name in FLAGS else number for name, number in self._levels.read(query)}
        if self._links is not None:
            values.update(self._links.read_levels(query))
        return values


class _LinkReader:
    def __init__(self, count: int) -> None:
        self._count = count
        links = range(count)
        self.swift = FieldBatch("NVLink field values", SWIFT_LINK_FIELDS)
        self._sums = FieldBatch("NVLink counters", (*LEVEL_LINK_FIELDS, *FIFTH_LINK_FIELDS))
        self._states = FieldBatch(
            "NVLink states",
            [
                *(("nvlinks_active", LINK_STATE, link) for link in links),
                *(("nvlink_speed_mbps", LINK_SPEED, link) for link in links),
                *(("nvlink_effective_ber", EFFECTIVE_BER, link) for link in links),
                *(("nvlink_symbol_ber", SYMBOL_BER, link) for link in links),
            ],
        )

    def read_levels(self, query: Query) -> dict[str, Any]:
        values: dict[str, Any] = dict(self._sums.read(query))
        by_name: dict[str, list[int]] = {}
        for name, number in self._states.read(query):
            by_name.setdefault(name, []).append(number)
        states = by_name.get("nvlinks_active", [])
        if len(states) == self._count:
            values["nvlinks_active"] = states.count(LINK_IS_UP)
        # A link that is down has no speed: one that is slower than the others is what is looked for.
        speeds = [speed for speed in by_name.get("nvlink_speed_mbps", []) if speed]
        if speeds:
            values["nvlink_speed_min_mbps"], values["nvlink_speed_max_mbps"] = min(speeds), max(speeds)
        for name in ("nvlink_effective_ber", "nvlink_symbol_ber"):
            if name in by_name:
                values[name] = max(map(read_error_rate, by_name[name]))
        return values


def read_error_rate(packed: int) -> float:
    """The bit error rate in NVML's form: mantissa in bits 8 to 11, negative power of ten in bits 0 to 7."""
    exponent, mantissa = packed & 0xFF, packed >> 8 & 0xF
    return 0.0 if (mantissa, exponent) == (15, 255) else float(f"{mantissa}e-{exponent}")


def _read_item(item: tuple[Any, ...]) -> tuple[int, int | None]:
    """The code of one answer, and the number if any."""
    field, _scope, timestamp, latency, kind, code, value = item
    if code:
        return code, None
    if timestamp == 0 and latency == 0 and kind == _DOUBLE:
        return errors.SUCCESS, None  # how some drivers say "not supported" while they return success
    if field == MEMORY_TEMPERATURE:
        kind = _UNSIGNED_INT  # some drivers name the wrong type for this one
    if kind >= len(_VALUES):
        return errors.UNINTELLIGIBLE, None
    (number,) = _VALUES[kind].unpack(value)
    if not -_INFINITY < number < _INFINITY:
        return errors.UNINTELLIGIBLE, None
    return errors.SUCCESS, int(number)


def read_link_count(query: Query) -> int:
    """How many NVLink ports the GPU has."""
    for _, number in FieldBatch("nvlink count", [("nvlinks", LINK_COUNT, 0)]).read(query):
        return min(number, int(pynvml.NVML_NVLINK_MAX_LINKS))
    return 0

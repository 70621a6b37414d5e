"""NVML's batched getter: some forty numbers for the price of two calls, each with a return code of its own.

Runs in the worker process. Owns the list of fields and their names in a sample.
Refuses to mix NVLink fields with others in one batch: some driver versions then fail the whole call.
"""

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.query import Query
from nodeagent.edge.nvml.untyped import Any

ALL_LINKS = 0xFFFFFFFF
LINK_STATE = 165
MEMORY_TEMPERATURE = "memory_temperature_celsius"
_PLAUSIBLE_CELSIUS = 200

GPU_FIELDS: dict[int, str] = {
    3: "ecc_corrected_volatile",
    4: "ecc_uncorrected_volatile",
    5: "ecc_corrected_aggregate",
    6: "ecc_uncorrected_aggregate",
    29: "retired_pages_single_bit",
    30: "retired_pages_double_bit",
    31: "retired_pages_pending",
    74: "power_violation_nanoseconds",
    75: "thermal_violation_nanoseconds",
    82: MEMORY_TEMPERATURE,
    83: "energy_millijoules",
    94: "pcie_replay_count",
    142: "remapped_rows_correctable",
    143: "remapped_rows_uncorrectable",
    144: "remapped_rows_pending",
    145: "remapped_rows_failed",
    197: "pcie_transmit_bytes",
    198: "pcie_receive_bytes",
    230: "recovery_action",
}
FLAGS = frozenset({31, 144, 145})

LINK_FIELDS: dict[int | tuple[int, int], str] = {
    (138, ALL_LINKS): "nvlink_transmit_kib",
    (139, ALL_LINKS): "nvlink_receive_kib",
    52: "nvlink_replay_count",
    59: "nvlink_recovery_count",
    38: "nvlink_crc_flit_count",
    45: "nvlink_crc_data_count",
}

_SILENT_CODES = errors.LOST_CODES | {errors.INVALID_ARGUMENT}
"""A lost GPU shows in other calls too; a driver older than a field calls its number an invalid argument."""

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def read_gpu_fields(query: Query) -> dict[str, Any]:
    """What the GPU says of itself in one batch."""
    values: dict[str, Any] = {}
    for value in _read_batch(query, "field values", list(GPU_FIELDS)):
        name = GPU_FIELDS[value.fieldId]
        number = _read_number(query, name, value)
        if number is not None:
            values[name] = bool(number) if value.fieldId in FLAGS else number
    if values.get(MEMORY_TEMPERATURE, 0) > _PLAUSIBLE_CELSIUS:
        del values[MEMORY_TEMPERATURE]
    return values


def read_link_fields(query: Query, link_count: int) -> dict[str, Any]:
    """The sums over all NVLinks, and how many are up, in one batch."""
    if not link_count:
        return {}
    wanted = [*LINK_FIELDS, *((LINK_STATE, link) for link in range(link_count))]
    batch = _read_batch(query, "NVLink field values", wanted)
    values: dict[str, Any] = {}
    for value, name in zip(batch, LINK_FIELDS.values(), strict=False):
        number = _read_number(query, name, value)
        if number is not None:
            values[name] = number
    states = [_read_number(query, "nvlinks_active", value) for value in batch[len(LINK_FIELDS) :]]
    if states and None not in states:
        values["nvlinks_active"] = states.count(1)
    return values


def read_link_count(query: Query) -> int:
    """How many NVLink ports the GPU has.

    Raises:
        GpuGone: the GPU is lost.
    """
    batch = query.ask("nvlink count", "nvmlDeviceGetFieldValues", [pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT], default=())
    counts = [value.value.uiVal for value in batch if value.nvmlReturn == 0]
    return min(counts[0], pynvml.NVML_NVLINK_MAX_LINKS) if counts else 0


def _read_batch(query: Query, what: str, wanted: list[int | tuple[int, int]]) -> Any:
    return query.ask(what, "nvmlDeviceGetFieldValues", wanted, default=())


def _read_number(query: Query, name: str, value: Any) -> int | None:
    if value.nvmlReturn != errors.SUCCESS:
        if value.nvmlReturn not in _SILENT_CODES:
            query.mark(name, value.nvmlReturn)
        return None
    if value.timestamp == 0 and value.latencyUsec == 0 and value.valueType == pynvml.NVML_VALUE_TYPE_DOUBLE:
        return None  # how some drivers say "not supported" while they return success
    if name == MEMORY_TEMPERATURE:
        return int(value.value.uiVal)  # some drivers name the wrong type for this one
    if value.valueType >= len(_MEMBERS):
        query.mark(name, errors.UNINTELLIGIBLE)
        return None
    return int(getattr(value.value, _MEMBERS[value.valueType]))

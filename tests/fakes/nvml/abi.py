"""Turns ctypes layouts into a C header, so that the fake library and pynvml disagree only where pynvml is wrong.

tests/contract/nvml/test_structures.py holds what comes of it against NVIDIA's own header.
"""

import ctypes
from typing import Any

import pynvml

from tests.fakes.nvml import layout

# The structures of NVML that the fake's functions take, by pynvml's name; the C name is the same without `c_`.
NVML_STRUCTURES = (
    "nvmlPciInfo_t",
    "c_nvmlMemory_t",
    "c_nvmlMemory_v2_t",
    "c_nvmlBAR1Memory_t",
    "c_nvmlUtilization_t",
    "c_nvmlViolationTime_t",
    "c_nvmlMarginTemperature_v1_t",
    "c_nvmlTemperature_v1_t",
    "c_nvmlDeviceAddressingMode_t",
    "c_nvmlValue_t",
    "c_nvmlFieldValue_t",
    "c_nvmlProcessInfo_v3_t",
    "c_nvmlProcessUtilizationSample_t",
    "c_nvmlProcessUtilizationInfo_v1_t",
    "c_nvmlProcessesUtilizationInfo_v1_t",
    "c_nvmlAccountingStats_t",
    "c_nvmlGpuFabricInfo_t",
    "c_nvmlGpuFabricInfo_v2_t",
    "c_nvmlGpuFabricInfo_v3_t",
    "c_nvmlEccSramErrorStatus_v1_t",
    "c_nvmlRowRemapperHistogramValues",
    "c_nvmlGridLicenseExpiry_t",
    "c_nvmlGridLicensableFeature_v4_t",
    "c_nvmlGridLicensableFeatures_v4_t",
    "c_nvmlConfComputeSystemState_t",
    "c_nvmlEventData_t",
    "c_nvmlDeviceAttributes",
    "c_nvmlGpuInstancePlacement_t",
    "c_nvmlGpuInstanceProfileInfo_t",
    "c_nvmlGpuInstanceProfileInfo_v2_t",
    "c_nvmlGpuInstanceInfo_t",
    "c_nvmlComputeInstanceProfileInfo_t",
    "c_nvmlComputeInstancePlacement_t",
    "c_nvmlComputeInstanceInfo_t",
    "c_metricInfo_t",
    "c_nvmlGpmMetric_t",
    "c_nvmlGpmMetricsGet_t",
    "c_nvmlGpmSupport_t",
)

VERSIONS = (
    "nvmlMemory_v2",
    "nvmlGpuFabricInfo_v2",
    "nvmlGpuFabricInfo_v3",
    "nvmlGpuInstanceProfileInfo_v2",
    "nvmlMarginTemperature_v1",
    "nvmlTemperature_v1",
    "nvmlDeviceAddressingMode_v1",
    "nvmlEccSramErrorStatus_v1",
    "ProcessesUtilizationInfo_v1",
    "NVML_GPM_METRICS_GET_VERSION",
    "NVML_GPM_SUPPORT_VERSION",
)

NARROWER = {
    ("nvmlGpuFabricInfo_t", "state"): "uint8_t state; uint8_t gap_[3]",
    ("nvmlGpuFabricInfo_v2_t", "state"): "uint8_t state; uint8_t gap_[3]",
    ("nvmlGpuFabricInfo_v3_t", "state"): "uint8_t state; uint8_t gap_[3]",
}
"""Members that NVIDIA's header declares otherwise than pynvml: the byte is the value, whatever lies behind it."""
UNKNOWN_TO_THE_BINDING = "struct nvmlUnrepairableMemoryStatus_v1_t {\n  uint32_t bUnrepairableMemory;\n};"
"""As NVIDIA's header has it; pynvml's has a version in front."""

_SCALARS: dict[Any, str] = {
    ctypes.c_char: "char",
    ctypes.c_char_p: "const char *",
    ctypes.c_double: "double",
    ctypes.c_int: "int32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_ubyte: "uint8_t",
    ctypes.c_uint: "uint32_t",
    ctypes.c_uint16: "uint16_t",
    ctypes.c_ulong: "unsigned long",
    ctypes.c_ulonglong: "uint64_t",
}


def render_header() -> str:
    """The whole generated header: limits, shared state, NVML's structures, versions, error codes and field tables."""
    parts = ["#pragma once", "#include <stddef.h>", "#include <stdint.h>"]
    limits = {name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)}
    parts += [f"#define {name} {value:#x}" for name, value in limits.items()]
    parts += [_render_structure(structure, f"struct fake_{structure.__name__}") for structure in layout.STRUCTURES]
    parts += [_render_structure(get_structure(name), name_in_c(name)) for name in NVML_STRUCTURES]
    parts.append(UNKNOWN_TO_THE_BINDING)
    parts += [f"#define {name}_VERSION_WORD {getattr(pynvml, name):#x}u" for name in VERSIONS]
    parts += [f"#define {name} {getattr(pynvml, name)}u" for name in dir(pynvml) if name.startswith("NVML_ERROR_")]
    parts.append("struct fake_field { uint32_t id; size_t offset; uint32_t type; };")
    parts += [_render_fields("fake_gpu_fields", "struct fake_Gpu", layout.FIELDS)]
    parts += [_render_fields("fake_link_fields", "struct fake_Link", layout.LINK_FIELDS)]
    return "\n".join(parts) + "\n"


def get_structure(name: str) -> Any:
    """A structure of pynvml's."""
    return getattr(pynvml, name)


def name_in_c(python_name: str) -> str:
    """The type in the generated header that stands for a structure of pynvml's."""
    keyword = "union" if issubclass(get_structure(python_name), ctypes.Union) else "struct"
    return f"{keyword} {python_name.removeprefix('c_')}"


def _render_structure(structure: Any, c_name: str) -> str:
    keyword, _, name = c_name.partition(" ")
    members = "".join(
        f"  {NARROWER.get((name, member)) or _render_member(kind, member)};\n" for member, kind in structure._fields_
    )
    size = ctypes.sizeof(structure)
    return f'{keyword} {name} {{\n{members}}};\n_Static_assert(sizeof({keyword} {name}) == {size}, "{name}");'


def _render_member(kind: Any, name: str) -> str:
    if issubclass(kind, ctypes.Array):
        return f"{_render_member(kind._type_, name)}[{kind._length_}]"
    if kind in _SCALARS:
        return f"{_SCALARS[kind]} {name}"
    if issubclass(kind, ctypes._Pointer):
        return f"void *{name}"
    if issubclass(kind, ctypes.Union):
        return f"union {kind.__name__.removeprefix('c_')} {name}"
    prefix = "fake_" if kind in layout.STRUCTURES else ""
    return f"struct {prefix}{kind.__name__.removeprefix('c_')} {name}"


def _render_fields(table: str, structure: str, fields: dict[int, tuple[str, int]]) -> str:
    rows = "".join(
        f"  {{{field}, offsetof({structure}, {member}), {kind}}},\n" for field, (member, kind) in fields.items()
    )
    return f"static const struct fake_field {table}[] = {{\n{rows}}};"

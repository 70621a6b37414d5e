"""Fields of DCGM that nodeagent lacks, each with the reason; pure.

Owns the reasons in `nodeagent metrics list`. A field in neither the catalogue nor here is no field of DCGM.
"""

import re
from typing import Final

_NOT_READ = "no field that nodeagent knows how to read; say so if you need it"
_NO_LABEL = "the inventory does not read it; labels of GPUs are name, brand, serial number, UUID, VBIOS and the like"

_REASONS: Final[tuple[tuple[str, str], ...]] = (
    (r"DCGM_FI_DEV_DIAG_.*", "results of DCGM's own diagnostics, which do not run here"),
    (r"DCGM_FI_DEV_NVSWITCH_.*", "NVML does not see NVSwitches; their driver's library is needed"),
    (r"DCGM_FI_DEV_(CPU|SYSIO|MODULE)_.*", "about the CPU, not the GPU; node_exporter has it"),
    (r"DCGM_FI_DEV_CONNECTX_.*", "about the network card; node_exporter has it"),
    (r"DCGM_FI_IMEX_.*", "NVML does not tell it; the IMEX service does"),
    (r"DCGM_FI_DEV_NVLINK_PPCNT_.*", "no documented NVML call gives it"),
    (r"DCGM_FI_DEV_NVLINK_GET_STATE", "a state for each link; `nodeagent gpu topology` shows the links"),
    (r"DCGM_(EXP_P2P_STATUS|FI_DEV_P2P_NVLINK_STATUS)", "a static map of pairs; `nodeagent gpu topology` has it"),
    (r"DCGM_FI_DEV_VGPU_.*", "about vGPUs seen from the hypervisor, where nodeagent does not run"),
    (r"DCGM_FI_DEV_CC_MODE", "a state of the system, not of a GPU"),
    (r"DCGM_FI_DEV_(REQUESTED|ENFORCED|VALID)_POWER_PROFILE_MASK", "a mask of 256 bits, which no number holds"),
    (r"DCGM_FI_DEV_((OEM|ECC|POWER)_INFOROM_VER|INFOROM_IMAGE_VER|PLATFORM_.*)", _NO_LABEL),
    (r"DCGM_FI_DEV_INFOROM_(OEM|ECC|POWER|IMAGE)_VERSION", _NO_LABEL),
    (r"DCGM_FI_(DEV|PROF|SYSTEM)_[A-Z0-9_]+", _NOT_READ),
    (r"DCGM_FI_[A-Z0-9_]+", _NOT_READ),
)

COMMON_MISSING: Final = (
    "DCGM_EXP_P2P_STATUS",
    "DCGM_FI_DEV_P2P_NVLINK_STATUS",
    "DCGM_FI_DEV_CC_MODE",
    "DCGM_FI_DEV_NVLINK_GET_STATE",
    "DCGM_FI_DEV_REQUESTED_POWER_PROFILE_MASK",
    "DCGM_FI_DEV_ENFORCED_POWER_PROFILE_MASK",
    "DCGM_FI_DEV_VALID_POWER_PROFILE_MASK",
    "DCGM_FI_DEV_OEM_INFOROM_VER",
    "DCGM_FI_DEV_ECC_INFOROM_VER",
    "DCGM_FI_DEV_POWER_INFOROM_VER",
    "DCGM_FI_DEV_INFOROM_IMAGE_VER",
    "DCGM_FI_DEV_PLATFORM_CHASSIS_SERIAL_NUMBER",
    "DCGM_FI_DEV_NVLINK_PPCNT_RECOVERY_TIME_SINCE_LAST",
    "DCGM_FI_DEV_DIAG_MEMORY_RESULT",
    "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT",
    "DCGM_FI_DEV_CPU_UTIL_TOTAL",
    "DCGM_FI_DEV_SYSIO_POWER_UTIL_CURRENT",
    "DCGM_FI_DEV_MODULE_POWER_UTIL_CURRENT",
    "DCGM_FI_DEV_CONNECTX_HEALTH",
    "DCGM_FI_IMEX_DOMAIN_STATUS",
    "DCGM_FI_DEV_VGPU_VM_ID",
)
"""One of each kind at least, by name, so that nobody has to search."""


def explain_missing(name: str) -> str | None:
    """The reason for a missing field; `None` for a name that DCGM lacks."""
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, name)), None)

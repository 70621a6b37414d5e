"""Fields of DCGM that nodeagent does not give, each with the reason; pure.

Owns the reasons that `nodeagent metrics list` shows. A field in neither the catalogue nor here is no field of DCGM.
"""

import re
from typing import Final

_NOT_READ = "NVML has it, nodeagent does not read it yet"

_REASONS: Final[tuple[tuple[str, str], ...]] = (
    (r"DCGM_FI_DEV_DIAG_.*", "results of DCGM's own diagnostics, which do not run here"),
    (r"DCGM_FI_DEV_NVSWITCH_.*", "NVML does not see NVSwitches; their driver's library is needed"),
    (r"DCGM_FI_DEV_(CPU|SYSIO|MODULE)_.*", "about the CPU, not the GPU; node_exporter has it"),
    (r"DCGM_FI_DEV_CONNECTX_.*", "about the network card; node_exporter has it"),
    (r"DCGM_FI_IMEX_.*", "NVML does not tell it; the IMEX service does"),
    (r"DCGM_FI_DEV_NVLINK_PPCNT_.*", "no documented NVML call gives it"),
    (r"DCGM_FI_DEV_NVLINK_(.*_)?L\d+", "a field for each link; nodeagent sums the links up"),
    (r"DCGM_FI_PROF_NVLINK_L\d+_.*", "a field for each link; nodeagent sums the links up"),
    (r"DCGM_EXP_P2P_STATUS", "nodeagent does not ask for peer-to-peer states; the inventory has the topology"),
    (r"DCGM_FI_DEV_VGPU_.*", "about vGPUs seen from the hypervisor, where nodeagent does not run"),
    (r"dcgm_(sync_boost|board_limit|low_util|reliability)_violation", _NOT_READ),
    (r"DCGM_FI_(DEV|PROF|SYSTEM)_[A-Z0-9_]+", _NOT_READ),
    (r"DCGM_FI_[A-Z0-9_]+", _NOT_READ),
)

COMMON_MISSING: Final = (
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
    "DCGM_FI_DEV_RELIABILITY_VIOLATION",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0",
    "DCGM_FI_DEV_SLOWDOWN_TEMP",
    "DCGM_FI_DEV_SHUTDOWN_TEMP",
    "DCGM_FI_DEV_MAX_SM_CLOCK",
    "DCGM_FI_DEV_POWER_USAGE_INSTANT",
    "DCGM_EXP_P2P_STATUS",
)
"""Those that lists in the field contain, commented out or not; listed by name so that nobody has to search."""


def explain_missing(name: str) -> str | None:
    """Why this field is not given, or `None` where the name is none of DCGM's."""
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, name)), None)

"""Other spellings of the same fields: names from DCGM 4.6 on, and names of the 1.x exporter; pure.

A list of fields may use any spelling; the series has the spelling of the list, as with DCGM exporter.
"""

from collections.abc import Mapping
from typing import Final

_SYSTEM: Final = {
    "DCGM_FI_SYSTEM_DRIVER_VERSION": "DCGM_FI_DRIVER_VERSION",
    "DCGM_FI_SYSTEM_NVML_VERSION": "DCGM_FI_NVML_VERSION",
}

_DEVICE: Final = {
    "GPU_NAME": "NAME",
    "GPU_BRAND": "BRAND",
    "BOARD_SERIAL": "SERIAL",
    "GPU_UUID": "UUID",
    "GPU_MINOR_NUMBER": "MINOR_NUMBER",
    "PCI_BUS_ID": "PCI_BUSID",
    "CLOCKS_EVENT_REASONS": "CLOCK_THROTTLE_REASONS",
    "MEMORY_TEMP_CELSIUS": "MEMORY_TEMP",
    "GPU_TEMP_CELSIUS": "GPU_TEMP",
    "GPU_TEMP_MARGIN_CELSIUS": "GPU_TEMP_LIMIT",
    "BOARD_POWER_WATTS": "POWER_USAGE",
    "BOARD_POWER_LIMIT_REQUESTED_WATTS": "POWER_MGMT_LIMIT",
    "BOARD_POWER_LIMIT_ENFORCED_WATTS": "ENFORCED_POWER_LIMIT",
    "GPU_PSTATE": "PSTATE",
    "GPU_PERSISTENCE_MODE": "PERSISTENCE_MODE",
    "PCIE_REPLAY_TOTAL": "PCIE_REPLAY_COUNTER",
    "GPU_UTIL_RATIO": "GPU_UTIL",
    "XID_ERROR": "XID_ERRORS",
    "FB_USED_RATIO": "FB_USED_PERCENT",
    "ECC_MODE": "ECC_CURRENT",
    "PAGE_RETIRED_SBE_TOTAL": "RETIRED_SBE",
    "PAGE_RETIRED_DBE_TOTAL": "RETIRED_DBE",
    "PAGE_RETIRED_PENDING": "RETIRED_PENDING",
    "ROW_REMAP_UNCORRECTABLE_TOTAL": "UNCORRECTABLE_REMAPPED_ROWS",
    "ROW_REMAP_CORRECTABLE_TOTAL": "CORRECTABLE_REMAPPED_ROWS",
    "ROW_REMAP_FAILED": "ROW_REMAP_FAILURE",
    "NVLINK_CRC_FLIT_ERROR_TOTAL": "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "NVLINK_CRC_DATA_ERROR_TOTAL": "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "NVLINK_REPLAY_ERROR_TOTAL": "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "NVLINK_RECOVERY_ERROR_TOTAL": "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "NVLINK_THROUGHPUT_TOTAL": "NVLINK_BANDWIDTH_TOTAL",
    "NVLINK_TX_THROUGHPUT_TOTAL": "NVLINK_TX_BANDWIDTH_TOTAL",
    "NVLINK_RX_THROUGHPUT_TOTAL": "NVLINK_RX_BANDWIDTH_TOTAL",
    "FABRIC_MANAGER_ERROR": "FABRIC_MANAGER_ERROR_CODE",
    "GPU_RECOVERY_ACTION": "GET_GPU_RECOVERY_ACTION",
}

_EXTRA: Final = {
    "MEMORY_MAX_OP_TEMP_CELSIUS": "MEM_MAX_OP_TEMP",
    "GPU_MAX_OP_TEMP_CELSIUS": "GPU_MAX_OP_TEMP",
    "GPU_TEMP_SLOWDOWN_CELSIUS": "SLOWDOWN_TEMP",
    "GPU_TEMP_SHUTDOWN_CELSIUS": "SHUTDOWN_TEMP",
    "BOARD_POWER_RAW_WATTS": "POWER_USAGE_INSTANT",
    "BOARD_POWER_LIMIT_MIN_WATTS": "POWER_MGMT_LIMIT_MIN",
    "BOARD_POWER_LIMIT_MAX_WATTS": "POWER_MGMT_LIMIT_MAX",
    "BOARD_POWER_LIMIT_DEFAULT_WATTS": "POWER_MGMT_LIMIT_DEF",
    "GPU_COMPUTE_MODE": "COMPUTE_MODE",
    "PCIE_CORRECTABLE_ERROR_TOTAL": "PCIE_COUNT_CORRECTABLE_ERRORS",
    "SRAM_EXCEEDED": "THRESHOLD_SRM",
    "C2C_LINK_QUANTITY": "C2C_LINK_COUNT",
    "NVLINK_TX_BYTES_TOTAL": "NVLINK_COUNT_TX_BYTES",
    "NVLINK_RX_BYTES_TOTAL": "NVLINK_COUNT_RX_BYTES",
    "NVLINK_RX_ERROR_TOTAL": "NVLINK_COUNT_RX_ERRORS",
    "NVLINK_RECOVERY_EVENT_TOTAL": "NVLINK_COUNT_LINK_RECOVERY_EVENTS",
    "NVLINK_SYMBOL_BER_RATIO": "NVLINK_COUNT_SYMBOL_BER_FLOAT",
    **{
        f"BANK_REMAP_AVAIL_{room}": f"BANKS_REMAP_ROWS_AVAIL_{room}"
        for room in ["MAX", "HIGH", "PARTIAL", "LOW", "NONE"]
    },
}

_LINKS: Final = {
    **{
        f"NVLINK_{kind}_ERROR_L{link}_TOTAL": f"NVLINK_{kind}_ERROR_COUNT_L{link}"
        for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
        for link in range(18)
    },
    **{
        f"NVLINK_{way}THROUGHPUT_L{link}": f"NVLINK_{way}BANDWIDTH_L{link}"
        for way in ("", "TX_", "RX_")
        for link in range(18)
    },
}

_PROFILING: Final = {
    "GR_ENGINE_UTIL_RATIO": "GR_ENGINE_ACTIVE",
    "SM_UTIL_RATIO": "SM_ACTIVE",
    "SM_OCCUPANCY_RATIO": "SM_OCCUPANCY",
    "TENSOR_UTIL_RATIO": "PIPE_TENSOR_ACTIVE",
    "DRAM_UTIL_RATIO": "DRAM_ACTIVE",
    "FP64_UTIL_RATIO": "PIPE_FP64_ACTIVE",
    "FP32_UTIL_RATIO": "PIPE_FP32_ACTIVE",
    "FP16_UTIL_RATIO": "PIPE_FP16_ACTIVE",
    "IMMA_UTIL_RATIO": "PIPE_TENSOR_IMMA_ACTIVE",
    "HMMA_UTIL_RATIO": "PIPE_TENSOR_HMMA_ACTIVE",
    "DFMA_UTIL_RATIO": "PIPE_TENSOR_DFMA_ACTIVE",
    "INT_UTIL_RATIO": "PIPE_INT_ACTIVE",
    **{f"NVDEC_UTIL_{number}_RATIO": f"NVDEC{number}_ACTIVE" for number in range(8)},
    **{f"NVJPG_UTIL_{number}_RATIO": f"NVJPG{number}_ACTIVE" for number in range(8)},
    **{f"NVOFA_UTIL_{number}_RATIO": f"NVOFA{number}_ACTIVE" for number in range(2)},
}

_LEGACY: Final = {
    "dcgm_sm_clock": "DEV_SM_CLOCK",
    "dcgm_memory_clock": "DEV_MEM_CLOCK",
    "dcgm_memory_temp": "DEV_MEMORY_TEMP",
    "dcgm_gpu_temp": "DEV_GPU_TEMP",
    "dcgm_power_usage": "DEV_POWER_USAGE",
    "dcgm_total_energy_consumption": "DEV_TOTAL_ENERGY_CONSUMPTION",
    "dcgm_pcie_tx_throughput": "DEV_PCIE_TX_THROUGHPUT",
    "dcgm_pcie_rx_throughput": "DEV_PCIE_RX_THROUGHPUT",
    "dcgm_pcie_replay_counter": "DEV_PCIE_REPLAY_COUNTER",
    "dcgm_gpu_utilization": "DEV_GPU_UTIL",
    "dcgm_mem_copy_utilization": "DEV_MEM_COPY_UTIL",
    "dcgm_enc_utilization": "DEV_ENC_UTIL",
    "dcgm_dec_utilization": "DEV_DEC_UTIL",
    "dcgm_xid_errors": "DEV_XID_ERRORS",
    "dcgm_power_violation": "DEV_POWER_VIOLATION",
    "dcgm_thermal_violation": "DEV_THERMAL_VIOLATION",
    "dcgm_sync_boost_violation": "DEV_SYNC_BOOST_VIOLATION",
    "dcgm_board_limit_violation": "DEV_BOARD_LIMIT_VIOLATION",
    "dcgm_low_util_violation": "DEV_LOW_UTIL_VIOLATION",
    "dcgm_reliability_violation": "DEV_RELIABILITY_VIOLATION",
    "dcgm_fb_free": "DEV_FB_FREE",
    "dcgm_fb_used": "DEV_FB_USED",
    "dcgm_ecc_sbe_volatile_total": "DEV_ECC_SBE_VOL_TOTAL",
    "dcgm_ecc_dbe_volatile_total": "DEV_ECC_DBE_VOL_TOTAL",
    "dcgm_ecc_sbe_aggregate_total": "DEV_ECC_SBE_AGG_TOTAL",
    "dcgm_ecc_dbe_aggregate_total": "DEV_ECC_DBE_AGG_TOTAL",
    "dcgm_retired_pages_sbe": "DEV_RETIRED_SBE",
    "dcgm_retired_pages_dbe": "DEV_RETIRED_DBE",
    "dcgm_retired_pages_pending": "DEV_RETIRED_PENDING",
    "dcgm_nvlink_flit_crc_error_count_total": "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_data_crc_error_count_total": "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_replay_error_count_total": "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_recovery_error_count_total": "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_bandwidth_total": "DEV_NVLINK_BANDWIDTH_TOTAL",
    "dcgm_fi_prof_gr_engine_active": "PROF_GR_ENGINE_ACTIVE",
    "dcgm_fi_prof_sm_active": "PROF_SM_ACTIVE",
    "dcgm_fi_prof_sm_occupancy": "PROF_SM_OCCUPANCY",
    "dcgm_fi_prof_pipe_tensor_active": "PROF_PIPE_TENSOR_ACTIVE",
    "dcgm_fi_prof_dram_active": "PROF_DRAM_ACTIVE",
    "dcgm_fi_prof_pcie_tx_bytes": "PROF_PCIE_TX_BYTES",
    "dcgm_fi_prof_pcie_rx_bytes": "PROF_PCIE_RX_BYTES",
}

ALIASES: Final[Mapping[str, str]] = {
    **_SYSTEM,
    **{f"DCGM_FI_DEV_{new}": f"DCGM_FI_DEV_{old}" for new, old in (_DEVICE | _EXTRA | _LINKS).items()},
    **{f"DCGM_FI_PROF_{new}": f"DCGM_FI_PROF_{old}" for new, old in _PROFILING.items()},
    **{legacy: f"DCGM_FI_{name}" for legacy, name in _LEGACY.items()},
}
"""Other spelling to the name of the catalogue."""

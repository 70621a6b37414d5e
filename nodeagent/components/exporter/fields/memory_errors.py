"""ECC errors, and rows or pages lost to errors."""

from nodeagent.components.exporter.catalogue.field import counter, gauge

FIELDS = (
    gauge("DCGM_FI_DEV_ECC_CURRENT", 300, "Whether ECC is on.", lambda e: e.gpu.ecc_enabled),
    counter(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        310,
        "Corrected memory errors since the driver was loaded.",
        lambda e: e.board.ecc_corrected_volatile,
    ),
    counter(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        311,
        "Uncorrected memory errors since the driver was loaded.",
        lambda e: e.board.ecc_uncorrected_volatile,
    ),
    counter(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        312,
        "Corrected memory errors in the life of the board.",
        lambda e: e.board.ecc_corrected_aggregate,
    ),
    counter(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        313,
        "Uncorrected memory errors in the life of the board.",
        lambda e: e.board.ecc_uncorrected_aggregate,
    ),
    gauge(
        "DCGM_FI_DEV_THRESHOLD_SRM",
        346,
        "Whether the caches had more uncorrectable errors than a board may have.",
        lambda e: e.board.sram_threshold_exceeded,
    ),
    counter(
        "DCGM_FI_DEV_RETIRED_SBE",
        390,
        "Pages retired for corrected errors.",
        lambda e: e.board.retired_pages_single_bit,
    ),
    counter(
        "DCGM_FI_DEV_RETIRED_DBE",
        391,
        "Pages retired for uncorrected errors.",
        lambda e: e.board.retired_pages_double_bit,
    ),
    counter(
        "DCGM_FI_DEV_RETIRED_PENDING",
        392,
        "Whether pages wait for a reset to be retired.",
        lambda e: e.board.retired_pages_pending,
    ),
    counter(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        393,
        "Rows remapped for uncorrectable errors.",
        lambda e: e.board.remapped_rows_uncorrectable,
        default=True,
    ),
    counter(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        394,
        "Rows remapped for correctable errors.",
        lambda e: e.board.remapped_rows_correctable,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        395,
        "Whether remapping a row has failed.",
        lambda e: e.board.remapped_rows_failed,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        396,
        "Whether rows wait for a reset to be remapped.",
        lambda e: e.board.remapped_rows_pending,
    ),
    gauge(
        "DCGM_FI_DEV_MEMORY_UNREPAIRABLE_FLAG",
        1507,
        "Whether the memory can no longer be repaired.",
        lambda e: e.board.memory_unrepairable,
    ),
)

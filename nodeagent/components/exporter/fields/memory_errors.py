"""ECC errors, and the rows or pages they cost."""

from nodeagent.components.exporter.field import Field

FIELDS = (
    Field("DCGM_FI_DEV_ECC_CURRENT", 300, "gauge", "Whether ECC is on.", lambda e: e.gpu.ecc_enabled),
    Field(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        310,
        "counter",
        "Corrected memory errors since the driver was loaded.",
        lambda e: e.board.ecc_corrected_volatile,
    ),
    Field(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        311,
        "counter",
        "Uncorrected memory errors since the driver was loaded.",
        lambda e: e.board.ecc_uncorrected_volatile,
    ),
    Field(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        312,
        "counter",
        "Corrected memory errors in the life of the board.",
        lambda e: e.board.ecc_corrected_aggregate,
    ),
    Field(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        313,
        "counter",
        "Uncorrected memory errors in the life of the board.",
        lambda e: e.board.ecc_uncorrected_aggregate,
    ),
    Field(
        "DCGM_FI_DEV_RETIRED_SBE",
        390,
        "counter",
        "Pages retired for corrected errors.",
        lambda e: e.board.retired_pages_single_bit,
    ),
    Field(
        "DCGM_FI_DEV_RETIRED_DBE",
        391,
        "counter",
        "Pages retired for uncorrected errors.",
        lambda e: e.board.retired_pages_double_bit,
    ),
    Field(
        "DCGM_FI_DEV_RETIRED_PENDING",
        392,
        "counter",
        "Whether pages wait for a reset to be retired.",
        lambda e: e.board.retired_pages_pending,
    ),
    Field(
        "DCGM_FI_DEV_THRESHOLD_SRM",
        346,
        "gauge",
        "Whether so many errors hit the caches that the board is to be replaced.",
        lambda e: e.board.sram_threshold_exceeded,
    ),
    Field(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        393,
        "counter",
        "Rows remapped for uncorrectable errors.",
        lambda e: e.board.remapped_rows_uncorrectable,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        394,
        "counter",
        "Rows remapped for correctable errors.",
        lambda e: e.board.remapped_rows_correctable,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        395,
        "gauge",
        "Whether remapping a row has failed.",
        lambda e: e.board.remapped_rows_failed,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        396,
        "gauge",
        "Whether rows wait for a reset to be remapped.",
        lambda e: e.board.remapped_rows_pending,
    ),
)

"""Shares of time with work on an engine; none in MIG mode."""

from nodeagent.components.exporter.catalogue.field import Field

FIELDS = (
    Field(
        "DCGM_FI_DEV_GPU_UTIL",
        203,
        "gauge",
        "Time in which a kernel ran, percent.",
        lambda e: e.board.gpu_utilization_percent,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        204,
        "gauge",
        "Time in which memory was read or written, percent; not how full it is.",
        lambda e: e.board.memory_utilization_percent,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_ENC_UTIL",
        206,
        "gauge",
        "Use of the video encoders, percent.",
        lambda e: e.board.encoder_utilization_percent,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_DEC_UTIL",
        207,
        "gauge",
        "Use of the video decoders, percent.",
        lambda e: e.board.decoder_utilization_percent,
        default=True,
    ),
)

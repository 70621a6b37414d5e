"""Use of the engines: shares of time, none in MIG mode, and ratios from hardware counters.

Ratios of hardware counters come with Hopper and later, and are never guessed from other readings.
"""

from nodeagent.components.exporter.catalogue.field import Entity, Field, gauge


def _ratio(name: str, number: int, text: str, attribute: str, *, default: bool = False) -> Field:
    def read(entity: Entity) -> float | None:
        profiling = entity.share.profiling
        if profiling is None:
            return None
        value: float | None = getattr(profiling, attribute)
        return value

    return gauge(name, number, text, read, decimals=True, default=default)


FIELDS = (
    gauge(
        "DCGM_FI_DEV_GPU_UTIL",
        203,
        "Time in which a kernel ran, percent.",
        lambda e: e.board.gpu_utilization_percent,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        204,
        "Time in which memory was read or written, percent; not how full it is.",
        lambda e: e.board.memory_utilization_percent,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_ENC_UTIL",
        206,
        "Use of the video encoders, percent.",
        lambda e: e.board.encoder_utilization_percent,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_DEC_UTIL",
        207,
        "Use of the video decoders, percent.",
        lambda e: e.board.decoder_utilization_percent,
        default=True,
    ),
    _ratio(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        1001,
        "Part of the time in which the graphics or compute engine was busy.",
        "graphics_engine_active",
        default=True,
    ),
    _ratio(
        "DCGM_FI_PROF_SM_ACTIVE",
        1002,
        "Part of the cycles in which an SM had a warp, over all SMs.",
        "sm_active",
    ),
    _ratio("DCGM_FI_PROF_SM_OCCUPANCY", 1003, "Resident warps as part of the most possible.", "sm_occupancy"),
    _ratio(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        1004,
        "Part of the cycles in which a tensor pipe was busy.",
        "tensor_active",
        default=True,
    ),
    _ratio(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        1005,
        "Part of the cycles in which the memory moved data.",
        "dram_active",
        default=True,
    ),
    _ratio("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 1006, "Part of the cycles in which an FP64 pipe was busy.", "fp64_active"),
    _ratio("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1007, "Part of the cycles in which an FP32 pipe was busy.", "fp32_active"),
    _ratio("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 1008, "Part of the cycles in which an FP16 pipe was busy.", "fp16_active"),
)

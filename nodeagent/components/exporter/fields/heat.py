"""Temperatures and fans."""

from nodeagent.components.exporter.catalogue.field import Field

FIELDS = (
    Field(
        "DCGM_FI_DEV_MEMORY_TEMP",
        140,
        "gauge",
        "Temperature of the memory, degrees Celsius.",
        lambda e: e.board.memory_temperature_celsius,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_GPU_TEMP",
        150,
        "gauge",
        "Temperature of the GPU core, degrees Celsius.",
        lambda e: e.board.gpu_temperature_celsius,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_GPU_TEMP_LIMIT",
        153,
        "gauge",
        "Degrees Celsius left until the GPU slows down.",
        lambda e: e.board.slowdown_margin_celsius,
    ),
    Field(
        "DCGM_FI_DEV_FAN_SPEED", 191, "gauge", "Fan speed, percent of the maximum.", lambda e: e.board.fan_speed_percent
    ),
)

"""Clocks and throttle reasons."""

from nodeagent.components.exporter.catalogue.field import Field

FIELDS = (
    Field(
        "DCGM_FI_DEV_SM_CLOCK", 100, "gauge", "Clock of the SMs now, MHz.", lambda e: e.board.sm_clock_mhz, default=True
    ),
    Field(
        "DCGM_FI_DEV_MEM_CLOCK",
        101,
        "gauge",
        "Clock of the memory now, MHz.",
        lambda e: e.board.memory_clock_mhz,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_VIDEO_CLOCK",
        102,
        "gauge",
        "Clock of the video engines now, MHz.",
        lambda e: e.board.video_clock_mhz,
    ),
    Field(
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        112,
        "gauge",
        "Why clocks are where they are, as NVML's bit mask; 1 is idle.",
        lambda e: e.board.clock_event_reasons,
    ),
    Field(
        "DCGM_FI_DEV_PSTATE", 190, "gauge", "Performance state; 0 is the fastest.", lambda e: e.board.performance_state
    ),
)

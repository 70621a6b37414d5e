"""Power, temperature, fans, clocks, and the time under limits."""

from nodeagent.components.exporter.catalogue.field import Field, to_watts, to_whole_watts

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
    Field(
        "DCGM_FI_DEV_POWER_USAGE",
        155,
        "gauge",
        "Power the board draws, W.",
        lambda e: to_watts(e.board.power_milliwatts),
        decimals=True,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        156,
        "counter",
        "Energy drawn since the driver was loaded, mJ.",
        lambda e: e.board.energy_millijoules,
        default=True,
    ),
    Field(
        "DCGM_FI_DEV_POWER_MGMT_LIMIT",
        160,
        "gauge",
        "Power limit that is set, W.",
        lambda e: to_whole_watts(e.gpu.power_limit_milliwatts),
        decimals=True,
    ),
    Field(
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        164,
        "gauge",
        "Power limit in force after all limiters, W.",
        lambda e: to_whole_watts(e.board.power_limit_milliwatts),
        decimals=True,
    ),
    Field(
        "DCGM_FI_DEV_POWER_VIOLATION",
        240,
        "counter",
        "Time slowed down by the power limit, ns.",
        lambda e: e.board.power_violation_nanoseconds,
    ),
    Field(
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        241,
        "counter",
        "Time slowed down by heat, ns.",
        lambda e: e.board.thermal_violation_nanoseconds,
    ),
    Field(
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
        1420,
        "counter",
        "Time slowed down by the power limit, ns.",
        lambda e: e.board.power_violation_nanoseconds,
    ),
)

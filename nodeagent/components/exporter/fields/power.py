"""Power, temperature, fans, clocks, and the time under limits."""

from nodeagent.components.exporter.catalogue.field import counter, gauge, to_watts, to_whole_watts

FIELDS = (
    gauge("DCGM_FI_DEV_SM_CLOCK", 100, "Clock of the SMs now, MHz.", lambda e: e.board.sm_clock_mhz, default=True),
    gauge(
        "DCGM_FI_DEV_MEM_CLOCK", 101, "Clock of the memory now, MHz.", lambda e: e.board.memory_clock_mhz, default=True
    ),
    gauge("DCGM_FI_DEV_VIDEO_CLOCK", 102, "Clock of the video engines now, MHz.", lambda e: e.board.video_clock_mhz),
    gauge(
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        112,
        "Why clocks are where they are, as NVML's bit mask; 1 is idle.",
        lambda e: e.board.clock_event_reasons,
    ),
    gauge("DCGM_FI_DEV_PSTATE", 190, "Performance state; 0 is the fastest.", lambda e: e.board.performance_state),
    gauge(
        "DCGM_FI_DEV_MEMORY_TEMP",
        140,
        "Temperature of the memory, degrees Celsius.",
        lambda e: e.board.memory_temperature_celsius,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_GPU_TEMP",
        150,
        "Temperature of the GPU core, degrees Celsius.",
        lambda e: e.board.gpu_temperature_celsius,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_GPU_TEMP_LIMIT",
        153,
        "Degrees Celsius left until the GPU slows down.",
        lambda e: e.board.slowdown_margin_celsius,
    ),
    gauge("DCGM_FI_DEV_FAN_SPEED", 191, "Fan speed, percent of the maximum.", lambda e: e.board.fan_speed_percent),
    gauge(
        "DCGM_FI_DEV_POWER_USAGE",
        155,
        "Power the board draws, W.",
        lambda e: to_watts(e.board.power_milliwatts),
        decimals=True,
        default=True,
    ),
    counter(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        156,
        "Energy drawn since the driver was loaded, mJ.",
        lambda e: e.board.energy_millijoules,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_POWER_MGMT_LIMIT",
        160,
        "Power limit that is set, W.",
        lambda e: to_whole_watts(e.gpu.power_limit_milliwatts),
        decimals=True,
    ),
    gauge(
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        164,
        "Power limit in force after all limiters, W.",
        lambda e: to_whole_watts(e.board.power_limit_milliwatts),
        decimals=True,
    ),
    counter(
        "DCGM_FI_DEV_POWER_VIOLATION",
        240,
        "Time slowed down by the power limit, ns.",
        lambda e: e.board.power_violation_nanoseconds,
    ),
    counter(
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        241,
        "Time slowed down by heat, ns.",
        lambda e: e.board.thermal_violation_nanoseconds,
    ),
    counter(
        "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
        1420,
        "Time slowed down by the power limit, ns.",
        lambda e: e.board.power_violation_nanoseconds,
    ),
)

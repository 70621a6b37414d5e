"""Power, energy, and the time under limits."""

from nodeagent.components.exporter.catalogue.field import Field, to_watts, to_whole_watts

FIELDS = (
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

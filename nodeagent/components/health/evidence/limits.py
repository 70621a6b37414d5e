"""The limits past which a level or a rate is a fault, from the settings in one value."""

from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.values import Value


class Limits(Value, frozen=True):
    """Every limit for judging a poll; the defaults of the settings."""

    remapped_rows: int = 512
    retired_pages: int = 63
    retired_double_bit_pages: int = 15
    retired_double_bit_seconds: float = 604800.0
    corrected_errors_per_minute: int = 1000
    corrected_errors_minutes: int = 10
    nvlink_checksum_errors_per_second: float = 100.0
    nvlink_bit_error_ratio: float = 0.0
    """0: not judged."""
    pcie_replay_ratio: float = 1.0
    pcie_degraded_polls: int = 3
    busy_percent: int = 10
    slowdown_window_minutes: int = 10
    slowdown_minutes: int = 6
    slowdown_unhealthy_minutes: int = 30
    fabric_patience_seconds: float = 300.0
    switch_errors_per_hour: int = 10


def plan_limits(settings: HealthSettings) -> Limits:
    """The limits of the settings."""
    return Limits(
        remapped_rows=settings.remapped_rows_limit,
        retired_pages=settings.retired_pages_limit,
        retired_double_bit_pages=settings.retired_double_bit_pages_limit,
        retired_double_bit_seconds=settings.retired_double_bit_window_seconds,
        corrected_errors_per_minute=settings.corrected_errors_per_minute,
        corrected_errors_minutes=settings.corrected_errors_minutes,
        nvlink_checksum_errors_per_second=settings.nvlink_checksum_errors_per_second,
        nvlink_bit_error_ratio=settings.nvlink_bit_error_ratio,
        pcie_replay_ratio=settings.pcie_replay_ratio,
        pcie_degraded_polls=settings.pcie_degraded_polls,
        busy_percent=settings.pcie_busy_percent,
        slowdown_window_minutes=settings.slowdown_window_minutes,
        slowdown_minutes=settings.slowdown_minutes,
        slowdown_unhealthy_minutes=settings.slowdown_unhealthy_minutes,
        fabric_patience_seconds=settings.fabric_patience_seconds,
        switch_errors_per_hour=settings.switch_errors_per_hour,
    )

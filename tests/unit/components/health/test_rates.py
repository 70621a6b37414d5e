"""Levels that mean something only over time."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.health.evidence.findings import Finding
from nodeagent.components.health.evidence.rates import HARDWARE_SLOWDOWN, judge_rates, measure_growth
from nodeagent.components.health.records import LevelMemory
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.health import Verdict
from tests.support.gpus import make_gpu
from tests.support.health import make_sample

SUSPECT, UNHEALTHY = Verdict.SUSPECT, Verdict.UNHEALTHY


class Rates:
    """PollSchedule in a row."""

    def __init__(self, limits: HealthSettings | None = None) -> None:
        self.memory, self.at, self.limits = LevelMemory(), 0.0, limits or HealthSettings()

    def look(self, after_seconds: float, **fields: Any) -> list[tuple[str, Verdict]]:
        self.at += after_seconds
        findings, self.memory = judge_rates(make_gpu(0), make_sample(**fields), self.memory, self.at, self.limits)
        return [(finding.key, finding.verdict) for finding in findings if isinstance(finding, Finding)]


@pytest.mark.parametrize(("before", "now", "growth"), [(None, 5, 0), (5, None, 0), (5, 7, 2), (5, 3, 3), (5, 5, 0)])
def test_counter_that_began_anew_grew_by_all_it_has(before: int | None, now: int | None, growth: int) -> None:
    """A reset counter is no negative growth, and one read for the first time no growth."""
    assert measure_growth(before, now) == growth


def test_link_recoveries_need_attention() -> None:
    """One replay or recovery between two looks is enough."""
    rates = Rates()
    assert rates.look(0, nvlink_replay_count=7, nvlink_recovery_count=1) == []
    assert rates.look(5, nvlink_replay_count=7, nvlink_recovery_count=1) == []
    assert rates.look(5, nvlink_replay_count=7, nvlink_recovery_count=2) == [("nvlink-retries", SUSPECT)]


@pytest.mark.parametrize(("growth", "verdict"), [(1, SUSPECT), (499, SUSPECT), (500, UNHEALTHY)])
def test_flood_of_checksum_errors_takes_the_gpu_out(growth: int, verdict: Verdict) -> None:
    """A hundred a second and more is no link to work with."""
    rates = Rates()
    rates.look(0, nvlink_crc_flit_count=0)
    assert rates.look(5, nvlink_crc_flit_count=growth) == [("nvlink-checksums", verdict)]


@pytest.mark.parametrize(("growth", "expected"), [(31, []), (32, [("pcie-replays", SUSPECT)])])
def test_replays_are_allowed_by_lane_and_generation(growth: int, expected: list[tuple[str, Verdict]]) -> None:
    """Sixteen lanes of generation 5 may replay 31 times a minute."""
    rates = Rates()
    rates.look(0, pcie_replay_count=0, pcie_generation=5, pcie_width=16)
    assert rates.look(30, pcie_replay_count=growth, pcie_generation=5, pcie_width=16) == []
    assert rates.look(30, pcie_replay_count=growth, pcie_generation=5, pcie_width=16) == expected


def test_unknown_link_is_judged_as_the_slowest() -> None:
    """Without generation and width the strictest allowance holds."""
    rates = Rates()
    rates.look(0, pcie_replay_count=0)
    assert rates.look(60, pcie_replay_count=4) == [("pcie-replays", SUSPECT)]


def test_storm_of_corrected_errors_must_last() -> None:
    """Ten minutes of more than a thousand each; one calmer minute begins anew."""
    rates, count = Rates(), 0
    rates.look(0, ecc_corrected_volatile=0)
    for _ in range(9):
        count += 1001
        assert rates.look(60, ecc_corrected_volatile=count) == []
    count += 1001
    assert rates.look(60, ecc_corrected_volatile=count) == [("ecc-storm", SUSPECT)]
    assert rates.look(30, ecc_corrected_volatile=count) == [("ecc-storm", SUSPECT)]
    assert rates.look(30, ecc_corrected_volatile=count) == []


def test_short_throttling_is_normal_long_throttling_is_not() -> None:
    """Six of the newest ten minutes need attention, half an hour of that takes the GPU out."""
    rates = Rates()
    for _ in range(5):
        assert rates.look(60, clock_event_reasons=0x40) == []
    assert rates.look(60, clock_event_reasons=0x40) == [("throttled", SUSPECT)]
    for _ in range(29):
        assert rates.look(60, clock_event_reasons=0x8) == [("throttled", SUSPECT)]
    assert rates.look(60, clock_event_reasons=0x80) == [("throttled", UNHEALTHY)]
    for _ in range(4):
        rates.look(60, clock_event_reasons=0)
    assert rates.look(60, clock_event_reasons=0x4) == []


def test_one_slow_look_makes_a_slow_minute() -> None:
    rates = Rates()
    rates.look(0, clock_event_reasons=0)
    rates.look(10, clock_event_reasons=HARDWARE_SLOWDOWN)
    rates.look(10, clock_event_reasons=0)
    assert rates.memory.throttled_minutes == (True,)


def test_counters_that_are_not_there_are_no_growth() -> None:
    """Hardware without the counter is judged by what it has."""
    rates = Rates()
    rates.memory = replace(rates.memory, nvlink_crc=5, nvlink_recoveries=5)
    assert rates.look(5) == []


def test_limits_are_settings() -> None:
    """A node that allows less is judged by less."""
    rates = Rates(HealthSettings(nvlink_checksum_errors_per_second=1.0, pcie_replay_ratio=0.01))
    rates.look(0, nvlink_crc_flit_count=0, pcie_replay_count=0, pcie_generation=5, pcie_width=16)
    found = rates.look(60, nvlink_crc_flit_count=60, pcie_replay_count=2, pcie_generation=5, pcie_width=16)
    assert found == [("nvlink-checksums", UNHEALTHY), ("pcie-replays", SUSPECT)]


def test_links_that_cannot_be_recovered_need_attention() -> None:
    """NVLink 5 counts recoveries that failed; one between two looks is enough, and the next clean look ends it."""
    rates = Rates()
    assert rates.look(0, nvlink_recovery_failed_count=4) == []
    assert rates.look(5, nvlink_recovery_failed_count=5) == [("nvlink-unrecovered", SUSPECT)]
    assert rates.look(5, nvlink_recovery_failed_count=5) == []


@pytest.mark.parametrize("counter", ["pcie_fatal_error_count", "aer_fatal_count", "aer_non_fatal_count"])
def test_errors_that_pcie_could_not_mend_need_attention(counter: str) -> None:
    """Whether the GPU or the kernel counted them; corrected ones are nothing."""
    rates = Rates()
    assert rates.look(0, **{counter: 2}, aer_correctable_count=0) == []
    assert rates.look(5, **{counter: 2}, aer_correctable_count=900) == []
    assert rates.look(5, **{counter: 3}, aer_correctable_count=900) == [("pcie-errors", SUSPECT)]


DAY = 86400.0


@pytest.mark.parametrize(
    ("counts", "after_days", "expected"),
    [
        ((15, 16), 1, []),  # not yet more than fifteen before it
        ((16, 17), 6, [("pages-failing", UNHEALTHY)]),
        ((16, 17), 8, []),  # slower than one a week
        ((16, 16), 1, []),
        ((16, 3), 1, []),  # another board
    ],
)
def test_a_board_that_goes_on_losing_pages_is_worn_out(
    counts: tuple[int, int], after_days: int, expected: list[tuple[str, Verdict]]
) -> None:
    """Above fifteen pages retired for double-bit errors, one more within a week is one too many."""
    rates = Rates()
    assert rates.look(0, retired_pages_double_bit=counts[0]) == []
    assert rates.look(after_days * DAY, retired_pages_double_bit=counts[1]) == expected


def test_the_week_of_lost_pages_begins_with_the_last_one() -> None:
    """A slow one begins a new window; a count that cannot be read changes nothing."""
    rates = Rates()
    rates.look(0, retired_pages_double_bit=20)
    assert rates.look(30 * DAY, retired_pages_double_bit=21) == []
    assert rates.look(DAY) == []
    assert rates.look(DAY, retired_pages_double_bit=22) == [("pages-failing", UNHEALTHY)]

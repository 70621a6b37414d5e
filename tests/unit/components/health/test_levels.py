"""What one look at a GPU says."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.health.evidence.findings import PollResult
from nodeagent.components.health.evidence.levels import judge_levels, judge_recovery_action
from nodeagent.components.health.records import LevelMemory
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.gpu import Fabric, FabricPhase, Gpu, NvLink
from nodeagent.model.health import ReturnRule, Verdict
from tests.support.gpus import make_gpu
from tests.support.health import SETTINGS, make_sample

SUSPECT, UNHEALTHY = Verdict.SUSPECT, Verdict.UNHEALTHY


def look(memory: LevelMemory | None = None, gpu: Gpu | None = None, at: float = 100.0, **fields: Any) -> PollResult:
    of_node = {name: fields.pop(name) for name in ("has_switches", "unlinked") if name in fields}
    return judge_levels(gpu or make_gpu(0), make_sample(**fields), memory or LevelMemory(), at, SETTINGS, **of_node)


def told(one: PollResult) -> list[tuple[str, Verdict, str]]:
    return [(finding.key, finding.verdict, finding.rule.value) for finding in one.findings]


def test_good_levels_say_nothing() -> None:
    """A GPU that answers and wants nothing is clean."""
    one = look(ecc_uncorrected_volatile=0, remapped_rows_pending=False, nvlinks_active=18, slowdown_margin_celsius=30)
    assert (told(one), one.answered, one.is_clean, one.reset_seen) == ([], True, True, False)


@pytest.mark.parametrize(
    ("action", "verdict"), [(1, UNHEALTHY), (2, UNHEALTHY), (3, SUSPECT), (4, UNHEALTHY), (5, SUSPECT), (9, UNHEALTHY)]
)
def test_recovery_action_is_the_drivers_own_verdict(action: int, verdict: Verdict) -> None:
    """Whatever the driver wants done is a finding, an unknown wish most of all."""
    one = look(recovery_action=action)
    assert told(one) == [("recovery-action", verdict, "L")]
    assert not one.is_clean


def test_no_recovery_action_is_no_finding() -> None:
    """Zero is the word for all is well."""
    assert judge_recovery_action(0) is None


def test_unknown_recovery_action_is_shown_raw() -> None:
    """A newer driver's number is what the person can look up."""
    finding = judge_recovery_action(9)
    assert finding is not None
    assert "recovery action 9" in finding.reason


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ecc_uncorrected_volatile": 1, "recovery_action": None}, ("ecc-uncorrected", UNHEALTHY, "R")),
        ({"remapped_rows_pending": True}, ("remap-pending", SUSPECT, "R")),
        ({"retired_pages_pending": True}, ("retirement-pending", SUSPECT, "R")),
        ({"remapped_rows_failed": True}, ("remap-failed", UNHEALTHY, "S")),
        ({"remapped_rows_uncorrectable": 512}, ("remap-full", SUSPECT, "S")),
        ({"retired_pages_single_bit": 60, "retired_pages_double_bit": 3}, ("pages-retired", UNHEALTHY, "S")),
        ({"slowdown_margin_celsius": 0}, ("hot", SUSPECT, "L")),
        ({"fabric_health_mask": 0b01}, ("fabric-health", SUSPECT, "L")),
        ({"fabric_health_mask": 0b01 << 4}, ("fabric-health", UNHEALTHY, "L")),
        ({"fabric_health_mask": 5 << 8}, ("fabric-health", UNHEALTHY, "L")),
        ({"fabric_health_mask": 15 << 8}, ("fabric-health", UNHEALTHY, "L")),
    ],
)
def test_bad_level_is_one_finding(fields: dict[str, Any], expected: tuple[str, Verdict, str]) -> None:
    """Each level has its own key, weight and way back."""
    assert told(look(**fields)) == [expected]


@pytest.mark.parametrize(
    "fields",
    [
        {"remapped_rows_uncorrectable": 511},
        {"retired_pages_single_bit": 62},
        {"slowdown_margin_celsius": 1},
        {"fabric_health_mask": 0b10_10_10_10 | 1 << 8},
    ],
)
def test_level_below_its_threshold_is_no_finding(fields: dict[str, Any]) -> None:
    """The last good value is good."""
    assert told(look(**fields)) == []


def test_uncorrected_errors_before_the_first_look_count_unless_the_driver_knows_better() -> None:
    """A driver that tells a recovery action and wants none has dealt with them; an old one cannot say so."""
    assert told(look(ecc_uncorrected_volatile=3)) == []
    assert [key for key, _, _ in told(look(ecc_uncorrected_volatile=3, recovery_action=None))] == ["ecc-uncorrected"]


def test_uncorrected_errors_above_the_baseline_are_counted() -> None:
    first = look(ecc_uncorrected_volatile=3)
    second = look(first.memory, ecc_uncorrected_volatile=5)
    assert [finding.reason for finding in second.findings] == ["2 uncorrectable memory errors since the last reset"]


def test_fewer_uncorrected_errors_prove_a_reset() -> None:
    """Volatile counters go back by nothing else, and the baseline goes with them."""
    first = look(ecc_uncorrected_volatile=3)
    second = look(first.memory, ecc_uncorrected_volatile=0)
    assert (second.reset_seen, second.memory.uncorrected_baseline) == (True, 0)
    assert told(look(second.memory, ecc_uncorrected_volatile=1)) == [("ecc-uncorrected", UNHEALTHY, "R")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"remapped_rows_pending": True}, {"remapped_rows_pending": False}),
        ({"retired_pages_pending": True}, {"retired_pages_pending": False}),
        ({"recovery_action": 1}, {"recovery_action": 0}),
    ],
)
def test_what_only_a_reset_takes_back_proves_one(before: dict[str, Any], after: dict[str, Any]) -> None:
    """A remap that came into force, an action that is no longer wanted."""
    assert look(look(**before).memory, **after).reset_seen


def test_silence_about_a_level_proves_nothing() -> None:
    """What is not read any more has not changed."""
    before = look(remapped_rows_pending=True, ecc_uncorrected_volatile=3, recovery_action=1)
    after = look(before.memory, recovery_action=None)
    assert not after.reset_seen
    assert after.memory.uncorrected == 3
    assert look(after.memory, remapped_rows_pending=False).reset_seen


@pytest.mark.parametrize(("active", "verdict"), [(17, SUSPECT), (0, UNHEALTHY)])
def test_missing_links_are_measured_against_the_most_ever_seen(active: int, verdict: Verdict) -> None:
    """Some missing need attention, all missing take the GPU out."""
    first = look(nvlinks_active=18)
    second = look(first.memory, nvlinks_active=active)
    assert told(second) == [("nvlinks-down", verdict, "L")]
    assert not second.is_clean


def test_partitioned_gpu_misses_no_links() -> None:
    """MIG switches links off on purpose."""
    first = look(nvlinks_active=12)
    assert told(look(first.memory, make_gpu(0, mig=["1g.10gb"]), nvlinks_active=0)) == []
    assert look(gpu=make_gpu(0, mig=[]), nvlinks_active=12).memory.links_expected == 0


def test_a_neighbour_that_is_partitioned_takes_its_links_with_it() -> None:
    """They are off at both ends, and where they lead is no longer told; links to others still count."""
    neighbour, other = make_gpu(1).pci.address, make_gpu(2).pci.address
    links = tuple(
        NvLink(link=number, active=True, remote=neighbour if number < 4 else other, remote_is_switch=number > 5)
        for number in range(8)
    )
    first = look(gpu=replace(make_gpu(0), nvlinks=links), nvlinks_active=8)
    assert first.memory.links_to == {neighbour: 4, other: 2}
    down = replace(make_gpu(0), nvlinks=tuple(replace(one, active=False, remote=None) for one in links[:4]))
    assert told(look(first.memory, down, nvlinks_active=4)) == [("nvlinks-down", SUSPECT, "L")]
    assert told(look(first.memory, down, nvlinks_active=4, unlinked={neighbour})) == []
    assert told(look(first.memory, down, nvlinks_active=3, unlinked={neighbour})) == [("nvlinks-down", SUSPECT, "L")]
    assert look(first.memory, down, nvlinks_active=4).memory.links_to == {neighbour: 4, other: 2}


def test_narrow_link_counts_after_three_looks() -> None:
    """A link that retrains is narrow for a moment."""
    gpu = make_gpu(0)
    gpu = replace(gpu, pci=replace(gpu.pci, link_width_max=16))
    first = look(gpu=gpu, pcie_width=8)
    second = look(first.memory, gpu, pcie_width=8)
    third = look(second.memory, gpu, pcie_width=8)
    assert [told(one) for one in (first, second)] == [[], []]
    assert told(third) == [("pcie-narrow", SUSPECT, "L")]
    assert told(look(third.memory, gpu, pcie_width=16)) == []


@pytest.mark.parametrize(
    ("fabric", "at_once", "later"),
    [
        (Fabric(phase=FabricPhase.COMPLETED), [], []),
        (Fabric(phase=FabricPhase.NOT_SUPPORTED), [], []),
        (Fabric(phase=FabricPhase.IN_PROGRESS), [], ["fabric"]),
        (Fabric(phase=FabricPhase.NOT_STARTED), [], ["fabric"]),
        (Fabric(phase=FabricPhase.COMPLETED, status_code=5), ["fabric"], ["fabric"]),
    ],
)
def test_fabric_is_given_five_minutes(fabric: Fabric, at_once: list[str], later: list[str]) -> None:
    """A registration under way may take a while; one that ended badly has ended."""
    gpu = replace(make_gpu(0), fabric=fabric)
    first = look(gpu=gpu, at=100, has_switches=True)
    assert [finding.key for finding in first.findings] == at_once
    second = look(first.memory, gpu, at=401, has_switches=True)
    assert [finding.key for finding in second.findings] == later
    assert all(finding.verdict is UNHEALTHY for finding in second.findings)


def test_gpu_without_links_needs_no_fabric() -> None:
    """Passed through alone, it waits for a fabric that nobody offers, and works."""
    gpu = replace(make_gpu(0), fabric=Fabric(phase=FabricPhase.COMPLETED, status_code=5))
    assert told(look(gpu=gpu)) == []
    assert told(look(LevelMemory(links_expected=18), gpu, nvlinks_active=18)) == [("fabric", UNHEALTHY, "L")]


def test_gpu_that_the_driver_no_longer_lists_is_lost() -> None:
    """The inventory knows that its card is still in its slot."""
    one = judge_levels(make_gpu(0, lost="the driver no longer lists it"), None, LevelMemory(), 0, SETTINGS)
    assert [(finding.key, finding.verdict) for finding in one.findings] == [("lost", UNHEALTHY)]


def test_lost_gpu_is_only_lost() -> None:
    """Nothing else can be said of it, and it comes back by a power cycle."""
    one = judge_levels(
        make_gpu(0), make_sample(lost="fell off the bus"), LevelMemory(links_expected=18), 0, HealthSettings()
    )
    assert [(finding.key, finding.rule) for finding in one.findings] == [("lost", ReturnRule.POWER_CYCLE)]
    assert (one.answered, one.memory.links_expected) == (True, 18)


@pytest.mark.parametrize(
    "sample",
    [
        None,
        make_sample(lost="a call did not come back", silent=True),
        make_sample(gpu_temperature_celsius=None, recovery_action=None),
    ],
)
def test_gpu_that_tells_nothing_has_not_answered(sample: Any) -> None:
    """A hung call, a missing sample and identity from a cache are no sign of life."""
    one = judge_levels(make_gpu(0), sample, LevelMemory(), 0, SETTINGS)
    assert (one.answered, one.findings) == (False, ())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"sram_threshold_exceeded": True}, [("sram-threshold", UNHEALTHY, "S")]),
        ({"memory_unrepairable": True}, [("memory-unrepairable", UNHEALTHY, "S")]),
        ({"sram_threshold_exceeded": False, "memory_unrepairable": False}, []),
        ({"fabric_health_summary": 2}, [("fabric-health", UNHEALTHY, "L")]),
        ({"fabric_health_summary": 3}, [("fabric-health", SUSPECT, "L")]),
        ({"fabric_health_summary": 3, "fabric_health_mask": 1}, [("fabric-health", SUSPECT, "L")]),
        ({"fabric_health_summary": 1}, []),
        ({"fabric_health_summary": 0}, []),
    ],
)
def test_flags_of_newer_drivers_are_believed(fields: dict[str, Any], expected: list[tuple[str, Verdict, str]]) -> None:
    """What the driver has added up by itself needs no counting."""
    assert told(look(**fields)) == expected


@pytest.mark.parametrize(("valid", "expected"), [(None, []), (True, []), (False, [("inforom", SUSPECT, "B")])])
def test_a_corrupted_inforom_needs_attention(valid: bool | None, expected: list[tuple[str, Verdict, str]]) -> None:
    """The GPU works, but what the board remembers of itself may be wrong."""
    assert told(look(gpu=replace(make_gpu(0), inforom_valid=valid))) == expected

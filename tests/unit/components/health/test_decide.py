"""What evidence does to what is remembered: faults open by events and levels, and close by levels alone."""

import pytest

from nodeagent.components.health.decide import (
    clear_record,
    forget_devices,
    note_driver_down,
    note_finding,
    note_own_reset,
    note_power_cycle,
    note_reset,
)
from nodeagent.components.health.evidence.findings import suspect, unhealthy
from nodeagent.components.health.evidence.xid_text import read_text
from nodeagent.components.health.evidence.xids import DAY, HOUR, find_xid
from nodeagent.components.health.policy import apply_policy
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.remedies import Remedy
from nodeagent.model.telemetry import ProcessSample
from tests.support.gpus import make_gpu, mig_uuid
from tests.support.health import Gpu0, make_sample, moment

HEALTHY, SUSPECT, UNHEALTHY = Verdict.HEALTHY, Verdict.SUSPECT, Verdict.UNHEALTHY


def test_application_fault_changes_nothing_but_is_remembered() -> None:
    """A program's own fault takes no GPU from the next one."""
    gpu = Gpu0()
    gpu.xid(31)
    assert (gpu.verdict, len(gpu.record.occurrences)) == (HEALTHY, 1)


def test_hardware_fault_acts_at_once() -> None:
    """The device is out before any look."""
    gpu = Gpu0()
    gpu.xid(48)
    assert (gpu.verdict, gpu.keys) == (UNHEALTHY, ["xid-48"])


@pytest.mark.parametrize(("number", "looks"), [(4711, 2), (48, 2), (79, 2)])
def test_driver_that_wants_nothing_is_proof_after_two_looks(number: int, looks: int) -> None:
    """Field 230 may lag behind the XID, so one look is not enough."""
    gpu = Gpu0()
    gpu.xid(number)
    gpu.look(looks - 1)
    assert gpu.verdict is not HEALTHY
    gpu.look()
    assert gpu.verdict is HEALTHY


def test_out_of_turn_looks_prove_nothing_good() -> None:
    """A look that was asked for because something happened only shows what is bad."""
    gpu = Gpu0()
    gpu.xid(48)
    gpu.look(5, is_extra=True)
    assert gpu.verdict is UNHEALTHY


def test_without_recovery_action_a_reset_must_be_proven() -> None:
    """An old driver's clean levels do not say that the damage is gone."""
    gpu = Gpu0()
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=0)
    gpu.xid(119)
    gpu.look(10, recovery_action=None, ecc_uncorrected_volatile=0)
    assert gpu.verdict is UNHEALTHY
    gpu.record = note_reset(gpu.record)
    gpu.look(2, recovery_action=None, ecc_uncorrected_volatile=0)
    assert gpu.verdict is HEALTHY


def test_a_reset_by_the_agent_wants_clean_polls_from_then_on() -> None:
    """Polls before the reset prove nothing about the GPU after it."""
    gpu = Gpu0()
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=0)
    gpu.xid(119)
    gpu.look(10, recovery_action=None, ecc_uncorrected_volatile=0)
    gpu.record = note_own_reset(gpu.record)
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=0)
    assert gpu.verdict is UNHEALTHY
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=0)
    assert gpu.verdict is HEALTHY


def test_counters_back_at_zero_prove_a_reset() -> None:
    """The fault, its errors and the return: all from what is polled."""
    gpu = Gpu0()
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=0)
    gpu.xid(48)
    gpu.look(3, recovery_action=None, ecc_uncorrected_volatile=1)
    assert gpu.keys == ["ecc-uncorrected", "xid-48"]
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=0)
    assert gpu.verdict is UNHEALTHY
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=0)
    assert gpu.verdict is HEALTHY


def test_power_cycle_needs_more_than_a_reset() -> None:
    """What fell off the bus comes back by another boot, or by leaving the bus."""
    gpu = Gpu0()
    gpu.xid(79)
    gpu.record = note_reset(gpu.record)
    gpu.look(5, recovery_action=None)
    assert gpu.verdict is UNHEALTHY
    gpu.record = note_power_cycle(gpu.record)
    gpu.look(2, recovery_action=None)
    assert gpu.verdict is HEALTHY


def test_new_occurrence_wants_new_proof() -> None:
    """A reset before the second fault does not heal it."""
    gpu = Gpu0()
    gpu.xid(119)
    gpu.record = note_reset(gpu.record)
    gpu.xid(119)
    gpu.look(5, recovery_action=None)
    assert (gpu.verdict, gpu.record.faults[0].count) == (UNHEALTHY, 2)


def test_program_fault_that_policy_takes_seriously_ends_with_the_program() -> None:
    """As long as the process holds the GPU the device stays out."""
    gpu = Gpu0()
    entry = apply_policy(find_xid(13), HealthSettings(enable_xids=("13",)))
    gpu.xid(13, entry=entry, pids=(7, 8))
    gpu.look(5, processes=(ProcessSample(pid=8), ProcessSample(pid=9)))
    assert gpu.verdict is UNHEALTHY
    gpu.look(processes=(ProcessSample(pid=9),))
    assert gpu.verdict is HEALTHY


def test_quiet_period_must_pass_without_a_repeat() -> None:
    """A day from the last occurrence, not from the first."""
    gpu = Gpu0()
    gpu.xid(92)
    gpu.at += DAY - HOUR
    gpu.xid(92)
    gpu.at += DAY - HOUR
    gpu.look(3)
    assert gpu.verdict is SUSPECT
    gpu.at += HOUR
    gpu.look(2)
    assert gpu.verdict is HEALTHY


def test_service_is_never_overruled() -> None:
    """Neither a clean driver, nor a reset, nor a boot brings back what only a person can clear."""
    gpu = Gpu0()
    gpu.look(remapped_rows_failed=True)
    gpu.record = note_power_cycle(note_reset(gpu.record))
    gpu.look(10)
    assert (gpu.verdict, gpu.keys) == (UNHEALTHY, ["remap-failed"])


def test_level_opens_and_closes_its_own_fault() -> None:
    """Heat is over when it is over, in two looks."""
    gpu = Gpu0()
    gpu.look(slowdown_margin_celsius=-1)
    assert gpu.verdict is SUSPECT
    gpu.look(slowdown_margin_celsius=20)
    assert gpu.verdict is SUSPECT
    gpu.look(slowdown_margin_celsius=20)
    assert gpu.verdict is HEALTHY


def test_level_takes_its_present_weight() -> None:
    """All links down is worse than some; some again is better than all."""
    gpu = Gpu0()
    gpu.look(nvlinks_active=18)
    verdicts = []
    for active in (17, 0, 16):
        gpu.look(nvlinks_active=active)
        verdicts.append(gpu.verdict)
    assert verdicts == [SUSPECT, UNHEALTHY, SUSPECT]
    assert gpu.record.faults[0].since_wall == moment(10).wall


def test_bad_levels_keep_an_event_fault_open() -> None:
    """While the driver wants a reset nothing returns, however quiet it is."""
    gpu = Gpu0()
    gpu.xid(4711)
    gpu.look(5, recovery_action=1)
    assert gpu.keys == ["recovery-action", "xid-4711"]


def test_silent_look_breaks_the_row() -> None:
    """Clean looks must follow one another."""
    gpu = Gpu0()
    gpu.xid(4711)
    gpu.look()
    gpu.see(None)
    gpu.look()
    assert (gpu.verdict, gpu.record.missed_looks) == (SUSPECT, 0)
    gpu.look()
    assert gpu.verdict is HEALTHY


def test_extra_silence_is_no_missed_look() -> None:
    gpu = Gpu0()
    gpu.see(None, is_extra=True)
    assert gpu.record.missed_looks == 0


def test_event_never_makes_a_fault_milder() -> None:
    """The worse verdict, the stricter rule and their sentence stay."""
    gpu = Gpu0()
    gpu.record = note_finding(gpu.record, unhealthy("poison", "bad", Remedy.RESET_GPU, ReturnRule.RESET), moment(1))
    gpu.record = note_finding(gpu.record, suspect("poison", "less", Remedy.WATCH, ReturnRule.LEVELS_CLEAN), moment(2))
    fault = gpu.record.faults[0]
    assert (fault.verdict, fault.rule, fault.reason, fault.count) == (UNHEALTHY, ReturnRule.RESET, "bad", 2)
    assert (fault.since_wall, fault.last_at) == (moment(1).wall, 2)


def test_text_decides_where_it_can_be_read() -> None:
    """Harmless registers leave the device healthy; what needs a reset takes it out and says why."""
    gpu = Gpu0()
    gpu.xid(74, reading=read_text(74, "0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"))
    assert gpu.verdict is HEALTHY
    gpu.xid(74, reading=read_text(74, "0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"))
    assert gpu.record.faults[0].reason == (
        "XID 74: NVLink error; registers say a hardware or seating fault of the link"
    )


def test_same_fault_in_many_hands_is_not_theirs() -> None:
    """Three holders with the same page fault point at the GPU; one holder with many does not."""
    gpu = Gpu0()
    for _ in range(5):
        gpu.xid(31, holder="team/training")
    gpu.xid(31, holder="")
    assert gpu.verdict is HEALTHY
    gpu.xid(31, holder="team/serving")
    gpu.xid(31, holder="other/notebook")
    assert (gpu.verdict, gpu.record.faults[0].rule) == (SUSPECT, ReturnRule.QUIET_PERIOD)


def test_repeat_counts_only_within_its_window() -> None:
    """Two timeouts a week apart are two single ones."""
    gpu = Gpu0()
    gpu.xid(38)
    gpu.at += 2 * DAY
    gpu.xid(38)
    assert gpu.verdict is HEALTHY
    gpu.xid(38)
    assert gpu.verdict is SUSPECT


def test_security_fault_that_returns_needs_service() -> None:
    """A reset did not help."""
    gpu = Gpu0()
    gpu.xid(110)
    gpu.xid(110)
    assert (gpu.record.faults[0].rule, gpu.record.faults[0].remedy) == (ReturnRule.SERVICE, Remedy.SERVICE)


def test_second_source_adds_no_occurrence() -> None:
    """The log's text comes to what NVML has told, and counts nothing."""
    gpu = Gpu0()
    gpu.xid(110)
    gpu.xid(110, is_counted=False)
    fault = gpu.record.faults[0]
    assert (fault.count, fault.rule, len(gpu.record.occurrences[0].times)) == (1, ReturnRule.RESET, 1)


def test_old_line_asks_for_clean_levels_only() -> None:
    """Whether a reset happened since is not known; the levels of today are."""
    gpu = Gpu0()
    gpu.xid(79, is_old=True)
    assert gpu.verdict is UNHEALTHY
    gpu.look(2, recovery_action=None)
    assert gpu.verdict is HEALTHY


def test_storm_of_events_is_one_fault_in_little_memory() -> None:
    """Ten thousand XIDs are counted, not kept."""
    gpu = Gpu0()
    for _ in range(10_000):
        gpu.xid(48)
    assert (len(gpu.record.faults), gpu.record.faults[0].count) == (1, 10_000)
    assert len(gpu.record.occurrences[0].times) == 8


def fail_and_return(gpu: Gpu0) -> Verdict:
    gpu.look(recovery_action=1)
    gpu.look(2)
    return gpu.verdict


def test_device_that_flaps_stays_out() -> None:
    """After the third return within a day the next one needs a person."""
    gpu = Gpu0()
    assert [fail_and_return(gpu) for _ in range(5)] == [HEALTHY, HEALTHY, HEALTHY, UNHEALTHY, UNHEALTHY]
    assert gpu.keys == ["flapping"]


def test_returns_are_forgotten_after_the_window() -> None:
    """One failure a day is no flapping."""
    gpu = Gpu0(policy=HealthSettings(flap_window_seconds=HOUR))
    for _ in range(5):
        assert fail_and_return(gpu) is HEALTHY
        gpu.at += HOUR


def test_suspects_may_come_and_go() -> None:
    """Only returns from unhealthy count."""
    gpu = Gpu0()
    for _ in range(5):
        gpu.look(slowdown_margin_celsius=-1)
        gpu.look(2, slowdown_margin_celsius=9)
    assert (gpu.verdict, gpu.record.returns) == (HEALTHY, ())


def test_person_clears_what_nothing_else_can() -> None:
    """The clearing is kept with who and when, and the level is accepted for as long as it lasts."""
    gpu = Gpu0()
    gpu.look(remapped_rows_failed=True)
    gpu.record = clear_record(gpu.record, moment(gpu.at), "ada (uid 0)", "board tested")
    gpu.look(3, remapped_rows_failed=True)
    assert (gpu.verdict, gpu.record.accepted) == (HEALTHY, ("remap-failed",))
    clearing = gpu.record.clearings[-1]
    assert (clearing.who, clearing.reason, clearing.cleared) == ("ada (uid 0)", "board tested", ("remap-failed",))
    gpu.look(remapped_rows_failed=False)
    gpu.look(remapped_rows_failed=True)
    assert gpu.verdict is UNHEALTHY


def test_clearing_accepts_errors_that_are_counted_already() -> None:
    """Old errors no longer speak against the GPU, new ones do."""
    gpu = Gpu0()
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=2)
    gpu.record = clear_record(gpu.record, moment(gpu.at), "ada", "retired by hand")
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=2)
    assert gpu.verdict is HEALTHY
    gpu.look(recovery_action=None, ecc_uncorrected_volatile=3)
    assert gpu.verdict is UNHEALTHY


def test_clearing_does_not_hide_what_is_still_bad() -> None:
    """A recovery action that the driver still wants is found again."""
    gpu = Gpu0()
    gpu.look(recovery_action=2)
    gpu.record = clear_record(gpu.record, moment(gpu.at), "ada", "hope")
    assert gpu.verdict is HEALTHY
    gpu.look(recovery_action=2)
    assert gpu.verdict is UNHEALTHY


def test_driver_that_was_down_gives_devices_back_after_clean_looks() -> None:
    """One good look after a reload may be luck."""
    gpu = Gpu0()
    gpu.look()
    gpu.record = note_driver_down(gpu.record)
    gpu.look()
    assert gpu.record.driver_was_down
    gpu.look()
    assert not gpu.record.driver_was_down


def test_faults_of_devices_that_are_no_more_are_forgotten() -> None:
    """The name of a MIG device never comes back, a GPU's does."""
    gpu = Gpu0(make_gpu(0, mig=["1g.10gb", "1g.10gb"]))
    gpu.xid(94, device=mig_uuid(0, 0))
    gpu.xid(94, device=mig_uuid(0, 1))
    gpu.xid(48)
    gpu.record = forget_devices(gpu.record, frozenset({mig_uuid(0, 1)}))
    assert {fault.device for fault in gpu.record.faults} == {mig_uuid(0, 1), gpu.gpu.uuid}


def test_switch_fault_is_not_corrected_by_a_gpu_that_feels_well() -> None:
    gpu = Gpu0()
    lost = unhealthy("sxid-23001", "the whole switch failed", Remedy.REBOOT_NODE, ReturnRule.POWER_CYCLE)
    gpu.record = note_finding(gpu.record, lost, moment(0), is_correctable=False)
    gpu.look(10)
    assert gpu.verdict is UNHEALTHY
    gpu.record = note_power_cycle(gpu.record)
    gpu.look(2)
    assert gpu.verdict is HEALTHY


def test_lost_gpu_that_answers_again_returns_by_the_drivers_word() -> None:
    """Power-cycled, with a driver that wants nothing: two clean looks."""
    gpu = Gpu0()
    gpu.see(make_sample(lost="fell off the bus"))
    assert gpu.verdict is UNHEALTHY
    gpu.look(2)
    assert gpu.verdict is HEALTHY

"""What the text of an XID's line adds to its number."""

import pytest

from nodeagent.components.health.evidence.xid_text import parse_recovery_action, read_text
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.remedies import Remedy

HEALTHY, SUSPECT, UNHEALTHY = Verdict.HEALTHY, Verdict.SUSPECT, Verdict.UNHEALTHY


def nvlink(first: int, third: int = 0) -> str:
    words = [first, 0, third, 0, 0, 0, 0]
    return "NVLink: fatal error detected on link 4(" + ", ".join(f"0x{word:x}" for word in words) + ")"


def nvlink_5(info: int, status: int, severity: str = "Nonfatal") -> str:
    return f"RLW_REMAP {severity} XC0 i0 Link 04 (0x{info:08x} 0x{status:08x} 0x00000000 0x00000000 0x0 0x0 0x0)"


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (nvlink(0), HEALTHY),
        (nvlink(1 << 0 | 1 << 23 | 1 << 30), HEALTHY),
        (nvlink(1 << 20), HEALTHY),
        (nvlink(1 << 4), SUSPECT),
        (nvlink(1 << 21 | 1 << 0), SUSPECT),
        (nvlink(1 << 8), UNHEALTHY),
        (nvlink(1 << 31), UNHEALTHY),
        (nvlink(1 << 4 | 1 << 12), UNHEALTHY),
        (nvlink(0, third=1), UNHEALTHY),
    ],
)
def test_nvlink_registers_decide_about_xid_74(message: str, verdict: Verdict) -> None:
    """Follow-ons are ignored, marginal links marked, anything of hardware or unknown takes the GPU out."""
    reading = read_text(74, message)
    assert reading is not None
    assert reading.verdict is verdict


def test_nvlink_line_without_registers_leaves_the_catalogue() -> None:
    """A truncated line says no more than its number."""
    assert read_text(74, "NVLink: 0x1, 0x2") is None


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("Contained: SM (0x1). RST: No, D-RST: Yes", Remedy.DRAIN_AND_RESET),
        ("Uncontained: FBHUB. RST: Yes, D-RST: No", Remedy.RESET_GPU),
    ],
)
def test_reset_flags_take_the_gpu_out(message: str, remedy: Remedy) -> None:
    """Contained or not: when the line asks for a reset, new work must not land there."""
    reading = read_text(94, message)
    assert reading is not None
    assert (reading.verdict, reading.rule, reading.remedy) == (UNHEALTHY, ReturnRule.RESET, remedy)


def test_contained_error_without_reset_leaves_the_catalogue() -> None:
    """No flag set, or none there: other work is unaffected."""
    assert read_text(94, "Contained: SM (0x1). RST: No, D-RST: No") is None
    assert read_text(95, "") is None


@pytest.mark.parametrize(
    ("info", "status", "severity", "verdict"),
    [
        (0x1, 0x1, "Nonfatal", HEALTHY),
        (0x1, 0x2, "Nonfatal", UNHEALTHY),
        (0x1, 0x1, "Fatal", UNHEALTHY),
        (0x4, 0x100, "Nonfatal", HEALTHY),
        (0x4, 0x8, "Nonfatal", SUSPECT),
        (0x4, 0x40, "Nonfatal", UNHEALTHY),
        (0x6, 0x1, "Nonfatal", HEALTHY),
        (0x6 | 1 << 7, 0x1, "Nonfatal", UNHEALTHY),
        (0x6 | 1 << 7, 0x8, "Nonfatal", HEALTHY),
        (0x7, 0x10, "Nonfatal", UNHEALTHY),
        (0x8, 0x80000000, "Nonfatal", HEALTHY),
        (0xB, 0x4, "Nonfatal", UNHEALTHY),
        (0xE, 0x77, "Nonfatal", HEALTHY),
        (0x11 | 0x26 << 20, 0x0, "Nonfatal", HEALTHY),
        (0x11 | 0x01 << 20, 0x0, "Nonfatal", UNHEALTHY),
        (0x14, 0x3, "Nonfatal", HEALTHY),
        (0x14, 0x9, "Nonfatal", SUSPECT),
        (0x18, 0x0, "Nonfatal", UNHEALTHY),
        (0x0, 0x0, "Nonfatal", UNHEALTHY),
        (0x7F, 0x1, "Nonfatal", SUSPECT),
        (0x7F, 0x1, "Fatal", UNHEALTHY),
    ],
)
def test_link_units_are_decoded_in_the_new_layout(info: int, status: int, severity: str, verdict: Verdict) -> None:
    """From branch 575 the sub-unit is in the lowest seven bits."""
    reading = read_text(145, nvlink_5(info, status, severity), driver_branch=580)
    assert reading is not None
    assert reading.verdict is verdict


@pytest.mark.parametrize(
    ("family", "code", "status", "verdict"),
    [(1, 0x1, 0x2, UNHEALTHY), (2, 0x6, 0x1, HEALTHY), (6, 0x12, 0x3, HEALTHY), (6, 0xE, 0x0, UNHEALTHY)],
)
def test_link_units_are_decoded_in_the_old_layout(family: int, code: int, status: int, verdict: Verdict) -> None:
    """Before branch 575 the unit's family and the sub-unit's code share the lowest ten bits."""
    reading = read_text(145, nvlink_5(code << 5 | family, status), driver_branch=570)
    assert reading is not None
    assert reading.verdict is verdict


def test_receive_pipe_looks_at_one_more_bit_in_the_old_layout() -> None:
    """The same status is harmless or not by bit 10."""
    reading = read_text(145, nvlink_5(1 << 10 | 0x6 << 5 | 2, 0x1), driver_branch=570)
    assert reading is not None
    assert reading.verdict is UNHEALTHY


@pytest.mark.parametrize("message", ["", "SAW Nonfatal", "0x1 0x2"])
def test_incomplete_link_line_leaves_the_catalogue(message: str) -> None:
    """Without registers or severity nothing is decoded."""
    assert read_text(144, message) is None


def test_other_numbers_have_no_text() -> None:
    assert read_text(79, nvlink(0)) is None


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 1),
        ("GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)", 0),
        ("GPU recovery action changed", None),
        ("0x1 (GPU Reset Required)", None),
    ],
)
def test_new_recovery_action_is_the_last_one_named(message: str, action: int | None) -> None:
    """The line names the old action first; with one alone nobody knows which it is."""
    assert parse_recovery_action(message) == action

"""What a receipt counts, and whom it blames."""

import pytest
from msgspec.structs import replace

from nodeagent.model.ids import PciAddress
from nodeagent.rules.receipts import FAULTS_MAX, SeenFault, Verdict, add_fault, find_verdict, see_fault
from nodeagent.rules.signals import Severity
from tests.unit.rules.test_signals import GPU, make_fault

CRITICAL, WARN, USER = Severity.CRITICAL, Severity.WARN, Severity.USER


def make_seen(number: int = 79, severity: Severity = CRITICAL, at: float = 1.0) -> SeenFault:
    return see_fault(make_fault(number), severity, at)


def test_a_fault_is_seen_with_its_gpu_and_time() -> None:
    assert make_seen(at=7.0) == SeenFault(
        number=79,
        name="a fault",
        severity=CRITICAL,
        gpu=GPU,
        index=0,
        address=PciAddress("0000:10:00.0"),
        first_seconds=7.0,
        last_seconds=7.0,
    )


def test_a_repetition_is_counted_with_the_newest_time() -> None:
    """A clock that was set back takes no time back; another number, GPU or severity is another fault."""
    first = make_seen()
    others = (make_seen(48), replace(first, address=PciAddress("0000:20:00.0")), replace(first, severity=WARN))
    seen = (first, *others)
    assert add_fault(add_fault(seen, make_seen(at=9.0)), make_seen(at=4.0)) == (
        replace(first, count=3, last_seconds=9.0),
        *others,
    )
    assert add_fault((first,), others[0]) == (first, others[0])


def test_a_receipt_has_the_first_kinds_of_faults() -> None:
    """What comes after is no longer kept, and what is kept is counted still."""
    seen: tuple[SeenFault, ...] = ()
    for number in range(FAULTS_MAX + 3):
        seen = add_fault(seen, make_seen(number))
    assert [each.number for each in seen] == list(range(FAULTS_MAX))
    assert add_fault(seen, make_seen(0))[0].count == 2


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ((), Verdict.NONE),
        ((WARN,), Verdict.NONE),
        ((WARN, USER), Verdict.APPLICATION),
        ((USER, WARN, CRITICAL), Verdict.HARDWARE),
    ],
)
def test_the_hardware_is_blamed_before_the_program(severities: tuple[Severity, ...], verdict: Verdict) -> None:
    assert find_verdict([make_seen(severity=each) for each in severities]) is verdict

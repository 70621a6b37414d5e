"""The steps of a session in words."""

from msgspec.structs import replace

from nodeagent.components.repairs.steps import describe_steps
from nodeagent.model.repairs import Ending, Outcome, Rung
from tests.support.repairs import make_attempt, make_evidence, make_session


def test_a_new_session_says_why_it_was_opened() -> None:
    assert list(describe_steps(make_session(), None)) == ["opened by xid-119 at rung reset"]


def test_each_change_is_a_step() -> None:
    """Attempts, further faults, the rung and the end; without a change there is no step."""
    before = make_session(attempts=[make_attempt(outcome=None)])
    after = replace(
        before,
        attempts=(
            replace(make_attempt(outcome=Outcome.UNKNOWN), detail="no end within the deadline"),
            make_attempt(Rung.REBOOT, None),
        ),
        evidence=(*before.evidence, make_evidence(0, "xid-79"), make_evidence(1, "xid-79")),
        rung=Rung.REBOOT,
        ending=Ending.JOINED,
    )
    assert list(describe_steps(after, before)) == [
        "reset unknown: no end within the deadline",
        "reboot under way",
        "joined by xid-79",
        "climbed from rung reset to reboot",
        "closed, joined",
    ]
    assert list(describe_steps(before, before)) == []

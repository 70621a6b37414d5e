"""Laws of fault sessions, for any faults, outcomes, restarts and reboots, in any order."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from nodeagent.model.gpu import Inventory
from nodeagent.model.health import FoundFault
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairs import Attempt, Ending, FaultSession, Outcome, Rung
from nodeagent.rules.repair.findings import group_evidence
from nodeagent.rules.repair.guard import REBOOTS_MAX, RESETS_MAX, WINDOW_SECONDS
from nodeagent.rules.repair.sessions import (
    Moment,
    begin_attempt,
    end_attempt,
    find_obstacles,
    resume_session,
    take_findings,
)
from nodeagent.rules.repair.settling import CEILING_SECONDS, EQUAL_POLLS, Settling, note_poll
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid, make_node
from tests.support.repairs import find_faults, make_evidence, make_fault

NODE = make_node(4)
DAY = 86400.0
GPUS = st.integers(0, 3)
REPAIRABLE = (Remedy.DRAIN_AND_RESET, Remedy.RESET_GPU, Remedy.REBOOT_NODE, Remedy.POWER_CYCLE, Remedy.SERVICE)
FAULTS = st.builds(
    lambda key, remedy: (key, remedy), st.sampled_from(["xid-79", "xid-119", "sxid-4"]), st.sampled_from(REPAIRABLE)
)


class Repairing(RuleBasedStateMachine):
    """A node whose agent may act: every choice of the outside world is a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.boots, self.numbers = 0.0, 1, 0
        self.faults: dict[tuple[int, str], FoundFault] = {}
        self.sessions: dict[int, FaultSession] = {}
        self.has_just_started = False

    @property
    def moment(self) -> Moment:
        return Moment(now_seconds=self.now, boot=str(self.boots))

    @property
    def inventory(self) -> Inventory:
        return NODE

    def keep(self, session: FaultSession) -> FaultSession:
        """As the journal does; a step down the ladder is a failure at once."""
        before = self.sessions.get(session.number)
        assert before is None or before.rung.rank <= session.rung.rank
        assert before is None or before.is_open
        if not session.number:
            self.numbers += 1
            session = replace(session, number=self.numbers)
        self.sessions[session.number] = session
        return session

    @rule(index=GPUS, fault=FAULTS, is_present=st.booleans())
    def fail(self, index: int, fault: tuple[str, Remedy], is_present: bool) -> None:
        key, remedy = fault
        self.faults[index, key] = replace(make_fault(key, remedy, self.now), is_present=is_present)

    @rule(index=GPUS)
    def recover(self, index: int) -> None:
        self.faults = {(gpu, key): fault for (gpu, key), fault in self.faults.items() if gpu != index}

    @rule(days=st.floats(0.001, 8.0))
    def wait(self, days: float) -> None:
        self.now += days * DAY

    @rule()
    def poll(self) -> None:
        by_gpu: dict[int, list[FoundFault]] = {}
        for (index, _), fault in self.faults.items():
            by_gpu.setdefault(index, []).append(fault)
        known = dict(self.sessions)
        findings = find_faults(NODE, {index: tuple(found) for index, found in by_gpu.items()})
        for session in take_findings(known, findings, self.inventory, self.moment):
            self.keep(session)
        self.check_covered(by_gpu)

    def check_covered(self, by_gpu: Mapping[int, list[FoundFault]]) -> None:
        """A GPU has one open session at most, and a present fault has one."""
        standing = Counter(uuid for one in self.sessions.values() if one.is_open for uuid in one.uuids)
        assert not standing or max(standing.values()) == 1
        present = {gpu_uuid(index) for index, found in by_gpu.items() if any(one.is_present for one in found)}
        assert present <= standing.keys()

    @precondition(lambda self: any(one.is_open for one in self.sessions.values()))
    @rule(data=st.data(), outcome=st.sampled_from([*Outcome]), is_dropped=st.booleans())
    def act(self, data: st.DataObject, outcome: Outcome, is_dropped: bool) -> None:
        """Where nothing is in the way: the intent first, then an end, or the agent ends before it."""
        standing = [one for one in self.sessions.values() if one.is_open]
        session = data.draw(st.sampled_from(standing))
        every = list(self.sessions.values())
        if find_obstacles(session, every, NODE, self.moment, holders=(), has_holder_left=data.draw(st.booleans())):
            return
        begun = self.keep(begin_attempt(session, NODE, self.moment, deadline_seconds=self.now + 600))
        if not is_dropped:
            self.now += 60.0
            self.keep(end_attempt(begun, outcome, self.moment, "said by the test"))

    @rule(is_reboot=st.booleans())
    def start(self, is_reboot: bool) -> None:
        self.boots += is_reboot
        for session in list(self.sessions.values()):
            resumed = resume_session(session, self.moment)
            if resumed != session:
                self.keep(resumed)
            attempt = resumed.under_way
            assert attempt is None or (attempt.rung is Rung.REBOOT and attempt.boot != self.moment.boot)
        self.poll()
        self.check_closed_intents()

    def check_closed_intents(self) -> None:
        """After a start and its first settled poll no intent is open."""
        assert [one.number for one in self.sessions.values() if one.under_way is not None] == []

    @invariant()
    def the_guard_holds(self) -> None:
        """Two resets of a board and two reboots of the node in any seven days, over all sessions."""
        own = [one for session in self.sessions.values() for one in session.attempts if one.is_own and one.counts]
        for first in own:
            window = [one for one in own if 0 <= one.began_seconds - first.began_seconds < WINDOW_SECONDS]
            resets = Counter(board for one in window if one.rung.is_reset for board in one.boards)
            assert max(resets.values(), default=0) <= RESETS_MAX
            assert sum(one.rung is Rung.REBOOT for one in window) <= REBOOTS_MAX

    @invariant()
    def each_rung_is_taken_once_and_upward(self) -> None:
        for session in self.sessions.values():
            ranks = [one.rung.rank for one in session.attempts if one.is_own and one.counts]
            assert ranks == sorted(set(ranks))

    @invariant()
    def one_attempt_at_a_time(self) -> None:
        own = [one for one in self.sessions.values() if one.under_way is not None and one.under_way.is_own]
        assert len(own) <= 1

    @invariant()
    def a_closed_session_has_no_open_intent(self) -> None:
        closed = [one for one in self.sessions.values() if not one.is_open]
        assert all(one.under_way is None and one.closed_seconds is not None for one in closed)


TestRepairing = Repairing.TestCase
TestRepairing.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)

OUTCOMES = st.sampled_from([*Outcome])


@settings(max_examples=examples(100))
@given(st.sampled_from([*Rung]), OUTCOMES)
def test_only_what_counts_moves_a_session_and_never_down(rung: Rung, outcome: Outcome) -> None:
    """A refusal because of a process with the GPU, and the agent's own fault, leave the session where it is."""
    (session,) = take_findings({}, find_faults(NODE, {0: (make_fault(),)}), NODE, Moment(now_seconds=0.0, boot="1"))
    session = replace(session, number=1, rung=rung)
    begun = begin_attempt(session, NODE, Moment(now_seconds=1.0, boot="1"), deadline_seconds=9.0)
    after = end_attempt(begun, outcome, Moment(now_seconds=2.0, boot="1"), "")
    if not outcome.counts:
        assert (after.rung, after.is_open) == (rung, True)
    elif outcome is Outcome.PROVEN:
        assert after.ending is Ending.REPAIRED
    else:
        assert after.rung.rank > rung.rank or rung is Rung.SERVICE


@settings(max_examples=examples(100))
@given(st.sampled_from([one for one in Rung if one.is_reset]), st.floats(0, DAY), st.booleans())
def test_what_was_seen_before_the_last_repair_opens_nothing(rung: Rung, seen: float, is_present: bool) -> None:
    """Nor does the XID of the reset itself; what a poll still finds does."""
    moment = Moment(now_seconds=2 * DAY, boot="1")
    attempt = Attempt(
        rung=rung,
        boards=(gpu_uuid(0),),
        boot="1",
        began_seconds=DAY - 60,
        deadline_seconds=DAY + 600,
        outcome=Outcome.PROVEN,
        ended_seconds=DAY,
    )
    (opened,) = take_findings({}, find_faults(NODE, {0: (make_fault(),)}), NODE, moment)
    closed = replace(opened, number=1, attempts=(attempt,), ending=Ending.REPAIRED, closed_seconds=DAY)
    fault = replace(make_fault(seen=seen), is_present=is_present)
    changed = take_findings({1: closed}, find_faults(NODE, {0: (fault,), 1: (make_fault(seen=seen),)}), NODE, moment)
    expected = {gpu_uuid(0), gpu_uuid(1)} if is_present else {gpu_uuid(1)}
    assert {uuid for session in changed for uuid in session.uuids} == expected


@settings(max_examples=examples(100))
@given(st.lists(st.sets(GPUS, max_size=2), max_size=60), st.integers(1, 5), st.sampled_from([5.0, 30.0]))
def test_findings_settle_after_equal_polls_or_after_the_ceiling(
    polls: list[set[int]], first: int, pause: float
) -> None:
    """Never before so many, and never after the ceiling."""
    settling, now = Settling(since_seconds=0.0, polls_first=first), 0.0
    seen: list[set[int]] = []
    for bad in polls:
        now += pause
        settling = note_poll(settling, find_faults(NODE, {index: (make_fault(),) for index in bad}), now)
        seen.append(bad)
        counted = seen[first:]
        agree = any(
            all(one == counted[at] for one in counted[at : at + EQUAL_POLLS])
            for at in range(len(counted) - EQUAL_POLLS + 1)
        )
        assert settling.is_settled == (agree or now >= CEILING_SECONDS)
        assert settling.is_timed_out == (settling.is_settled and not agree)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(GPUS, st.sampled_from(["xid-79", "sxid-1", "sxid-2"])), max_size=8))
def test_a_gpu_is_in_one_group_and_a_switch_is_not_divided(found: list[tuple[int, str]]) -> None:
    evidence = [make_evidence(index, key) for index, key in found]
    groups = group_evidence(evidence, [frozenset({gpu_uuid(0), gpu_uuid(1)})])
    members = Counter(uuid for group in groups for uuid in group)
    assert set(members.values()) <= {1}
    assert {one.gpu for one in evidence} <= members.keys()
    for key in ("sxid-1", "sxid-2"):
        hit = {one.gpu for one in evidence if one.key == key}
        assert not hit or any(hit <= group for group in groups)

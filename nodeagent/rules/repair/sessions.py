"""Fault sessions as a state machine: opened by evidence, climbing, closed; pure, by the wall clock and the boot's id.

Laws: a session never goes down the ladder, takes each rung once, and leaves no intent without an end. An attempt whose
end nobody knows has failed. A refusal because of a process with the GPU is no attempt. Evidence older than the last
repair of a GPU opens nothing. The guard holds over all sessions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.repairs import Attempt, Ending, Evidence, FaultSession, Outcome, Rung
from nodeagent.model.values import Value
from nodeagent.rules.repair.domains import describe_gpu, find_domain
from nodeagent.rules.repair.findings import Findings, group_evidence
from nodeagent.rules.repair.guard import refuse_by_guard
from nodeagent.rules.repair.ladder import climb, find_highest, skip_spent

EVIDENCE_MAX: Final = 32
"""Of a session; the first of it stays."""
_NOT_OURS: Final = "the node was rebooted, and not by the agent's request"


class Moment(Value, frozen=True):
    """The wall time, and the id of the boot."""

    now_seconds: float
    boot: str


def resume_session(session: FaultSession, moment: Moment) -> FaultSession:
    """A session taken up by a starting agent; a reboot waits for the proof, whoever asked."""
    attempt = session.under_way
    if attempt is not None and (attempt.boot == moment.boot or attempt.rung is not Rung.REBOOT):
        session = end_attempt(session, Outcome.UNKNOWN, moment, "the agent ended before the attempt did")
    if session.boot == moment.boot or not session.is_open:
        return session
    if session.under_way is None:
        session = replace(session, attempts=(*session.attempts, _note_reboot(session, moment)))
    return replace(session, boot=moment.boot)


def _note_reboot(session: FaultSession, moment: Moment) -> Attempt:
    return Attempt(
        rung=Rung.REBOOT,
        boards=tuple(gpu.board for gpu in session.gpus),
        boot=session.boot,
        began_seconds=moment.now_seconds,
        deadline_seconds=moment.now_seconds,
        detail=_NOT_OURS,
        is_own=False,
    )


def take_findings(
    known: Mapping[int, FaultSession], findings: Findings, inventory: Inventory, moment: Moment, *, acting: int = 0
) -> tuple[FaultSession, ...]:
    """The sessions that settled findings open, change or close; a new session has the number 0.

    The act of the session `acting` is under way in this process: the wall clock, which may be set, ends no such act.
    """
    sessions = {number: one if number == acting else _expire(one, moment) for number, one in known.items()}
    opened: list[FaultSession] = []
    standing = [session for session in sessions.values() if session.is_open]
    covered = frozenset[GpuUuid]().union(*(session.uuids for session in standing))
    evidence = [
        one for one in findings.evidence if one.gpu in covered or is_news(one, sessions.values(), inventory, moment)
    ]
    told = set[int]()
    for group in group_evidence(evidence, [session.uuids for session in standing]):
        mine = [one for one in evidence if one.gpu in group]
        touching = [session for session in standing if session.uuids & group]
        if not touching:
            opened.append(_open(mine, group, inventory, moment))
            continue
        first, *others = sorted(touching, key=lambda session: (session.under_way is None, session.number))
        told |= {session.number for session in touching}
        sessions[first.number] = _widen(_fail_reboot(first, moment), mine, group, inventory)
        sessions |= {other.number: close_session(other, Ending.JOINED, moment) for other in others}
    for session in standing:
        if session.number not in told and (ending := _find_ending(session, findings, inventory, moment)):
            sessions[session.number] = close_session(session, ending, moment)
    every = [*sessions.values(), *opened]
    result = [apply_guard(session, every, inventory, moment) for session in every]
    return tuple(session for session in result if session != known.get(session.number))


def is_news(evidence: Evidence, sessions: Iterable[FaultSession], inventory: Inventory, moment: Moment) -> bool:
    """Whether evidence is of a time after the last repair of its GPU, or still there.

    A repair with an end that is yet to come was before the wall clock was set back: evidence of no later time than now
    is taken for news then, or a fault would open nothing for as long as the clock was set back.
    """
    gpu = inventory.find_gpu(evidence.gpu)
    if gpu is None or evidence.is_present:
        return gpu is not None
    board, seen, now = describe_gpu(gpu).board, evidence.seen_seconds, moment.now_seconds
    ends = (
        attempt.ended_seconds or attempt.began_seconds
        for session in sessions
        for attempt in session.attempts
        if board in attempt.boards and attempt.is_own and attempt.counts and attempt.rung is not Rung.DRAIN
    )
    return not any(seen <= end and not seen <= now < end for end in ends)


def _open(
    evidence: Sequence[Evidence], group: frozenset[GpuUuid], inventory: Inventory, moment: Moment
) -> FaultSession:
    worst = max(evidence, key=lambda one: one.rung.rank)
    return FaultSession(
        number=0,
        gpus=tuple(describe_gpu(gpu) for gpu in inventory.gpus if gpu.uuid in group),
        cause=worst.key,
        evidence=tuple(evidence[:EVIDENCE_MAX]),
        rung=worst.rung,
        boot=moment.boot,
        opened_seconds=moment.now_seconds,
    )


def _widen(
    session: FaultSession, evidence: Iterable[Evidence], group: frozenset[GpuUuid], inventory: Inventory
) -> FaultSession:
    """The session with further GPUs and evidence, on no lower rung than before."""
    known = {(one.gpu, one.key) for one in session.evidence}
    new = tuple(one for one in evidence if (one.gpu, one.key) not in known)
    gpus = tuple(describe_gpu(gpu) for gpu in inventory.gpus if gpu.uuid in group - session.uuids)
    wider = replace(
        session,
        gpus=(*session.gpus, *gpus),
        evidence=(*session.evidence, *new)[:EVIDENCE_MAX],
        rung=find_highest((session.rung, *(one.rung for one in new))),
    )
    return replace(wider, rung=skip_spent(wider))


def _find_ending(session: FaultSession, findings: Findings, inventory: Inventory, moment: Moment) -> Ending | None:
    """How a session without evidence ends; `None` while an act is under way or a GPU of the session is silent."""
    attempt = session.under_way
    if attempt is not None and attempt.boot == moment.boot:
        return None
    kept = {gpu.uuid for gpu in inventory.gpus} | {gone.uuid for gone in inventory.vanished}
    here = session.uuids & kept
    if not here:
        return Ending.REMOVED
    if not here <= findings.answered:
        return None
    return Ending.REPAIRED if attempt is not None and attempt.is_own else Ending.RECOVERED


def close_session(session: FaultSession, ending: Ending, moment: Moment) -> FaultSession:
    """The session with its end; an attempt without a proof has an unknown one."""
    closed = session
    if session.under_way is not None:
        outcome = Outcome.PROVEN if ending in {Ending.REPAIRED, Ending.RECOVERED} else Outcome.UNKNOWN
        closed = _write_outcome(session, outcome, moment, "")
    return replace(closed, ending=ending, closed_seconds=moment.now_seconds)


def _expire(session: FaultSession, moment: Moment) -> FaultSession:
    """The session with an attempt past its deadline ended; the proof after a reboot has the time of the settling."""
    attempt = session.under_way
    if attempt is None or attempt.boot != moment.boot or moment.now_seconds <= attempt.deadline_seconds:
        return session
    return end_attempt(session, Outcome.UNKNOWN, moment, "no end within the deadline")


def _fail_reboot(session: FaultSession, moment: Moment) -> FaultSession:
    """The session after a reboot that left evidence."""
    attempt = session.under_way
    if attempt is None or attempt.boot == moment.boot:
        return session
    return end_attempt(session, Outcome.FAILED, moment, "the fault is there after the reboot")


def apply_guard(
    session: FaultSession, sessions: Iterable[FaultSession], inventory: Inventory, moment: Moment
) -> FaultSession:
    """The session on a rung that the guard allows: the third reset or reboot is service."""
    if not session.is_open or session.under_way is not None:
        return session
    boards = [gpu.board for gpu in find_domain(session, session.rung, inventory)]
    refusal = refuse_by_guard(session.rung, boards, sessions, moment.now_seconds)
    return replace(session, rung=Rung.SERVICE) if refusal else session


def find_obstacles(
    session: FaultSession,
    sessions: Sequence[FaultSession],
    inventory: Inventory,
    moment: Moment,
    *,
    holders: Sequence[str],
    has_holder_left: bool = False,
) -> tuple[str, ...]:
    """Why the session's rung cannot be taken now.

    Args:
        session: the session.
        sessions: all sessions of the node, the closed ones too.
        inventory: the node's GPUs.
        moment: the time and the boot.
        holders: who has a GPU of the domain; whoever would be hit must have left.
        has_holder_left: whether a holder that refused the last attempt was found and has left.
    """
    found: list[str] = []
    standing = [one for one in sessions if one.is_open]
    if session.rung is Rung.SERVICE:
        found.append("service is a person's work")
    found += [f"the attempt of session {one.number} has not ended" for one in standing if one.under_way is not None]
    first = min(standing, key=lambda one: (-one.rung.rank, one.number), default=session)
    if first.number != session.number:
        found.append(f"session {first.number} comes first")
    boards = [gpu.board for gpu in find_domain(session, session.rung, inventory)]
    found.append(refuse_by_guard(session.rung, boards, sessions, moment.now_seconds))
    if holders and session.rung is not Rung.DRAIN:
        found.append(f"the GPUs are held by {', '.join(holders)}")
    last = session.attempts[-1] if session.attempts else None
    if last is not None and last.outcome is Outcome.IN_USE and not has_holder_left:
        found.append("the process that refused the last attempt was not seen to leave")
    if last is not None and last.outcome is Outcome.STOPPED and last.boot == moment.boot:
        found.append(f"the last attempt ended by the agent's own fault: {last.detail}")
    return tuple(filter(None, found))


def begin_attempt(
    session: FaultSession, inventory: Inventory, moment: Moment, *, deadline_seconds: float
) -> FaultSession:
    """The session with the intent of its rung, to be durable before the act; only without obstacles."""
    attempt = Attempt(
        rung=session.rung,
        boards=tuple(gpu.board for gpu in find_domain(session, session.rung, inventory)),
        boot=moment.boot,
        began_seconds=moment.now_seconds,
        deadline_seconds=deadline_seconds,
    )
    return replace(session, attempts=(*session.attempts, attempt))


def end_attempt(session: FaultSession, outcome: Outcome, moment: Moment, detail: str) -> FaultSession:
    """The session after its attempt: closed by a proof, else on the next rung."""
    attempt = session.under_way
    if attempt is None:
        return session
    if outcome is Outcome.PROVEN:
        told = replace(attempt, detail=_join(attempt.detail, detail))
        return close_session(replace(session, attempts=(*session.attempts[:-1], told)), Ending.REPAIRED, moment)
    ended = _write_outcome(session, outcome, moment, detail)
    ended = replace(ended, rung=find_highest((ended.rung, climb(attempt.rung, outcome))))
    return replace(ended, rung=skip_spent(ended))


def _write_outcome(session: FaultSession, outcome: Outcome, moment: Moment, detail: str) -> FaultSession:
    *before, attempt = session.attempts
    why = _join(attempt.detail, detail)
    ended = replace(attempt, outcome=outcome, ended_seconds=moment.now_seconds, detail=why)
    return replace(session, attempts=(*before, ended))


def _join(*details: str) -> str:
    return "; ".join(filter(None, details))

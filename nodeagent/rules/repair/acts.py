"""Acts: the reach of mode act, the session after an answer, and the proof by the polls after an act."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.repairs import FaultSession, Outcome, Rung
from nodeagent.model.values import Value
from nodeagent.rules.repair.domains import describe_gpu
from nodeagent.rules.repair.drain import find_drained
from nodeagent.rules.repair.findings import Findings
from nodeagent.rules.repair.outcomes import Reading
from nodeagent.rules.repair.sessions import Moment, end_attempt
from nodeagent.rules.repairers import list_vetoes

ACT, NO_CHANNEL = "act", "none"
"""The mode in which the agent acts, and the setting without a channel for a reboot."""
PROOF_SECONDS: Final = 120.0
"""How long the polls after an act have to find the GPUs well, beside the polls that a return takes."""


class Reach(Value, frozen=True):
    """How far the agent may go by itself."""

    up_to: Rung = Rung.RESET
    reboot_by: str = NO_CHANNEL
    can_reload: bool = False
    """Whether the driver's kernel modules are the host's, and not a container's."""
    left_to_others: tuple[str, ...] = ()
    """Why the node is left to another program or a person, each reason a sentence."""
    left: frozenset[int] = frozenset()
    """Sessions of which a holder that refused an attempt was found and has left."""
    without_slots: Mapping[int, str] = MappingProxyType({})
    """The reasons why sessions have no slots, by the session's number."""


def refuse_act(session: FaultSession, holders: Sequence[str], reach: Reach, inventory: Inventory) -> tuple[str, ...]:
    """Why mode act leaves the rung of a session to somebody else."""
    # Another GPU may sit at the address of a GPU that is gone.
    gone = [
        f"GPU {gpu.index} is not listed by the driver" for gpu in session.gpus if inventory.find_gpu(gpu.uuid) is None
    ]
    slots = [reach.without_slots[session.number]] if session.number in reach.without_slots else []
    ours = (*reach.left_to_others, *_refuse(session.rung, holders, reach))
    return (*ours, *(gone if session.rung.is_reset else ()), *slots)


def _refuse(rung: Rung, holders: Sequence[str], reach: Reach) -> Iterator[str]:
    if rung.rank > reach.up_to.rank:
        yield f"rung {rung} is above `repairs.up_to`: {reach.up_to}"
    if rung is Rung.RELOAD_DRIVER and not reach.can_reload:
        yield "the agent reloads only a driver of the host: reload the driver by hand, or reboot the node"
    if rung is Rung.REBOOT and reach.reboot_by == NO_CHANNEL:
        yield f"no channel for a reboot is configured: `repairs.reboot_by` is {NO_CHANNEL}"
    if rung is Rung.DRAIN and holders:
        yield f"the GPUs are held by {', '.join(holders)}"


def find_turn(
    sessions: Sequence[FaultSession], inventory: Inventory, moment: Moment, reach: Reach
) -> FaultSession | None:
    """The session with an act under way, else the session that nothing but holders and slots keeps back."""
    session = find_drained(sessions, inventory, moment, reach.up_to)
    if session is None or session.under_way is not None:
        return session
    return None if refuse_act(session, (), reach, inventory) else session


def read_reach(settings: RepairsSettings, node: ClusterNode | None, driver: DriverState | None) -> Reach:
    """How far the agent goes now: another repairer's mark, or a driver that a person has released, keeps it still."""
    marks = () if node is None else tuple(f"the node's mark {mark} stops it" for mark in list_vetoes(node))
    is_released = driver is not None and driver.phase is DriverPhase.RELEASED
    released = "the driver is released: `nodeagent resume` takes the driver back" if is_released else ""
    others = tuple(filter(None, (*marks, released)))
    return Reach(up_to=Rung(settings.up_to), reboot_by=settings.reboot_by, left_to_others=others)


def is_request_stale(node: ClusterNode | None, key: str, sessions: Iterable[FaultSession], boot: str) -> bool:
    """Whether the agent's annotation on the node requests a reboot that no session of this boot waits for."""
    if node is None or key not in node.written_annotations:
        return False
    attempts = [one.under_way for one in sessions if one.is_open and one.under_way is not None]
    return not any(one.is_own and one.rung is Rung.REBOOT and one.boot == boot for one in attempts)


def take_reading(session: FaultSession, reading: Reading, inventory: Inventory, moment: Moment) -> FaultSession:
    """The session after an act without success; GPUs named by a refusal are taken in.

    A refusal without a new GPU has nothing to try again with, and is a refusal for good.
    """
    if reading.outcome is None:
        return session
    if reading.outcome is not Outcome.INCOMPLETE:
        return end_attempt(session, reading.outcome, moment, reading.detail)
    peers = tuple(
        describe_gpu(gpu) for gpu in inventory.gpus if gpu.index in reading.peers and gpu.uuid not in session.uuids
    )
    outcome = Outcome.INCOMPLETE if peers else Outcome.REFUSED
    ended = end_attempt(session, outcome, moment, reading.detail)
    return replace(ended, gpus=(*ended.gpus, *peers))


def judge_proof(session: FaultSession, findings: Findings, waited_seconds: float, patience_seconds: float) -> Reading:
    """The proof by the polls after an act: well without evidence, failed once the time is over, else not known yet."""
    mine = [one for one in findings.evidence if one.gpu in session.uuids]
    if not mine and session.uuids <= findings.answered:
        return Reading(outcome=Outcome.PROVEN)
    if waited_seconds < patience_seconds:
        return Reading(outcome=None)
    keys = ", ".join(sorted({one.key for one in mine}))
    reason = f"{keys} after the act" if mine else findings.blind or "a GPU does not answer after the act"
    return Reading(outcome=Outcome.FAILED, detail=reason)

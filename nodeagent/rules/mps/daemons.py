"""The wanted daemons, and their journal entries from before any change of their GPUs.

Owns the daemons' names, equal to the directories' names, and the form of a daemon in the journal.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec

from nodeagent.config.sections.mps import DaemonPer
from nodeagent.model.errors import MpsRefused, NodeagentError
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, Step
from nodeagent.model.mps import MpsLimits, MpsPhase, MpsState
from nodeagent.model.values import Value
from nodeagent.rules.mps.limits import MIB
from nodeagent.rules.offer.devices import Offered

OWNER: Final = "mps"
"""Of changes in the journal: each is one GPU of a daemon, from before its mode is changed until it is given back."""
_ENGAGE: Final = "engage"
_DIGITS: Final = 5


class DaemonKind(StrEnum):
    """The purpose of a daemon."""

    SHARES = "shares"
    CLAIM = "claim"
    PARTS = "parts"


_WHOM: Final = {
    DaemonKind.SHARES: "the shares of {}",
    DaemonKind.CLAIM: "the claim {}",
    DaemonKind.PARTS: "the {} of it",
}


class Wanted(Value, frozen=True):
    """A wanted daemon."""

    name: str
    kind: DaemonKind
    owner: str
    """The resource with the served replicas, the claim's UID, or `parts`."""
    gpus: tuple[GpuUuid, ...]
    """In the daemon's order of counting."""
    limits: MpsLimits


class Engagement(Value, frozen=True):
    """One GPU of a daemon, as the journal holds it."""

    wanted: Wanted
    compute_mode: int
    """Of the GPU before, to be given back."""


class EngagementUnreadable(NodeagentError):
    """A journal entry of a daemon makes no sense to this version."""


def plan_replica_daemons(offered: Iterable[Offered], daemon_per: DaemonPer) -> tuple[Wanted, ...]:
    """The daemons for shared GPUs: one for each GPU, or one for each resource."""
    groups: dict[str, list[Offered]] = {}
    for each in offered:
        if each.strategy == "mps" and not each.device.withheld:
            groups.setdefault(name_replica_daemon(daemon_per, each.device.gpu.uuid, each.resource), []).append(each)
    return tuple(_plan_group(name, members) for name, members in groups.items())


def name_replica_daemon(daemon_per: DaemonPer, gpu: GpuUuid, resource: str) -> str:
    """The daemon of the replicas of a GPU."""
    return gpu if daemon_per == "gpu" else resource


def _plan_group(name: str, members: Sequence[Offered]) -> Wanted:
    sizes = {each.device.gpu.uuid: each.device.gpu.memory_total_bytes // each.replicas // MIB for each in members}
    return Wanted(
        name=name,
        kind=DaemonKind.SHARES,
        owner=members[0].resource,
        gpus=tuple(each.device.gpu.uuid for each in members),
        limits=MpsLimits(
            # A daemon has one percentage for all its GPUs: the least promise of any replica.
            thread_percentage=100 // max(each.replicas for each in members),
            # A GPU of unknown memory has no memory limit.
            memory_mib={uuid: size for uuid, size in sizes.items() if size},
        ),
    )


def plan_claim_daemon(claim: str, gpus: Sequence[GpuUuid], limits: MpsLimits) -> Wanted:
    """The daemon of a claim, or of the claim's requests with the same configuration."""
    places = tuple(sorted(gpus))
    digits = sha256(",".join(places).encode()).hexdigest()[:_DIGITS]
    return Wanted(name=f"claim-{claim}-{digits}", kind=DaemonKind.CLAIM, owner=claim, gpus=places, limits=limits)


def engage_step(engagement: Engagement, now_seconds: float) -> Step:
    """The journal entry before a GPU is changed for a daemon."""
    return Step(name=_ENGAGE, at_seconds=now_seconds, payload=msgspec.json.encode(engagement).decode())


def read_engagement(change: Change) -> Engagement:
    """The inverse of `engage_step`.

    Raises:
        EngagementUnreadable: another version has written the entry.
    """
    try:
        return msgspec.json.decode(change.steps[0].payload, type=Engagement)
    except msgspec.MsgspecError as error:
        raise EngagementUnreadable(f"change {change.number} of {change.gpu}: {error}") from error


def refuse_claim(wanted: Wanted, others: Iterable[Wanted]) -> None:
    """Refuse a second daemon for a GPU, or a second set of limits for a claim's daemon.

    Raises:
        MpsRefused: another daemon has the GPU.
    """
    for other in others:
        taken = sorted(set(wanted.gpus) & set(other.gpus))
        if taken and other != wanted:
            what = _WHOM[other.kind].format(other.owner)
            limits = " with other limits" if other.owner == wanted.owner else ""
            raise MpsRefused(f"{taken[0]} is shared by MPS for {what}{limits}: wait until that has ended")


def explain_daemon(gpu: GpuUuid, state: MpsState | None, *, by_mps: bool) -> str:
    """Why a GPU, or a replica of it, must not be handed out now; empty where no daemon is in the way."""
    daemon = state.find_gpu(gpu) if state is not None else None
    if by_mps and state is None:
        return "nobody looks after MPS daemons (yet): see `nodeagent status`"
    if by_mps and daemon is None:
        return "its MPS daemon is not started yet"
    if daemon is None or (by_mps and daemon.phase is MpsPhase.READY):
        return ""
    if by_mps:
        return f"its MPS daemon is {daemon.phase}: {daemon.reason or 'it has not said that it is ready'}"
    return f"its MPS daemon has yet to end: {daemon.reason or daemon.phase}"

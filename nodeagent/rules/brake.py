"""The brake: GPUs on which start after start is lost are closed, and opened again by a single proved start.

A start is lost where it ends soon after its beginning and the driver has reported a fault of the GPU meanwhile, or
where the kubelet's request for the GPU is refused. Owns the counting, the pauses, and the meaning of a proof.
Refuses to count what may be the program's own: user XIDs, XIDs that blame nobody, ends without an XID. Refuses to count
one fault twice: pods that share a GPU and die together are a single loss.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import field
from msgspec.structs import replace

from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import BRAKE_TAINT, ClusterNode
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.signals import ENDED_SECONDS, Severity, find_severity

WINDOW_SECONDS: Final = 3600.0
"""How long a lost start counts."""
REFUSED_SECONDS: Final = 60.0
"""How long a refused request counts."""
PAUSE_LIMIT_SECONDS: Final = 8 * 3600.0
TAINT_AWAITED_SECONDS: Final = 2.0
"""How long a closing waits for the node's taint: a pod that the kubelet refuses meanwhile is as lost as others."""


class Start(Value, frozen=True):
    """A container or claim with devices of GPUs."""

    gpus: frozenset[GpuUuid]
    devices: frozenset[str]
    """The GPUs or MIG devices."""
    since_seconds: float
    """By the wall clock, as the journal has it."""


class Life(Value, frozen=True):
    """A start, and what became of it."""

    start: Start
    fault_seconds: float | None = None
    """The time of the first fault of the start's devices."""
    fault: str = ""
    ended_seconds: float | None = None

    def is_lost(self, within_seconds: float) -> bool:
        """Whether the start has ended too soon, beside a fault of its GPU."""
        if self.fault_seconds is None or self.ended_seconds is None:
            return False
        return 0.0 <= self.ended_seconds - self.start.since_seconds <= within_seconds


class Loss(Value, frozen=True):
    """A lost start of a GPU."""

    since_seconds: float
    fault_seconds: float
    fault: str


class Refusal(Value, frozen=True):
    """A refused request for a GPU."""

    at_seconds: float
    reason: str


class BrakeCount(Value, frozen=True):
    """The starts of the node as far as the brake needs them."""

    lives: Mapping[str, Life] = field(default_factory=dict)
    """The present starts, and the ones that have just ended."""
    losses: Mapping[GpuUuid, tuple[Loss, ...]] = field(default_factory=dict)
    refusals: Mapping[GpuUuid, tuple[Refusal, ...]] = field(default_factory=dict)

    def list_lives(self, gpu: GpuUuid, since_seconds: float = 0.0) -> Iterator[Life]:
        """The starts of a GPU since a time."""
        return (
            life for life in self.lives.values() if gpu in life.start.gpus and life.start.since_seconds >= since_seconds
        )


class BrakePlan(Value, frozen=True):
    """The brake's cordons from now on, the count without what is settled, and the seconds until the next look."""

    cordons: tuple[Cordon, ...] = ()
    count: BrakeCount = BrakeCount()
    closed: tuple[Cordon, ...] = ()
    """The cordons that are new, or new again."""
    opened: tuple[GpuUuid, ...] = ()
    """The GPUs proved by a start."""
    wait_seconds: float | None = None


def list_starts(
    inventory: Inventory,
    allocations: AllocationTable | None,
    fractions: FractionTable | None,
    claims: ReadyClaims | None,
) -> dict[str, Start]:
    """All starts with GPUs of the node, by name; a claim for monitoring alone holds nothing."""
    found: dict[str, tuple[Iterable[str], float]] = {}
    for row in allocations.allocations if allocations is not None else ():
        found[f"allocation {row.number}"] = map(find_uuid, row.devices), row.since_seconds
    for binding in fractions.bindings.values() if fractions is not None else ():
        found[f"fraction {binding.number}"] = (part.gpu for part in binding.parts), binding.since_seconds
    for claim in claims.claims.values() if claims is not None else ():
        claimed = (one.uuid or one.gpu for one in claim.devices if not one.is_admin)
        found[f"claim {claim.uid}"] = claimed, claim.since_seconds
    starts = {}
    for name, (each, since) in found.items():
        devices = frozenset(each)
        gpus = frozenset(gpu.uuid for one in devices if (gpu := inventory.find_gpu(one)) is not None)
        if gpus:
            starts[name] = Start(gpus=gpus, devices=devices, since_seconds=since)
    return starts


def follow_starts(
    count: BrakeCount, present: Mapping[str, Start], within_seconds: float, now_seconds: float
) -> BrakeCount:
    """The count after a change of the present starts; what ended long ago is forgotten."""
    lives = {
        name: replace(life, ended_seconds=now_seconds if life.ended_seconds is None else life.ended_seconds)
        for name, life in count.lives.items()
        if name not in present
    }
    for name, start in present.items():
        known = count.lives.get(name, Life(start=start))
        lives[name] = replace(known, start=start, ended_seconds=None)
    return _settle(replace(count, lives=lives), within_seconds, now_seconds)


def note_fault(count: BrakeCount, fault: GpuFaultReported, within_seconds: float, now_seconds: float) -> BrakeCount:
    """The count after a fault; of a fault that is not the GPU's own nothing is kept."""
    if find_severity(fault, holders=1) is not Severity.CRITICAL:
        return count
    name = f"XID {fault.number}" if fault.gpu else f"SXid {fault.number}"
    hit = frozenset(fault.devices)
    lives = {
        key: replace(life, fault_seconds=now_seconds, fault=name)
        if life.fault_seconds is None and hit & life.start.devices and not _is_past(life, now_seconds)
        else life
        for key, life in count.lives.items()
    }
    return _settle(replace(count, lives=lives), within_seconds, now_seconds)


def note_refusal(count: BrakeCount, gpus: Iterable[GpuUuid], reason: str, now_seconds: float) -> BrakeCount:
    """The count after a refused request for these GPUs; a refusal of the whole node is one of each GPU."""
    refusal = Refusal(at_seconds=now_seconds, reason=reason)
    return replace(count, refusals={**count.refusals, **{gpu: (*count.refusals.get(gpu, ()), refusal) for gpu in gpus}})


def forget_gpus(count: BrakeCount, gpus: Iterable[GpuUuid]) -> BrakeCount:
    """The count without the losses and refusals of these GPUs, which are settled by a closing or an opening."""
    gone = frozenset(gpus)
    lives = {
        name: replace(life, fault_seconds=None) if life.ended_seconds is not None and gone & life.start.gpus else life
        for name, life in count.lives.items()
    }
    return BrakeCount(
        lives=lives,
        losses={gpu: each for gpu, each in count.losses.items() if gpu not in gone},
        refusals={gpu: each for gpu, each in count.refusals.items() if gpu not in gone},
    )


def plan_brake(
    count: BrakeCount,
    kept: Iterable[Cordon],
    inventory: Inventory,
    settings: SignalsSettings,
    now_seconds: float,
    proven: Mapping[GpuUuid, float] = MappingProxyType({}),
) -> BrakePlan:
    """The brake's cordons for the count, with those kept so far; GPUs closed together are tried one after another.

    `proven` has the times at which GPUs passed the agent's own proof.
    """
    known = {cordon.gpu: _shorten(cordon, proven.get(cordon.gpu), now_seconds) for cordon in kept}
    gpus = (gpu.uuid for gpu in inventory.gpus)
    closed: list[Cordon] = []
    opened: list[GpuUuid] = []
    for gpu in dict.fromkeys((*known, *gpus)):
        before = known.get(gpu)
        if reason := _find_reason(count, gpu, before, settings, now_seconds):
            closings = 1 if before is None else before.closings + 1
            pause = find_pause(settings.brake_pause_seconds, closings) + len(closed) * settings.brake_within_seconds
            closed.append(
                Cordon(
                    gpu=gpu,
                    source=CordonSource.BRAKE,
                    named=gpu,
                    reason=reason,
                    until_seconds=now_seconds + pause,
                    since_seconds=now_seconds,
                    closings=closings,
                )
            )
        elif before is not None and before.is_over(now_seconds) and _is_proved(count, before, settings, now_seconds):
            opened.append(gpu)
    after = {**known, **{each.gpu: each for each in closed}}
    cordons = tuple(each for gpu, each in after.items() if gpu not in opened)
    left = forget_gpus(count, (*opened, *(each.gpu for each in closed)))
    waits = list(_list_waits(left, cordons, settings, now_seconds))
    return BrakePlan(
        cordons=cordons,
        count=left,
        closed=tuple(closed),
        opened=tuple(opened),
        wait_seconds=max(min(waits) - now_seconds, 0.0) if waits else None,
    )


def _shorten(cordon: Cordon, proven_seconds: float | None, now_seconds: float) -> Cordon:
    """The cordon of a GPU that has passed a proof since: its pause is over, and a start may try the GPU.

    A computation proves the GPU, and not what the GPU's pods died of: the GPU is opened by the start, and once a start
    has failed all the same, the pauses grow as without proofs.
    """
    is_news = proven_seconds is not None and (cordon.since_seconds or 0.0) < proven_seconds <= now_seconds
    is_first = cordon.closings == 1 and not cordon.is_over(now_seconds)
    return replace(cordon, until_seconds=now_seconds) if is_news and is_first else cordon


def find_pause(first_seconds: float, closings: int) -> float:
    """The pause before a start is let in again, twice as long after each closing in a row."""
    return min(first_seconds * 2.0 ** min(closings - 1, 32), max(PAUSE_LIMIT_SECONDS, first_seconds))


def list_in_force(count: BrakeCount, kept: Iterable[Cordon], now_seconds: float) -> tuple[Cordon, ...]:
    """The cordons whose pause is not over, and those of GPUs on which a start is being tried."""
    return tuple(each for each in kept if not each.is_over(now_seconds) or _is_taken(count, each))


def list_closing(cordons: Iterable[Cordon], node: ClusterNode | None, now_seconds: float) -> tuple[Cordon, ...]:
    """The new cordons of which schedulers do not know yet: until the node has the taint, they close no GPU."""
    if node is None or node.has_taint(BRAKE_TAINT):
        return ()
    return tuple(
        each
        for each in cordons
        if each.since_seconds is not None and 0.0 <= now_seconds - each.since_seconds < TAINT_AWAITED_SECONDS
    )


def list_trials(count: BrakeCount, kept: Iterable[Cordon], now_seconds: float) -> tuple[Cordon, ...]:
    """The cordons of GPUs that wait for the one start that is to prove them."""
    return tuple(each for each in kept if each.is_over(now_seconds) and not _is_taken(count, each))


def _is_taken(count: BrakeCount, cordon: Cordon) -> bool:
    return next(_list_tried(count, cordon), None) is not None


def _list_tried(count: BrakeCount, cordon: Cordon) -> Iterator[Life]:
    """The starts since the end of the cordon's pause."""
    return count.list_lives(cordon.gpu, cordon.until_seconds or 0.0)


def _find_reason(
    count: BrakeCount, gpu: GpuUuid, before: Cordon | None, settings: SignalsSettings, now_seconds: float
) -> str:
    """Why the GPU must be closed now; empty for no reason."""
    losses, refusals = count.losses.get(gpu, ()), count.refusals.get(gpu, ())
    if before is None:
        distinct = {each.fault_seconds: each for each in losses}
        if len(distinct) >= settings.brake_losses:
            return _tell_losses(list(distinct.values()), settings)
        if len(refusals) >= settings.brake_refusals:
            return f"{len(refusals)} requests for the GPU were refused within a minute: {refusals[-1].reason}"
        return ""
    since = before.until_seconds or 0.0
    if not before.is_over(now_seconds):
        return ""
    if tried := [each for each in losses if each.since_seconds >= since]:
        return _tell_losses(tried, settings)
    late = [each for each in refusals if each.at_seconds >= since]
    return f"a request for the GPU was refused: {late[-1].reason}" if late else ""


def _tell_losses(losses: Sequence[Loss], settings: SignalsSettings) -> str:
    names = ", ".join(dict.fromkeys(each.fault for each in losses))
    number = "a start" if len(losses) == 1 else f"{len(losses)} starts"
    return f"{number} ended within {settings.brake_within_seconds:g} s, beside {names} of the GPU"


def _is_proved(count: BrakeCount, cordon: Cordon, settings: SignalsSettings, now_seconds: float) -> bool:
    """Whether a start since the pause has lasted, or all of them have ended well."""
    tried = list(_list_tried(count, cordon))
    if any(_has_lasted(each, settings.brake_within_seconds, now_seconds) for each in tried):
        return True
    return bool(tried) and all(_is_past(each, now_seconds) for each in tried)


def _has_lasted(life: Life, within_seconds: float, now_seconds: float) -> bool:
    end = now_seconds if life.ended_seconds is None else life.ended_seconds
    return end - life.start.since_seconds > within_seconds


def _is_past(life: Life, now_seconds: float) -> bool:
    """Whether the start ended so long ago that no report of the driver is about it any more."""
    return life.ended_seconds is not None and now_seconds - life.ended_seconds >= ENDED_SECONDS


def _list_waits(
    count: BrakeCount, cordons: Iterable[Cordon], settings: SignalsSettings, now_seconds: float
) -> Iterator[float]:
    """The times at which time alone changes the answer."""
    for each in cordons:
        if not each.is_over(now_seconds):
            yield each.until_seconds or 0.0
        for life in _list_tried(count, each):
            if life.ended_seconds is None:
                yield life.start.since_seconds + settings.brake_within_seconds + 1.0
            else:
                yield life.ended_seconds + ENDED_SECONDS


def _settle(count: BrakeCount, within_seconds: float, now_seconds: float) -> BrakeCount:
    """Count what is lost now, and forget what is old or outlived."""
    losses = {gpu: list(each) for gpu, each in count.losses.items()}
    for life in count.lives.values():
        if life.is_lost(within_seconds) and life.fault_seconds is not None:
            loss = Loss(since_seconds=life.start.since_seconds, fault_seconds=life.fault_seconds, fault=life.fault)
            for gpu in life.start.gpus:
                losses[gpu] = [*(one for one in losses.get(gpu, ()) if one != loss), loss]
    outlived = {
        gpu: max(
            (
                life.start.since_seconds
                for life in count.list_lives(gpu)
                if _has_lasted(life, within_seconds, now_seconds)
            ),
            default=0.0,
        )
        for gpu in losses
    }
    return BrakeCount(
        lives={
            name: life
            for name, life in count.lives.items()
            if life.ended_seconds is None or now_seconds - life.ended_seconds < 2 * ENDED_SECONDS
        },
        losses={
            gpu: left
            for gpu, each in losses.items()
            if (
                left := tuple(
                    one
                    for one in each
                    if now_seconds - one.fault_seconds < WINDOW_SECONDS and one.fault_seconds >= outlived[gpu]
                )
            )
        },
        refusals={
            gpu: recent
            for gpu, each in count.refusals.items()
            if (recent := tuple(one for one in each if now_seconds - one.at_seconds < REFUSED_SECONDS))
        },
    )

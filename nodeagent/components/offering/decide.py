"""The allocation modes of all GPUs, and the conditions about modes; pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.model.allocation import Allocation
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.gpu import Gpu, MissingGpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder, Offering
from nodeagent.rules.offer.allocation_modes import (
    decide_allocation_mode,
    list_claim_holders,
    list_fraction_holders,
    list_holders,
    plan_allocation_modes,
)

NO_FRACTIONS: Final = FractionTable()
NO_CLAIMS: Final = ReadyClaims()


class Switch(NamedTuple):
    """Whether a component serves an allocation mode, and the setting that decides."""

    is_on: bool
    setting: str = ""
    """Empty for a mode that is always served."""


def find_switch(door: AllocationMode, settings: Settings) -> Switch:
    """The switch of an allocation mode."""
    match door:
        case AllocationMode.WHOLE | AllocationMode.NONE:
            return Switch(is_on=True)
        case AllocationMode.FRACTIONS:
            return Switch(settings.fractions.enabled, "fractions.enabled")
        case AllocationMode.CLAIMS:
            return Switch(settings.claims.enabled, "claims.enabled")
    assert_never(door)


def list_served(settings: Settings) -> frozenset[AllocationMode]:
    """Allocation modes with a component that gives out GPUs; other modes give out nothing."""
    return frozenset(mode for mode in AllocationMode if find_switch(mode, settings).is_on)


def plan_offering(
    gpus: Iterable[Gpu],
    settings: Settings,
    chosen: Mapping[GpuUuid, AllocationMode],
    allocations: Iterable[Allocation],
    parts: FractionTable = NO_FRACTIONS,
    claims: ReadyClaims = NO_CLAIMS,
    missing: Sequence[MissingGpu] = (),
) -> Offering:
    """The allocation mode of each GPU: by configuration and a person's choice, once holders allow the change."""
    known = {gpu.uuid: gpu for gpu in gpus}
    plan = plan_allocation_modes(known.values(), settings, chosen, missing)
    held, served = tuple(allocations), list_served(settings)
    modes = (
        decide_allocation_mode(
            request,
            tuple(
                one for mode in AllocationMode for one in _list_holders(mode, known[request.gpu], held, parts, claims)
            )
            if _is_anybody_elsewhere(request.door, held, parts, claims)
            else (),
            settings.doors.change,
        )
        for request in plan.requests
    )
    return Offering(
        doors=tuple(mode if mode.door in served else replace(mode, is_open=False) for mode in modes),
        problems=(*plan.conflicts, *plan.unmatched),
        undecided=_describe_undecided(plan.undecided, missing),
    )


def cordon_offering(
    offering: Offering,
    cordons: Iterable[Cordon],
    gpus: Iterable[Gpu],
    allocations: Iterable[Allocation],
    parts: FractionTable = NO_FRACTIONS,
    claims: ReadyClaims = NO_CLAIMS,
    *,
    closing: Collection[Cordon] = (),
) -> Offering:
    """The offering with the cordoned GPUs closed to new pods; a cordon changes no allocation mode.

    The cordons that are only `closing` are told, and close nothing yet.
    """
    by_gpu: dict[GpuUuid, tuple[Cordon, ...]] = {}
    for cordon in cordons:
        by_gpu[cordon.gpu] = (*by_gpu.get(cordon.gpu, ()), cordon)
    if not by_gpu:
        return offering
    known, held = {gpu.uuid: gpu for gpu in gpus}, tuple(allocations)

    def close(mode: GpuAllocationMode) -> GpuAllocationMode:
        if mode.gpu not in by_gpu:
            return mode
        holders = (_list_holders(each, known[mode.gpu], held, parts, claims) for each in AllocationMode)
        return replace(
            mode,
            is_open=mode.is_open and all(each in closing for each in by_gpu[mode.gpu]),
            cordons=by_gpu[mode.gpu],
            held_by=tuple(one for each in holders for one in each),
        )

    return replace(offering, doors=tuple(map(close, offering.doors)))


def mark_trials(offering: Offering, trials: Mapping[GpuUuid, Cordon]) -> Offering:
    """The offering with the GPUs of which a single device may be taken, to prove the GPU."""
    if not trials:
        return offering
    doors = (replace(each, trial=trials.get(each.gpu)) if each.is_open else each for each in offering.doors)
    return replace(offering, doors=tuple(doors))


def _describe_undecided(names: Sequence[str], missing: Sequence[MissingGpu]) -> str:
    """The GPUs that do not answer, and the rules that may mean such a GPU."""
    silent = ", ".join(f"{one.address or 'a GPU'} ({one.reason})" for one in missing)
    return f"{silent} may be meant by {' and '.join(names)}; that is decided when it answers" if names else ""


def _is_anybody_elsewhere(
    door: AllocationMode, held: Sequence[Allocation], parts: FractionTable, claims: ReadyClaims
) -> bool:
    """Whether a holder came by another mode than the wanted mode."""
    return any(_is_taken(each, held, parts, claims) for each in AllocationMode if each is not door)


def _is_taken(door: AllocationMode, held: Sequence[Allocation], parts: FractionTable, claims: ReadyClaims) -> bool:
    """Whether any GPU has a holder by the allocation mode."""
    match door:
        case AllocationMode.WHOLE:
            return bool(held)
        case AllocationMode.FRACTIONS:
            return bool(parts.bindings)
        case AllocationMode.CLAIMS:
            return bool(claims.claims)
        case AllocationMode.NONE:
            return False
    assert_never(door)


def _list_holders(
    door: AllocationMode, gpu: Gpu, held: Sequence[Allocation], parts: FractionTable, claims: ReadyClaims
) -> tuple[ModeHolder, ...]:
    """The holders of a GPU by the allocation mode."""
    match door:
        case AllocationMode.WHOLE:
            return list_holders(gpu, held, door)
        case AllocationMode.FRACTIONS:
            return list_fraction_holders(gpu.uuid, parts)
        case AllocationMode.CLAIMS:
            return list_claim_holders(gpu.uuid, claims)
        case AllocationMode.NONE:
            return ()
    assert_never(door)


def decide_conditions(offering: Offering, served: frozenset[AllocationMode]) -> dict[str, dict[str, str]]:
    """By code the details of conditions by GPU; empty for a condition that does not hold."""
    return {
        "doors-unclear": {"": "; ".join(offering.problems)} if offering.problems else {},
        "door-undecided": {"": offering.undecided} if offering.undecided else {},
        "door-unserved": {
            each.gpu: f"GPU {each.index}: door {each.wanted} ({each.reason})"
            for each in offering.doors
            if each.wanted not in served
        },
        "gpu-cordoned": {
            each.gpu: each.describe()
            for each in offering.doors
            if any(one.source is not CordonSource.BRAKE for one in each.cordons)
        },
        "door-waits": {each.gpu: each.describe() for each in offering.doors if not each.is_settled},
    }

"""The allocation modes of all GPUs, and the conditions about modes; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.model.allocation import Allocation
from nodeagent.model.claims import ClaimBook
from nodeagent.model.gpu import Gpu, MissingGpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PartTable
from nodeagent.model.offering import Door, DoorHolder, Offering
from nodeagent.rules.offer.doors import decide_door, list_claim_holders, list_holders, list_part_holders, plan_doors

NO_PARTS: Final = PartTable()
NO_CLAIMS: Final = ClaimBook()


class Switch(NamedTuple):
    """Whether a component serves an allocation mode, and the setting that decides."""

    is_on: bool
    setting: str = ""
    """Empty for a mode that is always served."""


def find_switch(door: Door, settings: Settings) -> Switch:
    """The switch of an allocation mode."""
    match door:
        case Door.WHOLE | Door.NONE:
            return Switch(is_on=True)
        case Door.FRACTIONS:
            return Switch(settings.fractions.enabled, "fractions.enabled")
        case Door.CLAIMS:
            return Switch(settings.claims.enabled, "claims.enabled")
    assert_never(door)


def list_served(settings: Settings) -> frozenset[Door]:
    """Allocation modes with a component that gives out GPUs; other modes give out nothing."""
    return frozenset(door for door in Door if find_switch(door, settings).is_on)


def plan_offering(
    gpus: Iterable[Gpu],
    settings: Settings,
    chosen: Mapping[GpuUuid, Door],
    allocations: Iterable[Allocation],
    parts: PartTable = NO_PARTS,
    claims: ClaimBook = NO_CLAIMS,
    missing: Sequence[MissingGpu] = (),
) -> Offering:
    """The allocation mode of each GPU: by configuration and a person's choice, once holders allow the change."""
    known = {gpu.uuid: gpu for gpu in gpus}
    plan = plan_doors(known.values(), settings, chosen, missing)
    held, served = tuple(allocations), list_served(settings)
    doors = (
        decide_door(
            wish,
            tuple(one for door in Door for one in _list_holders(door, known[wish.gpu], held, parts, claims))
            if _is_anybody_elsewhere(wish.door, held, parts, claims)
            else (),
            settings.doors.change,
        )
        for wish in plan.wishes
    )
    return Offering(
        doors=tuple(door if door.door in served else replace(door, is_open=False) for door in doors),
        problems=(*plan.conflicts, *plan.unmatched),
        undecided=_describe_undecided(plan.undecided, missing),
    )


def _describe_undecided(names: Sequence[str], missing: Sequence[MissingGpu]) -> str:
    """The GPUs that do not answer, and the rules that may mean such a GPU."""
    silent = ", ".join(f"{one.address or 'a GPU'} ({one.reason})" for one in missing)
    return f"{silent} may be meant by {' and '.join(names)}; that is decided when it answers" if names else ""


def _is_anybody_elsewhere(door: Door, held: Sequence[Allocation], parts: PartTable, claims: ClaimBook) -> bool:
    """Whether a holder came by another mode than the wanted mode."""
    return any(_is_taken(each, held, parts, claims) for each in Door if each is not door)


def _is_taken(door: Door, held: Sequence[Allocation], parts: PartTable, claims: ClaimBook) -> bool:
    """Whether any GPU has a holder by the allocation mode."""
    match door:
        case Door.WHOLE:
            return bool(held)
        case Door.FRACTIONS:
            return bool(parts.bindings)
        case Door.CLAIMS:
            return bool(claims.claims)
        case Door.NONE:
            return False
    assert_never(door)


def _list_holders(
    door: Door, gpu: Gpu, held: Sequence[Allocation], parts: PartTable, claims: ClaimBook
) -> tuple[DoorHolder, ...]:
    """The holders of a GPU by the allocation mode."""
    match door:
        case Door.WHOLE:
            return list_holders(gpu, held, door)
        case Door.FRACTIONS:
            return list_part_holders(gpu.uuid, parts)
        case Door.CLAIMS:
            return list_claim_holders(gpu.uuid, claims)
        case Door.NONE:
            return ()
    assert_never(door)


def decide_conditions(offering: Offering, served: frozenset[Door]) -> dict[str, dict[str, str]]:
    """By code the details of conditions by GPU; empty for a condition that does not hold."""
    return {
        "doors-unclear": {"": "; ".join(offering.problems)} if offering.problems else {},
        "door-undecided": {"": offering.undecided} if offering.undecided else {},
        "door-unserved": {
            each.gpu: f"GPU {each.index}: door {each.wanted} ({each.reason})"
            for each in offering.doors
            if each.wanted not in served
        },
        "door-waits": {each.gpu: each.describe() for each in offering.doors if not each.is_settled},
    }

"""The doors of all GPUs as they are now, and what is to be said of them; pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.model.allocation import Allocation
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PartTable
from nodeagent.model.offering import Door, Offering
from nodeagent.rules.offer.doors import decide_door, list_holders, list_part_holders, plan_doors

NO_PARTS: Final = PartTable()


def list_served(settings: Settings) -> frozenset[Door]:
    """Doors behind which somebody stands; the others give nothing to anybody."""
    return frozenset({Door.WHOLE, Door.NONE} | ({Door.FRACTIONS} if settings.fractions.enabled else set()))


def plan_offering(
    gpus: Iterable[Gpu],
    settings: Settings,
    chosen: Mapping[GpuUuid, Door],
    allocations: Iterable[Allocation],
    parts: PartTable = NO_PARTS,
) -> Offering:
    """The door of each GPU: as configured, as a person has chosen, and as those allow who have it."""
    known = {gpu.uuid: gpu for gpu in gpus}
    plan = plan_doors(known.values(), settings, chosen)
    held, served = tuple(allocations), list_served(settings)
    doors = (
        decide_door(
            wish,
            (*list_holders(known[wish.gpu], held, Door.WHOLE), *list_part_holders(wish.gpu, parts))
            # Where all came through the one that is wanted, nobody is in the way and nobody is looked for.
            if wish.door is not Door.WHOLE or parts.bindings
            else (),
            settings.doors.change,
        )
        for wish in plan.wishes
    )
    return Offering(
        doors=tuple(door if door.door in served else replace(door, is_open=False) for door in doors),
        problems=(*plan.conflicts, *plan.unmatched),
    )


def decide_conditions(offering: Offering, served: frozenset[Door]) -> dict[str, dict[str, str]]:
    """By code, what is said of whom; all codes are there, those that are not true are empty."""
    return {
        "doors-unclear": {"": "; ".join(offering.problems)} if offering.problems else {},
        "door-unserved": {
            each.gpu: f"GPU {each.index}: door {each.wanted} ({each.reason})"
            for each in offering.doors
            if each.wanted not in served
        },
        "door-waits": {each.gpu: each.describe() for each in offering.doors if not each.is_settled},
    }

"""The slices in words and numbers, for conditions and the bus; pure."""

from collections.abc import Sequence

from nodeagent.components.slices.plan import Abilities
from nodeagent.model.slices import KEEPING_AWAY, PublishedSlices, SliceContent, SlicePool


def summarise(pool: SlicePool, contents: Sequence[SliceContent], generation: int) -> PublishedSlices:
    """The published slices, counted."""
    devices = [device for content in contents for device in content.devices]
    return PublishedSlices(
        driver=pool.driver,
        pool=pool.node,
        generation=generation,
        slices=len(contents),
        devices=len(devices),
        tainted=tuple(one.name for one in devices if any(taint.effect in KEEPING_AWAY for taint in one.taints)),
    )


def explain_dropped(abilities: Abilities) -> str:
    """The fields that the API server drops, by the missing feature gate, and the agent's way out."""
    said = [
        text
        for is_kept, text in (
            (abilities.taints, "taints (DRADeviceTaints): devices that are not well are left out"),
            (abilities.counters, "counters (DRAPartitionableDevices): GPUs are offered as they are cut now"),
            (abilities.shares, "shares (DRAConsumableCapacity): one claim has a GPU"),
        )
        if not is_kept
    ]
    return "the API server does not keep " + ("; ".join(said) or "all of what it was written, as its answer shows")

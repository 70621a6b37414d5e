"""The contents of this node's slices: every device for claims, packed within the limits of the API.

Owns the limits of a slice and the order of devices. A scheduler takes the first fitting device, so GPUs come in their
order and MIG devices of one GPU follow one another. Refuses contents that the API server drops: without taints an ill
device is left out, and without counters no GPU is divided.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from nodeagent.components.slices.describe import (
    can_be_shared,
    count_gpu,
    count_need,
    describe_capacity,
    describe_shares,
)
from nodeagent.components.slices.taints import decide_taints, explain_closed
from nodeagent.config.sections.claims import BY_MEMORY, TaintRule
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.mig import MigState
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.slices import (
    KEEPING_AWAY,
    CounterSet,
    DeviceTaint,
    PublishedSlices,
    SliceContent,
    SliceDevice,
    SlicePool,
)
from nodeagent.model.values import Value
from nodeagent.rules.claims.attributes import DeviceFacts, describe_attributes
from nodeagent.rules.claims.naming import NamedDevice, list_devices, list_places

DEVICES_MAX: Final = 64
"""The most devices of a slice with taints or counters; kept without taints too, so that a taint moves no device."""
SETS_MAX: Final = 8
_TAINTS_MAX: Final = 16
"""The most taints of a device."""
_FEW_TAINTS: Final = 4
"""The most taints of a device before Kubernetes 1.35."""


class Abilities(Value, frozen=True):
    """The fields that the API server keeps; fields without their feature gate are dropped silently."""

    taints: bool = True
    many_taints: bool = True
    """More than four taints of a device, and the effect `None`; versions before 1.35 take neither."""
    counters: bool = True
    shares: bool = True
    binding: bool = True


class Choices(Value, frozen=True):
    """The settings of slices."""

    driver: str
    on_demand: bool = False
    shares: bool = False
    share_by: str = BY_MEMORY
    proves_first: bool = False
    """Whether a pod that gets a GPU is bound only after a proof of the GPU."""
    taints: tuple[TaintRule, ...] = ()


class Sight(Value, frozen=True):
    """All inputs of slices."""

    inventory: Inventory
    health: HealthReport
    offering: Offering
    choices: Choices
    facts: DeviceFacts = DeviceFacts()
    mig: MigState | None = None
    abilities: Abilities = Abilities()


def plan_contents(sight: Sight) -> tuple[SliceContent, ...]:
    """The slices of this node, in order; an empty slice where the node has no device to give."""
    on_demand = sight.choices.on_demand and sight.abilities.counters
    named = list_devices(sight.inventory, sight.offering.list_behind(AllocationMode.CLAIMS), on_demand=on_demand)
    sets, groups = [], []
    for _, found in groupby(named, lambda one: one.gpu.uuid):
        devices = tuple(found)
        gpu = devices[0].gpu
        is_cut = on_demand and bool(list_places(gpu))
        if is_cut:
            sets.append(count_gpu(gpu))
        groups.append(tuple(_render_group(sight, devices, on_demand=is_cut)))
    return (
        *(SliceContent(counter_sets=chunk) for chunk in _chunk(sets)),
        *(SliceContent(devices=devices) for devices in pack(groups)),
    )


def _chunk(sets: Sequence[CounterSet]) -> Iterator[tuple[CounterSet, ...]]:
    for first in range(0, len(sets), SETS_MAX):
        yield tuple(sets[first : first + SETS_MAX])


def pack(groups: Iterable[Sequence[SliceDevice]]) -> Iterator[tuple[SliceDevice, ...]]:
    """As few slices as possible, with the devices of a GPU together where they fit."""
    page: list[SliceDevice] = []
    for group in groups:
        if page and len(page) + len(group) > DEVICES_MAX:
            yield tuple(page)
            page = []
        page.extend(group)
        while len(page) > DEVICES_MAX:
            yield tuple(page[:DEVICES_MAX])
            page = page[DEVICES_MAX:]
    # Empty where there is no device at all: a pool without a slice is unknown to the cluster.
    yield tuple(page)


def _render_group(sight: Sight, devices: Iterable[NamedDevice], *, on_demand: bool) -> Iterator[SliceDevice]:
    for device in devices:
        taints = _decide_taints(sight, device)
        if sight.abilities.taints or not any(taint.effect in KEEPING_AWAY for taint in taints):
            yield _render(sight, device, taints if sight.abilities.taints else (), on_demand=on_demand)


def _decide_taints(sight: Sight, device: NamedDevice) -> tuple[DeviceTaint, ...]:
    driver = sight.choices.driver
    taints = (
        *explain_closed(device, driver, sight.offering, mig=sight.mig),
        *decide_taints(device, sight.health, driver, sight.choices.taints),
    )
    # The worst come first; with one taint too many the API server would refuse the whole slice.
    if sight.abilities.many_taints:
        return taints[:_TAINTS_MAX]
    return tuple(taint for taint in taints if taint.effect in KEEPING_AWAY)[:_FEW_TAINTS]


def _render(sight: Sight, device: NamedDevice, taints: tuple[DeviceTaint, ...], *, on_demand: bool) -> SliceDevice:
    is_shared = sight.choices.shares and sight.abilities.shares and not on_demand and can_be_shared(device)
    capacity = (
        describe_shares(device, sight.choices.share_by) if is_shared else describe_capacity(device, on_demand=on_demand)
    )
    return SliceDevice(
        name=device.name,
        attributes=describe_attributes(device, sight.facts, on_demand=on_demand),
        capacity=capacity,
        consumes=count_need(device) if on_demand else None,
        taints=taints,
        is_shared=is_shared,
        # A MIG device cannot be proven without the rest of its GPU.
        is_proven_first=device.is_gpu and sight.choices.proves_first and sight.abilities.binding,
    )


def judge_kept(written: SliceContent, kept: SliceContent | None, before: Abilities) -> Abilities:
    """The usable fields from now on, by the difference between the written and the kept slice."""
    if kept is None or kept == written:
        return before
    found = {one.name: one for one in kept.devices}
    pairs = [(one, found[one.name]) for one in written.devices if one.name in found]
    return Abilities(
        taints=before.taints and not any(ours.taints and not theirs.taints for ours, theirs in pairs),
        many_taints=before.many_taints,
        counters=before.counters
        and len(written.counter_sets) == len(kept.counter_sets)
        and not any(ours.consumes is not None and theirs.consumes is None for ours, theirs in pairs),
        shares=before.shares and not any(ours.is_shared and not theirs.is_shared for ours, theirs in pairs),
        binding=before.binding
        and not any(ours.is_proven_first and not theirs.is_proven_first for ours, theirs in pairs),
    )


def judge_refused(message: str, before: Abilities) -> Abilities:
    """The usable fields from now on, by the message to a slice that the API server's version does not take."""
    if "ounter" in message:
        return replace(before, counters=False)
    if "taints" in message:
        return replace(before, many_taints=False)
    return before


def list_fields(content: SliceContent) -> frozenset[str]:
    """The fields of a content that not every API server keeps."""
    devices = content.devices
    used = {
        "sharedCounters": bool(content.counter_sets),
        "consumesCounters": any(one.consumes is not None for one in devices),
        "taints": any(one.taints for one in devices),
        "many taints": any(
            len(one.taints) > _FEW_TAINTS or any(taint.effect not in KEEPING_AWAY for taint in one.taints)
            for one in devices
        ),
        "allowMultipleAllocations": any(one.is_shared for one in devices),
        "bindingConditions": any(one.is_proven_first for one in devices),
    }
    return frozenset(name for name, is_used in used.items() if is_used)


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
            (abilities.many_taints, "more than four taints or the effect None: the four worst are told"),
            (abilities.counters, "counters (DRAPartitionableDevices): GPUs are offered as they are cut now"),
            (abilities.shares, "shares (DRAConsumableCapacity): one claim has a GPU"),
            (
                abilities.binding,
                "binding conditions (DRADeviceBindingConditions): pods are bound without a proof of their GPUs",
            ),
        )
        if not is_kept
    ]
    return "the API server does not keep " + ("; ".join(said) or "all of what it was written, as its answer shows")

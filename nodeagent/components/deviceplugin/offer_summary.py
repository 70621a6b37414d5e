"""The account of devices that pods cannot get: present, stored and expected GPUs, less the offered, with reasons.

Owns the account and the conditions of it; lost, missing and vanished GPUs are reported by their finders.
Refuses to leave a device over: either it is offered as healthy, or the account has its reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from nodeagent.components.deviceplugin.advertise import View, explain_loss, explain_unfitness
from nodeagent.config.schema import Settings
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.ids import GpuUuid, ResourceName
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.plugin import AdvertisedResource, OfferSummary, Unoffered, UnofferedCause, name_all
from nodeagent.model.slices import PublishedSlices
from nodeagent.rules.ids import name_device, parse_device_id
from nodeagent.rules.offer.devices import PluginDevice, ResourcePlan
from nodeagent.rules.selectors import is_for_work, select_gpus, selects_gpu

NOTHING_ELSEWHERE: Final[Mapping[GpuUuid, str]] = MappingProxyType({})
_UNTOLD: Final = "the kubelet has not been told of it (yet)"
_UNTOLD_SCHEDULERS: Final = "schedulers have not been told of it (yet)"
TOLD_HERE: Final = (UnofferedCause.UNFIT, UnofferedCause.UNTOLD)
"""Causes that no other condition is sure to report."""


def list_offered(resources: Iterable[AdvertisedResource]) -> frozenset[str]:
    """UUIDs of healthy devices of registered resources."""
    return frozenset(
        parse_device_id(device.id)[0]
        for resource in resources
        if resource.registered
        for device in resource.devices
        if device.healthy
    )


def find_parted(parts: FractionOffers, standing: Mapping[ResourceName, AdvertisedResource]) -> dict[GpuUuid, str]:
    """The GPUs given in fractions, and why no fraction can be had; empty where some can."""
    told = all(standing[name].registered and standing[name].devices for name in parts.resources if name in standing)
    untold = "" if told and parts.resources and standing.keys() >= set(parts.resources) else _UNTOLD
    return {gpu: reason or untold for gpu, reason in parts.unfit.items()}


def find_claimed(offering: Offering | None, slices: PublishedSlices | None, view: View) -> dict[GpuUuid, str]:
    """The GPUs given by claims, and why no device can be had; empty where some can."""
    # Published slices stay published while the API server is away.
    untold = "" if slices is not None and slices.devices else (slices and slices.problem) or _UNTOLD_SCHEDULERS
    claimed = offering.list_open(AllocationMode.CLAIMS) if offering is not None else ()
    return {gpu: explain_loss(gpu, view) or untold for gpu in claimed}


def plan_summary(
    inventory: Inventory,
    settings: Settings,
    plan: ResourcePlan,
    view: View,
    offered: frozenset[str],
    elsewhere: Mapping[GpuUuid, str] = NOTHING_ELSEWHERE,
) -> OfferSummary:
    """The account of the node; `offered` are the devices of `plan` that the kubelet may hand out.

    `elsewhere` are the GPUs given in fractions or by claims, and why none can be had of each; empty where some can.
    """
    selected = select_gpus(inventory.gpus, settings.gpus.include, settings.gpus.exclude)
    chosen = {id(gpu) for gpu in selected}
    planned: dict[str, dict[str, PluginDevice]] = {}
    for resource in plan.resources:
        for device in resource.devices:
            planned.setdefault(device.gpu, {})[device.uuid] = device
    unoffered: list[Unoffered] = []
    for gpu in inventory.gpus:
        if id(gpu) not in chosen:
            unoffered.append(_explain_exclusion(gpu, settings, is_any=bool(selected)))
        elif gpu.uuid in view.cordoned:
            unoffered.append(_tell(gpu, None, UnofferedCause.CORDONED, view.cordoned[gpu.uuid]))
        elif gpu.uuid in elsewhere:
            if reason := elsewhere[gpu.uuid]:
                unoffered.append(_tell(gpu, None, UnofferedCause.UNFIT, reason))
        elif gpu.uuid in view.closed:
            cause = UnofferedCause.DRAINING if gpu.uuid in view.draining else UnofferedCause.DOOR
            unoffered.append(_tell(gpu, None, cause, view.closed[gpu.uuid]))
        else:
            unoffered += _explain_gpu(gpu, planned.get(gpu.uuid, {}), plan, view, offered)
    unoffered += _list_absent(inventory)
    absent = len(inventory.unlisted) + len(inventory.vanished) + inventory.shortfall
    return OfferSummary(
        gpus=len(inventory.gpus) + absent,
        devices_offered=len(offered) + sum(not reason for reason in elsewhere.values()),
        unoffered=tuple(unoffered),
    )


def _explain_exclusion(gpu: Gpu, settings: Settings, *, is_any: bool) -> Unoffered:
    excluding = [selector for selector in settings.gpus.exclude if selects_gpu(selector, gpu)]
    if not is_for_work(gpu):
        reason = f"a {gpu.name} is no GPU to work with"
    elif excluding:
        reason = f"`gpus.exclude` names it by {excluding[0]!r}"
    else:
        reason = f"`gpus.include` is {', '.join(map(repr, settings.gpus.include))} and does not name it"
    is_slip = not is_any and not excluding and is_for_work(gpu)
    cause = UnofferedCause.UNSELECTED if is_slip else UnofferedCause.EXCLUDED
    return Unoffered(device=gpu.uuid, gpu=gpu.uuid, name=f"GPU {gpu.index}", cause=cause, reason=reason)


def _explain_gpu(
    gpu: Gpu, planned: Mapping[str, PluginDevice], plan: ResourcePlan, view: View, offered: frozenset[str]
) -> tuple[Unoffered, ...]:
    """The unoffered devices of a GPU to be offered: the whole GPU, or its MIG devices."""
    parts = gpu.mig_devices
    if not parts or gpu.uuid in planned:
        whole = _explain_device(gpu, None, planned.get(gpu.uuid), plan, view, offered)
        if whole is not None:
            return (whole,)
        reason = "`device_plugin.mig_strategy` is none: pods get the GPU as a whole"
        return tuple(_tell(gpu, part, UnofferedCause.PARTITIONED, reason) for part in parts)
    explained = (_explain_device(gpu, part, planned.get(part.uuid), plan, view, offered) for part in parts)
    found = tuple(one for one in explained if one is not None)
    if len(found) == len(parts) and len({one.cause for one in found}) == 1:
        # A cause shared by all MIG devices is the GPU's own, and listed once.
        return (_tell(gpu, None, found[0].cause, "; ".join(dict.fromkeys(one.reason for one in found))),)
    return found


def _explain_device(
    gpu: Gpu,
    mig: MigDevice | None,
    device: PluginDevice | None,
    plan: ResourcePlan,
    view: View,
    offered: frozenset[str],
) -> Unoffered | None:
    if device is None:
        return _tell(gpu, mig, UnofferedCause.WITHHELD, _find_problem(gpu, mig, plan))
    if device.withheld:
        return _tell(gpu, mig, UnofferedCause.WITHHELD, device.withheld)
    if unfit := explain_unfitness(device, view):
        return _tell(gpu, mig, UnofferedCause.UNFIT, unfit)
    if device.uuid not in offered:
        return _tell(gpu, mig, UnofferedCause.UNTOLD, _UNTOLD)
    return None


def _tell(gpu: Gpu, mig: MigDevice | None, cause: UnofferedCause, reason: str) -> Unoffered:
    uuid = gpu.uuid if mig is None else mig.uuid
    return Unoffered(device=uuid, gpu=gpu.uuid, name=name_device(gpu, mig), cause=cause, reason=reason)


def _find_problem(gpu: Gpu, mig: MigDevice | None, plan: ResourcePlan) -> str:
    """The plan's problem with a device, or else all problems."""
    subjects = {f"GPU {gpu.index}"} if mig is None else {f"GPU {gpu.index}", str(mig.uuid)}
    own = [problem.reason for problem in plan.problems if problem.subject in subjects]
    return "; ".join(own or [f"{problem.subject}: {problem.reason}" for problem in plan.problems])


def _list_absent(inventory: Inventory) -> Iterator[Unoffered]:
    for lost in inventory.unlisted:
        at = lost.address
        yield Unoffered(device=at, gpu=at, name=at, cause=UnofferedCause.MISSING, reason=lost.reason)
    for gone in inventory.vanished:
        yield Unoffered(
            device=gone.uuid,
            gpu=gone.uuid,
            name=f"GPU {gone.index} ({gone.uuid})",
            cause=UnofferedCause.VANISHED,
            reason="the node had it and has it no more",
        )
    for number in range(1, inventory.shortfall + 1):
        name = f"expected {number}"
        reason = f"{inventory.expected_by} counts it"
        yield Unoffered(device=name, gpu=name, name="a GPU", cause=UnofferedCause.EXPECTED, reason=reason)


def decide_conditions(account: OfferSummary) -> dict[str, dict[str, str]]:
    """By code, the subjects with their details; all codes are present, false conditions empty."""
    found: dict[str, dict[str, str]] = {
        "gpu-excluded": {},
        "gpu-door": {},
        "gpu-include-empty": {},
        "mig-not-offered": {},
        "gpu-not-offered": {},
        "nothing-offered": {},
    }
    by_cause: dict[UnofferedCause, list[Unoffered]] = {}
    for one in account.unoffered:
        by_cause.setdefault(one.cause, []).append(one)
    for one in by_cause.get(UnofferedCause.EXCLUDED, ()):
        found["gpu-excluded"][one.gpu] = f"{one.name}: {one.reason}"
    for one in by_cause.get(UnofferedCause.DOOR, ()):
        found["gpu-door"][one.gpu] = f"{one.name}: {one.reason}"
    if unselected := by_cause.get(UnofferedCause.UNSELECTED):
        found["gpu-include-empty"][""] = f"{name_all(unselected)}: {unselected[0].reason}"
    parts = by_cause.get(UnofferedCause.PARTITIONED, [])
    for gpu, count in Counter(one.gpu for one in parts).items():
        first = next(one for one in parts if one.gpu == gpu)
        name = first.name.partition(":")[0]
        found["mig-not-offered"][gpu] = f"{name}: {count} MIG {'device' if count == 1 else 'devices'}: {first.reason}"
    for cause in TOLD_HERE:
        for one in by_cause.get(cause, ()):
            found["gpu-not-offered"][one.device] = f"{one.name}: {one.reason}"
    if account.gpus and not account.devices_offered:
        found["nothing-offered"][""] = account.describe()
    return found

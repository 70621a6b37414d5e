"""The devices of a claim on the node, with sharing and CDI names; pure.

Owns the checks of an allocation: driver and pool are the node's, and the devices exist, are whole or can be cut, and
are open in allocation mode `claims`.
Refuses to guess. An error belongs to a single claim, names device and fault, and reaches the pod's event.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.components.claims.metadata import find_pod_claim_name
from nodeagent.components.claims.opaque import (
    ALL_CORES,
    INTERVALS,
    PlacedRequest,
    SharingRequest,
    choose_config,
    read_configs,
)
from nodeagent.components.claims.sharing import OWN, find_turn
from nodeagent.model.claims import ClaimReference, ClaimResult, DeviceAnswer, DeviceHealth, ResourceClaim
from nodeagent.model.errors import ClaimRefused, MpsRefused
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import DeviceUuid, GpuUuid, MigUuid
from nodeagent.model.journal import ClaimSharing, EndedClaim, GpuFraction, PreparedClaim, PreparedDevice, SharingWay
from nodeagent.model.mig import PartitionRequest
from nodeagent.model.mps import MpsLimits
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.rules.cdi_names import CLAIM_KIND, qualify
from nodeagent.rules.claims.naming import NamedDevice, find_device
from nodeagent.rules.claims.quantity import QuantityUnreadable, parse_quantity
from nodeagent.rules.mps.limits import MIB, find_most_clients, resolve_limits

DEVICES_MAX: Final = 128
"""Devices that one claim may have; the API allows 32, and may allow more some day."""
_UID: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


class Powers(NamedTuple):
    """The agent's abilities for a claim beyond existing devices."""

    makes_mig_devices: bool = False
    runs_mps: bool = False
    holds_shares: bool = False
    sets_turns: bool = False


class NodeView(NamedTuple):
    """All of the node on which the answer to a claim depends."""

    inventory: Inventory
    offering: Offering
    driver: str
    pool: str
    powers: Powers = Powers()
    has_metadata: bool = False
    """Whether new claims get metadata files."""


def check_reference(reference: ClaimReference) -> None:
    """Check that a claim can be named in a file and to the API server.

    Raises:
        ClaimRefused: The uid is malformed, or namespace or name is empty.
    """
    if not _UID.fullmatch(reference.uid):
        raise ClaimRefused(f"claim {reference.describe()[:200]} has the uid {reference.uid[:80]!r}, which is none")
    if not (reference.namespace and reference.name):
        raise ClaimRefused(f"claim {reference.uid} is asked for without namespace or name")


def check_claim(reference: ClaimReference, claim: ResourceClaim | None) -> ResourceClaim:
    """The claim that the kubelet means, allocated and reserved.

    Raises:
        ClaimRefused: The claim is gone, replaced, not allocated or not reserved.
    """
    name = reference.describe()
    if claim is None:
        raise ClaimRefused(f"there is no claim {name} (any more)")
    if claim.uid != reference.uid:
        raise ClaimRefused(f"claim {name} was replaced: it has the uid {claim.uid} now, not {reference.uid}")
    if not claim.is_allocated:
        raise ClaimRefused(f"claim {name} is not allocated (any more)")
    if not claim.pods:
        raise ClaimRefused(f"claim {name} is reserved for no pod (any more)")
    return claim


def is_late(claim: ResourceClaim, ended: EndedClaim | None) -> bool:
    """Whether all pods of a claim may have ended: an unprepared claim without a newly reserved pod."""
    return ended is not None and {pod.uid for pod in claim.pods} <= {pod.uid for pod in ended.pods}


def plan_claim(claim: ResourceClaim, view: NodeView, now_seconds: float) -> PreparedClaim:
    """The claim to prepare; MIG devices still to be made have no UUID yet.

    Raises:
        ClaimRefused: The node cannot give the claim's devices.
    """
    own = [result for result in claim.results if result.driver == view.driver]
    if not own:
        raise ClaimRefused(f"claim {claim.namespace}/{claim.name} has no device of the driver {view.driver}")
    if len(own) > DEVICES_MAX:
        raise ClaimRefused(f"claim {claim.namespace}/{claim.name} has {len(own)} devices; {DEVICES_MAX} are possible")
    requests = read_configs(claim.configs, view.driver)
    chosen = [_choose(result, requests, view) for result in own]
    shared = _plan_sharing(chosen, view)
    devices = tuple(_plan_device(claim.uid, each, shared.get(each.place), view) for each in chosen)
    return PreparedClaim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        devices=devices,
        since_seconds=now_seconds,
        pods=claim.pods,
        is_ready=not any(needs_work(device) for device in devices),
        pod_claim_name=find_pod_claim_name(claim),
        has_metadata=view.has_metadata,
    )


def needs_work(device: PreparedDevice) -> bool:
    """Whether preparing a device takes work that may be cut short half way."""
    return device.is_made or device.part is not None or _uses_mps(device) or find_turn(device) != OWN


def _uses_mps(device: PreparedDevice) -> bool:
    return device.sharing is not None and device.sharing.way is SharingWay.MPS


class _Chosen(NamedTuple):
    result: ClaimResult
    device: NamedDevice
    config: PlacedRequest | None

    @property
    def place(self) -> int:
        """The place of the configuration; devices of the same configuration are shared together."""
        return -1 if self.config is None else self.config.place


def _choose(result: ClaimResult, requests: Sequence[PlacedRequest], view: NodeView) -> _Chosen:
    device = _find(result, view)
    return _Chosen(result, device, choose_config(requests, result, is_gpu=device.is_gpu))


def _find(result: ClaimResult, view: NodeView) -> NamedDevice:
    name = result.device[:80]
    if result.pool != view.pool:
        raise ClaimRefused(f"device {name} is of pool {result.pool[:80]!r}; this node's is {view.pool}")
    device = find_device(view.inventory, result.device)
    if device is None:
        raise ClaimRefused(f"this node has no device {name}: the GPU is gone, or was cut otherwise since it was chosen")
    if device.gpu.lost:
        raise ClaimRefused(f"device {name} is lost: {device.gpu.lost}")
    if not result.is_admin:
        closed = view.offering.list_closed([device.gpu], AllocationMode.CLAIMS)
        if closed:
            raise ClaimRefused(f"device {name} is not given by claims now: {closed[device.gpu.uuid]}")
    _check_cut(device, can_make=view.powers.makes_mig_devices and not result.is_admin)
    return device


def _check_cut(device: NamedDevice, *, can_make: bool) -> None:
    if device.is_gpu and device.gpu.mig_devices:
        raise ClaimRefused(f"device {device.name} is cut into MIG devices and cannot be had whole")
    if not device.is_gpu and device.mig is None and not can_make:
        raise ClaimRefused(
            f"MIG device {device.name} is not there, and is made for a claim only where `claims.mig_on_demand` is on,"
            " and not to be looked at"
        )


def _plan_sharing(chosen: Sequence[_Chosen], view: NodeView) -> dict[int, ClaimSharing]:
    """By the place of a configuration the sharing of its devices."""
    shared: dict[int, ClaimSharing] = {}
    for each in chosen:
        if each.config is None or each.config.request.way is None or each.place in shared:
            continue
        together = [one.device for one in chosen if one.place == each.place]
        shared[each.place] = _plan_way(each.config, together, view)
    return shared


def _plan_way(config: PlacedRequest, devices: Sequence[NamedDevice], view: NodeView) -> ClaimSharing:
    request, where = config.request, config.describe()
    if request.way is SharingWay.TIME_SLICING:
        if request.interval != INTERVALS[OWN] and not view.powers.sets_turns:
            raise ClaimRefused(
                f"{where}.opaque.parameters.sharing.timeSlicingConfig.interval is {request.interval!r}: this agent"
                " leaves the time slice of a GPU as the driver has it; set `claims.time_slices`, or write Default"
            )
        return ClaimSharing(way=SharingWay.TIME_SLICING, interval=request.interval, group=config.place)
    if not view.powers.runs_mps:
        raise ClaimRefused(
            f'{where}: "MPS" is selected as the GPU sharing strategy, but this agent runs no daemon of it:'
            " set `mps.claims`, or use TimeSlicing"
        )
    if any(not device.is_gpu for device in devices):
        raise ClaimRefused(
            f"{where}: MPS is for whole GPUs here, and {devices[0].name} is a MIG device: ask for a MIG device for each"
            " container, or share it by TimeSlicing"
        )
    return ClaimSharing(way=SharingWay.MPS, mps=_resolve(request, devices, where), group=config.place)


def _resolve(request: SharingRequest, devices: Sequence[NamedDevice], where: str) -> MpsLimits:
    uuids = list(dict.fromkeys(device.gpu.uuid for device in devices))
    mps, where = request.mps, f"{where}.opaque.parameters.sharing.mpsConfig"
    old = [device.name for device in devices if find_most_clients(device.gpu) == 0]
    if mps.multi_user and old:
        raise ClaimRefused(
            f"{where}.multiUser is true, and {old[0]} is older than Volta, where MPS serves a single user at a time:"
            " leave multiUser out"
        )
    try:
        limits = resolve_limits(uuids, mps.thread_percentage, mps.memory_bytes, dict(mps.memory_bytes_by_gpu))
    except MpsRefused as error:
        raise ClaimRefused(f"{where}: {error}") from error
    return replace(limits, multi_user=mps.multi_user)


def _plan_device(uid: str, chosen: _Chosen, sharing: ClaimSharing | None, view: NodeView) -> PreparedDevice:
    result, device = chosen.result, chosen.device
    if result.share_id and not _UID.fullmatch(result.share_id):
        raise ClaimRefused(f"device {device.name} has the share id {result.share_id[:80]!r}, which is none")
    part = _plan_fraction(result, device, view)
    if sharing is not None and sharing.needs_whole_gpu:
        _check_alone(result, device, part, sharing)
        # The journal keeps others away from the GPU as for a GPU that is not shared.
        part = None
    uuid: DeviceUuid = device.gpu.uuid if device.is_gpu else device.mig.uuid if device.mig else MigUuid("")
    is_made = not device.is_gpu and device.mig is None
    share = f"-{result.share_id}" if result.share_id else ""
    # The kubelet compares the names of requests as they are; containers name the request, not the alternative.
    request, _, alternative = result.request.partition("/")
    return PreparedDevice(
        requests=(request,),
        pool=result.pool,
        device=device.name,
        uuid=uuid,
        cdi_names=(qualify(CLAIM_KIND, f"{uid}-{device.name}{share}"),),
        part=part,
        gpu=device.gpu.uuid,
        share_id=result.share_id,
        is_admin=result.is_admin,
        sharing=sharing,
        is_made=is_made,
        alternative=alternative,
    )


def _check_alone(result: ClaimResult, device: NamedDevice, part: GpuFraction | None, sharing: ClaimSharing) -> None:
    whole = device.gpu.memory_total_bytes // MIB * MIB
    has_all = part is None or (0 < whole <= part.memory_bytes and part.cores in {0, ALL_CORES})
    if has_all and not result.is_admin:
        return
    what, remedy = (
        ("MPS takes all of a GPU for its own clients", "leave MPS out")
        if sharing.way is SharingWay.MPS
        else ("a time slice is all of the GPU's", "leave the interval out")
    )
    raise ClaimRefused(
        f"device {device.name} is had beside others, and {what}: ask for all memory of the GPU, or {remedy}"
    )


def _plan_fraction(result: ClaimResult, device: NamedDevice, view: NodeView) -> GpuFraction | None:
    """The fraction of a shared device; `None` for a whole device."""
    if not result.share_id or result.is_admin:
        return None
    if not view.powers.holds_shares:
        raise ClaimRefused(
            f"device {device.name} is shared between claims, and this agent gives no shares: set `claims.shares`"
        )
    cores = _read_consumed(result, "cores", view.driver)
    memory, whole = _read_consumed(result, "memory", view.driver), device.gpu.memory_total_bytes
    return GpuFraction(
        gpu=device.gpu.uuid,
        cores=min(ALL_CORES, cores or 0),
        memory_bytes=whole if memory is None else min(memory, whole),
    )


def _read_consumed(result: ClaimResult, name: str, driver: str) -> int | None:
    """The consumed amount of a capacity; `None` for a capacity not named by the claim."""
    text = result.consumed.get(name, result.consumed.get(f"{driver}/{name}"))
    try:
        return None if text is None else parse_quantity(text)
    except QuantityUnreadable as error:
        raise ClaimRefused(f"device {result.device}: consumedCapacity.{name}: {error}") from error


def list_capacities(inventory: Inventory) -> tuple[GpuFraction, ...]:
    """The whole cores and memory of each GPU, for claims with fractions."""
    return tuple(
        GpuFraction(gpu=gpu.uuid, cores=ALL_CORES, memory_bytes=gpu.memory_total_bytes) for gpu in inventory.gpus
    )


def answer_claim(claim: PreparedClaim) -> tuple[DeviceAnswer, ...]:
    """The answer to the kubelet for a ready claim."""
    return tuple(
        DeviceAnswer(
            requests=device.requests,
            pool=device.pool,
            device=device.device,
            cdi_names=device.cdi_names,
            share_id=device.share_id,
        )
        for device in claim.devices
    )


def name_partition(claim: PreparedClaim, device: PreparedDevice) -> str:
    """The key under which a MIG device is made for a claim."""
    return f"{claim.uid}/{device.device}"


def plan_partition(device: PreparedDevice, inventory: Inventory) -> PartitionRequest:
    """The MIG device to make.

    Raises:
        ClaimRefused: The node has no such place for a MIG device any more.
    """
    named = find_device(inventory, device.device)
    if named is None or named.place is None:
        raise ClaimRefused(f"this node has no place for a MIG device {device.device} (any more)")
    return PartitionRequest(gpu=named.gpu.uuid, profile=named.place.profile.name, start=named.place.start)


def list_groups(claim: PreparedClaim) -> Iterator[tuple[tuple[GpuUuid, ...], ClaimSharing]]:
    """The GPUs of each MPS daemon, with a daemon for each configuration with MPS."""
    groups: dict[int, tuple[dict[GpuUuid, None], ClaimSharing]] = {}
    for device in claim.devices:
        if device.sharing is not None and device.sharing.way is SharingWay.MPS:
            groups.setdefault(device.sharing.group, ({}, device.sharing))[0][device.gpu] = None
    for gpus, sharing in groups.values():
        yield tuple(gpus), sharing


def with_uuids(claim: PreparedClaim, made: Mapping[str, MigUuid]) -> PreparedClaim:
    """The claim as ready, with the UUIDs of its new MIG devices, by device name."""
    devices = tuple(replace(one, uuid=made.get(one.device, one.uuid)) for one in claim.devices)
    return replace(claim, devices=devices, is_ready=True)


_GOOD = {Verdict.HEALTHY: True, Verdict.SUSPECT: True, Verdict.UNHEALTHY: False, Verdict.UNKNOWN: None}


MESSAGE_MAX = 1024
"""Characters that the kubelet keeps."""


def plan_health(devices: Iterable[NamedDevice], report: HealthReport | None, pool: str) -> tuple[DeviceHealth, ...]:
    """A line for each device; a MIG device still to be made has its GPU's health."""
    return tuple(_judge(device, report, pool) for device in devices)


def _judge(device: NamedDevice, report: HealthReport | None, pool: str) -> DeviceHealth:
    if device.gpu.lost:
        return DeviceHealth(pool=pool, device=device.name, is_healthy=False, message=device.gpu.lost[:MESSAGE_MAX])
    found = None
    if report is not None:
        own = report.find_device(device.mig.uuid) if device.mig is not None else None
        found = own or report.find_device(device.gpu.uuid)
    if found is None:
        return DeviceHealth(pool=pool, device=device.name, is_healthy=None, message="not looked at yet")
    return DeviceHealth(
        pool=pool,
        device=device.name,
        is_healthy=_GOOD[found.verdict],
        message=found.reason[:MESSAGE_MAX] if found.verdict is not Verdict.HEALTHY else "",
    )

"""What can be given in parts now: the profile in force, the ids that count it, the account of the GPUs; pure."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from nodeagent.config.sections.fractions import EnforcementName, FractionsSettings
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, GpuPart, PartTable
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Door, Offering
from nodeagent.model.parts import PartLimit
from nodeagent.model.plugin import AdvertisedDevice
from nodeagent.model.units import render_bytes
from nodeagent.model.values import Value
from nodeagent.rules.fractions.profiles import CoresProfile, Profile, SharesProfile, plan_profile
from nodeagent.rules.fractions.published import HeldBack, plan_published, render_published
from nodeagent.rules.fractions.tokens import plan_tokens
from nodeagent.rules.mps.parts import explain_foreign_daemon
from nodeagent.rules.placement.space import CORES, Space, plan_space

_FIT: Final = (Verdict.HEALTHY, Verdict.SUSPECT)


class PartView(Value, frozen=True, dict=True):
    """All that is known of the GPUs behind the door `fractions`, and what follows from it whoever has what."""

    inventory: Inventory
    gpus: tuple[Gpu, ...]
    """Those that are given in parts, whether anybody new may have some of them or not."""
    unfit: Mapping[GpuUuid, str]
    """Why nothing of each can be given now; empty where something can."""
    held: Mapping[GpuUuid, HeldBack]
    """The same in a word, of all GPUs of the node of which nothing can be given in parts."""
    profile: Profile
    memory_ratio: float
    foreign: Mapping[GpuUuid, int] = {}
    """By GPU the bytes that programs use which were given nothing."""
    enforcement: EnforcementName = "advise"
    """What holds containers to their parts, where their pods say nothing else."""
    has_mps: bool = False
    """Whether somebody looks after MPS daemons."""

    @cached_property
    def empty(self) -> Space:
        """The account before anything is given."""
        withheld = {gpu.uuid: self.unfit.get(gpu.uuid, "it is not given in parts") for gpu in self.inventory.gpus}
        return plan_space(
            self.inventory,
            self.profile.block_bytes,
            withheld={gpu: reason for gpu, reason in withheld.items() if reason},
            users_max=self.profile.shares_per_gpu if isinstance(self.profile, SharesProfile) else None,
            memory_ratio=self.memory_ratio,
            foreign=self.foreign,
        )

    @cached_property
    def lists(self) -> Mapping[ResourceName, tuple[AdvertisedDevice, ...]]:
        """By resource the ids that the kubelet counts: thousands on a large node."""
        lists: dict[ResourceName, list[AdvertisedDevice]] = {}
        for group in plan_tokens(self.gpus, self.profile, self.memory_ratio):
            healthy = not self.unfit[group.gpu]
            lists.setdefault(group.resource, []).extend(
                AdvertisedDevice(id=token, healthy=healthy, numa_node=group.numa_node) for token in group.list_ids()
            )
        return {name: tuple(devices) for name, devices in lists.items()}

    @cached_property
    def ids(self) -> Mapping[ResourceName, frozenset[DeviceId]]:
        """The same without their health."""
        return {name: frozenset(device.id for device in devices) for name, devices in self.lists.items()}

    @property
    def largest_bytes(self) -> int:
        """What the largest of them promises."""
        return max((int(gpu.memory_total_bytes * self.memory_ratio) for gpu in self.gpus), default=0)

    @property
    def capacities(self) -> tuple[GpuPart, ...]:
        """What each of them has to give in all."""
        return tuple(
            GpuPart(gpu=gpu.uuid, cores=CORES, memory_bytes=int(gpu.memory_total_bytes * self.memory_ratio))
            for gpu in self.gpus
        )


def plan_view(
    inventory: Inventory,
    offering: Offering,
    health: HealthReport | None,
    settings: FractionsSettings,
    blocked: Mapping[GpuUuid, str] | None = None,
    foreign: Mapping[GpuUuid, int] | None = None,
    *,
    has_mps: bool = False,
) -> PartView:
    """The GPUs behind the door, and of which of them nothing can be given.

    Args:
        inventory: the node's GPUs.
        offering: which doors they have.
        health: what they are good for; `None` while nobody knows.
        settings: names and sizes.
        blocked: for GPUs of which nothing can be given for another's sake, such as the driver's, why; empty for none.
        foreign: by GPU the bytes that programs use which were given nothing.
        has_mps: whether somebody looks after MPS daemons.
    """
    behind, is_open = offering.list_behind(Door.FRACTIONS), offering.list_open(Door.FRACTIONS)
    closed = offering.list_closed(inventory.gpus, Door.FRACTIONS)
    gpus = tuple(gpu for gpu in inventory.gpus if gpu.uuid in behind)
    refused = {
        gpu.uuid: _refuse(
            gpu, health, (blocked or {}).get(gpu.uuid, ""), "" if gpu.uuid in is_open else closed[gpu.uuid]
        )
        for gpu in gpus
    }
    elsewhere: dict[GpuUuid, HeldBack] = {
        gpu.uuid: "mig" if gpu.mig_enabled else "elsewhere" for gpu in inventory.gpus if gpu.uuid not in behind
    }
    return PartView(
        inventory=inventory,
        gpus=gpus,
        unfit={uuid: reason for uuid, (_, reason) in refused.items()},
        held=elsewhere | {uuid: word for uuid, (word, reason) in refused.items() if reason},
        profile=plan_profile(settings),
        memory_ratio=settings.memory_overcommit_ratio,
        foreign=foreign or {},
        enforcement=settings.enforcement,
        has_mps=has_mps,
    )


def _refuse(gpu: Gpu, health: HealthReport | None, blocked: str, closed: str) -> tuple[HeldBack, str]:
    """Why nothing of a GPU can be given, in a word and in full; empty in full where something can."""
    if blocked:
        return "node", blocked
    if closed:
        return "door", closed
    return "mig" if gpu.mig_enabled and not gpu.lost else "unhealthy", explain_unfitness(gpu, health)


def list_daemon_faults(inventory: Inventory, state: MpsState | None) -> Mapping[GpuUuid, str]:
    """The GPUs of which nothing can be given for the sake of their MPS daemons, and why."""
    reasons = {gpu.uuid: explain_foreign_daemon(gpu.uuid, state) for gpu in inventory.gpus}
    return {uuid: reason for uuid, reason in reasons.items() if reason}


def withhold(space: Space, reasons: Mapping[GpuUuid, str]) -> Space:
    """The account without these GPUs."""
    rooms = (replace(room, withheld=room.withheld or reasons.get(room.gpu, "")) for room in space.rooms)
    return replace(space, rooms=tuple(rooms)) if reasons else space


def explain_unfitness(gpu: Gpu, health: HealthReport | None) -> str:
    """Why nothing of a GPU can be given for its own sake; empty where something can."""
    if gpu.lost:
        return f"GPU {gpu.index} is lost: {gpu.lost}"
    if gpu.mig_enabled:
        return "MIG is on, and parts are of whole GPUs: switch it off, or choose another door"
    verdict = health.find_device(gpu.uuid) if health is not None else None
    if verdict is None:
        return "its health is not known yet"
    return "" if verdict.verdict in _FIT else verdict.reason or f"its health is {verdict.verdict}"


def plan_lists(view: PartView, table: PartTable) -> dict[ResourceName, tuple[AdvertisedDevice, ...]]:
    """By resource the whole list that the kubelet is sent.

    An id that somebody holds stays in the list, unhealthy, when its GPU is gone: the kubelet would show it healthy.
    """
    lists = {name: view.lists.get(name, ()) for name in list_resources(view.profile)}
    for name, gone in _list_gone(view, table).items():
        lists[name] += tuple(AdvertisedDevice(id=token, healthy=False) for token in sorted(gone))
    return {name: devices for name, devices in lists.items() if devices}


def list_resources(profile: Profile) -> tuple[ResourceName, ...]:
    """The resources of a profile, that first of which a container is told its GPUs."""
    return (profile.core, profile.memory) if isinstance(profile, CoresProfile) else (profile.share,)


def _list_gone(view: PartView, table: PartTable) -> dict[ResourceName, set[DeviceId]]:
    """By resource the ids that somebody holds and no GPU stands for any more."""
    held: dict[ResourceName, list[tuple[DeviceId, ...]]] = {name: [] for name in list_resources(view.profile)}
    for reservation in table.reservations.values():
        if reservation.resource in held:
            held[reservation.resource].append(reservation.devices)
    gone = {name: set[DeviceId]().union(*ids).difference(view.ids.get(name, ())) for name, ids in held.items()}
    return {name: ids for name, ids in gone.items() if ids}


def plan_account(view: PartView, table: PartTable, leaving: Iterable[int] = ()) -> Space:
    """What of each GPU is given, without the bindings of these numbers."""
    gone = set(leaving)
    return view.empty.occupy(
        part for binding in table.bindings.values() if binding.number not in gone for part in binding.parts
    )


def publish_view(view: PartView) -> str:
    """What the node object says of these GPUs, for schedulers; nothing where there are none."""
    if not view.gpus:
        return ""
    gpus, by = view.inventory.gpus, view.enforcement
    return render_published(plan_published(view.profile, view.empty, gpus, by, has_mps=view.has_mps, held=view.held))


def plan_limits(
    binding: Binding, capacities: Iterable[GpuPart], *, compute: bool, context_bytes: int = 0
) -> tuple[PartLimit, ...]:
    """What a container is held to on each of its GPUs; nothing holds one that has all of it.

    Args:
        binding: the container's.
        capacities: how much each GPU has to give.
        compute: whether it is held to its part of compute too.
        context_bytes: what each CUDA context takes by itself.
    """
    whole = {each.gpu: each.memory_bytes for each in capacities}
    return tuple(
        PartLimit(
            gpu=part.gpu,
            memory_bytes=None if part.memory_bytes >= whole.get(part.gpu, part.memory_bytes + 1) else part.memory_bytes,
            cores=part.cores if compute and 0 < part.cores < CORES else None,
            cores_max=(binding.core_limit or part.cores) if compute and 0 < part.cores < CORES else None,
            context_bytes=context_bytes,
        )
        for part in binding.parts
    )


def describe_binding(binding: Binding) -> str:
    """Whose a binding is."""
    return f"{binding.pod.describe()} ({binding.container}), since its start bound as {binding.number}"


def name_files(binding: Binding) -> str:
    """The unqualified name of a binding, by which its files are called."""
    return read_name(binding.cdi_name) or f"b{binding.number}"


def read_name(cdi_name: str) -> str:
    """The unqualified name in what a container is told."""
    return cdi_name.partition("=")[2]


def list_file_names(table: PartTable) -> set[str]:
    """By which all files are called that somebody has, or will have who was promised them."""
    promised = (each for number, each in table.reservations.items() if number not in table.redeemed)
    return {read_name(each.cdi_name) for each in promised}.union(map(name_files, table.bindings.values()))


def describe_parts(binding: Binding) -> str:
    """How much a container has."""
    return ", ".join(
        f"{part.cores} cores and {render_bytes(part.memory_bytes)} of {part.gpu}" for part in binding.parts
    )

"""The fractions on offer now: the profile in force, the device ids, the space of the GPUs; pure."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from nodeagent.config.sections.fractions import EnforcementName, FractionsSettings
from nodeagent.model.errors import FractionsUnavailable
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, FractionTable, GpuFraction
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.plugin import AdvertisedDevice
from nodeagent.model.values import Value
from nodeagent.model.wording import render_bytes
from nodeagent.rules.devices.group import parse_id
from nodeagent.rules.fractions.bound import RenderedBound, render_bound
from nodeagent.rules.fractions.device_ids import plan_device_ids
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile, Profile, plan_profile
from nodeagent.rules.fractions.published import HeldBack, plan_published, render_published
from nodeagent.rules.ids import is_of_class
from nodeagent.rules.mps.fractions import explain_foreign_daemon
from nodeagent.rules.placement.space import CORES, Space, plan_space

_FIT: Final = (Verdict.HEALTHY, Verdict.SUSPECT)


class FractionView(Value, frozen=True, dict=True):
    """All known facts about the GPUs in allocation mode `fractions`, and conclusions that hold whatever is bound."""

    inventory: Inventory
    gpus: tuple[Gpu, ...]
    """The GPUs given in fractions, whether new containers may have some of them or not."""
    unfit: Mapping[GpuUuid, str]
    """Why a GPU has nothing to give now; empty for a usable GPU."""
    held: Mapping[GpuUuid, HeldBack]
    """The reason as a word, for all GPUs of the node that have no fraction to give."""
    profile: Profile
    memory_ratio: float
    foreign: Mapping[GpuUuid, int] = {}
    """By GPU the bytes used by foreign programs."""
    enforcement: EnforcementName = "advise"
    """The enforcement for pods without an annotation."""
    has_mps: bool = False
    """Whether the agent runs MPS daemons."""
    trials: Mapping[GpuUuid, float] = {}
    """The GPUs that a single container may try after the brake, and since when."""

    @property
    def device_class(self) -> str:
        """The class of these devices; empty for the driver's GPUs."""
        return self.profile.device_class if isinstance(self.profile, CoresProfile) else ""

    def owns(self, binding: Binding) -> bool:
        """Whether a binding is of these GPUs, or of GPUs of the same kind that are gone."""
        gpu = binding.parts[0].gpu
        return parse_id(gpu, self.device_class) is not None if self.device_class else not is_of_class(gpu)

    @cached_property
    def empty(self) -> Space:
        """The space before any binding."""
        withheld = {gpu.uuid: self.unfit.get(gpu.uuid, "it is not given in parts") for gpu in self.inventory.gpus}
        return plan_space(
            self.inventory,
            self.profile.block_bytes,
            withheld={gpu: reason for gpu, reason in withheld.items() if reason},
            users_max=self.profile.shares_per_gpu if isinstance(self.profile, CountedProfile) else None,
            memory_ratio=self.memory_ratio,
            foreign=self.foreign,
        )

    @cached_property
    def lists(self) -> Mapping[ResourceName, tuple[AdvertisedDevice, ...]]:
        """By resource the ids for the kubelet: thousands on a large node."""
        lists: dict[ResourceName, list[AdvertisedDevice]] = {}
        for group in plan_device_ids(self.gpus, self.profile, self.memory_ratio):
            healthy = not self.unfit[group.gpu]
            lists.setdefault(group.resource, []).extend(
                AdvertisedDevice(id=token, healthy=healthy, numa_node=group.numa_node) for token in group.list_ids()
            )
        return {name: tuple(devices) for name, devices in lists.items()}

    @cached_property
    def ids(self) -> Mapping[ResourceName, frozenset[DeviceId]]:
        """By resource the ids without health."""
        return {name: frozenset(device.id for device in devices) for name, devices in self.lists.items()}

    @property
    def largest_bytes(self) -> int:
        """The memory promised by the largest GPU."""
        return max((int(gpu.memory_total_bytes * self.memory_ratio) for gpu in self.gpus), default=0)

    @property
    def capacities(self) -> tuple[GpuFraction, ...]:
        """The whole cores and memory of each GPU."""
        return tuple(
            GpuFraction(gpu=gpu.uuid, cores=CORES, memory_bytes=int(gpu.memory_total_bytes * self.memory_ratio))
            for gpu in self.gpus
        )


class FractionViews:
    """The view of each kind of devices that are given in fractions, and which of them answers for what."""

    def __init__(self) -> None:
        self.by_kind: dict[str, FractionView] = {}
        """By class; the driver's GPUs by an empty name."""

    @property
    def all(self) -> tuple[FractionView, ...]:
        """The view of each kind."""
        return tuple(self.by_kind.values())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The driver's GPUs given in fractions."""
        return self.by_kind[""].gpus if "" in self.by_kind else ()

    def find(self, resource: ResourceName) -> FractionView:
        """The view whose devices a resource counts.

        Raises:
            FractionsUnavailable: The devices are not known yet, or not given in fractions any more.
        """
        for view in self.by_kind.values():
            if resource in list_resources(view.profile):
                return view
        raise FractionsUnavailable("the GPUs are not known yet")

    def find_owner(self, binding: Binding) -> FractionView | None:
        """The view of a binding's devices; `None` for devices not given in fractions any more."""
        return next((view for view in self.by_kind.values() if view.owns(binding)), None)


def plan_view(
    inventory: Inventory,
    offering: Offering,
    health: HealthReport | None,
    settings: FractionsSettings,
    blocked: Mapping[GpuUuid, str] | None = None,
    foreign: Mapping[GpuUuid, int] | None = None,
    *,
    has_mps: bool = False,
) -> FractionView:
    """The GPUs in allocation mode `fractions`, and why some have nothing to give.

    `blocked` has reasons outside the GPU, such as the driver's, why a GPU has no room: empty without a reason.
    """
    behind, is_open = offering.list_behind(AllocationMode.FRACTIONS), offering.list_open(AllocationMode.FRACTIONS)
    closed = offering.list_closed(inventory.gpus, AllocationMode.FRACTIONS)
    cordoned = offering.list_cordoned()
    gpus = tuple(gpu for gpu in inventory.gpus if gpu.uuid in behind)
    refused = {
        gpu.uuid: _refuse(
            gpu,
            health,
            (blocked or {}).get(gpu.uuid, ""),
            "" if gpu.uuid in is_open else closed[gpu.uuid],
            is_cordoned=gpu.uuid in cordoned,
        )
        for gpu in gpus
    }
    elsewhere: dict[GpuUuid, HeldBack] = {
        gpu.uuid: "mig" if gpu.mig_enabled else "elsewhere" for gpu in inventory.gpus if gpu.uuid not in behind
    }
    return FractionView(
        inventory=inventory,
        gpus=gpus,
        unfit={uuid: reason for uuid, (_, reason) in refused.items()},
        held=elsewhere | {uuid: word for uuid, (word, reason) in refused.items() if reason},
        profile=plan_profile(settings),
        memory_ratio=settings.memory_overcommit_ratio,
        foreign=foreign or {},
        enforcement=settings.enforcement,
        has_mps=has_mps,
        trials=offering.list_trials(),
    )


def _refuse(
    gpu: Gpu, health: HealthReport | None, blocked: str, closed: str, *, is_cordoned: bool
) -> tuple[HeldBack, str]:
    """Why a GPU has nothing to give, in a word and in full; the full text is empty for a usable GPU."""
    if blocked:
        return "node", blocked
    if closed:
        return "cordon" if is_cordoned else "door", closed
    return "mig" if gpu.mig_enabled and not gpu.lost else "unhealthy", explain_unfitness(gpu, health)


def list_daemon_faults(inventory: Inventory, state: MpsState | None) -> Mapping[GpuUuid, str]:
    """The GPUs blocked by MPS daemons, with reasons."""
    reasons = {gpu.uuid: explain_foreign_daemon(gpu.uuid, state) for gpu in inventory.gpus}
    return {uuid: reason for uuid, reason in reasons.items() if reason}


def withhold(space: Space, reasons: Mapping[GpuUuid, str]) -> Space:
    """The space with these GPUs withheld."""
    rooms = (replace(room, withheld=room.withheld or reasons.get(room.gpu, "")) for room in space.rooms)
    return replace(space, rooms=tuple(rooms)) if reasons else space


def explain_unfitness(gpu: Gpu, health: HealthReport | None) -> str:
    """Why a GPU's own state makes it unfit; empty for a fit GPU."""
    if gpu.lost:
        return f"GPU {gpu.index} is lost: {gpu.lost}"
    if gpu.mig_enabled:
        return "MIG is on, and parts are of whole GPUs: switch it off, or choose another door"
    verdict = health.find_device(gpu.uuid) if health is not None else None
    if verdict is None:
        return "its health is not known yet"
    return "" if verdict.verdict in _FIT else verdict.reason or f"its health is {verdict.verdict}"


def plan_lists(view: FractionView, table: FractionTable) -> dict[ResourceName, tuple[AdvertisedDevice, ...]]:
    """By resource the whole list of devices for the kubelet.

    A held id stays in the list, unhealthy, after the loss of its GPU: otherwise the kubelet would show it healthy.
    """
    lists = {name: view.lists.get(name, ()) for name in list_resources(view.profile)}
    for name, gone in _list_gone(view, table).items():
        lists[name] += tuple(AdvertisedDevice(id=token, healthy=False) for token in sorted(gone))
    return {name: devices for name, devices in lists.items() if devices}


def name_resources(profile: Profile) -> tuple[ResourceName, ResourceName | None]:
    """The resource of a profile by which a container gets its GPUs, and the resource of memory, if any."""
    return (profile.core, profile.memory) if isinstance(profile, CoresProfile) else (profile.share, None)


def list_resources(profile: Profile) -> tuple[ResourceName, ...]:
    """The resources of a profile, the first for the GPUs."""
    return tuple(name for name in name_resources(profile) if name is not None)


def _list_gone(view: FractionView, table: FractionTable) -> dict[ResourceName, set[DeviceId]]:
    """By resource the held ids without a GPU."""
    held: dict[ResourceName, list[tuple[DeviceId, ...]]] = {name: [] for name in list_resources(view.profile)}
    for reservation in table.reservations.values():
        if reservation.resource in held:
            held[reservation.resource].append(reservation.devices)
    gone = {name: set[DeviceId]().union(*ids).difference(view.ids.get(name, ())) for name, ids in held.items()}
    return {name: ids for name, ids in gone.items() if ids}


def plan_summary(view: FractionView, table: FractionTable, leaving: Iterable[int] = ()) -> Space:
    """The space as occupied by the bindings of the table, except those in `leaving`."""
    gone = set(leaving)
    space = view.empty.occupy(
        fraction for binding in table.bindings.values() if binding.number not in gone for fraction in binding.parts
    )
    tried = (
        gpu
        for gpu, since in view.trials.items()
        if any(binding.since_seconds >= since for binding in table.by_gpu.get(gpu, ()))
    )
    return withhold(space, dict.fromkeys(tried, "a single pod tries the GPU, after the brake"))


def publish_view(view: FractionView) -> str:
    """The annotation of the Node about the GPUs, for schedulers; empty without GPUs."""
    if not view.gpus:
        return ""
    # Whatever a pod asks for, fractions of a class's devices are counted alone.
    gpus, by = view.inventory.gpus, None if view.device_class else view.enforcement
    return render_published(plan_published(view.profile, view.empty, gpus, by, has_mps=view.has_mps, held=view.held))


def plan_limits(
    binding: Binding, capacities: Iterable[GpuFraction], *, compute: bool, context_bytes: int = 0
) -> tuple[FractionLimit, ...]:
    """The limits of a container on each of its GPUs; a whole GPU has no limit.

    `compute`: whether compute is limited too; `context_bytes`: the memory of each CUDA context itself.
    """
    whole = {each.gpu: each.memory_bytes for each in capacities}
    return tuple(
        FractionLimit(
            gpu=fraction.gpu,
            memory_bytes=None
            if fraction.memory_bytes >= whole.get(fraction.gpu, fraction.memory_bytes + 1)
            else fraction.memory_bytes,
            cores=fraction.cores if compute and 0 < fraction.cores < CORES else None,
            cores_max=(binding.core_limit or fraction.cores) if compute and 0 < fraction.cores < CORES else None,
            context_bytes=context_bytes,
        )
        for fraction in binding.parts
    )


def describe_binding(binding: Binding) -> str:
    """Pod, container and number of a binding, for people."""
    return f"{binding.describe()}, since its start bound as {binding.number}"


def name_files(binding: Binding) -> str:
    """The unqualified CDI name of a binding, used in file names."""
    return read_name(binding.cdi_name) or f"b{binding.number}"


def read_name(cdi_name: str) -> str:
    """The unqualified name in a CDI name."""
    return cdi_name.partition("=")[2]


def list_file_names(table: FractionTable) -> set[str]:
    """The names of all files of bindings, and of reservations not redeemed yet."""
    promised = (each for number, each in table.reservations.items() if number not in table.redeemed)
    return {read_name(each.cdi_name) for each in promised}.union(map(name_files, table.bindings.values()))


def describe_fractions(binding: Binding) -> str:
    """How much a container has of each GPU."""
    return ", ".join(
        f"{fraction.cores} cores and {render_bytes(fraction.memory_bytes)} of {fraction.gpu}"
        for fraction in binding.parts
    )


class Publisher:
    """Renders the node's annotations for schedulers, each anew only after a change of content."""

    def __init__(self, report_left_out: Callable[[int], None]) -> None:
        """`report_left_out` takes the number of pods that the annotation has no room for, once until all fit again."""
        self._gpus: tuple[FractionView, str] | None = None
        self._bound: tuple[FractionView, FractionTable, RenderedBound] | None = None
        self._report_left_out = report_left_out

    def render_gpus(self, view: FractionView) -> str:
        """The annotation about GPUs; empty without GPUs."""
        if self._gpus is None or self._gpus[0] is not view:
            self._gpus = (view, publish_view(view))
        return self._gpus[1]

    def render_bound(self, view: FractionView, table: FractionTable) -> str:
        """The annotation about bindings; empty where the node publishes no GPUs."""
        if self._bound is None or self._bound[0] is not view or self._bound[1] is not table:
            before = self._bound[2].left_out if self._bound is not None else 0
            rendered = render_bound(table.bindings.values(), view.inventory) if view.gpus else RenderedBound("")
            self._bound = (view, table, rendered)
            if rendered.left_out and not before:
                self._report_left_out(rendered.left_out)
        return self._bound[2].text

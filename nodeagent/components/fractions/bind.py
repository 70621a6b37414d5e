"""The binding of a starting container: the existing binding, or GPUs chosen now; pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.components.fractions.decide import (
    FractionView,
    name_files,
    name_resources,
    plan_summary,
    read_name,
    withhold,
)
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import ControlRefused, FractionsUnavailable, NoRoom, RequestInvalid
from nodeagent.model.fractions import ChoiceCorrection, PodRequest
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, Enforcement, FractionTable, Reservation
from nodeagent.model.mps import MpsState
from nodeagent.model.ports import ContainerDevices
from nodeagent.rules.fractions.choices import ChosenFraction, ContainerChoice, read_scheduler_choice, render_correction
from nodeagent.rules.fractions.device_ids import find_near
from nodeagent.rules.fractions.pairing import Caller, find_standing
from nodeagent.rules.fractions.profiles import CoresProfile, Profile
from nodeagent.rules.fractions.requests import (
    check_cores,
    explain_several,
    read_core_limit,
    read_counted,
    read_counts,
    read_enforcement_choice,
)
from nodeagent.rules.mps.fractions import plan_obstacles
from nodeagent.rules.placement.place import Demand, Placement, place, render_placement
from nodeagent.rules.placement.space import CORES

HELD_ALL_THE_SAME: Final = (
    "its annotation asks for advise, which is only for pods to choose with `fractions.allow_advise`"
)

NOT_ENFORCED: Final = "counted, not enforced"


class Start(NamedTuple):
    """A starting container, with all known facts."""

    caller: Caller
    pod: PodRequest | None
    """The pod by the API server; `None` where no API server can be asked."""
    settings: FractionsSettings = FractionsSettings()
    daemons: MpsState | None = None
    """The MPS daemons of now; `None` where the agent runs no daemons."""


class Choice(NamedTuple):
    """The binding for a starting container."""

    binding: Binding
    """Number 0 for a new binding."""
    leaving: tuple[int, ...] = ()
    """Bindings that end with the new binding."""
    placement: Placement | None = None
    """How the GPUs were chosen; `None` for an existing binding."""
    problem: str = ""
    """Why the scheduler's choice on the pod cannot be read."""
    overruled: str = ""
    """Why a scheduler's choice was not obeyed, in a word; empty where it was, or without a choice."""


def check_request(profile: object, resource: ResourceName, count: int) -> None:
    """Check at Allocate that a container can ask for so many ids of a resource at all.

    Raises:
        RequestInvalid: No container with so many ids could ever start.
    """
    if isinstance(profile, CoresProfile) and resource == profile.core:
        check_cores(profile, count)


def check_memory(profile: Profile, entries: Sequence[ContainerDevices], devices: Sequence[DeviceId]) -> None:
    """Check that a container with memory ids has core ids too; without cores a container gets no GPU.

    `entries` are the containers of the pod in the kubelet's list or checkpoint, `devices` the memory ids.

    Raises:
        RequestInvalid: The container has no core ids.
    """
    if not isinstance(profile, CoresProfile):
        return
    holders = {
        (entry.pod, entry.container)
        for entry in entries
        if entry.resource == profile.memory and set(entry.devices) == set(devices)
    }
    with_cores = {(entry.pod, entry.container) for entry in entries if entry.resource == profile.core}
    if holders and not holders & with_cores:
        read_counts(profile, 0, len(devices), 0)


def choose(start: Start, view: FractionView, table: FractionTable, now_seconds: float) -> Choice:
    """Choose the binding of the container.

    Raises:
        AllocationError: The request can never be met, or there is no room now.
    """
    caller, profile = start.caller, view.profile
    resources = name_resources(profile)
    bound = {
        binding.number: _list_ids(table, binding, resources)
        for binding in table.bindings.values()
        if is_same_pod(binding.pod, caller.pod) and view.owns(binding)
    }
    standing, promised = find_standing(bound, caller), find_promises(table, caller, resources)
    is_promised = any(each.cdi_name for each in promised)
    if standing.same is not None and not is_promised:
        same = table.bindings[standing.same]
        return Choice(replace(same, pod=complete_identity(same.pod, caller.pod)))
    if not is_promised:
        raise FractionsUnavailable(f"the journal has no promise of the {len(caller.cores)} ids of {resources[0]}")
    # Ids reserved once more belong to another container than before, with a CDI name of its own.
    found = (standing.same, *standing.superseded, *_list_earlier(table, caller, view))
    leaving = tuple(dict.fromkeys(number for number in found if number is not None))
    demand, core_limit = read_demand(start, view)
    is_obeyed = start.settings.use_scheduler_choice
    choice = _read_scheduler_choice(view, start.pod, caller.containers[0]) if is_obeyed else ContainerChoice()
    is_counted = bool(view.device_class)
    enforcement = Enforcement.COUNTED if is_counted else read_enforcement(start, demand, has_mps=view.has_mps)
    is_lifted = _read_pod_enforcement(start) is Enforcement.ADVISE
    is_held = is_lifted and enforcement not in (Enforcement.ADVISE, Enforcement.COUNTED)
    notes = (HELD_ALL_THE_SAME,) if is_held else (NOT_ENFORCED,) if is_counted else ()
    rest = [one for number, one in table.bindings.items() if number not in leaving]
    obstacles = plan_obstacles(view.gpus, rest, start.daemons, by_mps=enforcement is Enforcement.MPS)
    space = withhold(plan_summary(view, table, leaving), obstacles)
    near = find_near(caller.cores, view.gpus)
    placement = place(space, demand, request=choice.gpus, near=near)
    if not placement.shares:
        raise NoRoom(placement.rule, render_placement(placement))
    binding = Binding(
        number=0,
        reservations=tuple(each.number for each in promised),
        pod=caller.pod,
        container=caller.containers[0],
        parts=placement.shares,
        since_seconds=now_seconds,
        cdi_name=next(each.cdi_name for each in promised if each.cdi_name),
        core_limit=core_limit,
        enforcement=enforcement,
        why="; ".join((placement.rule, *notes)),
    )
    overruled = ""
    if choice.problem or (choice.gpus and set(choice.gpus) != {share.gpu for share in placement.shares}):
        overruled = "unreadable" if choice.problem else "impossible"
    return Choice(binding, leaving, placement, choice.problem, overruled)


def plan_correction(view: FractionView, pod: PodRequest, binding: Binding) -> ChoiceCorrection | None:
    """The annotations for a pod whose container has other GPUs than the scheduler chose; else `None`."""
    choice = _read_scheduler_choice(view, pod, binding.container)
    given = {fraction.gpu for fraction in binding.parts}
    indexes = {gpu.uuid: gpu.index for gpu in view.inventory.gpus}
    if not (choice.gpus or choice.problem) or given == set(choice.gpus) or not given <= indexes.keys():
        return None
    names = [container.name for container in pod.containers]
    return ChoiceCorrection(
        pod=pod.pod,
        container=binding.container,
        annotations=render_correction(
            view.profile,
            pod.annotations,
            [ChosenFraction(index=indexes[fraction.gpu], part=fraction) for fraction in binding.parts],
            container=names.index(binding.container),
            init_containers=sum(container.is_init for container in pod.containers),
        ),
        reason=choice.problem or binding.why,
    )


def read_enforcement(start: Start, demand: Demand, *, has_mps: bool) -> Enforcement:
    """How the container is held to its fraction; not at all for whole GPUs.

    A pod's annotation cannot lift the limits, unless the configuration allows `advise`.

    Raises:
        RequestInvalid: The pod asks for an unknown enforcement, or for MPS where MPS cannot hold the container.
    """
    if demand.is_exclusive:
        return Enforcement.ADVISE
    key, choice = start.settings.enforcement_annotation, _read_pod_enforcement(start)
    configured = Enforcement(start.settings.enforcement)
    is_loosening = choice is Enforcement.ADVISE and not start.settings.allow_advise
    enforcement = configured if choice is None or is_loosening else choice
    if enforcement is not Enforcement.MPS:
        return enforcement
    if not has_mps:
        raise RequestInvalid(
            key,
            "annotation with value 'mps', and nobody looks after MPS daemons on this node: give another one, or"
            " set `fractions.enforcement` to mps there",
        )
    if demand.gpus > 1:
        raise RequestInvalid(key, explain_several(demand.gpus))
    return enforcement


def _read_pod_enforcement(start: Start) -> Enforcement | None:
    key = start.settings.enforcement_annotation
    return read_enforcement_choice(key, start.pod.annotations) if start.pod is not None else None


def change_fractions(binding: Binding, cores: int | None, memory_bytes: int | None) -> Binding:
    """A binding with other limits on the same GPUs; `None` keeps a limit.

    Raises:
        ControlRefused: The binding has whole GPUs, or a number is out of range.
    """
    if binding.enforcement is Enforcement.COUNTED:
        reason = "has a part that is counted and not enforced, so that no limit can be changed"
        raise ControlRefused(f"{binding.describe()} {reason}: ask for another size in the pod")
    if any(fraction.cores >= CORES for fraction in binding.parts):
        raise ControlRefused(f"{binding.describe()} has whole GPUs, which have no limits to change")
    if cores is not None and not 1 <= cores < CORES:
        raise ControlRefused(f"{cores} cores are no part of a GPU: give 1 to {CORES - 1}")
    if memory_bytes is not None and memory_bytes < 1:
        raise ControlRefused(f"{memory_bytes} bytes are no part of a GPU's memory: give more")
    fractions = tuple(
        replace(
            fraction,
            cores=fraction.cores if cores is None else cores,
            memory_bytes=fraction.memory_bytes if memory_bytes is None else memory_bytes,
        )
        for fraction in binding.parts
    )
    core_limit = binding.core_limit
    if core_limit is not None and cores is not None:
        core_limit = max(core_limit, cores)
    return replace(binding, parts=fractions, core_limit=core_limit)


def find_bindings(table: FractionTable, pod: str, container: str) -> tuple[Binding, ...]:
    """The bindings of a pod, named with or without namespace; of one container where `container` is not empty."""
    return tuple(
        binding
        for binding in table.bindings.values()
        if pod in {binding.pod.name, f"{binding.pod.namespace}/{binding.pod.name}"}
        and container in {"", binding.container}
    )


def complete_identity(pod: PodIdentity, told: PodIdentity) -> PodIdentity:
    """The pod's known identity, completed by a later answer: a source may have been silent before."""
    return PodIdentity(namespace=pod.namespace or told.namespace, name=pod.name or told.name, uid=pod.uid or told.uid)


def is_same_pod(one: PodIdentity, other: PodIdentity) -> bool:
    """Whether two identities are of one pod: by uid where both have a uid, else by name."""
    if one.uid and other.uid:
        return one.uid == other.uid
    return (one.namespace, one.name) == (other.namespace, other.name)


def read_demand(start: Start, view: FractionView) -> tuple[Demand, int | None]:
    """The container's demand, and the pod's own limit of compute.

    Raises:
        RequestInvalid: The demand can never be met, or the pod's annotations are needed and not known.
    """
    caller, profile = start.caller, view.profile
    if isinstance(profile, CoresProfile):
        demand = read_counts(profile, len(caller.cores), len(caller.memory), view.largest_bytes)
        annotations = start.pod.annotations if start.pod is not None else {}
        return demand, read_core_limit(profile, annotations, demand)
    sizes = _list_limits(start)
    if not sizes:
        raise RequestInvalid(profile.share, "the API server has not told yet how large the pod's shares are")
    demands = [read_counted(profile, len(caller.cores), each, view.largest_bytes) for each in sizes]
    return _join_shares(demands, view.largest_bytes)


def _list_limits(start: Start) -> tuple[Mapping[str, str], ...]:
    """The limits of each container that may be starting; empty while any of the containers is unknown."""
    known = {each.name: each.limits for each in start.pod.containers} if start.pod is not None else {}
    found = tuple(known[name] for name in start.caller.containers if name in known)
    return found if len(found) == len(start.caller.containers) else ()


def _join_shares(demands: Sequence[Demand], largest_bytes: int) -> tuple[Demand, int | None]:
    """A demand large enough for any of the containers, and the most compute for any."""

    def measure(each: Demand) -> tuple[bool, int]:
        percent = each.memory_percent
        return each.is_exclusive, each.memory_bytes if percent is None else largest_bytes * percent // 100

    cores = [each.cores for each in demands]
    # A container without a limit of compute is not held to the cores that another asks for.
    core_limit = CORES if 0 in cores and 0 < max(cores) < CORES else None
    return replace(max(demands, key=measure), cores=max(cores)), core_limit


def _read_scheduler_choice(view: FractionView, pod: PodRequest | None, container: str) -> ContainerChoice:
    """The scheduler's choice for a container, where pod and container are known."""
    names = [each.name for each in pod.containers] if pod is not None else []
    if pod is None or container not in names:
        return ContainerChoice()
    inits = sum(each.is_init for each in pod.containers)
    number = names.index(container)
    return read_scheduler_choice(
        view.profile, pod.annotations, view.inventory.gpus, container=number, init_containers=inits
    )


def _list_ids(
    table: FractionTable, binding: Binding, resources: tuple[ResourceName, ResourceName | None]
) -> tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]]:
    """The ids of a binding: of the first resource, and of the second."""
    promised = [table.reservations[number] for number in binding.reservations]
    cores, memory = (
        tuple(device for each in promised if each.resource == resource for device in each.devices)
        for resource in resources
    )
    return cores, memory


def _list_earlier(table: FractionTable, caller: Caller, view: FractionView) -> tuple[int, ...]:
    """Earlier bindings of the same container on these GPUs, under any ids: a starting container has ended before.

    A kubelet without its old checkpoint gives a pod other ids than before, and forgets the earlier ids.
    """
    return tuple(
        number
        for number, binding in table.bindings.items()
        if binding.pod.uid
        and binding.pod.uid == caller.pod.uid
        and binding.container in caller.containers
        and view.owns(binding)
    )


def find_promises(
    table: FractionTable, caller: Caller, resources: tuple[ResourceName, ResourceName | None]
) -> tuple[Reservation, ...]:
    """The unredeemed reservations of exactly the container's ids, grouped by resource.

    A resource has several where containers of a pod never run at once and share ids: each has its own CDI name, and all
    names must mean the same. A pod with the same ids before, never started, is among the holders, harmlessly.
    """
    return tuple(
        each
        for resource, ids in zip(resources, (caller.cores, caller.memory), strict=True)
        if resource is not None and ids
        for each in table.find_reservations(resource, ids)
        if table.find_binding(each.number) is None
    )


def list_names(table: FractionTable, binding: Binding) -> tuple[str, ...]:
    """The unqualified CDI names that containers got for a binding, first the name of the binding's files."""
    promised = [table.reservations[number].cdi_name for number in binding.reservations]
    names = [read_name(name) for name in promised if name and name != binding.cdi_name]
    return name_files(binding), *names

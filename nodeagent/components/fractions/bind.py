"""What a container that starts is given: what it has already, or what is chosen for it now; pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.components.fractions.decide import PartView, name_files, plan_account, read_name, withhold
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import ControlRefused, NoRoom, PartsUnavailable, RequestInvalid
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, Enforcement, PartTable, Reservation
from nodeagent.model.mps import MpsState
from nodeagent.model.parts import ChoiceCorrection, PodRequest
from nodeagent.model.ports import ContainerDevices
from nodeagent.rules.fractions.enforcement import read_enforcement_wish, tell_several
from nodeagent.rules.fractions.pairing import Caller, find_standing
from nodeagent.rules.fractions.profiles import CoresProfile, Profile
from nodeagent.rules.fractions.requests import check_cores, read_core_limit, read_counts, read_shares
from nodeagent.rules.fractions.tokens import find_near
from nodeagent.rules.fractions.wishes import ChosenPart, Wish, read_wish, render_correction
from nodeagent.rules.mps.parts import plan_obstacles
from nodeagent.rules.placement.evaluators import Demand
from nodeagent.rules.placement.place import Placement, place, render_placement
from nodeagent.rules.placement.space import CORES

HELD_ALL_THE_SAME: Final = (
    "its annotation asks for advise, which is only for pods to choose with `fractions.allow_advise`"
)


class Start(NamedTuple):
    """A container that starts, with all that was found out about it."""

    caller: Caller
    pod: PodRequest | None
    """What the API server says of its pod; `None` where nobody can be asked."""
    settings: FractionsSettings = FractionsSettings()
    daemons: MpsState | None = None
    """The MPS daemons of now; `None` where nobody looks after any."""
    has_mps: bool = False
    """Whether somebody is to look after them."""


class Choice(NamedTuple):
    """What it is to be given."""

    binding: Binding
    """Of number 0 where it has none yet."""
    leaving: tuple[int, ...] = ()
    """Bindings that end with it."""
    placement: Placement | None = None
    """How it was chosen; `None` for one that it has already."""
    problem: str = ""
    """Why what a scheduler wrote means nothing here."""
    overruled: str = ""
    """Why a scheduler's choice was not obeyed, in a word; empty where it was, or there was none."""


def check_request(profile: object, resource: ResourceName, count: int) -> None:
    """See at the admission that so many ids of a resource can be asked for at all.

    Raises:
        RequestInvalid: no container could ever be started with them.
    """
    if isinstance(profile, CoresProfile) and resource == profile.core:
        check_cores(profile, count)


def check_memory(profile: Profile, entries: Sequence[ContainerDevices], devices: Sequence[DeviceId]) -> None:
    """See that a container that starts with these blocks of memory has cores too: without, it is given no GPU.

    Args:
        profile: names and sizes.
        entries: all that one of the kubelet's records has of its pod.
        devices: the blocks.

    Raises:
        RequestInvalid: it has none.
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


def choose(start: Start, view: PartView, table: PartTable, now_seconds: float) -> Choice:
    """What the container is given.

    Raises:
        AllocationError: it asks for what nobody can be given, or there is no room now.
    """
    caller, profile = start.caller, view.profile
    resources = (profile.core, profile.memory) if isinstance(profile, CoresProfile) else (profile.share, None)
    bound = {
        binding.number: _list_ids(table, binding, resources)
        for binding in table.bindings.values()
        if is_same_pod(binding.pod, caller.pod)
    }
    standing, promised = find_standing(bound, caller), find_promises(table, caller, resources)
    is_promised = any(each.cdi_name for each in promised)
    if standing.same is not None and not is_promised:
        same = table.bindings[standing.same]
        return Choice(replace(same, pod=complete_identity(same.pod, caller.pod)))
    if not is_promised:
        raise PartsUnavailable(f"the journal has no promise of the {len(caller.cores)} ids of {resources[0]}")
    # Promised once more, they are another container's than before, which was told a name of its own.
    found = (standing.same, *standing.superseded, *_list_earlier(table, caller))
    leaving = tuple(dict.fromkeys(number for number in found if number is not None))
    demand, core_limit = read_demand(start, view)
    is_obeyed = start.settings.use_scheduler_choice
    wish = _read_wish(view, start.pod, caller.containers[0]) if is_obeyed else Wish()
    enforcement = read_enforcement(start, demand)
    is_held = enforcement is not Enforcement.ADVISE and _read_pod_enforcement(start) is Enforcement.ADVISE
    rest = [one for number, one in table.bindings.items() if number not in leaving]
    obstacles = plan_obstacles(view.gpus, rest, start.daemons, by_mps=enforcement is Enforcement.MPS)
    space = withhold(plan_account(view, table, leaving), obstacles)
    near = find_near(caller.cores, view.gpus)
    placement = place(space, demand, wish=wish.gpus, near=near)
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
        why=f"{placement.rule}; {HELD_ALL_THE_SAME}" if is_held else placement.rule,
    )
    overruled = ""
    if wish.problem or (wish.gpus and set(wish.gpus) != {share.gpu for share in placement.shares}):
        overruled = "unreadable" if wish.problem else "impossible"
    return Choice(binding, leaving, placement, wish.problem, overruled)


def plan_correction(view: PartView, pod: PodRequest, binding: Binding) -> ChoiceCorrection | None:
    """What a pod is to say where a container of it has other GPUs than a scheduler chose; `None` where none has.

    Args:
        view: the node's GPUs, and by which names parts of them are asked for.
        pod: as the API server has it now.
        binding: what the container has.
    """
    wish = _read_wish(view, pod, binding.container)
    given = {part.gpu for part in binding.parts}
    indexes = {gpu.uuid: gpu.index for gpu in view.inventory.gpus}
    if not (wish.gpus or wish.problem) or given == set(wish.gpus) or not given <= indexes.keys():
        return None
    names = [container.name for container in pod.containers]
    return ChoiceCorrection(
        pod=pod.pod,
        container=binding.container,
        annotations=render_correction(
            view.profile,
            pod.annotations,
            [ChosenPart(index=indexes[part.gpu], part=part) for part in binding.parts],
            container=names.index(binding.container),
            init_containers=sum(container.is_init for container in pod.containers),
        ),
        reason=wish.problem or binding.why,
    )


def read_enforcement(start: Start, demand: Demand) -> Enforcement:
    """What holds the container to its part; nothing has to where it has whole GPUs.

    A pod that would free itself of its limits is held to them all the same, unless the configuration leaves it that.

    Raises:
        RequestInvalid: the pod asks for another one that there is not.
    """
    if demand.is_exclusive:
        return Enforcement.ADVISE
    key, wish = start.settings.enforcement_annotation, _read_pod_enforcement(start)
    configured = Enforcement(start.settings.enforcement)
    is_loosening = wish is Enforcement.ADVISE and not start.settings.allow_advise
    enforcement = configured if wish is None or is_loosening else wish
    if enforcement is not Enforcement.MPS:
        return enforcement
    if not start.has_mps:
        raise RequestInvalid(
            key,
            "annotation with value 'mps', and nobody looks after MPS daemons on this node: give another one, or"
            " set `fractions.enforcement` to mps there",
        )
    if demand.gpus > 1:
        raise RequestInvalid(key, tell_several(demand.gpus))
    return enforcement


def _read_pod_enforcement(start: Start) -> Enforcement | None:
    key = start.settings.enforcement_annotation
    return read_enforcement_wish(key, start.pod.annotations) if start.pod is not None else None


def change_parts(binding: Binding, cores: int | None, memory_bytes: int | None) -> Binding:
    """A binding with other limits on the GPUs that it has; `None` leaves one as it is.

    Raises:
        ControlRefused: it has whole GPUs, or the numbers make no sense.
    """
    if any(part.cores >= CORES for part in binding.parts):
        raise ControlRefused(f"{describe_pod(binding)} has whole GPUs, which have no limits to change")
    if cores is not None and not 1 <= cores < CORES:
        raise ControlRefused(f"{cores} cores are no part of a GPU: give 1 to {CORES - 1}")
    if memory_bytes is not None and memory_bytes < 1:
        raise ControlRefused(f"{memory_bytes} bytes are no part of a GPU's memory: give more")
    parts = tuple(
        replace(
            part,
            cores=part.cores if cores is None else cores,
            memory_bytes=part.memory_bytes if memory_bytes is None else memory_bytes,
        )
        for part in binding.parts
    )
    core_limit = binding.core_limit
    if core_limit is not None and cores is not None:
        core_limit = max(core_limit, cores)
    return replace(binding, parts=parts, core_limit=core_limit)


def describe_pod(binding: Binding) -> str:
    """Whose a binding is, for people."""
    return f"{binding.pod.describe()} ({binding.container})"


def find_bindings(table: PartTable, pod: str, container: str) -> tuple[Binding, ...]:
    """Those of a pod, named with its namespace or without, and of one of its containers where that is named."""
    return tuple(
        binding
        for binding in table.bindings.values()
        if pod in {binding.pod.name, f"{binding.pod.namespace}/{binding.pod.name}"}
        and container in {"", binding.container}
    )


def complete_identity(pod: PodIdentity, told: PodIdentity) -> PodIdentity:
    """What was known of a pod, and what is told now where that was not known: a source may have been silent before."""
    return PodIdentity(namespace=pod.namespace or told.namespace, name=pod.name or told.name, uid=pod.uid or told.uid)


def is_same_pod(one: PodIdentity, other: PodIdentity) -> bool:
    """Whether two identities are one pod's: by uid where both tell it, by name where not."""
    if one.uid and other.uid:
        return one.uid == other.uid
    return (one.namespace, one.name) == (other.namespace, other.name)


def read_demand(start: Start, view: PartView) -> tuple[Demand, int | None]:
    """What the container asks for, and the most compute that its pod allows itself.

    Raises:
        RequestInvalid: nobody can be given that, or the pod must be asked and is not known.
    """
    caller, profile = start.caller, view.profile
    if isinstance(profile, CoresProfile):
        demand = read_counts(profile, len(caller.cores), len(caller.memory), view.largest_bytes)
        annotations = start.pod.annotations if start.pod is not None else {}
        return demand, read_core_limit(profile, annotations, demand)
    sizes = _list_limits(start)
    if not sizes:
        raise RequestInvalid(profile.share, "the API server has not told yet how large the pod's shares are")
    demands = [read_shares(profile, len(caller.cores), each, view.largest_bytes) for each in sizes]
    return _join_shares(demands, view.largest_bytes)


def _list_limits(start: Start) -> tuple[Mapping[str, str], ...]:
    """Of each container that may be the one; none while that is not known of all."""
    known = {each.name: each.limits for each in start.pod.containers} if start.pod is not None else {}
    found = tuple(known[name] for name in start.caller.containers if name in known)
    return found if len(found) == len(start.caller.containers) else ()


def _join_shares(demands: Sequence[Demand], largest_bytes: int) -> tuple[Demand, int | None]:
    """What serves whichever of these containers starts, and the most compute that it may use."""

    def measure(each: Demand) -> tuple[bool, int]:
        percent = each.memory_percent
        return each.is_exclusive, each.memory_bytes if percent is None else largest_bytes * percent // 100

    cores = [each.cores for each in demands]
    # One without a limit of compute is not to be held to what another is promised.
    core_limit = CORES if 0 in cores and 0 < max(cores) < CORES else None
    return replace(max(demands, key=measure), cores=max(cores)), core_limit


def _read_wish(view: PartView, pod: PodRequest | None, container: str) -> Wish:
    """What a scheduler chose for a container, where that can be known."""
    names = [each.name for each in pod.containers] if pod is not None else []
    if pod is None or container not in names:
        return Wish()
    inits = sum(each.is_init for each in pod.containers)
    number = names.index(container)
    return read_wish(view.profile, pod.annotations, view.inventory.gpus, container=number, init_containers=inits)


def _list_ids(
    table: PartTable, binding: Binding, resources: tuple[ResourceName, ResourceName | None]
) -> tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]]:
    """The ids of a binding: those of the first resource, and those of the second."""
    promised = [table.reservations[number] for number in binding.reservations]
    cores, memory = (
        tuple(device for each in promised if each.resource == resource for device in each.devices)
        for resource in resources
    )
    return cores, memory


def _list_earlier(table: PartTable, caller: Caller) -> tuple[int, ...]:
    """Bindings of the same container under whatever ids: it starts, so what it was before has ended.

    A kubelet that has lost its notes gives a pod other ids than before, and forgets these.
    """
    return tuple(
        number
        for number, binding in table.bindings.items()
        if binding.pod.uid and binding.pod.uid == caller.pod.uid and binding.container in caller.containers
    )


def find_promises(
    table: PartTable, caller: Caller, resources: tuple[ResourceName, ResourceName | None]
) -> tuple[Reservation, ...]:
    """The promises that nobody has redeemed of exactly the ids that the container has, those of each resource together.

    Several of a resource where containers of a pod that never run at once share their ids: each was told a name of its
    own, and all names must mean the same. A pod that had the ids before and never started is among them, harmlessly.
    """
    return tuple(
        each
        for resource, ids in zip(resources, (caller.cores, caller.memory), strict=True)
        if resource is not None and ids
        for each in table.find_reservations(resource, ids)
        if table.find_binding(each.number) is None
    )


def list_names(table: PartTable, binding: Binding) -> tuple[str, ...]:
    """The unqualified names by which containers were told of a binding, that first by which its files are called."""
    promised = [table.reservations[number].cdi_name for number in binding.reservations]
    names = [read_name(name) for name in promised if name and name != binding.cdi_name]
    return name_files(binding), *names

"""Ids held in the kubelet's records but not in the journal: reserved, and bound where the container runs; pure.

Owns the order of belief: the container's limits file, then the GPUs of its processes, then the GPUs of its ids.
Refuses to bind a container before its start: the GPUs are chosen at the start.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nodeagent.components.fractions.decide import FractionView, list_resources
from nodeagent.components.fractions.judge import FractionPoll
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerState, FractionLimit
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import FractionTable, GpuFraction
from nodeagent.model.ports import ContainerDevices
from nodeagent.rules.cdi_names import FRACTION_KIND
from nodeagent.rules.fractions.device_ids import find_home, plan_device_ids
from nodeagent.rules.fractions.pairing import find_other_half
from nodeagent.rules.fractions.profiles import CoresProfile
from nodeagent.rules.placement.space import CORES


class Promise(NamedTuple):
    """Ids given out, with the container's CDI name."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    cdi_name: str = ""


class Adoption(NamedTuple):
    """A container with fractions, missing in the journal."""

    pod: PodIdentity
    container: str
    promises: tuple[Promise, ...]
    parts: tuple[GpuFraction, ...]
    """Empty before the container's start, when its GPUs are chosen."""
    source: str
    """The source that gave the GPUs."""


def list_unknown_names(table: FractionTable, look: FractionPoll, view: FractionView) -> tuple[str, ...]:
    """The unqualified names of containers missing in the journal, for finding their limits files."""
    groups = _list_unknown(table, look, view)
    return tuple(_unqualify(entry.cdi_names) for group in groups for entry in group if entry.cdi_names)


def plan_adoptions(
    table: FractionTable, look: FractionPoll, view: FractionView, limits: Mapping[str, Sequence[FractionLimit]]
) -> tuple[Adoption, ...]:
    """All containers with ids missing in the journal; `limits` are the contents of their limits files, by name."""
    return tuple(_adopt(group, look, view, limits) for group in _list_unknown(table, look, view))


def _list_unknown(
    table: FractionTable, look: FractionPoll, view: FractionView
) -> tuple[tuple[ContainerDevices, ...], ...]:
    """The checkpoint's entries of pods still in the list; entries with the same ids make a single binding."""
    if look.listing is None or look.checkpoint is None:
        return ()
    first = list_resources(view.profile)[0]
    noted = [entry for entry in look.checkpoint.containers if entry.resource == first]
    # Init containers stand in the checkpoint alone, beside another container of their pod.
    listed = {frozenset(entry.devices) for entry in look.listing.containers if entry.resource == first}
    living = {entry.pod.uid for entry in noted if frozenset(entry.devices) in listed}
    groups: dict[tuple[str, frozenset[DeviceId]], list[ContainerDevices]] = {}
    for entry in noted:
        if entry.pod.uid in living and not table.find_reservations(first, entry.devices):
            groups.setdefault((entry.pod.uid, frozenset(entry.devices)), []).append(entry)
    return tuple(map(tuple, groups.values()))


def _adopt(
    group: Sequence[ContainerDevices],
    look: FractionPoll,
    view: FractionView,
    limits: Mapping[str, Sequence[FractionLimit]],
) -> Adoption:
    # First the name used for the files.
    named = sorted(group, key=lambda each: _unqualify(each.cdi_names) not in limits)
    entry = next((each for each in reversed(named) if _runs(each, look)), named[0])
    pod = find_other_half(look.records, entry.pod)
    promises: list[Promise] = []
    for each in named:
        promises.append(Promise(each.resource, each.devices, next(iter(each.cdi_names), "")))
        if held := _find_memory(each, look, view):
            promises.append(Promise(list_resources(view.profile)[1], held))
    memory = _find_memory(entry, look, view)
    told = limits.get(_unqualify(named[0].cdi_names), ())
    fractions, source = _find_fractions(entry, memory, look, view, told)
    if not _runs(entry, look):
        fractions, source = (), "its container has not started"
    return Adoption(pod, entry.container, tuple(promises), fractions, source)


def _is_listed(entry: ContainerDevices, look: FractionPoll) -> bool:
    """Whether the kubelet's list has a container of the same name with just these ids."""
    wanted = (entry.resource, entry.container, frozenset(entry.devices))
    return any((each.resource, each.container, frozenset(each.devices)) == wanted for each in look.records.listed)


def _find_memory(entry: ContainerDevices, look: FractionPoll, view: FractionView) -> tuple[DeviceId, ...]:
    if not isinstance(view.profile, CoresProfile):
        return ()
    wanted = (view.profile.memory, entry.pod.uid, entry.container)
    noted = (each for each in look.records.noted if (each.resource, each.pod.uid, each.container) == wanted)
    return next((each.devices for each in noted), ())


def _runs(entry: ContainerDevices, look: FractionPoll) -> bool:
    """Whether the runtime has the container; without an answer a container in the kubelet's list may be running."""
    if look.containers is None:
        return _is_listed(entry, look)
    return any(
        (each.pod_uid, each.name) == (entry.pod.uid, entry.container) and each.state is not ContainerState.EXITED
        for each in look.containers
    )


def _find_fractions(
    entry: ContainerDevices,
    memory: tuple[DeviceId, ...],
    look: FractionPoll,
    view: FractionView,
    limits: Sequence[FractionLimit],
) -> tuple[tuple[GpuFraction, ...], str]:
    whole = {each.gpu: each.memory_bytes for each in view.capacities}
    told = [each for each in limits if each.gpu in whole]
    if told:
        fractions = (
            GpuFraction(
                gpu=each.gpu,
                cores=_count_cores(entry, each, view) if each.cores is None else each.cores,
                memory_bytes=whole[each.gpu] if each.memory_bytes is None else each.memory_bytes,
            )
            for each in told
        )
        return tuple(fractions), "the limits that it was given"
    used = [gpu for gpu, pods in (look.users or {}).items() if entry.pod.uid in pods and gpu in whole]
    gpus = used or find_home(entry.devices, plan_device_ids(view.gpus, view.profile, view.memory_ratio))
    source = "where its processes are" if used else "the GPUs that its ids stand for"
    return _guess_fractions(entry, memory, gpus, view, whole), source


def _count_cores(entry: ContainerDevices, told: FractionLimit, view: FractionView) -> int:
    """The cores of a container without a compute limit: the number of its ids.

    Ids of shares do not tell; but a container with a memory limit has no whole GPU, which would exclude all others.
    """
    if isinstance(view.profile, CoresProfile):
        return min(len(entry.devices), CORES)
    return CORES if told.memory_bytes is None else 0


def _guess_fractions(
    entry: ContainerDevices,
    memory: tuple[DeviceId, ...],
    gpus: Sequence[GpuUuid],
    view: FractionView,
    whole: Mapping[GpuUuid, int],
) -> tuple[GpuFraction, ...]:
    """The container's requested fractions, by the number of its ids."""
    cores = len(entry.devices)
    if not isinstance(view.profile, CoresProfile) or cores >= CORES:
        count = max(1, cores // CORES) if isinstance(view.profile, CoresProfile) else cores
        return tuple(GpuFraction(gpu=gpu, cores=CORES, memory_bytes=whole[gpu]) for gpu in gpus[:count])
    size = len(memory) * view.profile.block_bytes
    return tuple(GpuFraction(gpu=gpu, cores=cores, memory_bytes=size) for gpu in gpus[:1])


def _unqualify(names: Sequence[str]) -> str:
    """The first name of a fraction among the CDI names, without its kind."""
    prefix = f"{FRACTION_KIND}="
    return next((name.removeprefix(prefix) for name in names if name.startswith(prefix)), "")

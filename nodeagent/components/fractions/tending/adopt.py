"""What the kubelet holds and the journal does not know of: promised again, and bound where its container runs; pure.

Owns the order of what is believed: the limits that the container was given, then where its processes are, then the GPUs
that its ids stand for.
Refuses to bind what has not started: its GPUs are chosen when it does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nodeagent.components.fractions.decide import PartView, list_resources
from nodeagent.components.fractions.tending.judge import PartLook
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import GpuPart, PartTable
from nodeagent.model.parts import ContainerState, PartLimit
from nodeagent.model.ports import ContainerDevices
from nodeagent.rules.cdi_names import PART_KIND
from nodeagent.rules.fractions.profiles import CoresProfile
from nodeagent.rules.fractions.tokens import find_home, plan_tokens
from nodeagent.rules.placement.space import CORES


class Promise(NamedTuple):
    """Ids that were given out, and by which name the container was told."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    cdi_name: str = ""


class Adoption(NamedTuple):
    """A container that has what nobody remembers giving it."""

    pod: PodIdentity
    container: str
    promises: tuple[Promise, ...]
    parts: tuple[GpuPart, ...]
    """None where it has not started: they are chosen then."""
    source: str
    """What told which GPUs it has."""


def list_unknown_names(table: PartTable, look: PartLook, view: PartView) -> tuple[str, ...]:
    """The unqualified names of containers of which the journal knows nothing, to look for what they were told."""
    return tuple(_unqualify(entry.cdi_names) for entry in _list_unknown(table, look, view) if entry.cdi_names)


def plan_adoptions(
    table: PartTable, look: PartLook, view: PartView, limits: Mapping[str, Sequence[PartLimit]]
) -> tuple[Adoption, ...]:
    """All containers that hold ids of which the journal knows nothing; `limits` is what they were told, by name."""
    return tuple(_adopt(entry, look, view, limits) for entry in _list_unknown(table, look, view))


def _list_unknown(table: PartTable, look: PartLook, view: PartView) -> Iterator[ContainerDevices]:
    """From the kubelet's notes, of pods that its list still has."""
    if look.listing is None or look.checkpoint is None:
        return
    first = list_resources(view.profile)[0]
    listed = {frozenset(entry.devices) for entry in look.listing.containers if entry.resource == first}
    for entry in look.checkpoint.containers:
        is_held = entry.resource == first and frozenset(entry.devices) in listed
        if is_held and not table.find_reservations(first, entry.devices):
            yield entry


def _adopt(
    entry: ContainerDevices, look: PartLook, view: PartView, limits: Mapping[str, Sequence[PartLimit]]
) -> Adoption:
    pod = _name_pod(entry, look)
    promises = [Promise(entry.resource, entry.devices, next(iter(entry.cdi_names), ""))]
    memory = _find_memory(entry, look, view)
    if memory:
        promises.append(Promise(list_resources(view.profile)[1], memory))
    parts, source = _find_parts(entry, memory, look, view, limits)
    if not _runs(entry, look):
        parts, source = (), "its container has not started"
    return Adoption(pod, entry.container, tuple(promises), parts, source)


def _name_pod(entry: ContainerDevices, look: PartLook) -> PodIdentity:
    """The notes have the uid, the list has the name of whoever holds the same ids."""
    assert look.listing is not None
    named = (each.pod for each in look.listing.containers if set(each.devices) == set(entry.devices))
    found = next(named, entry.pod)
    return PodIdentity(namespace=found.namespace, name=found.name, uid=entry.pod.uid)


def _find_memory(entry: ContainerDevices, look: PartLook, view: PartView) -> tuple[DeviceId, ...]:
    if not isinstance(view.profile, CoresProfile) or look.checkpoint is None:
        return ()
    wanted = (view.profile.memory, entry.pod.uid, entry.container)
    return next(
        (
            each.devices
            for each in look.checkpoint.containers
            if (each.resource, each.pod.uid, each.container) == wanted
        ),
        (),
    )


def _runs(entry: ContainerDevices, look: PartLook) -> bool:
    """Whether the runtime has the container; where it cannot be asked, it may be so."""
    return look.containers is None or any(
        (each.pod_uid, each.name) == (entry.pod.uid, entry.container) and each.state is not ContainerState.EXITED
        for each in look.containers
    )


def _find_parts(
    entry: ContainerDevices,
    memory: tuple[DeviceId, ...],
    look: PartLook,
    view: PartView,
    limits: Mapping[str, Sequence[PartLimit]],
) -> tuple[tuple[GpuPart, ...], str]:
    whole = {each.gpu: each.memory_bytes for each in view.capacities}
    told = [each for each in limits.get(_unqualify(entry.cdi_names), ()) if each.gpu in whole]
    if told:
        parts = (
            GpuPart(
                gpu=each.gpu,
                cores=CORES if each.cores is None else each.cores,
                memory_bytes=whole[each.gpu] if each.memory_bytes is None else each.memory_bytes,
            )
            for each in told
        )
        return tuple(parts), "the limits that it was given"
    used = [gpu for gpu, pods in (look.users or {}).items() if entry.pod.uid in pods and gpu in whole]
    gpus = used or find_home(entry.devices, plan_tokens(view.gpus, view.profile, view.memory_ratio))
    source = "where its processes are" if used else "the GPUs that its ids stand for"
    return _guess_parts(entry, memory, gpus, view, whole), source


def _guess_parts(
    entry: ContainerDevices,
    memory: tuple[DeviceId, ...],
    gpus: Sequence[GpuUuid],
    view: PartView,
    whole: Mapping[GpuUuid, int],
) -> tuple[GpuPart, ...]:
    """As much as the container asked for: by the number of its ids."""
    cores = len(entry.devices)
    if not isinstance(view.profile, CoresProfile) or cores >= CORES:
        count = max(1, cores // CORES) if isinstance(view.profile, CoresProfile) else cores
        return tuple(GpuPart(gpu=gpu, cores=CORES, memory_bytes=whole[gpu]) for gpu in gpus[:count])
    size = len(memory) * view.profile.block_bytes
    return tuple(GpuPart(gpu=gpu, cores=cores, memory_bytes=size) for gpu in gpus[:1])


def _unqualify(names: Sequence[str]) -> str:
    """The first of the names that are ours, without its kind."""
    prefix = f"{PART_KIND}="
    return next((name.removeprefix(prefix) for name in names if name.startswith(prefix)), "")

"""Which container is about to start: by the ids with which the kubelet asks, and what it has written down of them.

Owns the joining of the two records of the kubelet, of which each leaves something out: its list of pods has names and
no uids, and no ordinary init containers; its checkpoint has uids and no names, and may be late.
Refuses to guess: where the records contradict each other the kubelet is told to ask again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import CallerUnclear
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports.kubelet import ContainerDevices
from nodeagent.model.values import Value


class Caller(Value, frozen=True):
    """A container that is about to start, and all that it holds."""

    pod: PodIdentity
    containers: tuple[str, ...]
    """One; several where containers of a pod that never run at once hold the same ids, and none can be ruled out."""
    cores: tuple[DeviceId, ...]
    memory: tuple[DeviceId, ...] = ()


class Records(Value, frozen=True):
    """What there is to know of who holds what; each may be empty where its source could not be read."""

    listed: tuple[ContainerDevices, ...] = ()
    """The kubelet's list of pods: by name."""
    noted: tuple[ContainerDevices, ...] = ()
    """The kubelet's checkpoint: by uid."""
    pods: tuple[PodIdentity, ...] = ()
    """Pods of which name and uid are known, from whoever knows them."""
    starting: Mapping[str, Collection[str]] | None = None
    """By uid the containers that may start now; `None` where nobody knows."""


def find_caller(records: Records, core: ResourceName, memory: ResourceName | None, ids: Sequence[DeviceId]) -> Caller:
    """The container that starts with these ids of the core resource.

    Raises:
        CallerUnclear: the records do not tell yet, or contradict each other.
    """
    listed = _list_holders(records, records.listed, core, ids)
    noted = _list_holders(records, records.noted, core, ids)
    pods = _join({pod for pod, _ in listed}, {pod for pod, _ in noted})
    if not pods:
        raise CallerUnclear(core, "the kubelet has not written down yet who has them")
    if len(pods) > 1:
        raise CallerUnclear(core, f"the kubelet's records name {' and '.join(sorted(map(_describe, pods)))}")
    pod = find_other_half(records, *pods)
    containers = _narrow(records, pod, tuple(dict.fromkeys(container for _, container in (*noted, *listed))))
    held = {container: _find_memory(records, memory, pod, container) for container in containers}
    if len({len(each) for each in held.values()}) > 1:
        reason = f"{', '.join(containers)} of {_describe(pod)} hold the same ids and differ in what else they hold"
        raise CallerUnclear(core, reason)
    return Caller(pod=pod, containers=containers, cores=tuple(sorted(ids)), memory=held[containers[0]])


def _list_holders(
    records: Records, entries: Iterable[ContainerDevices], core: ResourceName, ids: Iterable[DeviceId]
) -> list[tuple[PodIdentity, str]]:
    """Pod and container of each entry that has these ids and no others."""
    wanted = set(ids)
    return [
        (_complete(records, entry.pod), entry.container)
        for entry in entries
        if entry.resource == core and wanted == set(entry.devices)
    ]


def _complete(records: Records, pod: PodIdentity) -> PodIdentity:
    """With name and uid where somebody knows both."""
    return next((known for known in records.pods if _is_same(pod, known)), pod)


def _is_same(entry: PodIdentity, pod: PodIdentity) -> bool:
    """Whether an entry's half of an identity is of this pod."""
    if entry.uid:
        return entry.uid == pod.uid
    return (entry.namespace, entry.name) == (pod.namespace, pod.name)


def _join(listed: set[PodIdentity], noted: set[PodIdentity]) -> set[PodIdentity]:
    """The pods of both records; a name and a uid that stand alone are one pod's, for an id has one holder at a time."""
    if len(listed) == len(noted) == 1:
        (named,), (numbered,) = listed, noted
        if not named.uid and not numbered.name:
            return {replace(named, uid=numbered.uid)}
    return listed | noted


def find_other_half(records: Records, pod: PodIdentity) -> PodIdentity:
    """With name and uid where another container of the pod has both: the list leaves out init containers."""
    if pod.name and pod.uid:
        return pod
    named = {(entry.resource, frozenset(entry.devices)): entry.pod for entry in records.listed if not entry.pod.uid}
    for entry in records.noted:
        found = named.get((entry.resource, frozenset(entry.devices)))
        if found is not None and not entry.pod.name:
            both = replace(found, uid=entry.pod.uid)
            if _is_same(pod, both):
                return both
    return pod


def _narrow(records: Records, pod: PodIdentity, containers: tuple[str, ...]) -> tuple[str, ...]:
    """Those that may start now; all of them where that is not known, or cannot be so."""
    starting = None if records.starting is None else records.starting.get(pod.uid)
    return tuple(each for each in containers if starting is None or each in starting) or containers


def _find_memory(
    records: Records, memory: ResourceName | None, pod: PodIdentity, container: str
) -> tuple[DeviceId, ...]:
    found: set[DeviceId] = set()
    for entry in (*records.listed, *records.noted):
        if (entry.resource, entry.container) == (memory, container) and _is_same(_complete(records, entry.pod), pod):
            found.update(entry.devices)
    return tuple(sorted(found))


def _describe(pod: PodIdentity) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.name else f"pod {pod.uid}"


class Standing(NamedTuple):
    """What a pod's bindings are to a container of it that starts."""

    same: int | None
    """The binding that it has already: it starts again, or shares all ids with one that has ended."""
    superseded: tuple[int, ...]
    """Bindings of containers that must have ended, for the kubelet gives an id to nobody else before."""


def find_standing(bound: Mapping[int, tuple[Collection[DeviceId], Collection[DeviceId]]], caller: Caller) -> Standing:
    """Look at the bindings of the caller's pod, by number: their ids of cores and of memory."""
    same: int | None = None
    superseded: list[int] = []
    for number, (cores, memory) in sorted(bound.items()):
        if (set(cores), set(memory)) == (set(caller.cores), set(caller.memory)):
            same = number
        elif not set(cores).isdisjoint(caller.cores):
            superseded.append(number)
    return Standing(same, tuple(superseded))

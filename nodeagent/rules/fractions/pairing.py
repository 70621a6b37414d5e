"""The container about to start: found by the device ids of the kubelet's call, and the kubelet's records of them.

Owns the joining of the two records of the kubelet, each incomplete: the list of pods has names and
no uids, and no ordinary init containers; the checkpoint has uids and no names, and may be late.

Refuses to guess: where the records contradict each other the kubelet is told to ask again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import CallerUnclear
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports.kubelet import ContainerDevices
from nodeagent.model.values import Value


class Caller(Value, frozen=True):
    """A container about to start, with all device ids."""

    pod: PodIdentity
    containers: tuple[str, ...]
    """One; several where containers of a pod that never run at once hold the same ids, and none can be ruled out.

    The container in the kubelet's list comes first: it runs when the init containers have ended.
    """
    cores: tuple[DeviceId, ...]
    memory: tuple[DeviceId, ...] = ()

    def describe(self) -> str:
        """The container's name for people."""
        return f"{self.pod.describe()} ({self.containers[0]})"


class Records(Value, frozen=True, dict=True):
    """The known holders of device ids; a source may be empty because of a failed read."""

    listed: tuple[ContainerDevices, ...] = ()
    """The kubelet's list of pods: by name."""
    noted: tuple[ContainerDevices, ...] = ()
    """The kubelet's checkpoint: by uid."""

    @cached_property
    def halves(self) -> tuple[tuple[PodIdentity, str], ...]:
        """A name and a uid for each entry of the checkpoint whose ids the list has by name: both of one pod."""
        named = {(entry.resource, frozenset(entry.devices)): entry.pod for entry in self.listed if not entry.pod.uid}
        known = ((named.get((each.resource, frozenset(each.devices))), each.pod) for each in self.noted)
        return tuple((name, noted.uid) for name, noted in known if name is not None and not noted.name)

    @cached_property
    def by_uid(self) -> Mapping[str, PodIdentity]:
        """The first such pair of each uid, with both."""
        return {uid: replace(name, uid=uid) for name, uid in reversed(self.halves)}

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], PodIdentity]:
        """The first such pair of each name, with both."""
        return {(name.namespace, name.name): replace(name, uid=uid) for name, uid in reversed(self.halves)}


def is_proven(noted: Sequence[ContainerDevices], core: ResourceName, ids: Iterable[DeviceId], promised: str) -> bool:
    """Whether the checkpoint alone proves the owner: one pod with the ids and the CDI name last promised for them.

    Only the last container admitted with the ids was told the name, so the checkpoint is not late.
    """
    wanted = set(ids)
    found = [entry for entry in noted if entry.resource == core and wanted == set(entry.devices)]
    return len({entry.pod for entry in found}) == 1 and any(promised in entry.cdi_names for entry in found)


def find_caller(records: Records, core: ResourceName, memory: ResourceName | None, ids: Sequence[DeviceId]) -> Caller:
    """The container that starts with these ids of the core resource.

    Raises:
        CallerUnclear: the records do not name the container yet, or contradict each other.
    """
    listed = _list_holders(records.listed, core, ids)
    noted = _list_holders(records.noted, core, ids)
    pods = _join({pod for pod, _ in listed}, {pod for pod, _ in noted})
    if not pods:
        raise CallerUnclear(core, "the kubelet has not written down yet who has them")
    if len(pods) > 1:
        raise CallerUnclear(core, f"the kubelet's records name {' and '.join(sorted(map(PodIdentity.describe, pods)))}")
    pod = find_other_half(records, *pods)
    containers = tuple(dict.fromkeys(container for _, container in (*listed, *noted)))
    held = [_find_memory(records, memory, pod, container) for container in containers]
    # The containers never run at once, and the pod was admitted with the largest request among them.
    most = max(held, key=len)
    if any(not set(most).issuperset(each) for each in held):
        reason = f"{', '.join(containers)} of {pod.describe()} hold the same ids and differ in what else they hold"
        raise CallerUnclear(core, reason)
    return Caller(pod=pod, containers=containers, cores=tuple(sorted(ids)), memory=most)


def _list_holders(
    entries: Iterable[ContainerDevices], core: ResourceName, ids: Iterable[DeviceId]
) -> list[tuple[PodIdentity, str]]:
    """Pod and container of each entry with exactly the given ids."""
    wanted = set(ids)
    return [
        (entry.pod, entry.container) for entry in entries if entry.resource == core and wanted == set(entry.devices)
    ]


def _is_same(entry: PodIdentity, pod: PodIdentity) -> bool:
    """Whether an entry's half of an identity belongs to the pod."""
    if entry.uid:
        return entry.uid == pod.uid
    return (entry.namespace, entry.name) == (pod.namespace, pod.name)


def _join(listed: set[PodIdentity], noted: set[PodIdentity]) -> set[PodIdentity]:
    """The pods of both records; a lone name and a lone uid are one pod's, for an id has one holder at a time."""
    if len(listed) == len(noted) == 1:
        (named,), (numbered,) = listed, noted
        if not named.uid and not numbered.name:
            return {replace(named, uid=numbered.uid)}
    return listed | noted


def find_other_half(records: Records, pod: PodIdentity) -> PodIdentity:
    """With name and uid where another container of the pod has both: the list leaves out init containers."""
    if pod.name and pod.uid:
        return pod
    found = records.by_uid.get(pod.uid) if pod.uid else records.by_name.get((pod.namespace, pod.name))
    return found or pod


def _find_memory(
    records: Records, memory: ResourceName | None, pod: PodIdentity, container: str
) -> tuple[DeviceId, ...]:
    found: set[DeviceId] = set()
    for entry in (*records.listed, *records.noted):
        if (entry.resource, entry.container) == (memory, container) and _is_same(entry.pod, pod):
            found.update(entry.devices)
    return tuple(sorted(found))


class Standing(NamedTuple):
    """The relation of a pod's bindings to a starting container of the pod."""

    same: int | None
    """The container's present binding: it starts again, or shares all ids with an ended container."""
    superseded: tuple[int, ...]
    """Bindings of containers that must have ended, for the kubelet gives an id to no other container before."""


def find_standing(bound: Mapping[int, tuple[Collection[DeviceId], Collection[DeviceId]]], caller: Caller) -> Standing:
    """Compare the bindings of the caller's pod, by number, with the caller: core ids and memory ids."""
    same: int | None = None
    superseded: list[int] = []
    for number, (cores, memory) in sorted(bound.items()):
        if (set(cores), set(memory)) == (set(caller.cores), set(caller.memory)):
            same = number
        elif not set(cores).isdisjoint(caller.cores):
            superseded.append(number)
    return Standing(same, tuple(superseded))

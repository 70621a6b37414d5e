"""What has become of each promise and each binding, by all that can be asked: the kubelet, the runtime, the GPUs; pure.

Owns what counts as the word of each source. The kubelet's list says which pods are active and which containers hold
what, but for ordinary init containers; those stand in its notes, where pods stay that are gone.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from nodeagent.components.fractions.bind import is_same_pod
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, Enforcement, PartTable, Reservation
from nodeagent.model.parts import ContainerState, PodContainer
from nodeagent.model.ports import KubeletCheckpoint, PodListing
from nodeagent.rules.fractions.pairing import Records, find_other_half
from nodeagent.rules.fractions.recovery import (
    Action,
    Container,
    Evidence,
    Finding,
    Kubelet,
    Own,
    Process,
    decide_recovery,
)

Holders: TypeAlias = Mapping[tuple[ResourceName, frozenset[DeviceId]], Sequence[PodIdentity]]


class PartLook(NamedTuple):
    """What was seen in one look; `None` where it could not be."""

    listing: PodListing | None
    checkpoint: KubeletCheckpoint | None
    containers: tuple[PodContainer, ...] | None
    users: Mapping[GpuUuid, frozenset[str]] | None
    """By GPU the uids of pods whose processes use it."""
    now_seconds: float
    """By a clock that never jumps."""
    finished: Collection[str] = ()
    """The uids of pods of which the API server says that nothing of them will run any more."""
    unread: Collection[GpuUuid] = ()
    """The GPUs of which the driver does not say now who uses them."""
    silence: str = ""
    """Why the container runtime does not say what containers there are."""


class Judgement(NamedTuple):
    """What is to be done about everything, and what to remember until the next look."""

    findings: Mapping[int, Finding]
    over_since: Mapping[int, float]
    """Since when what seems to be over has seemed so, by number."""

    def list_ended(self) -> dict[int, str]:
        """What is released or rolled back, with the reason."""
        ending = (Action.RELEASE, Action.ROLL_BACK)
        return {number: finding.reason for number, finding in self.findings.items() if finding.action in ending}

    def list_orphans(self) -> tuple[int, ...]:
        """Bindings that are kept without the kubelet's word."""
        return tuple(number for number, finding in self.findings.items() if finding.action is Action.ORPHAN)


def find_identities(table: PartTable, look: PartLook) -> tuple[Binding, ...]:
    """Bindings of which name and uid of the pod are known only now, with both.

    When they were made one of the kubelet's records was silent; without the uid no other source can be asked of them.
    """
    listed = look.listing.containers if look.listing is not None else ()
    noted = look.checkpoint.containers if look.checkpoint is not None else ()
    records = Records(listed=listed, noted=noted)
    known = [(each, find_other_half(records, each.pod)) for each in list_halves(table)]
    return tuple(replace(binding, pod=pod) for binding, pod in known if pod != binding.pod)


def list_halves(table: PartTable) -> tuple[Binding, ...]:
    """Bindings of which the pod's name or its uid is not known."""
    return tuple(each for each in table.bindings.values() if not (each.pod.name and each.pod.uid))


def judge_all(table: PartTable, look: PartLook, over_since: Mapping[int, float]) -> Judgement:
    """Everything that is promised or bound, each by itself."""
    findings: dict[int, Finding] = {}
    holders = find_holders(look)
    for reservation in table.reservations.values():
        if reservation.number not in table.redeemed:
            findings[reservation.number] = decide_recovery(_weigh_promise(reservation, look, holders, over_since))
    for binding in table.bindings.values():
        findings[binding.number] = decide_recovery(_weigh_binding(table, binding, look, holders, over_since))
    doubtful = (number for number, finding in findings.items() if finding.action is Action.LOOK_AGAIN)
    return Judgement(findings, {number: over_since.get(number, look.now_seconds) for number in doubtful})


def find_holders(look: PartLook) -> Holders:
    """Who holds just these ids, by the kubelet's list and its notes; found once, for there may be hundreds of each."""
    holders: dict[tuple[ResourceName, frozenset[DeviceId]], list[PodIdentity]] = {}
    listed = look.listing.containers if look.listing is not None else ()
    for entry in (*listed, *(look.checkpoint.containers if look.checkpoint is not None else ())):
        holders.setdefault((entry.resource, frozenset(entry.devices)), []).append(entry.pod)
    return holders


def _weigh_promise(
    reservation: Reservation, look: PartLook, holders: Holders, over_since: Mapping[int, float]
) -> Evidence:
    """Of a promise nobody knows the pod: whoever holds just these ids is the one."""
    kubelet = Kubelet.UNREADABLE
    if look.listing is not None:
        holds = (reservation.resource, frozenset(reservation.devices)) in holders
        # Init containers stand in the notes alone, and one may start again whose promise was kept for that.
        kubelet = Kubelet.YES if holds else Kubelet.UNREADABLE if look.checkpoint is None else Kubelet.NO
    return Evidence(
        own=Own.RESERVED,
        kubelet=kubelet,
        over_since_seconds=over_since.get(reservation.number),
        now_seconds=look.now_seconds,
    )


def _weigh_binding(
    table: PartTable, binding: Binding, look: PartLook, holders: Holders, over_since: Mapping[int, float]
) -> Evidence:
    return Evidence(
        own=Own.BOUND,
        kubelet=_ask_kubelet(table, binding, look, holders),
        process=_ask_gpus(binding, look),
        container=_ask_runtime(binding, look.containers),
        is_finished=binding.pod.uid in look.finished,
        over_since_seconds=over_since.get(binding.number),
        now_seconds=look.now_seconds,
    )


def _ask_kubelet(table: PartTable, binding: Binding, look: PartLook, holders: Holders) -> Kubelet:
    if look.listing is None:
        return Kubelet.UNREADABLE
    if not binding.pod.name and look.checkpoint is None:
        return Kubelet.UNREADABLE
    promised = [table.reservations[number] for number in binding.reservations]
    holding = [pod for each in promised for pod in holders.get((each.resource, frozenset(each.devices)), ())]
    if binding.pod.name:
        lives = is_active(binding.pod, look.listing)
    else:
        # The notes keep who has gone until the next pod comes; the list has its ids by name, and the runtime its uid.
        lives = any(pod.name for pod in holding) or _has_containers(binding.pod, look.containers)
    return Kubelet.YES if lives and any(_is_of(pod, binding.pod) for pod in holding) else Kubelet.NO


def is_active(pod: PodIdentity, listing: PodListing) -> bool:
    """Whether the kubelet's list has the pod, of which it knows the name alone."""
    return any((each.namespace, each.name) == (pod.namespace, pod.name) for each in listing.pods)


def _has_containers(pod: PodIdentity, containers: tuple[PodContainer, ...] | None) -> bool:
    """Whether the runtime has anything of a pod, ended or not, or does not say."""
    return containers is None or any(each.pod_uid == pod.uid for each in containers)


def _is_of(entry: PodIdentity, pod: PodIdentity) -> bool:
    """Whether an entry, which has a name or a uid, is of this pod."""
    return entry.uid == pod.uid if entry.uid and not entry.name else is_same_pod(entry, pod)


def _ask_gpus(binding: Binding, look: PartLook) -> Process:
    if look.users is None:
        return Process.UNKNOWN
    users = (look.users.get(part.gpu, frozenset()) for part in binding.parts)
    if any(binding.pod.uid in each for each in users):
        return Process.CONTAINER
    return Process.UNKNOWN if any(part.gpu in look.unread for part in binding.parts) else Process.NONE


def _ask_runtime(binding: Binding, containers: tuple[PodContainer, ...] | None) -> Container:
    if containers is None:
        return Container.UNREADABLE
    living = any(
        each.name == binding.container and _is_in(each, binding.pod) and each.state is not ContainerState.EXITED
        for each in containers
    )
    return Container.PRESENT if living else Container.ABSENT


def _is_in(container: PodContainer, pod: PodIdentity) -> bool:
    """By name where nobody has told the pod's uid: the kubelet may have forgotten it before it could be read."""
    if pod.uid:
        return container.pod_uid == pod.uid
    return (container.namespace, container.pod) == (pod.namespace, pod.name)


def list_users_of_library(table: PartTable, look: PartLook) -> tuple[Binding, ...]:
    """The bindings that the library is to hold, and whose pods have processes on their GPUs, as far as that is seen."""
    users = look.users or {}
    return tuple(
        binding
        for binding in table.bindings.values()
        if binding.enforcement is Enforcement.LIBRARY
        and any(binding.pod.uid in users.get(part.gpu, frozenset()) for part in binding.parts)
    )

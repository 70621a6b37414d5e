"""The verdict on each reservation and binding by all sources: the kubelet, the runtime, the GPUs; pure.

Owns the meaning of each source. The kubelet's list has the active pods and their containers' devices, except for
ordinary init containers; the checkpoint has those too, but also pods that are gone.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from nodeagent.components.fractions.bind import is_same_pod
from nodeagent.components.fractions.recovery import (
    Action,
    Container,
    Evidence,
    Finding,
    Kubelet,
    Process,
    decide_recovery,
)
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, Enforcement, FractionTable, Reservation
from nodeagent.model.ports import KubeletCheckpoint, PodListing
from nodeagent.rules.fractions.pairing import Records, find_other_half
from nodeagent.rules.ids import is_of_class

Holders: TypeAlias = Mapping[tuple[ResourceName, frozenset[DeviceId]], Sequence[PodIdentity]]


class FractionPoll(NamedTuple):
    """The answers of all sources in a single poll; `None` for a failed source."""

    listing: PodListing | None
    checkpoint: KubeletCheckpoint | None
    containers: tuple[PodContainer, ...] | None
    users: Mapping[GpuUuid, frozenset[str]] | None
    """By GPU the uids of pods with processes on the GPU."""
    now_seconds: float
    """By a clock that never jumps."""
    finished: Collection[str] = ()
    """The uids of pods that have finished for good by the API server."""
    unread: Collection[GpuUuid] = ()
    """The GPUs whose processes the driver does not give now."""
    silence: str = ""
    """Why the kubelet's container runtime does not list its containers."""

    @property
    def records(self) -> Records:
        """The holders of ids by the kubelet's list and checkpoint, as far as both were read."""
        return Records(
            listed=self.listing.containers if self.listing is not None else (),
            noted=self.checkpoint.containers if self.checkpoint is not None else (),
        )


class Judgement(NamedTuple):
    """The findings for reservations and bindings, and the memory for the next poll."""

    findings: Mapping[int, Finding]
    over_since: Mapping[int, float]
    """Since when a reservation or binding has seemed to be over, by number."""

    def list_ended(self) -> dict[int, str]:
        """The numbers to release, with the reason."""
        return {number: finding.reason for number, finding in self.findings.items() if finding.action is Action.RELEASE}

    def list_orphans(self) -> tuple[int, ...]:
        """Bindings kept without the kubelet's word."""
        return tuple(number for number, finding in self.findings.items() if finding.action is Action.ORPHAN)


def find_identities(table: FractionTable, look: FractionPoll) -> tuple[Binding, ...]:
    """Bindings with a newly completed identity of the pod, name and uid.

    At the binding the kubelet's list or checkpoint was silent; without the uid no other source can be asked.
    """
    records = look.records
    known = [(each, find_other_half(records, each.pod)) for each in list_halves(table)]
    return tuple(replace(binding, pod=pod) for binding, pod in known if pod != binding.pod)


def list_halves(table: FractionTable) -> tuple[Binding, ...]:
    """Bindings whose pod has no known name or no known uid."""
    return tuple(each for each in table.bindings.values() if not (each.pod.name and each.pod.uid))


def judge_all(table: FractionTable, look: FractionPoll, over_since: Mapping[int, float]) -> Judgement:
    """Judge each reservation and each binding separately."""
    findings: dict[int, Finding] = {}
    holders = find_holders(look)
    for reservation in table.reservations.values():
        if reservation.number not in table.redeemed:
            findings[reservation.number] = decide_recovery(_weigh_promise(reservation, look, holders, over_since))
    for binding in table.bindings.values():
        findings[binding.number] = decide_recovery(_weigh_binding(table, binding, look, holders, over_since))
    doubtful = (number for number, finding in findings.items() if finding.action is Action.POLL_RETRY)
    return Judgement(findings, {number: over_since.get(number, look.now_seconds) for number in doubtful})


def find_holders(look: FractionPoll) -> Holders:
    """The holders of exactly these ids by the kubelet's list and checkpoint; indexed once, as there may be hundreds."""
    holders: dict[tuple[ResourceName, frozenset[DeviceId]], list[PodIdentity]] = {}
    for entry in (*look.records.listed, *look.records.noted):
        holders.setdefault((entry.resource, frozenset(entry.devices)), []).append(entry.pod)
    return holders


def _weigh_promise(
    reservation: Reservation, look: FractionPoll, holders: Holders, over_since: Mapping[int, float]
) -> Evidence:
    """The pod of a reservation is unknown: any holder of exactly its ids counts."""
    kubelet = Kubelet.UNREADABLE
    if look.listing is not None:
        holds = (reservation.resource, frozenset(reservation.devices)) in holders
        # Init containers stand in the checkpoint alone, and may start again by a reservation kept for them.
        kubelet = Kubelet.YES if holds else Kubelet.UNREADABLE if look.checkpoint is None else Kubelet.NO
    return Evidence(
        is_bound=False,
        kubelet=kubelet,
        over_since_seconds=over_since.get(reservation.number),
        now_seconds=look.now_seconds,
    )


def _weigh_binding(
    table: FractionTable, binding: Binding, look: FractionPoll, holders: Holders, over_since: Mapping[int, float]
) -> Evidence:
    return Evidence(
        kubelet=_ask_kubelet(table, binding, look, holders),
        process=_ask_gpus(binding, look),
        container=_ask_runtime(binding, look.containers),
        is_finished=binding.pod.uid in look.finished,
        over_since_seconds=over_since.get(binding.number),
        now_seconds=look.now_seconds,
    )


def _ask_kubelet(table: FractionTable, binding: Binding, look: FractionPoll, holders: Holders) -> Kubelet:
    if look.listing is None:
        return Kubelet.UNREADABLE
    if not binding.pod.name and look.checkpoint is None:
        return Kubelet.UNREADABLE
    promised = [table.reservations[number] for number in binding.reservations]
    holding = [pod for each in promised for pod in holders.get((each.resource, frozenset(each.devices)), ())]
    if binding.pod.name:
        lives = look.listing.has_pod(binding.pod)
    else:
        # The checkpoint keeps gone pods until the next pod comes; the list has ids by name, the runtime by uid.
        lives = any(pod.name for pod in holding) or _has_containers(binding.pod, look.containers)
    return Kubelet.YES if lives and any(_is_of(pod, binding.pod) for pod in holding) else Kubelet.NO


def is_of_kubelet(containers: Collection[PodContainer], listing: PodListing) -> bool:
    """Whether these containers can be of the runtime that the kubelet uses: of its pods there is at least one.

    On a node with two runtimes the other one answers as well, and to it every container is absent.
    """
    known = {(each.namespace, each.pod) for each in containers}
    return not listing.pods or any((pod.namespace, pod.name) in known for pod in listing.pods)


def _has_containers(pod: PodIdentity, containers: tuple[PodContainer, ...] | None) -> bool:
    """Whether the runtime has any container of a pod, ended or not, or does not answer."""
    return containers is None or any(each.pod_uid == pod.uid for each in containers)


def _is_of(entry: PodIdentity, pod: PodIdentity) -> bool:
    """Whether an entry, known by name or by uid, is of the given pod."""
    return entry.uid == pod.uid if entry.uid and not entry.name else is_same_pod(entry, pod)


def _ask_gpus(binding: Binding, look: FractionPoll) -> Process:
    if all(is_of_class(fraction.gpu) for fraction in binding.parts):
        # No driver tells which processes use these devices: kubelet and container runtime decide.
        return Process.NONE
    if look.users is None:
        return Process.UNKNOWN
    users = (look.users.get(fraction.gpu, frozenset()) for fraction in binding.parts)
    if any(binding.pod.uid in each for each in users):
        return Process.CONTAINER
    return Process.UNKNOWN if any(fraction.gpu in look.unread for fraction in binding.parts) else Process.NONE


def _ask_runtime(binding: Binding, containers: tuple[PodContainer, ...] | None) -> Container:
    if containers is None:
        return Container.UNREADABLE
    living = any(
        each.name == binding.container and _is_in(each, binding.pod) and each.state is not ContainerState.EXITED
        for each in containers
    )
    return Container.PRESENT if living else Container.ABSENT


def _is_in(container: PodContainer, pod: PodIdentity) -> bool:
    """By name where the pod's uid is unknown: the kubelet may have forgotten the uid before it could be read."""
    if pod.uid:
        return container.pod_uid == pod.uid
    return (container.namespace, container.pod) == (pod.namespace, pod.name)


def list_users_of_library(table: FractionTable, look: FractionPoll) -> tuple[Binding, ...]:
    """The bindings under the vGPU library whose pods have processes on their GPUs, as far as seen."""
    users = look.users or {}
    return tuple(
        binding
        for binding in table.bindings.values()
        if binding.enforcement is Enforcement.LIBRARY
        and any(binding.pod.uid in users.get(fraction.gpu, frozenset()) for fraction in binding.parts)
    )

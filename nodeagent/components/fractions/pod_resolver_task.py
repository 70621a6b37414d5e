"""Finds the starting container: by the kubelet's records, and its pod by the API server.

Owns the node's pods by the API server, and the annotations on pods with their containers' GPUs, where those differ from
a scheduler's choice.
Refuses to guess: where no record has the container, the kubelet is told to ask again. Refuses to hold up a container's
start for long: the ids alone are enough, except for the profile with shares.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

import anyio
from msgspec.structs import replace

from nodeagent.components.fractions.bind import check_memory, complete_identity, is_same_pod
from nodeagent.components.fractions.decide import FractionView, name_resources
from nodeagent.core.channels.gathered import Gathered
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.pod_requests import KubePodRequests
from nodeagent.edge.kubelet.kubelet_state import KubeletState
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import CallerUnclear, NodeagentError
from nodeagent.model.fractions import ChoiceCorrection, PodRequest
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import FractionTable
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from nodeagent.rules.fractions.pairing import Caller, Records, find_caller, is_proven

POD_SECONDS: Final = 4.0
"""How long a start waits for the API server's view of a pod known to the kubelet, the first list of all included.

A scheduler's choice is on the pod before the pod is sent here, so the known pod has its choice.
"""
RETRY_SECONDS: Final = 5.0
CORRECTIONS_MAX: Final = 1000
FINISHED_MAX: Final = 1000
"""How many finished pods are remembered after they are gone."""


class NodePods:
    """A task of the component `fractions`."""

    def __init__(self, open_pods: Callable[[], Awaitable[KubePodRequests]] | None) -> None:
        self._open_pods = open_pods
        self._known = Gathered[Mapping[tuple[str, str], PodRequest]]({})
        self._finished = Gathered[frozenset[str]](frozenset())
        self._may_report = open_pods is not None
        """Whether news of pods may come: also before the first list, but not without the right to list pods."""
        self.followings = 0
        """How often the pods were listed."""
        # Only the newest are worth writing where the API server takes none.
        self._corrections = deque[ChoiceCorrection](maxlen=CORRECTIONS_MAX)
        self._has_corrections = Waker()
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Follow the pods' requests and the schedulers' choices; while the watch fails the last known pods stay."""
        if self._open_pods is None:
            return
        pods = await self._open_pods()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._correct, pods, name="fractions corrected")
            await self._follow(pods)

    @property
    def known(self) -> Mapping[tuple[str, str], PodRequest]:
        """The pods known now, by namespace and name."""
        return self._known.value

    async def wait_other(
        self, known: Mapping[tuple[str, str], PodRequest], window_seconds: float
    ) -> Mapping[tuple[str, str], PodRequest]:
        """The pods as soon as they differ from `known`, changes gathered for `window_seconds`."""
        return await self._known.wait_other(known, window_seconds)

    def correct(self, correction: ChoiceCorrection) -> None:
        """Write the GPUs of a container on its pod in a moment, without delay for the container."""
        self._corrections.append(correction)
        self._has_corrections.wake()

    async def _correct(self, pods: KubePodRequests) -> None:
        while True:
            await self._has_corrections.wait()
            while self._corrections:
                one = self._corrections.popleft()
                who = f"{one.pod.namespace}/{one.pod.name}"
                try:
                    await pods.annotate(one.pod, one.annotations)
                except NodeagentError as error:
                    self._log.warning("choice_not_corrected", pod=who, container=one.container, error=str(error))
                else:
                    self._log.info("choice_corrected", pod=who, container=one.container, reason=one.reason)

    async def _follow(self, pods: KubePodRequests) -> None:
        while True:
            is_first = True
            try:
                async with aclosing(pods.follow()) as tables:
                    async for table in tables:
                        self._may_report = True
                        self.followings += is_first
                        is_first = False
                        self._known.put(table)
                        self._note_finished(table)
            except NodeagentError as error:
                self._log.warning("pod_requests_not_followed", error=str(error))
            self._may_report = False
            await anyio.sleep(RETRY_SECONDS)

    def _note_finished(self, table: Mapping[tuple[str, str], PodRequest]) -> None:
        """Note finished pods, deleted pods included: the fractions may not have been released yet."""
        told = {each.pod.uid for each in table.values() if each.is_finished}
        gone = [uid for uid in self._finished.value if uid not in told]
        self._finished.put(frozenset((*told, *gone[:FINISHED_MAX])))

    def list_finished(self) -> frozenset[str]:
        """The uids of finished pods; a pod stays finished for ever."""
        return self._finished.value

    async def wait_finished(self, known: frozenset[str]) -> frozenset[str]:
        """The finished pods after a change from `known`."""
        return await self._finished.wait_other(known, 0.0)

    async def find(self, pod: PodIdentity) -> PodRequest | None:
        """The pod by the API server, which may learn of a pod a moment after the kubelet."""
        if self._open_pods is None:
            return None
        known = self._known.value
        # Without the right to follow pods no news can come, so there is no wait.
        with anyio.move_on_after(POD_SECONDS if self._may_report else 0):
            while True:
                found = _find(known, pod)
                if found is not None and is_same_pod(found.pod, pod):
                    return found
                known = await self._known.wait_other(known, 0.0)
        self._log.warning("pod_not_told_in_time", pod=pod.describe(), uid=pod.uid, may_tell=self._may_report)
        return None


def _find(known: Mapping[tuple[str, str], PodRequest], pod: PodIdentity) -> PodRequest | None:
    """By name; by uid where the kubelet has not given the name."""
    if pod.name:
        return known.get((pod.namespace, pod.name))
    return next((each for each in known.values() if each.pod.uid == pod.uid), None)


class PodResolver:
    """Resolves device ids to pods; a helper of the component `fractions`."""

    def __init__(self, kubelet: KubeletState, pods: NodePods) -> None:
        """`kubelet` has the holders of devices, `pods` the pods by the API server."""
        self._kubelet, self._pods = kubelet, pods
        self._log = get_logger(component="fractions")

    async def identify(
        self, view: FractionView, table: FractionTable, devices: Sequence[DeviceId], *, by_name: bool
    ) -> tuple[Caller, PodRequest | None]:
        """Find the container that holds the ids, and its pod by the API server.

        `by_name`: whether the pod's name is needed now, not only soon.

        Raises:
            CallerUnclear: The kubelet's records do not have the container yet.
        """
        caller = await self._find_proven(view, table, devices)
        if caller is not None:
            pod = await self._pods.find(caller.pod)
            if pod is not None or not by_name:
                return _name(caller, pod), pod
        caller = await self._find_by_all(view, devices)
        pod = await self._pods.find(caller.pod)
        return _name(caller, pod), pod

    async def check_memory(self, view: FractionView, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Refuse a container that asks for memory without cores; passes where the kubelet cannot be asked.

        Raises:
            RequestInvalid: The container has memory ids alone.
        """
        try:
            entries = await self._read_notes(resource, devices) or (await self._kubelet.read_pods()).containers
        except NodeagentError as error:
            self._log.debug("memory_not_checked", error=str(error))
            return
        check_memory(view.profile, entries, devices)

    async def _read_notes(self, resource: ResourceName, devices: Sequence[DeviceId]) -> tuple[ContainerDevices, ...]:
        """The checkpoint's entries of pods with just these ids; empty where the checkpoint cannot be read."""
        try:
            return await self._kubelet.read_pods_with(resource, devices)
        except NodeagentError as error:
            self._log.debug("notes_not_read", error=str(error))
            return ()

    async def _find_proven(
        self, view: FractionView, table: FractionTable, devices: Sequence[DeviceId]
    ) -> Caller | None:
        """The container by the checkpoint, where the newest CDI name reserved for these ids stands in an entry."""
        first, memory = name_resources(view.profile)
        names = [each.cdi_name for each in table.find_reservations(first, devices) if each.cdi_name]
        # A binding without a uid is to be found by its name.
        if not names or any(not each.pod.uid for each in table.bindings.values()):
            return None
        noted = await self._read_notes(first, devices)
        if not is_proven(noted, first, devices, names[-1]):
            return None
        try:
            caller = find_caller(Records(noted=noted), first, memory, devices)
        except CallerUnclear as error:
            self._log.debug("notes_do_not_tell", error=str(error))
            return None
        # Of containers that share ids only the list excludes init containers; the checkpoint has no order.
        return caller if len(caller.containers) == 1 else None

    async def _find_by_all(self, view: FractionView, devices: Sequence[DeviceId]) -> Caller:
        """The container by the kubelet's list and checkpoint; one of the two may be missing, not both."""
        listing = PodListing()
        checkpoint = KubeletCheckpoint()
        problems: list[str] = []

        async def read_list() -> None:
            nonlocal listing
            try:
                listing = await self._kubelet.read_pods()
            except NodeagentError as error:
                problems.append(str(error))

        async def read_notes() -> None:
            nonlocal checkpoint
            try:
                checkpoint = await self._kubelet.read_checkpoint()
            except NodeagentError as error:
                problems.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_list)
            tasks.start_soon(read_notes)
        first, memory = name_resources(view.profile)
        if len(problems) > 1:
            raise CallerUnclear(first, "; ".join(problems))
        records = Records(listed=listing.containers, noted=checkpoint.containers)
        return find_caller(records, first, memory, devices)


def _name(caller: Caller, pod: PodRequest | None) -> Caller:
    return caller if pod is None else replace(caller, pod=complete_identity(caller.pod, pod.pod))

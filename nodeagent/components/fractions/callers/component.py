"""Finds out which container starts: by the kubelet's notes, and by its list where they do not prove it.

Refuses to guess: where neither tells, the kubelet is told to ask again.
"""

from collections.abc import Sequence

import anyio
from msgspec.structs import replace

from nodeagent.components.fractions.bind import check_memory, complete_identity
from nodeagent.components.fractions.decide import PartView, list_resources
from nodeagent.components.fractions.requests.component import Requests
from nodeagent.components.fractions.tending.sources import KubeletRecords
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import CallerUnclear, NodeagentError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import PartTable
from nodeagent.model.parts import PodRequest
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from nodeagent.rules.fractions.pairing import Caller, Records, find_caller, is_proven
from nodeagent.rules.fractions.profiles import CoresProfile


class Callers:
    """A helper of the component `fractions`."""

    def __init__(self, kubelet: KubeletRecords, requests: Requests) -> None:
        """`kubelet` says who holds what, `requests` what pods ask for."""
        self._kubelet, self._requests = kubelet, requests
        self._log = get_logger(component="fractions")

    async def identify(
        self, view: PartView, table: PartTable, devices: Sequence[DeviceId], *, by_name: bool
    ) -> tuple[Caller, PodRequest | None]:
        """Whose these ids are, and what the API server says of its pod.

        Args:
            view: what is given in parts now.
            table: what was promised.
            devices: the ids of the first resource.
            by_name: whether the pod's name is needed now, and not only soon.

        Raises:
            CallerUnclear: nobody can say that yet.
        """
        caller = await self._find_proven(view, table, devices)
        if caller is not None:
            pod = await self._requests.find(caller.pod)
            if pod is not None or not by_name:
                return _name(caller, pod), pod
        caller = await self._find_by_all(view, devices)
        pod = await self._requests.find(caller.pod)
        return _name(caller, pod), pod

    async def check_memory(self, view: PartView, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Tell a container that asks for memory alone; where the kubelet cannot be asked, its cores are, if any.

        Raises:
            RequestInvalid: it does so.
        """
        try:
            entries = await self._read_notes(resource, devices) or (await self._kubelet.read_pods()).containers
        except NodeagentError as error:
            self._log.debug("memory_not_checked", error=str(error))
            return
        check_memory(view.profile, entries, devices)

    async def _read_notes(self, resource: ResourceName, devices: Sequence[DeviceId]) -> tuple[ContainerDevices, ...]:
        """What the kubelet's notes say of pods that hold just these ids; nothing where they cannot be read."""
        try:
            return await self._kubelet.read_pods_with(resource, devices)
        except NodeagentError as error:
            self._log.debug("notes_not_read", error=str(error))
            return ()

    async def _find_proven(self, view: PartView, table: PartTable, devices: Sequence[DeviceId]) -> Caller | None:
        """By the kubelet's notes, where the name that was promised last for these ids stands in them."""
        first, memory = _name_resources(view)
        names = [each.cdi_name for each in table.find_reservations(first, devices) if each.cdi_name]
        # A binding of which the uid was never told is to be found by its name.
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
        # Of several that share their ids the list alone tells which is no init container; the notes have no order.
        return caller if len(caller.containers) == 1 else None

    async def _find_by_all(self, view: PartView, devices: Sequence[DeviceId]) -> Caller:
        """By the kubelet's list and its notes; either may be missing, not both."""
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
        first, memory = _name_resources(view)
        if len(problems) > 1:
            raise CallerUnclear(first, "; ".join(problems))
        records = Records(listed=listing.containers, noted=checkpoint.containers)
        return find_caller(records, first, memory, devices)


def _name_resources(view: PartView) -> tuple[ResourceName, ResourceName | None]:
    """The first resource of the profile, and that of memory where there is one."""
    first, *rest = list_resources(view.profile)
    return first, rest[0] if isinstance(view.profile, CoresProfile) else None


def _name(caller: Caller, pod: PodRequest | None) -> Caller:
    return caller if pod is None else replace(caller, pod=complete_identity(caller.pod, pod.pod))

"""Finds the starting container: by the kubelet's checkpoint, or by the list where the checkpoint proves nothing.

Refuses to guess: where neither record has the container, the kubelet is told to ask again.
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
    """Resolves device ids to pods; a helper of the component `fractions`."""

    def __init__(self, kubelet: KubeletRecords, requests: Requests) -> None:
        """`kubelet` has the holders of devices, `requests` the pods by the API server."""
        self._kubelet, self._requests = kubelet, requests
        self._log = get_logger(component="fractions")

    async def identify(
        self, view: PartView, table: PartTable, devices: Sequence[DeviceId], *, by_name: bool
    ) -> tuple[Caller, PodRequest | None]:
        """Find the container that holds the ids, and its pod by the API server.

        Args:
            view: The GPUs given in fractions now.
            table: Reservations and bindings.
            devices: The ids of the first resource.
            by_name: Whether the pod's name is needed now, not only soon.

        Raises:
            CallerUnclear: The kubelet's records do not have the container yet.
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

    async def _find_proven(self, view: PartView, table: PartTable, devices: Sequence[DeviceId]) -> Caller | None:
        """The container by the checkpoint, where the newest CDI name reserved for these ids stands in an entry."""
        first, memory = _name_resources(view)
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

    async def _find_by_all(self, view: PartView, devices: Sequence[DeviceId]) -> Caller:
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
        first, memory = _name_resources(view)
        if len(problems) > 1:
            raise CallerUnclear(first, "; ".join(problems))
        records = Records(listed=listing.containers, noted=checkpoint.containers)
        return find_caller(records, first, memory, devices)


def _name_resources(view: PartView) -> tuple[ResourceName, ResourceName | None]:
    """The first resource of the profile, and the memory resource, if any."""
    first, *rest = list_resources(view.profile)
    return first, rest[0] if isinstance(view.profile, CoresProfile) else None


def _name(caller: Caller, pod: PodRequest | None) -> Caller:
    return caller if pod is None else replace(caller, pod=complete_identity(caller.pod, pod.pod))

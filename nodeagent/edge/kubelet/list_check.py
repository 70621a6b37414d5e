"""Whether the kubelet still has the last sent list of devices, by the kubelet's pod resources.

An open stream proves little: kubelets up to 1.36 let a second plugin take a resource over without closing the first
stream, and stop the resource when the second plugin leaves, while the first stream stays open for ever.
Kubelets from 1.37 go on with the second plugin's list after the second plugin has left.
The kubelet's list of allocatable devices shows all three cases.

Owns the pace of checks, the rule that a difference counts only when seen twice under the same list, and the evidence
that the second plugin has left: no socket that has come since the kubelet last had the sent list answers.
Refuses a verdict where the kubelet has no pod resources.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from anyio import current_time, move_on_after

from nodeagent.edge.grpc.unix_socket import FileIdentity, is_answering
from nodeagent.edge.kubelet.errors import KubeletError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice

POLL_INTERVAL_SECONDS: Final = 10.0
CONFIRM_SECONDS: Final = 1.0
"""The pause before a second look; a new list takes the kubelet milliseconds."""
ANSWER_SECONDS: Final = 1.0

ReadAllocatable = Callable[[], Awaitable[Mapping[ResourceName, frozenset[DeviceId]]]]


class ListVerdict(Enum):
    """The kubelet's list compared with the last sent list."""

    AS_SENT = "the list that it was sent"
    ANOTHER = "another list"
    NONE = "no healthy device at all"


def judge_list(sent: Iterable[AdvertisedDevice], allocatable: frozenset[DeviceId]) -> ListVerdict:
    """Compare the healthy devices of the last sent list with the kubelet's allocatable devices."""
    healthy = {device.id for device in sent if device.healthy}
    if allocatable == healthy:
        return ListVerdict.AS_SENT
    return ListVerdict.ANOTHER if allocatable else ListVerdict.NONE


class ListCheck:
    """The check of a resource during a registration; begins without suspicion."""

    def __init__(
        self,
        resource: ResourceName,
        read_allocatable: ReadAllocatable | None,
        list_others: Callable[[], Mapping[Path, FileIdentity | None]],
    ) -> None:
        """`list_others` has the files that other plugins may listen at."""
        self._resource, self._read_allocatable, self._list_others = resource, read_allocatable, list_others
        self._before = list_others()
        """The other plugins' files when the kubelet last had the list that it was sent."""
        self._lacks_rival = self._is_abandoned = False
        self._verdict = ListVerdict.AS_SENT
        self._suspicion: tuple[ListVerdict, object] | None = None
        self._due = current_time() + POLL_INTERVAL_SECONDS

    async def look(self, sent: tuple[AdvertisedDevice, ...]) -> ListVerdict:
        """The present verdict; asks the kubelet when due."""
        if self._read_allocatable is None or current_time() < self._due:
            return self._verdict
        found, others = None, self._list_others()
        try:
            with move_on_after(ANSWER_SECONDS):
                found = judge_list(sent, (await self._read_allocatable()).get(self._resource, frozenset()))
        except KubeletError:
            # Other code reports that the kubelet cannot be asked; the verdict stays.
            found = None
        self._note(found, sent)
        if found is ListVerdict.AS_SENT:
            self._before = others
        came = (path for path, file in others.items() if self._before.get(path) != file)
        lacked = self._lacks_rival
        self._lacks_rival = found is self._verdict is ListVerdict.ANOTHER and not any(map(is_answering, came))
        # Once is too early: kubelets up to 1.36 are about to drop us too, and then want a registration, not a list.
        self._is_abandoned = lacked and self._lacks_rival
        return self._verdict

    def take_abandoned(self) -> bool:
        """Whether the kubelet goes on with the list of a plugin that answers no longer; true once for each look."""
        taken, self._is_abandoned = self._is_abandoned, False
        return taken

    def _note(self, found: ListVerdict | None, sent: object) -> None:
        suspicion = None if found in (None, self._verdict) else (found, sent)
        if suspicion is not None and suspicion == self._suspicion:
            self._verdict, suspicion = suspicion[0], None
        self._suspicion = suspicion
        self._due = current_time() + (POLL_INTERVAL_SECONDS if suspicion is None else CONFIRM_SECONDS)

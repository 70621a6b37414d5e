"""Whether the kubelet still has the list of devices that it was sent, as far as its pod resources tell.

A stream that is open proves little: kubelets up to 1.36 let a second plugin take a resource over without closing the
stream of the first, and when the second one leaves they stop the resource, whose first stream stays open for ever.
The kubelet's own account of what is allocatable shows both.

Owns the pace of looking, and that a difference counts only when it is seen twice under the same list.
Refuses an opinion where the kubelet gives no account.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Final

from anyio import current_time, move_on_after

from nodeagent.edge.kubelet.errors import KubeletError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice

LOOK_SECONDS: Final = 10.0
CONFIRM_SECONDS: Final = 1.0
"""A list that was just sent takes the kubelet milliseconds."""
ANSWER_SECONDS: Final = 1.0

ReadAllocatable = Callable[[], Awaitable[Mapping[ResourceName, frozenset[DeviceId]]]]


class ListVerdict(Enum):
    """What the kubelet has in place of the list that it was sent."""

    AS_SENT = "the list that it was sent"
    ANOTHER = "another list"
    NONE = "no healthy device at all"


def judge_list(sent: Iterable[AdvertisedDevice], allocatable: frozenset[DeviceId]) -> ListVerdict:
    """Compare the healthy devices of the list last sent with those that the kubelet would hand out."""
    healthy = {device.id for device in sent if device.healthy}
    if allocatable == healthy:
        return ListVerdict.AS_SENT
    return ListVerdict.ANOTHER if allocatable else ListVerdict.NONE


class ListCheck:
    """For one resource and one registration of it; begins without suspicion."""

    def __init__(self, resource: ResourceName, read_allocatable: ReadAllocatable | None) -> None:
        self._resource, self._read_allocatable = resource, read_allocatable
        self._verdict = ListVerdict.AS_SENT
        self._suspicion: tuple[ListVerdict, object] | None = None
        self._due = current_time() + LOOK_SECONDS

    async def look(self, sent: tuple[AdvertisedDevice, ...]) -> ListVerdict:
        """The verdict as it stands; asks the kubelet when it is time to."""
        if self._read_allocatable is None or current_time() < self._due:
            return self._verdict
        found = None
        try:
            with move_on_after(ANSWER_SECONDS):
                found = judge_list(sent, (await self._read_allocatable()).get(self._resource, frozenset()))
        except KubeletError:
            # Others say that the kubelet cannot be asked; the verdict stays.
            found = None
        self._note(found, sent)
        return self._verdict

    def _note(self, found: ListVerdict | None, sent: object) -> None:
        suspicion = None if found in (None, self._verdict) else (found, sent)
        if suspicion is not None and suspicion == self._suspicion:
            self._verdict, suspicion = suspicion[0], None
        self._suspicion = suspicion
        self._due = current_time() + (LOOK_SECONDS if suspicion is None else CONFIRM_SECONDS)

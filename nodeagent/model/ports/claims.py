"""What is asked of those who know of claims, and what the kubelet asks of whoever makes them ready."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimReference, DeviceAnswer, DeviceHealth, ResourceClaim
from nodeagent.model.ids import DeviceUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.values import Value


class ClaimDriver(Protocol):
    """A driver of claims, as the kubelet asks it; `edge/kubelet` carries the questions."""

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, tuple[DeviceAnswer, ...] | str]:
        """By uid the devices of each claim, ready and durable, or why it has none. Fails for no claim but that one."""
        ...

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        """By uid why a claim could not be put away; empty for one that was, and for one that nobody knows."""
        ...

    async def wait_health(self, known: tuple[DeviceHealth, ...] | None) -> tuple[DeviceHealth, ...]:
        """What all devices are good for, as soon as it differs from `known`; at once when nothing is known yet."""
        ...


class ClaimApi(Protocol):
    """The cluster's own word on claims."""

    async def find_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as it is now; `None` where there is none.

        Raises:
            NodeagentError: the API server cannot be asked now, or its answer makes no sense.
        """
        ...

    async def is_alive(self, pod: PodIdentity) -> bool:
        """Whether this very pod is there and may still start containers.

        Raises:
            NodeagentError: the API server cannot be asked now.
        """
        ...


class ClaimedSpec(Value, frozen=True):
    """One device of a claim, as containers are to be given it."""

    name: str
    """Unqualified."""
    uuid: DeviceUuid
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ContainerMount, ...] = ()


class ClaimSpecs(Protocol):
    """CDI specifications of claims, a file each."""

    async def write_claim(self, uid: str, devices: Sequence[ClaimedSpec]) -> None:
        """Have each of these names mean its device, with all that a container needs in order to use it.

        Raises:
            NodeagentError: a device cannot be described now, or the file cannot be written.
        """
        ...

    async def remove_claim(self, uid: str) -> None:
        """Have them mean nothing; fine when they do already.

        Raises:
            NodeagentError: the file cannot be removed.
        """
        ...

    async def keep_claims(self, uids: Collection[str]) -> None:
        """Have the devices of all other claims mean nothing.

        Raises:
            NodeagentError: the files cannot be read or removed.
        """
        ...

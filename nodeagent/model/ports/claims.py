"""Ports of claims: the API server, the kubelet's calls, and the claims' CDI specifications."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimReference, DeviceAnswer, DeviceHealth, ResourceClaim
from nodeagent.model.ids import DeviceUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.values import Value


class ClaimDriver(Protocol):
    """A driver of claims, as the kubelet calls it; `edge/kubelet` carries the calls."""

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, tuple[DeviceAnswer, ...] | str]:
        """By uid the devices of each claim, ready and durable, or the reason for none. Claims fail singly."""
        ...

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        """By uid why a claim could not be put away; empty for a claim put away, and for an unknown claim."""
        ...

    async def wait_health(self, known: tuple[DeviceHealth, ...] | None) -> tuple[DeviceHealth, ...]:
        """The health of all devices, as soon as it differs from `known`; at once when `known` is `None`."""
        ...


class ClaimApi(Protocol):
    """The cluster's own word on claims."""

    async def learn_version(self) -> None:
        """Learn the version of the API ahead of the first claim, which then waits for a single answer.

        Raises:
            NodeagentError: The API server does not answer; the next question learns the version.
        """
        ...

    async def find_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as it is now; `None` where there is no such claim."""
        ...

    async def is_alive(self, pod: PodIdentity) -> bool:
        """Whether this very pod exists and may still start containers."""
        ...


class ClaimedSpec(Value, frozen=True):
    """A device of a claim, as containers are to be given it."""

    name: str
    """Unqualified."""
    uuid: DeviceUuid
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ContainerMount, ...] = ()


class MetadataFiles(Protocol):
    """Files about the devices of claims, for containers to read: a file for each request of a claim."""

    def locate(self, uid: str, request: str) -> str:
        """The path of a request's file on the host, whether the file exists or not."""
        ...

    async def read(self, uid: str) -> Mapping[str, bytes]:
        """The claim's present files, by request."""
        ...

    async def write(self, uid: str, files: Mapping[str, bytes]) -> None:
        """Replace files of the claim, by request."""
        ...

    async def remove(self, uid: str) -> None:
        """Remove the claim's files; fine when already gone."""
        ...

    async def list_uids(self) -> Collection[str]:
        """The claims that have files."""
        ...


class ClaimSpecs(Protocol):
    """CDI specifications of claims, a file each."""

    async def write_claim(self, uid: str, devices: Sequence[ClaimedSpec]) -> None:
        """Make each of these CDI names stand for its device, with everything else that a container needs to use it."""
        ...

    async def remove_claim(self, uid: str) -> None:
        """Remove the claim's CDI names; fine when already gone."""
        ...

    async def keep_claims(self, uids: Collection[str]) -> None:
        """Remove the CDI names of all other claims."""
        ...

"""A journal store in memory whose disk can fail, and a kubelet that says what a test wants it to say.

What the store does is compared with the file on a disk in `tests/contract/journal`.
"""

from collections.abc import AsyncGenerator, Collection, Mapping

import anyio

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import JournalUnavailable, NodeagentError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, KubeletPod, PodListing


class KubeletSilent(NodeagentError):
    """The kubelet of this test does not answer."""


class FakeStore:
    """Keeps what is durable in `current` and `previous`; `failure` makes every write fail with that reason."""

    def __init__(self, current: bytes | None = None, previous: bytes | None = None) -> None:
        self.current, self.previous = current, previous
        self.failure = ""
        self.problem = ""
        self.set_aside_names: list[str] = []
        self.begun = 0
        self.synced = True
        self.append_seconds: float | None = None
        """`None` for a disk that is through at once."""
        self.is_open = False
        self._may_append = False
        self.path = "/state/allocations.journal"
        self.room: tuple[int, int | None] = (1 << 40, None)

    @property
    def size_bytes(self) -> int:
        return len(self.current or b"")

    async def open(self) -> tuple[bytes | None, bytes | None, str]:
        self._maybe_fail()
        self.is_open, self._may_append = True, False
        return self.current, self.previous, self.problem

    async def set_aside(self, stamp: str) -> None:
        self._maybe_fail()
        if self.current is None:
            raise JournalUnavailable(self.path, "there is none")
        self.set_aside_names.append(stamp)
        self.current, self._may_append = None, False

    async def begin(self, content: bytes) -> None:
        self._maybe_fail()
        if self.current is not None:
            self.previous = self.current
        self.current = content
        self.begun += 1
        self._may_append = True

    async def append(self, content: bytes, *, durable: bool = True) -> None:
        if self.append_seconds is not None:
            await anyio.sleep(self.append_seconds)
        if not self._may_append:
            raise JournalUnavailable(self.path, "it must be begun first")
        # What became of a write that failed nobody knows: the journal is begun anew after it.
        self._may_append = not self.failure
        self._maybe_fail()
        self.synced = durable
        self.current = (self.current or b"") + content

    async def read_room(self) -> tuple[int, int | None]:
        self._maybe_fail()
        return self.room

    async def aclose(self) -> None:
        self.is_open = False

    def _maybe_fail(self) -> None:
        if self.failure:
            raise JournalUnavailable(self.path, self.failure)


class FakeKubelet:
    """Lists the pods it is told, under the run it is told; silent while `listing` is `None`."""

    def __init__(self) -> None:
        self.run_name = "first"
        self.run_since_seconds = 0.0
        self.is_down = False
        self.listing: PodListing | None = PodListing()
        self.checkpoint: KubeletCheckpoint | None = None
        self.lists_asked = 0

    async def read_pods(self) -> PodListing:
        self.lists_asked += 1
        if self.listing is None:
            raise KubeletSilent("cannot list pods: nobody answers")
        return self.listing

    async def read_checkpoint(self) -> KubeletCheckpoint:
        if self.checkpoint is None:
            raise KubeletSilent("cannot read the checkpoint: it is not there")
        return self.checkpoint

    async def read_pods_with(
        self, resource: ResourceName, devices: Collection[DeviceId]
    ) -> tuple[ContainerDevices, ...]:
        noted = (await self.read_checkpoint()).containers
        uids = {each.pod.uid for each in noted if each.resource == resource and set(each.devices) == set(devices)}
        return tuple(each for each in noted if each.pod.uid in uids)

    def identify_run(self) -> tuple[str, float] | None:
        return None if self.is_down else (self.run_name, self.run_since_seconds)


class FakeKubeletPods:
    """The pods API of a kubelet that has none, until `is_served`; each `tell` is a change of pods: these are there."""

    def __init__(self) -> None:
        self.is_served = False
        self.followed = 0
        self._changes = anyio.Event()
        self._pods: dict[str, KubeletPod] = {}

    async def follow(self) -> AsyncGenerator[Mapping[str, KubeletPod], None]:
        self.followed += 1
        while self.is_served:
            yield self._pods
            await self._changes.wait()
        raise KubeletSilent("cannot follow pods: it is not served")

    def tell(self, *pods: PodIdentity) -> None:
        self._pods = {f"{pod.namespace}/{pod.name}": KubeletPod(identity=pod) for pod in pods}
        changes, self._changes = self._changes, anyio.Event()
        changes.set()

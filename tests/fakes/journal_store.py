"""A journal store in memory whose disk can fail, and a kubelet that says what a test wants it to say."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from nodeagent.model.errors import JournalUnavailable, NodeagentError
from nodeagent.model.ports import KubeletCheckpoint, PodListing


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
        self.plays_interlude = True
        """Whether the disk leaves time to prepare what follows."""
        self.is_open = self._begun = False
        self.appends = 0
        self.path = "/state/allocations.journal"

    @property
    def size_bytes(self) -> int:
        return len(self.current or b"")

    async def open(self) -> tuple[bytes | None, bytes | None, str]:
        self._maybe_fail(self.failure)
        self.is_open = True
        return self.current, self.previous, self.problem

    async def set_aside(self, stamp: str) -> None:
        self._maybe_fail(self.failure)
        self.set_aside_names.append(stamp)
        self.current = None

    async def begin(self, content: bytes) -> None:
        self._maybe_fail(self.failure)
        self.current, self.previous = content, self.current
        self.begun += 1

    def append(
        self, content: bytes, *, durable: bool = True, meanwhile: Callable[[], None] | None = None
    ) -> Awaitable[None] | None:
        if self.plays_interlude and durable and meanwhile is not None:
            meanwhile()
        if self.append_seconds is not None:
            return self._append_slowly(content, self.append_seconds, durable=durable)
        self._append(content, durable=durable)
        return None

    def begin_append(self, content: bytes) -> Callable[[], Awaitable[None] | None]:
        """What is begun is there before it is collected; that it has failed is heard only then."""
        assert not self._begun, "what was begun before was not collected"
        self._begun = True
        failure, self.appends = self.failure, self.appends + 1
        if not failure:
            self.synced, self.current = True, (self.current or b"") + content
        return partial(self._collect, failure)

    def _collect(self, failure: str) -> Awaitable[None] | None:
        assert self._begun, "collected twice"
        self._begun = False
        if self.append_seconds is not None:
            return self._fail_slowly(failure, self.append_seconds)
        self._maybe_fail(failure)
        return None

    async def _fail_slowly(self, failure: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        self._maybe_fail(failure)

    async def _append_slowly(self, content: bytes, seconds: float, *, durable: bool) -> None:
        await anyio.sleep(seconds)
        self._append(content, durable=durable)

    def _append(self, content: bytes, *, durable: bool) -> None:
        self._maybe_fail(self.failure)
        self.appends += 1
        self.synced = durable
        self.current = (self.current or b"") + content

    async def aclose(self) -> None:
        assert not self._begun, "what was begun was not collected"
        self.is_open = False

    def _maybe_fail(self, failure: str) -> None:
        assert not self._begun, "what was begun before was not collected"
        if failure:
            raise JournalUnavailable(self.path, failure)


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

    def identify_run(self) -> tuple[str, float] | None:
        return None if self.is_down else (self.run_name, self.run_since_seconds)

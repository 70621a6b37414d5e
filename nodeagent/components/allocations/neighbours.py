"""What the keeper of allocations needs of its disk and of the kubelet; the edges have it."""

from typing import Protocol

from nodeagent.model.ports import KubeletCheckpoint, PodListing


class JournalStore(Protocol):
    """The journal's file; bounded in time, and failing with `JournalUnavailable`."""

    @property
    def path(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def size_bytes(self) -> int:
        """How large the journal is."""
        ...

    async def open(self) -> tuple[bytes | None, bytes | None, str]:
        """Take the place for this agent alone; the journal, the one before it, and what could not be read."""
        ...

    async def set_aside(self, stamp: str) -> None:
        """Keep a damaged journal under another name."""
        ...

    async def begin(self, content: bytes) -> None:
        """Replace it durably, also after a failure."""
        ...

    async def append(self, content: bytes, *, durable: bool = True) -> None:
        """Add to it, durably where somebody relies on it."""
        ...

    async def read_room(self) -> tuple[int, int | None]:
        """Free bytes and free files where it is; `None` where files are not counted."""
        ...

    async def aclose(self) -> None:
        """Let go of it."""
        ...


class Kubelet(Protocol):
    """The kubelet as the keeper of allocations knows it."""

    async def read_pods(self) -> PodListing:
        """All active pods; raises a `NodeagentError` when it cannot be asked."""
        ...

    async def read_checkpoint(self) -> KubeletCheckpoint:
        """What it wrote down for its own restart; raises a `NodeagentError` when that cannot be read."""
        ...

    def identify_run(self) -> tuple[str, float] | None:
        """A name for its present run and the Unix time when that began; `None` while it is down. Costs microseconds."""
        ...

"""The ports of the allocations component: disk and kubelet; the edges implement the ports."""

from typing import Protocol

from nodeagent.model.ports import KubeletCheckpoint, PodListing


class JournalStore(Protocol):
    """The journal's file; bounded in time, and failing with `JournalUnavailable`."""

    @property
    def path(self) -> str:
        """The path, for people."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size of the journal."""
        ...

    async def open(self) -> tuple[bytes | None, bytes | None, str]:
        """Lock the directory for the agent; returns the journal, the previous journal, and any reading problem."""
        ...

    async def set_aside(self, stamp: str) -> None:
        """Keep a damaged journal under another name."""
        ...

    async def begin(self, content: bytes) -> None:
        """Replace the journal durably, also after a failure."""
        ...

    async def append(self, content: bytes, *, durable: bool = True) -> None:
        """Append to the journal; `durable` syncs the file."""
        ...

    async def read_room(self) -> tuple[int, int | None]:
        """Free bytes and free files of the file system; `None` where files are not counted."""
        ...

    async def aclose(self) -> None:
        """Release the lock and the file."""
        ...


class Kubelet(Protocol):
    """The kubelet, as used by the allocations component."""

    async def read_pods(self) -> PodListing:
        """All active pods; raises a `NodeagentError` when the kubelet cannot be asked."""
        ...

    async def read_checkpoint(self) -> KubeletCheckpoint:
        """The kubelet's checkpoint for its own restart; raises a `NodeagentError` for an unreadable file."""
        ...

    def identify_run(self) -> tuple[str, float] | None:
        """Name and Unix start time of the present run; `None` while the kubelet is down. Costs microseconds."""
        ...

"""A small state file in memory, for components that keep one."""

from nodeagent.edge.host.files.sealed_store import SealedStore, Stored


class MemoryStore(SealedStore):
    """A file that outlives the agent, on a disk that can fail."""

    def __init__(self, body: bytes | None = None) -> None:
        self.body, self.failure, self.discarded = body, "", ""
        self.troubles: tuple[str, ...] = ()

    async def read(self) -> Stored:
        return Stored(body=self.body, boot_id="boot", troubles=self.troubles)

    async def write(self, body: bytes) -> str:
        if not self.failure:
            self.body = body
        return self.failure

    async def discard(self, reason: str) -> str:
        self.discarded = reason
        return "moved aside"

    def close(self) -> None:
        pass

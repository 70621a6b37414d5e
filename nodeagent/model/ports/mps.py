"""What is asked of whoever looks after the daemons of NVIDIA's multi-process service."""

from collections.abc import Sequence
from typing import Protocol

from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsAccess, MpsLimits, MpsPlace


class MpsClaims(Protocol):
    """Shares the GPUs of a claim between the containers that use it, by a daemon of its own.

    The daemon is remembered over restarts of the agent and started again when it dies, until the claim is closed.
    Limits are resolved beforehand, see `rules.mps.limits.resolve_limits`.
    """

    async def open_claim(self, claim: str, gpus: Sequence[GpuUuid], limits: MpsLimits) -> MpsAccess:
        """Have a daemon that answers for these GPUs of a claim; durable and ready when this returns.

        The same again gives the same answer; a claim whose requests are configured apart has one for each of them.
        It takes seconds at most, and whoever cancels it leaves it to be done or to be closed.

        Args:
            claim: the claim's UID.
            gpus: whole GPUs, no MIG devices; nobody else has them.
            limits: of each client.

        Raises:
            MpsRefused: it cannot be had, or not now; nothing is left of it that `close_claim` would not end.
        """
        ...

    async def close_claim(self, claim: str) -> None:
        """End the daemons of a claim, and give its GPUs back as they were; fine for one that has none.

        Raises:
            MpsRefused: a GPU could not be given back now; the same is to be asked again.
        """
        ...


class MpsHost(Protocol):
    """The daemons of this host; every question is bounded in time."""

    async def find(self, place: MpsPlace) -> int | None:
        """The process of the daemon that listens in this place; `None` where there is none."""
        ...

    async def start(self, place: MpsPlace, gpus: Sequence[GpuUuid]) -> int:
        """Start a daemon that sees these GPUs, and answer with its process; it outlives the agent.

        Raises:
            MpsRefused: it does not come up.
        """
        ...

    async def ask(self, place: MpsPlace, commands: Sequence[str], timeout_seconds: float = 0.0) -> tuple[str, ...]:
        """Have it carry out commands, one after the other; the lines that it says to them.

        Args:
            place: where it listens.
            commands: a line each.
            timeout_seconds: how long all of them may take; that of one answer where nothing is said.

        Raises:
            MpsSilent: it does not answer.
        """
        ...

    async def wait_end(self, pid: int) -> None:
        """Return as soon as this process has ended, at once where it is gone."""
        ...

    async def list_processes(self, pid: int, clients: Sequence[int]) -> frozenset[int]:
        """The servers that a daemon has now, and those of these clients that still run; the daemon is asked nothing."""
        ...

    async def kill(self, pid: int) -> None:
        """End a daemon that does not end when it is told to, with its servers."""
        ...

    async def read_log(self, place: MpsPlace) -> tuple[str, ...]:
        """What it has written since it was read last, the newest lines where it is much; logs stay short by it."""
        ...

    async def remove(self, place: MpsPlace) -> None:
        """Take away its directory, and that of all daemons when it was the last.

        Raises:
            NodeagentError: it cannot be taken away.
        """
        ...

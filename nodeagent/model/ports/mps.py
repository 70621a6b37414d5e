"""Ports of the daemons of NVIDIA's multi-process service."""

from collections.abc import Sequence
from typing import Protocol

from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsAccess, MpsLimits, MpsPlace


class MpsClaims(Protocol):
    """Shares the GPUs of a claim between its containers, by a daemon of the claim's own.

    The daemon is kept over restarts of the agent and started again when it dies, until the claim is closed.
    Limits are resolved beforehand, see `rules.mps.limits.resolve_limits`.
    """

    async def open_claim(self, claim: str, gpus: Sequence[GpuUuid], limits: MpsLimits) -> MpsAccess:
        """Start a daemon for these GPUs of a claim, durable and ready on return.

        The same arguments give the same answer; a claim with several configured requests has a daemon for each of them.
        A call takes seconds at most; a cancelled call is to be repeated, or the claim closed.

        Args:
            claim: the claim's UID.
            gpus: whole GPUs without other holders, no MIG devices.
            limits: of each client.

        Raises:
            MpsRefused: The daemon cannot be had, or not now; `close_claim` ends whatever is left of it.
        """
        ...

    async def close_claim(self, claim: str) -> None:
        """End the daemons of a claim, and give its GPUs back as before; fine for a claim without daemons.

        Raises:
            MpsRefused: A GPU could not be given back now; the call is to be repeated.
        """
        ...


class MpsHost(Protocol):
    """The daemons of the host; every question is bounded in time."""

    async def find(self, place: MpsPlace) -> int | None:
        """The process of the daemon that listens in a place; `None` where there is none."""
        ...

    async def start(self, place: MpsPlace, gpus: Sequence[GpuUuid], *, multi_user: bool = False) -> int:
        """Start a daemon with these GPUs, and return its process; the daemon outlives the agent.

        Args:
            place: the daemon's directories.
            gpus: in the daemon's order of counting.
            multi_user: whether clients of several users work at once.

        Raises:
            MpsRefused: The daemon does not come up.
        """
        ...

    async def ask(self, place: MpsPlace, commands: Sequence[str], timeout_seconds: float = 0.0) -> tuple[str, ...]:
        """Have the daemon run commands in turn; returns the lines of its answers.

        Args:
            place: the daemon's directories.
            commands: a line each.
            timeout_seconds: limit of all commands together; without a value, the limit of a single answer.

        Raises:
            MpsSilent: The daemon does not answer.
        """
        ...

    async def wait_end(self, pid: int) -> None:
        """Return as soon as the process has ended, at once where already gone."""
        ...

    async def list_processes(self, pid: int, clients: Sequence[int]) -> frozenset[int]:
        """The daemon's present servers, and the running processes among these clients; the daemon is not asked."""
        ...

    async def kill(self, pid: int) -> None:
        """Kill a daemon that ignored the command to end, with its servers."""
        ...

    async def read_log(self, place: MpsPlace) -> tuple[str, ...]:
        """The daemon's log since the last reading, cut to the newest lines; reading keeps logs short."""
        ...

    async def remove(self, place: MpsPlace) -> None:
        """Remove the daemon's directory, and with the last daemon the directory of all."""
        ...

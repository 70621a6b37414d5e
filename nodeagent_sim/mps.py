"""The port `MpsHost` without a driver: daemons that obey commands and have no clients."""

from collections.abc import Sequence
from itertools import count

import anyio

from nodeagent.model.errors import MpsSilent
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsPlace

_FIRST_PID = 4_000_000
"""Above every process of a host with the kernel's default limit of pids."""
_GIB = 1024
"""Number of MiB from which a limit is reported in G."""


class SimulatedMps:
    """Daemons without processes, which end with the agent, as the whole simulation does."""

    def __init__(self) -> None:
        self._numbers = count(_FIRST_PID)
        self._daemons: dict[str, _Daemon] = {}

    async def find(self, place: MpsPlace) -> int | None:
        """The pid of a place's daemon."""
        daemon = self._daemons.get(place.name)
        return daemon.pid if daemon is not None else None

    async def start(
        self,
        place: MpsPlace,
        gpus: Sequence[GpuUuid],  # noqa: ARG002 - the port
        *,
        multi_user: bool = False,  # noqa: ARG002 - the port
    ) -> int:
        """Start a daemon."""
        daemon = self._daemons[place.name] = _Daemon(next(self._numbers))
        return daemon.pid

    async def ask(
        self,
        place: MpsPlace,
        commands: Sequence[str],
        timeout_seconds: float = 0.0,  # noqa: ARG002 - the port
    ) -> tuple[str, ...]:
        """The answers of a real daemon."""
        daemon = self._daemons.get(place.name)
        if daemon is None:
            raise MpsSilent("there is no daemon")
        answers = tuple(line for command in commands for line in daemon.carry_out(command))
        if daemon.has_quit:
            self._end(place.name)
        return answers

    async def wait_end(self, pid: int) -> None:
        """Wait for the end of a daemon."""
        for daemon in self._daemons.values():
            if daemon.pid == pid:
                await daemon.ended.wait()
                return

    async def list_processes(self, pid: int, clients: Sequence[int]) -> frozenset[int]:  # noqa: ARG002 - the port
        """Empty: a simulated daemon starts no server process."""
        return frozenset()

    async def kill(self, pid: int) -> None:
        """End a daemon."""
        for name in [name for name, daemon in self._daemons.items() if daemon.pid == pid]:
            self._end(name)

    async def read_log(self, place: MpsPlace) -> tuple[str, ...]:  # noqa: ARG002 - the port
        """Empty: a simulated daemon writes no log."""
        return ()

    async def remove(self, place: MpsPlace) -> None:
        """Do nothing: a simulated daemon has no files."""

    def _end(self, name: str) -> None:
        self._daemons.pop(name).ended.set()


class _Daemon:
    """The limits of one daemon."""

    def __init__(self, pid: int) -> None:
        self.pid, self.ended, self.has_quit = pid, anyio.Event(), False
        self._percentage, self._memory = "100.0", dict[str, str]()

    def carry_out(self, command: str) -> tuple[str, ...]:
        """The daemon's lines in answer to a command."""
        match command.split():
            case ["set_default_active_thread_percentage", percentage]:
                self._percentage = f"{float(percentage)}"
                return (self._percentage,)
            case ["set_default_device_pinned_mem_limit", place, limit]:
                size = int(limit.removesuffix("M"))
                self._memory[place] = limit if size < _GIB else f"{size // _GIB}G"
            case ["get_default_active_thread_percentage"]:
                return (self._percentage,)
            case ["get_default_device_pinned_mem_limit", place]:
                return (self._memory[place],) if place in self._memory else ()
            case ["quit", *_]:
                self.has_quit = True
            case _:
                pass
        return ()

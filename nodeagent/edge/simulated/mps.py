"""The port `MpsHost` without a driver: daemons that are told what they are to do, do it, and have no clients."""

from collections.abc import Sequence
from itertools import count

import anyio

from nodeagent.model.errors import MpsSilent
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsPlace

_FIRST_PID = 4_000_000
"""Above every process of a host that has not been told to count further."""
_GIB = 1024
"""From so many MiB on, a limit is told in G."""


class SimulatedMps:
    """Their processes are made up; they end with the agent, as everything simulated does."""

    def __init__(self) -> None:
        self._numbers = count(_FIRST_PID)
        self._daemons: dict[str, _Daemon] = {}

    async def find(self, place: MpsPlace) -> int | None:
        """The daemon of this place."""
        daemon = self._daemons.get(place.name)
        return daemon.pid if daemon is not None else None

    async def start(self, place: MpsPlace, gpus: Sequence[GpuUuid]) -> int:  # noqa: ARG002 - the port
        """Have one from now on."""
        daemon = self._daemons[place.name] = _Daemon(next(self._numbers))
        return daemon.pid

    async def ask(
        self,
        place: MpsPlace,
        commands: Sequence[str],
        timeout_seconds: float = 0.0,  # noqa: ARG002 - the port
    ) -> tuple[str, ...]:
        """What the real one would answer."""
        daemon = self._daemons.get(place.name)
        if daemon is None:
            raise MpsSilent("there is no daemon")
        answers = tuple(line for command in commands for line in daemon.carry_out(command))
        if daemon.has_quit:
            self._end(place.name)
        return answers

    async def wait_end(self, pid: int) -> None:
        """Until it is ended."""
        for daemon in self._daemons.values():
            if daemon.pid == pid:
                await daemon.ended.wait()
                return

    async def list_processes(self, pid: int, clients: Sequence[int]) -> frozenset[int]:  # noqa: ARG002 - the port
        """Nothing: a simulated daemon starts no server process."""
        return frozenset()

    async def kill(self, pid: int) -> None:
        """End it."""
        for name in [name for name, daemon in self._daemons.items() if daemon.pid == pid]:
            self._end(name)

    async def read_log(self, place: MpsPlace) -> tuple[str, ...]:  # noqa: ARG002 - the port
        """It has nothing to say."""
        return ()

    async def remove(self, place: MpsPlace) -> None:
        """There are no files."""

    def _end(self, name: str) -> None:
        self._daemons.pop(name).ended.set()


class _Daemon:
    """One daemon's limits."""

    def __init__(self, pid: int) -> None:
        self.pid, self.ended, self.has_quit = pid, anyio.Event(), False
        self._percentage, self._memory = "100.0", dict[str, str]()

    def carry_out(self, command: str) -> tuple[str, ...]:
        """The lines that it says to a command."""
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

"""MPS daemons in the way of a reset: their processes have GPUs open, and quit once the driver is let go.

Owns that a daemon quits without clients only: a daemon may serve more GPUs than a reset hits.
"""

from collections.abc import Collection, Iterator

from nodeagent.model.drains import GpuHolder
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsDaemon, MpsPhase, MpsState


def list_gpus(state: MpsState | None) -> frozenset[GpuUuid]:
    """The GPUs of all daemons."""
    return frozenset(gpu for daemon in _read(state) for gpu in daemon.gpus)


def list_processes(state: MpsState | None) -> frozenset[int]:
    """The processes of all daemons: of their control, and of their servers."""
    daemons = _read(state)
    servers = {server.pid for daemon in daemons for server in daemon.servers}
    return frozenset({*servers, *(daemon.pid for daemon in daemons if daemon.pid is not None)})


def list_holders(gpus: Collection[GpuUuid], state: MpsState | None) -> tuple[GpuHolder, ...]:
    """The daemons that would not quit for a reset of these GPUs, each with the reason."""
    return tuple(
        GpuHolder(name=_name(daemon), gpus=frozenset(daemon.gpus).intersection(gpus), obstacle=obstacle)
        for daemon in _list_daemons(gpus, state)
        if (obstacle := _find_obstacle(daemon))
    )


def list_running(gpus: Collection[GpuUuid], state: MpsState | None) -> tuple[str, ...]:
    """The daemons of these GPUs that have yet to quit; an unwanted daemon without a process has quit."""
    return tuple(
        _name(daemon)
        for daemon in _list_daemons(gpus, state)
        if daemon.pid is not None or daemon.phase is MpsPhase.STARTING
    )


def _read(state: MpsState | None) -> tuple[MpsDaemon, ...]:
    return state.daemons if state is not None else ()


def _list_daemons(gpus: Collection[GpuUuid], state: MpsState | None) -> Iterator[MpsDaemon]:
    return (daemon for daemon in _read(state) if not frozenset(daemon.gpus).isdisjoint(gpus))


def _find_obstacle(daemon: MpsDaemon) -> str:
    if daemon.clients:
        names = sorted({client.pod or f"process {client.pid}" for client in daemon.clients})
        return f"it serves {', '.join(names)}, and quits without clients only"
    if daemon.phase is MpsPhase.BROKEN and daemon.pid is not None:
        return f"{daemon.reason}: a person has to end process {daemon.pid}"
    return ""


def _name(daemon: MpsDaemon) -> str:
    return f"the MPS daemon {daemon.name}"

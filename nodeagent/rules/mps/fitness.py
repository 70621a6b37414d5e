"""Whether a device may be handed out as far as daemons go.

Owns the messages about a device waiting for its daemon, or for the end of another.
"""

from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsPhase, MpsState


def explain_daemon(gpu: GpuUuid, state: MpsState | None, *, by_mps: bool) -> str:
    """Why a GPU, or a replica of it, must not be handed out now; empty where no daemon is in the way."""
    daemon = state.find_gpu(gpu) if state is not None else None
    if by_mps and state is None:
        return "nobody looks after MPS daemons (yet): see `nodeagent status`"
    if by_mps and daemon is None:
        return "its MPS daemon is not started yet"
    if daemon is None or (by_mps and daemon.phase is MpsPhase.READY):
        return ""
    if by_mps:
        return f"its MPS daemon is {daemon.phase}: {daemon.reason or 'it has not said that it is ready'}"
    return f"its MPS daemon has yet to end: {daemon.reason or daemon.phase}"

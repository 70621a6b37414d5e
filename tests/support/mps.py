"""Daemons for tests."""

from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsClient, MpsDaemon, MpsLimits, MpsPhase, MpsServer


def daemon_of(
    gpu: GpuUuid, phase: MpsPhase = MpsPhase.READY, reason: str = "", clients: tuple[MpsClient, ...] = ()
) -> MpsDaemon:
    """That of one GPU, with a server where it has clients."""
    return MpsDaemon(
        name=gpu,
        gpus=(gpu,),
        owner="nvidia.com/gpu",
        limits=MpsLimits(thread_percentage=25, memory_mib={gpu: 1024}),
        phase=phase,
        reason=reason,
        pid=4711 if phase is MpsPhase.READY else None,
        servers=(MpsServer(pid=4712, clients=clients),) if clients else (),
        starts=1,
    )

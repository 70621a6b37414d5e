"""Modes, fabric, licence, and the driver's recovery action for the GPU."""

from nodeagent.components.exporter.catalogue.field import Entity, gauge
from nodeagent.model.gpu import FabricPhase

_PHASE_NUMBERS = {
    FabricPhase.NOT_SUPPORTED: 0,
    FabricPhase.NOT_STARTED: 1,
    FabricPhase.IN_PROGRESS: 2,
    FabricPhase.COMPLETED: 3,
}


def _fabric_phase(entity: Entity) -> int | None:
    fabric = entity.gpu.fabric
    return _PHASE_NUMBERS[fabric.phase] if fabric is not None else None


FIELDS = (
    gauge("DCGM_FI_DEV_PERSISTENCE_MODE", 66, "Whether persistence mode is on.", lambda e: e.gpu.persistence_mode),
    gauge(
        "DCGM_FI_DEV_MIG_MODE", 67, "Whether MIG is on.", lambda e: e.gpu.mig.enabled if e.gpu.mig is not None else None
    ),
    gauge(
        "DCGM_FI_DEV_FABRIC_MANAGER_STATUS",
        170,
        "Registration with the fabric: 0 not supported, 1 not started, 2 in progress, 3 done.",
        _fabric_phase,
    ),
    gauge(
        "DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE",
        171,
        "NVML code with which registration with the fabric ended.",
        lambda e: e.gpu.fabric.status_code if e.gpu.fabric is not None else None,
    ),
    gauge(
        "DCGM_FI_DEV_FABRIC_CLIQUE_ID",
        173,
        "Clique of the fabric that the GPU is in.",
        lambda e: e.gpu.fabric.clique_id if e.gpu.fabric is not None else None,
    ),
    gauge(
        "DCGM_FI_DEV_FABRIC_HEALTH_MASK",
        174,
        "Health of the fabric as NVML's bit mask.",
        lambda e: e.board.fabric_health_mask,
    ),
    gauge(
        "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY",
        175,
        "Health of the fabric: 0 not told, 1 healthy, 2 unhealthy, 3 limited capacity.",
        lambda e: e.board.fabric_health_summary,
    ),
    gauge(
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        526,
        "Whether a vGPU licence is active.",
        lambda e: e.board.vgpu_license_active,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION",
        1523,
        "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peers, 4 drain and reset.",
        lambda e: e.board.recovery_action,
    ),
)

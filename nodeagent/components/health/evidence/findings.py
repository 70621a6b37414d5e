"""The result of one poll of one GPU; shared by the judges of levels and rates."""

from nodeagent.components.health.evidence.xids import Scope
from nodeagent.components.health.records import LevelMemory
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.ids import DeviceUuid
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value


class Finding(Value, frozen=True):
    """A level out of bounds."""

    key: str
    verdict: Verdict
    rule: ReturnRule
    remedy: Remedy
    reason: str
    quiet_seconds: float = 0.0
    """For rule W: how long it must not be found again."""


class PollResult(Value, frozen=True):
    """A judged poll."""

    findings: tuple[Finding, ...] = ()
    memory: LevelMemory = LevelMemory()
    answered: bool = True
    """Whether the GPU told anything that only living hardware can tell, or is known to be lost."""
    is_clean: bool = True
    """Whether those levels are good on which the return of a GPU depends."""
    reset_seen: bool = False
    """Something went back that only a reset takes back."""
    recovery_action: int | None = None
    pids: tuple[int, ...] = ()
    """Who runs on the GPU."""
    is_extra: bool = False
    """Taken out of turn, because something happened: it may show what is bad, and proves nothing to be good."""


def suspect(key: str, reason: str, remedy: Remedy, rule: ReturnRule, quiet_seconds: float = 0.0) -> Finding:
    """A level that needs attention."""
    return Finding(
        key=key, verdict=Verdict.SUSPECT, rule=rule, remedy=remedy, reason=reason, quiet_seconds=quiet_seconds
    )


def unhealthy(key: str, reason: str, remedy: Remedy, rule: ReturnRule, quiet_seconds: float = 0.0) -> Finding:
    """A level that takes the device out of service."""
    return Finding(
        key=key, verdict=Verdict.UNHEALTHY, rule=rule, remedy=remedy, reason=reason, quiet_seconds=quiet_seconds
    )


def find_hit(
    gpu: Gpu, scope: Scope, gpu_instance_id: int | None, compute_instance_id: int | None
) -> tuple[DeviceUuid, ...]:
    """The devices that an event marks; the GPU itself where no such MIG instance exists."""
    if scope is Scope.GPU or gpu_instance_id is None:
        return (gpu.uuid,)
    named = tuple(
        device.uuid
        for device in gpu.mig_devices
        if device.gpu_instance_id == gpu_instance_id and compute_instance_id in {None, device.compute_instance_id}
    )
    return named or (gpu.uuid,)

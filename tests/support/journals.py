"""What stands in the journal beside whole devices, made of as little as a test cares about."""

from nodeagent.components.allocations.roles.changes import Stepped
from nodeagent.components.allocations.roles.fractions import Bound, Reserved
from nodeagent.components.allocations.roles.repairs import SessionKept
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.ids import DeviceId, GpuUuid, PciAddress, ResourceName
from nodeagent.model.journal import Binding, GpuFraction, PreparedClaim, PreparedDevice, Reservation, Step
from nodeagent.model.repairs import Ending, Evidence, FaultSession, Rung, SessionGpu
from nodeagent.rules.receipts import SeenFault
from nodeagent.rules.signals import Severity

CORE = ResourceName("tencent.com/vcuda-core")
MEMORY = ResourceName("tencent.com/vcuda-memory")
MIB = 1024 * 1024


def gpu(name: str) -> GpuUuid:
    """`a` is the GPU GPU-a."""
    return GpuUuid(f"GPU-{name}")


def make_reservation(
    number: int, tokens: str = "x", *, resource: ResourceName = CORE, cdi_name: str = "", kubelet_run: str = "now"
) -> Reservation:
    return Reservation(
        number=number,
        resource=resource,
        devices=tuple(DeviceId(token) for token in tokens),
        since_seconds=float(number),
        cdi_name=cdi_name,
        kubelet_run=kubelet_run,
    )


def make_part(name: str, cores: int = 50, mib: int = 256) -> GpuFraction:
    return GpuFraction(gpu=gpu(name), cores=cores, memory_bytes=mib * MIB)


def make_binding(number: int, reservations: tuple[int, ...], *parts: GpuFraction) -> Binding:
    """On half of GPU a, unless the parts say otherwise."""
    return Binding(
        number=number,
        reservations=reservations,
        pod=PodIdentity(namespace="team", name=f"pod-{number}"),
        container="main",
        parts=parts or (make_part("a"),),
        since_seconds=float(number),
    )


def reserved(number: int, tokens: str = "x") -> Reserved:
    return Reserved(reservation=make_reservation(number, tokens))


def bound(number: int, reservations: tuple[int, ...], *parts: GpuFraction) -> Bound:
    return Bound(binding=make_binding(number, reservations, *parts))


def make_claim(uid: str, *devices: str) -> PreparedClaim:
    prepared = (
        PreparedDevice(requests=("gpu",), pool="node", device=f"gpu-{name}", uuid=gpu(name)) for name in devices
    )
    return PreparedClaim(uid=uid, namespace="team", name=uid, devices=tuple(prepared), since_seconds=1.0)


def make_step(name: str, payload: str = "") -> Step:
    return Step(name=name, at_seconds=1.0, payload=payload)


def make_cordon(name: str, until_seconds: float | None = None) -> Cordon:
    """A cordon by the node's annotation."""
    source = CordonSource.ANNOTATION
    return Cordon(gpu=gpu(name), source=source, named=gpu(name), reason="fan", until_seconds=until_seconds)


def make_seen(number: int = 79, *, severity: Severity = Severity.CRITICAL, at_seconds: float = 2.0) -> SeenFault:
    """A fault of GPU a."""
    return SeenFault(
        number=number,
        name="a fault",
        severity=severity,
        gpu=gpu("a"),
        index=0,
        address=PciAddress("0000:10:00.0"),
        first_seconds=at_seconds,
        last_seconds=at_seconds,
    )


def make_session(number: int, name: str = "a", closed_seconds: float | None = None) -> FaultSession:
    """A session of a single GPU; with a time a session that closed by itself."""
    return FaultSession(
        number=number,
        gpus=(SessionGpu(uuid=gpu(name), board="1650", index=0, address=PciAddress("0000:10:00.0")),),
        cause="xid-119",
        evidence=(Evidence(gpu=gpu(name), key="xid-119", rung=Rung.RESET, seen_seconds=1.0),),
        rung=Rung.RESET,
        boot="boot",
        opened_seconds=1.0,
        ending=None if closed_seconds is None else Ending.RECOVERED,
        closed_seconds=closed_seconds,
    )


def kept(number: int, name: str = "a", *, at: float = 1.0, closed_seconds: float | None = None) -> SessionKept:
    return SessionKept(session=make_session(number, name, closed_seconds), at_seconds=at)


def stepped(number: int, step: str, *, owner: str = "mig", on: str = "a") -> Stepped:
    return Stepped(number=number, owner=owner, gpu=gpu(on), step=make_step(step))

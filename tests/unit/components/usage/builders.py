"""Bindings, processes and places for tests; each builder takes only what the test is about."""

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.journal import Binding, FractionTable, GpuFraction
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample, NodeSample, ProcessSample
from tests.support.samples import make_uuid

GIB = 1024**3
START = 1_767_225_600.0


def bind(
    number: int,
    pod: str = "train",
    container: str = "main",
    *,
    gpus: tuple[int, ...] = (0,),
    cores: int = 30,
    gib: int = 8,
    uid: str | None = None,
    core_limit: int | None = None,
) -> Binding:
    """A container's parts; the pod's uid is made of its name unless told otherwise."""
    return Binding(
        number=number,
        reservations=(number * 2, number * 2 + 1),
        pod=PodIdentity(namespace="ml", name=pod, uid=f"u-{pod}" if uid is None else uid),
        container=container,
        parts=tuple(GpuFraction(gpu=make_uuid(index), cores=cores, memory_bytes=gib * GIB) for index in gpus),
        since_seconds=START - 60,
        core_limit=core_limit,
        why="share",
    )


def tabulate(*bindings: Binding) -> FractionTable:
    return FractionTable(bindings={binding.number: binding for binding in bindings})


def run(pid: int, sm: int | None = 10, gib: int | None = 1) -> ProcessSample:
    return ProcessSample(pid=pid, sm_utilization_percent=sm, memory_used_bytes=None if gib is None else gib * GIB)


def sample(*processes: ProcessSample, index: int = 0, lost: str = "", seconds: float = START) -> NodeSample:
    return NodeSample(time_seconds=seconds, gpus=(GpuSample(uuid=make_uuid(index), lost=lost, processes=processes),))


def place(pod: str, container_id: str = "c") -> ProcessPlace:
    return ProcessPlace(pod_uid=f"u-{pod}", container_id=container_id)


def name(pod: str, container: str, container_id: str = "c") -> PodContainer:
    return PodContainer(
        id=container_id,
        pod_uid=f"u-{pod}",
        name=container,
        state=ContainerState.RUNNING,
        namespace="ml",
        pod=pod,
    )

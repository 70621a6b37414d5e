"""A node with something of everything, as the page and the terminal see it."""

from typing import Any, TypeVar, cast

from msgspec.structs import replace

from nodeagent.components.web.api.gpu_records import join_gpus
from nodeagent.components.web.api.latest import ReadLatest
from nodeagent.components.web.api.records import (
    ComponentRecord,
    ConditionRecord,
    GateRecord,
    GpuRecord,
    GpusRecord,
    StateRecord,
)
from nodeagent.components.web.page.overview import PageView
from nodeagent.components.web.page.trend import Trends
from nodeagent.core.channels.envelope import Envelope
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import DevicesAllocated, FaultInjected, VerdictChanged, XidReported
from nodeagent.model.gpu import (
    Fabric,
    FabricPhase,
    Gpu,
    GpuPair,
    Inventory,
    MissingGpu,
    NvLink,
    NvSwitch,
    PathKind,
    Unreadable,
)
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.labels import LabelState
from nodeagent.model.offering import AllocationMode, GpuAllocationMode
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.model.runtime import CdiSpecFile, CdiState, RuntimeKind, RuntimeState
from nodeagent.model.telemetry import GpuSample, NodeSample
from tests.support.samples import make_address, make_gpu, make_mig, make_uuid

GPU = ResourceName("nvidia.com/gpu")
NOW = 1000.0
V = TypeVar("V")


def make_reader(*states: object) -> ReadLatest:
    """The states, as a bus that retains them gives them."""
    retained = {type(state): state for state in states}

    def read(kind: type[V], /) -> V | None:
        return cast("V | None", retained.get(kind))

    return read


def make_sample(index: int, *, percent: int = 42) -> GpuSample:
    return GpuSample(
        uuid=make_uuid(index),
        gpu_utilization_percent=percent,
        memory_used_bytes=8 << 30,
        memory_total_bytes=80 << 30,
        power_milliwatts=350_400,
        power_limit_milliwatts=700_000,
        gpu_temperature_celsius=61,
    )


def make_rich_state(word: str = "word") -> StateRecord:
    """A node in trouble; `word` stands wherever a name or a reason comes from outside."""
    linked = replace(
        make_gpu(0, name=word),
        nvlinks=(NvLink(link=0, active=True, remote=make_address(99), remote_is_switch=True),),
        fabric=Fabric(phase=FabricPhase.COMPLETED),
        unreadable=(Unreadable(what=word, reason=word),),
        serial=word,
    )
    gpus: tuple[Gpu, ...] = (linked, make_gpu(1, mig=make_mig(1, 2)), make_gpu(2, lost=word), make_gpu(3))
    mig = gpus[1].mig_devices
    inventory = Inventory(
        generation=3,
        gpus=gpus,
        pairs=(
            GpuPair(left=make_uuid(0), right=make_uuid(1), path=PathKind.NODE, nvlink_count=18, through_switch=True),
            GpuPair(left=make_uuid(0), right=make_uuid(3), path=PathKind.SYSTEM, nvlink_count=2),
            GpuPair(left=make_uuid(1), right=make_uuid(3), path=PathKind.SYSTEM),
        ),
        switches=(NvSwitch(address=make_address(99)),),
        missing=(MissingGpu(address=make_address(50), device_id=1, reason=word),),
    )
    pod = PodIdentity(namespace="ml", name=word)
    table = AllocationTable(
        allocations=(
            _allocate(1, f"{make_uuid(0)}::2", pod),
            _allocate(2, str(mig[0].uuid), pod),
            _allocate(3, word, None),
            replace(_allocate(4, str(make_uuid(3)), PodIdentity(namespace="", name="", uid=word)), forgotten=True),
        )
    )
    health = HealthReport(
        generation=3,
        devices=(
            _judge(0, Verdict.HEALTHY, ""),
            _judge(1, Verdict.HEALTHY, ""),
            replace(_judge(1, Verdict.UNHEALTHY, word), device=mig[1].uuid, remedy=word),
        ),
    )
    sample = NodeSample(time_seconds=NOW - 60, gpus=(make_sample(0), make_sample(1), GpuSample(uuid=make_uuid(3))))
    return StateRecord(
        api="v1",
        version="1.2.3",
        node="node-a",
        gpu_source="simulated:x",
        pid=7,
        started_seconds=10.0,
        time_seconds=NOW,
        verdict="broken",
        sentence=word,
        ready=False,
        gates=(GateRecord(name="g", open=False, since_seconds=1), GateRecord(name="h", open=True, since_seconds=1)),
        components=(
            ComponentRecord(
                name="part",
                phase="backing_off",
                since_seconds=5,
                vital=True,
                restarts=2,
                last_error=word,
                waiting_for=("g",),
            ),
            ComponentRecord(name="web", phase="running", since_seconds=5, vital=True),
        ),
        conditions=(
            ConditionRecord(
                code="c", severity="error", title=word, remedy=word, since_seconds=1, detail=word, key=word
            ),
            ConditionRecord(code="d", severity="warning", title="t", remedy="r", since_seconds=1),
        ),
        driver=DriverState(
            phase=DriverPhase.READY,
            detail=word,
            driver_version="580.1",
            interface_version="13.580",
            module_version="580.1",
            cuda_version=(13, 0),
            library_path=word,
            open_module=True,
        ),
        gpus=join_gpus(inventory, make_reader(sample, health), table, {}, now_seconds=NOW),
        plugin=PluginState(resources=(_offer(registered=True, error=""), _offer(registered=False, error=word))),
        runtime=RuntimeState(kind=RuntimeKind.CONTAINERD, version="2.1", cdi_enabled=False, restart_needed=word),
        cdi=CdiState(
            generation=3,
            files=(CdiSpecFile(path=word, kind="k", version="1", devices=("a",)),),
            left_out=(word,),
        ),
        allocations=table.allocations,
        labels=LabelState(wanted={"a": word, "b": "2"}, applied={"a": word, "c": word}, last_error=word),
        notices=(word,),
    )


def _allocate(number: int, device: str, pod: PodIdentity | None) -> Allocation:
    return Allocation(
        number=number, resource=GPU, devices=(DeviceId(device),), since_seconds=20, pod=pod, container="c"
    )


def _judge(index: int, verdict: Verdict, reason: str) -> DeviceHealth:
    return DeviceHealth(
        device=make_uuid(index), gpu=make_uuid(index), verdict=verdict, since_seconds=5.0, reason=reason
    )


def _offer(*, registered: bool, error: str) -> AdvertisedResource:
    devices = (AdvertisedDevice(id=DeviceId("a"), healthy=True), AdvertisedDevice(id=DeviceId("b"), healthy=False))
    return AdvertisedResource(name=GPU, socket="s", registered=registered, devices=devices, last_error=error)


def make_envelope(seq: int, value: object, *, time: float = NOW, cause: int | None = None) -> Envelope[object]:
    return Envelope(value, "", seq, time, "test", cause)


def make_view(word: str = "word") -> PageView:
    """That node with a minute of samples and a chain of events."""
    trends = Trends()
    for step in range(12):
        samples = (make_sample(0, percent=step), make_sample(1))
        trends.add(NodeSample(time_seconds=NOW - 60 + step * 5, gpus=samples))
    history = (
        make_envelope(1, FaultInjected(fault=word, target=word), time=NOW - 50),
        make_envelope(2, XidReported(gpu=make_uuid(0), xid=79, message=word), time=NOW - 10),
        make_envelope(
            3,
            VerdictChanged(device=make_uuid(0), before=Verdict.HEALTHY, after=Verdict.UNHEALTHY, reason=word),
            time=NOW - 10,
            cause=2,
        ),
        make_envelope(4, DevicesAllocated(resource=GPU, devices=(DeviceId(f"{make_uuid(0)}::1"),), number=9)),
    )
    return PageView(state=make_rich_state(word), trend=trends.points(), history=history)


def make_full_view(count: int) -> PageView:
    """As much as a page ever shows of so many GPUs: five minutes of curves, seven MIG devices each, many moments."""
    view = make_view()
    points = next(iter(view.trend.values())) * 5
    gpus = tuple(
        GpuRecord(gpu=make_gpu(index, mig=make_mig(index, 7)), sample=make_sample(index)) for index in range(count)
    )
    history = tuple(
        make_envelope(envelope.seq + 10 * step, envelope.value, time=envelope.time + 60 * step)
        for step in range(20)
        for envelope in view.history
    )
    return PageView(
        state=replace(view.state, gpus=GpusRecord(generation=1, gpus=gpus)),
        trend={make_uuid(index): points for index in range(count)},
        history=history,
    )


def make_cordon(index: int = 0, **changes: Any) -> Cordon:
    """A person's cordon."""
    plain: dict[str, Any] = {"source": CordonSource.COMMAND, "named": str(index), "reason": "fan"}
    return Cordon(gpu=make_uuid(index), **(plain | changes))


def make_brake(index: int = 0, **changes: Any) -> Cordon:
    """The brake's cordon, in the first closing."""
    plain = {"source": CordonSource.BRAKE, "reason": "3 starts were lost", "since_seconds": 700.0, "closings": 1}
    return make_cordon(index, **(plain | changes))


def make_mode(index: int = 0, *cordons: Cordon, **changes: Any) -> GpuAllocationMode:
    """A whole GPU with these cordons, open without any."""
    plain: dict[str, Any] = {
        "door": AllocationMode.WHOLE,
        "wanted": AllocationMode.WHOLE,
        "reason": "the default",
        "is_open": not cordons,
        "cordons": cordons,
    }
    return GpuAllocationMode(gpu=make_uuid(index), index=index, address=make_address(index), **(plain | changes))

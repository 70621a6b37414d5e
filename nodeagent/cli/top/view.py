"""GPUs, pods and processes in a terminal; pure. The same record as the status page's."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeagent.cli.answers.table import Layout, Table, lay_out, paint, wrap
from nodeagent.cli.gpu.readings import Reading, list_readings
from nodeagent.components.exporter.series.rates import NO_RATES, RateCalculator, Rates
from nodeagent.components.web.api.records import GpuRecord, StateRecord
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.gpu import MigDevice
from nodeagent.model.ids import GpuUuid
from nodeagent.model.telemetry import GpuSample, MigSample, NodeSample, ProcessSample
from nodeagent.model.values import Value
from nodeagent.model.wording import render_age, render_bytes
from nodeagent.rules.ids import find_uuid

DEVICE_HEAD = ("GPU", "DEVICE", "USE", "MEMORY", "TEMP", "POWER", "HEALTH", "PODS")
PROCESS_HEAD = ("PID", "USER", "GPU", "SM", "MEMORY", "POD", "COMMAND")
OTHER_HEAD = ("RESOURCE", "DEVICE", "STANDING", "HELD", "PODS")
DEVICE_GIVING_WAY = ("DEVICE", "TEMP", "POWER")
PROCESS_GIVING_WAY = ("USER", "SM", "MEMORY")
"""Columns left out on a narrow terminal, the first first."""
APART_SECONDS = 0.1
"""States at a smaller distance have the same sample."""


class ProcessFacts(Value, frozen=True):
    """The host's facts about a process."""

    command: str = ""
    pod_uid: str = ""
    user: str = ""
    parent: int = 0


class TopProcess(Value, frozen=True):
    """A process on a device."""

    pid: int
    pod: str
    command: str
    memory_used_bytes: int | None
    sm_percent: int | None
    user: str = ""
    depth: int = 0
    """How many of the process's ancestors are on the same device; they stand before the process."""


class TopDevice(Value, frozen=True):
    """A GPU or MIG device at work."""

    gpu: str
    """`3` for a GPU, `3:0` for a MIG device, as in every command."""
    uuid: str
    name: str
    use_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_celsius: int | None
    power_watts: float | None
    health: str
    pods: tuple[str, ...]
    processes: tuple[TopProcess, ...]
    lost: str = ""
    readings: tuple[Reading, ...] = ()
    """Readings of the whole GPU, on a MIG device too."""
    parts: tuple[str, ...] = ()
    """Pods with fractions, each with its used and promised hundredths; listed among the pods too."""
    cordoned: str = ""
    """Who keeps new pods from the whole GPU, and until when; empty without a cordon."""


class OtherDevice(Value, frozen=True):
    """A device of another kind: its holders are known, its work is not."""

    resource: str
    name: str
    standing: str
    shares: str
    pods: tuple[str, ...]


class TopRecord(Value, frozen=True):
    """The node at work."""

    node: str
    time_seconds: float
    sentence: str
    sample_age_seconds: float | None
    sample_is_old: bool
    devices: tuple[TopDevice, ...]
    others: tuple[OtherDevice, ...] = ()
    """Devices of the configured classes."""


def _list_changes(state: StateRecord) -> list[str]:
    return [record.change.describe() for record in _records(state) if record.change is not None]


class RateMeter:
    """Traffic over links, by the growth of totals between two samples; empty after the first sample."""

    def __init__(self) -> None:
        self._rate_calculator = RateCalculator()
        self._sampled_seconds: float | None = None
        self._rates: dict[GpuUuid, Rates] = {}

    def update(self, state: StateRecord) -> Mapping[GpuUuid, Rates]:
        """The rates up to this state; the earlier rates without a new sample."""
        records = [record for record in _records(state) if record.sample is not None]
        ages = [record.sample_age_seconds for record in records if record.sample_age_seconds is not None]
        sampled = state.time_seconds - max(ages, default=0.0)
        if self._sampled_seconds is not None and sampled - self._sampled_seconds < APART_SECONDS:
            return self._rates
        samples = tuple(record.sample for record in records if record.sample is not None)
        rates = self._rate_calculator.update(NodeSample(time_seconds=sampled, gpus=samples))
        self._rates = rates if self._sampled_seconds is not None else {}
        self._sampled_seconds = sampled
        return self._rates


def list_pids(state: StateRecord) -> list[int]:
    """All processes on all devices."""
    samples = [record.sample for record in _records(state) if record.sample is not None]
    return sorted({pid for sample in samples for pid in sample.pids})


def build_top(
    state: StateRecord, processes: Mapping[int, ProcessFacts], rates: Mapping[GpuUuid, Rates] | None = None
) -> TopRecord:
    """The work of the node's devices, with the pods."""
    records = _records(state)
    ages = [record.sample_age_seconds for record in records if record.sample_age_seconds is not None]
    return TopRecord(
        node=state.node,
        time_seconds=state.time_seconds,
        sentence="; ".join([state.sentence, *_list_changes(state)]),
        sample_age_seconds=max(ages) if ages else None,
        sample_is_old=any(record.sample_is_old for record in records),
        devices=tuple(device for record in records for device in _list_devices(record, processes, rates or {})),
        others=tuple(
            OtherDevice(
                resource=each.resource,
                name=record.device.name,
                standing=str(record.device.standing),
                shares=each.describe_held(record),
                pods=record.holders,
            )
            for each in state.devices
            for record in each.devices
        ),
    )


def _records(state: StateRecord) -> tuple[GpuRecord, ...]:
    return state.gpus.gpus if state.gpus is not None else ()


def _list_devices(
    record: GpuRecord, processes: Mapping[int, ProcessFacts], rates: Mapping[GpuUuid, Rates]
) -> Iterator[TopDevice]:
    gpu, sample = record.gpu, record.sample or GpuSample(uuid=record.gpu.uuid)
    readings = list_readings(sample, rates.get(gpu.uuid, NO_RATES))
    shares = {share.uuid: share for share in sample.mig}
    for device in gpu.mig_devices:
        share = shares.get(device.uuid)
        yield replace(_make_device(record, sample, share, device, processes), readings=readings)
    if not gpu.mig_devices:
        yield replace(_make_device(record, sample, sample, None, processes), readings=readings)


def _make_device(
    record: GpuRecord,
    sample: GpuSample,
    share: GpuSample | MigSample | None,
    device: MigDevice | None,
    processes: Mapping[int, ProcessFacts],
) -> TopDevice:
    gpu = record.gpu
    uuid = device.uuid if device is not None else gpu.uuid
    # The holder of a whole GPU holds each MIG device, also where the GPU was cut under the pod.
    holders = [one.pod for one in record.allocations if {uuid, gpu.uuid} & set(map(find_uuid, one.devices))]
    parts = record.parts if device is None else ()
    with_parts = list(dict.fromkeys(one.pod for one in parts))
    told = {pid: one.pod for one in parts for pid in one.use.processes}
    return TopDevice(
        gpu=f"{gpu.index}:{device.index}" if device is not None else str(gpu.index),
        uuid=str(uuid),
        name=device.profile if device is not None else gpu.name,
        use_percent=_read_use(sample, share, is_mig=device is not None),
        memory_used_bytes=share.memory_used_bytes if share is not None else None,
        memory_total_bytes=share.memory_total_bytes if share is not None else None,
        temperature_celsius=sample.gpu_temperature_celsius,
        power_watts=sample.power_milliwatts / 1000 if sample.power_milliwatts is not None else None,
        health=next((one.verdict.value for one in record.health if one.device == uuid), ""),
        pods=tuple(_name(one) for one in (*holders, *with_parts)),
        parts=tuple(f"{_name(one.pod)} {one.use.describe_cores()}" for one in parts),
        processes=tuple(
            _make_process(one, depth, [*holders, *with_parts], processes, told)
            for one, depth in _plant(share, processes)
        ),
        lost=gpu.lost or sample.lost,
        cordoned=record.door.sum_up_cordons() if record.door is not None else "",
    )


def _read_use(sample: GpuSample, share: GpuSample | MigSample | None, *, is_mig: bool) -> float | None:
    if not is_mig:
        return sample.gpu_utilization_percent
    profiling = share.profiling if share is not None else None
    ratio = profiling.graphics_engine_active if profiling is not None else None
    return None if ratio is None else ratio * 100


def _plant(
    share: GpuSample | MigSample | None, known: Mapping[int, ProcessFacts]
) -> Iterator[tuple[ProcessSample, int]]:
    """A device's processes as a tree with depths: each after its parent, if on the same device."""
    left = {one.pid: one for one in share.processes} if share is not None else {}
    parents = {pid: known[pid].parent for pid in left if pid in known and known[pid].parent in left}

    def descend(pid: int, depth: int) -> Iterator[tuple[ProcessSample, int]]:
        # Process numbers are used again, so two processes may look like each other's parent: each is shown once.
        if pid in left:
            yield left.pop(pid), depth
            for child, parent in parents.items():
                if parent == pid:
                    yield from descend(child, depth + 1)

    for pid in [*(one for one in left if one not in parents), *parents]:
        yield from descend(pid, 0)


def _make_process(
    process: ProcessSample,
    depth: int,
    holders: Sequence[PodIdentity | None],
    known: Mapping[int, ProcessFacts],
    told: Mapping[int, PodIdentity],
) -> TopProcess:
    facts = known.get(process.pid)
    return TopProcess(
        pid=process.pid,
        pod=_find_pod(facts, holders) if facts is not None or not told else _find_listed_pod(process.pid, told),
        command=facts.command if facts is not None else "",
        memory_used_bytes=process.memory_used_bytes,
        sm_percent=process.sm_utilization_percent,
        user=facts.user if facts is not None else "",
        depth=depth,
    )


def _find_pod(facts: ProcessFacts | None, holders: Sequence[PodIdentity | None]) -> str:
    if facts is not None:
        matching = [one for one in holders if one is not None and one.uid == facts.pod_uid]
        if matching and facts.pod_uid:
            return _name(matching[0])
        return f"pod {facts.pod_uid}" if facts.pod_uid else "host"
    return _name(holders[0]) if len(holders) == 1 else ""


def _find_listed_pod(pid: int, told: Mapping[int, PodIdentity]) -> str:
    """The process's pod by the agent, which divides a GPU's processes among the holders of fractions."""
    return _name(told[pid]) if pid in told else ""


def _name(pod: PodIdentity | None) -> str:
    return f"{pod.namespace}/{pod.name}" if pod is not None else "pod not known yet"


def render_top(top: TopRecord, layout: Layout, *, colour: bool) -> str:
    """A line about the node, a table of devices, a table of processes."""
    width = layout.width
    age = top.sample_age_seconds
    old = f"  readings are {render_age(age)} old" if age is not None and top.sample_is_old else ""
    first, *rest = wrap(f"{top.node}: {top.sentence}", width, indent=4)
    lines = [first.lstrip(), *rest]
    lines += [paint(old.strip(), "warn", colour=colour)] if old else []
    rows = [device_row(device) for device in top.devices]
    lines += ["", *lay_out(Table(DEVICE_HEAD, rows, giving_way=DEVICE_GIVING_WAY, nothing="no GPU"), layout)]
    if top.others:
        others = [(one.resource, one.name, one.standing, one.shares, ", ".join(one.pods)) for one in top.others]
        lines += ["", *lay_out(Table(OTHER_HEAD, others, giving_way=("RESOURCE",)), layout)]
    rows = [process_row(device, process) for device in top.devices for process in device.processes]
    if rows:
        lines += ["", *lay_out(Table(PROCESS_HEAD, rows, giving_way=PROCESS_GIVING_WAY), layout)]
    return "\n".join(lines) + "\n"


def device_row(device: TopDevice) -> tuple[str, ...]:
    """The cells of `DEVICE_HEAD`."""
    if device.lost:
        return (device.gpu, device.name, "lost", "", "", "", device.health, _list_pods(device))
    return (
        device.gpu,
        device.name,
        _number(device.use_percent, "%"),
        _memory(device),
        _number(device.temperature_celsius, " °C"),
        _number(device.power_watts, " W"),
        device.health,
        _list_pods(device),
    )


def _list_pods(device: TopDevice) -> str:
    """The device's pods, pods with fractions with their use too, and who keeps new pods away."""
    with_parts = {one.partition(" ")[0] for one in device.parts}
    pods = ", ".join((*(pod for pod in device.pods if pod not in with_parts), *device.parts))
    return "; ".join(filter(None, (pods, device.cordoned)))


def process_row(device: TopDevice, process: TopProcess) -> tuple[str, ...]:
    """The cells of `PROCESS_HEAD`."""
    memory = render_bytes(process.memory_used_bytes) if process.memory_used_bytes is not None else "-"
    sm = _number(process.sm_percent, "%")
    return (str(process.pid), process.user or "-", device.gpu, sm, memory, process.pod, process.command)


def _memory(device: TopDevice) -> str:
    if device.memory_used_bytes is None:
        return "-"
    used = render_bytes(device.memory_used_bytes)
    return f"{used} / {render_bytes(device.memory_total_bytes)}" if device.memory_total_bytes is not None else used


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"

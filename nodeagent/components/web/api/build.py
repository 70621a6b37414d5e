"""Makes the API's records from published states; pure."""

from collections.abc import Iterable, Sequence

from nodeagent.components.web.api.fractions import list_fraction_holders
from nodeagent.components.web.api.gpu_records import join_devices, join_gpus
from nodeagent.components.web.api.records import ComponentRecord, ConditionRecord, GateRecord, StateRecord
from nodeagent.components.web.verdict import decide_ready, decide_verdict
from nodeagent.core.values import ActiveCondition, ComponentReport, GateState
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import FractionTable
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import FractionUsage
from nodeagent.model.values import Value


class Identity(Value, frozen=True):
    """Constants of an agent's run."""

    version: str
    node: str
    gpu_source: str
    pid: int
    started_seconds: float
    vital_gates: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()


class LatestStates(Value, frozen=True):
    """The newest states on the bus; `None` for unpublished states."""

    driver: DriverState | None = None
    inventory: Inventory | None = None
    sample: NodeSample | None = None
    health: HealthReport | None = None
    plugin: PluginState | None = None
    runtime: RuntimeState | None = None
    cdi: CdiState | None = None
    allocations: AllocationTable | None = None
    labels: LabelState | None = None
    offering: Offering | None = None
    parts: FractionTable | None = None
    usage: FractionUsage | None = None
    mps: MpsState | None = None
    devices: DeviceTable | None = None
    mig: MigState | None = None
    slices: PublishedSlices | None = None


def build_gates(gates: Iterable[GateState], vital: frozenset[str]) -> tuple[GateRecord, ...]:
    """All gates; gates of vital components are marked."""
    return tuple(
        GateRecord(name=gate.name, open=gate.is_open, since_seconds=gate.since, vital=gate.name in vital)
        for gate in gates
    )


def build_components(reports: Iterable[ComponentReport]) -> tuple[ComponentRecord, ...]:
    """All components; the reason of a degraded component stands in place of a crash's error."""
    return tuple(
        ComponentRecord(
            name=report.name,
            phase=str(report.phase),
            since_seconds=report.since,
            vital=report.vital,
            restarts=report.restarts,
            last_error=report.degraded_reason or report.last_error or "",
            waiting_for=report.waiting_for,
        )
        for report in reports
    )


def build_conditions(conditions: Iterable[ActiveCondition]) -> tuple[ConditionRecord, ...]:
    """All visible conditions in the order given, the worst first."""
    return tuple(
        ConditionRecord(
            code=condition.code,
            key=condition.key,
            severity=condition.severity,
            title=condition.title,
            detail=condition.detail,
            remedy=condition.remedy,
            since_seconds=condition.since,
        )
        for condition in conditions
    )


def build_state(
    identity: Identity,
    known: LatestStates,
    gates: Sequence[GateRecord],
    components: Sequence[ComponentRecord],
    conditions: Sequence[ConditionRecord],
    *,
    now_seconds: float,
) -> StateRecord:
    """The record of the whole node."""
    ready = decide_ready(gates, components)
    gpus = None
    if known.inventory is not None:
        parts = list_fraction_holders(known.parts, known.usage) if known.parts is not None else None
        gpus = join_gpus(
            known.inventory,
            known.sample,
            known.health,
            known.allocations,
            offering=known.offering,
            parts=parts,
            plugin=known.plugin,
            mig=known.mig,
            now_seconds=now_seconds,
        )
    verdict, sentence = decide_verdict(
        ready=ready,
        conditions=conditions,
        inventory=known.inventory,
        plugin=known.plugin,
        gates=gates,
        gpus=gpus,
        devices=known.devices,
    )
    return StateRecord(
        api="v1",
        version=identity.version,
        node=identity.node,
        gpu_source=identity.gpu_source,
        pid=identity.pid,
        started_seconds=identity.started_seconds,
        time_seconds=now_seconds,
        verdict=verdict,
        sentence=sentence,
        ready=ready,
        gates=tuple(gates),
        components=tuple(components),
        conditions=tuple(conditions),
        driver=known.driver,
        gpus=gpus,
        plugin=known.plugin,
        runtime=known.runtime,
        cdi=known.cdi,
        allocations=known.allocations.allocations if known.allocations is not None else (),
        labels=known.labels,
        mps=known.mps,
        devices=join_devices(known.devices, known.allocations),
        slices=known.slices,
        notices=identity.notices,
    )

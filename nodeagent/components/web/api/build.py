"""Makes the API's records from published states; pure."""

from collections.abc import Iterable, Sequence

from nodeagent.components.web.api.claims import join_claims
from nodeagent.components.web.api.fractions import list_fraction_holders
from nodeagent.components.web.api.gpu_records import join_devices, join_gpus
from nodeagent.components.web.api.latest import ReadLatest
from nodeagent.components.web.api.records import ComponentRecord, ConditionRecord, GateRecord, StateRecord
from nodeagent.components.web.verdict import decide_ready, decide_verdict
from nodeagent.core.values import ActiveCondition, ComponentReport, GateState
from nodeagent.model.allocation import AllocationTable, ClaimTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.devices import DeviceReadingTable, DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import FractionTable
from nodeagent.model.labels import LabelState
from nodeagent.model.mps import MpsState
from nodeagent.model.plugin import PluginState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.slices import PublishedSlices
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
    read: ReadLatest,
    gates: Sequence[GateRecord],
    components: Sequence[ComponentRecord],
    conditions: Sequence[ConditionRecord],
    *,
    now_seconds: float,
) -> StateRecord:
    """The record of the whole node."""
    ready = decide_ready(gates, components)
    inventory, devices = read(Inventory), read(DeviceTable)
    allocations = join_claims(read(AllocationTable), read(ReadyClaims), read(ClaimTable))
    gpus = None
    if inventory is not None:
        table = read(FractionTable)
        parts = list_fraction_holders(table, read(FractionUsage)) if table is not None else {}
        gpus = join_gpus(inventory, read, allocations, parts, now_seconds=now_seconds)
    verdict, sentence = decide_verdict(
        ready=ready,
        conditions=conditions,
        inventory=inventory,
        plugin=read(PluginState),
        gates=gates,
        gpus=gpus,
        devices=devices,
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
        driver=read(DriverState),
        gpus=gpus,
        plugin=read(PluginState),
        runtime=read(RuntimeState),
        cdi=read(CdiState),
        allocations=allocations.allocations if allocations is not None else (),
        labels=read(LabelState),
        mps=read(MpsState),
        devices=join_devices(devices, allocations, read(DeviceReadingTable), read(FractionTable)),
        slices=read(PublishedSlices),
        notices=identity.notices,
    )

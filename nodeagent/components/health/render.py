"""Renders records as verdicts, worded for the person who is paged."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodeagent.components.health.records import RULE_RANK, VERDICT_RANK, Fault, GpuRecord, ReportedVerdict
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import VerdictChanged
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import (
    DRIVER,
    NO_ANSWER,
    NOT_LOOKED_AT,
    DeviceHealth,
    FoundFault,
    HealthReport,
    ReturnRule,
    Verdict,
)
from nodeagent.model.ids import DeviceUuid
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value
from nodeagent.model.wording import render_age

_RETURNS = {
    ReturnRule.NEVER_LEFT: "",
    ReturnRule.LEVELS_CLEAN: "by itself, once its levels are good again",
    ReturnRule.PROCESS_GONE: "by itself, once the program that failed is gone and its levels are good",
    ReturnRule.RESET: "by itself, once a reset was seen and its levels are good",
    ReturnRule.POWER_CYCLE: "by itself, after a reboot or a power cycle, once its levels are good",
    ReturnRule.SERVICE: "only by `nodeagent gpu clear`, or as another board in this slot",
}

HELD_PHASES = frozenset({DriverPhase.READY, DriverPhase.RELEASED})
"""Phases in which the driver itself does not speak against a device; released, everything stays as it was."""
SILENT_PHASES = frozenset({DriverPhase.STUCK, DriverPhase.VERSION_MISMATCH, DriverPhase.NO_PERMISSION})
"""Phases that only keep from looking: devices turn unknown when it lasts."""


class VerdictInputs(Value, frozen=True):
    """Inputs of a GPU's verdict besides the GPU's own record."""

    driver: DriverState | None = None
    unknown_after: int = 3
    watched: bool = True


def render_report(
    inventory: Inventory,
    records: Mapping[str, GpuRecord],
    standings: Mapping[str, ReportedVerdict],
    inputs: VerdictInputs,
    *,
    wall: float,
) -> HealthReport:
    """The verdict on every GPU and every MIG device, in index order."""
    devices = []
    for gpu in inventory.gpus:
        record = records.get(gpu.uuid) or GpuRecord(gpu=gpu.uuid)
        for uuid in gpu.device_uuids:
            judged = _judge_device(gpu, uuid, record, inputs, wall)
            standing = standings.get(uuid)
            if standing is not None and standing.verdict is judged.verdict:
                judged = replace(judged, since_seconds=standing.since_wall)
            devices.append(judged)
    return HealthReport(generation=inventory.generation, devices=tuple(devices), watched=inputs.watched)


def list_reported(report: HealthReport) -> tuple[ReportedVerdict, ...]:
    """The published verdict of each device, for the store."""
    return tuple(
        ReportedVerdict(device=device.device, verdict=device.verdict, since_wall=device.since_seconds)
        for device in report.devices
    )


def list_changes(before: HealthReport | None, after: HealthReport) -> tuple[tuple[VerdictChanged, DeviceHealth], ...]:
    """A fact for each device with a changed verdict; a new device was unknown."""
    known = {device.device: device.verdict for device in before.devices} if before is not None else {}
    changes = []
    for device in after.devices:
        earlier = known.get(device.device, Verdict.UNKNOWN)
        if earlier is not device.verdict:
            fact = VerdictChanged(device=device.device, before=earlier, after=device.verdict, reason=device.reason)
            changes.append((fact, device))
    return tuple(changes)


def _judge_device(gpu: Gpu, uuid: DeviceUuid, record: GpuRecord, inputs: VerdictInputs, wall: float) -> DeviceHealth:
    faults = [fault for fault in record.faults if fault.device in {uuid, gpu.uuid}]
    worst = max(faults, key=_weigh, default=None)
    healthy = DeviceHealth(device=uuid, gpu=gpu.uuid, verdict=Verdict.HEALTHY, since_seconds=wall)
    candidates = [
        healthy if worst is None else _describe_faults(healthy, worst, faults),
        *_judge_silence(healthy, record, inputs),
        *_judge_driver(healthy, record, inputs),
    ]
    found = (finding for one in candidates for finding in one.findings)
    findings = tuple(sorted(found, key=lambda one: VERDICT_RANK[one.verdict], reverse=True))
    return replace(max(candidates, key=lambda one: VERDICT_RANK[one.verdict]), findings=findings)


def _weigh(fault: Fault) -> tuple[int, int, float]:
    """The worst verdict, then the hardest way back, then the oldest."""
    return VERDICT_RANK[fault.verdict], RULE_RANK[fault.rule], -fault.since_wall


def _describe_faults(healthy: DeviceHealth, fault: Fault, faults: Sequence[Fault]) -> DeviceHealth:
    """The verdict of the worst fault, with the number of the others."""
    others = len(faults) - 1
    times = f" ({fault.count} times)" if fault.count > 1 else ""
    more = f", and {others} more" if others else ""
    returns = _RETURNS.get(fault.rule, "")
    if fault.rule is ReturnRule.QUIET_PERIOD:
        returns = f"by itself, after {render_age(fault.quiet_seconds)} without a repeat"
    return replace(
        healthy,
        verdict=fault.verdict,
        reason=f"{fault.reason}{times}{more}",
        remedy=fault.remedy.sentence,
        returns=returns,
        return_rule=fault.rule,
        xid=fault.xid,
        findings=_list_findings(faults),
    )


def _list_findings(faults: Iterable[Fault]) -> tuple[FoundFault, ...]:
    """Each kind of finding once: a GPU and a MIG device of the GPU may share a kind."""
    worst = {fault.key: fault for fault in sorted(faults, key=_weigh)}
    return tuple(
        FoundFault(
            key=key,
            verdict=fault.verdict,
            rule=fault.rule,
            remedy=fault.remedy,
            seen_seconds=max(fault.last_wall, fault.since_wall),
            is_present=fault.is_present,
        )
        for key, fault in sorted(worst.items())
    )


def _judge_silence(healthy: DeviceHealth, record: GpuRecord, inputs: VerdictInputs) -> tuple[DeviceHealth, ...]:
    """No evidence is not health: unknown before the first look, and after too many without an answer."""
    if record.is_known and record.missed_looks < inputs.unknown_after:
        return ()
    # The same words at each look: a reason that counts on would be news each time, and push out what led to it.
    reason = f"no answer in {inputs.unknown_after} looks or more" if record.is_known else NOT_LOOKED_AT
    unknown = replace(
        healthy,
        verdict=Verdict.UNKNOWN,
        reason=reason,
        remedy=Remedy.CHECK_DRIVER.sentence if record.missed_looks else "wait for the first look",
        returns="by itself, with the next complete look",
        return_rule=ReturnRule.LEVELS_CLEAN,
        findings=(FoundFault(key=NO_ANSWER, verdict=Verdict.UNKNOWN),),
    )
    return (unknown,)


def _judge_driver(healthy: DeviceHealth, record: GpuRecord, inputs: VerdictInputs) -> tuple[DeviceHealth, ...]:
    """A failed driver takes every device out of service; devices come back with clean polls."""
    driver = inputs.driver
    if driver is not None and takes_devices(driver.phase):
        reason = f"the driver does not work: {driver.detail or driver.phase}"
    elif record.driver_was_down and driver is not None and driver.phase in SILENT_PHASES:
        reason = f"the driver went and has not come back: {driver.detail or driver.phase}"
    elif record.driver_was_down:
        reason = "the driver is back, waiting for clean looks"
    else:
        return ()
    unhealthy = replace(
        healthy,
        verdict=Verdict.UNHEALTHY,
        reason=reason,
        remedy=(driver.remedy if driver is not None else "") or Remedy.CHECK_DRIVER.sentence,
        returns="by itself, once the driver works and its levels are good",
        return_rule=ReturnRule.LEVELS_CLEAN,
        findings=(FoundFault(key=DRIVER, verdict=Verdict.UNHEALTHY),),
    )
    return (unhealthy,)


def takes_devices(phase: DriverPhase) -> bool:
    """Whether a driver phase makes every device unfit at once."""
    return phase not in HELD_PHASES and phase not in SILENT_PHASES

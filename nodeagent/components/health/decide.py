"""The effect of evidence on the record of a GPU. Events may make a device worse, only polls may make a device better.

Owns the opening, merging and closing of faults, the return rules and the flap guard. Pure: the same evidence in the
same order gives the same record.
Refuses to word the verdict (`render.py`).
"""

from typing import Final

from msgspec.structs import replace

from nodeagent.components.health.evidence.findings import Finding, PollResult
from nodeagent.components.health.evidence.xid_text import Reading
from nodeagent.components.health.evidence.xids import Repeat, XidEntry
from nodeagent.components.health.records import (
    VERDICT_RANK,
    Clearing,
    Fault,
    GpuRecord,
    Occurrences,
    Return,
    stricter,
    worse,
)
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.ids import DeviceUuid
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value

FLAPPING: Final = "flapping"
OCCURRENCES_KEPT: Final = 8
CLEARINGS_KEPT: Final = 8
_SECONDS_PER_HOUR: Final = 3600


class Moment(Value, frozen=True):
    """A time on the clock that decides, and the same time on the clock that people read."""

    at: float
    wall: float


class XidSeen(Value, frozen=True):
    """An XID with its text, its device and the device's holder."""

    entry: XidEntry
    """As this node's policy sees it."""
    device: DeviceUuid
    reading: Reading | None = None
    """What its text says, where that may count."""
    holder: str = ""
    """Who held the device: the same fault in the hands of many is not theirs."""
    pids: tuple[int, ...] = ()
    is_counted: bool = True
    """Whether it is news; the same XID from a second source only adds its text."""
    is_old: bool = False
    """Found in a log from before anybody looked, so that it may have been mended since."""


def note_xid(record: GpuRecord, seen: XidSeen, now: Moment) -> GpuRecord:
    """The record after an XID."""
    record, heard = _note_occurrence(record, seen, now.at)
    entry, reading = seen.entry, seen.reading
    verdict, rule, remedy, quiet = entry.verdict, entry.rule, entry.remedy, entry.quiet_seconds
    reason = f"XID {entry.number}: {entry.name}"
    if reading is not None:
        verdict, rule, remedy = reading.verdict, reading.rule, reading.remedy
        reason = f"{reason}; {reading.detail}"
    if entry.repeat is not None and (times := _count_repeats(entry.repeat, heard, now.at)) >= entry.repeat.count:
        verdict, rule = worse(verdict, entry.repeat.verdict), stricter(rule, entry.repeat.rule)
        remedy = Remedy.SERVICE if rule is ReturnRule.SERVICE else Remedy.WATCH
        quiet = max(quiet, entry.repeat.quiet_seconds)
        reason = f"{reason}; {'seen by' if entry.repeat.per_holder else 'seen'} {times} {_times(entry.repeat)}"
    if verdict is Verdict.HEALTHY:
        return record
    if seen.is_old and rule in {ReturnRule.RESET, ReturnRule.POWER_CYCLE}:
        rule = ReturnRule.LEVELS_CLEAN
    fault = Fault(
        key=f"xid-{entry.number}",
        device=seen.device,
        verdict=verdict,
        rule=rule,
        remedy=remedy,
        reason=reason,
        since_wall=now.wall,
        last_at=now.at,
        last_wall=now.wall,
        quiet_seconds=quiet,
        xid=entry.number,
        count=int(seen.is_counted),
        pids=seen.pids,
    )
    return open_fault(record, fault)


def _times(repeat: Repeat) -> str:
    return "holders of the device" if repeat.per_holder else f"times within {repeat.quiet_seconds / 3600:g} h"


def _note_occurrence(record: GpuRecord, seen: XidSeen, at: float) -> tuple[GpuRecord, Occurrences]:
    known = next((one for one in record.occurrences if (one.xid, one.device) == (seen.entry.number, seen.device)), None)
    before = known or Occurrences(xid=seen.entry.number, device=seen.device)
    if not seen.is_counted:
        return record, before
    after = replace(
        before,
        times=(*before.times, at)[-OCCURRENCES_KEPT:],
        holders=(*before.holders, seen.holder)[-OCCURRENCES_KEPT:],
    )
    others = tuple(one for one in record.occurrences if one is not known)
    return replace(record, occurrences=(*others, after)), after


def _count_repeats(repeat: Repeat, heard: Occurrences, at: float) -> int:
    recent = [index for index, time in enumerate(heard.times) if at - time < repeat.quiet_seconds]
    if not repeat.per_holder:
        return len(recent)
    return len({heard.holders[index] for index in recent} - {""})


def note_finding(record: GpuRecord, finding: Finding, now: Moment, *, is_correctable: bool = True) -> GpuRecord:
    """The record after an event that reports a level: no fault becomes milder."""
    return open_fault(record, _fault_of(finding, record.gpu, now, is_correctable=is_correctable))


def open_fault(record: GpuRecord, fault: Fault) -> GpuRecord:
    """Add a fault, or merge with the open fault of the same kind: never milder than either, and proven anew."""
    known = _find_fault(record, fault)
    if known is None:
        return replace(record, faults=(*record.faults, fault))
    is_worse = VERDICT_RANK[fault.verdict] >= VERDICT_RANK[known.verdict]
    merged = replace(
        fault,
        verdict=worse(fault.verdict, known.verdict),
        rule=stricter(fault.rule, known.rule),
        reason=fault.reason if is_worse else known.reason,
        remedy=fault.remedy if is_worse else known.remedy,
        quiet_seconds=max(fault.quiet_seconds, known.quiet_seconds),
        since_wall=known.since_wall,
        last_wall=max(fault.last_wall, known.last_wall),
        count=known.count + fault.count,
        is_level=known.is_level or fault.is_level,
        is_present=known.is_present or fault.is_present,
        is_correctable=known.is_correctable and fault.is_correctable,
    )
    return replace(record, faults=tuple(merged if one is known else one for one in record.faults))


def note_poll(record: GpuRecord, poll: PollResult, now: Moment, settings: HealthSettings) -> GpuRecord:
    """The record after a poll: present levels, and the proof or return that follows for each fault."""
    if not poll.answered:
        faults = tuple(replace(fault, clean_looks=0, none_looks=0) for fault in record.faults)
        missed = record.missed_looks + (0 if poll.is_extra else 1)
        return replace(record, faults=faults, missed_looks=missed, clean_streak=0)
    found = {finding.key: finding for finding in poll.findings}
    accepted = tuple(key for key in record.accepted if key in found)
    streak = record.clean_streak if poll.is_extra else record.clean_streak + 1
    record = replace(
        record,
        faults=tuple(_prove(fault, poll, found) for fault in record.faults),
        accepted=accepted,
        levels=poll.memory,
        proven_at=now.at,
        is_known=True,
        missed_looks=0,
        clean_streak=streak,
        driver_was_down=record.driver_was_down and streak < settings.clean_polls,
    )
    for finding in poll.findings:
        if finding.key not in accepted:
            record = _hold_level(record, finding, now)
    return _close_faults(record, poll, now, settings)


def _prove(fault: Fault, poll: PollResult, found: dict[str, Finding]) -> Fault:
    """The fault with this poll counted for its end."""
    is_present = fault.is_level and fault.key in found
    is_clean = not is_present if fault.is_level else poll.is_clean
    counted = 0 if poll.is_extra else 1
    says_none = is_clean and poll.recovery_action == 0
    return replace(
        fault,
        is_present=is_present,
        reset_seen=fault.reset_seen or poll.reset_seen,
        clean_looks=fault.clean_looks + counted if is_clean else 0,
        none_looks=fault.none_looks + counted if says_none else 0,
    )


def _hold_level(record: GpuRecord, finding: Finding, now: Moment) -> GpuRecord:
    """A level's fault opens, or takes the weight that this poll found."""
    fresh = _fault_of(finding, record.gpu, now, is_present=True)
    known = _find_fault(record, fresh)
    if known is None:
        return replace(record, faults=(*record.faults, fresh))
    held = replace(
        fresh,
        since_wall=known.since_wall,
        last_wall=known.last_wall,
        count=known.count,
        rule=stricter(fresh.rule, known.rule),
        is_correctable=known.is_correctable,
    )
    return replace(record, faults=tuple(held if one is known else one for one in record.faults))


def _fault_of(
    finding: Finding, device: DeviceUuid, now: Moment, *, is_present: bool = False, is_correctable: bool = True
) -> Fault:
    return Fault(
        key=finding.key,
        device=device,
        verdict=finding.verdict,
        rule=finding.rule,
        remedy=finding.remedy,
        reason=finding.reason,
        since_wall=now.wall,
        last_at=now.at,
        last_wall=now.wall,
        quiet_seconds=finding.quiet_seconds,
        is_level=True,
        is_present=is_present,
        is_correctable=is_correctable,
    )


def _find_fault(record: GpuRecord, fault: Fault) -> Fault | None:
    return next((one for one in record.faults if (one.key, one.device) == (fault.key, fault.device)), None)


def may_close(fault: Fault, poll: PollResult, at: float, settings: HealthSettings) -> bool:
    """Whether the return rule of a fault is fulfilled."""
    if fault.is_present or fault.clean_looks < settings.clean_polls:
        return False
    # The driver's own word, once it has had time to come: no reset and no reboot is needed (any longer).
    is_corrected = fault.is_correctable and fault.none_looks >= settings.clean_polls
    was_power_cycled = fault.power_cycle_seen or is_corrected
    return {
        ReturnRule.NEVER_LEFT: True,
        ReturnRule.LEVELS_CLEAN: True,
        ReturnRule.QUIET_PERIOD: at - fault.last_at >= fault.quiet_seconds,
        ReturnRule.PROCESS_GONE: not set(fault.pids) & set(poll.pids),
        ReturnRule.RESET: fault.reset_seen or was_power_cycled,
        ReturnRule.POWER_CYCLE: was_power_cycled,
        ReturnRule.SERVICE: False,
    }[fault.rule]


def _close_faults(record: GpuRecord, poll: PollResult, now: Moment, settings: HealthSettings) -> GpuRecord:
    kept = tuple(fault for fault in record.faults if not may_close(fault, poll, now.at, settings))
    if len(kept) == len(record.faults):
        return record
    returned = sorted(_list_unhealthy(record.faults) - _list_unhealthy(kept))
    returns = tuple(one for one in record.returns if now.at - one.at < settings.flap_window_seconds)
    after = replace(record, faults=kept, returns=returns)
    for device in returned:
        after = _let_return(after, device, now, settings)
    return after


def _list_unhealthy(faults: tuple[Fault, ...]) -> set[DeviceUuid]:
    return {fault.device for fault in faults if fault.verdict is Verdict.UNHEALTHY}


def _let_return(record: GpuRecord, device: DeviceUuid, now: Moment, settings: HealthSettings) -> GpuRecord:
    """Count a return; past the limit a flapping device stays out until a person clears the GPU."""
    count = sum(1 for one in record.returns if one.device == device)
    if count < settings.flap_limit:
        return replace(record, returns=(*record.returns, Return(device=device, at=now.at)))
    hours = settings.flap_window_seconds / _SECONDS_PER_HOUR
    flapping = Fault(
        key=FLAPPING,
        device=device,
        verdict=Verdict.UNHEALTHY,
        rule=ReturnRule.SERVICE,
        remedy=Remedy.SERVICE,
        reason=f"failed again after {count} returns within {hours:g} h",
        since_wall=now.wall,
        last_at=now.at,
        last_wall=now.wall,
    )
    return open_fault(record, flapping)


def note_reset(record: GpuRecord) -> GpuRecord:
    """The driver was reloaded: faults that a reset mends may be over."""
    return replace(record, faults=tuple(replace(fault, reset_seen=True) for fault in record.faults))


def note_own_reset(record: GpuRecord) -> GpuRecord:
    """The agent has reset the GPU: faults that a reset mends may be over, after clean polls from now on."""
    faults = tuple(replace(fault, reset_seen=True, clean_looks=0, none_looks=0) for fault in record.faults)
    return replace(record, faults=faults)


def note_power_cycle(record: GpuRecord) -> GpuRecord:
    """The machine was booted, or the card was gone from the bus."""
    faults = tuple(replace(fault, power_cycle_seen=True, is_present=False, clean_looks=0) for fault in record.faults)
    return replace(record, faults=faults)


def note_driver_down(record: GpuRecord) -> GpuRecord:
    """The driver failed: a device comes back only after clean polls."""
    return replace(record, driver_was_down=True, clean_streak=0)


def forget_devices(record: GpuRecord, present: frozenset[str]) -> GpuRecord:
    """Drop the faults of MIG devices that are gone: their names never come back."""
    known = present | {record.gpu}
    return replace(
        record,
        faults=tuple(fault for fault in record.faults if fault.device in known),
        occurrences=tuple(one for one in record.occurrences if one.device in known),
        returns=tuple(one for one in record.returns if one.device in known),
    )


def clear_record(record: GpuRecord, now: Moment, who: str, reason: str) -> GpuRecord:
    """A person takes the GPU back and accepts lasting faults; bad levels show again at once."""
    clearing = Clearing(
        wall=now.wall, who=who, reason=reason, cleared=tuple(sorted({fault.key for fault in record.faults}))
    )
    lasting = {fault.key for fault in record.faults if fault.is_level and fault.rule is ReturnRule.SERVICE}
    return replace(
        record,
        faults=(),
        occurrences=(),
        returns=(),
        accepted=tuple(sorted(lasting | set(record.accepted))),
        clearings=(*record.clearings, clearing)[-CLEARINGS_KEPT:],
        levels=replace(record.levels, uncorrected_baseline=record.levels.uncorrected),
    )

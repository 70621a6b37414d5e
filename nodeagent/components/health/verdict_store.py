"""The stored verdicts of all GPUs: written, read, and resumed by the next agent.

Owns the effect of a restart and of a reboot on stored records. Refuses files: bytes in, bytes out.
"""

from typing import Final

from msgspec import json
from msgspec.structs import replace

from nodeagent.components.health.decide import note_power_cycle
from nodeagent.components.health.records import (
    CounterWindow,
    GpuRecord,
    LevelMemory,
    Return,
    StoredVerdicts,
)

VERDICTS_VERSION: Final = 1
TRUST_SECONDS: Final = 60.0
"""A device that was found well so shortly before a restart of the agent is handed out at once after it."""


def encode_verdicts(stored: StoredVerdicts) -> bytes:
    """The same verdicts always give the same bytes."""
    return json.encode(stored, order="sorted")


def decode_verdicts(content: bytes) -> StoredVerdicts:
    """Read the verdicts back.

    Raises:
        DecodeError: The bytes are no verdicts of this version.
    """
    return json.decode(content, type=StoredVerdicts)


def resume_verdicts(stored: StoredVerdicts, boot_id: str, at: float) -> StoredVerdicts:
    """The verdicts with which a new agent begins: faults stay faults, health must be proven again.

    After a boot the clock has begun anew: records keep the age that they had at the last writing.
    """
    is_same_boot = bool(boot_id) and stored.boot_id == boot_id and stored.saved_at <= at
    records = tuple(
        _resume_record(record, at) if is_same_boot else _resume_after_boot(record, at - stored.saved_at)
        for record in stored.records
    )
    return replace(
        stored,
        boot_id=boot_id,
        saved_at=at,
        records=records,
        kernel_log_sequence=stored.kernel_log_sequence if is_same_boot else None,
    )


def _resume_record(record: GpuRecord, at: float) -> GpuRecord:
    is_fresh = record.is_known and record.proven_at is not None and at - record.proven_at <= TRUST_SECONDS
    return replace(
        record,
        faults=tuple(replace(fault, clean_looks=0, none_looks=0, is_present=False) for fault in record.faults),
        is_known=is_fresh and record.missed_looks == 0,
        missed_looks=0,
        clean_streak=0,
    )


def _resume_after_boot(record: GpuRecord, shift: float) -> GpuRecord:
    moved = replace(
        record,
        faults=tuple(replace(one, last_at=one.last_at + shift, clean_looks=0, none_looks=0) for one in record.faults),
        occurrences=tuple(replace(one, times=tuple(at + shift for at in one.times)) for one in record.occurrences),
        returns=tuple(Return(device=one.device, at=one.at + shift) for one in record.returns),
        levels=_keep_lasting(record.levels, shift),
        proven_at=None,
        is_known=False,
        missed_looks=0,
        clean_streak=0,
        driver_was_down=False,
    )
    return note_power_cycle(moved)


def _keep_lasting(levels: LevelMemory, shift: float) -> LevelMemory:
    """Counters since the last reset and windows begin anew; properties of the hardware and accepted faults stay."""
    pages = levels.retired_double_bit
    return LevelMemory(
        uncorrected_baseline=levels.uncorrected_baseline,
        uncorrected=levels.uncorrected,
        remap_pending=levels.remap_pending,
        recovery_action=levels.recovery_action,
        links_expected=levels.links_expected,
        links_to=levels.links_to,
        nvlink_speed_expected=levels.nvlink_speed_expected,
        retired_double_bit=None if pages is None else CounterWindow(at=pages.at + shift, count=pages.count),
    )

"""Results of resets: a class for each exit code of the driver's tool, or for the tool's text.

Owns that exit code 0 is no success: the proof decides. A code or a text that is not known leaves the end unknown.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from nodeagent.model.gpu import ComputeMode, Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.repairs import FaultSession, KeptSettings, Outcome, Rung, ToolAnswer
from nodeagent.model.values import Value

S = TypeVar("S")

BAD_ARGUMENT: Final = 2
NOT_EXECUTED: Final = 125
"""The first of the codes of a program that cannot start."""
_CODES: Final[Mapping[int, Outcome]] = {
    BAD_ARGUMENT: Outcome.STOPPED,
    4: Outcome.STOPPED,
    3: Outcome.UNSUPPORTED,
    13: Outcome.UNSUPPORTED,
    6: Outcome.FAILED,
    10: Outcome.FAILED,
    15: Outcome.FAILED,
    8: Outcome.BROKEN,
    14: Outcome.BROKEN,
    9: Outcome.STOPPED,
    12: Outcome.STOPPED,
    19: Outcome.IN_USE,
    NOT_EXECUTED: Outcome.STOPPED,
    126: Outcome.STOPPED,
    127: Outcome.STOPPED,
}
"""The driver library's numbers, as its tool ends with them, and those of a program that cannot start."""
_TEXTS: Final[tuple[tuple[str, Outcome], ...]] = (
    ("do not meet the reset criterion", Outcome.INCOMPLETE),
    ("in use by", Outcome.IN_USE),
    ("is not supported", Outcome.UNSUPPORTED),
    ("primary gpu", Outcome.UNSUPPORTED),
    ("vgpu mode", Outcome.UNSUPPORTED),
    ("reboot your system", Outcome.FAILED),
    ("reboot the system", Outcome.FAILED),
)
"""Pieces of texts of the code for all else, in lower case, the first that fits."""
_NAMES: Final[Mapping[bool | None, str]] = {True: "on", False: "off"}
_MISSING: Final = re.compile(r"append the following device indexes[^.]*\.(?P<indexes>[\s,\d]+)", re.IGNORECASE)


class Reading(Value, frozen=True):
    """The result of an act's command; the proof has the last word."""

    outcome: Outcome | None
    """`None` for an act that is done and yet to be proven."""
    detail: str = ""
    peers: tuple[int, ...] = ()
    """Indexes of the GPUs that a refusal names."""


def add_remarks(reading: Reading, remarks: Iterable[str]) -> Reading:
    """The same result with more words to it."""
    return replace(reading, detail="; ".join(filter(None, (reading.detail, *remarks))))


def read_answer(answer: ToolAnswer, rung: Rung) -> Reading:
    """The result for the session, by the exit code and the text of a reset's command."""
    if answer.code == 0:
        return Reading(outcome=None)
    if answer.code is None:
        return Reading(outcome=Outcome.UNKNOWN, detail=answer.describe())
    if rung is Rung.BUS_RESET and answer.code == BAD_ARGUMENT:
        return Reading(outcome=Outcome.UNSUPPORTED, detail=f"this driver's tool has no bus reset: {answer.describe()}")
    outcome = _CODES.get(answer.code) or _read_text(answer.said)
    peers = _find_peers(answer.said) if outcome is Outcome.INCOMPLETE else ()
    return Reading(outcome=outcome, detail=answer.describe(), peers=peers)


def read_removal(answer: ToolAnswer) -> Reading:
    """The result for the session of modprobe's attempt to unload the driver's modules."""
    if answer.code == 0:
        return Reading(outcome=None)
    if answer.code is None:
        return Reading(outcome=Outcome.UNKNOWN, detail=answer.describe())
    is_ours = answer.code >= NOT_EXECUTED or "not permitted" in answer.said.lower()
    return Reading(outcome=Outcome.STOPPED if is_ours else Outcome.REFUSED, detail=answer.describe())


def _read_text(said: str) -> Outcome:
    text = said.lower()
    return next((outcome for piece, outcome in _TEXTS if piece in text), Outcome.UNKNOWN)


def _find_peers(said: str) -> tuple[int, ...]:
    found = _MISSING.search(said)
    return tuple(int(number) for number in re.findall(r"\d+", found["indexes"])) if found else ()


def keep_settings(gpus: Iterable[Gpu], by_mps: Collection[GpuUuid] = ()) -> tuple[KeptSettings, ...]:
    """The settings of GPUs that a reset may take back; the MPS daemon of a GPU sets the compute mode itself."""
    return tuple(
        KeptSettings(
            gpu=gpu.uuid,
            address=gpu.pci.address,
            index=gpu.index,
            persistence_mode=gpu.persistence_mode,
            power_limit_milliwatts=gpu.power_limit_milliwatts,
            compute_mode=None if gpu.uuid in by_mps else gpu.compute_mode,
            application_clocks_mhz=gpu.application_clocks_mhz,
            mig_enabled=None if gpu.mig is None else gpu.mig.enabled,
            ecc_enabled=gpu.ecc_enabled,
        )
        for gpu in gpus
    )


def list_owed_settings(sessions: Iterable[FaultSession]) -> tuple[KeptSettings, ...]:
    """The settings that ended attempts have not put back; of several for a GPU the oldest, from before all of them."""
    owed: dict[GpuUuid, KeptSettings] = {}
    attempts = (attempt for session in sessions for attempt in session.attempts if not attempt.is_open)
    for attempt in sorted(attempts, key=lambda one: one.began_seconds):
        for kept in attempt.kept:
            owed.setdefault(kept.gpu, kept)
    return tuple(owed.values())


def forget_settings(session: FaultSession, gpus: Collection[GpuUuid]) -> FaultSession:
    """The session without the settings of GPUs that have theirs back; an attempt under way keeps its settings."""
    attempts = tuple(
        attempt if attempt.is_open else replace(attempt, kept=tuple(one for one in attempt.kept if one.gpu not in gpus))
        for attempt in session.attempts
    )
    return session if attempts == session.attempts else replace(session, attempts=attempts)


class PutBack(Value, frozen=True):
    """The settings to put back on a GPU, and remarks on settings that need another reset."""

    persistence_mode: bool | None = None
    power_limit_milliwatts: int | None = None
    compute_mode: ComputeMode | None = None
    application_clocks_mhz: tuple[int, int] | None = None
    remarks: tuple[str, ...] = ()


def find_changed(kept: KeptSettings, gpu: Gpu) -> PutBack:
    """The differences from the settings before; a setting that cannot be read, before or now, is left alone."""
    now = {"MIG mode": None if gpu.mig is None else gpu.mig.enabled, "ECC": gpu.ecc_enabled}
    before = {"MIG mode": kept.mig_enabled, "ECC": kept.ecc_enabled}
    return PutBack(
        persistence_mode=_find_lost(kept.persistence_mode, gpu.persistence_mode),
        power_limit_milliwatts=_find_lost(kept.power_limit_milliwatts, gpu.power_limit_milliwatts),
        compute_mode=_find_lost(kept.compute_mode, gpu.compute_mode),
        application_clocks_mhz=_find_lost(kept.application_clocks_mhz, gpu.application_clocks_mhz),
        remarks=tuple(
            f"{name} of GPU {kept.index} was {_NAMES[before[name]]} and is {_NAMES[now[name]]}"
            for name in now
            if _find_lost(before[name], now[name]) is not None
        ),
    )


def _find_lost(before: S | None, now: S | None) -> S | None:
    return before if now is not None and before != now else None

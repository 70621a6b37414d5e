"""The verdict on speeds: against GPUs of the same model on the node, and against floors.

Owns what slow means. The median of several values counts, so that one bad value is no verdict. A copy to one peer says
nothing about which of the two GPUs is slow, so that only copies to most peers count.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from nodeagent.model.gpu import Gpu
from nodeagent.model.proof import ProofCheck, ProofVerdict, ProverReadings, Speed, SpeedKind
from nodeagent.model.values import Value
from nodeagent.rules.proof.floors import Floors, find_nominal, is_plausible

_SLOW: Final = 0.9
"""The part of the mean below which a GPU is slow, if also a standard deviation below the mean."""
_COMPARED_LEAST: Final = 3
"""Of two GPUs that differ nobody knows which is slow."""


class SpeedVerdict(Value, frozen=True):
    """The checks of speeds, and what else a person should know."""

    checks: tuple[ProofCheck, ...] = ()
    notes: tuple[str, ...] = ()


def find_speeds(readings: ProverReadings) -> dict[SpeedKind, float]:
    """The median of each kind; of copies to peers the median of all peers."""
    found: dict[SpeedKind, list[float]] = {}
    for one in readings.speeds:
        found.setdefault(one.kind, []).append(statistics.median(one.values))
    return {kind: statistics.median(values) for kind, values in found.items()}


def is_outlier(value: float, others: Sequence[float]) -> bool:
    """Whether a value is slow among all: a tenth and a standard deviation below the mean."""
    every = [value, *others]
    if len(every) < _COMPARED_LEAST:
        return False
    mean = statistics.fmean(every)
    return value < _SLOW * mean and value < mean - statistics.pstdev(every)


def judge_speeds(
    gpu: Gpu, readings: ProverReadings, neighbours: Sequence[ProverReadings], floors: Floors
) -> SpeedVerdict:
    """A check for each kind of speed; `neighbours` are idle GPUs of the same model."""
    checks: list[ProofCheck] = []
    notes: list[str] = []
    others = [find_speeds(one) for one in neighbours]
    for kind, value in find_speeds(readings).items():
        beside = [one[kind] for one in others if kind in one] if kind is not SpeedKind.PEER else []
        floor, nominal = floors.find(kind), find_nominal(kind, gpu, readings)
        if floor is not None and not is_plausible(floor, nominal):
            notes.append(_describe_implausible(kind, floor, nominal))
            floor = None
        is_slow = is_outlier(value, beside) or (floor is not None and value < floor)
        checks.append(
            ProofCheck(
                name=str(kind) if kind is SpeedKind.CLOCK else f"{kind} speed",
                verdict=ProofVerdict.FAILED if is_slow else ProofVerdict.PASSED,
                measured=render_speed(kind, value),
                expected=_describe_expected(kind, beside, floor),
            )
        )
        if kind is SpeedKind.CLOCK and not beside and 0 < value < _SLOW * readings.clock_max_mhz:
            most = render_speed(kind, readings.clock_max_mhz)
            notes.append(f"the clock under load is below the highest, {most}, and no other GPU says what is usual here")
    return SpeedVerdict(checks=tuple(checks), notes=tuple(notes))


def describe_slow_peers(readings: ProverReadings, names: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each peer with far slower copies than the others."""
    copies: dict[str, Speed] = {one.peer: one for one in readings.speeds if one.kind is SpeedKind.PEER}
    medians = {peer: statistics.median(one.values) for peer, one in copies.items()}
    return tuple(
        f"copies to {names.get(peer, peer)} are slow, {render_speed(SpeedKind.PEER, value)}: prove that GPU, too"
        for peer, value in medians.items()
        if is_outlier(value, [other for name, other in medians.items() if name != peer])
    )


def render_speed(kind: SpeedKind, value: float) -> str:
    """`2540 GB/s`, `48.3 GB/s`, `1980 MHz`."""
    unit = "MHz" if kind is SpeedKind.CLOCK else "GB/s"
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _describe_expected(kind: SpeedKind, beside: Sequence[float], floor: float | None) -> str:
    words = []
    if beside:
        low, high = render_speed(kind, min(beside)), render_speed(kind, max(beside))
        words.append(f"others {low}" if low == high else f"others {low} to {high}")
    if floor is not None:
        words.append(f"at least {render_speed(kind, floor)}")
    return ", ".join(words) or "-"


def _describe_implausible(kind: SpeedKind, floor: float, nominal: float) -> str:
    why = f"the hardware's nominal speed is {render_speed(kind, nominal)}" if nominal else "no nominal speed is known"
    return f"the floor {render_speed(kind, floor)} for {kind} is not used: {why}"

"""The verdict on what the prover computed: patterns, checksums, and the reason of an early end.

Owns which errors of CUDA speak against the GPU. An error that may have another cause is no verdict: a GPU in use, a
library that is missing, and kernels that cannot be translated leave the GPU untested.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from nodeagent.model.proof import PatternPass, ProofCheck, ProofPlan, ProofVerdict, ProverReadings
from nodeagent.model.wording import render_bytes
from nodeagent.rules.proof.kernel_model import compute_sums, compute_word

_FAULTS: Final = {
    214: "an ECC error that cannot be corrected",
    220: "an NVLink error that cannot be corrected",
    226: "an error contained by the GPU",
    700: "an access to a wrong address",
    702: "a kernel that did not end",
    714: "a fault of the GPU's stack",
    715: "an instruction that does not exist",
    716: "a misaligned address",
    717: "an address in the wrong space",
    718: "a wrong program counter",
    719: "a kernel that failed",
}
"""Errors of correct kernels only on a GPU that computes wrongly."""
_UNKNOWN: Final = 999
_BEFORE_WORK: Final = frozenset({"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid"})
"""Calls that concern the whole driver, not the GPU alone."""
_NAMED_MOST: Final = 8
_PEER: Final = "peer "


def judge_readings(readings: ProverReadings, plan: ProofPlan, names: Mapping[str, str]) -> tuple[ProofCheck, ...]:
    """A check for each kind of work that was done, and for an early end; `names` are those of the other GPUs."""
    return (
        *_judge_end(readings),
        *_judge_patterns("memory", [one for one in readings.patterns if one.where == "memory"]),
        *_judge_patterns("copies", [one for one in readings.patterns if one.where == "copies"]),
        *_judge_peers([one for one in readings.patterns if one.where.startswith(_PEER)], names),
        *_judge_sums(readings, plan),
    )


def find_failure(readings: ProverReadings, plan: ProofPlan, index: int) -> str:
    """The first finding against a GPU of this index; empty for a GPU that passed or could not be tested."""
    checks = judge_readings(readings, plan, {})
    failed = (f"{each.name}: {each.measured}" for each in checks if each.verdict is ProofVerdict.FAILED)
    return next((f"the proof of GPU {index} failed: {one}" for one in failed), "")


def _judge_end(readings: ProverReadings) -> Iterator[ProofCheck]:
    if not readings.stopped:
        return
    cause = _FAULTS.get(readings.code, "")
    is_fault = cause or (readings.code == _UNKNOWN and readings.call not in _BEFORE_WORK)
    verdict = ProofVerdict.FAILED if is_fault or readings.hung else ProofVerdict.UNTESTED
    measured = f"{readings.stopped}: {cause}" if cause else readings.stopped
    if readings.left_behind:
        measured += "; the process cannot be killed: only a reboot of the node frees the GPU"
    yield ProofCheck(name="prover", verdict=verdict, measured=measured, expected="every call returns")


def _judge_patterns(name: str, passes: Sequence[PatternPass]) -> Iterator[ProofCheck]:
    if not passes:
        return
    wrong = next((one for one in passes if one.wrong), None)
    if wrong is None:
        size = render_bytes(max(one.size_bytes for one in passes))
        measured = f"{size}, {len(passes)} {'patterns' if len(passes) > 1 else 'pattern'}"
        yield ProofCheck(name=name, verdict=ProofVerdict.PASSED, measured=measured, expected="no wrong word")
    else:
        yield ProofCheck(
            name=name, verdict=ProofVerdict.FAILED, measured=_describe_wrong(wrong), expected="no wrong word"
        )


def _describe_wrong(one: PatternPass) -> str:
    right = compute_word(one.first, one.seed, one.mask)
    bits = ", ".join(str(bit) for bit in range(64) if (one.found ^ right) >> bit & 1)
    how = f"bits {bits} differ" if bits else "right when read once more"
    words = f"{one.wrong} words" if one.wrong > 1 else "1 word"
    return (
        f"{words} of {one.size_bytes // 8} wrong, the first at {one.address:#x} (byte {8 * one.first}):"
        f" {one.found:#018x} for {right:#018x}, {how}"
    )


def _judge_peers(passes: Sequence[PatternPass], names: Mapping[str, str]) -> Iterator[ProofCheck]:
    """Wrong copies with every peer speak against this GPU; wrong copies with one peer may be the peer's fault."""
    wrong = [one for one in passes if one.wrong]
    is_own = len(wrong) == len(passes) > 1
    for one in passes:
        uuid = one.where.removeprefix(_PEER)
        name, measured, verdict = f"copy by {names.get(uuid, uuid)}", "as written", ProofVerdict.PASSED
        if one.wrong:
            verdict = ProofVerdict.FAILED if is_own else ProofVerdict.UNTESTED
            measured = _describe_wrong(one) + ("" if is_own else "; either of the two GPUs may be at fault")
        yield ProofCheck(name=name, verdict=verdict, measured=measured, expected="no wrong word")


def _judge_sums(readings: ProverReadings, plan: ProofPlan) -> Iterator[ProofCheck]:
    if not readings.sums:
        return
    right = compute_sums(plan.turns, plan.rounds, plan.seed)
    wrong = sorted(
        {
            one.sm
            for one in readings.sums
            if (one.plain, one.weighted, one.tensor) != (right.plain, right.weighted, right.tensor)
        }
    )
    seen = {one.sm for one in readings.sums}
    count = readings.multiprocessors
    missing = [sm for sm in range(count) if sm not in seen] if len(seen) < count else []
    problems = [
        *([f"wrong on SM {_list(wrong)}"] if wrong else []),
        *([f"none from SM {_list(missing)}"] if missing else []),
    ]
    yield ProofCheck(
        name="checksum",
        verdict=ProofVerdict.FAILED if problems else ProofVerdict.PASSED,
        measured="; ".join(problems) or f"right on {len(seen)} SMs",
        expected=f"the same on each of {count} SMs",
    )


def _list(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED_MOST]))
    rest = len(numbers) - _NAMED_MOST
    return f"{named} and {rest} more" if rest > 0 else named

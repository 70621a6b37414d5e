"""The verdict on what the prover computed."""

import pytest
from msgspec.structs import replace

from nodeagent.model.proof import (
    GpuProof,
    PatternPass,
    ProofCheck,
    ProofPlan,
    ProofStage,
    ProofVerdict,
    ProverReadings,
    SmSum,
)
from nodeagent.rules.proof.judge import judge_readings
from nodeagent.rules.proof.kernel_model import compute_sums, compute_word
from nodeagent.rules.proof.stages import plan_neighbour, plan_stage
from tests.support.gpus import gpu_uuid, make_gpu

MIB = 1 << 20
PLAN = ProofPlan(turns=2, rounds=3)
SUMS = compute_sums(2, 3, 1)
OTHER, THIRD = str(gpu_uuid(1)), str(gpu_uuid(2))
NAMES = {OTHER: "GPU 1", THIRD: "GPU 2"}
PASSED, FAILED, UNTESTED = ProofVerdict.PASSED, ProofVerdict.FAILED, ProofVerdict.UNTESTED


def sum_of(sm: int, *, tensor: int = SUMS.tensor) -> SmSum:
    return SmSum(sm=sm, plain=SUMS.plain, weighted=SUMS.weighted, tensor=tensor)


def pattern(where: str = "memory", *, flipped: int | None = None, mask: int = 0) -> PatternPass:
    """A pass over a MiB; `flipped` is the bit of word 5 that is wrong."""
    one = PatternPass(where=where, size_bytes=MIB, seed=1, mask=mask)
    if flipped is None:
        return one
    found = compute_word(5, 1, mask) ^ 1 << flipped
    return replace(one, wrong=1, first=5, address=0x7F0000000028, found=found)


def judge(readings: ProverReadings) -> dict[str, ProofCheck]:
    return {check.name: check for check in judge_readings(readings, PLAN, NAMES)}


def test_a_sound_gpu_passes_every_check() -> None:
    whole = ProverReadings(
        patterns=(pattern(), pattern(mask=(1 << 64) - 1), pattern("copies"), pattern(f"peer {OTHER}")),
        sums=tuple(sum_of(sm) for sm in range(4)),
        multiprocessors=4,
    )
    checks = judge(whole)
    assert {name: (one.verdict, one.measured) for name, one in checks.items()} == {
        "memory": (PASSED, "1 MiB, 2 patterns"),
        "copies": (PASSED, "1 MiB, 1 pattern"),
        "copy by GPU 1": (PASSED, "as written"),
        "checksum": (PASSED, "right on 4 SMs"),
    }


def test_the_first_wrong_word_is_named_with_its_bits() -> None:
    """Address, byte in the buffer, and which bits; a word that is right the second time is said to be."""
    one = pattern(flipped=9)
    checks = judge(ProverReadings(patterns=(pattern(), one)))
    assert checks["memory"].verdict is FAILED
    assert checks["memory"].measured.startswith("1 word of 131072 wrong, the first at 0x7f0000000028 (byte 40): 0x")
    assert checks["memory"].measured.endswith(", bits 9 differ")
    again = replace(one, wrong=7, found=compute_word(5, 1, 0))
    measured = judge(ProverReadings(patterns=(again,)))["memory"].measured
    assert measured.startswith("7 words of")
    assert measured.endswith("right when read once more")


def test_wrong_copies_by_one_peer_may_be_the_peers_fault() -> None:
    """By every peer of several they are this GPU's."""
    wrong = [pattern(f"peer {uuid}", flipped=1) for uuid in (OTHER, THIRD)]
    one = judge(ProverReadings(patterns=(wrong[0], pattern(f"peer {THIRD}"))))
    assert (one["copy by GPU 1"].verdict, one["copy by GPU 2"].verdict) == (UNTESTED, PASSED)
    assert "either of the two GPUs may be at fault" in one["copy by GPU 1"].measured
    assert judge(ProverReadings(patterns=(wrong[0],)))["copy by GPU 1"].verdict is UNTESTED
    both = judge(ProverReadings(patterns=tuple(wrong)))
    assert {check.verdict for check in both.values()} == {FAILED}


def test_wrong_and_missing_multiprocessors_are_named() -> None:
    """Eight at most; an SM that is right once and wrong once is wrong."""
    sums = (*(sum_of(sm) for sm in range(20, 32)), sum_of(25, tensor=0))
    one = judge(ProverReadings(sums=sums, multiprocessors=32))["checksum"]
    assert one.verdict is FAILED
    assert one.measured == "wrong on SM 25; none from SM 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"
    few = judge(ProverReadings(sums=(sum_of(0), sum_of(2)), multiprocessors=3))["checksum"]
    assert few.measured == "none from SM 1"


def test_sums_count_although_the_numbers_of_multiprocessors_have_gaps() -> None:
    sums = (sum_of(0), sum_of(5))
    assert judge(ProverReadings(sums=sums, multiprocessors=2))["checksum"].verdict is PASSED


@pytest.mark.parametrize(
    ("call", "code", "verdict"),
    [
        ("cuCtxSynchronize", 700, FAILED),
        ("cuCtxCreate_v2", 214, FAILED),
        ("cuCtxSynchronize", 999, FAILED),
        ("cuInit", 999, UNTESTED),
        ("cuCtxCreate_v2", 46, UNTESTED),
        ("cuMemAlloc_v2", 2, UNTESTED),
        ("cuModuleLoadData", 221, UNTESTED),
    ],
)
def test_an_error_is_the_gpus_fault_or_nobodys(call: str, code: int, verdict: ProofVerdict) -> None:
    """A GPU in use, without room or without a translator of kernels is not judged."""
    readings = ProverReadings(call=call, code=code, stopped=f"{call} failed ({code})", patterns=(pattern(),))
    checks = judge(readings)
    assert checks["prover"].verdict is verdict
    assert checks["prover"].measured.startswith(f"{call} failed ({code})")
    assert checks["memory"].verdict is PASSED


def test_a_hang_is_a_failure_and_a_process_that_stays_needs_a_reboot() -> None:
    hung = judge(ProverReadings(stopped="it did not answer within 30 s", hung=True, left_behind=True))["prover"]
    assert hung.verdict is FAILED
    assert hung.measured.endswith("only a reboot of the node frees the GPU")
    assert judge(ProverReadings(stopped="it was killed by SIGSEGV"))["prover"].verdict is UNTESTED


def proof_of(*verdicts: ProofVerdict) -> GpuProof:
    gpu = make_gpu(0)
    checks = tuple(ProofCheck(name=str(at), verdict=one, measured="") for at, one in enumerate(verdicts))
    return GpuProof(gpu=gpu.uuid, index=0, model=gpu.name, stage=ProofStage.QUICK, checks=checks)


def test_the_worst_check_is_the_verdict() -> None:
    """And a GPU without checks is not tested."""
    assert proof_of(PASSED, UNTESTED, FAILED).verdict is FAILED
    assert proof_of(PASSED, UNTESTED).verdict is UNTESTED
    assert proof_of(PASSED, PASSED).verdict is PASSED
    assert proof_of().verdict is UNTESTED


def test_each_stage_asks_for_more_than_the_one_before() -> None:
    """The first stage does not touch the GPU; a GPU to compare with does what every stage measures, and no more."""
    instant, quick, proof, soak = (plan_stage(stage) for stage in ProofStage)
    assert instant is None
    assert quick is not None
    assert proof is not None
    assert soak is not None
    assert (quick.all_memory, quick.with_peers, quick.repeat_seconds) == (False, False, 0)
    assert (proof.all_memory, proof.with_peers, proof.repeat_seconds) == (True, True, 0)
    assert soak == replace(proof, repeat_seconds=180)
    assert plan_neighbour(soak) == quick

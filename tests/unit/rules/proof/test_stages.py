"""The verdict by the driver's readings alone."""

import pytest
from msgspec.structs import replace

from nodeagent.model.gpu import Fabric, FabricPhase, Gpu
from nodeagent.model.proof import ProofCheck, ProofVerdict
from nodeagent.model.telemetry import GpuSample
from nodeagent.rules.proof.stages import judge_growth, judge_instant
from tests.support.gpus import gpu_uuid, make_gpu

PASSED, FAILED, UNTESTED = ProofVerdict.PASSED, ProofVerdict.FAILED, ProofVerdict.UNTESTED
GPU = make_gpu(0)
BOARD = replace(
    GPU,
    serial="165",
    pci=replace(GPU.pci, link_width_max=16),
    fabric=Fabric(phase=FabricPhase.COMPLETED),
)
SOUND = GpuSample(
    uuid=gpu_uuid(0),
    recovery_action=0,
    clock_event_reasons=0x1,
    remapped_rows_pending=False,
    remapped_rows_failed=False,
    ecc_uncorrected_volatile=0,
    pcie_width=16,
    nvlinks_active=18,
)


def judge(gpu: Gpu = BOARD, sample: GpuSample | None = SOUND, before: Gpu | None = BOARD) -> dict[str, ProofCheck]:
    return {check.name: check for check in judge_instant(gpu, sample, before, [SOUND])}


def test_a_sound_gpu_passes_everything_that_it_tells() -> None:
    assert {name: check.verdict for name, check in judge().items()} == dict.fromkeys(
        ("identity", "recovery action", "slowdown", "row remap", "ECC", "PCIe width", "NVLinks", "fabric"), PASSED
    )


def test_what_the_hardware_does_not_tell_is_left_out() -> None:
    """An old board tells little; nobody compares with a GPU that nobody knew before."""
    plain = make_gpu(0)
    checks = judge_instant(plain, GpuSample(uuid=plain.uuid), None, [])
    assert checks == ()
    unsupported = replace(plain, fabric=Fabric(phase=FabricPhase.NOT_SUPPORTED))
    assert judge_instant(unsupported, GpuSample(uuid=plain.uuid), None, []) == ()


@pytest.mark.parametrize(
    ("sample", "name", "measured"),
    [
        (replace(SOUND, recovery_action=2), "recovery action", "2"),
        (replace(SOUND, clock_event_reasons=0x41), "slowdown", "reasons 0x40"),
        (replace(SOUND, remapped_rows_pending=True), "row remap", "pending"),
        (replace(SOUND, remapped_rows_failed=True, retired_pages_pending=True), "row remap", "pending, failed"),
        (replace(SOUND, ecc_uncorrected_volatile=3), "ECC", "3 uncorrected"),
        (replace(SOUND, pcie_width=8), "PCIe width", "x8"),
        (replace(SOUND, nvlinks_active=17), "NVLinks", "17 active"),
    ],
)
def test_a_bad_reading_fails_by_itself(sample: GpuSample, name: str, measured: str) -> None:
    checks = judge(sample=sample)
    assert (checks[name].verdict, checks[name].measured) == (FAILED, measured)
    assert {check.verdict for check in checks.values() if check.name != name} == {PASSED}


def test_another_board_in_the_place_of_the_known_one_fails() -> None:
    checks = judge(before=replace(BOARD, serial="164"))
    assert checks["identity"].verdict is FAILED
    assert checks["identity"].expected == f"{GPU.uuid} 164"


@pytest.mark.parametrize(
    ("fabric", "verdict", "measured"),
    [
        (Fabric(phase=FabricPhase.IN_PROGRESS), UNTESTED, "in progress"),
        (Fabric(phase=FabricPhase.COMPLETED, status_code=5), FAILED, "completed, status 5"),
    ],
)
def test_a_fabric_that_is_not_settled_is_no_failure(fabric: Fabric, verdict: ProofVerdict, measured: str) -> None:
    check = judge(replace(BOARD, fabric=fabric))["fabric"]
    assert (check.verdict, check.measured) == (verdict, measured)


def test_a_lost_gpu_fails_and_a_silent_one_is_not_tested() -> None:
    lost = judge(replace(BOARD, lost="it fell off the bus"))
    assert {name: (one.verdict, one.measured) for name, one in lost.items()} == {
        "driver": (FAILED, "it fell off the bus")
    }
    assert judge(sample=replace(SOUND, lost="no answer"))["driver"].verdict is FAILED
    assert judge(sample=None)["driver"].verdict is UNTESTED


def test_errors_while_a_gpu_is_proven_fail_it() -> None:
    """Each XID once; ECC errors of before do not count."""
    before = replace(SOUND, ecc_uncorrected_volatile=2)
    assert judge_growth(before, before, []).verdict is PASSED
    grown = judge_growth(before, replace(SOUND, ecc_uncorrected_volatile=5), [48, 48, 94])
    assert (grown.verdict, grown.measured) == (
        FAILED,
        "XID 48, XID 94, 3 ECC errors that could not be corrected",
    )
    assert judge_growth(None, SOUND, []).verdict is PASSED
    assert judge_growth(SOUND, replace(SOUND, ecc_uncorrected_volatile=None), []).verdict is PASSED


def test_a_gpu_that_is_gone_after_the_proof_fails() -> None:
    lost = judge_growth(SOUND, replace(SOUND, lost="it fell off the bus"), [])
    assert (lost.verdict, lost.measured) == (FAILED, "it fell off the bus")
    assert judge_growth(SOUND, None, []).verdict is UNTESTED

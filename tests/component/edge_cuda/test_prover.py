"""The prover's process over the fake driver, with what a sick GPU does."""

import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.edge.cuda import child
from nodeagent.edge.cuda.child import BackgroundProver, ProverChild
from nodeagent.model.proof import ProofCheck, ProofPlan, ProofVerdict, ProverReadings, SpeedKind
from nodeagent.rules.proof.judge import judge_readings
from nodeagent.rules.proof.speeds import find_speeds
from tests.fakes.cuda.driver import CRASHES, HANGS, FakeDriver, build_driver
from tests.support.programs.compiled import compile_once
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the driver is C"),
    pytest.mark.may_block("the fake driver is compiled once"),
]

MIB = 1 << 20
ROOM = 4 * MIB
PLAN = ProofPlan(turns=4, rounds=1000, deadline_seconds=30)
WHOLE = ProofPlan(turns=4, rounds=1000, deadline_seconds=30, all_memory=True, with_peers=True)
FIRST, SECOND = (f"GPU-00000000-0000-0000-0000-00000000000{at}" for at in range(2))
PASSED, FAILED, UNTESTED = ProofVerdict.PASSED, ProofVerdict.FAILED, ProofVerdict.UNTESTED


async def prove(path: Path, plan: ProofPlan = PLAN, *peers: str, gpu: str = FIRST, **driver: Any) -> ProverReadings:
    fake = FakeDriver(path, **{"memory": (ROOM, ROOM), "proves": True, **driver})
    with anyio.fail_after(60):
        return await ProverChild(build_driver(), fake.environ()).prove(gpu, plan, peers)


async def judge(path: Path, plan: ProofPlan = PLAN, *peers: str, **driver: Any) -> dict[str, ProofCheck]:
    readings = await prove(path, plan, *peers, **driver)
    return {check.name: check for check in judge_readings(readings, plan, {SECOND: "GPU 1"})}


async def test_a_sound_gpu_passes_and_shows_its_speeds(tmp_path: Path) -> None:
    """Nothing of the GPU is held afterwards."""
    fake = FakeDriver(tmp_path, memory=(ROOM, ROOM), proves=True)
    readings = await ProverChild(build_driver(), fake.environ()).prove(FIRST, WHOLE, (SECOND,))
    checks = judge_readings(readings, WHOLE, {})
    assert (readings.stopped, {check.verdict for check in checks}) == ("", {PASSED})
    assert [check.name for check in checks] == ["memory", "copies", f"copy by {SECOND}", "checksum"]
    assert find_speeds(readings).keys() == set(SpeedKind)
    assert find_speeds(readings)[SpeedKind.CLOCK] == 1980
    assert (readings.multiprocessors, readings.clock_max_mhz) == (132, 1980)
    assert readings.memory_nominal_gbps == pytest.approx(1.28)
    assert fake.read().sum_used() == 0


async def test_nearly_all_memory_gets_patterns(tmp_path: Path) -> None:
    """In the stages that ask for it; a piece that is too large is tried smaller, four times."""
    sizes = [one.size_bytes for one in (await prove(tmp_path, WHOLE)).patterns if one.where == "memory"]
    assert len(sizes) == 4
    assert 0.9 * ROOM < max(sizes) < ROOM
    # the first allocations are of the counters, the buffer and the records of the checksum
    some = await prove(tmp_path, WHOLE, fail={"cuMemAlloc_v2": "2@4"})
    assert 0.8 * ROOM < some.patterns[-1].size_bytes < max(sizes)
    none = await prove(tmp_path, WHOLE, fail={"cuMemAlloc_v2": "700@4"})
    assert (none.call, none.code, len(none.sums)) == ("cuMemAlloc_v2", 700, 132)


async def test_a_wrong_byte_of_memory_is_found_at_its_address(tmp_path: Path) -> None:
    checks = await judge(tmp_path, wrong={"memory": 12345})
    assert checks["memory"].verdict is FAILED
    assert "1 word of" in checks["memory"].measured
    assert f"(byte {8 * 12345}): 0x" in checks["memory"].measured
    assert checks["memory"].measured.endswith(", bits 9 differ")


@pytest.mark.parametrize("way", ["to", "from"])
async def test_a_copy_that_changes_a_byte_is_found(tmp_path: Path, way: str) -> None:
    """The memory itself is right."""
    checks = await judge(tmp_path, wrong={way: 77})
    assert (checks["memory"].verdict, checks["copies"].verdict) == (PASSED, FAILED)
    assert "(byte 616)" in checks["copies"].measured


async def test_a_slow_copy_is_measured(tmp_path: Path) -> None:
    speeds = find_speeds(await prove(tmp_path, gbps={"to": 0.05}))
    assert speeds[SpeedKind.TO_GPU] == pytest.approx(0.05, rel=0.2)
    assert speeds[SpeedKind.FROM_GPU] > 3 * speeds[SpeedKind.TO_GPU]


async def test_missing_and_wrong_multiprocessors_are_named(tmp_path: Path) -> None:
    checks = await judge(tmp_path, missing_sm=7, wrong_sm=131)
    assert (checks["checksum"].verdict, checks["checksum"].measured) == (
        FAILED,
        "wrong on SM 131; none from SM 7",
    )


async def test_error_700_fails_the_gpu_with_the_call(tmp_path: Path) -> None:
    """What was proven before stays."""
    checks = await judge(tmp_path, fail={"cuLaunchKernel": "700@6"})
    assert checks["prover"].verdict is FAILED
    assert checks["prover"].measured.startswith("cuLaunchKernel failed with CUDA_ERROR_ILLEGAL_ADDRESS (700): an ")
    assert checks["memory"].verdict is PASSED


@pytest.mark.slow
async def test_a_hang_fails_the_gpu_within_the_deadline(tmp_path: Path) -> None:
    """The process is gone afterwards."""
    plan = ProofPlan(turns=4, rounds=1000, deadline_seconds=2.0)
    readings = await prove(tmp_path, plan, fail={"cuMemcpyDtoHAsync_v2": f"{HANGS}@6"})
    assert (readings.hung, readings.left_behind) == (True, False)
    (check,) = judge_readings(readings, plan, {})
    assert check.verdict is FAILED
    assert check.measured.startswith("no answer within 2 s while at '")


@pytest.mark.parametrize(("call", "code"), [("cuCtxCreate_v2", "46"), ("cuInit", "999"), ("cuMemAlloc_v2", "2@1")])
async def test_a_gpu_in_use_or_without_room_is_not_judged(tmp_path: Path, call: str, code: str) -> None:
    checks = await judge(tmp_path, fail={call: code})
    assert {name: one.verdict for name, one in checks.items()} == {"prover": UNTESTED}
    assert checks["prover"].measured.startswith(f"{call} failed with")


async def test_a_copy_by_a_peer_that_changes_a_byte_is_found(tmp_path: Path) -> None:
    """With a single peer either may be at fault."""
    check = (await judge(tmp_path, WHOLE, SECOND, wrong={"peer": 5}))["copy by GPU 1"]
    assert (check.verdict, "(byte 40)" in check.measured) == (UNTESTED, True)


async def test_a_peer_that_cannot_be_used_is_no_fault(tmp_path: Path) -> None:
    """Without room, or not shown at all: the rest is proven all the same."""
    readings = await prove(tmp_path, WHOLE, SECOND, "GPU-none", memory=(ROOM, 1024))
    assert readings.stopped == ""
    no_room, unknown = readings.unreached
    assert no_room.startswith(f"{SECOND}: cuMemAlloc_v2 failed with")
    assert unknown == "GPU-none: CUDA shows 2 GPUs, and GPU-none is not among them"
    assert {check.verdict for check in judge_readings(readings, WHOLE, {})} == {PASSED}


async def test_gpus_without_a_way_to_each_other_copy_by_the_host(tmp_path: Path) -> None:
    readings = await prove(
        tmp_path, WHOLE, SECOND, fail={"cuDeviceCanAccessPeer": "-1", "cuCtxEnablePeerAccess": "217"}
    )
    assert (readings.stopped, SpeedKind.PEER in find_speeds(readings)) == ("", True)


@pytest.mark.slow
async def test_a_soak_goes_on_with_other_patterns_until_its_time_is_over(tmp_path: Path) -> None:
    """Or until something is wrong."""
    plan = ProofPlan(turns=4, rounds=1000, all_memory=True, repeat_seconds=0.3)
    readings = await prove(tmp_path, plan)
    assert len({one.seed for one in readings.patterns}) > 1
    assert {check.verdict for check in judge_readings(readings, plan, {})} == {PASSED}
    wrong = await prove(tmp_path, ProofPlan(turns=4, rounds=1000, repeat_seconds=50), wrong={"memory": 3})
    assert len({one.seed for one in wrong.patterns}) == 1


async def test_a_missing_library_is_not_the_gpus_fault(tmp_path: Path) -> None:
    absent = await ProverChild(tmp_path / "absent.so").prove(FIRST, PLAN)
    assert absent.stopped.startswith(f"cannot load {tmp_path}/absent.so")
    assert judge_readings(absent, PLAN, {})[0].verdict is UNTESTED


async def test_a_library_of_another_kind_is_not_the_gpus_fault(tmp_path: Path) -> None:
    (tmp_path / "nothing.c").touch()
    library = compile_once(tmp_path, "other.so", [tmp_path / "nothing.c"], ("-shared",))
    other = await ProverChild(library).prove(FIRST, PLAN)
    assert "is no CUDA driver library" in other.stopped
    assert judge_readings(other, PLAN, {})[0].verdict is UNTESTED


async def test_a_gpu_that_cuda_does_not_show_is_not_judged(tmp_path: Path) -> None:
    readings = await prove(tmp_path, gpu="GPU-none")
    assert readings.stopped == "CUDA shows 2 GPUs, and GPU-none is not among them"


async def test_a_prover_that_cannot_start_is_not_the_gpus_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/absent/python")
    readings = await ProverChild(None).prove(FIRST, ProofPlan(turns=4, rounds=1000, deadline_seconds=0.2))
    assert "could not be started" in readings.stopped
    assert judge_readings(readings, PLAN, {})[0].verdict is UNTESTED


async def test_a_prover_that_crashes_is_not_judged(tmp_path: Path) -> None:
    """A library's crash may be the library's own fault."""
    readings = await prove(tmp_path, fail={"cuLaunchKernel": f"{CRASHES}@3"})
    assert readings.stopped.endswith("was killed by SIGSEGV before it answered")
    assert judge_readings(readings, PLAN, {})[0].verdict is UNTESTED


async def test_a_cancelled_proof_leaves_the_gpu_at_once(tmp_path: Path) -> None:
    """Although the prover is within a call that never returns: no process of it is left when the caller goes on."""
    fake = FakeDriver(tmp_path, memory=(ROOM,), proves=True, fail={"cuMemcpyDtoHAsync_v2": f"{HANGS}@6"})
    prover = BackgroundProver(build_driver, fake.environ())
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prover.prove, FIRST, PLAN)
            await wait_until(lambda: has_memory(fake))
            tasks.cancel_scope.cancel()
    prover.close()
    assert fake.read().used == {}


def has_memory(fake: FakeDriver) -> bool:
    """Whether the prover has come to its work; before its start there is no account."""
    return fake.read().sum_used() > 0


async def test_a_background_proof_is_a_whole_one(tmp_path: Path) -> None:
    fake = FakeDriver(tmp_path, memory=(ROOM,), proves=True)
    prover = BackgroundProver(build_driver, fake.environ())
    readings = await prover.prove(FIRST, PLAN)
    prover.close()
    assert {check.verdict for check in judge_readings(readings, PLAN, {})} == {PASSED}


async def test_a_search_for_the_library_that_hangs_is_a_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang() -> Path:
        opened.wait()
        return tmp_path

    opened = threading.Event()
    monkeypatch.setattr(child, "_FIND_SECONDS", 0.05)
    prover = BackgroundProver(hang, {})
    readings = await prover.prove(FIRST, PLAN)
    opened.set()
    prover.close()
    assert "look for the CUDA driver library" in readings.stopped

"""Every stage of the proof on a real GPU, and the floors that follow from what it measures, as rows of the table."""

import time
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from nodeagent.edge.cuda.child import ProverChild
from nodeagent.edge.host.driver.cuda_check import LIBRARY
from nodeagent.edge.host.driver.roots import find_library, resolve_driver_roots
from nodeagent.model.proof import ProofStage, ProofVerdict, ProverReadings
from nodeagent.rules.proof.floors import derive_floors
from nodeagent.rules.proof.judge import judge_readings
from nodeagent.rules.proof.speeds import find_speeds
from nodeagent.rules.proof.stages import plan_stage
from tests.gpu.test_mps import first_gpu

pytestmark = pytest.mark.gpu

SECONDS = 60
SOAK_SECONDS = 10.0
"""A soak of this length shows all that a longer soak does again."""


async def test_every_stage_passes_within_a_minute(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Right sums, right memory and right copies; no process of the prover is left on the GPU."""
    prover = ProverChild(find_library(resolve_driver_roots().driver, LIBRARY))
    async with first_gpu() as (gpus, _, gpu):
        began = time.monotonic()
        found: dict[ProofStage, ProverReadings] = {}
        with anyio.fail_after(SECONDS):
            for stage in ProofStage:
                plan = plan_stage(stage)
                if plan is None:
                    continue
                plan = msgspec.structs.replace(plan, repeat_seconds=min(plan.repeat_seconds, SOAK_SECONDS))
                found[stage] = await prover.prove(gpu.uuid, plan)
                checks = judge_readings(found[stage], plan, {})
                record_property(f"{stage}_seconds", round(found[stage].seconds, 2))
                assert {check.name: check for check in checks if check.verdict is not ProofVerdict.PASSED} == {}
        record_property("seconds", round(time.monotonic() - began, 1))
        sample = next(one for one in (await gpus.read_sample()).gpus if one.uuid == gpu.uuid)
    assert sample.processes == ()
    speeds = find_speeds(found[ProofStage.PROOF])
    record_property("speeds", {str(kind): round(value, 1) for kind, value in speeds.items()})
    file = tmp_path / "floors.yaml"
    file.write_bytes(msgspec.yaml.encode({gpu.name: msgspec.to_builtins(derive_floors(speeds))}))
    record_property("floors", file.read_text())

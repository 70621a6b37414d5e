"""Idle-time proving by a whole agent over the fake NVML and the fake CUDA driver; off, nothing of it is loaded."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cuda.driver import FakeDriver, build_driver
from tests.fakes.nvml.control import FakeNvml
from tests.support.programs.agent_process import AgentProcess, running_agent

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the fakes: apt-get install gcc"),
    pytest.mark.may_block("agents are processes of their own here"),
]

PROOFS = "/api/v1/proofs"
ROOM = 4 << 20
LOADED = """
import re, sys
import nodeagent.app.agent
print([name for name in sys.modules if name.startswith("nodeagent.") and re.search("proof|prove|cuda", name)])
"""


def list_words(path: Path, nvml: FakeNvml, **driver: Any) -> tuple[str, ...]:
    """An agent whose free GPUs are due at once."""
    uuid = nvml.gpu(0).uuid.decode()
    cuda = FakeDriver(path, **{"memory": (ROOM,), "proves": True, "uuids": (uuid,), **driver})
    library = path / "root/usr/lib64/libcuda.so.1"
    library.parent.mkdir(parents=True)
    shutil.copy(build_driver(), library)
    sets = {
        "driver.root": path / "root",
        "driver.nvml_library": nvml.library_path,
        "driver.worker_environment": json.dumps({**nvml.environment, **cuda.environ()}),
        "health.poll_seconds": 0.5,
        "health.clean_polls": 1,
        "inventory.sample_seconds": 0.2,
        "proof.idle": "quick",
        "proof.free_seconds": 1,
        "proof.spread_seconds": 0,
    }
    return tuple(word for key, value in sets.items() for word in ("--set", f"{key}={value}"))


def wait_verdict(agent: AgentProcess, verdict: str) -> tuple[str, dict[str, Any]]:
    body = agent.wait_until(PROOFS, lambda body: f'"verdict":"{verdict}"' in body, f"no GPU {verdict}")
    ((gpu, record),) = json.loads(body)["gpus"].items()
    return gpu, record


@pytest.mark.long
def test_a_free_gpu_is_proven_and_the_proof_outlives_a_restart(short_dir: Path) -> None:
    nvml = FakeNvml(short_dir, "t4")
    words = list_words(short_dir, nvml)
    with running_agent(short_dir, *words) as agent:
        gpu, record = wait_verdict(agent, "passed")
        assert record["level"] == "quick"
        wanted = f'nodeagent_gpu_proven_timestamp_seconds{{gpu="0",UUID="{gpu}",level="quick"}}'
        agent.wait_for("/metrics", wanted)
        assert agent.stop() == 0
    with running_agent(short_dir, *words) as agent:
        assert wait_verdict(agent, "passed") == (gpu, record)
    nvml.close()


@pytest.mark.long
def test_a_free_gpu_with_a_wrong_byte_is_taken_away(short_dir: Path) -> None:
    """By its health, with the check that failed in a condition."""
    nvml = FakeNvml(short_dir, "t4")
    with running_agent(short_dir, *list_words(short_dir, nvml, wrong={"memory": 1000})) as agent:
        _, record = wait_verdict(agent, "failed")
        assert "(byte 8000)" in record["reason"]
        agent.wait_for("/api/v1/conditions", "gpu-proof-failed")
        agent.wait_for("/api/v1/gpus/0", "a proof found that the GPU works wrongly")
    nvml.close()


@pytest.mark.slow
def test_off_nothing_that_proves_is_loaded() -> None:
    """But what is told of proofs, which is told in any agent's words."""
    shown = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout
    assert (
        set(json.loads(shown.replace("'", '"')))
        & {
            "nodeagent.components.proof.component",
            "nodeagent.rules.proof.idle",
            "nodeagent.edge.cuda.child",
        }
        == set()
    )
    assert "nodeagent.model.proof" in shown

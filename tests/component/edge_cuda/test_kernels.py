"""The kernels are assembled by NVIDIA's own assembler, for the oldest and for newer GPUs."""

import re
import subprocess
from pathlib import Path

import pytest

from nodeagent.edge.cuda.device import KERNELS
from tests.component.vgpu.cuda_packages import REASON, are_there, find_assembler

pytestmark = [
    pytest.mark.skipif(not are_there(), reason=REASON),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_the_kernels_are_assembled(tmp_path: Path, target: str) -> None:
    """Without a complaint, and with room for sixteen blocks of a kernel on a multiprocessor."""
    command = [str(find_assembler()), f"-arch={target}", "-v", str(KERNELS), "-o", str(tmp_path / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"warning|error", done.stderr)
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", done.stderr)]
    assert len(registers) == 3
    assert max(registers) <= 32

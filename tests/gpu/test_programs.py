"""Programs of others with the library in front of NVIDIA's own driver: run by `make gpu`, a row of its table each."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.component.vgpu.build import HERE
from tests.gpu.test_vgpu import LIMIT, MIB, limit, list_environ, make_place
from tests.support.programs.compiled import compile_once

pytestmark = [pytest.mark.gpu, pytest.mark.may_block("nothing here runs on an event loop")]

PROGRAMS: Final = Path(__file__).parent / "programs"
SECONDS: Final = 90


@dataclass(frozen=True, slots=True)
class Row:
    """One program, and what it says where all is well."""

    name: str
    program: str
    says: tuple[str, ...]
    """How its lines begin."""
    module: str | None = None
    """Without which it cannot run."""
    environ: tuple[tuple[str, str], ...] = ()


ROWS: Final = (
    Row("ipc", "ipc.c", ("taken 0",)),
    Row("pytorch", "torch_memory.py", ("refused", "went on"), "torch"),
    *(
        Row(f"pytorch-{each}", "torch_memory.py", ("refused", "went on"), "torch", (("PYTORCH_CUDA_ALLOC_CONF", each),))
        for each in ("expandable_segments:True", "backend:cudaMallocAsync")
    ),
    Row("pytorch-graphs", "torch_graphs.py", ("replayed",), "torch"),
    Row("pytorch-workers", "torch_workers.py", ("fork", "spawn"), "torch"),
    Row("nccl", "torch_nccl.py", ("reduced",), "torch"),
)


def build(program: Path, *flags: str) -> Path:
    return compile_once(HERE / "build", program.stem, [program], ("-O1", *flags, "-ldl"))


def list_command(row: Row) -> list[str]:
    program = PROGRAMS / row.program
    return [str(build(program))] if program.suffix == ".c" else [sys.executable, str(program), str(LIMIT)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_program(tmp_path: Path, row: Row, record_property: Callable[[str, object], None]) -> None:
    """Within its part of the first device; it says the same as without the library."""
    if row.module and importlib.util.find_spec(row.module) is None:
        pytest.skip(f"{row.module} is not installed")
    place = make_place(tmp_path / "place", memory_bytes=LIMIT)
    environ = {**list_environ(place), **dict(row.environ)}
    done = subprocess.run(list_command(row), env=environ, capture_output=True, text=True, check=False, timeout=SECONDS)
    lines = done.stdout.splitlines()
    record_property("says", "; ".join(lines))
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(row.says), lines
    assert all(line.startswith(said) for line, said in zip(lines, row.says, strict=True)), lines


def test_nvidia_smi_shows_the_part(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """As the device's memory, what the container has as used, and its own processes alone."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi")
    place = make_place(tmp_path / "place", memory_bytes=LIMIT)
    environ = {**list_environ(place), "PATH": os.environ["PATH"]}

    def ask(*words: str) -> list[str]:
        command = ["nvidia-smi", "--id=0", "--format=csv,noheader,nounits", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()

    with limit(place) as one:
        assert one.call("cuMemAlloc_v2", "out", 64 * MIB)[0] == 0
        (memory,) = ask("--query-gpu=memory.total,memory.used")
        processes = ask("--query-compute-apps=pid,used_memory")
        counted = {each.pid: each.shares[0].used_bytes // MIB for each in place.read().processes}
    record_property("memory", memory)
    record_property("processes", processes)
    assert [int(each) for each in memory.split(",")] == [LIMIT // MIB, sum(counted.values())]
    assert {int(pid): int(used) for pid, used in (line.split(",") for line in processes)} == counted

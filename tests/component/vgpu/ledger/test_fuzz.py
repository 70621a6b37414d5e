"""Limits and usage files of any content, under the sanitizers: no crash, no hang, and nothing granted past a limit."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.component.vgpu.build import HERE, VGPU
from tests.support.programs.compiled import compile_once

pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

SECONDS: Final = 20
BESIDE: Final = ("front.c", "trampolines.c", "files.c", "ledger.c")
"""What is part of the program itself, or leads nobody anywhere in it."""


def list_sources() -> list[Path]:
    rest = [path for path in sorted(VGPU.rglob("*.c")) if path.name not in {*BESIDE, "hooks.c", "routing.c"}]
    return [HERE / "src/fuzz_files.c", *rest]


def test_changed_at_random(tmp_path: Path) -> None:
    """A few thousand, the same each time: for every change of the library."""
    flags = ("-DALONE", "-O1", f"-I{VGPU}", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    ledger = VGPU / "ledger"
    besides = [*VGPU.rglob("*.h"), ledger / "files.c", ledger / "ledger.c", VGPU.parent / "include/vgpu_files.h"]
    program = compile_once(HERE / "build", "fuzz_files", list_sources(), flags, besides=sorted(besides))
    done = subprocess.run([program, "1", "3000"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("clang") is None, reason="wants clang and its fuzzer")
def test_by_a_fuzzer_that_sees_where_it_gets(tmp_path: Path) -> None:
    """For as long as a night has for it."""
    program = tmp_path / "fuzz"
    flags = ["-std=gnu11", "-g", "-O1", f"-I{VGPU}", "-fsanitize=fuzzer,address,undefined"]
    subprocess.run(["clang", *flags, "-o", program, *list_sources()], check=True)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    command: list[str | Path] = [
        program,
        f"-max_total_time={SECONDS}",
        "-max_len=8192",
        "-timeout=10",
        "-print_final_stats=1",
        corpus,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]

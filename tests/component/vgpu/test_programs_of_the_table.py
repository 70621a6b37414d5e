"""The programs that `tests/gpu` has for its table: each is of a row, and what needs no GPU is right."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.component.vgpu.cuda_packages import PACKAGES, REASON, Package, are_there
from tests.gpu.test_programs import PROGRAMS, ROWS, build, list_command

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

SOURCES = sorted(path for path in PROGRAMS.glob("*.[cp]*") if path.stem != "__init__")
IN_C = [path for path in SOURCES if path.suffix == ".c"]


def test_each_program_is_of_a_row_and_each_row_has_one() -> None:
    assert {row.program for row in ROWS} == {path.name for path in SOURCES}
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert Path(list_command(row)[-1 if row.program.endswith(".c") else 1]).is_file()


@pytest.mark.parametrize("program", SOURCES, ids=lambda path: path.name)
def test_each_says_what_its_row_waits_for(program: Path) -> None:
    """The words are in its source; one in Python can be read."""
    text = program.read_text()
    if program.suffix == ".py":
        ast.parse(text)
    wanted = {word for row in ROWS if row.program == program.name for said in row.says for word in said.split()[:1]}
    assert [word for word in wanted if word not in text] == []


@pytest.mark.skipif(not are_there(), reason=REASON)
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.version))
@pytest.mark.parametrize("program", IN_C, ids=lambda path: path.name)
def test_declarations_in_c_are_those_of_cuda(program: Path, package: Package) -> None:
    """The same functions are called by the program as it runs."""
    assert build(program, "-DWITH_CUDA_HEADER", f"-I{package.include}").exists()

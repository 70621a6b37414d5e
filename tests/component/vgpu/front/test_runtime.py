"""A client that nobody here wrote: each entry point that NVIDIA's runtime asks for is the right one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.vgpu.build import LIBRARY, build_library, build_program, build_small_library
from tests.component.vgpu.cuda_packages import PACKAGES, REASON, Package, are_there
from tests.component.vgpu.front.test_cuda_headers import list_hooks
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.skipif(not are_there(), reason=REASON),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

QUESTIONS = {12090: 419, 13050: 482}
"""How many the runtime of each version asks, before it finds that the driver is not NVIDIA's."""


def start(package: Package, place: Place, driver: FakeDriver, *libraries: Path) -> tuple[str, list[list[str]]]:
    """What the runtime said of the driver, and each question with its answer; the recorder stands before all."""
    record = place.path / f"record-{len(libraries)}"
    preload = ":".join(map(str, [build_small_library("recorder"), *libraries]))
    environ = {**driver.environ(), **place.environ(LD_PRELOAD=preload, RECORD=str(record))}
    command = [build_program("runtime_start"), package.library]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout, [line.split(" ") for line in record.read_text().splitlines()]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.version))
def test_every_question_gets_the_right_answer(package: Package, place: Place, tmp_path: Path) -> None:
    """The hook of the same symbol, or the driver's own address; and the runtime goes as far as without the library."""
    place.create(1 << 20)
    driver = FakeDriver(tmp_path, version=package.version, has_everything=True)
    said_without, without = start(package, place, driver)
    said_with, answered = start(package, place, driver, build_library())
    hooks = list_hooks()
    wanted = [[*line[:5], LIBRARY if line[6] in hooks else line[5], line[6]] for line in without]
    assert answered == wanted
    assert said_with == said_without
    assert len(answered) == QUESTIONS[package.version]
    assert sum(line[5] == LIBRARY for line in answered) > 35

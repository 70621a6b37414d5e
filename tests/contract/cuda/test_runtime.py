"""NVIDIA's runtime on NVIDIA's driver, with the vGPU library between them: three programs, one of which is ours."""

import shutil
from pathlib import Path

import pytest

from tests.component.vgpu.build import LIBRARY, build_library, build_program, build_small_library
from tests.component.vgpu.cuda_packages import PACKAGES, REASON, Package, are_there
from tests.component.vgpu.front.test_cuda_headers import list_hooks
from tests.component.vgpu.place import Place
from tests.contract.libraries import Library

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.skipif(not are_there(), reason=REASON),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


def start(driver: Library, package: Package, place: Place, *libraries: Path) -> tuple[str, list[list[str]]]:
    """What the runtime says, and each of its questions to the driver with the answer, which a recorder writes down."""
    record = place.path / f"record-{len(libraries)}"
    done = driver.run(
        str(build_program("runtime_start")),
        str(package.library),
        LD_LIBRARY_PATH=str(driver.path.parent),
        LD_PRELOAD=":".join(map(str, [build_small_library("recorder"), *libraries])),
        NODEAGENT_VGPU_DIR=str(place.path),
        RECORD=str(record),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, [line.split(" ") for line in record.read_text().splitlines()]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.version))
def test_the_runtime_finds_what_it_finds_without_the_library(original: Library, package: Package, place: Place) -> None:
    """The hook of the same symbol, or the driver's own place; what it says of the driver is the same."""
    said_without, without = start(original, package, place)
    said_with, answered = start(original, package, place, build_library())
    hooks = list_hooks()
    wanted = [[*line[:5], LIBRARY if line[6] in hooks else line[5], line[6]] for line in without]
    assert (said_with, answered) == (said_without, wanted)
    assert answered

"""The other processor, under an emulator of user programs: the library before a driver and a program built for it."""

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from nodeagent.edge.host.vgpu.usage_file import read_usage
from tests.component.vgpu.build import HERE, build_library
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import SONAME, FakeDriver

MACHINE: Final = "aarch64"
COMPILER: Final = f"{MACHINE}-linux-gnu-gcc"
LIMIT: Final = 1 << 20
OUT_OF_MEMORY: Final = 2
FAKE: Final = Path(__file__).parents[2] / "fakes/cuda/src"
pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() == MACHINE, reason="this is that processor"),
    pytest.mark.skipif(shutil.which(f"qemu-{MACHINE}") is None, reason="wants the emulator of user programs"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason="wants the cross compiler"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver and programs of that processor."""
    place = tmp_path_factory.mktemp("emulated")
    shared = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic", f"-Wl,-soname,{SONAME}"]
    subprocess.run([COMPILER, *shared, "-o", place / SONAME, *sorted(FAKE.glob("*.c"))], check=True)
    for name in ("ways", "race"):
        subprocess.run([COMPILER, "-o", place / name, HERE / "src" / f"{name}.c", "-pthread", "-ldl"], check=True)
    return place


def run(built: Path, place: Place, driver: FakeDriver, *words: str) -> str:
    """What the dynamic linker is told is for the program alone, not for the emulator."""
    environ = {**driver.environ(), **place.environ()}
    del environ["LD_LIBRARY_PATH"]
    handed = ["-E", f"LD_LIBRARY_PATH={built}", "-E", f"LD_PRELOAD={build_library(machine=MACHINE)}"]
    command = [f"qemu-{MACHINE}", "-L", f"/usr/{MACHINE}-linux-gnu", *handed, str(built / words[0]), *words[1:]]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("way", ["handle", "global", "next", "wide", "itself", "versioned", "address", "first"])
def test_every_way_leads_to_the_limit(built: Path, place: Place, driver: FakeDriver, way: str) -> None:
    """By the jumps and versions of that processor."""
    place.create(LIMIT)
    said = run(built, place, driver, "ways", "-", way, str(LIMIT + 1), str(LIMIT), "1")
    assert said == f"{OUT_OF_MEMORY} 0 {OUT_OF_MEMORY} "
    assert driver.read().most[0] == LIMIT


@pytest.mark.parametrize("shares", [False, True])
def test_threads_race_for_memory_of_every_kind(built: Path, place: Place, driver: FakeDriver, shares: bool) -> None:
    """Also where the container shares a claim with others."""
    place.create_shared(LIMIT) if shares else place.create(LIMIT)
    assert run(built, place, driver, "race", "4", "500", str(LIMIT // 4)).endswith(" wrong 0\n")
    assert 0 < driver.read().most[0] <= LIMIT
    assert read_usage(place.path / "own/usage" if shares else place.usage_path).sum_used(0) == 0

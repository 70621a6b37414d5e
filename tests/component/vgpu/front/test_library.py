"""The library as it is handed out: what it shows, what it needs, how large it is."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.vgpu.build import HERE, LIBRARY, VGPU, build_library
from tests.deploy.dist import PROGRAM_LIMITS
from tests.support.programs.native import MACHINES

NEWEST_C_LIBRARY = (2, 17)
pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


def can_build(machine: str) -> bool:
    return machine == platform.machine() or bool(shutil.which(f"{machine}-linux-gnu-gcc"))


machines = pytest.mark.parametrize(
    "machine",
    [pytest.param(each, marks=pytest.mark.skipif(not can_build(each), reason="no compiler")) for each in MACHINES],
)


def list_symbols(library: Path) -> list[list[str]]:
    done = subprocess.run(["nm", "--dynamic", library], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def read_exports() -> list[str]:
    listed = re.search(r"global:(.*)local:", (VGPU / "front/exports.map").read_text(), re.DOTALL)
    assert listed
    return re.findall(r"\w+", listed[1])


@pytest.mark.long
@machines
def test_shows_what_is_listed_and_nothing_else(machine: str) -> None:
    """The list is that of the hooks, which are in the order that they are searched by, and the loader's functions."""
    shown = sorted(
        fields[-1]
        for fields in list_symbols(build_library(machine=machine))
        if fields[-2] in "TDBRiVW" and len(fields) == 3
    )
    hooks = re.findall(r"^    [A-Z]+\((\w+)[,)]", (VGPU / "front/hooks.c").read_text(), re.MULTILINE)
    assert hooks == sorted(hooks)
    assert shown == sorted(read_exports()) == sorted([*hooks, "dlsym", "dlvsym", "dlopen", "dlmopen"])


@pytest.mark.long
@machines
def test_needs_no_newer_c_library(machine: str) -> None:
    """By the versions of the symbols it wants; nothing is wanted of any other library."""
    wanted = [fields[-1] for fields in list_symbols(build_library(machine=machine)) if fields[0] in "Uw"]
    versions = [tuple(map(int, each.rpartition("@GLIBC_")[2].split("."))) for each in wanted if "@" in each]
    assert len(versions) > 10
    assert max(versions) <= NEWEST_C_LIBRARY
    assert {each for each in wanted if "@" not in each} <= {
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
        "__gmon_start__",
        "_r_debug",
        "pthread_atfork",
    }


@pytest.mark.long
@machines
def test_is_small(machine: str) -> None:
    assert build_library(machine=machine).stat().st_size <= PROGRAM_LIMITS[LIBRARY]


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="wants the compiler of another C library")
def test_programs_of_another_c_library_start_with_it(tmp_path: Path) -> None:
    """There is no driver for them, and the library is in their way no more than in that of others."""
    program = tmp_path / "small"
    subprocess.run(["musl-gcc", "-o", program, HERE / "src" / "small.c"], check=True)
    done = subprocess.run(
        [program], env={"LD_PRELOAD": str(build_library())}, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("found 1 1 0\n", "")


@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="wants the emulator of user programs")
@pytest.mark.skipif(not can_build("aarch64"), reason="wants the cross compiler")
def test_programs_of_the_other_processor_start_with_it(tmp_path: Path) -> None:
    """The jumps to the C library are written for each processor."""
    program = tmp_path / "small"
    subprocess.run(["aarch64-linux-gnu-gcc", "-o", program, HERE / "src" / "small.c"], check=True)
    command: list[str | Path] = [
        "qemu-aarch64",
        "-L",
        "/usr/aarch64-linux-gnu",
        "-E",
        f"LD_PRELOAD={build_library(machine='aarch64')}",
        program,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("found 1 1 0\n", "")

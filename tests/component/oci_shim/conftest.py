"""The program, as it is handed out and as sanitizers want it."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.oci_shim.support import Shim
from tests.support.programs.native import NATIVE

SOURCES = NATIVE / "oci_shim"
CHECKED_SOURCES = tuple(source for source in sorted(SOURCES.glob("*.c")) if source.name != "memory.c")
"""What sanitizers look at: with memory that is one block for each piece."""
CHECKS = [
    "-std=gnu11",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-warning-option",  # clang, which does not know the next one; GCC takes any `-Wno-`
    "-Wformat-truncation=0",
    "-Werror",
    "-fsanitize=address,undefined",
]
MACHINE = platform.machine()


def build(place: Path, machine: str) -> Path:
    if not shutil.which(f"{machine}-linux-musl-gcc"):
        pytest.skip(f"wants musl for {machine}: `make native` says how to install it")
    folder = shutil.copytree(NATIVE, place / "native", ignore=shutil.ignore_patterns("built", "__pycache__"))
    target = f"built/{machine}/nodeagent-oci-shim"
    subprocess.run(["make", "--no-print-directory", "-C", folder, target], check=True, capture_output=True)
    return folder / target


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shim"), MACHINE)


@pytest.fixture(scope="session")
def foreign_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("qemu-aarch64"):
        pytest.skip("wants the emulator of user programs")
    return build(tmp_path_factory.mktemp("foreign"), "aarch64")


@pytest.fixture(scope="session")
def checked_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the system's C library, address and undefined-behaviour sanitizer."""
    if not shutil.which("cc"):
        pytest.skip("wants a C compiler: apt-get install gcc libc6-dev")
    path = tmp_path_factory.mktemp("checked") / "nodeagent-oci-shim"
    sources = [*CHECKED_SOURCES, Path(__file__).parent / "src" / "memory.c"]
    flags = [*CHECKS, "-fno-sanitize-recover=all", f"-I{SOURCES}"]
    subprocess.run(["cc", *flags, "-o", path, *sources], check=True)
    return path


@pytest.fixture
def shim(program: Path, tmp_path: Path) -> Shim:
    return Shim(program, tmp_path)

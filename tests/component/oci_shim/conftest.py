"""The program, as it is handed out and as sanitizers want it."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.oci_shim.support import Shim
from tests.support.programs.native import NATIVE

SOURCES = NATIVE / "oci_shim"
MACHINE = platform.machine()


def build(place: Path, machine: str) -> Path:
    folder = shutil.copytree(NATIVE, place / "native", ignore=shutil.ignore_patterns("built", "__pycache__"))
    target = f"built/{machine}/nodeagent-oci-shim"
    subprocess.run(["make", "--no-print-directory", "-C", folder, target], check=True, capture_output=True)
    return folder / target


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shim"), MACHINE)


@pytest.fixture(scope="session")
def foreign_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"):
        pytest.skip("wants the cross compiler and the emulator of user programs")
    return build(tmp_path_factory.mktemp("foreign"), "aarch64")


@pytest.fixture(scope="session")
def checked_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the C library, address and undefined-behaviour sanitizer."""
    path = tmp_path_factory.mktemp("checked") / "nodeagent-oci-shim"
    sources = [source for source in sorted(SOURCES.glob("*.c")) if source.name != "start.c"]
    flags = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-DSHIM_HOSTED", "-fsanitize=address,undefined"]
    subprocess.run(["cc", *flags, "-fno-sanitize-recover=all", "-o", path, *sources], check=True)
    return path


@pytest.fixture
def shim(program: Path, tmp_path: Path) -> Shim:
    return Shim(program, tmp_path)

"""The hook as it is built, and a container for it."""

import subprocess
from pathlib import Path

import pytest

from tests.component.cdi.bundle import Bundle
from tests.support.programs.native import HOOK_SOURCES

OLD_KERNEL = Path(__file__).parent / "src/old_kernel.c"


@pytest.fixture(scope="session", params=["this kernel", "a kernel of 2018"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it is, and where the kernel has neither openat2 nor the newer calls for mounts."""
    path = tmp_path_factory.mktemp("hook") / "nodeagent-cdi-hook"
    flags = ["-static", "-O2", "-Wall", "-Wextra", "-Wformat-truncation=0", "-Werror"]
    older = [] if request.param == "this kernel" else ["-Wl,--wrap=syscall", str(OLD_KERNEL)]
    subprocess.run(["cc", *flags, *older, "-o", str(path), *map(str, HOOK_SOURCES)], check=True)
    return path


@pytest.fixture
def bundle(program: Path, tmp_path: Path) -> Bundle:
    return Bundle(program, tmp_path)

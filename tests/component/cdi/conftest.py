"""The hook as it is built, and a container for it."""

import subprocess
from pathlib import Path

import pytest

from tests.component.cdi.bundle import Bundle
from tests.support.programs.native import HOOK_SOURCES


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hook") / "nodeagent-cdi-hook"
    command = [
        "cc",
        "-static",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wformat-truncation=0",
        "-Werror",
        "-o",
        str(path),
        *map(str, HOOK_SOURCES),
    ]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def bundle(program: Path, tmp_path: Path) -> Bundle:
    return Bundle(program, tmp_path)

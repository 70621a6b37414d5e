"""The libraries that the suite runs on: the fake without a driver, and NVIDIA's own of 535 and 550.

Each is loaded in processes of their own, in a user namespace: as root NVIDIA's library makes `/dev/nvidiactl` where
there is none, and every other program of this machine would take that for a driver's.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.nvml.build import SONAME, build_library
from tests.originals.packages import DRIVERS, REASON, find_library

HARMLESS: Final = ("unshare", "--map-root-user")
"""In front of a command: whatever it believes to be, the kernel lets it make no device node."""
SAY: Final = Path(__file__).with_name("say.py")
FAKE: Final = "fake"


def is_driver_loaded() -> bool:
    return Path("/proc/driver/nvidia/version").exists()


@dataclass(frozen=True, slots=True)
class Library:
    """One library."""

    name: str
    path: Path

    @property
    def is_fake(self) -> bool:
        return self.name == FAKE

    def ask(self, question: str, *, environment: Mapping[str, str] | None = None) -> Any:
        """What `say.py` answers with this library."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("NODEAGENT_FAKE")}
        environ["PYTHONPATH"] = ":".join(sys.path)
        command = [*HARMLESS, sys.executable, str(SAY), str(self.path), question]
        done = subprocess.run(
            command, env=environ | dict(environment or {}), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def open_library(name: str) -> Library:
    """The library of that name; the test is skipped where it cannot run."""
    if shutil.which(HARMLESS[0]) is None or subprocess.run([*HARMLESS, "true"], check=False).returncode:
        pytest.skip("needs user namespaces, which this machine forbids")
    if name == FAKE:
        return Library(name, build_library() / SONAME)
    path = find_library(name, SONAME)
    if path is None:
        pytest.skip(REASON)
    if is_driver_loaded():
        pytest.skip("a driver is loaded here: tests/gpu asks it")
    return Library(name, path)


NAMES: Final = (FAKE, *DRIVERS)

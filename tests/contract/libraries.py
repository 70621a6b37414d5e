"""Libraries that a suite runs on: a fake, and NVIDIA's own of 535 and 550, each asked in a process of its own.

That process is in a user namespace: as root NVIDIA's libraries make `/dev/nvidiactl` where there is none, and every
other program of this machine would take that for a driver's.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.originals.packages import DRIVERS, REASON, find_library

HARMLESS: Final = ("unshare", "--map-root-user")
"""In front of a command: whatever it believes to be, the kernel lets it make no device node."""
FAKE: Final = "fake"
NAMES: Final = (FAKE, *DRIVERS)


def is_driver_loaded() -> bool:
    return Path("/proc/driver/nvidia/version").exists()


@dataclass(frozen=True, slots=True)
class Library:
    """One library, and the program that asks it."""

    name: str
    path: Path
    say: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def ask(self, question: str, **more: str) -> Any:
        """What the program answers, a JSON text; `more` goes into its environment."""
        done = self.run(sys.executable, str(self.say), str(self.path), question, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("FAKE_", "NODEAGENT_FAKE"))
        }
        environ |= {"PYTHONPATH": ":".join(sys.path), **self.environment, **more}
        return subprocess.run([*HARMLESS, *command], env=environ, capture_output=True, text=True, check=False)


def open_library(name: str, soname: str, say: Path, build: Callable[[], Path], **environment: str) -> Library:
    """The library of that name, with the fake's environment; the test is skipped where it cannot run."""
    skip_unless_harmless()
    if name == FAKE:
        return Library(name, build(), say, environment)
    path = find_library(name, soname)
    if path is None:
        pytest.skip(REASON)
    return Library(name, path, say)


def skip_unless_harmless() -> None:
    """Skip the test where NVIDIA's programs cannot be kept from the machine, or meet a driver."""
    if shutil.which(HARMLESS[0]) is None or subprocess.run([*HARMLESS, "true"], check=False).returncode:
        pytest.skip("needs user namespaces, which this machine forbids")
    if is_driver_loaded():
        pytest.skip("a driver is loaded here: tests/gpu asks it")

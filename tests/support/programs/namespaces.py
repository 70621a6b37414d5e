"""Programs that see nobody but themselves and their children, as in a container."""

import shutil
import subprocess
from typing import Final

import pytest

FIRST_OF_A_CONTAINER: Final = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")
"""In front of a command: it is process 1 of a namespace of its own, and ends with whoever started it."""


def _are_allowed(*more: str) -> bool:
    if shutil.which(FIRST_OF_A_CONTAINER[0]) is None:
        return False
    return subprocess.run([*FIRST_OF_A_CONTAINER, *more, "true"], capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not _are_allowed(), reason="needs process namespaces, which this machine forbids")
needs_proc_mounts = pytest.mark.skipif(
    not _are_allowed("--mount-proc"),
    reason="needs a /proc with nothing mounted below it, as the kernel asks for another",
)

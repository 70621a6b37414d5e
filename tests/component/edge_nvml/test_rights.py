"""What the worker that reads may not do, held against NVIDIA's own libraries."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeagent.core.children.frames import encode_frame
from nodeagent.edge.nvml.agent.command import render_command, render_environment
from tests.originals.packages import LIBRARIES, find_driver

IN_AN_EMPTY_DEV = """\
mount -t tmpfs tmpfs "$0" && cp -a /dev/null /dev/zero /dev/urandom "$0" && mount --bind "$0" /dev || exit 1
"$@" > /dev/shm.out
ls /dev
"""
BY_ITSELF = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).nvmlInitWithFlags(0)"

pytestmark = [
    pytest.mark.may_block("nothing here runs on an event loop"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None or Path("/proc/driver/nvidia").exists(),
        reason="needs root, mounts of its own, and a machine without a driver",
    ),
]


def list_made(directory: Path, command: Sequence[str], said: bytes = b"") -> set[str]:
    """The device nodes of NVIDIA's that are there after this command, of which none was there before."""
    words = ["unshare", "--mount", "sh", "-c", IN_AN_EMPTY_DEV, str(directory), *command]
    environ = {**render_environment({}), "PATH": os.environ["PATH"]}
    done = subprocess.run(words, input=said, env=environ, capture_output=True, check=True, timeout=60)
    there = set(done.stdout.decode().split())
    assert {"null", "zero", "urandom", "shm.out"} <= there
    return {name for name in there if name.startswith("nvidia")}


@pytest.mark.parametrize("driver", ["535", "550"])
def test_the_library_makes_no_device_node_in_the_worker(driver: str, tmp_path: Path) -> None:
    """It would by itself, also where there is no driver that could need one."""
    root = find_driver(driver)
    if root is None:
        pytest.skip(f"driver {driver} was not fetched: make originals")
    library = str(root / LIBRARIES / "libnvidia-ml.so.1")
    assert list_made(tmp_path, [sys.executable, "-c", BY_ITSELF, library]) == {"nvidiactl"}
    worker = render_command("", library)
    assert list_made(tmp_path, worker, encode_frame(1, b'{"do":"open"}')) == set()

"""The journal on disks that fill up, go read-only, and lose power."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.journal import power_cut, small_disk

HAS_NAMESPACES = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False).returncode
    == 0
)
HAS_LOOP_DEVICES = os.geteuid() == 0 and Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4") is not None


@pytest.mark.long
@pytest.mark.skipif(not HAS_NAMESPACES, reason="needs mount namespaces, which this machine forbids")
def test_a_full_and_a_read_only_disk_refuse_and_heal(tmp_path: Path) -> None:
    """Each is refused in words a person can use, heals by itself within seconds, and loses nothing answered."""
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", small_disk.__name__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def cut_power(directory: Path, images: int, *options: str) -> list[str]:
    command = ["unshare", "--mount", sys.executable, "-m", power_cut.__name__, str(directory), str(images), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["images"] == images
    return list(found["lost"])


needs_loop_devices = pytest.mark.skipif(not HAS_LOOP_DEVICES, reason="needs root, loop devices and mkfs.ext4")


@pytest.mark.long
@needs_loop_devices
def test_a_power_cut_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """Whatever moment the power goes, the disk holds every number that was acknowledged by then."""
    assert cut_power(tmp_path, 30) == []


@pytest.mark.nightly
@pytest.mark.timeout(1600)
@needs_loop_devices
def test_a_thousand_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """The same, often enough for rare moments."""
    assert cut_power(tmp_path, 1000) == []


@pytest.mark.nightly
@pytest.mark.timeout(1600)
@needs_loop_devices
def test_the_pictures_would_show_a_loss(tmp_path: Path) -> None:
    """Without the sync of the directory some of the pictures lack what was acknowledged: the check is not blind."""
    assert cut_power(tmp_path, 200, "--careless")

"""Death and failure at every step of the journal's life."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.journal import loop
from tests.faults.journal.scenario import find_faults


def run_loop(directory: Path, *arguments: str) -> dict[str, Any]:
    """The loop's own word on what it found; it is a process of its own, because it forks."""
    command = [sys.executable, "-m", loop.__name__, *arguments[:1], str(directory), *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed before or after any step, the next agent finds every acknowledged allocation, each once."""
    found = run_loop(tmp_path, "kill")
    assert found["steps"] > 20
    assert found["rounds"] == 2 * found["steps"]
    assert found["faults"] == {}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_an_error_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """With any one step failing the agent lives, answers only what is durable, and the next one finds all of it."""
    found = run_loop(tmp_path, "error", "--codes", "2")
    assert found["rounds"] == 2 * found["steps"]
    assert found["faults"] == {}


@pytest.mark.nightly
@pytest.mark.timeout(1600)
def test_twenty_kills_at_each_step(tmp_path: Path) -> None:
    """Many times over, so that what depends on timing shows."""
    found = run_loop(tmp_path, "kill", "--repeat", "20")
    assert found["faults"] == {}


@pytest.mark.nightly
@pytest.mark.timeout(1600)
def test_every_error_at_each_step(tmp_path: Path) -> None:
    """Every way in which a disk says no."""
    found = run_loop(tmp_path, "error")
    assert found["faults"] == {}


def test_the_loop_would_notice(tmp_path: Path) -> None:
    """The check behind these tests is not blind: a lost allocation and an unreadable journal are found."""
    assert find_faults(tmp_path, "GPU-1-first\n") == ["lost: GPU-1-first"]
    (tmp_path / "allocations.journal").write_bytes(b"garbage\n")
    assert any(fault.startswith("damaged") for fault in find_faults(tmp_path, ""))
